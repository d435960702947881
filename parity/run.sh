#!/bin/sh
# Compares tokenizers with their own libraries, then builds infer and compares it with Hugging Face transformers, live.
# Arguments go to parity.py.
set -eu
cd "$(dirname "$0")/.."
requirements=parity/requirements.txt
. parity/venv.sh
$python gpt2/tokenizer/testdata/make_pipelines.py --live
make -s build
exec $python parity/parity.py "$@"

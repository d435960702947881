#!/bin/sh
# Builds infer and compares it with Hugging Face transformers, live. Arguments go to parity.py.
set -eu
cd "$(dirname "$0")/.."
requirements=parity/requirements.txt
. parity/venv.sh
make -s build
exec $python parity/parity.py "$@"

#!/bin/sh
# Builds infer and compares it with Hugging Face transformers, live. Arguments go to parity.py.
set -eu
cd "$(dirname "$0")/.."
requirements=parity/requirements.txt
. parity/venv.sh
go build -o bin/infer ./cmd/infer
exec $python parity/parity.py "$@"

#!/bin/sh
# Builds infer and times it beside PyTorch, ONNX Runtime and OpenVINO. Arguments go to peers.py.
set -eu
cd "$(dirname "$0")/.."
requirements=bench/requirements.txt
. parity/venv.sh
go build -o bin/infer ./cmd/infer
exec $python bench/peers.py "$@"

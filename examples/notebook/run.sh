#!/bin/sh
# Runs the notebook as it stands; a cell that fails ends with an error. The result is build/notebook/crossover.ipynb.
set -eu
cd "$(dirname "$0")/../.."
requirements=examples/notebook/requirements.txt
. parity/venv.sh
make -s build
$python -m jupyter nbconvert --to notebook --execute --output-dir build/notebook examples/notebook/crossover.ipynb

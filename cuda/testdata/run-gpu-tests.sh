#!/usr/bin/env bash
# Runs the tests that make test-gpu-binaries built, on a machine with a GPU, and then
# the checks with Nsight Systems and Nsight Compute. Go is not needed. With
# arguments, which go to each test program, those checks are skipped: build/gpu/run.sh -test.run Linear
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
export GPT2SCOPE_REQUIRE_GPU=1
export GPT2SCOPE_CUDA_LIB=${GPT2SCOPE_CUDA_LIB:-$root/lib/libgpt2scope_cuda.so}
status=0
while read -r name folder; do
	echo "== $folder"
	# Tests run in the folder of their package, as go test runs them.
	(cd "$root/$folder" && "$here/$name" "$@") || status=1
done < "$here/tests"
if test $# = 0; then
	echo "== traces/check-gpu.sh"
	"$root/traces/check-gpu.sh" || status=1
fi
exit $status

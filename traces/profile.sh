#!/usr/bin/env bash
# Captures a run of bin/infer with Nsight Systems and prints its summary tables.
# Arguments are infer's; OUT names the capture (build/profile).
set -euo pipefail
cd "$(dirname "$0")/.."
out=${OUT:-build/profile}
command -v nsys >/dev/null || {
	echo "nsys is not in PATH. Install Nsight Systems: https://developer.nvidia.com/nsight-systems (it is part of the CUDA toolkit)." >&2
	exit 1
}
test -x bin/infer || { echo "bin/infer is not built; build it with make build" >&2; exit 1; }
test -f lib/libgpt2scope_nvtx.so || { echo "lib/libgpt2scope_nvtx.so is not built; build it with make nvtx" >&2; exit 1; }
mkdir -p "$(dirname "$out")"
nsys profile -t cuda,nvtx --cuda-graph-trace=node --sample=none --cpuctxsw=none --force-overwrite=true -o "$out" bin/infer "$@"
nsys stats --force-export=true \
	--report nvtx_sum --report nvtx_kern_sum --report nvtx_gpu_proj_sum --report cuda_api_sum --report cuda_gpu_kern_sum "$out.nsys-rep"
echo "$out.nsys-rep: open it with nsys-ui; docs/nsys.md says what to look for"

#!/usr/bin/env bash
# Builds lib/libgpt2scope_nvtx.so from csrc/nvtx.c. The NVTX headers are those of
# CUDA_HOME, else those of /usr/local/cuda, else those of NVIDIA's wheel nvidia-nvtx, which
# pip installs into build/cuda. Neither a GPU nor a CUDA compiler is needed.
set -euo pipefail
cd "$(dirname "$0")/.."

headers() { # prints the folder that has nvtx3/nvToolsExt.h
	local dir
	for dir in ${CUDA_HOME:+"$CUDA_HOME/include"} /usr/local/cuda/include build/cuda/nvidia/cu13/include; do
		if test -f "$dir/nvtx3/nvToolsExt.h"; then
			echo "$dir"
			return
		fi
	done
	return 1
}

if ! include=$(headers); then
	python3 -m pip --version >/dev/null 2>&1 || {
		echo "The NVTX headers are missing. Set CUDA_HOME to a CUDA toolkit, or install pip for python3 (Debian: apt-get install python3-pip) so that they can be fetched." >&2
		exit 1
	}
	python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --no-deps --target build/cuda --upgrade 'nvidia-nvtx==13.0.*' >&2
	include=$(headers) || {
		echo "The wheel nvidia-nvtx has no nvtx3/nvToolsExt.h under build/cuda." >&2
		exit 1
	}
fi
if test "${1:-}" = --headers; then # for those who build against them, such as the tests
	realpath "$include"
	exit
fi
mkdir -p lib
${CC:-cc} -std=c11 -O2 -Wall -Wextra -Werror -fPIC -fvisibility=hidden -shared -isystem "$include" \
	csrc/nvtx.c -o lib/libgpt2scope_nvtx.so.new -ldl
mv lib/libgpt2scope_nvtx.so.new lib/libgpt2scope_nvtx.so
echo "lib/libgpt2scope_nvtx.so, with the NVTX headers of $include"

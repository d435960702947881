#!/usr/bin/env bash
# Builds lib/libgpt2scope_cupti.so, or the file OUT, from csrc/cupti.c and inject.c. The headers, of
# CUDA 12.4 or later, are those of CUDA_HOME, else those of /usr/local/cuda, else those of
# NVIDIA's wheels, which pip installs into build/cuda. Neither a GPU nor a CUDA compiler is
# needed; libcupti is opened at run time.
set -euo pipefail
cd "$(dirname "$0")/.."

headers() { # prints include flags for the folders of cupti.h and cuda.h
	local root cupti cuda
	for root in ${CUDA_HOME:+"$CUDA_HOME"} /usr/local/cuda build/cuda/nvidia/cu13; do
		cuda="$root/include"
		for cupti in "$root/extras/CUPTI/include" "$root/include"; do
			if test -f "$cupti/cupti.h" -a -f "$cuda/cuda.h"; then
				printf '%s\n' -isystem "$(realpath "$cupti")" -isystem "$(realpath "$cuda")"
				return
			fi
		done
	done
	return 1
}

if test "${1:-}" = --headers; then # for those who build against them, such as the tests; fetches nothing
	headers
	exit
fi
if ! flags=$(headers); then
	python3 -m pip --version >/dev/null 2>&1 || {
		echo "The headers of CUPTI are missing. Set CUDA_HOME to a CUDA toolkit, or install pip for python3 (Debian: apt-get install python3-pip) so that they can be fetched." >&2
		exit 1
	}
	# cuda.h comes with the runtime's wheel, the headers that it includes with crt's. csrc/requirements.txt pins the versions.
	grep -E '^nvidia-cuda-(cupti|runtime|crt)==' csrc/requirements.txt |
		python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --no-deps --target build/cuda --upgrade -r /dev/stdin >&2
	flags=$(headers) || {
		echo "The wheel nvidia-cuda-cupti has no cupti.h under build/cuda." >&2
		exit 1
	}
fi
mapfile -t include <<<"$flags"
out=${OUT:-lib/libgpt2scope_cupti.so}
mkdir -p "$(dirname "$out")"
${CC:-cc} -std=gnu11 -O2 -g1 -Wall -Wextra -Werror -fPIC -fvisibility=hidden -shared "${include[@]}" \
	csrc/cupti.c csrc/inject.c -o "$out.new" -ldl -lpthread
mv "$out.new" "$out"
echo "$out, with the headers ${include[1]}"

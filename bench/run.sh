#!/bin/sh
# Builds infer and times it beside PyTorch, ONNX Runtime, OpenVINO, llama.cpp and CTranslate2. Arguments go to peers.py.
set -eu
cd "$(dirname "$0")/.."
requirements=bench/requirements.txt
. parity/venv.sh

# torch.compile and llama.cpp are compiled here, for this processor.
command -v c++ >/dev/null && $python -c 'import os, sysconfig; os.stat(sysconfig.get_path("include") + "/Python.h")' 2>/dev/null ||
	{ echo "A C++ compiler and Python's headers are needed (Debian: apt-get install g++ python3-dev)" >&2; exit 1; }
llama=0.3.36
if ! $python -c "from importlib.metadata import version; assert version('llama-cpp-python') == '$llama'" 2>/dev/null; then
	echo "building llama.cpp (once, some minutes)" >&2
	cxxflags=${CXXFLAGS:-}
	if grep -qs amx_int8 /proc/cpuinfo; then cxxflags="$cxxflags -include $PWD/bench/tileconfig.h"; fi
	# Without pip's cache, which may hold a build for another processor. No image and sound models (LLAVA).
	CXXFLAGS=$cxxflags CMAKE_ARGS="-DGGML_NATIVE=ON -DLLAVA_BUILD=OFF ${CMAKE_ARGS:-}" $python -m pip install --quiet \
		--disable-pip-version-check --no-cache-dir --no-binary llama-cpp-python "llama-cpp-python==$llama" >&2
fi

make -s build
exec $python bench/peers.py "$@"

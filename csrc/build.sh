#!/usr/bin/env bash
# Builds the CUDA library from csrc/: lib/libgpt2scope_cuda.so, for every GPU architecture
# from compute capability 7.5 on that the compiler knows, and PTX for later ones; the
# persistent kernel from 9.0 on only, without PTX. ARCHS limits the architectures, as in ARCHS="90a". FLAGS adds flags of the compiler:
# -lineinfo for source lines in Nsight Compute, -DGS_PERSISTENT_DELAYS for a library that tests
# the persistent kernel with random delays, -DGS_PERSISTENT_STUCK for one of which a block gets
# no weights.
#
# With --check it compiles each kernel, and links nothing: register spills are errors too. Three
# architectures (the persistent kernel has one), two widths of the persistent kernel (a narrow
# and a wide one; the narrow one, and what records, also with 8-bit weights), and of other kernels
# that can stamp only those that do.
#
# The compiler, CUDA 12.4 or later, is that of CUDA_HOME, else that of /usr/local/cuda,
# else NVIDIA's from PyPI, which is installed into build/cuda.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() { echo "csrc/build.sh: $*" >&2; exit 1; }

# version NVCC prints 1000 * major + 10 * minor, 0 if it does not run.
version() {
	local v
	v=$("$1" --version 2>/dev/null | sed -n 's/.*release \([0-9]*\)\.\([0-9]*\).*/\1 \2/p') || true
	set -- $v
	echo $((${1:-0} * 1000 + ${2:-0} * 10))
}

# install installs NVIDIA's packages into build/cuda, again if requirements.txt changes.
install() {
	local root=build/cuda stamp
	stamp=$(cksum < csrc/requirements.txt)
	if [ "$(cat $root/.stamp 2>/dev/null)" != "$stamp" ]; then
		command -v python3 >/dev/null || fail "there is no CUDA toolkit (set CUDA_HOME), and no python3 to install NVIDIA's compiler with"
		python3 -m pip --version >/dev/null 2>&1 || fail "there is no CUDA toolkit (set CUDA_HOME), and python3 has no pip to install NVIDIA's compiler with (Debian: apt-get install python3-pip)"
		echo "installing NVIDIA's compiler into $root" >&2
		rm -rf $root
		mkdir -p $root
		# --target leaves the system's packages alone, so that pip agrees on externally
		# managed systems (Debian 12).
		PIP_ROOT_USER_ACTION=ignore python3 -m pip install --quiet --disable-pip-version-check --no-deps --target $root -r csrc/requirements.txt >&2
		# The linker looks for the names without a version.
		for name in cublasLt cupti nvrtc; do
			ln -sf lib$name.so.13 $root/nvidia/cu13/lib/lib$name.so
		done
		echo "$stamp" > $root/.stamp
	fi
	home=$PWD/$root/nvidia/cu13
}

check=
[ "${1:-}" = --check ] && check=1

home=
if [ -n "${CUDA_HOME:-}" ]; then
	[ -x "$CUDA_HOME/bin/nvcc" ] || fail "CUDA_HOME is $CUDA_HOME, which has no bin/nvcc"
	home=$CUDA_HOME
	v=$(version "$home/bin/nvcc")
	[ "$v" -ge 12040 ] || fail "CUDA_HOME has CUDA $((v / 1000)).$((v % 1000 / 10)); 12.4 or later is needed"
elif [ -x /usr/local/cuda/bin/nvcc ] && [ "$(version /usr/local/cuda/bin/nvcc)" -ge 12040 ]; then
	home=/usr/local/cuda
else
	install
fi
nvcc=$home/bin/nvcc
v=$(version "$nvcc")
[ "$v" -gt 0 ] || fail "$nvcc does not run"

ptx=
if [ -n "$check" ]; then
	archs=${ARCHS:-75 80 90a}  # the oldest, the first with bfloat16, and the one with kernels of its own
elif [ -n "${ARCHS:-}" ]; then
	archs=$ARCHS
else
	archs="75 80 86 89 90a"
	[ "$v" -ge 12080 ] && archs="$archs 100 120"
	ptx=1
fi
code=()
decode=()  # of the persistent kernel, which older GPUs do not run
for a in $archs; do
	code+=(-gencode "arch=compute_$a,code=sm_$a")
	[ "${a%[a-z]}" -lt 90 ] || decode+=(-gencode "arch=compute_$a,code=sm_$a")
done
[ -n "$ptx" ] && code+=(-gencode arch=compute_80,code=compute_80)
[ ${#decode[@]} -gt 0 ] || decode=("${code[@]}")
strict=()
sources=(csrc/decode_{384,768,1600,1280,1024}_watched.cu csrc/gemv{,_watched}.cu csrc/decode_{1280,1024,q8_768,q8_384,1600,384,768,q8_1600}.cu)
others=(csrc/*.cu)
if [ -n "$check" ]; then
	strict=(-DGS_CHECK -Xptxas=--warn-on-spills)
	sources=(csrc/gemv_watched.cu csrc/decode_{768_watched,1600_watched,q8_768,768,1600}.cu)
	others=($(ls csrc/*.cu | grep -v -e /gemv -e decode_))
fi
sources=($(printf '%s\n' "${sources[@]}" "${others[@]}" | awk '!seen[$0]++'))  # the longest are first
# Kernels are neither compressed nor have line tables: to unpack those of one GPU took 40 ms of
# each start, and takes 6 so (an H200; 12 if they are compressed without line tables). Those that
# few processes load are compressed, to a sixth.
flags=(-std=c++17 -O1 ${FLAGS:-} "${strict[@]}" -Werror all-warnings -Xcompiler "-fPIC,-fvisibility=hidden,-Wall,-Werror" -I "$home/include")

objects=build/obj
[ -n "$check" ] && objects=build/check
library=lib/libgpt2scope_cuda.so
mkdir -p "$objects" lib

# A change of the compiler, the flags or a header rebuilds everything.
state="$nvcc $v ${flags[*]} ${code[*]} ${decode[*]}"
if [ "$(cat $objects/.flags 2>/dev/null)" != "$state" ]; then
	rm -f "$objects"/*.o
	echo "$state" > $objects/.flags
fi
headers=(cuda/abi.h $(find csrc -name '*.cuh' -o -name '*.h'))
work=()
for source in "${sources[@]}"; do
	object=$objects/$(basename "$source" .cu).o
	for file in "$source" "${headers[@]}"; do
		if [ ! -e "$object" ] || [ "$file" -nt "$object" ]; then
			work+=("$source")
			break
		fi
	done
done
jobs=$(nproc 2>/dev/null || echo 1)
export objects nvcc
if [ ${#work[@]} -gt 0 ]; then
	compile() { # an object gets its name only when it is complete
		local source=$1 object
		object=$objects/$(basename "$source" .cu).o
		shift
		case $source in
		csrc/decode*) set -- "$@" $decode_code ;;
		*) set -- "$@" $all_code ;;
		esac
		[[ $source != *_watched.cu ]] || set -- "$@" -Xfatbin -compress-all
		"$nvcc" "$@" -c "$source" -o "$object.part.o" && mv "$object.part.o" "$object"
	}
	export -f compile
	export all_code="${code[*]}" decode_code="${decode[*]}"
	printf '%s\n' "${work[@]}" | xargs -P "$jobs" -I{} bash -c 'compile "$@"' _ {} "${flags[@]}" || fail "a kernel file did not compile"
fi

# Kernels that programs compile at run time, by NVRTC, are checked here by nvcc, for the oldest architecture.
if [ -n "$check" ]; then
	export arch=${archs%% *}
	find . -name '*.cu' -not -path './csrc/*' -not -path './build/*' -print0 | xargs -0 -P "$jobs" -I{} bash -c '
		mark=$objects/$(echo "${1#./}" | tr / -).$arch
		[ "$mark" -nt "$1" ] || "$nvcc" -std=c++17 -Werror all-warnings -arch="sm_$arch" -cubin "$1" -o "$mark"' _ {} ||
		fail "a kernel file does not compile for sm_$arch"
	echo "checked with CUDA $((v / 1000)).$((v % 1000 / 10)) for $archs"
	exit
fi

current=1
names=()
for source in "${sources[@]}"; do
	object=$objects/$(basename "$source" .cu).o
	names+=("$object")
	[ "$object" -nt "$library" ] && current=
done
if [ -z "$current" ] || [ ! -e "$library" ]; then
	"$nvcc" -shared -cudart static "${code[@]}" "${names[@]}" -o "$library.part" -L "$home/lib" -L "$home/lib64" \
		-Xlinker -z,defs,--exclude-libs,ALL,--as-needed -Xcompiler -static-libstdc++,-static-libgcc -ldl -lpthread -lrt
	mv "$library.part" "$library"
fi
echo "$library: CUDA $((v / 1000)).$((v % 1000 / 10)), $archs${ptx:+ and PTX}"

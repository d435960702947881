#!/usr/bin/env bash
# Runs a prefill and decode steps under compute-sanitizer: each tool, eager and as
# graphs, in bfloat16 and float32. Arguments name the tools; without any, all four.
#
# With all products by our kernels for every GPU, each tool must find nothing. With those of
# Hopper's tensor cores (wgmma, on such a GPU) and with cuBLASLt: memcheck and synccheck likewise,
# and racecheck but for cuBLASLt in bfloat16, where it reports a hazard inside NVIDIA's nvjet_*
# kernels, and ends with an internal error where they are excluded. initcheck does not see what
# bulk copies store, and reports it as unwritten. These combinations are not run.
#
# Logs are left in build/sanitize. A run takes about 20 s on an H200, all of them ten
# minutes.
set -uo pipefail
cd "$(dirname "$0")/../.."
sanitizer=${SANITIZER:-$(command -v compute-sanitizer || { test -x /usr/local/cuda/bin/compute-sanitizer && echo /usr/local/cuda/bin/compute-sanitizer; })}
test -n "$sanitizer" || { echo "compute-sanitizer is neither in PATH nor in /usr/local/cuda/bin; it is part of the CUDA toolkit"; exit 1; }
infer=${INFER:-bin/infer}
test -x "$infer" || { echo "$infer is not built; build it with make build (or make test-gpu-binaries)"; exit 1; }
tools=(memcheck racecheck initcheck synccheck)
test $# = 0 || tools=("$@")
out=build/sanitize
rm -rf "$out"
mkdir -p "$out"
run=("$infer" -m random:L=2,C=384,NH=6,V=257,T=256 --ids "$(seq -s, 1 100)" -n 8 --temp 0.8 --ignore-eos --device cuda)
naive=(--variant attn.sdpa=flash)
blas=()
for stage in attn.c_attn attn.c_proj mlp.c_fc mlp.c_proj lm_head; do
	naive+=(--variant "$stage=naive")
	blas+=(--variant "$stage=blas")
done
"$sanitizer" --version | tail -n 1

failed=0
for products in naive cublasLt wgmma; do
	case $products in
	naive) variants=("${naive[@]}") ;;
	cublasLt) variants=("${blas[@]}") ;;
	wgmma) variants=(--variant attn.sdpa=wgmma) ;;  # products are so by themselves
	esac
	for tool in "${tools[@]}"; do
		options=(--tool "$tool" --error-exitcode 9)
		if test $tool = initcheck && test $products != naive; then
			echo "initcheck $products: not run, as it does not see what bulk copies store"
			continue
		fi
		for mode in eager graph; do
			for dtype in bf16 f32; do
				test "$products $dtype" != "wgmma f32" || continue
				if test "$tool $products $dtype" = "racecheck cublasLt bf16"; then
					echo "racecheck cublasLt $mode bf16: not run, as it does not follow NVIDIA's nvjet kernels"
					continue
				fi
				log=$out/$tool.$products.$mode.$dtype.log
				"$sanitizer" "${options[@]}" "${run[@]}" "${variants[@]}" --mode $mode --dtype $dtype > "$log" 2>&1
				status=$?
				echo "$tool $products $mode $dtype: $(grep -aE 'SUMMARY' "$log" | tail -n 1 | sed 's/^=* *//')"
				if test $status != 0 || ! grep -aqE 'ERROR SUMMARY: 0 errors|RACECHECK SUMMARY: 0 hazards' "$log"; then
					echo "FAIL: status $status; from $log:"
					tail -n 25 "$log"
					failed=1
				fi
			done
		done
	done
done
exit $failed

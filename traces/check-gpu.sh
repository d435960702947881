#!/usr/bin/env bash
# Checks on a machine with a GPU that Nsight Systems and Nsight Compute see the stages:
# nsys captures a run in eager and in graph mode, and infer trace check compares both with
# the plan; ncu profiles two stages by name, and may find no kernel of another stage.
# Without one of the tools its checks are skipped, with the reason; with
# GPT2SCOPE_REQUIRE_NSIGHT=1 that is a failure.
#
# The tools are those of NSYS and NCU, of PATH, or of the folders into which NVIDIA's
# packages install them. Captures and logs stay in build/nsight.
set -uo pipefail
cd "$(dirname "$0")/.."
infer=${INFER:-bin/infer}
out=build/nsight
tokens=8
failed=0

fail() { echo "FAIL: $1"; failed=1; }
skip() {
	echo "SKIPPED: $1"
	test "${GPT2SCOPE_REQUIRE_NSIGHT:-}" != 1 || fail "GPT2SCOPE_REQUIRE_NSIGHT is 1"
}

# find_tool NAME CANDIDATE...: NAME in PATH, or the first candidate that can run.
find_tool() {
	command -v "$1" && return
	shift
	for candidate; do
		test -x "$candidate" && echo "$candidate" && return
	done
	return 1
}

test -x "$infer" || { echo "$infer is not built; build it with make build (or make test-gpu-binaries)"; exit 1; }
test -f lib/libgpt2scope_nvtx.so || { echo "lib/libgpt2scope_nvtx.so is not built; build it with make nvtx"; exit 1; }
export GPT2SCOPE_NVTX_LIB=${GPT2SCOPE_NVTX_LIB:-$PWD/lib/libgpt2scope_nvtx.so} # also where infer is elsewhere
rm -rf "$out"
mkdir -p "$out"
model=(-m weights/shakespeare --layers 2)
run=("$infer" "${model[@]}" -p "ROMEO:" -n "$tokens" -s 1 --ignore-eos --device cuda)
# First without a tool: a failure here has nothing to do with nsys or ncu.
"${run[@]}" --mode eager > "$out/plain.log" 2>&1 || { tail -n 5 "$out/plain.log"; fail "infer does not run"; exit 1; }

nsys=${NSYS:-$(find_tool nsys /usr/local/cuda/bin/nsys /opt/nvidia/nsight-systems/*/bin/nsys /opt/nvidia/nsight-systems-cli/*/bin/nsys /opt/nvidia/nsight-compute/*/host/target-linux-*/nsys)}
if test -z "$nsys"; then
	skip "nsys is neither in PATH nor in /usr/local/cuda or /opt/nvidia: captures are not checked"
else
	echo "== $("$nsys" --version 2>&1 | tail -n 1)"
	# "ROMEO:" is six tokens of the shipped model.
	"$infer" info "${model[@]}" --device cuda --prompt-len 6 --json > "$out/plan.json" || fail "infer info does not print the plan"
	for mode in eager graph; do
		options=()
		test $mode = eager || options=(--cuda-graph-trace=node)
		if "$nsys" profile -t cuda,nvtx --sample=none --cpuctxsw=none "${options[@]}" --force-overwrite=true -o "$out/$mode" "${run[@]}" --mode $mode > "$out/$mode.log" 2>&1 &&
			"$nsys" export --type sqlite --force-overwrite=true -o "$out/$mode.sqlite" "$out/$mode.nsys-rep" >> "$out/$mode.log" 2>&1; then
			echo "== infer trace check, $mode"
			"$infer" trace check "$out/$mode.sqlite" --plan "$out/plan.json" --tokens "$tokens" || fail "the capture in mode $mode differs from the plan"
		else
			tail -n 5 "$out/$mode.log"
			case $nsys in
			# It comes without libdw1, libelf1 and others that its importer needs.
			*/nsight-compute/*) skip "$nsys, which is a part of Nsight Compute, cannot capture (see above): mode $mode is not checked" ;;
			*) fail "$nsys cannot capture mode $mode" ;;
			esac
		fi
	done
fi

ncu=${NCU:-$(find_tool ncu /usr/local/cuda/bin/ncu /opt/nvidia/nsight-compute/*/ncu)}
if test -z "$ncu"; then
	skip "ncu is neither in PATH nor in /usr/local/cuda or /opt/nvidia: choosing a stage by name is not checked"
else
	echo "== $("$ncu" --version 2>&1 | tail -n 1)"
	for stage in h.0.attn.sdpa h.0.ln_1+h.0.attn.c_attn; do
		log=$out/ncu.$stage.log
		# ncu reads + as an operator: a backslash makes it a letter of the name.
		if ! "$ncu" --clock-control none --section LaunchStats --nvtx --nvtx-include "gpt2scope@${stage//+/\\+}/" "${run[@]}" --mode eager > "$log" 2>&1; then
			grep -E '^==(ERROR|WARNING)==' "$log" || tail -n 5 "$log"
			if grep -q ERR_NVGPUCTRPERM "$log"; then
				skip "ncu may not read the GPU's counters: choosing $stage by name is not checked"
			else
				fail "ncu cannot profile $stage"
			fi
			continue
		fi
		# The stack of ranges of each kernel ends with its innermost one.
		awk -v stage="$stage" '
			/^==PROF== Profiling "/ { profiled++ }
			/^ *<[0-9]+,.*>$/ { name = $0; sub(/^ *<[0-9]+,/, "", name); sub(/>$/, "", name); inner = name }
			/^ *Section: / { if (inner == stage) inside++; else if (inner != "") print "a kernel of " inner; inner = "" }
			END {
				printf "%s: ncu profiled %d kernels, %d of them in this range\n", stage, profiled, inside
				exit !(profiled > 0 && profiled == inside)
			}' "$log" || fail "ncu does not choose $stage by its name"
	done
fi
test $failed = 0 && echo "ok: nothing of the above failed"
exit $failed

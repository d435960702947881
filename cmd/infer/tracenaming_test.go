package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"gpt2scope/traces/stages"
)

// foreign writes a recording as PyTorch's profiler does: passes with ranges around modules, each of which launches a
// kernel.
func foreign(t *testing.T, passes int, ranges ...string) string {
	t.Helper()
	var b strings.Builder
	b.WriteString(`{"schemaVersion":1,"deviceProperties":[{"id":0,"name":"GPU","numSms":10}],"traceEvents":[`)
	now, id := 1000, 0
	for range passes {
		fmt.Fprintf(&b, `{"ph":"X","cat":"user_annotation","name":"forward","pid":7,"tid":7,"ts":%d,"dur":%d},`, now, 20*len(ranges)+5)
		for _, name := range ranges {
			id++
			fmt.Fprintf(&b, `{"ph":"X","cat":"user_annotation","name":"%s","pid":7,"tid":7,"ts":%d,"dur":15},`, name, now+2)
			fmt.Fprintf(&b, `{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":7,"tid":7,"ts":%d,"dur":5,"args":{"correlation":%d}},`, now+4, id)
			fmt.Fprintf(&b, `{"ph":"X","cat":"kernel","name":"k%d","pid":0,"tid":7,"ts":%d,"dur":8,"args":{"device":0,"context":1,"stream":7,"correlation":%d}},`, id%3, now+30, id)
			now += 20
		}
		now += 50
	}
	path := filepath.Join(t.TempDir(), "foreign.json")
	writeFile(t, path, strings.TrimSuffix(b.String(), ",")+"]}")
	return path
}

// TestRangesOfAnyProgram: the ranges of a program name passes and stages in every table, and --ranges chooses among
// them.
func TestRangesOfAnyProgram(t *testing.T) {
	file := foreign(t, 5, "wte", "h.0.attn.c_attn", "h.1.attn.c_attn", "lm_head")
	for by, facts := range map[string][]string{
		"folded": {"passes: 5 forwards", "h.N.attn.c_attn", "lm_head", "20 kernels, all attributed to steps"},
		"stage":  {"h.1.attn.c_attn"},
		"layer":  {"h.0", "outside the layers"},
		"phase":  {"forward"},
	} {
		contains(t, mustInfer(t, "trace", "show", file, "--by", by).stdout, facts...)
	}
	if out := mustInfer(t, "trace", "show", file, "--ranges", `^h\.`, "--by", "stage").stdout; !strings.Contains(out, "h.1.attn.c_attn") || strings.Contains(out, "lm_head") || strings.Contains(out, "forward") {
		t.Errorf("chosen ranges:\n%s", out)
	}
	contains(t, mustInfer(t, "trace", "diff", file, file).stdout, "h.N.attn.c_attn")
	checkFailure(t, infer(t, "trace", "show", file, "--ranges", "("), exitUsage, "--ranges '('", "no regular expression")
	checkFailure(t, infer(t, "trace", "show", file, "--ranges", "nothing"), exitFailure, file, "nothing", "--by op")
	checkFailure(t, infer(t, "trace", "show", "../../traces/samples/eager.sqlite", "--ranges", "x"), exitFailure, "--ranges is for recordings of other programs")
}

// TestTraceStages: the stages of a recording without ranges, as a table and as JSON.
func TestTraceStages(t *testing.T) {
	const sample = "../../traces/samples/stages/hf-sdpa-f32-L1-prefill.json.gz"
	out := mustInfer(t, "trace", "stages", sample).stdout
	contains(t, out, "4 passes of 1 layer (4 prefills), inferred, confidence 1.00", "h.N.attn.c_attn", "lm_head", "of no stage")
	var found stages.Inference
	unmarshal(t, mustInfer(t, "trace", "stages", sample, "--json").stdout, &found)
	if len(found.Kernels) != 108 || len(found.Passes) != 4 || found.Layers != 1 {
		t.Errorf("%d kernels, %d passes, %d layers", len(found.Kernels), len(found.Passes), found.Layers)
	}
	checkFailure(t, infer(t, "trace", "stages", "../../traces/testdata/kineto-cpu.json.gz"), exitFailure, "no kernels")
}

// TestInferredStages: with --infer every command has the stages of a recording that names none.
func TestInferredStages(t *testing.T) {
	const sample = "../../traces/samples/stages/hf-sdpa-f32-L1-prefill.json.gz"
	for by, fact := range map[string]string{"folded": "h.0.mlp.gelu", "stage": "h.0.mlp.gelu", "layer": "h.0", "phase": "prefill", "op": "Linear"} {
		contains(t, mustInfer(t, "trace", "show", sample, "--infer", "--by", by).stdout, fact, "stages inferred, confidence 1.00")
	}
	contains(t, mustInfer(t, "trace", "diff", sample, sample, "--infer").stdout, "h.0.mlp.gelu")
	checkFailure(t, infer(t, "trace", "show", sample, "--infer", "--ranges", "x"), exitUsage, "--ranges and --infer exclude each other")
	checkFailure(t, infer(t, "trace", "show", "../../traces/samples/eager.sqlite", "--infer"), exitFailure, "--infer", "has its passes and stages")
}

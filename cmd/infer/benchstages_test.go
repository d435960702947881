package main

import (
	"math"
	"strings"
	"testing"

	"gpt2scope/measure"
)

// The table of stages covers the pass: its shares sum to it, its floors to the pass' own, and every stage of the model is in it.
func TestBenchStages(t *testing.T) {
	for _, args := range [][]string{
		{"--past", "9"}, {"--phase", "prefill", "--logits", "all", "--dtype", "bf16"},
	} {
		args = append([]string{"bench", "-m", tiny, "--device", "cpu", "--threads", "1", "--repeat", "4"}, args...)
		var got struct {
			Floor  float64             `json:"floor_ms"`
			Stages []measure.StageTime `json:"stages"`
		}
		unmarshal(t, mustInfer(t, append(args, "--json")...).stdout, &got)
		share, floor, calls := 0.0, 0.0, map[string]int{}
		for _, s := range got.Stages {
			share, floor, calls[s.Stage] = share+s.Share, floor+s.Floor, s.Calls
			if s.Calls > 0 && (!(s.Time > 0 && s.GBs > 0 && s.GFLOPs > 0 && s.OfFloor > 0) || s.Bound != "bytes" && s.Bound != "FLOPs") {
				t.Errorf("%q: %+v", args, s)
			}
		}
		if math.Abs(share-100) > 1e-6 || math.Abs(floor/1e3-got.Floor) > 1e-6+1e-9*got.Floor {
			t.Errorf("%q: shares sum to %v, floors to %v us of %v ms", args, share, floor, got.Floor)
		}
		for stage, n := range map[string]int{
			"wte+wpe": 1, "h.N.ln_1+h.N.attn.c_attn": 2, "h.N.attn.sdpa": 2, "h.N.attn.c_proj+h.N.residual_1": 2,
			"h.N.ln_2+h.N.mlp.c_fc+h.N.mlp.gelu": 2, "h.N.mlp.c_proj+h.N.residual_2": 2, "ln_f+lm_head": 1, "between stages": 0,
		} {
			if c, ok := calls[stage]; !ok || c != n {
				t.Errorf("%q: %q has %d calls a pass, want %d", args, stage, c, n)
			}
		}
	}
	contains(t, mustInfer(t, "bench", "-m", tiny, "--device", "cpu", "--repeat", "1").stdout, "roofline %", "\nfloor: least time by the ceilings; of: what takes that time; roofline %: floor / time\n", "is of passes without recording\n", "h.N.attn.sdpa\n", "between stages\n")
	for _, flag := range []string{"--no-floor", "--recorder=host"} {
		if out := mustInfer(t, "bench", "-m", tiny, "--device", "cpu", "--repeat", "1", flag).stdout; strings.Contains(out, "between stages") {
			t.Errorf("with %s: %q", flag, out)
		}
	}
}

package main

import (
	"strings"
	"testing"

	"gpt2scope/traces/tables"
)

// The table of stages is of the passes that were timed, without those that filled the cache, and sums to their time.
func TestBenchStages(t *testing.T) {
	for _, args := range [][]string{
		{"--past", "9"}, {"--phase", "prefill", "--logits", "all", "--dtype", "bf16"},
	} {
		args = append([]string{"bench", "-m", tiny, "--device", "cpu", "--threads", "1", "--repeat", "4"}, args...)
		var got struct {
			Profile tables.Table `json:"profile"`
		}
		unmarshal(t, mustInfer(t, append(args, "--json")...).stdout, &got)
		sum, calls := int64(0), map[string]int{}
		for _, r := range got.Profile.Folded {
			sum += r.Exclusive
			calls[r.Name] += int(r.Calls)
			if strings.Contains(r.Name, "mlp.c_fc") && r.Floor <= 0 { // those of others are less than a nanosecond here
				t.Errorf("%q: %s has no floor", args, r.Name)
			}
		}
		if p := got.Profile.Passes; len(p) != 1 || p[0].Count != 4 || sum != got.Profile.Wall {
			t.Errorf("%q: passes %+v; rows sum to %d of %d ns", args, p, sum, got.Profile.Wall)
		}
		for stage, n := range map[string]int{
			"wte+wpe": 1, "h.N.ln_1+h.N.attn.c_attn": 2, "h.N.attn.sdpa": 2, "h.N.attn.c_proj+h.N.residual_1": 2,
			"h.N.ln_2+h.N.mlp.c_fc+h.N.mlp.gelu": 2, "h.N.mlp.c_proj+h.N.residual_2": 2, "ln_f+lm_head": 1,
		} {
			if calls[stage] != 4*n {
				t.Errorf("%q: %q has %d calls, want %d in each of 4 passes", args, stage, calls[stage], n)
			}
		}
	}
	contains(t, mustInfer(t, "bench", "-m", tiny, "--device", "cpu", "--repeat", "1").stdout, "roofline %", "while they are recorded:\n", "h.N.attn.sdpa\n", "wall time\n")
	for _, flag := range []string{"--no-floor", "--recorder=host"} {
		if out := mustInfer(t, "bench", "-m", tiny, "--device", "cpu", "--repeat", "1", flag).stdout; strings.Contains(out, "wall time") {
			t.Errorf("with %s: %q", flag, out)
		}
	}
}

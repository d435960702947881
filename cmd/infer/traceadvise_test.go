package main

import (
	"encoding/json"
	"strings"
	"testing"

	"gpt2scope/cmd/infer/trace"
	"gpt2scope/traces"
	"gpt2scope/traces/judge"
	"gpt2scope/traces/load"
)

// TestTraceAdvise: findings come by gain, those below 1 % with --all, and what is
// printed is what the package finds.
func TestTraceAdvise(t *testing.T) {
	tr, err := load.Load(samples[0])
	if err != nil {
		t.Fatal(err)
	}
	want, err := judge.Advise(tr, -1)
	if err != nil {
		t.Fatal(err)
	}
	var some, all judge.Advice
	for flag, into := range map[string]*judge.Advice{"--all": &all, "--all=false": &some} {
		if err := json.Unmarshal([]byte(mustInfer(t, "trace", "advise", samples[0], "--format", "json", flag).stdout), into); err != nil {
			t.Fatal(err)
		}
	}
	if len(all.Hints) != len(want.Hints) || len(some.Hints) != len(want.Above(trace.WorthPercent)) || len(some.Hints) == 0 || len(some.Hints) >= len(all.Hints) || all.Wall != want.Wall || !strings.Contains(all.Source, "H200") {
		t.Errorf("%d findings of %d, %d in all: %+v", len(some.Hints), len(want.Hints), len(all.Hints), all)
	}
	out := mustInfer(t, "trace", "advise", samples[0]).stdout
	at := 0
	for _, h := range want.Above(trace.WorthPercent) {
		i := strings.Index(out[at:], h.Rule+": at most "+trace.Milliseconds(h.Gain)+" ms")
		if i < 0 || !strings.Contains(out, h.Text) || !strings.Contains(out, h.Try) || !strings.Contains(out, h.Rows[0]) {
			t.Fatalf("the table lacks %+v after %d:\n%s", h, at, out)
		}
		at += i
	}
	for _, fact := range []string{"1 finding could gain less than 1 %", "% of wall", "! floor: "} {
		if !strings.Contains(out, fact) {
			t.Errorf("the table lacks %q:\n%s", fact, out)
		}
	}

	// A kernel alone: nothing to find. It has no call, so that shares are withheld.
	out = mustInfer(t, "trace", "advise", lostKernel(t)).stdout
	if !strings.Contains(out, "No rule found a bottleneck.") || !strings.Contains(out, "! shares are withheld") || strings.Contains(out, "% of wall") {
		t.Errorf("one kernel:\n%s", out)
	}
	if out := mustInfer(t, "trace", "advise", lostKernel(t), "--format", "json").stdout; !strings.Contains(out, `"hints": []`) {
		t.Errorf("one kernel:\n%s", out)
	}
	checkFailure(t, infer(t, "trace", "advise", traceFile(t, &traces.Header{Tool: "gpt2scope"})), exitFailure, "no work")
	checkFailure(t, infer(t, "trace", "advise", "x", "--format", "csv"), exitUsage, "table or json")
	checkFailure(t, infer(t, "trace", "advise", "x", "--gpu", "-2"), exitUsage, "--gpu")
	checkFailure(t, infer(t, "trace", "advise"), exitUsage, "FILE")

}

package main

import (
	"strings"
	"testing"

	"gpt2scope/internal/humanize"
	"gpt2scope/traces"
	"gpt2scope/traces/judge"
)

// TestTraceAdvise: the text has the hints of JSON in their order, without --all those that could gain enough.
func TestTraceAdvise(t *testing.T) {
	var some, all judge.Advice
	for flag, into := range map[string]*judge.Advice{"--all": &all, "--all=false": &some} {
		unmarshal(t, mustInfer(t, "trace", "advise", samples[0], "--format", "json", flag).stdout, into)
	}
	if len(some.Hints) != len(all.Above(judge.WorthPercent)) || len(some.Hints) == 0 || len(some.Hints) >= len(all.Hints) {
		t.Errorf("%d findings, %d in all", len(some.Hints), len(all.Hints))
	}
	out := mustInfer(t, "trace", "advise", samples[0]).stdout
	rest := out
	for _, h := range some.Hints {
		_, after, ok := strings.Cut(rest, h.Rule+": at most "+humanize.InMilliseconds(h.Gain)+" ms")
		if rest = after; !ok || !strings.Contains(rest, h.Text) || !strings.Contains(rest, h.Try) || !strings.Contains(rest, h.Rows[0]) {
			t.Fatalf("the table lacks %+v:\n%s", h, out)
		}
	}
	contains(t, out, "--all shows 1 finding that could gain less than 1 %.", "% of wall", "! floor: ")

	contains(t, mustInfer(t, "trace", "advise", "../../traces/samples/pytorch/kineto.json.gz").stdout, "before forward: aten::add: ") // a pass without stages is named once
	// A kernel alone: nothing to find. It has no call, so that shares are withheld.
	contains(t, mustInfer(t, "trace", "advise", lostKernel(t)).stdout, "No rule found a bottleneck.", "! shares are withheld")
	contains(t, mustInfer(t, "trace", "advise", lostKernel(t), "--format", "json").stdout, `"hints": []`)
	checkFailure(t, infer(t, "trace", "advise", traceFile(t, &traces.Header{Tool: "gpt2scope"})), exitFailure, "no work")
}

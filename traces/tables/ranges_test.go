package tables

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"gpt2scope/traces"
	"gpt2scope/traces/internal/fixtures"
)

// TestSequences: a sequence counts where it does not overlap itself, and one that only occurs
// within a longer one is left out.
func TestSequences(t *testing.T) {
	var events []traces.Event
	for i, name := range strings.Split("a b c a b c x a b c b c", " ") {
		events = append(events, traces.Plain(traces.KindKernel, traces.Stream(1, 0, 1, 7), name, int64(i)*100, 60))
	}
	table, err := Summarize(fixtures.Trace(&traces.Header{}, events...), BySequence, -1)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range table.Sequences {
		got = append(got, fmt.Sprintf("%d of %s: busy %d, %d in all", r.Count, strings.Join(r.Kernels, "-"), r.Busy, r.Span))
	}
	want := []string{"3 of a-b-c: busy 540, 780 in all", "4 of b-c: busy 480, 640 in all"}
	if !slices.Equal(got, want) {
		t.Errorf("sequences %q, not %q", got, want)
	}
	if _, err := Summarize(fixtures.Trace(&traces.Header{}, traces.Plain(traces.KindKernel, traces.Stream(1, 0, 1, 7), "a", 0, 1)), BySequence, -1); err == nil {
		t.Error("one kernel has sequences")
	}
}

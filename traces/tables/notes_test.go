package tables_test

import (
	"slices"
	"testing"

	"gpt2scope/traces"
	"gpt2scope/traces/internal/fixtures"
	"gpt2scope/traces/tables"
)

// TestLoadsAreNamed: what a program did once besides its passes is in the notes, with
// whether the table's time holds it.
func TestLoadsAreNamed(t *testing.T) {
	thread, stream := traces.Thread(7, 1), traces.Stream(7, 0, 0, 1)
	h := &traces.Header{Version: traces.Version, Tool: "gpt2scope", Recorder: traces.RecorderStamps, Process: 7,
		Plans: []traces.Plan{{Phase: "prefill", Tokens: 4, Steps: []traces.Step{{Name: "ln_f", Op: "LayerNorm", Layer: -1, Slot: -1}}}}}
	at := func(kind traces.Kind, lane traces.Lane, name string, time, duration int64) traces.Event {
		e := traces.Plain(kind, lane, name, time, duration)
		e.Domain = traces.Domain
		return e
	}
	pass := at(traces.KindPass, thread, "prefill", 5_000_000, 3_000_000)
	pass.ID, pass.Plan = 1, 0
	kernel := at(traces.KindKernel, stream, "ln", 7_500_000, 400_000)
	kernel.Parent, kernel.Plan, kernel.Step = 1, 0, 0
	events := []traces.Event{at(traces.KindRange, thread, "load cuBLASLt", 1_000_000, 2_000_000), pass,
		at(traces.KindRange, thread, "load kernels", 5_500_000, 1_250_000), kernel}
	for _, c := range []struct{ tool, want string }{
		{"gpt2scope", "done once: load cuBLASLt 2.000 ms, before the table; load kernels 1.250 ms, within it"},
		{"another", ""},
	} {
		h.Tool = c.tool
		table := fixtures.Must(tables.Summarize(traces.NewTrace(h, slices.Clone(events)), tables.ByStage, -1))(t)
		i := slices.IndexFunc(table.Notes, func(n string) bool { return len(n) > 9 && n[:9] == "done once" })
		if got := append([]string{""}, table.Notes...)[i+1]; i >= 0 && got != c.want || i < 0 && c.want != "" {
			t.Errorf("notes of tool %s are %q, want %q", c.tool, table.Notes, c.want)
		}
	}
}

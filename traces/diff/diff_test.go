package diff

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"gpt2scope/internal/require"
	"gpt2scope/traces"
	"gpt2scope/traces/internal/fixtures"
	"gpt2scope/traces/load"
	"gpt2scope/traces/tables"
	"gpt2scope/traces/window"
)

func rowOf(t *testing.T, c *Comparison, name string) Change {
	t.Helper()
	i := slices.IndexFunc(c.Rows, func(r Change) bool { return r.Name == name })
	if i < 0 {
		t.Fatalf("there is no row %q in %+v", name, c.Rows)
	}
	return c.Rows[i]
}

// TestDiff: a change is reported, noise is not, and what only one has is named.
func TestDiff(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	noise := func(base int64) func(int, int) int64 {
		return func(_, tag int) int64 {
			if tag == 0 {
				return 5000 + r.Int64N(200)
			}
			return base + r.Int64N(200)
		}
	}
	ha, hb := fixtures.Plan("wte+wpe", "h.0.mlp.c_fc"), fixtures.Plan("wte+wpe", "h.0.mlp.c_fc", "h.1.mlp.c_fc")
	warm := traces.Plain(traces.KindRange, traces.Thread(1, 1), "warm-up", 0, 200_000)
	slow := func(int, int) int64 { return 50_000 }
	a := fixtures.Trace(ha, append(append(fixtures.Passes(ha, 300_000, 30, noise(2000), nil), fixtures.Passes(ha, 10, 1, slow, nil)...), warm)...)
	b := fixtures.Trace(hb, fixtures.Passes(hb, 0, 40, noise(2500), nil)...)
	c := require.Value(Compare(a, b, tables.ByStage, 0.05, -1))(t)
	same, more, only := rowOf(t, c, "wte+wpe"), rowOf(t, c, "h.0.mlp.c_fc"), rowOf(t, c, "h.1.mlp.c_fc")
	if same.Verdict != NoChange || same.A.N != 30 || same.B.N != 40 {
		t.Errorf("noise is reported as %+v", same)
	}
	if more.Verdict != Longer || more.Shift < 400 || more.Shift > 600 || *more.Adjusted < *more.P || *more.Percent < 19 || *more.Percent > 29 {
		t.Errorf("500 ns more are reported as %+v", more)
	}
	if only.Verdict != OnlyInB || only.A != nil || only.B.N != 40 || only.P != nil {
		t.Errorf("a step of B alone: %+v", only)
	}
	if p := rowOf(t, c, "whole pass"); p.A.N != 30 || p.A.Median > 8000 || p.Kind != ChangePass {
		t.Errorf("the passes of A: %+v", p)
	}
	back := require.Value(Compare(b, a, tables.ByStage, 0.05, -1))(t)
	if r := rowOf(t, back, "h.0.mlp.c_fc"); r.Verdict != Shorter || -r.Shift != more.Shift {
		t.Errorf("turned round: %+v", r)
	}
	if r := rowOf(t, back, "h.1.mlp.c_fc"); r.Verdict != OnlyInA || r.B != nil {
		t.Errorf("turned round: %+v", r)
	}
	fixtures.Says(t, "", strings.Join(c.Notes, "\n"), "decode step, layers: 1 in A, 2 in B", "decode step, positions: 10 to 39 in A, 10 to 49 in B")

	// A trace equals itself.
	c = require.Value(Compare(a, a, tables.ByStage, 0.05, -1))(t)
	for _, r := range c.Rows {
		if r.Verdict != NoChange || r.Shift != 0 {
			t.Errorf("compared with itself: %+v", r)
		}
	}
	if len(c.Notes) != 0 {
		t.Errorf("compared with itself: %q", c.Notes)
	}

	// Three passes say nothing, and a test that cannot reject is not made.
	few := fixtures.Trace(ha, fixtures.Passes(ha, 0, 3, noise(9000), nil)...)
	c = require.Value(Compare(a, few, tables.ByStage, 0.05, -1))(t)
	if r := rowOf(t, c, "h.0.mlp.c_fc"); r.Verdict != TooFew || r.P != nil || r.B.Low != nil || r.Percent == nil || c.Tests != 0 {
		t.Errorf("three passes: %+v", r)
	}
	for _, bad := range []float64{0, 1, -1, math.NaN()} {
		if _, err := Compare(a, b, tables.ByStage, bad, -1); err == nil {
			t.Errorf("alpha %g is taken", bad)
		}
	}
	if _, err := Compare(fixtures.Trace(&traces.Header{}), fixtures.Trace(&traces.Header{}), tables.ByStage, 0.05, -1); err == nil || !strings.Contains(err.Error(), "neither trace") {
		t.Errorf("two empty traces: %v", err)
	}
}

// TestEnough: the least p that samples of such sizes can have is below alpha.
func TestEnough(t *testing.T) {
	for _, c := range []struct {
		n, m int
		want bool
	}{{3, 1000, false}, {4, 4, true}, {1000, 1000, true}} { // 2/C(8,4) = 0.029
		if enough(c.n, c.m, 0.05) != c.want {
			t.Errorf("%d and %d values are enough: %v", c.n, c.m, !c.want)
		}
	}
	if enough(4, 4, 0.02) || !enough(5, 5, 0.02) { // 2/C(10,5) = 0.0079
		t.Error("what is enough does not depend on alpha")
	}
}

// TestAdjust has the example of Benjamini and Hochberg (1995), table 1: at 0.05
// their procedure rejects the first four of fifteen.
func TestAdjust(t *testing.T) {
	p := []float64{0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459, 0.3240, 0.4262, 0.5719, 0.6528, 0.7590, 1.0000}
	got := adjust(p)
	for i, q := range got {
		if (q < 0.05) != (i < 4) || q < p[i] || i > 0 && q < got[i-1] {
			t.Errorf("p %g becomes %g", p[i], q)
		}
	}
	if math.Abs(got[0]-0.0015) > 1e-12 || math.Abs(got[3]-0.035625) > 1e-12 {
		t.Errorf("%v", got)
	}
	c := Comparison{Alpha: 0.05}
	for i := range p {
		c.Rows = append(c.Rows, Change{Shift: 1, P: &p[len(p)-1-i]})
	}
	c.judge()
	for i, r := range c.Rows { // verdicts are by the corrected p, in any order
		if want := i >= len(p)-4; (r.Verdict == Longer) != want {
			t.Errorf("p %g is %q", *r.P, r.Verdict)
		}
	}
}

// TestPasses: steps, idle time and other work make the whole pass.
func TestPasses(t *testing.T) {
	for _, path := range []string{"../samples/eager.sqlite", "../samples/graph.sqlite"} {
		tr := require.Value(load.Load(path))(t)
		p := side{window.New(tr, -1)}
		if len(p.Passes) != 8 {
			t.Fatalf("%s has %d passes", path, len(p.Passes))
		}
		rows, sums := p.stages(rowNames(tables.ByStage, p, p)), map[bool]int64{}
		for k, list := range rows.times {
			for _, ns := range list {
				sums[k.kind == ChangePass] += ns
			}
		}
		if sums[true] != sums[false] || rows.lost != 0 {
			t.Errorf("%s: idle time and steps are %d ns, the passes %d; %d lost", path, sums[false], sums[true], rows.lost)
		}
		// The stages have the times of the stage table.
		table := require.Value(tables.Summarize(tr, tables.ByStage, -1))(t)
		for _, r := range table.Rows {
			if r.Kind != tables.RowWork {
				continue
			}
			sum := int64(0)
			for _, ns := range rows.times[changeKey{ChangeStage, r.Phase, r.Name}] {
				sum += ns
			}
			if sum != r.Exclusive {
				t.Errorf("%s: %s %s has %d ns, in the table %d", path, r.Phase, r.Name, sum, r.Exclusive)
			}
		}
	}
}

// TestUnfair has each reason why a comparison is not fair.
func TestUnfair(t *testing.T) {
	flat := func(int, int) int64 { return 100 }
	a, b := fixtures.Plan("wte+wpe"), fixtures.Plan("wte+wpe")
	b.Recorder, b.DType, b.Devices[0].Name = traces.RecorderStamps, "", "other GPU"
	b.Plans[0].Batch, b.Plans[0].Tokens, b.Plans[0].Padded = 2, 3, 16
	a.Versions, b.Versions = map[string]string{"driver": "1", "schema": "1", "only": "a"}, map[string]string{"driver": "2", "schema": "2"}
	b.Drop("kernels", 7)
	graph := func(k *traces.Event) { k.Node = 5 }
	c := require.Value(Compare(fixtures.Trace(a, fixtures.Passes(a, 0, 5, flat, nil)...), fixtures.Trace(b, fixtures.Passes(b, 0, 5, flat, graph)...), tables.ByStage, 0.05, -1))(t)
	want := []string{"recorder, which has its own overhead: cupti in A, stamps in B", "device: GPU in A, other GPU in B", "type of matrix products: bf16 in A, unknown in B",
		"work comes by: single launches in A, CUDA graphs in B", "decode step, sequences: 1 in A, 2 in B", "decode step, tokens: 1 in A, 3 in B",
		"decode step, padded to: no more in A, 16 in B", "driver: 1 in A, 2 in B"}
	if n := len(c.Notes) - len(want); n < 1 || !strings.HasPrefix(c.Notes[0], "B: 7 records") || !slices.Equal(c.Notes[n:], want) {
		t.Errorf("%q", c.Notes)
	}
}

// TestBy: rows are stages over all layers, stages, layers or operations; each way their medians sum to the same, as all
// passes are alike. Folded, the layers that only one of two traces has are rows of their own.
func TestBy(t *testing.T) {
	two := fixtures.Plan("wte", "h.0.ln_1", "h.0.attn", "h.1.ln_1", "h.1.attn", "ln_f")
	four := fixtures.Plan("wte", "h.0.ln_1", "h.0.attn", "h.1.ln_1", "h.1.attn", "h.2.ln_1", "h.2.attn", "h.3.ln_1", "h.3.attn", "ln_f")
	duration := func(_, tag int) int64 { return int64(100 * (1 + tag)) }
	trace := func(h *traces.Header) *traces.Trace {
		return fixtures.Trace(h, fixtures.Passes(h, 0, 5, duration, nil)...)
	}
	compare := func(b *traces.Header, by tables.By) (names []string, sum float64) {
		c, err := Compare(trace(two), trace(b), by, 0.05, -1)
		if err != nil || c.By != by {
			t.Fatal(err)
		}
		for _, r := range c.Rows {
			if r.Kind != ChangeStage {
				continue
			}
			name := r.Name
			if r.Verdict == OnlyInB {
				name += " (B)"
			} else {
				sum += r.A.Median
			}
			names = append(names, name)
		}
		return names, sum
	}
	for by, want := range map[tables.By]string{
		tables.ByFolded: "wte, h.N.ln_1, h.N.attn, ln_f",
		tables.ByStage:  "wte, h.0.ln_1, h.0.attn, h.1.ln_1, h.1.attn, ln_f",
		tables.ByLayer:  "outside the layers, h.0, h.1",
		tables.ByOp:     "Linear",
	} {
		if names, sum := compare(two, by); strings.Join(names, ", ") != want || sum != 100+200+300+400+500+600 {
			t.Errorf("by %s: %q sum to %g", by, names, sum)
		}
	}
	names, _ := compare(four, tables.ByFolded)
	if got := strings.Join(names, ", "); got != "wte, h.N.ln_1, h.N.attn, ln_f, h.N.ln_1 of other layers (B), h.N.attn of other layers (B)" {
		t.Errorf("%s", got)
	}
	if _, err := Compare(trace(two), trace(two), "zebra", 0.05, -1); err == nil {
		t.Error("a comparison by zebra")
	}
}

// TestWithoutStages: traces without stages compare by operator if both have them, else by kernel,
// as do traces without a kind of pass in common. They are never refused.
func TestWithoutStages(t *testing.T) {
	kernels := func(op string, durations ...int64) *traces.Trace {
		var events []traces.Event
		for i, d := range durations {
			at := int64(1000 * i)
			launched := fixtures.Launched(uint64(i+1), at, at+5, at+10, at+10+d)
			launched[1].Name = "k"
			events = append(events, launched...)
			if op != "" {
				outer := traces.Plain(traces.KindOp, traces.Thread(1, 1), op, at-10, 100)
				inner := traces.Plain(traces.KindOp, traces.Thread(1, 1), "aten::addmm", at-5, 50)
				events = append(events, outer, inner)
			}
		}
		return fixtures.Trace(&traces.Header{}, events...)
	}
	h := fixtures.Plan("h.0.attn.c_attn")
	staged := fixtures.Trace(h, fixtures.Passes(h, 0, 5, func(int, int) int64 { return 100 }, nil)...)
	other := fixtures.Plan("h.0.attn.c_attn")
	other.Plans[0].Phase = "forward"
	otherPhase := fixtures.Trace(other, fixtures.Passes(other, 0, 5, func(int, int) int64 { return 100 }, nil)...)
	onCPU := fixtures.Trace(&traces.Header{}, traces.Plain(traces.KindOp, traces.Thread(1, 1), "aten::add", 0, 5))
	for name, test := range map[string]struct {
		a, b *traces.Trace
		by   tables.By
		want tables.By
		row  changeKey
		n    [2]int
	}{
		"operators":          {kernels("aten::linear", 100, 110, 120, 130), kernels("aten::linear", 200, 210, 220, 230, 240), tables.ByFolded, tables.ByOp, changeKey{ChangeOp, "", "aten::linear"}, [2]int{4, 5}},
		"operators of a CPU": {onCPU, onCPU, tables.ByFolded, tables.ByOp, changeKey{ChangeOp, "", "aten::add"}, [2]int{1, 1}},
		"kernels":            {kernels("aten::linear", 100, 110, 120, 130), kernels("", 200, 210, 220, 230, 240), tables.ByLayer, tables.ByKernel, changeKey{ChangeKernel, "", "k"}, [2]int{4, 5}},
		"one without passes": {staged, kernels("", 200, 210), tables.ByStage, tables.ByKernel, changeKey{ChangeKernel, "", "k"}, [2]int{0, 2}},
		"other passes":       {staged, otherPhase, tables.ByStage, tables.ByKernel, changeKey{ChangePass, "", "whole recording"}, [2]int{1, 1}},
		"kernels, as asked":  {staged, staged, tables.ByKernel, tables.ByKernel, changeKey{ChangePass, "", "whole recording"}, [2]int{1, 1}},
	} {
		c, err := Compare(test.a, test.b, test.by, 0.05, -1)
		if err != nil {
			t.Fatal(name, err)
		}
		if c.By != test.want || (c.Instead == "") != (test.by == test.want) {
			t.Errorf("%s: by %s: %q", name, c.By, c.Instead)
		}
		i := slices.IndexFunc(c.Rows, func(r Change) bool { return changeKey{r.Kind, r.Phase, r.Name} == test.row })
		if i < 0 {
			t.Fatalf("%s lacks the row %v: %+v", name, test.row, c.Rows)
		}
		var n [2]int
		for side, s := range []*Sample{c.Rows[i].A, c.Rows[i].B} {
			if s != nil {
				n[side] = s.N
			}
		}
		if n != test.n {
			t.Errorf("%s: %v values, want %v", name, n, test.n)
		}
	}
}

package tables

import (
	"slices"
	"testing"

	"gpt2scope/traces"
	"gpt2scope/traces/internal/fixtures"
)

// TestFoldLayers folds passes of three layers whose fused steps reach into the next layer.
func TestFoldLayers(t *testing.T) {
	h := fixtures.Plan("wte+wpe+h.0.ln_1", "h.0.attn", "h.0.residual_2+h.1.ln_1", "h.1.attn", "h.1.residual_2+h.2@1.ln_1", "h.2@1.attn", "h.2@1.residual_2+ln_f", "lm_head")
	for i := range h.Plans[0].Steps {
		h.Plans[0].Steps[i].Bytes = 1000
	}
	h.Ceilings = []traces.Ceiling{{Name: "read", Unit: "GB/s", Value: 100}, {Name: "bf16", Unit: "TFLOP/s", Value: 1}}
	duration := func(_, tag int) int64 { return int64(100 * (1 + tag)) }
	table := fixtures.Must(Summarize(fixtures.Trace(h, fixtures.Passes(h, 0, 4, duration, nil)...), ByStage, -1))(t)
	folded := FoldLayers(table)
	var names []string
	wall, rows := int64(0), 0
	for _, f := range folded {
		if f.Kind == RowWork {
			names = append(names, f.Name)
		}
		wall, rows = wall+f.Exclusive, rows+len(f.Rows)
	}
	if want := []string{"wte+wpe+h.0.ln_1", "h.N.attn", "h.N.residual_2+h.(N+1).ln_1", "h.2@1.residual_2+ln_f", "lm_head"}; !slices.Equal(names, want) {
		t.Errorf("the stages are %q, not %q", names, want)
	}
	if wall != table.Wall || rows != len(table.Rows) {
		t.Errorf("the folded rows sum to %d ns of %d, of %d rows of %d", wall, table.Wall, rows, len(table.Rows))
	}
	attn := folded[1]
	if attn.Layers != 3 || attn.Calls != 12 || attn.Kernels != 12 || attn.Exclusive != 4*(200+400+600) || attn.Min != 200 || attn.Median != 400 || attn.Max != 600 ||
		attn.Bytes != 12000 || attn.Floor != 120 || attn.Op != "Linear" || !slices.Equal(attn.Rows, []int{1, 3, 5}) {
		t.Errorf("%+v", attn)
	}
	if first, last := folded[0], folded[4]; first.Layers != 1 || last.Layers != 0 || last.Name != "lm_head" {
		t.Errorf("%+v, %+v", first, last)
	}
}

// TestFoldUnknownFloor withholds the least time of a stage if that of one layer is not known.
func TestFoldUnknownFloor(t *testing.T) {
	table := &Table{Rows: []Row{{Kind: RowWork, Name: "h.0.attn", Exclusive: 10, Floor: 5, floor: 5}, {Kind: RowWork, Name: "h.1.attn", Exclusive: 10}}}
	if f := FoldLayers(table); len(f) != 1 || f[0].Floor != 0 || f[0].Exclusive != 20 {
		t.Errorf("%+v", f)
	}
}

package exec

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"gpt2scope/cuda"
	"gpt2scope/gpt2"
)

// TestInspectDecode: launches that note when blocks did what have a row for each step of
// the kernel and one for sampling, leave position and later tokens as they were, and are
// none of the ordinary ones.
func TestInspectDecode(t *testing.T) {
	lib, c := onStub(t)
	m := randomModel(t, small)
	b, notices := persistentOn(t, lib, Options{})
	s := session(t, m, b, gpt2.Options{})
	if _, err := s.Logits(t.Context(), []int32{1, 2, 3}, gpt2.LogitsLast); err != nil {
		t.Fatal(err)
	}
	c.Reset()
	d, err := s.InspectDecode(t.Context(), []int32{4}, 3)
	if err != nil {
		t.Fatal(err)
	}
	if len(*notices) > 0 || s.Position() != 3 {
		t.Errorf("notices %q, position %d", *notices, s.Position())
	}
	if len(d.Launches) != 3 || d.Tokens != cuda.DecodeTokens || d.Blocks != 4 || countOf(c.Calls(), "gs_decode") != 3 {
		t.Fatalf("%d launches of %d steps on %d blocks, %d calls", len(d.Launches), d.Tokens, d.Blocks, countOf(c.Calls(), "gs_decode"))
	}
	var names []string
	for _, i := range d.Steps {
		names = append(names, d.Plan.Steps[i].Name())
	}
	if len(names) != 5*m.Config.Layers+2 || names[1] != "h.0.attn.sdpa" || !strings.HasSuffix(names[len(names)-2], "lm_head") || names[len(names)-1] != "sample" {
		t.Errorf("steps %q", names)
	}
	for n, launch := range d.Launches {
		if len(launch) != d.Tokens*len(d.Steps)*d.Blocks {
			t.Fatalf("launch %d has %d times", n, len(launch))
		}
		var begin uint64
		for i, at := range launch { // as the stub makes them
			row, block := i/d.Blocks, uint64(i%d.Blocks)
			switch first := row%len(d.Steps) == 0; {
			case block != 0:
			case first && at.Ready < begin+1000:
				t.Fatalf("launch %d, row %d begins at %d, and the row before at %d", n, row, at.Ready, begin)
			case first:
				begin = at.Ready
			default:
				begin += 1000
			}
			want := gpt2.BlockTimes{Ready: begin + block, Arrived: begin + 100 + block, Published: begin + 400 + 10*block}
			if block == 3 && row%len(d.Steps)%2 == 0 {
				want = gpt2.BlockTimes{}
			}
			if at != want {
				t.Fatalf("launch %d, row %d, block %d: %+v, want %+v", n, row, block, at, want)
			}
		}
	}
	before := generate(t, s, []int32{5}, gpt2.Generation{Tokens: 9, IgnoreEOS: true})
	if ids := idsOf(before); !slices.IsSorted(ids) || len(ids) != 9 {
		t.Errorf("tokens after that: %v", ids)
	}

	eager := session(t, m, backendOn(t, lib, Options{Mode: Eager}), gpt2.Options{})
	if _, err := eager.Logits(t.Context(), []int32{1}, gpt2.LogitsLast); err != nil {
		t.Fatal(err)
	}
	if _, err := eager.InspectDecode(t.Context(), []int32{4}, 1); !errors.Is(err, cuda.ErrNoKernel) || !strings.Contains(err.Error(), "mode eager") {
		t.Errorf("in mode eager: %v", err)
	}
}

// TestInspectDecodeAuto: where mode auto runs decode steps as graphs, the error says why.
func TestInspectDecodeAuto(t *testing.T) {
	lib, _ := onStub(t)
	s := session(t, randomModel(t, small), backendOn(t, lib, Options{}), gpt2.Options{})
	_, err := s.InspectDecode(t.Context(), []int32{4}, 1)
	if !errors.Is(err, cuda.ErrNoKernel) || !strings.Contains(err.Error(), "mode graph") || !strings.Contains(err.Error(), "at a width of 64") {
		t.Errorf("%v", err)
	}
}

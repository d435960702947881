package cuda_test

import (
	"errors"
	"strings"
	"testing"

	"gpt2scope/cuda"
	"gpt2scope/internal/stub"
)

// smallProgram has the arguments of a program of one layer.
func smallProgram() cuda.PersistentArgs {
	const C, V = 128, 257
	return cuda.PersistentArgs{Count: 6, C: C, NH: 2, P: 64, V: V, B: 2, LD: V, DType: cuda.BF16, Steps: 1, WTE: 1, WPE: 1, Sampling: 1, Pos: 1, TokensIO: 1,
		Slots: 1, Logits: 1, Work: 1, SlotCount: 8, Tokens: 8, Timeout: 1}
}

// Shapes are checked before crossing into C, refusals match ErrNoKernel, other failures do not.
func TestPersistentChecks(t *testing.T) {
	_, dev, c := openStub(t)
	s := stream(t, dev)
	c.Reset()
	args := smallProgram()
	change := func(f func(*cuda.PersistentArgs)) cuda.PersistentArgs {
		a := args
		f(&a)
		return a
	}
	prompt := func(f func(*cuda.PersistentArgs)) cuda.PersistentArgs {
		a := change(func(a *cuda.PersistentArgs) { a.B, a.Tokens, a.Rows, a.IDs = 1, 1, 8, 1 })
		f(&a)
		return a
	}
	_, _, drawn := s.PersistentWork(prompt(func(a *cuda.PersistentArgs) { a.Candidates = 1 }))
	for name, err := range map[string]error{
		"no row":    s.Persistent(prompt(func(a *cuda.PersistentArgs) { a.Rows = -1 })),
		"one row":   s.Persistent(prompt(func(a *cuda.PersistentArgs) { a.Rows = 1 })),
		"nine rows": s.Persistent(prompt(func(a *cuda.PersistentArgs) { a.Rows = cuda.PersistentRows + 1 })),
		"two texts": s.Persistent(prompt(func(a *cuda.PersistentArgs) { a.B = 2 })),
		"steps":     s.Persistent(prompt(func(a *cuda.PersistentArgs) { a.Tokens = 2 })),
		"rows draw": s.Persistent(prompt(func(a *cuda.PersistentArgs) { a.Candidates = 1 })),
		"work draw": drawn,
		"no ids":    s.Persistent(prompt(func(a *cuda.PersistentArgs) { a.IDs = 0 })),
		"rows tail": s.PersistentStepOnly(prompt(func(a *cuda.PersistentArgs) {}), 0, 1, 1),
		"none":      s.Persistent(change(func(a *cuda.PersistentArgs) { a.Tokens = -1 })),
		"many":      s.Persistent(change(func(a *cuda.PersistentArgs) { a.Tokens = cuda.PersistentTokens + 1 })),
		"slots":     s.Persistent(change(func(a *cuda.PersistentArgs) { a.SlotCount = 7 })),
		"timeout":   s.Persistent(change(func(a *cuda.PersistentArgs) { a.Timeout = 0 })),
		"work":      s.Persistent(change(func(a *cuda.PersistentArgs) { a.Work = 0 })),
		"heads":     s.Persistent(change(func(a *cuda.PersistentArgs) { a.NH = 3 })),
		"count":     s.Persistent(change(func(a *cuda.PersistentArgs) { a.Count = 0 })),
		"no step":   s.PersistentStepOnly(args, int(args.Count), 0, 1),
		"tail":      s.PersistentStepOnly(args, 0, cuda.PersistentTokens, 1),
		"one":       s.PersistentStepOnly(change(func(a *cuda.PersistentArgs) { a.Work = 0 }), 0, 0, 1),
		"batch":     s.Persistent(change(func(a *cuda.PersistentArgs) { a.B = 0 })),
		"rows":      s.Persistent(change(func(a *cuda.PersistentArgs) { a.LD = a.V - 1 })),
		"draw":      s.Persistent(change(func(a *cuda.PersistentArgs) { a.Candidates = -1 })),
		"drawn":     s.Persistent(change(func(a *cuda.PersistentArgs) { a.Candidates = a.V + 1 })),
		"apart":     s.Persistent(change(func(a *cuda.PersistentArgs) { a.Candidates, a.Tokens, a.LogitsOnly = 1, 1, 1 })),
		"type":      s.Persistent(change(func(a *cuda.PersistentArgs) { a.DType = cuda.F16 })),
		"fold":      s.Fold(cuda.FoldArgs{N: 1, K: 1, W: 1, Gain: 1, Sums: 1, Folded: 1, DType: cuda.BF16}),
		"fold N":    s.Fold(cuda.FoldArgs{K: 1, W: 1, Gain: 1, Shift: 1, Sums: 1, Folded: 1, DType: cuda.BF16}),
	} {
		if shape := (*cuda.ShapeError)(nil); !errors.As(err, &shape) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if calls := c.Calls(); len(calls) != 0 {
		t.Fatalf("crossed into C: %v", calls)
	}
	for _, f := range []struct {
		candidates, vocab int
		can               bool
	}{{1, 50257, true}, {128, 50257, true}, {129, 50257, false}, {0, 257, false}, {257, 257, true}, {320, 320, true}, {321, 321, false}, {129, 321, false}, {3, 2, false}} {
		if can := cuda.CanSample(f.candidates, f.vocab); can != f.can {
			t.Errorf("a token from %d candidates of %d: %v", f.candidates, f.vocab, can)
		}
	}
	if n, tokens, err := s.PersistentWork(args); err != nil || n != 64*128 || tokens != cuda.PersistentTokens {
		t.Errorf("%d bytes of work, %d steps a launch, %v", n, tokens, err)
	}
	if n, tokens, err := s.PersistentWork(prompt(func(*cuda.PersistentArgs) {})); err != nil || n != 64*128 || tokens != 1 {
		t.Errorf("of a prompt %d bytes of work, %d steps a launch, %v", n, tokens, err)
	}
	c.Decode(stub.Decode{Refusal: "no kernel for this"})
	if _, _, err := s.PersistentWork(args); !errors.Is(err, cuda.ErrNoKernel) || !strings.Contains(err.Error(), "no kernel for this") {
		t.Error(err)
	}
	for status, refused := range map[int]bool{720: true, 20001: true, 719: false, 2: false} {
		c.Decode(stub.Decode{Status: status})
		if err := s.Persistent(args); err == nil || errors.Is(err, cuda.ErrNoKernel) != refused {
			t.Errorf("status %d: %v", status, err)
		}
	}
}

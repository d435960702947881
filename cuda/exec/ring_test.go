package exec

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"gpt2scope/cuda"
)

// A step has its tokens when every sequence's slot has the step's number: not one that an earlier step left there.
func TestAwait(t *testing.T) {
	stream := stubStream(t) // whose work is always done
	g := ring{batch: 3}
	must(t, g.allocate(stream.Device()))
	defer g.slots.Free()
	const step = 5 + ringSlots
	write := func(sequences ...uint64) {
		for b, n := range sequences {
			*g.slot(step, b) = cuda.Slot{Sequence: n, Token: int32(100 + b), Position: 7, LogProb: -1}
		}
	}
	for _, slots := range [][]uint64{{0, 0, 0}, {step + 1, step + 1, 0}, {0, step + 1, step + 1}, {6, 6, 6}, {step, step, step}, {step + 1, step + 1, step}} {
		write(slots...)
		if err := g.await(t.Context(), stream, step); err == nil || !strings.Contains(err.Error(), "without a token") {
			t.Errorf("slots %v: %v; want an error, since step %d wrote not all of them", slots, err, step)
		}
	}
	write(step+1, step+1, step+1)
	if err := g.await(t.Context(), stream, step); err != nil {
		t.Error(err)
	}
	tokens, err := g.read(nil, step)
	if err != nil || len(tokens) != 3 {
		t.Fatal(tokens, err)
	}
	for b, token := range tokens {
		if token.ID != int32(100+b) || token.Seq != b || token.Position != 7 || token.LogProb != -1 {
			t.Errorf("token %d is %+v", b, token)
		}
	}
	enough := errors.New("enough")
	ctx, cancel := context.WithTimeoutCause(t.Context(), time.Millisecond, enough)
	defer cancel()
	<-ctx.Done()
	if err := g.await(ctx, stream, step+1); !errors.Is(err, enough) {
		t.Errorf("cancelled: %v", err)
	}
}

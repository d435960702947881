package exec

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"

	"gpt2scope/cuda"
	"gpt2scope/cuda/persistent"
	"gpt2scope/gpt2"
	"gpt2scope/nvtx"
	"gpt2scope/nvtx/annotate"
)

// ring is where sampling launches leave their tokens, in pinned memory that the host reads while the device goes on.
type ring struct {
	batch int
	slots *cuda.HostBuffer // (ringSlots, B) gs_slot
}

// ringSlots is how many steps the ring holds.
const ringSlots = 64

const slotBytes = int64(unsafe.Sizeof(cuda.Slot{}))

func (g *ring) allocate(dev *cuda.Device) (err error) {
	if g.slots, err = dev.AllocHost(ringSlots * int64(g.batch) * slotBytes); err != nil {
		return err
	}
	clear(g.slots.Bytes())
	return nil
}

// slot returns what a step wrote of a sequence.
func (g *ring) slot(step uint64, b int) *cuda.Slot {
	i := int64(step%ringSlots)*int64(g.batch) + int64(b)
	return (*cuda.Slot)(unsafe.Pointer(&g.slots.Bytes()[i*slotBytes]))
}

// await waits until every sequence's slot of a step is written.
func (g *ring) await(ctx context.Context, stream *cuda.Stream, step uint64) error {
	var began time.Time
	for b := range g.batch {
		s := g.slot(step, b)
		for spins := 1; atomic.LoadUint64(&s.Sequence) != step+1; spins++ {
			cuda.Pause()
			if spins%64 != 0 {
				continue
			}
			if began.IsZero() {
				began = time.Now()
				defer annotate.Range("wait for token", nvtx.Yellow)()
				continue
			}
			if time.Since(began) < time.Millisecond {
				continue
			}
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			done, err := stream.Query() // a kernel that failed writes no slot
			if err != nil {
				return err
			}
			if done && atomic.LoadUint64(&s.Sequence) != step+1 {
				return fmt.Errorf("step %d ended without a token", step)
			}
			cuda.Nap(20 * time.Microsecond)
		}
	}
	return nil
}

// read returns the tokens of a step, one per sequence, in the memory of a slice.
func (g *ring) read(tokens []gpt2.Token, step uint64) ([]gpt2.Token, error) {
	tokens = tokens[:0]
	for b := range g.batch {
		s := g.slot(step, b)
		switch {
		case s.Token == cuda.SlotTimeout:
			return tokens, persistent.Timeout(s.Position)
		case s.Token < 0:
			return tokens, gpt2.ErrNotFinite
		}
		tokens = append(tokens, gpt2.Token{ID: s.Token, Seq: b, Position: int(s.Position), LogProb: s.LogProb})
	}
	return tokens, nil
}

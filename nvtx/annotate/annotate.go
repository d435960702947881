// Package annotate shows passes to Nsight Systems: it makes NVTX ranges from a plan, for whoever executes it.
//
// In the domain "gpt2scope" ranges nest: prefill or decode step, layer, step of the plan. Names are the plan's
// ("h.0.attn.c_attn"), so a timeline reads like the model. The payload is a layer's index for a layer and the steps in
// it, the position of the pass's first token for the pass and steps outside the layers. The category is the step's
// operation, or "Pass" or "Layer". What is not part of a pass, such as loading, has a range of its own ([Range]).
//
// With no tool attached [New] returns nil, and the methods of a nil [Pass] do nothing.
package annotate

import (
	"fmt"
	"runtime"

	"gpt2scope/gpt2"
	"gpt2scope/nvtx"
)

// The categories of ranges; those of operations follow.
const passes, layers, operations = 1, 2, 3

// Pass opens and closes the ranges of a plan's passes. It belongs to one
// goroutine, which must be locked to its OS thread from Begin to End.
type Pass struct {
	steps  []step
	layers map[int]nvtx.Range // by slot
	whole  nvtx.Range

	position int64
	slot     int // of the layer that is open; -1 for none
	depth    int // ranges open: the pass, a layer, a step
}

// step is one of the plan.
type step struct {
	nvtx.Range
	slot int
}

// New prepares the ranges, in a colour, of a plan as it is executed, fused: nil with no tool attached.
func New(plan *gpt2.Plan, color nvtx.Color) *Pass {
	if !nvtx.Active() {
		return nil
	}
	nvtx.NameCategory(passes, "Pass")
	nvtx.NameCategory(layers, "Layer")
	p := &Pass{layers: map[int]nvtx.Range{}, slot: -1,
		whole: nvtx.Range{Name: plan.PassName(1), Color: color, Category: passes}}
	for _, s := range plan.Steps {
		op := operations + uint32(s.Op())
		nvtx.NameCategory(op, s.Op().String())
		payload := int64(s.Layer())
		p.steps = append(p.steps, step{nvtx.Range{Name: s.Name(), Color: color, Category: op, Payload: payload}, s.Slot()})
		if s.Slot() >= 0 {
			p.layers[s.Slot()] = nvtx.Range{Name: gpt2.LayerName(s.Slot(), s.Layer()), Color: color, Category: layers,
				Payload: payload}
		}
	}
	return p
}

// Begin opens the range of a pass that begins at a token position.
func (p *Pass) Begin(position int) {
	if p == nil {
		return
	}
	p.End()
	p.position = int64(position)
	r := p.whole
	r.Payload = p.position
	if position == 0 {
		r.Name = gpt2.PrefillPass
	}
	p.push(r)
}

// Step opens the range of step i of the plan, in that of its layer: the layer before, where it is another, is closed.
func (p *Pass) Step(i int) {
	if p == nil {
		return
	}
	s := p.steps[i]
	if s.slot != p.slot {
		p.closeTo(1)
		if s.slot >= 0 {
			p.push(p.layers[s.slot])
		}
		p.slot = s.slot
	}
	if s.slot < 0 {
		s.Payload = p.position
	}
	p.push(s.Range)
}

// EndStep closes the range of the step that is open.
func (p *Pass) EndStep(int) {
	if p == nil {
		return
	}
	if p.slot >= 0 {
		p.closeTo(2)
	} else {
		p.closeTo(1)
	}
}

// End closes what is open of the pass. Calling it again does nothing, so it can
// be deferred for passes that fail half way.
func (p *Pass) End() {
	if p == nil {
		return
	}
	p.closeTo(0)
	p.slot = -1
}

func (p *Pass) push(r nvtx.Range) {
	nvtx.Push(r)
	p.depth++
}

func (p *Pass) closeTo(depth int) {
	for ; p.depth > depth; p.depth-- {
		nvtx.Pop()
	}
}

// nothing is what Range returns with no tool attached.
func nothing() {}

// Range opens a range for work that is not a step, such as "load the model", and returns what closes it. The name is a
// format where arguments follow. The goroutine is locked to its OS thread until then, and must be the one to close.
func Range(name string, color nvtx.Color, args ...any) (end func()) {
	if !nvtx.Active() {
		return nothing
	}
	if len(args) > 0 {
		name = fmt.Sprintf(name, args...)
	}
	runtime.LockOSThread()
	nvtx.Push(nvtx.Range{Name: name, Color: color, Payload: nvtx.NoPayload})
	return func() {
		nvtx.Pop()
		runtime.UnlockOSThread()
	}
}

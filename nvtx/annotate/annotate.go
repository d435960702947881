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
	"sync"

	"gpt2scope/gpt2"
	"gpt2scope/nvtx"
	"gpt2scope/record"
)

// domain is made when it is first needed: nil with no tool attached.
var domain = sync.OnceValue(func() *nvtx.Domain { return nvtx.NewDomain(record.Domain) })

// Pass opens and closes the ranges of a plan's passes. It belongs to one
// goroutine, which must be locked to its OS thread from Begin to End.
type Pass struct {
	domain *nvtx.Domain
	steps  []step
	layers map[int]nvtx.Event // by slot
	whole  nvtx.Event
	first  nvtx.String // name of the pass where nothing lies before it

	position int64
	slot     int // of the layer that is open; -1 for none
	depth    int // ranges open: the pass, a layer, a step
}

// step is one of the plan.
type step struct {
	event nvtx.Event
	slot  int
}

// New prepares the ranges, in a colour, of a plan as it is executed, fused: nil with no tool attached.
func New(plan *gpt2.Plan, color nvtx.Color) *Pass {
	if !nvtx.Active() {
		return nil
	}
	d := domain()
	p := &Pass{domain: d, layers: map[int]nvtx.Event{}, slot: -1, first: d.Register(gpt2.PrefillPass),
		whole: nvtx.Event{Message: d.Register(plan.PassName(1)), Color: color, Category: d.Category("Pass")}}
	for _, s := range plan.Steps {
		p.steps = append(p.steps, step{slot: s.Slot(), event: nvtx.Event{
			Message: d.Register(s.Name()), Color: color, Category: d.Category(s.Op().String()),
			Payload: int64(s.Layer())}})
		if s.Slot() >= 0 {
			p.layers[s.Slot()] = nvtx.Event{Message: d.Register(gpt2.LayerName(s.Slot(), s.Layer())), Color: color,
				Category: d.Category("Layer"), Payload: int64(s.Layer())}
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
	e := p.whole
	e.Payload = p.position
	if position == 0 {
		e.Message = p.first
	}
	p.push(e)
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
	e := s.event
	if s.slot < 0 {
		e.Payload = p.position
	}
	p.push(e)
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

func (p *Pass) push(e nvtx.Event) {
	p.domain.Push(e)
	p.depth++
}

func (p *Pass) closeTo(depth int) {
	for ; p.depth > depth; p.depth-- {
		p.domain.Pop()
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
	d := domain()
	d.Push(nvtx.Event{Text: name, Color: color, Payload: nvtx.NoPayload})
	return func() {
		d.Pop()
		runtime.UnlockOSThread()
	}
}

package stages

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"gpt2scope/traces"
)

// NoStage names the step of the kernels of a pass that are of no stage.
const NoStage = "of no stage"

// Apply writes what was found into the trace that it was found in: passes, and the step of each kernel, as if the
// program had named them. Header.Inferred says that they are inferred. The trace is changed in place and attributed
// again. A trace that has steps is refused, and so is an inference without passes.
func (r *Inference) Apply(t *traces.Trace) error {
	switch {
	case Has(t):
		return errors.New("the recording has its passes and stages; only those of recordings without any are inferred")
	case len(r.Passes) == 0:
		return errors.New(strings.Join(append([]string{"no pass of a model that is known was found in the kernels"}, r.Against...),
			"; "))
	}
	a := &applier{trace: t, found: r, Index: t.Index(), tags: map[planKind]map[string]int32{},
		plans: map[planKind]int32{}, next: traces.LastID(t.Events)}
	t.Header.Plans = nil
	for _, phase := range phaseNames {
		for _, p := range r.Passes {
			if k := p.kind(); k.phase == phase && a.tags[k] == nil {
				a.plan(k)
			}
		}
	}
	var made []traces.Event
	for _, p := range r.Passes {
		made = append(made, a.pass(p))
	}
	t.Header.Inferred, t.Header.CostsFrom, t.Header.Against = r.Confidence, r.CostsFrom, r.Against
	t.Header.DType = cmp.Or(r.DType, t.Header.DType)
	*t = *traces.NewTrace(t.Header, append(t.Events, made...))
	ownRest(t, NoStage)
	return nil
}

// Has reports whether the source of a trace named steps.
func Has(t *traces.Trace) bool {
	return t.Passes > 0 || slices.ContainsFunc(t.Header.Plans, func(p traces.Plan) bool { return len(p.Steps) > 0 })
}

// applier is the state of Apply.
type applier struct {
	trace *traces.Trace
	found *Inference
	*traces.Index
	tags  map[planKind]map[string]int32 // plan and name to index in the plan's steps
	plans map[planKind]int32            // index in Header.Plans
	next  uint64                        // the highest ID of a range
}

// nameOf is the name of the step of a kernel in a pass.
func nameOf(k *Kernel) string {
	if k.Stage == nil {
		return NoStage
	}
	return *k.Stage
}

// plan makes the plan of the passes of a kind of the steps that they have, in the order of the model.
func (a *applier) plan(kind planKind) {
	type step struct {
		name         string
		layer, order int
	}
	var steps []step
	seen := map[string]bool{}
	for _, p := range a.found.Passes {
		if p.kind() != kind {
			continue
		}
		for _, k := range p.kernels {
			if name := nameOf(k); !seen[name] {
				seen[name] = true
				s := step{name: name, layer: k.layer, order: int(k.state)}
				switch {
				case k.Stage == nil:
					s.layer, s.order = a.found.Layers, int(numStates)
				case k.state < firstOfLayer:
					s.layer = -1
				case k.layer < 0:
					s.layer = a.found.Layers
				}
				steps = append(steps, s)
			}
		}
	}
	if len(steps) == 0 {
		return
	}
	slices.SortStableFunc(steps, func(x, y step) int {
		return cmp.Or(cmp.Compare(x.layer, y.layer), cmp.Compare(x.order, y.order))
	})
	h := a.trace.Header
	plan := traces.Plan{Phase: kind.phase}
	tags := map[string]int32{}
	for i, s := range steps {
		tags[s.name] = int32(i)
		layer := traces.LayerOf(s.name)
		made := traces.Step{Tag: i, Name: s.name, Layer: layer, Slot: layer}
		if s.order < int(numStates) {
			made.Op = ops[roles[s.order]]
		}
		plan.Steps = append(plan.Steps, made)
	}
	a.found.price(&plan, kind)
	a.tags[kind], a.plans[kind] = tags, int32(len(h.Plans))
	h.Plans = append(h.Plans, plan)
}

// ops are the operations of the stages by their states' roles, as plans name them.
var ops = map[role]string{roleEmbed: "Embed", roleNorm: "LayerNorm", roleProduct: "Linear", roleAttention: "Attention",
	roleResidual: "Add", roleGelu: "Activation", roleSample: "Sample"}

// pass gives the kernels of a pass their steps and makes its range: on the thread that launched them, from the first
// launch to the end of the last; without launches, the time of the kernels.
func (a *applier) pass(p *Pass) traces.Event {
	h, kind := a.trace.Header, p.kind()
	plan, hasPlan := a.plans[kind]
	if !hasPlan {
		plan = -1
	}
	var from, to int64
	lane, hasCalls := traces.Thread(h.Process, 0), false
	for _, k := range p.kernels {
		if !hasCalls { // passes of several chains overlap
			lane = traces.Thread(h.ProcessOf(k.event), int64(p.chain))
		}
		call := a.CallOf(k.event)
		if call == nil {
			continue
		}
		if !hasCalls {
			from, to, hasCalls = call.Time, call.End(), true
			lane = traces.Thread(call.Lane.Process, call.Lane.ID)
		}
		from, to = min(from, call.Time), max(to, call.End())
	}
	if !hasCalls {
		from, to = p.Start, p.End
	}
	a.next++
	e := traces.Plain(traces.KindPass, lane, p.Phase, from, to-from)
	e.ID, e.Plan = a.next, plan
	e.Value = float64(max(0, p.size.past)) // the tokens in the cache
	for _, k := range p.kernels {
		k.event.Plan, k.event.Step = plan, a.tags[kind][nameOf(k)]
		a.enclose(&e, k.event)
	}
	return e
}

// enclose makes a pass the parent of the outermost range around a kernel that lies within the pass, or of the kernel
// itself.
func (a *applier) enclose(pass, kernel *traces.Event) {
	child := kernel
	for range deepest {
		parent := a.Parent(child)
		if parent == nil || parent.Time < pass.Time || parent.End() > pass.End() || parent.Open {
			break
		}
		child = parent
	}
	if child.Parent == pass.ID {
		return
	}
	pass.Parent = cmp.Or(pass.Parent, child.Parent)
	child.Parent = pass.ID
}

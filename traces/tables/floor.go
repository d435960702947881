package tables

import (
	"gpt2scope/ceilings"
	"gpt2scope/traces"
)

// Ceilings returns what a device, -1 for the CPU, was measured to do.
func Ceilings(h *traces.Header, device int32) (s ceilings.Set) {
	for _, c := range h.Ceilings {
		if c.Device == int(device) {
			s.Values = append(s.Values, ceilings.Value{Name: c.Name, Unit: c.Unit, Value: c.Value, Size: c.Size})
		}
	}
	return s
}

// Work returns what a step needs at least, in a pass of the plan that begins with so
// many tokens in the cache. A product of a step that names no type multiplies in Header.DType.
func Work(h *traces.Header, p *traces.Plan, step traces.Step, past int) ceilings.Work {
	flops, bytes := step.CostAt(p, past)
	w := ceilings.Work{FLOPs: max(0, flops), Activations: min(max(0, step.Activations), max(0, bytes)),
		Type: step.Multiply}
	w.Bytes = max(0, bytes) - w.Activations
	if w.Type == "" {
		switch step.Op {
		case "Linear", "Attention", "": // an unknown one may be a product
			w.Type = h.DType
		default:
			w.Type = ceilings.F32
		}
	}
	return w
}

// position returns how many tokens were in the cache when a pass of the plan began.
func position(p *traces.Plan, pass *traces.Event) int {
	if pass == nil || !(pass.Value >= 0 && pass.Value <= 1<<30) {
		return p.Past
	}
	return int(pass.Value)
}

// costs finds what steps cost at least, and how long that takes at least.
type costs struct {
	header  *traces.Header
	set     ceilings.Set
	traffic map[passKind]int64
}

// passKind is what the traffic of a pass depends on.
type passKind struct {
	plan *traces.Plan
	past int
}

func costsOf(h *traces.Header, device int32) *costs {
	return &costs{h, Ceilings(h, device), map[passKind]int64{}}
}

// of returns the cost of a step in a pass, nil for a pass that is not recorded.
// The floor has no time if it is not known.
func (c *costs) of(p *traces.Plan, step traces.Step, pass *traces.Event) (flops, bytes int64, floor ceilings.Floor) {
	kind := passKind{p, position(p, pass)}
	traffic, ok := c.traffic[kind]
	if !ok {
		all := make([]ceilings.Work, len(p.Steps))
		for i := range p.Steps {
			all[i] = Work(c.header, p, p.Steps[i], kind.past)
		}
		traffic = ceilings.Traffic(all)
		c.traffic[kind] = traffic
	}
	w := Work(c.header, p, step, kind.past)
	floor, _ = c.set.Floor(w, traffic)
	return w.FLOPs, w.Bytes + w.Activations, floor
}

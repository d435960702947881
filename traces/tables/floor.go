package tables

import (
	"math"

	"gpt2scope/traces"
)

// Floor returns the least time, in ns, that work with that many operations and
// that much traffic takes on a device (-1 for the CPU) in a pass of the plan:
//
//	max(bytes / bandwidth ceiling, FLOPs / rate ceiling of Header.DType)
//
// Bandwidth is the highest ceiling in GB/s that holds: that of memory, and that of
// a cache where the traffic of the whole plan fits in it, since it then stays there
// from one pass to the next. ok is false where the cost is not known, or a ceiling
// that it needs was not measured.
func Floor(h *traces.Header, device int32, p *traces.Plan, flops, bytes int64) (ns float64, ok bool) {
	if flops < 0 || bytes < 0 || flops == 0 && bytes == 0 || p == nil {
		return 0, false
	}
	traffic := traffic(p)
	var bandwidth, rate float64 // bytes per ns, operations per ns
	for _, c := range h.Ceilings {
		switch {
		case c.Device != int(device):
		case c.Unit == "GB/s" && (c.Size == 0 || traffic <= c.Size):
			bandwidth = max(bandwidth, c.Value)
		case c.Unit == "TFLOP/s" && c.Name == h.DType:
			rate = max(rate, c.Value*1e3)
		}
	}
	if bytes > 0 && bandwidth <= 0 || flops > 0 && rate <= 0 {
		return 0, false
	}
	if bytes > 0 {
		ns = float64(bytes) / bandwidth
	}
	if flops > 0 {
		ns = max(ns, float64(flops)/rate)
	}
	return ns, ns < traces.MaxTime
}

// traffic is the sum of the least traffic of the steps. A sum that does not fit
// counts as more than any cache holds.
func traffic(p *traces.Plan) int64 {
	sum := int64(0)
	for i := range p.Steps {
		if sum += max(0, p.Steps[i].Bytes); sum < 0 {
			return math.MaxInt64
		}
	}
	return sum
}

// hasCeilings reports whether anything was measured of a device.
func hasCeilings(h *traces.Header, device int32) bool {
	for _, c := range h.Ceilings {
		if c.Device == int(device) {
			return true
		}
	}
	return false
}

// position returns how many tokens were in the cache when a pass of the plan began.
func position(p *traces.Plan, pass *traces.Event) int {
	if pass == nil || !(pass.Value >= 0 && pass.Value <= 1<<30) {
		return p.Past
	}
	return int(pass.Value)
}

// costs works out what steps cost at least, and how long that takes at least.
type costs struct {
	h      *traces.Header
	device int32
	plans  map[*traces.Plan]floors
}

// floors are the ceilings that hold for a plan, as times per unit of work.
type floors struct {
	perByte, perFLOP float64 // ns; 0 where not known
}

func costsOf(h *traces.Header, device int32) *costs {
	return &costs{h, device, map[*traces.Plan]floors{}}
}

// of returns the cost of a step in a pass, nil for a pass that is not recorded.
// The floor is 0 where it is not known.
func (c *costs) of(p *traces.Plan, step traces.Step, pass *traces.Event) (flops, bytes int64, ns float64) {
	flops, bytes = step.CostAt(p, position(p, pass))
	flops, bytes = max(0, flops), max(0, bytes)
	f, ok := c.plans[p]
	if !ok {
		// A floor is linear in each cost: working it out once per plan is enough.
		const unit = 1 << 40
		if ns, ok := Floor(c.h, c.device, p, 0, unit); ok {
			f.perByte = ns / unit
		}
		if ns, ok := Floor(c.h, c.device, p, unit, 0); ok {
			f.perFLOP = ns / unit
		}
		c.plans[p] = f
	}
	if bytes > 0 && f.perByte == 0 || flops > 0 && f.perFLOP == 0 {
		return flops, bytes, 0
	}
	return flops, bytes, max(float64(bytes)*f.perByte, float64(flops)*f.perFLOP)
}

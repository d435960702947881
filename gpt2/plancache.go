package gpt2

// PlanCache keeps the plans of a session, as a backend fuses them, so that
// each is made once. It belongs to one goroutine at a time.
type PlanCache struct {
	backend Backend
	config  Config
	layers  []int
	plans   map[Pass]*Plan
}

// maxPlans bounds how many plans are kept.
const maxPlans = 32

// NewPlanCache makes an empty cache for a model's run order of layers.
func NewPlanCache(b Backend, c Config, layers []int) *PlanCache {
	return &PlanCache{b, c, layers, map[Pass]*Plan{}}
}

// Plan returns the fused plan of a pass, which must be one that the model has ([Pass.Check]).
func (c *PlanCache) Plan(pass Pass) *Plan {
	if p, ok := c.plans[pass]; ok {
		return p
	}
	if len(c.plans) == maxPlans {
		clear(c.plans)
	}
	p := c.backend.Fuse(Forward(c.config, c.layers, pass))
	c.plans[pass] = p
	return p
}

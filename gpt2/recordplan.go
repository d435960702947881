package gpt2

import (
	"strconv"

	"gpt2scope/record"
	"gpt2scope/traces"
)

// Names of whole passes in recordings and timelines.
const (
	PrefillPass = "prefill"
	DecodePass  = "decode step"
	DraftPass   = "draft step"
	VerifyPass  = "verify step"
)

// PassName returns the name of a pass that begins at a token position: a pass of one
// token after others is a decode step, or one of speculation, any other a prefill.
func (p *Plan) PassName(position int) string {
	switch {
	case p.Pass.Exit > 0:
		return DraftPass
	case p.Pass.Verify:
		return VerifyPass
	case p.Pass.IsDecode() && position > 0:
		return DecodePass
	}
	return PrefillPass
}

// LayerName returns the name of a layer: "h.2", or "h.2@1" for layer 2 run second.
func LayerName(slot, layer int) string {
	name := "h." + strconv.Itoa(layer)
	if slot != layer {
		name += "@" + strconv.Itoa(slot)
	}
	return name
}

// Trace returns the plan, with its costs, as trace files have it, for passes that begin at a token position. Costs are
// those of the plan; executed is how many tokens per sequence run, more than the plan's if the prompt is padded.
func (p *Plan) Trace(position, executed int, sizes Sizes) traces.Plan {
	t := traces.Plan{Phase: p.PassName(position), Batch: p.Pass.Batch, Tokens: p.Pass.Tokens}
	if executed != p.Pass.Tokens {
		t.Padded = executed
	}
	for _, s := range p.Steps {
		step := traces.Step{Tag: s.Tag, Name: s.Name(), Layer: s.Layer(), Slot: s.Slot()}
		s.Price(&step, sizes)
		t.Steps = append(t.Steps, step)
	}
	return t
}

// Price notes in a recorded step what it costs.
func (s Step) Price(step *traces.Step, sizes Sizes) {
	at, next := s.Work(0, sizes), s.Work(1, sizes)
	step.Op, step.Multiply, step.Activations = s.Op().String(), at.Type, at.Activations
	step.FLOPs, step.Bytes = at.FLOPs, at.Bytes+at.Activations
	step.FLOPsPerPast, step.BytesPerPast = next.FLOPs-at.FLOPs, next.Bytes-at.Bytes
}

// RecordedPlans registers the plans of passes with a recorder, each once. Its methods
// cost little, so that a runner can call them for every pass.
type RecordedPlans struct {
	recorder *record.Recorder
	sizes    Sizes
	indices  map[recordedPlan]int32
}

// recordedPlan tells apart the plans of a recording.
type recordedPlan struct {
	plan     *Plan
	name     string
	executed int
}

// NewRecordedPlans makes an empty registry.
func NewRecordedPlans(r *record.Recorder, sizes Sizes) *RecordedPlans {
	return &RecordedPlans{r, sizes, map[recordedPlan]int32{}}
}

// Index returns by which index events refer to the plan: see [Plan.Trace].
func (r *RecordedPlans) Index(p *Plan, position, executed int) int32 {
	key := recordedPlan{p, p.PassName(position), executed}
	i, ok := r.indices[key]
	if !ok {
		i = r.recorder.Plan(p.Trace(position, executed, r.sizes))
		r.indices[key] = i
	}
	return i
}

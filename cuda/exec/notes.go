package exec

import (
	"time"

	"gpt2scope/gpt2"
	"gpt2scope/record"
	"gpt2scope/traces"
)

// notes are what the host notes of the passes of a recording. They are the same whether stamps or CUPTI record the
// device.
type notes struct {
	to       *record.Recorder
	lane     traces.Lane // of the thread that launches
	plans    *gpt2.PlanCache
	recorded *gpt2.RecordedPlans

	passes  []passNote
	calls   []callNote // of all passes
	open    int        // the call that is a step under way
	waits   []span
	events  int   // that the notes will become, about
	dropped int64 // passes for which there was no room
}

// span is a time on the host, in ns as the trace has it.
type span struct{ begin, end int64 }

// passNote is one pass as the host saw it.
type passNote struct {
	id       uint64
	plan     *gpt2.Plan
	recorded int32 // index of the trace's plans
	position int
	span
	first, last int // of notes.calls
}

// callNote is a launch, or a step of an eager pass.
type callNote struct {
	span
	step   int32 // -1 for a whole graph
	isStep bool
}

// maxRecorded bounds the events of a recording: about half a GiB of memory.
const maxRecorded = 2_000_000

// hasRoom reports whether one more pass of a plan can be noted.
func (n *notes) hasRoom(c *compiled) bool { return n.events+eventsOf(c.plan) <= maxRecorded }

// eventsOf is the most events that a pass becomes.
func eventsOf(p *gpt2.Plan) int { return 2*len(p.Steps) + 4 }

// begin begins the note of a pass, which ends with keep.
func (n *notes) begin(at passAt) passNote {
	n.events += eventsOf(at.c.plan)
	return passNote{id: n.to.IDs(1), plan: at.c.plan, recorded: n.recordedPlan(at), position: at.position,
		span: span{begin: n.to.Now()}, first: len(n.calls)}
}

// scratch begins a note that is not kept, and ends with discard.
func (n *notes) scratch() passNote { return passNote{first: len(n.calls)} }

func (n *notes) keep(p passNote) {
	p.end, p.last = n.to.Now(), len(n.calls)
	n.passes = append(n.passes, p)
}

func (n *notes) discard(p passNote) { n.calls = n.calls[:p.first] }

// recordedPlan registers the plan of a pass. Its costs leave out the padding of a prompt.
func (n *notes) recordedPlan(at passAt) int32 {
	plan, executed := at.c.plan, at.c.plan.Pass.Tokens
	if at.tokens < executed {
		pass := plan.Pass
		pass.Tokens = at.tokens
		if asked := n.plans.Plan(pass); len(asked.Steps) == len(plan.Steps) {
			plan = asked
		}
	}
	return n.recorded.Index(plan, at.position, executed)
}

// step notes that a step begins, endStep that it is launched.
func (n *notes) step(i int) {
	n.open = len(n.calls)
	n.calls = append(n.calls, callNote{span: span{begin: n.to.Now()}, step: int32(i), isStep: true})
}

func (n *notes) endStep() { n.calls[n.open].end = n.to.Now() }

// call notes a launch that began at a time and has ended: of a step, or of a graph (-1).
func (n *notes) call(began int64, step int) {
	n.calls = append(n.calls, callNote{span: span{began, n.to.Now()}, step: int32(step)})
}

func (n *notes) wait() (end func()) {
	began := n.to.Now()
	return func() {
		if end := n.to.Now(); end-began > int64(500*time.Nanosecond) && len(n.waits) < maxRecorded {
			n.waits = append(n.waits, span{began, end})
		}
	}
}

// hostEvents are the events of a pass on the host.
type hostEvents struct {
	events   []traces.Event
	launches []launchEvent
	isGraph  bool // there is one launch, of the whole pass
}

// launchEvent is what ties a launch to its kernels.
type launchEvent struct {
	correlation uint64
	began       int64
}

// passEvent makes the event of a pass.
func (n *notes) passEvent(p passNote) traces.Event {
	e := traces.Plain(traces.KindPass, n.lane, p.plan.PassName(p.position), p.begin, p.end-p.begin)
	e.Plan, e.ID, e.Domain, e.Value = p.recorded, p.id, record.Domain, float64(p.position)
	return e
}

// hostEvents makes the events of a pass. Their ids follow *next.
func (n *notes) hostEvents(p passNote, next *uint64) (out hostEvents) {
	id := func() uint64 { *next++; return *next - 1 }
	add := func(kind traces.Kind, lane traces.Lane, name string, s span, step int32, parent uint64) *traces.Event {
		e := traces.Plain(kind, lane, name, s.begin, s.end-s.begin)
		e.Plan, e.Step, e.Parent = p.recorded, step, parent
		out.events = append(out.events, e)
		return &out.events[len(out.events)-1]
	}
	out.events = append(out.events, n.passEvent(p))
	api := traces.API(n.lane.Process, n.lane.ID)
	parent := p.id
	for _, c := range n.calls[p.first:p.last] {
		if c.isStep {
			e := add(traces.KindStep, n.lane, p.plan.Steps[c.step].Name(), c.span, c.step, p.id)
			e.ID, e.Domain = id(), record.Domain
			parent = e.ID
			continue
		}
		name := "cudaLaunchKernel"
		if c.step < 0 {
			name, parent, out.isGraph = "cudaGraphLaunch", p.id, true
		}
		e := add(traces.KindRuntime, api, name, c.span, c.step, parent)
		e.Correlation = id()
		out.launches = append(out.launches, launchEvent{e.Correlation, c.begin})
	}
	return out
}

// finish adds the events of the recording, and of waits, to the trace.
func (n *notes) finish(events []traces.Event) {
	for _, w := range n.waits {
		e := traces.Plain(traces.KindRuntime, traces.API(n.lane.Process, n.lane.ID), "poll for a token", w.begin,
			w.end-w.begin)
		e.Wait = traces.WaitSync
		events = append(events, e)
	}
	n.to.Header(func(h *traces.Header) {
		h.Drop("passes for which there was no room", n.dropped)
	})
	n.to.Add(events...)
}

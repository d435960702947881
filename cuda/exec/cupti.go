package exec

import (
	"gpt2scope/cuda/cupti"
	"gpt2scope/traces"
)

// cuptiRecorder records by CUPTI, which has calls and kernels itself: what is launched gets a tag that says its pass
// and step.
type cuptiRecorder struct {
	off
	host    notes
	cupti   activity
	current cuptiPass
}

// activity is what is used of a [cupti.Recorder].
type activity interface {
	Start() error
	Stop() error
	Push(tag uint64)
	Pop()
	Clock() (cupti.Clock, error)
	Records() []cupti.Record
	Describe(h *traces.Header, at cupti.Clock)
}

func startCUPTI(c activity, n notes) (recorder, error) {
	return &cuptiRecorder{host: n, cupti: c}, c.Start()
}

// tagOf packs what a recorded call belongs to into the 64 bits of a CUPTI tag: pass id, plan and step + 1. A step of -1
// stands for a whole pass.
func tagOf(pass uint64, plan, step int32) uint64 {
	return pass<<28 | uint64(plan&0xfff)<<16 | uint64(step+1)&0xffff
}

// tagged is the opposite of tagOf.
func tagged(tag uint64) (plan, step int32, pass uint64) {
	return int32(tag >> 16 & 0xfff), int32(tag&0xffff) - 1, tag >> 28
}

func (rec *cuptiRecorder) wait() (end func()) { return rec.host.wait() }

func (rec *cuptiRecorder) pass(at passAt, _ *variant) passRecorder {
	if !rec.host.hasRoom(at.c) {
		rec.host.dropped++
		return off{}
	}
	rec.current = cuptiPass{rec: rec, note: rec.host.begin(at), kept: true}
	rec.current.push(-1)
	return &rec.current
}

// capture tags the nodes of a graph with their steps. It is no pass.
func (rec *cuptiRecorder) capture(at passAt, _ *variant) passRecorder {
	rec.current = cuptiPass{rec: rec, note: rec.host.scratch()}
	rec.current.note.recorded = rec.host.recordedPlan(at)
	return &rec.current
}

// cuptiPass tags what is launched.
type cuptiPass struct {
	off
	rec  *cuptiRecorder
	note passNote
	kept bool // it is a pass, and not captured
}

func (p *cuptiPass) push(step int) { p.rec.cupti.Push(tagOf(p.note.id, p.note.recorded, int32(step))) }

func (p *cuptiPass) step(i int) {
	p.rec.host.step(i)
	p.push(i)
}

func (p *cuptiPass) endStep() {
	p.rec.cupti.Pop()
	p.rec.host.endStep()
}

func (p *cuptiPass) close() {
	if !p.kept {
		p.rec.host.discard(p.note)
		return
	}
	p.rec.cupti.Pop()
	p.rec.host.keep(p.note)
}

func (rec *cuptiRecorder) stop() error {
	if err := rec.cupti.Stop(); err != nil {
		return err
	}
	clock, err := rec.cupti.Clock()
	if err != nil {
		return err
	}
	records := rec.cupti.Records()
	// Not by the wall clock, which may be set meanwhile.
	events := cupti.Convert(records, clock.CUPTI-rec.host.to.OfMonotonic(clock.Monotonic), tagged)
	rec.host.to.Header(func(h *traces.Header) { rec.cupti.Describe(h, clock) })
	next := rec.host.to.IDs(rec.host.events)
	for _, p := range rec.host.passes {
		events = append(events, rec.host.hostEvents(p, &next).events...)
	}
	rec.host.finish(events)
	return nil
}

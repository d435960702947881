package exec

import (
	"slices"

	"gpt2scope/cuda"
	"gpt2scope/cuda/persistent"
	"gpt2scope/gpt2"
	"gpt2scope/traces"
)

// persistentRecorder records launches of the persistent kernel: each decode step of a launch is a pass of the
// recording, and each of its steps a kernel.
type persistentRecorder struct {
	rec      *stampRecorder
	stamps   *persistent.Stamps
	steps    []int    // of each step of the kernel, that of the plan
	names    []string // of its events
	blocks   int
	failed   error      // why there is no room for stamps
	verify   *gpt2.Plan // of a decode step that verifies drafts
	launches []*launchNote
}

// launchNote is a launch as the host saw it.
type launchNote struct {
	span
	stamped *persistent.Stamped
	passes  []passNote // its decode steps; with drafts, as many as there may be
	verify  bool
	draft   *gpt2.Plan // of its passes that draft
	sampled span       // of the launch of another kernel that samples
}

// persistentRecorder returns what records launches of the persistent kernel, nil if nothing does. The first call makes
// it, with room for launches of as many decode steps as now have one.
func (r *Runner) persistentRecorder() (*persistentRecorder, error) {
	rec, ok := r.recorder.(*stampRecorder)
	if !ok {
		return nil, nil
	}
	if rec.persistent != nil {
		return rec.persistent, rec.persistent.failed
	}
	plan, k := r.Plan(r.decodePass()), r.persistent.kernel
	// the last one samples
	p := &persistentRecorder{rec: rec, steps: append(slices.Clip(k.Planned), len(plan.Steps)-1),
		blocks: k.Blocks()}
	for _, i := range p.steps {
		p.names = append(p.names, "decode_kernel ("+plan.Steps[i].Op().String()+")")
	}
	rec.persistent = p
	if p.stamps, p.failed = k.NewStamps(); p.failed == nil {
		rec.host.to.Header(func(h *traces.Header) {
			h.NotRecorded = append(h.NotRecorded, "when a launch of decode steps in one kernel began: its first step begins "+
				"when the first SM has weights")
		})
	}
	return p, p.failed
}

// freeStamps frees where the persistent kernel stamps.
func (r *Runner) freeStamps() error {
	if rec, ok := r.recorder.(*stampRecorder); ok && rec.persistent != nil {
		return rec.persistent.stamps.Free()
	}
	return nil
}

// begin begins the note of a launch at a position. The launch stamps at the address that is returned, 0 if there is no
// room for its stamps or events.
func (p *persistentRecorder) begin(r *Runner, c *compiled, position int, launch persistent.Launch) (*launchNote, cuda.Ptr) {
	host, n := &p.rec.host, launch.Tokens
	if launch.Exit > 0 {
		n *= launch.Verify // of a token's passes all but one draft
	}
	var stamped *persistent.Stamped
	var at cuda.Ptr
	if host.events+n*eventsOf(c.plan) <= maxRecorded {
		stamped, at = p.stamps.Begin(n)
	}
	if stamped == nil {
		host.dropped += int64(launch.Tokens)
		return nil, 0
	}
	if launch.Verify > 0 && p.verify == nil { // its costs are those of a row: weights are read once
		plan := *c.plan
		plan.Pass.Verify = true
		p.verify = &plan
	}
	l := &launchNote{stamped: stamped, passes: make([]passNote, n), verify: launch.Verify > 0}
	if launch.Exit > 0 {
		pass := c.plan.Pass
		pass.Exit = launch.Exit
		l.draft = r.Plan(pass)
	}
	for t := range l.passes {
		l.passes[t] = host.begin(passAt{c, position + t, c.plan.Pass.Tokens})
	}
	p.launches = append(p.launches, l)
	l.begin = host.to.Now()
	return l, at
}

// sample launches the kernel that samples the token of a launch of one step.
func (p *persistentRecorder) sample(l *launchNote, launch func() error) error {
	return p.stamps.SampleApart(l.stamped, func() error {
		l.sampled.begin = p.rec.host.to.Now()
		err := launch()
		l.sampled.end = p.rec.host.to.Now()
		l.span.end = l.sampled.end
		return err
	})
}

// end ends the note of a launch. One that failed is taken back.
func (p *persistentRecorder) end(l *launchNote, err error) {
	l.span.end = p.rec.host.to.Now()
	if err != nil {
		p.launches = p.launches[:len(p.launches)-1]
		p.stamps.Drop()
	}
}

// events makes the events of the launches. Ids of calls follow *next.
func (p *persistentRecorder) events(next *uint64) (events []traces.Event) {
	lane := p.rec.lane()
	last := uint64(0) // end of the step before
	for _, l := range p.launches {
		if l.verify {
			p.verified(l)
		}
		calls := p.calls(l, next)
		whole, count := l.span.end-l.span.begin, int64(len(l.passes)) // the passes of a launch share the time of its call
		for t := range l.passes {
			pass := &l.passes[t]
			pass.span = span{l.span.begin + whole*int64(t)/count, l.span.begin + whole*int64(t+1)/count}
			events = append(events, p.rec.host.passEvent(*pass))
			if t == 0 {
				events = append(events, calls...)
			}
			for i, step := range p.steps {
				if pass.plan.Pass.Exit > 0 && i >= len(p.steps)-2 {
					step += len(pass.plan.Steps) - len(p.verify.Steps)
				}
				if step >= len(pass.plan.Steps) { // it does not sample
					continue
				}
				row := &l.stamped.Rows[t*len(p.steps)+i]
				if row.End == 0 {
					if pass.plan.Pass.Exit == 0 {
						p.rec.lost++
					}
					continue
				}
				begin := min(max(row.Begin, last), row.End)
				last = max(last, row.End)
				start, stop := p.rec.ofDevice(begin), p.rec.ofDevice(row.End)
				e := traces.Plain(traces.KindKernel, lane, p.names[i], start, max(0, stop-start))
				e.Plan, e.Step, e.Parent, e.Correlation = pass.recorded, int32(step), pass.id, calls[len(calls)-1].Correlation
				e.Grid = [3]int32{int32(p.blocks), 1, 1}
				if apart := l.stamped.Apart; apart != nil && i == len(p.steps)-1 {
					e.Name, e.Correlation, e.Grid[0] = apart.Name, calls[0].Correlation, int32(apart.Blocks)
				} else {
					row.Inside.Fit(e.Duration)
					e.Inside = &row.Inside
				}
				events = append(events, e)
			}
		}
	}
	return events
}

// verified leaves the passes that a launch had, of those that it might have had.
func (p *persistentRecorder) verified(l *launchNote) {
	position, drafted := l.passes[0].position, 0
	for t := range l.passes {
		row := &l.stamped.Rows[(t+1)*len(p.steps)-1]
		if row.Rows == 0 {
			l.passes = l.passes[:max(1, t)] // a launch that failed may have none
			return
		}
		pass := &l.passes[t]
		pass.position = position
		switch {
		case row.Made == 0:
			pass.plan, pass.position, drafted = l.draft, position+drafted, drafted+1
		case row.Rows > 1:
			pass.plan = p.verify
		}
		if row.Made > 0 {
			position, drafted = position+row.Made, 0
		}
		pass.recorded = p.rec.host.recorded.Index(pass.plan, pass.position, 1)
	}
}

// calls makes the events of the calls of a launch: first that which samples, if there is one, then the persistent
// kernel's.
func (p *persistentRecorder) calls(l *launchNote, next *uint64) (events []traces.Event) {
	host, pass := &p.rec.host, &l.passes[0]
	call := func(name string, s span) traces.Event {
		e := traces.Plain(traces.KindRuntime, traces.API(host.lane.Process, host.lane.ID), name, s.begin, s.end-s.begin)
		e.Plan, e.Parent, e.Correlation = pass.recorded, pass.id, *next
		*next++
		return e
	}
	first := call("cudaLaunchCooperativeKernel", l.span)
	if l.stamped.Apart != nil {
		first.Duration = l.sampled.begin - first.Time
		events = append(events, call("cudaLaunchKernel", l.sampled))
	}
	return append(events, first)
}

package cpu

import (
	"fmt"
	"os"
	"runtime"
	"time"

	"gpt2scope/gpt2"
	"gpt2scope/record"
	"gpt2scope/traces"
)

// recording is what a runner notes of its passes: while they run only numbers, from which events are made when
// recording stops.
type recording struct {
	profile *record.Recorder
	plans   *gpt2.RecordedPlans
	stamps  mem[int64] // (kernel steps, workers, 2) of the pass under way
	passes  []passNote
	noted   []int64 // stamps of all passes, one after another
	events  int     // that the notes will become
	dropped int64   // passes for which there was no room
	used    int64   // ns of processor time that the process used in passes
	from    int64   // the same at the beginning of the pass under way
	lane    traces.Lane
}

// passNote is one pass. Times are those of stamps.
type passNote struct {
	c          *compiled
	plan       int32 // index of the trace's plans
	position   int
	at         int // in recording.noted, -1 if the pass did not run to its end
	begin, end int64
	sample     int64 // when the kernels were done: a pass that samples does so from then to its end
}

// maxRecorded bounds the events of a recording: about half a GiB of memory.
const maxRecorded = 2_000_000

// StartRecording notes each step of each worker from now on: [gpt2.Recordable].
func (r *runner) StartRecording(p *record.Recorder) error {
	if r.recording != nil {
		return fmt.Errorf("the session is being recorded already")
	}
	runtime.LockOSThread()
	r.recording = &recording{profile: p, plans: gpt2.NewRecordedPlans(p, r.backend.Sizes(r.model)), lane: p.Thread()}
	p.Name(r.recording.lane, "main, worker 0")
	threads := r.backend.pool.threads
	for w := 1; w < threads; w++ {
		p.Name(r.recording.worker(w), fmt.Sprintf("worker %d", w))
	}
	p.Header(func(h *traces.Header) {
		h.Recorder, h.Clock = traces.RecorderHost, traces.Clock{Domain: "monotonic", Uncertainty: 0}
		h.DType = r.backend.Sizes(r.model).Multiply
		h.NotRecorded = append(h.NotRecorded,
			"waits of threads for each other: they are the time from the end of one step to the beginning of the next")
	})
	return nil
}

// worker returns the lane of a thread of the pool. Its id is its number.
func (rec *recording) worker(w int) traces.Lane {
	if w == 0 {
		return rec.lane
	}
	return traces.Thread(int64(os.Getpid()), int64(w))
}

// stampsOf returns room for the stamps of a program, none if nothing is recorded.
func (rec *recording) stampsOf(p *program) (mem[int64], error) {
	if rec == nil {
		return mem[int64]{}, nil
	}
	n := p.n * p.pool.threads * 2
	if rec.stamps.n < n {
		rec.stamps.free()
		rec.stamps = mem[int64]{}
		var err error
		if rec.stamps, err = alloc[int64](n); err != nil {
			return mem[int64]{}, fmt.Errorf("recording: %w", err)
		}
	}
	return rec.stamps.part(0, n), nil
}

// begin notes a pass.
func (rec *recording) begin(r *runner, c *compiled) *passNote {
	if rec == nil {
		return nil
	}
	n := len(c.plan.Steps)*r.backend.pool.threads + 2
	if rec.events+n > maxRecorded {
		rec.dropped++
		return nil
	}
	rec.events += n
	plan := rec.plans.Index(c.plan, r.Position(), c.plan.Pass.Tokens)
	rec.from = int64(processTime())
	rec.passes = append(rec.passes, passNote{c: c, plan: plan, position: r.Position(), at: -1, begin: now()})
	return &rec.passes[len(rec.passes)-1]
}

// ran notes that the kernels of a pass are done.
func (n *passNote) ran(rec *recording) {
	if n == nil {
		return
	}
	n.at = len(rec.noted)
	rec.noted = append(rec.noted, rec.stamps.slice()[:n.c.program.n*n.c.program.pool.threads*2]...)
	n.sample = now()
}

// done notes the end of a pass.
func (n *passNote) done(rec *recording) {
	if n == nil {
		return
	}
	n.end = now()
	rec.used += int64(processTime()) - rec.from
}

// StopRecording makes the events: [gpt2.Recordable].
func (r *runner) StopRecording() error {
	rec := r.recording
	if rec == nil {
		return nil
	}
	r.recording = nil
	runtime.UnlockOSThread()
	rec.stamps.free()
	rec.profile.Header(func(h *traces.Header) { h.Drop("passes, after 2,000,000 events", rec.dropped) })
	rec.noteCores(r.backend.pool.threads)
	first := rec.profile.IDs(rec.events)
	events := make([]traces.Event, 0, rec.events)
	add := func(kind traces.Kind, lane traces.Lane, name string, begin, end int64, n *passNote, tag int,
		parent uint64) uint64 {
		e := traces.Plain(kind, lane, name, rec.profile.OfMonotonic(begin), end-begin)
		e.ID, e.Parent, e.Plan, e.Step, e.Domain = first+uint64(len(events)), parent, n.plan, int32(tag), record.Domain
		if kind == traces.KindPass {
			e.Value = float64(n.position)
		}
		events = append(events, e)
		return e.ID
	}
	for i := range rec.passes {
		n := &rec.passes[i]
		if n.at < 0 || n.end == 0 { // cancelled, or failed
			continue
		}
		pass := add(traces.KindPass, rec.lane, n.c.plan.PassName(n.position), n.begin, n.end, n, -1, 0)
		threads := n.c.program.pool.threads
		for s, step := range n.c.plan.Steps {
			from, to := n.c.from[s], n.c.from[s+1]
			for w := 0; w < threads && from < to; w++ {
				begin, end := rec.noted[n.at+(from*threads+w)*2], rec.noted[n.at+((to-1)*threads+w)*2+1]
				add(traces.KindStep, rec.worker(w), step.Name(), begin, end, n, s, pass)
			}
		}
		if n.c.samples {
			last := n.c.plan.Steps[len(n.c.plan.Steps)-1]
			add(traces.KindStep, rec.lane, last.Name(), n.sample, n.end, n, last.Tag, pass)
		}
	}
	rec.profile.Add(events...)
	return nil
}

// leastShare is the least CPU share of the threads with which times are trusted. A thread that waits for the others
// keeps its core, so waiting does not lower the share.
const leastShare = 0.75

// noteCores reports a low CPU share: a step then seems slow only because its thread had no core.
func (rec *recording) noteCores(threads int) {
	var wall int64
	for i := range rec.passes {
		if n := &rec.passes[i]; n.end > 0 {
			wall += n.end - n.begin
		}
	}
	share := float64(rec.used) / float64(max(1, wall*int64(threads)))
	// The clock of processor time is too coarse for shorter runs.
	if wall < int64(50*time.Millisecond) || rec.used == 0 || share >= leastShare {
		return
	}
	rec.profile.Header(func(h *traces.Header) {
		h.Incomplete = append(h.Incomplete,
			fmt.Sprintf("in passes the threads had a CPU share of %.0f %% on %d cores: other programs ran there, and times are "+
				"unreliable; run it again on a quiet machine, or with fewer --threads", 100*share, threads))
	})
}

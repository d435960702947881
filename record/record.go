// Package record records the passes of a session as a trace.
//
// A [Recorder] holds what all sources share: the plans of the passes, with the cost
// of each step, a clock, and the events. A runner that can record itself is a
// [Source]: on the CPU it notes each step of each thread; on a GPU its kernels stamp
// their start and end, or CUPTI records them. While it runs, a source only keeps
// numbers; events are made of them when recording stops.
//
//	rec := record.New("infer", "v1.2.3")
//	err := source.StartRecording(rec)
//	... passes ...
//	err = source.StopRecording()
//	trace := rec.Trace()
//
// Times are nanoseconds after the recorder was made, by CLOCK_MONOTONIC.
package record

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"gpt2scope/ceilings"
	"gpt2scope/gpt2"
	"gpt2scope/nvtx/annotate"
	"gpt2scope/traces"
)

// Source is a runner that can record its passes. Its methods are called between
// passes, by the goroutine that has the session.
type Source interface {
	// StartRecording notes all later passes for the recorder.
	StartRecording(r *Recorder) error

	// StopRecording gives the recorder the events of the passes since. Without
	// StartRecording before it does nothing.
	StopRecording() error
}

// Recorder collects a trace. Its methods may be called by several goroutines.
type Recorder struct {
	mu     sync.Mutex
	header traces.Header
	base   time.Time
	mono   int64 // CLOCK_MONOTONIC at base
	plans  map[planKey]int32
	events []traces.Event
	nextID uint64
}

// planKey tells plans apart that are of the same phase.
type planKey struct {
	plan *gpt2.Plan
	name string
}

// New makes a recorder. The trace's base is now.
func New(tool, release string) *Recorder {
	r := &Recorder{plans: map[planKey]int32{}}
	r.mono, r.base = monotonic(), time.Now()
	r.header = traces.Header{
		Version: traces.Version, Tool: tool, Release: release, Base: r.base.UnixNano(), Process: int64(os.Getpid()),
		Command: command(), Clock: traces.Clock{Domain: "monotonic"},
	}
	return r
}

// command returns the program's name and arguments. Where the program lies is nobody's
// business but its user's.
func command() []string {
	args := slices.Clone(os.Args)
	args[0] = filepath.Base(args[0])
	return args
}

// Now returns the time as the trace has it.
func (r *Recorder) Now() int64 { return monotonic() - r.mono }

// OfMonotonic returns a time of CLOCK_MONOTONIC as the trace has it.
func (r *Recorder) OfMonotonic(ns int64) int64 { return ns - r.mono }

// Thread returns the lane of the calling OS thread. The goroutine should be locked
// to it.
func (r *Recorder) Thread() traces.Lane {
	return traces.Thread(int64(os.Getpid()), int64(unix.Gettid()))
}

// IDs returns the first of n ids of ranges, unique in the trace.
func (r *Recorder) IDs(n int) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	first := r.nextID + 1
	r.nextID += uint64(n)
	return first
}

// Header changes the trace's header.
func (r *Recorder) Header(change func(h *traces.Header)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&r.header)
}

// Ceilings notes what a device was measured to do, as far as floors need it. device is
// the GPU's index, -1 for the CPU.
func (r *Recorder) Ceilings(device int, s ceilings.Set) {
	r.Header(func(h *traces.Header) {
		for _, v := range s.Values {
			if v.Unit == ceilings.GBs || v.Unit == ceilings.TFLOPs {
				h.Ceilings = append(h.Ceilings, traces.Ceiling{Device: device, Name: v.Name, Unit: v.Unit, Value: v.Value, Size: v.Size})
			}
		}
	})
}

// Name gives a lane a name.
func (r *Recorder) Name(l traces.Lane, name string) {
	r.Header(func(h *traces.Header) {
		if !slices.ContainsFunc(h.Lanes, func(n traces.LaneName) bool { return n.Lane == l }) {
			h.Lanes = append(h.Lanes, traces.LaneName{Lane: l, Name: name})
		}
	})
}

// Add takes events, in any order.
func (r *Recorder) Add(events ...traces.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, events...)
}

// Plan registers the plan of passes, and returns what events call Phase. Costs are
// those of plan as it was asked for; executed is how many tokens per sequence run,
// where the prompt is padded.
func (r *Recorder) Plan(plan *gpt2.Plan, position, executed int, sizes gpt2.Sizes) int32 {
	key := planKey{plan, annotate.PassName(plan, position)}
	r.mu.Lock()
	defer r.mu.Unlock()
	if i, ok := r.plans[key]; ok {
		return i
	}
	p := traces.Plan{Phase: key.name, Batch: plan.Phase.Batch, Tokens: plan.Phase.Tokens}
	if executed != plan.Phase.Tokens {
		p.Padded = executed
	}
	for _, s := range plan.Steps {
		at, next := s.Cost(0), s.Cost(1)
		p.Steps = append(p.Steps, traces.Step{
			Tag: s.Tag, Name: s.Name(), Op: s.Op().String(), Layer: s.Layer(), Slot: s.Slot(),
			FLOPs: at.FLOPs, Bytes: at.Bytes(sizes), FLOPsPerPast: next.FLOPs - at.FLOPs, BytesPerPast: next.Bytes(sizes) - at.Bytes(sizes),
		})
	}
	i := int32(len(r.header.Plans))
	r.header.Plans = append(r.header.Plans, p)
	r.plans[key] = i
	return i
}

// Range notes a range of the calling thread, until end is called. The goroutine is
// locked to its thread until then.
func (r *Recorder) Range(name string) (end func()) {
	runtime.LockOSThread()
	e := traces.Plain(traces.KindRange, r.Thread(), name, r.Now(), 0)
	e.ID, e.Domain = r.IDs(1), annotate.DomainName
	return func() {
		e.Duration = r.Now() - e.Time
		r.Add(e)
		runtime.UnlockOSThread()
	}
}

// Trace returns the trace of what was added until now. Its events are in order and
// attributed.
func (r *Recorder) Trace() *traces.Trace {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.header
	h.Events = int64(len(r.events))
	return traces.NewTrace(&h, slices.Clone(r.events))
}

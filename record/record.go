// Package record collects what is recorded of a run, as a trace.
//
// A [Recorder] holds what all sources of events share: the plans of the passes, with the cost of each step, a clock,
// and the events. The sources are the runners of sessions (gpt2.Recordable): the CPU's notes each step of each thread;
// on a GPU kernels stamp their start and end, or CUPTI records them. During a run a source only keeps numbers; it makes
// events of them when recording stops.
//
//	rec := record.New("gpt2scope", "v1.2.3")
//	err := session.Record(rec)
//	... passes ...
//	err = session.StopRecording()
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
	"gpt2scope/traces"
)

// Recorder collects a trace. Its methods may be called by several goroutines.
type Recorder struct {
	mu     sync.Mutex
	header traces.Header
	base   time.Time
	mono   int64 // CLOCK_MONOTONIC at base
	events []traces.Event
	nextID uint64
}

// Domain is the domain of this program's ranges, in traces and in NVTX.
const Domain = "gpt2scope"

// New makes a recorder. The trace's base is now.
func New(tool, release string) *Recorder {
	r := &Recorder{}
	r.mono, r.base = monotonic(), time.Now()
	r.header = traces.Header{
		Version: traces.Version, Tool: tool, Release: release, Base: r.base.UnixNano(), Process: int64(os.Getpid()),
		Command: CommandLine(), Clock: traces.Clock{Domain: "monotonic"},
	}
	return r
}

// CommandLine returns the program's name and arguments, without the folder it lies in, which concerns only its user.
func CommandLine() []string {
	args := slices.Clone(os.Args)
	args[0] = filepath.Base(args[0])
	return args
}

// Now returns the time in ns after the trace's base.
func (r *Recorder) Now() int64 { return monotonic() - r.mono }

// OfMonotonic converts a time of CLOCK_MONOTONIC, in ns, to ns after the trace's base.
func (r *Recorder) OfMonotonic(ns int64) int64 { return ns - r.mono }

// Thread returns the lane of the calling OS thread. The goroutine should be locked to it.
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

// Ceilings notes what a device was measured to do, as far as floors need it, in place of
// what was noted of it before. device is the GPU's index, -1 for the CPU.
func (r *Recorder) Ceilings(device int, s ceilings.Set) {
	r.Header(func(h *traces.Header) { SetCeilings(h, device, s) })
}

// SetCeilings is [Recorder.Ceilings] for the header of a recording that exists.
func SetCeilings(h *traces.Header, device int, s ceilings.Set) {
	h.Ceilings = slices.DeleteFunc(slices.Clone(h.Ceilings), func(c traces.Ceiling) bool { return c.Device == device })
	for _, v := range s.Values {
		if v.Unit == ceilings.GBs && (v.Name == ceilings.Read || v.Name == ceilings.Copy) || v.Unit == ceilings.TFLOPs {
			h.Ceilings = append(h.Ceilings, traces.Ceiling{Device: device, Name: v.Name, Unit: v.Unit, Value: v.Value,
				Size: v.Size})
		}
	}
}

// Name gives a lane a name.
func (r *Recorder) Name(l traces.Lane, name string) {
	r.Header(func(h *traces.Header) {
		if !slices.ContainsFunc(h.Lanes, func(n traces.LaneName) bool { return n.Lane == l }) {
			h.Lanes = append(h.Lanes, traces.LaneName{Lane: l, Name: name})
		}
	})
}

// Add adds events, in any order.
func (r *Recorder) Add(events ...traces.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, events...)
}

// Plan registers a plan and returns its index, by which events refer to it. A plan that
// equals a registered one gets that one's index.
func (r *Recorder) Plan(p traces.Plan) int32 {
	r.mu.Lock()
	defer r.mu.Unlock()
	same := func(q traces.Plan) bool {
		return q.Phase == p.Phase && q.Batch == p.Batch && q.Tokens == p.Tokens && q.Past == p.Past && q.Padded == p.Padded &&
			slices.Equal(q.Steps, p.Steps)
	}
	i := slices.IndexFunc(r.header.Plans, same)
	if i < 0 {
		i = len(r.header.Plans)
		r.header.Plans = append(r.header.Plans, p)
	}
	return int32(i)
}

// WarmUp notes a range of the calling thread, until end is called, whose passes are no part of the run: tables leave
// them out. The goroutine is locked to its thread until then.
func (r *Recorder) WarmUp() (end func()) {
	runtime.LockOSThread()
	e := traces.Plain(traces.KindRange, r.Thread(), "warm-up", r.Now(), 0)
	e.ID, e.Domain, e.WarmUp = r.IDs(1), Domain, true
	return func() {
		e.Duration = r.Now() - e.Time
		r.Add(e)
		runtime.UnlockOSThread()
	}
}

// Trace returns the trace of what was added until now. Its events are in order and attributed.
func (r *Recorder) Trace() *traces.Trace {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.header
	h.Events = int64(len(r.events))
	return traces.NewTrace(&h, slices.Clone(r.events))
}

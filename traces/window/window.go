// Package window computes the part of a trace that counts on one device: its work, the passes after the warm-up, which
// call launched which work, and which work owns each nanosecond.
package window

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sort"

	"gpt2scope/internal/humanize"
	"gpt2scope/traces"
)

// Interval is the time from From to To, in ns.
type Interval struct{ From, To int64 }

// Length returns how long the interval is.
func (x Interval) Length() int64 { return x.To - x.From }

// Has reports whether an event, also one of no duration, is at least partly in the interval.
func (x Interval) Has(e *traces.Event) bool {
	return (e.End() > x.From || e.Time >= x.From) && e.Time < x.To
}

// Union sorts intervals in place and joins those that touch.
func Union(list []Interval) []Interval {
	slices.SortFunc(list, func(a, b Interval) int {
		return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To))
	})
	out := list[:0]
	for _, x := range list {
		out = Join(out, x)
	}
	return out
}

// Join adds an interval to a union, none of whose intervals begins later.
func Join(u []Interval, x Interval) []Interval {
	if n := len(u); n > 0 && x.From <= u[n-1].To {
		u[n-1].To = max(u[n-1].To, x.To)
		return u
	}
	return append(u, x)
}

// Covered returns how many ns of x a union covers.
func Covered(u []Interval, x Interval) int64 {
	i := sort.Search(len(u), func(i int) bool { return u[i].To > x.From })
	sum := int64(0)
	for ; i < len(u) && u[i].From < x.To; i++ {
		sum += max(0, min(u[i].To, x.To)-max(u[i].From, x.From))
	}
	return sum
}

// Length returns the length of the union of intervals.
func Length(list []Interval) int64 {
	sum := int64(0)
	for _, x := range Union(list) {
		sum += x.Length()
	}
	return sum
}

// Window is the part of a trace that counts on one device. It is computed once; tables,
// advice, comparisons and pages share it.
type Window struct {
	*traces.Trace
	Device int32           // whose work it is; -1 for the CPU
	Work   []*traces.Event // in order: kernels, copies, sets, graphs; on the CPU the steps of threads
	Passes []Pass          // without warm-up, in order
	WarmUp []*traces.Event // the passes of the warm-up

	// Span is from the start of the first of Passes to the end of the last one and of its
	// work. It is empty if there are no passes.
	Span Interval

	*traces.Index
	index map[*traces.Event]int // of a pass, in Passes
	warm  map[traces.ThreadID][]Interval
	held  map[int64]*[numHeld][]Interval // of a process

	processes map[int64]bool // of [Window.Serves]; nil: of all

	afterEvent map[*traces.Event]bool // of [Window.AfterEvent]

	queued *queue  // of [Window.queue], nil before its first call
	steady *Steady // of [Window.Steady], nil before its first call
}

// Pass is one pass of the model.
type Pass struct {
	Event *traces.Event

	// Time is the pass' part of the wall time: from the end of the work of the previous pass to the end of its own
	// work. The first pass starts when its range on the host does. So idle time before the work of a pass counts for
	// that pass, as in the stage table.
	Time Interval
	Busy int64 // ns of Time in which the device works
}

// New computes the window of a device; -1 is the first GPU that worked, or the CPU if none
// did. Work is empty for a GPU without work.
func New(t *traces.Trace, device int32) *Window {
	w := &Window{Trace: t, Device: device, Index: t.Index(), index: map[*traces.Event]int{},
		warm: map[traces.ThreadID][]Interval{}, held: map[int64]*[numHeld][]Interval{},
		afterEvent: map[*traces.Event]bool{}}
	for i := range t.Events {
		if e := &t.Events[i]; e.Kind.IsGPU() {
			if w.Device < 0 {
				w.Device = e.Lane.Device
			}
			if e.Lane.Device == w.Device {
				w.Work = append(w.Work, e)
			}
		}
	}
	w.findProcesses()
	var steps []*traces.Event
	var launches []int64
	waits := map[traces.Lane]bool{} // threads that had a stream wait for an event since their last launch
	for i := range t.Events {
		e := &t.Events[i]
		switch {
		case e.Kind.IsGPU() || !w.Serves(e):
		case e.Kind.IsCall():
			launches = w.call(e, waits, launches)
		case e.Lane.Kind != traces.LaneThread:
		case e.Kind.IsRange():
			if e.LoadsData() {
				w.hold(e, HeldByLoader)
			}
			switch {
			case e.Kind == traces.KindStep:
				steps = append(steps, e)
			case e.WarmUp:
				at := t.Header.ThreadOf(e)
				w.warm[at] = Union(append(w.warm[at], Interval{e.Time, e.End()}))
			case e.Kind != traces.KindPass || e.Open:
			case w.InWarmUp(e):
				w.WarmUp = append(w.WarmUp, e)
			default:
				w.index[e] = len(w.Passes)
				w.Passes = append(w.Passes, Pass{Event: e})
			}
		}
	}
	if w.Device < 0 {
		w.Work = steps
	}
	w.holdFirstLaunches(launches)
	w.divide()
	if early := w.leadingWarmUp(); len(early) > 0 {
		var kept []Pass
		for _, p := range w.Passes {
			if delete(w.index, p.Event); early[p.Event] {
				w.WarmUp = append(w.WarmUp, p.Event)
				continue
			}
			w.index[p.Event] = len(kept)
			kept = append(kept, Pass{Event: p.Event})
		}
		w.Passes = kept
		w.divide()
	}
	return w
}

// findProcesses finds the processes whose work the device did, if it is known of all of the work.
func (w *Window) findProcesses() {
	found := map[int64]bool{}
	for _, e := range w.Work {
		found[w.Header.ProcessOf(cmp.Or(w.CallOf(e), e))] = true
	}
	if len(found) > 0 && !found[0] {
		w.processes = found
	}
}

// Serves reports whether an event of the host is of a process that has work on the device: of several GPUs, each with
// its own process, the passes and waits of the others say nothing of this one. On the CPU all do.
func (w *Window) Serves(e *traces.Event) bool {
	return w.processes == nil || w.processes[w.Header.ProcessOf(e)]
}

// InWarmUp reports whether an event of the host begins within a warm-up of its thread.
func (w *Window) InWarmUp(e *traces.Event) bool {
	return slices.ContainsFunc(w.warm[w.Header.ThreadOf(e)], func(x Interval) bool { return x.From <= e.Time && e.Time < x.To })
}

// divide finds the span of the passes, and gives each its part of the wall time.
func (w *Window) divide() {
	if len(w.Passes) == 0 {
		return
	}
	w.Span = Interval{w.Passes[0].Event.Time, w.Passes[0].Event.Time}
	ends := make([]int64, len(w.Passes))
	for i, p := range w.Passes {
		w.Span.To = max(w.Span.To, p.Event.End())
		ends[i] = p.Event.Time
		if w.Device < 0 {
			ends[i] = p.Event.End()
		}
	}
	var busy []Interval
	for _, e := range w.Work {
		busy = Join(busy, Interval{e.Time, e.End()})
		if e.Plan >= 0 && e.Time >= w.Span.From {
			w.Span.To = max(w.Span.To, e.End())
		}
		if i, ok := w.index[w.PassOf(e)]; ok {
			ends[i] = max(ends[i], e.End())
		}
	}
	at := w.Span.From
	for i := range w.Passes {
		p := &w.Passes[i]
		p.Time = Interval{at, max(at, ends[i])}
		p.Busy = Covered(busy, p.Time)
		at = p.Time.To
	}
}

// Around yields the ranges around an event, the innermost first.
func (w *Window) Around(e *traces.Event) iter.Seq[*traces.Event] {
	return func(yield func(*traces.Event) bool) {
		for range 1000 { // damage could make a ring of parents
			if e = w.Parent(e); e == nil || !yield(e) {
				return
			}
		}
	}
}

// Operator returns the outermost operator of a framework around an event, or the event itself; nil for none.
func (w *Window) Operator(e *traces.Event) (found *traces.Event) {
	if e.Kind == traces.KindOp {
		found = e
	}
	for around := range w.Around(e) {
		if around.Kind == traces.KindOp {
			found = around
		}
	}
	return found
}

// PassOf returns the pass that an event is or belongs to, nil if none is recorded.
func (w *Window) PassOf(e *traces.Event) *traces.Event {
	for range 1000 { // damage could make a ring of parents
		if e == nil || e.Kind == traces.KindPass {
			return e
		}
		e = w.Parent(e)
	}
	return nil
}

// PassIndex returns the index of a pass in Passes, and whether it is one of them.
func (w *Window) PassIndex(pass *traces.Event) (int, bool) {
	i, ok := w.index[pass]
	return i, ok
}

// PassName names the kind of a pass.
func (w *Window) PassName(pass *traces.Event) string {
	return cmp.Or(w.Header.PhaseOf(pass), pass.Name)
}

// PassDuring returns the pass whose Time contains an interval, nil for none.
func (w *Window) PassDuring(x Interval) *traces.Event {
	i := sort.Search(len(w.Passes), func(i int) bool { return w.Passes[i].Time.To >= x.To })
	if i == len(w.Passes) || x.From < w.Passes[i].Time.From {
		return nil
	}
	return w.Passes[i].Event
}

// GPUNotes are a line for each GPU that worked, if several did: tables, advice and comparisons are of one.
func (w *Window) GPUNotes() (lines []string) {
	type gpu struct {
		kernels int
		busy    []Interval
	}
	gpus := map[int32]*gpu{}
	if !slices.ContainsFunc(w.Events, func(e traces.Event) bool { return e.Kind.IsGPU() && e.Lane.Device != w.Device }) {
		return nil
	}
	for i := range w.Events {
		e := &w.Events[i]
		if !e.Kind.IsGPU() {
			continue
		}
		g := gpus[e.Lane.Device]
		if g == nil {
			g = new(gpu)
			gpus[e.Lane.Device] = g
		}
		if e.Kind == traces.KindKernel {
			g.kernels++
		}
		g.busy = Join(g.busy, Interval{e.Time, e.End()})
	}
	for _, id := range slices.Sorted(maps.Keys(gpus)) {
		g := gpus[id]
		text := fmt.Sprintf("GPU %d: %s, busy %.3f of %.3f ms", id, humanize.Count(g.kernels, "kernel", "kernels"),
			float64(Length(g.busy))/1e6, float64(g.busy[len(g.busy)-1].To-g.busy[0].From)/1e6)
		if id == w.Device {
			text += "; it alone is shown here, --gpu shows another"
		}
		lines = append(lines, text)
	}
	return lines
}

// Whole returns the time from the first to the last work.
func (w *Window) Whole() Interval {
	if len(w.Work) == 0 {
		return Interval{}
	}
	x := Interval{w.Work[0].Time, w.Work[0].End()}
	for _, e := range w.Work {
		x.To = max(x.To, e.End())
	}
	return x
}

// Sweep visits the work in the order in which it began and gives each ns of x an owner: an event owns the time in which
// it runs and no earlier event is still running. before is the event visited previously, nil at first; gap is the idle
// time just before own. Work outside x is not visited. Sweep returns the idle time after the last event.
func (w *Window) Sweep(x Interval, visit func(e, before *traces.Event, gap, own Interval)) (rest Interval) {
	now, before := x.From, (*traces.Event)(nil)
	for _, e := range w.Work {
		if !x.Has(e) {
			continue
		}
		begin := max(now, e.Time)
		end := max(begin, min(e.End(), x.To))
		visit(e, before, Interval{now, begin}, Interval{begin, end})
		now, before = end, e
	}
	return Interval{now, max(now, x.To)}
}

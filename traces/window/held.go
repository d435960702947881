package window

import (
	"sort"
	"strings"

	"gpt2scope/internal/stats"
	"gpt2scope/traces"
)

// Held is what kept the host from launching work. Where two hold at once, the first of them counts.
type Held uint8

const (
	HeldByLoading Held = iota // a call loads code, or launches a kernel for the first time, which does
	HeldByAlloc               // a call allocates or frees memory
	HeldByCopy                // a call waits for its own copy
	HeldBySync                // a call waits for a stream, an event or the device
	HeldByLoader              // the program waits for its next input
	numHeld
)

// A first launch that is so slow loads its kernel.
const (
	slowLaunch   = 10  // times the median of the launches,
	slowLaunchNS = 5e4 // and at least so long: loading a module takes hundreds of us
)

// hold notes that an event held the host of its process.
func (w *Window) hold(e *traces.Event, by Held) {
	if e.Duration <= 0 || e.Open {
		return
	}
	lists := w.held[w.Header.ProcessOf(e)]
	if lists == nil {
		lists = new([numHeld][]Interval)
		w.held[w.Header.ProcessOf(e)] = lists
	}
	x := Interval{e.Time, e.End()}
	if n := len(lists[by]); n > 0 && lists[by][n-1].To >= x.From && lists[by][n-1].From <= x.From {
		lists[by][n-1].To = max(lists[by][n-1].To, x.To)
		return
	}
	lists[by] = append(lists[by], x)
}

// call notes what an API call tells of its thread. waits are the threads that had a stream wait for an event since their
// last launch. The durations of launches are added to those given.
func (w *Window) call(e *traces.Event, waits map[traces.Lane]bool, launches []int64) []int64 {
	switch call := e.Call(); {
	case call == traces.CallStreamWait:
		waits[e.Lane] = true
	case call == traces.CallLaunch || call == traces.CallGraphLaunch || strings.Contains(e.Name, "Memcpy"):
		if waits[e.Lane] {
			w.afterEvent[e], waits[e.Lane] = true, false
		}
		if call == traces.CallLaunch {
			launches = append(launches, e.Duration)
		}
	case call == traces.CallLoad:
		w.hold(e, HeldByLoading)
	case call == traces.CallAlloc:
		w.hold(e, HeldByAlloc)
	}
	switch e.Wait {
	case traces.WaitSync:
		w.hold(e, HeldBySync)
	case traces.WaitCopy:
		w.hold(e, HeldByCopy)
	}
	return launches
}

// holdFirstLaunches notes the first launches of kernels that loaded them, by the durations of all launches.
func (w *Window) holdFirstLaunches(durations []int64) {
	if len(durations) > 0 {
		slow := max(slowLaunchNS, slowLaunch*stats.MedianOf(durations))
		launched := map[string]bool{}
		for _, e := range w.Work {
			if launched[e.Name] || e.Kind != traces.KindKernel {
				continue
			}
			launched[e.Name] = true
			if call := w.CallOf(e); call != nil && call.Call() == traces.CallLaunch && call.Duration >= slow {
				w.hold(call, HeldByLoading)
			}
		}
	}
	for _, lists := range w.held {
		for by := range lists {
			lists[by] = Union(lists[by])
		}
	}
}

// HeldIn divides a time among what held the host of a process then; left are the times in which nothing of that did.
func (w *Window) HeldIn(process int64, x Interval) (ns [numHeld]int64, left []Interval) {
	left = []Interval{x}
	for by, list := range w.HeldBy(process) {
		var uncovered []Interval
		for _, x := range left {
			i := sort.Search(len(list), func(i int) bool { return list[i].To > x.From })
			for ; i < len(list) && list[i].From < x.To; i++ {
				if list[i].From > x.From {
					uncovered = append(uncovered, Interval{x.From, list[i].From})
				}
				to := min(list[i].To, x.To)
				ns[by] += to - max(list[i].From, x.From)
				x.From = to
			}
			if x.From < x.To {
				uncovered = append(uncovered, x)
			}
		}
		left = uncovered
	}
	return ns, left
}

// HeldBy returns the times in which something held the host of a process: for each [Held] a union.
func (w *Window) HeldBy(process int64) [numHeld][]Interval {
	if lists := w.held[process]; lists != nil {
		return *lists
	}
	return [numHeld][]Interval{}
}

// Waiting returns the times in which a process waited for the GPU in a call.
func (w *Window) Waiting() (list []Interval) {
	for _, lists := range w.held {
		list = append(append(list, lists[HeldBySync]...), lists[HeldByCopy]...)
	}
	return Union(list)
}

// AfterEvent reports whether the thread of a launch had a stream wait for an event since its launch before.
func (w *Window) AfterEvent(launch *traces.Event) bool { return w.afterEvent[launch] }

package judge

import (
	"fmt"
	"slices"
	"sort"
	"strings"

	"gpt2scope/internal/humanize"
	"gpt2scope/internal/stats"
	"gpt2scope/traces"
	"gpt2scope/traces/tables"
	"gpt2scope/traces/window"
)

func copiesRule(a *advisor) {
	copies, kernels := a.during(traces.KindMemcpy, traces.KindMemset), a.during(traces.KindKernel, traces.KindGraph)
	long, short := window.Length(copies), window.Length(kernels)
	if long <= short {
		return
	}
	rows := newTally()
	for _, p := range a.counted {
		if p.Kind == traces.KindMemcpy || p.Kind == traces.KindMemset {
			rows.add(p.Name, p.Duration, p.Duration, 1)
		}
	}
	alone := outside(copies, kernels)
	a.hint(alone, rows.rows("event"), "keep the data on the GPU, copy less, and overlap what is left with kernels on a stream of its own",
		"Copies and sets take %s ms, longer than the kernels with %s ms; %s ms of them run beside no kernel.", inMS(long), inMS(short), inMS(alone))
}

// pageableRule: the driver stages such copies through a buffer of its own while the host waits.
func pageableRule(a *advisor) {
	var list []window.Interval
	rows, n, unknown := newTally(), 0, 0
	bytes, time := int64(0), int64(0)
	for _, p := range a.counted {
		switch is, known := p.Pageable(); {
		case p.Kind != traces.KindMemcpy:
		case !known:
			unknown++
		case is:
			n++
			bytes, time = bytes+p.Bytes, time+p.Duration
			list = append(list, window.Interval{From: p.Time, To: min(p.End(), a.table.Time.To)})
			rows.add(p.Name, p.Duration, p.Duration, 1)
		}
	}
	if unknown > 0 {
		a.note("pageable: %s, whose kind of memory the source does not report", numberOf(unknown, "copy or set"))
	}
	list = window.Union(list)
	alone := outside(list, a.during(traces.KindKernel, traces.KindGraph))
	a.hint(alone, rows.rows("copy or set"), "allocate host buffers page-locked (cudaHostAlloc) and copy with cudaMemcpyAsync",
		"%s memory that is pageable, at %.1f GB/s, %s ms of it beside no kernel.", humanize.Count(n, "copy uses", "copies use"), float64(bytes)/float64(max(1, time)), inMS(alone))
}

// numberOf writes a number of things.
func numberOf(n int, thing string) string {
	switch thing {
	case "copy":
		return humanize.Count(n, thing, "copies")
	case "copy or set":
		return humanize.Count(n, thing, "copies or sets")
	}
	return humanize.Count(n, thing, thing+"s")
}

// graphs reports whether the work came by graphs.
func (a *advisor) graphs() bool {
	return slices.ContainsFunc(a.counted, func(p counted) bool { return p.Node != 0 || p.Kind == traces.KindGraph })
}

func hostLateRule(a *advisor) {
	ns, gaps, rows := a.idleOf(tables.IdleHost)
	try := "launch further ahead of the GPU, and take work of the host out of the pass; a CUDA graph replaces the launches of a pass by one"
	if a.graphs() {
		try = "launch the next graph before the one before has ended, and take work of the host out from between them"
	}
	a.hint(ns, rows, try, "The GPU is idle for %s ms in %s because the host has not launched the next work.", inMS(ns),
		numberOf(gaps, "gap"))
}

func launchLatencyRule(a *advisor) {
	ns, gaps, rows := a.idleOf(tables.IdleLaunch)
	inside, between := int64(0), 0
	for _, g := range a.table.Gaps {
		if g.Before == nil || g.Next == nil || a.CallOf(g.Next) == nil || a.CallOf(g.Before) != a.CallOf(g.Next) {
			continue
		}
		for _, c := range g.Causes {
			if c.Name == tables.IdleLaunch {
				inside, between = inside+c.Time, between+1
			}
		}
	}
	text := fmt.Sprintf("The GPU is idle for %s ms in %s between a launch and its start", inMS(ns),
		numberOf(gaps, "gap"))
	if between > 0 {
		text += fmt.Sprintf("; %s ms of it in %s between kernels of one graph while the call that launches it still runs", inMS(inside), numberOf(between, "gap"))
	}
	try := "queue work before the GPU runs dry; a CUDA graph has one launch in place of many"
	if a.graphs() {
		try = "launch the next graph before the one before has ended"
	}
	a.hint(ns, rows, try, "%s.", text)
}

// syncRule: one wait, at the end of a run, is no loop.
func syncRule(a *advisor) {
	names := newTally()
	calls := 0
	for i := range a.Events {
		e := &a.Events[i]
		if !e.Kind.IsCall() {
			continue
		}
		calls++
		if e.Wait != traces.WaitNone && e.Duration > 0 && a.inWindow(e) {
			name := e.Name
			if in := a.Parent(e); in != nil {
				name += " in " + in.Name
			}
			names.add(name, e.Duration, e.Duration, 1)
		}
	}
	if calls == 0 {
		a.note("sync: API calls are not recorded, so that synchronisation in the loop is not seen")
		return
	}
	sum, n, at := int64(0), 0, 0
	for _, gap := range a.idle {
		for at < len(a.Waits) && a.Waits[at].To <= gap.From {
			at++
		}
		if at < len(a.Waits) && a.Waits[at].From <= gap.From && a.Waits[at].To < gap.To {
			sum += gap.Length()
			n++
		}
	}
	if n < 2 {
		return
	}
	text := ""
	if inside, per := a.syncsInPasses(); inside > 0 {
		text = fmt.Sprintf(" %s inside passes, %.1f in each: work of the pass is launched after them.",
			humanize.Count(inside, "wait lies", "waits lie"), per)
	}
	a.hint(sum, names.rows("call"), "leave results on the GPU and read them behind the next pass; wait for an event of what is needed, not for the stream or device",
		"%d times the GPU runs dry while the host waits for it, and is idle for %s ms until the next work.%s", n, inMS(sum), text)
}

func dependencyRule(a *advisor) {
	ns, gaps, _ := a.idleOf(tables.IdleDependency)
	rows := newTally()
	early, kernels := 0, 0
	for _, g := range a.table.Gaps {
		for _, c := range g.Causes {
			if c.Name == tables.IdleDependency {
				rows.add("before "+a.where(g.Next), c.Time, c.Time, 1)
			}
		}
	}
	last := map[traces.Lane]int64{}
	for _, p := range a.counted {
		if p.Kind != traces.KindKernel {
			continue
		}
		kernels++
		if p.Time < last[p.Lane] {
			early++
		}
		last[p.Lane] = max(last[p.Lane], p.End())
	}
	try := "let the next kernel begin early (programmatic dependent launch), or fuse small steps"
	if early > 0 {
		try = "let the other kernels begin early as well (programmatic dependent launch), or fuse small steps"
	}
	a.hint(ns, rows.rows("gap"), try, "Between kernels that were queued the GPU is idle for %s ms in %s; %d of %d kernels begin before the one before them on their stream ends.", inMS(ns), numberOf(gaps, "gap"), early, kernels)
}

func smWaitsRule(a *advisor) {
	rows, gains := newTally(), map[stageKey]int64{}
	var all traces.Parts
	for _, p := range a.counted {
		if p.Inside == nil {
			continue
		}
		all.Add(p.Inside.Parts)
		ns := min(p.own, p.Inside.Inputs+p.Inside.Imbalance)
		gains[a.keyOf(p.Event)] += ns
		rows.add(a.where(p.Event), ns, ns, 1)
	}
	a.hint(a.capped(gains), rows.rows("step"),
		"exchange fewer or smaller vectors between SMs, or within clusters; give SMs equal work: 'infer trace show --by sm' and the page show which come last",
		"Inside the kernel an SM waits %s ms for what others compute, and %s ms for the last of them.", inMS(all.Inputs), inMS(all.Imbalance))
}

// kernels calls each for the kernels whose launch shape is known, and notes how many others
// there are.
func (a *advisor) kernels(each func(p counted, s tables.Shape)) {
	unknown := 0
	for _, p := range a.counted {
		if p.Kind != traces.KindKernel {
			continue
		}
		if s := tables.ShapeOf(p.Event); s.Known() {
			each(p, s)
		} else {
			unknown++
		}
	}
	if unknown > 0 {
		a.note("%s: %s without a grid in the recording", a.rule, numberOf(unknown, "kernel"))
	}
}

// stageKey is a stage of a kind of pass, "" for the work of none.
type stageKey struct{ phase, name string }

// capped sums gains of steps, each at most what the step takes above its floor.
func (a *advisor) capped(gains map[stageKey]int64) int64 {
	sum := int64(0)
	floors := map[stageKey]int64{}
	for _, r := range a.table.Rows {
		if r.Kind == tables.RowWork && r.Floor > 0 {
			floors[stageKey{r.Phase, r.Name}] = max(0, r.Exclusive-r.Floor)
		}
	}
	for k, gain := range gains {
		if most, ok := floors[k]; ok {
			gain = min(gain, most)
		}
		sum += gain
	}
	return sum
}

// keyOf names the step of an event, "" for none.
func (a *advisor) keyOf(e *traces.Event) stageKey {
	step, _ := a.Header.Step(e)
	return stageKey{a.Header.PhaseOf(e), step.Name}
}

func smallGridRule(a *advisor) {
	sms := int64(a.Header.Device(a.table.Device).SMs)
	if sms <= 0 {
		a.note("small-grid: the recording does not say how many SMs the GPU has")
		return
	}
	rows, gains := newTally(), map[stageKey]int64{}
	n, time := 0, int64(0)
	a.kernels(func(p counted, s tables.Shape) {
		if s.Blocks() >= sms {
			return
		}
		n++
		time += p.own
		gain := int64(float64(p.own) * (1 - float64(s.Blocks())/float64(sms)))
		gains[a.keyOf(p.Event)] += gain
		rows.add(fmt.Sprintf("%s: %s of %s", a.where(p.Event), traces.ShortKernel(p.Name),
			numberOf(int(s.Blocks()), "block")), gain, p.own, 1)
	})
	a.hint(a.capped(gains), rows.rows("kernel"),
		"split the work into more blocks (over rows, heads, or along the sum: split-K), or fuse the step into a kernel that fills the GPU",
		"%s fewer blocks than the GPU has SMs (%d), in %s ms.", humanize.Count(n, "kernel has", "kernels have"), sms, inMS(time))
}

// occupancyRule's bound is by Little's law: throughput grows at most with the warps in flight.
func occupancyRule(a *advisor) {
	device := a.Header.Device(a.table.Device)
	rows, gains := newTally(), map[stageKey]int64{}
	n, time, known := 0, int64(0), 0
	limits := map[string]bool{}
	a.kernels(func(p counted, s tables.Shape) {
		o, ok := tables.OccupancyOf(device, &s)
		if !ok {
			return
		}
		known++
		if o.Percent >= lowOccupancy || s.Blocks() < int64(device.SMs) || a.boundByMemory(p.Event) {
			return
		}
		n++
		time += p.own
		gain := int64(float64(p.own) * (1 - o.Percent/100))
		gains[a.keyOf(p.Event)] += gain
		for limit := range strings.SplitSeq(o.Limit, ", ") {
			limits[limit] = true
		}
		rows.add(fmt.Sprintf("%s: %s with %.0f %%, limited by %s (%d registers, %d bytes shared, %d threads)",
			a.where(p.Event), traces.ShortKernel(p.Name), o.Percent, o.Limit,
			s.Registers, int64(s.StaticShared)+int64(s.DynamicShared), s.Threads()), gain, p.own, 1)
	})
	if known == 0 {
		a.note("occupancy: the recording does not say registers, block sizes or the limits of the GPU")
		return
	}
	var tries []string
	for _, t := range []struct{ limit, try string }{{"registers", "fewer registers per thread (__launch_bounds__)"}, {"shared memory", "less shared memory per block"},
		{"blocks", "larger blocks"}, {"warps", "blocks of a size that divides the warps of an SM"}} {
		if limits[t.limit] {
			tries = append(tries, t.try)
		}
	}
	a.hint(a.capped(gains), rows.rows("kernel"),
		strings.Join(tries, ", ")+"; kernels that keep much in flight per thread, such as matrix products on tensor cores, need no more warps",
		"%s a theoretical occupancy below %d %%, in %s ms.", humanize.Count(n, "kernel has", "kernels have"), lowOccupancy, inMS(time))
}

func floorRule(a *advisor) {
	rows := newTally()
	floors, n, gain, time := 0, 0, int64(0), int64(0)
	for _, r := range a.table.Rows {
		if r.Kind != tables.RowWork || r.Floor <= 0 {
			continue
		}
		floors++
		if r.Exclusive <= farFromFloor*r.Floor {
			continue
		}
		n++
		gain += r.Exclusive - r.Floor
		time += r.Exclusive
		name := r.Phase + ", " + r.Name
		if r.Plan >= 0 && int(r.Plan) < len(a.Header.Plans) {
			name = r.Phase + ", " + foldLayers(&a.Header.Plans[r.Plan], r.Name)
		}
		rows.add(name, r.Exclusive-r.Floor, r.Exclusive, r.Calls)
	}
	if floors == 0 {
		why := "the recording does not say what steps cost"
		if slices.ContainsFunc(a.table.Rows, func(r tables.Row) bool {
			return r.Bytes > 0 &&
				r.Kind == tables.RowWork || r.FLOPs > 0
		}) {
			why = "the recording has no ceilings of this device; 'infer bench ceilings' measures them"
		}
		a.note("floor: how far stages are from their least time is not known: %s", why)
		return
	}
	a.hint(gain, rows.rows("call"), "see which limit holds (GB/s and TFLOP/s in 'infer trace show'), then tune the kernels of the stages that lose most",
		"%s more than %d times the floor: %s ms, of which the floor is %s ms.", humanize.Count(n, "stage takes", "stages take"), farFromFloor, inMS(time), inMS(time-gain))
}

// warmUpRule adds, to the first passes, the idle time within calls that load modules.
func warmUpRule(a *advisor) {
	rows := newTally()
	passes := int64(0)
	var firsts []window.Interval
	times, begins := map[string][]int64{}, map[string]window.Interval{}
	for _, l := range a.Passes {
		phase := a.PassName(l.Event)
		if times[phase] == nil {
			begins[phase] = l.Time
		}
		times[phase] = append(times[phase], l.Time.Length())
	}
	for _, p := range a.table.Passes {
		phase, list := p.Phase, times[p.Phase]
		if len(list) < 1+fewestPasses {
			continue
		}
		first, rest := list[0], slices.Sorted(slices.Values(list[1:]))
		if median := stats.Median(rest); first > longPass*median {
			passes += first - median
			firsts = append(firsts, begins[phase])
			rows.add(fmt.Sprintf("first %s of %d, median of the others %s ms", phase, len(list), inMS(median)),
				first-median, first, 0)
		}
	}
	loading := a.loading(rows)
	firsts = window.Union(firsts)
	idle, elsewhere := int64(0), int64(0)
	for _, call := range loading {
		during := a.idleIn(call)
		idle += window.Length(during)
		elsewhere += outside(during, firsts)
	}
	var parts []string
	if passes > 0 {
		parts = append(parts, fmt.Sprintf("first passes take %s ms more than the median of those after them",
			inMS(passes)))
	}
	if len(loading) > 0 {
		parts = append(parts, fmt.Sprintf("API calls that load modules or are far slower than others of their kind take %s ms, with the device idle in %s ms", inMS(window.Length(loading)), inMS(idle)))
	}
	a.hint(passes+elsewhere, rows.rows("call"),
		"run passes before recording, in a range named 'warm-up', which tables leave out",
		"Warm-up is counted in: %s.", strings.Join(parts, "; "))
}

// idleIn returns the idle time within another.
func (a *advisor) idleIn(x window.Interval) []window.Interval {
	var list []window.Interval
	i := sort.Search(len(a.idle), func(i int) bool { return a.idle[i].To > x.From })
	for ; i < len(a.idle) && a.idle[i].From < x.To; i++ {
		list = append(list, window.Interval{From: max(a.idle[i].From, x.From), To: min(a.idle[i].To, x.To)})
	}
	return list
}

// loading returns when API calls of the window loaded modules, or launched so slowly
// that they must have done so.
func (a *advisor) loading(rows *tally) []window.Interval {
	var launches []int64
	for i := range a.Events {
		if e := &a.Events[i]; e.Call() == traces.CallLaunch && a.inWindow(e) {
			launches = append(launches, e.Duration)
		}
	}
	slices.Sort(launches)
	slow := int64(slowLaunchNS)
	if n := len(launches); n > 0 {
		slow = max(slow, slowLaunch*stats.Median(launches))
	}
	var list []window.Interval
	for i := range a.Events {
		e := &a.Events[i]
		if !a.inWindow(e) {
			continue
		}
		if call := e.Call(); call == traces.CallLoad || call == traces.CallLaunch && e.Duration >= slow {
			list = append(list, window.Interval{From: e.Time, To: min(e.End(), a.table.Time.To)})
			rows.add(e.Name, e.Duration, e.Duration, 1)
		}
	}
	return window.Union(list)
}

package traces

import (
	"fmt"
	"slices"
	"sort"
	"strings"
)

// Thresholds of the rules.
const (
	lowOccupancy = 50  // percent of an SM's warps
	farFromFloor = 2   // times the floor
	longPass     = 2   // times the median of the passes after it
	slowLaunch   = 10  // times the median of the launches,
	slowLaunchNS = 5e4 // and at least so long: loading a module takes hundreds of us
)

// copiesRule tells of copies and sets that take longer than the kernels. Bound: the
// time in which they run beside no kernel.
func copiesRule(a *advisor) {
	copies, kernels := a.during(KindMemcpy, KindMemset), a.during(KindKernel, KindGraph)
	long, short := length(copies), length(kernels)
	if long <= short {
		return
	}
	rows := newTally()
	for _, p := range a.pieces {
		if p.Kind == KindMemcpy || p.Kind == KindMemset {
			rows.add(p.Name, p.Duration, p.Duration, 1)
		}
	}
	alone := outside(copies, kernels)
	a.hint(alone, rows.rows("piece"), "keep the data on the GPU, copy less, and overlap what is left with kernels on a stream of its own",
		"Copies and sets take %s ms, longer than the kernels with %s ms; %s ms of them run beside no kernel.", inMS(long), inMS(short), inMS(alone))
}

// pageableRule tells of copies from and to pageable memory, which the driver stages
// through a buffer of its own while the host waits. Bound: the time in which they run
// beside no kernel.
func pageableRule(a *advisor) {
	var list []interval
	rows, n, untold := newTally(), 0, 0
	for _, p := range a.pieces {
		switch {
		case p.Kind != KindMemcpy:
		case strings.Contains(p.Name, "Pageable"):
			n++
			list = append(list, interval{p.Time, min(p.End(), a.window.to)})
			rows.add(p.Name, p.Duration, p.Duration, 1)
		case !strings.Contains(p.Name, "->"):
			untold++
		}
	}
	if untold > 0 {
		a.note("pageable: %s, of which the source does not tell the kind of memory", countOf(untold, "copy or set"))
	}
	list = union(list)
	alone := outside(list, a.during(KindKernel, KindGraph))
	a.hint(alone, rows.rows("copy or set"), "allocate host buffers page-locked (cudaHostAlloc) and copy with cudaMemcpyAsync",
		"%s memory that is pageable, %s ms of it beside no kernel.", verb(n, "copy uses", "copies use"), inMS(alone))
}

// verb writes a number with one of two endings.
func verb(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// graphs tells whether the work came by graphs.
func (a *advisor) graphs() bool {
	return slices.ContainsFunc(a.pieces, func(p piece) bool { return p.Node != 0 || p.Kind == KindGraph })
}

// hostLateRule tells of idle time in which the host had not called for the next
// piece of work. Bound: that time.
func hostLateRule(a *advisor) {
	ns, gaps, rows := a.idleOf(IdleHost)
	try := "launch further ahead of the GPU, and take work of the host out of the pass; a CUDA graph replaces the launches of a pass by one"
	if a.graphs() {
		try = "launch the next graph before the one before has ended, and take work of the host out from between them"
	}
	a.hint(ns, rows, try, "The GPU is idle for %s ms in %s because the host has not launched the next piece of work.", inMS(ns), countOf(gaps, "gap"))
}

// launchLatencyRule tells of idle time between the call of a launch and the beginning
// of what it launched. Bound: that time.
func launchLatencyRule(a *advisor) {
	ns, gaps, rows := a.idleOf(IdleLaunch)
	try := "queue work before the GPU runs dry; a CUDA graph has one launch in place of many"
	if a.graphs() {
		try = "launch the next graph before the one before has ended"
	}
	a.hint(ns, rows, try, "The GPU is idle for %s ms in %s between a launch and its beginning.", inMS(ns), countOf(gaps, "gap"))
}

// syncRule tells of gaps that began while the host waited for the GPU: nothing was
// queued, and the next launch came after the wait. One wait, at the end of a run, is
// no loop. Bound: those gaps.
func syncRule(a *advisor) {
	var waiting waits
	names := newTally()
	calls := 0
	for i := range a.Events {
		e := &a.Events[i]
		if !e.Kind.IsCall() {
			continue
		}
		calls++
		var one waits
		if one.add(e); len(one) > 0 && a.inWindow(e) {
			waiting.add(e)
			names.add(e.Name, e.Duration, e.Duration, 1)
		}
	}
	if calls == 0 {
		a.note("sync: API calls are not recorded, so that synchronisation in the loop is not seen")
		return
	}
	sum, n, at := int64(0), 0, 0
	for _, gap := range a.idle {
		for at < len(waiting) && waiting[at].to <= gap.from {
			at++
		}
		if at < len(waiting) && waiting[at].from <= gap.from && waiting[at].to < gap.to {
			sum += gap.to - gap.from
			n++
		}
	}
	if n < 2 {
		return
	}
	a.hint(sum, names.rows("call"), "leave results on the GPU and read them behind the next pass; wait for an event of what is needed, not for the stream or device",
		"%d times the GPU runs dry while the host waits for it, and is idle for %s ms until the next work.", n, inMS(sum))
}

// dependencyRule tells of gaps between pieces of work of which the later one was
// queued already. Bound: those gaps.
func dependencyRule(a *advisor) {
	ns, gaps, _ := a.idleOf(IdleDependency)
	rows := newTally()
	early, kernels := 0, 0
	last := map[Lane]int64{}
	now, before := a.window.from, (*Event)(nil)
	for _, p := range a.pieces {
		if p.Time > now {
			if call, queued, ok := a.ledger.asked(p.Event, before, now); ok && (queued || call.End() <= now) {
				rows.add("before "+a.where(p.Event), p.Time-now, p.Time-now, 1)
			}
		}
		now, before = max(now, p.End()), p.Event
		if p.Kind != KindKernel {
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
	a.hint(ns, rows.rows("gap"), try, "Between kernels that were queued the GPU is idle for %s ms in %s; %d of %d kernels begin before the one before them on their stream ends.", inMS(ns), countOf(gaps, "gap"), early, kernels)
}

// kernels calls each with the kernels whose launch shape is known, and notes where
// there are others.
func (a *advisor) kernels(each func(p piece, s Shape)) {
	unknown := 0
	for _, p := range a.pieces {
		if p.Kind != KindKernel {
			continue
		}
		if s := shapeOf(p.Event); s.Known() {
			each(p, s)
		} else {
			unknown++
		}
	}
	if unknown > 0 {
		a.note("%s: %s without a grid in the recording", a.rule, countOf(unknown, "kernel"))
	}
}

// capped sums gains of steps, each at most what the step takes above its floor.
func (a *advisor) capped(gains map[stepKey]int64) int64 {
	sum := int64(0)
	floors := map[stepKey]int64{}
	for _, r := range a.table.Rows {
		if r.Kind == RowWork && r.Floor > 0 {
			floors[stepKey{r.Phase, r.Name}] = max(0, r.Exclusive-r.Floor)
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
func (a *advisor) keyOf(e *Event) stepKey {
	step, _ := a.Header.Step(e)
	return stepKey{phaseOf(a.Header, e), step.Name}
}

// smallGridRule tells of kernels with fewer blocks than the device has SMs. Bound:
// the share of their time that the empty SMs are of all, were the work spread evenly;
// at most what is above the floor.
func smallGridRule(a *advisor) {
	sms := int64(a.Header.device(a.Device).SMs)
	if sms <= 0 {
		a.note("small-grid: the recording does not say how many SMs the GPU has")
		return
	}
	rows, gains := newTally(), map[stepKey]int64{}
	n, time := 0, int64(0)
	a.kernels(func(p piece, s Shape) {
		if s.Blocks() >= sms {
			return
		}
		n++
		time += p.own
		gain := int64(float64(p.own) * (1 - float64(s.Blocks())/float64(sms)))
		gains[a.keyOf(p.Event)] += gain
		rows.add(fmt.Sprintf("%s: %s of %s", a.where(p.Event), shortName(p.Name), countOf(int(s.Blocks()), "block")), gain, p.own, 1)
	})
	a.hint(a.capped(gains), rows.rows("kernel"), "split the work into more blocks (over rows, heads, or along the sum: split-K), or fuse the step into a kernel that fills the GPU",
		"%s fewer blocks than the GPU has SMs (%d), in %s ms.", verb(n, "kernel has", "kernels have"), sms, inMS(time))
}

// occupancyRule tells of kernels that fill all SMs, but of which an SM holds few warps
// at once. Bound: by Little's law throughput grows at most with the warps in flight, so
// that of the time the share of the missing warps could go; at most what is above the floor.
func occupancyRule(a *advisor) {
	device := a.Header.device(a.Device)
	rows, gains := newTally(), map[stepKey]int64{}
	n, time, known := 0, int64(0), 0
	limits := map[string]bool{}
	a.kernels(func(p piece, s Shape) {
		o, ok := device.Occupancy(&s)
		if !ok {
			return
		}
		known++
		if o.Percent >= lowOccupancy || s.Blocks() < int64(device.SMs) {
			return
		}
		n++
		time += p.own
		gain := int64(float64(p.own) * (1 - o.Percent/100))
		gains[a.keyOf(p.Event)] += gain
		for limit := range strings.SplitSeq(o.Limit, ", ") {
			limits[limit] = true
		}
		rows.add(fmt.Sprintf("%s: %s with %.0f %%, limited by %s (%d registers, %d bytes shared, %d threads)", a.where(p.Event), shortName(p.Name), o.Percent, o.Limit,
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
	a.hint(a.capped(gains), rows.rows("kernel"), strings.Join(tries, ", ")+"; kernels that keep much in flight per thread, such as matrix products on tensor cores, need no more warps",
		"%s a theoretical occupancy below %d %%, in %s ms.", verb(n, "kernel has", "kernels have"), lowOccupancy, inMS(time))
}

// floorRule tells of stages that take more than twice the least time by what the
// device was measured to do. Bound: what is above the floor.
func floorRule(a *advisor) {
	rows := newTally()
	floors, n, gain, time := 0, 0, int64(0), int64(0)
	for _, r := range a.table.Rows {
		if r.Kind != RowWork || r.Floor <= 0 {
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
		if r.phase >= 0 && int(r.phase) < len(a.Header.Plans) {
			name = r.Phase + ", " + foldLayers(&a.Header.Plans[r.phase], r.Name)
		}
		rows.add(name, r.Exclusive-r.Floor, r.Exclusive, r.Calls)
	}
	if floors == 0 {
		why := "the recording does not say what steps cost"
		if slices.ContainsFunc(a.table.Rows, func(r Row) bool { return r.Bytes > 0 && r.Kind == RowWork || r.FLOPs > 0 }) {
			why = "the recording has no ceilings of this device; 'infer bench ceilings' measures them"
		}
		a.note("floor: how far stages are from their least time is not known: %s", why)
		return
	}
	a.hint(gain, rows.rows("call"), "see which limit holds (GB/s and TFLOP/s in 'infer trace show'), then tune the kernels of the stages that lose most",
		"%s more than %d times the floor: %s ms, of which the floor is %s ms.", verb(n, "stage takes", "stages take"), farFromFloor, inMS(time), inMS(time-gain))
}

// warmUpRule tells of a first pass that took much longer than those after it, and of
// API calls that load modules in the time that is counted. Bound: what the first passes
// took beyond the median, and the idle time within such calls elsewhere.
func warmUpRule(a *advisor) {
	rows := newTally()
	passes := int64(0)
	var firsts []interval
	times, begins := map[string][]int64{}, map[string]interval{}
	for _, l := range a.passes.list {
		phase := a.passes.phase(l.event)
		if times[phase] == nil {
			begins[phase] = l.time
		}
		times[phase] = append(times[phase], l.time.to-l.time.from)
	}
	for _, phase := range a.passes.phases() {
		list := times[phase]
		if len(list) < 1+fewest {
			continue
		}
		first, rest := list[0], slices.Sorted(slices.Values(list[1:]))
		if median := rest[len(rest)/2]; first > longPass*median {
			passes += first - median
			firsts = append(firsts, begins[phase])
			rows.add(fmt.Sprintf("first %s of %d, median of the others %s ms", phase, len(list), inMS(median)), first-median, first, 0)
		}
	}
	loading := a.loading(rows)
	firsts = union(firsts)
	idle, elsewhere := int64(0), int64(0)
	for _, call := range loading {
		during := a.idleIn(call)
		idle += length(during)
		elsewhere += outside(during, firsts)
	}
	var parts []string
	if passes > 0 {
		parts = append(parts, fmt.Sprintf("first passes take %s ms more than the median of those after them", inMS(passes)))
	}
	if len(loading) > 0 {
		parts = append(parts, fmt.Sprintf("API calls that load modules or are far slower than others of their kind take %s ms, with the device idle in %s ms", inMS(length(loading)), inMS(idle)))
	}
	a.hint(passes+elsewhere, rows.rows("call"), "run passes before recording, in a range named 'warm-up', which tables leave out", "Warm-up is counted in: %s.", strings.Join(parts, "; "))
}

// idleIn returns the idle time within another.
func (a *advisor) idleIn(x interval) []interval {
	var list []interval
	i := sort.Search(len(a.idle), func(i int) bool { return a.idle[i].to > x.from })
	for ; i < len(a.idle) && a.idle[i].from < x.to; i++ {
		list = append(list, interval{max(a.idle[i].from, x.from), min(a.idle[i].to, x.to)})
	}
	return list
}

// loading returns when API calls of the window loaded modules, or launched so slowly
// that they must have done so.
func (a *advisor) loading(rows *tally) []interval {
	var launches []int64
	for i := range a.Events {
		if e := &a.Events[i]; e.Kind.IsCall() && isLaunch(e.Name) && a.inWindow(e) {
			launches = append(launches, e.Duration)
		}
	}
	slices.Sort(launches)
	slow := int64(slowLaunchNS)
	if n := len(launches); n > 0 {
		slow = max(slow, slowLaunch*launches[n/2])
	}
	var list []interval
	for i := range a.Events {
		e := &a.Events[i]
		if !e.Kind.IsCall() || !a.inWindow(e) {
			continue
		}
		isLoad := strings.Contains(e.Name, "ModuleLoad") || strings.Contains(e.Name, "LibraryLoad")
		if isLoad || isLaunch(e.Name) && e.Duration >= slow {
			list = append(list, interval{e.Time, min(e.End(), a.window.to)})
			rows.add(e.Name, e.Duration, e.Duration, 1)
		}
	}
	return union(list)
}

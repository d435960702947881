package judge

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"gpt2scope/ceilings"
	"gpt2scope/internal/humanize"
	"gpt2scope/traces"
	"gpt2scope/traces/tables"
	"gpt2scope/traces/window"
)

// Thresholds of rules and questions.
const (
	lowBusy       = 70  // percent of the wall time
	nearPeak      = 70  // percent of what memory or SMs can do
	lowEfficiency = 80  // percent of the threads of a warp
	lowOccupancy  = 50  // percent of an SM's warps
	farFromFloor  = 2   // times the floor
	briefGap      = 2e5 // ns: in a longer gap the host does more than launch

	wholeAccess = 16       // bytes that an aligned load of a product reads at once
	longRun     = 3        // elementwise kernels in a row
	smallCopy   = 16 << 10 // bytes
	fewestSmall = 8        // copies

	// A GPU has about so many times the memory bandwidth of the CPU beside it: 4,800 GB/s and 250
	// in a server of 2024, 940 and 50 in a desktop computer of 2021.
	fasterThanCPU = 20
)

// Rule looks for one bottleneck.
type Rule struct {
	ID    string
	Of    Processor
	Says  string // what is found
	Bound string // the most that removing the cause could gain; of a step at most what is above its floor

	find func(*advisor)
}

// Processor is what the work of a rule runs on.
type Processor uint8

const (
	GPU Processor = 1 << iota
	CPU
)

// Rules are all rules of [Advise], in the order in which they look: what a rule finds does not count for those after it,
// so that a cause that is known well comes before one that is known in general.
var Rules = []Rule{
	{"warm-up", GPU, "the GPU is idle while code is loaded", "that time", heldRule(tables.IdleLoading, traces.CallLoad,
		"The GPU is idle for %s ms in %s while code is loaded, by calls that do or by the first launch of a kernel.",
		"run passes before recording, in a range named 'warm-up', which tables leave out")},
	{"allocation", GPU, "the GPU is idle while memory is allocated or freed", "that time",
		heldRule(tables.IdleAlloc, traces.CallAlloc, "The GPU is idle for %s ms in %s while the host allocates or frees memory.",
			"allocate once, before the passes, and reuse the memory, as PyTorch's caching allocator does")},
	{"data-loading", GPU, "the GPU is idle while the host waits for its next input", "that time",
		idleRule(tables.IdleLoader, "The GPU is idle for %s ms in %s because of data loading.",
			"load with more workers (num_workers of a DataLoader), let them prefetch (prefetch_factor, pin_memory=True), "+
				"and do less for each sample, or do it before")},
	{"sync", GPU, "the GPU repeatedly runs dry while the host waits for it", "those gaps", syncRule},
	{"small-copies", GPU, "there are many copies of few bytes", "their time and that of launching them on an idle GPU",
		smallCopiesRule},
	{"elementwise", GPU, "elementwise kernels follow each other where one would do", "all but the longest, and the gaps",
		elementwiseRule},
	{"host-late", GPU, "the GPU is idle because the host has not launched the next work", "that time", hostRule},
	{"launch-latency", GPU, "the GPU is idle between a launch and the start of its work", "that time", latencyRule},
	{"event", GPU, "the GPU is idle while queued work waits for an event of another stream", "that time",
		idleRule(tables.IdleEvent, "The GPU is idle for %s ms in %s while queued work waits for an event of another stream.",
			"record the event right behind the work that is needed, and keep work that always follows on one stream")},
	{"dependency", GPU, "the GPU is idle between kernels that are queued", "that time", dependencyRule},
	{"pageable", GPU, "copies of memory that is not page-locked", "their time beside no kernel", pageableRule},
	{"copies", GPU, "copies from or to the host take longer than kernels", "their time beside no kernel", copiesRule},
	{"sm-waits", GPU, "SMs wait for each other inside a kernel, as in mode persistent", "the mean of these waits", smWaitsRule},
	{"unaligned", GPU, "products read fewer than 16 bytes at once: a dimension is not padded", "their time",
		productsRule(unaligned, "%s read fewer than 16 bytes at once, because a dimension is not divisible by 8, in %s ms.",
			func(*advisor) string {
				return "pad the dimension to a multiple of 8 (of 64 for a vocabulary): 50257 to 50304"
			})},
	{"float32", GPU, "products do not use tensor cores that the GPU has", "their time",
		productsRule(withoutTensorCores, "%s in float32 without tensor cores, in %s ms.", tensorTypes)},
	{"divergence", GPU, "few threads of a warp are active, by --counters",
		"their time times the share of threads that are not", divergenceRule},
	{"small-grid", GPU, "kernels that run alone have fewer blocks than the GPU has SMs",
		"their time times the share of SMs that are empty", smallGridRule},
	{"occupancy", GPU, "theoretical occupancy is below 50 %, and memory below 70 % of its peak",
		"their time times the share of warps that are missing", occupancyRule},
	{"imbalance", CPU, "threads of a step wait for the slowest, or have no part in it",
		"what the slowest takes beyond the mean of all threads", imbalanceRule},
	{"barriers", CPU, "threads synchronise between steps", "that time",
		idleRule(tables.IdleThreads, "Between steps of a pass no thread works for %s ms in %s, in which the threads meet.",
			"fuse small steps, let threads spin rather than sleep where they meet, and use fewer threads for small passes")},
	{"between-passes", CPU, "no step runs", "that time",
		idleRule(tables.IdleHost, "No step runs for %s ms in %s: the program does other things.",
			"take work out from between passes: output, allocation, sampling")},
	{"floor", GPU | CPU, "stages take more than twice their floor", "the time above it", floorRule},
}

func idleRule(cause, says, try string) func(*advisor) {
	return heldRule(cause, traces.CallOther, says, try)
}

// heldRule reports the idle time of a cause. Where calls cause it, they are its rows; else the work before which it lies.
func heldRule(cause string, call traces.Call, says, try string) func(*advisor) {
	return func(a *advisor) {
		ns, rows := a.idleOf(cause)
		thing, n := "gap", rows.n
		if call != traces.CallOther && ns > 0 {
			if calls := a.calls(call); calls.n > 0 {
				rows, thing = calls, "call"
			}
		}
		a.hint(ns, rows.rows(thing), try, says, humanize.InMilliseconds(ns), numberOf(n, "gap"))
	}
}

// calls sums the API calls of a kind in the time of the advice.
func (a *advisor) calls(kind traces.Call) *tally {
	rows := newTally()
	for i := range a.Events {
		if e := &a.Events[i]; e.Kind.IsCall() && e.Call() == kind && a.inWindow(e) && a.Serves(e) {
			rows.add(e.Name, e.Duration, e.Duration, 1)
		}
	}
	return rows
}

// hostRule: one launch in place of many helps only where the host launches all the time.
func hostRule(a *advisor) {
	launching := int64(0)
	for _, p := range a.parts {
		if p.cause == tables.IdleHost && p.Length() <= briefGap {
			launching += p.left
		}
	}
	doing := a.hostDoing()
	ns, rows := a.idleOf(tables.IdleHost)
	try := "see what the host does then: 'infer trace show --by op', --by range, or a profiler of the host; take it out of " +
		"the pass, or do it before, while the GPU works"
	switch {
	case 2*launching < ns:
	case a.graphs:
		try = "launch the next graph before the one before has ended, and take work of the host out from between them"
	default:
		try = "launch further ahead of the GPU, and take work of the host out of the pass; a CUDA graph (torch.cuda.graph, or " +
			"torch.compile with mode='reduce-overhead') replaces the launches of a pass by one"
	}
	a.hint(ns, doing.rows("gap"), try, "The GPU is idle for %s ms in %s because the host has not launched the next work.",
		humanize.InMilliseconds(ns), numberOf(rows.n, "gap"))
}

// latencyRule: where the call had begun before the GPU ran dry, the host was ahead, if hardly.
func latencyRule(a *advisor) {
	ahead := int64(0)
	for _, p := range a.parts {
		if call := a.launchOf(p.next); p.cause == tables.IdleLaunch && call != nil && call.Time <= p.From {
			ahead += p.left
		}
	}
	ns, rows := a.idleOf(tables.IdleLaunch)
	try := "queue work before the GPU runs dry; a CUDA graph has one launch in place of many"
	switch {
	case a.graphs:
		try = "launch the next graph before the one before has ended"
	case 2*ahead > ns:
		try = "the host is ahead, but by less than a launch takes: fewer and longer kernels, or a CUDA graph, which has one " +
			"launch in place of many"
	}
	a.hint(ns, rows.rows("gap"), try, "The GPU is idle for %s ms in %s between a launch and its start.",
		humanize.InMilliseconds(ns), numberOf(rows.n, "gap"))
}

func (a *advisor) launchOf(e *traces.Event) *traces.Event {
	if e == nil {
		return nil
	}
	return a.CallOf(e)
}

// dependencyRule: programmatic dependent launch came with compute capability 9.0.
func dependencyRule(a *advisor) {
	ns, rows := a.idleOf(tables.IdleDependency)
	try := "fuse small steps"
	if major := a.compute(); major == 0 && !a.isAMD() || major >= 9 {
		try = "let the next kernel begin early (programmatic dependent launch), or " + try
	}
	a.hint(ns, rows.rows("gap"), try, "Between kernels that were queued the GPU is idle for %s ms in %s.",
		humanize.InMilliseconds(ns), numberOf(rows.n, "gap"))
}

// compute returns the major number of the compute capability of an NVIDIA GPU, 0 if it is not known.
func (a *advisor) compute() (major int) {
	if !a.isAMD() {
		fmt.Sscanf(a.Header.Device(a.table.Device).Compute, "%d.", &major)
	}
	return major
}

func (a *advisor) isAMD() bool { return isAMD(a.Header.Device(a.table.Device)) }

// tensorTypes says which types multiply on tensor cores of the GPU, "" if it has none.
func tensorTypes(a *advisor) string {
	switch major := a.compute(); {
	case a.isAMD() || major > 0 && major < 7:
		return ""
	case major == 7:
		return "multiply in float16 (torch.autocast with dtype=torch.float16), if the results are exact enough"
	}
	return "multiply in bfloat16 or float16, or allow TF32 (torch.set_float32_matmul_precision('high')), if the results are " +
		"exact enough"
}

// kernels collects the kernels for which share is positive: which share of their time could be gained, and a few words
// on why. time is what they take.
func (a *advisor) kernels(share func(*counted) (share float64, why string)) (rows *tally, gain, time int64) {
	rows = newTally()
	short := byWhat(func(e *traces.Event) string { return traces.ShortKernel(e.Name) })
	for i := range a.counted {
		p := &a.counted[i]
		if p.Kind != traces.KindKernel || p.left == 0 {
			continue
		}
		if share, why := share(p); share > 0 {
			ns := a.take(p, int64(share*float64(p.own)))
			gain, time = gain+ns, time+p.own
			rows.add(a.where(p.Event)+": "+short(p.Event)+why, ns, p.own, 1)
		}
	}
	return rows, gain, time
}

// copiesRule is of copies over the bus: what is copied within the memory of the GPU is there already.
func copiesRule(a *advisor) {
	copying := a.copied(func(e *traces.Event) bool { return e.Kind == traces.KindMemcpy && directionOf(e).ways != "DtoD" })
	if copying.time <= a.measured.computing {
		return
	}
	a.hint(copying.gain, copying.rows("event"),
		"keep the data on the GPU, copy less, and overlap what is left with kernels on a stream of its own",
		"Copies take %s ms, longer than the kernels with %s ms; %s ms of them run beside no kernel.",
		humanize.InMilliseconds(copying.time), humanize.InMilliseconds(a.measured.computing), humanize.InMilliseconds(copying.alone))
}

// copies are those of a kind.
type copies struct {
	*tally
	gain, alone, time, bytes int64
}

func (a *advisor) copied(is func(*traces.Event) bool) copies {
	c := copies{tally: newTally()}
	for i := range a.counted {
		p := &a.counted[i]
		if p.Kind != traces.KindMemcpy && p.Kind != traces.KindMemset || !is(p.Event) {
			continue
		}
		at := window.Interval{From: p.Time, To: min(p.End(), a.table.Time.To)}
		alone := outside([]window.Interval{at}, a.measured.computed)
		c.gain, c.alone, c.time, c.bytes = c.gain+a.take(p, alone), c.alone+alone, c.time+p.Duration, c.bytes+p.Bytes
		c.add(p.Name, p.Duration, p.Duration, 1)
	}
	return c
}

// pageableRule: the driver stages such copies through a buffer of its own while the host waits.
func pageableRule(a *advisor) {
	unknown := 0
	found := a.copied(func(e *traces.Event) bool {
		is, known := e.Pageable()
		if e.Kind == traces.KindMemcpy && !known {
			unknown++
		}
		return is
	})
	if unknown > 0 {
		a.note("pageable: %s, whose kind of memory the source does not report", numberOf(unknown, "copy or set"))
	}
	a.hint(found.gain, found.rows("copy or set"),
		"allocate host buffers page-locked (cudaHostAlloc) and copy with cudaMemcpyAsync",
		"%s memory that is pageable, at %.1f GB/s, %s ms of it beside no kernel.",
		humanize.Count(found.n, "copy uses", "copies use"), float64(found.bytes)/float64(max(1, found.time)), humanize.InMilliseconds(found.alone))
}

// syncRule: one wait, at the end of a run, is no loop.
func syncRule(a *advisor) {
	names, calls := newTally(), 0
	for i := range a.Events {
		e := &a.Events[i]
		if !e.Kind.IsCall() || !a.Serves(e) {
			continue
		}
		calls++
		if e.Wait != traces.WaitNone && e.Duration > 0 && a.inWindow(e) {
			names.add(inRange(a.Window, e), e.Duration, e.Duration, 1)
		}
	}
	if calls == 0 {
		a.note("sync: API calls are not recorded, so that synchronisation in the loop is not seen")
		return
	}
	var found []*part
	waits, at, n, last, sum := a.Waiting(), 0, 0, window.Interval{}, int64(0)
	for i := range a.parts {
		p := &a.parts[i]
		for at < len(waits) && waits[at].To <= p.From {
			at++
		}
		if at < len(waits) && waits[at].From <= p.From && waits[at].To < p.To {
			found = append(found, p)
			if last != p.Interval {
				n, last = n+1, p.Interval
			}
		}
	}
	if n < 2 {
		return
	}
	for _, p := range found {
		sum += a.takeIdle(p)
	}
	a.hint(sum, names.rows("call"),
		"leave results on the GPU and read them behind the next pass; "+
			"wait for an event of what is needed, not for the stream or device",
		"%d times the GPU runs dry while the host waits for it, and is idle for %s ms until the next work; the calls are those in which the host waits.",
		n, humanize.InMilliseconds(sum))
}

func smWaitsRule(a *advisor) {
	rows, gain, all := newTally(), int64(0), traces.Parts{}
	for i, r := range a.table.Rows {
		if r.Inside == nil {
			continue
		}
		all.Add(*r.Inside)
		ns := min(r.Exclusive, r.Inside.Inputs+r.Inside.Imbalance)
		gain += a.takeRow(i, ns)
		rows.add(a.rowName(&r), ns, ns, r.Kernels)
	}
	a.hint(gain, rows.rows("step"),
		"exchange fewer or smaller vectors between SMs, or within clusters; "+
			"give SMs equal work: 'infer trace report' shows which come last",
		"Inside the kernel an SM waits %s ms for what others compute, and %s ms for the last of them.",
		humanize.InMilliseconds(all.Inputs), humanize.InMilliseconds(all.Imbalance))
}

func smallGridRule(a *advisor) {
	sms := int64(a.Header.Device(a.table.Device).SMs)
	if sms <= 0 {
		a.note("small-grid: the recording does not say how many SMs the GPU has")
		return
	}
	unknown, why, communicates := 0, byWhat(blocks), byWhat((*traces.Event).Communicates)
	rows, gain, time := a.kernels(func(p *counted) (float64, string) {
		s := tables.ShapeOf(p.Event)
		if !s.Known() {
			unknown++
		}
		if !s.Known() || p.beside || communicates(p.Event) {
			return 0, ""
		}
		return 1 - float64(s.Blocks())/float64(sms), why(p.Event)
	})
	if unknown > 0 {
		a.note("small-grid, occupancy: %s without a grid in the recording", numberOf(unknown, "kernel"))
	}
	a.hint(gain, rows.rows("kernel"),
		"split the work into more blocks (over rows, heads, or along the sum: split-K), "+
			"or fuse the step into a kernel that fills the GPU",
		"%s fewer blocks than the GPU has SMs (%d), in %s ms.",
		humanize.Count(rows.n, "kernel has", "kernels have"), sms, humanize.InMilliseconds(time))
}

// blocks says how many blocks a kernel has, if that is known.
func blocks(e *traces.Event) string {
	if s := tables.ShapeOf(e); s.Known() {
		return " of " + numberOf(int(s.Blocks()), "block")
	}
	return ""
}

// moreWarps says what to try against what limits the occupancy.
var moreWarps = []struct{ limit, try string }{
	{"registers", "fewer registers per thread (__launch_bounds__)"}, {"shared memory", "less shared memory per block"},
	{"blocks", "larger blocks"}, {"warps", "blocks of a size that divides the warps of an SM"},
}

// occupancyRule's bound is by Little's law: throughput grows at most with the warps in flight.
func occupancyRule(a *advisor) {
	device := a.Header.Device(a.table.Device)
	known, limits := 0, map[string]bool{}
	other := byWhat(func(e *traces.Event) bool { return e.Communicates() || onTensorCores(e.Name) })
	rows, gain, time := a.kernels(func(p *counted) (float64, string) {
		s := tables.ShapeOf(p.Event)
		o, ok := tables.OccupancyOf(device, &s)
		if !ok {
			return 0, ""
		}
		known++
		if o.Percent >= lowOccupancy || s.Blocks() < int64(device.SMs) || other(p.Event) ||
			a.boundByMemory(p.Event) {
			return 0, ""
		}
		for limit := range strings.SplitSeq(o.Limit, ", ") {
			limits[limit] = true
		}
		return 1 - o.Percent/100, fmt.Sprintf(" with %.0f %%, limited by %s (%d registers, %d bytes shared, %d threads)",
			o.Percent, o.Limit, s.Registers, int64(s.StaticShared)+int64(s.DynamicShared), s.Threads())
	})
	if known == 0 {
		a.note("occupancy: the recording does not say registers, block sizes or the limits of the GPU")
		return
	}
	var tries []string
	for _, t := range moreWarps {
		if limits[t.limit] {
			tries = append(tries, t.try)
		}
	}
	a.hint(gain, rows.rows("kernel"), strings.Join(tries, ", ")+
		"; kernels that keep much in flight per thread need no more warps",
		"%s a theoretical occupancy below %d %%, in %s ms.",
		humanize.Count(rows.n, "kernel has", "kernels have"), lowOccupancy, humanize.InMilliseconds(time))
}

func divergenceRule(a *advisor) {
	rows, gain, time := a.kernels(func(p *counted) (float64, string) {
		efficiency, ok := p.Counters.Get(traces.CounterWarpEfficiency)
		if !ok || efficiency >= lowEfficiency {
			return 0, ""
		}
		return 1 - efficiency/100, fmt.Sprintf(" with %.0f %%", efficiency)
	})
	a.hint(gain, rows.rows("kernel"),
		"let the threads of a warp take the same branches, and give each as many elements as the others",
		"In %s fewer than %d %% of the threads of a warp are active, in %s ms.",
		numberOf(rows.n, "kernel"), lowEfficiency, humanize.InMilliseconds(time))
}

// productsRule reports products whose name says something. It is silent where there is nothing to try.
func productsRule(is func(name string) bool, says string, try func(*advisor) string) func(*advisor) {
	return func(a *advisor) {
		what := try(a)
		if what == "" {
			return
		}
		found := byWhat(func(e *traces.Event) bool { return is(e.Name) })
		rows, gain, time := a.kernels(func(p *counted) (float64, string) {
			if !found(p.Event) {
				return 0, ""
			}
			return 1, blocks(p.Event)
		})
		a.hint(gain, rows.rows("kernel"), what, says, numberOf(rows.n, "product"), humanize.InMilliseconds(time))
	}
}

func floorRule(a *advisor) {
	rows, floors, n, gain, above, time := newTally(), 0, 0, int64(0), int64(0), int64(0)
	for i, r := range a.table.Rows {
		if r.Kind != tables.RowWork || r.Floor <= 0 {
			continue
		}
		floors++
		if r.Exclusive <= farFromFloor*r.Floor {
			continue
		}
		n, above, time = n+1, above+r.Exclusive-r.Floor, time+r.Exclusive
		gain += a.takeRow(i, r.Exclusive)
		rows.add(a.rowName(&r), r.Exclusive-r.Floor, r.Exclusive, r.Calls)
	}
	if floors == 0 {
		why := "the recording does not say what steps cost"
		if slices.ContainsFunc(a.table.Rows, func(r tables.Row) bool {
			return r.Bytes > 0 && r.Kind == tables.RowWork || r.FLOPs > 0
		}) {
			why = "the recording has no ceilings of this device; 'infer bench ceilings' measures them"
		}
		a.note("floor: how far stages are from their least time is not known: %s", why)
		return
	}
	a.hint(gain, rows.rows("call"),
		"see which limit holds (GB/s and TFLOP/s in 'infer trace show'), then tune the kernels of the stages that lose most",
		"%s more than %d times the floor: %s ms, of which the floor is %s ms.",
		humanize.Count(n, "stage takes", "stages take"), farFromFloor, humanize.InMilliseconds(time), humanize.InMilliseconds(time-above))
}

func elementwiseRule(a *advisor) {
	rows, kernels, gain := newTally(), 0, int64(0)
	var run []*counted
	is := byWhat(func(e *traces.Event) bool { return elementwise().MatchString(e.Name) })
	does := byWhat(func(e *traces.Event) string { return cmp.Or(traces.Applies(e.Name), traces.ShortKernel(e.Name)) })
	end := func() {
		if len(run) >= longRun {
			longest, sum, could := run[0], int64(0), int64(0)
			var names []string
			for _, p := range run {
				if sum += p.own; p.own > longest.own {
					longest = p
				}
				names = append(names, does(p.Event))
			}
			for i, p := range run {
				if i > 0 {
					gap := a.takeBefore(p, "")
					sum, could = sum+gap, could+gap
				}
				if p != longest {
					could += a.take(p, p.own)
				}
			}
			kernels, gain = kernels+len(run), gain+could
			what := fmt.Sprintf("%s: %d kernels in a row: %s", a.where(run[0].Event), len(run), strings.Join(names, ", "))
			rows.add(what, could, sum, 1)
		}
		run = run[:0]
	}
	for i := range a.counted {
		p := &a.counted[i]
		if p.Kind != traces.KindKernel || !is(p.Event) {
			end()
			continue
		}
		if len(run) > 0 {
			last := run[len(run)-1]
			if last.Lane != p.Lane || blocks(last.Event) != blocks(p.Event) || a.PassOf(last.Event) != a.PassOf(p.Event) {
				end()
			}
		}
		run = append(run, p)
	}
	end()
	a.hint(gain, rows.rows("run"),
		"let a compiler fuse them (torch.compile), or use one operator for the whole formula, such as F.gelu(x, approximate='tanh')",
		"%s of elementwise kernels (%s in all), where one kernel could do the work of a run.",
		numberOf(rows.n, "run"), numberOf(kernels, "kernel"))
}

// smallCopiesRule: what the host does before it copies is not the copy's.
func smallCopiesRule(a *advisor) {
	var found []*counted
	for i := range a.counted {
		if p := &a.counted[i]; p.Kind == traces.KindMemcpy && p.Bytes > 0 && p.Bytes <= smallCopy {
			found = append(found, p)
		}
	}
	if len(found) < fewestSmall {
		return
	}
	rows, gain := newTally(), int64(0)
	for _, p := range found {
		lost := a.take(p, p.own) + a.takeBefore(p, tables.IdleLaunch)
		gain += lost
		rows.add(fmt.Sprintf("%s of %s", p.Name, humanize.Size(p.Bytes)), lost, lost, 1)
	}
	a.hint(gain, rows.rows("copy"), "gather them into one copy, or make the values on the GPU",
		"%s at most %s: with the time from their calls to their start they take %s ms.",
		humanize.Count(rows.n, "copy has", "copies have"), humanize.Size(smallCopy), humanize.InMilliseconds(gain))
}

// boundByMemory reports whether a kernel works at most of what the GPU's memory can deliver, by
// its counters or by the floor of its stage. More warps would not make it faster.
func (a *advisor) boundByMemory(e *traces.Event) bool {
	if dram, ok := e.Counters.Get(traces.CounterDRAMThroughput); ok {
		return dram >= nearPeak
	}
	i := a.table.RowOf(e)
	if i < 0 || i >= len(a.table.Rows) {
		return false
	}
	r := &a.table.Rows[i]
	roofline, ok := a.table.Roofline(r)
	return ok && r.Bound == ceilings.BoundBytes && roofline >= nearPeak
}

// rowName names a row of steps, by one name for all layers.
func (a *advisor) rowName(r *tables.Row) string {
	if r.Plan >= 0 && int(r.Plan) < len(a.Header.Plans) {
		return r.Phase + ", " + foldLayers(&a.Header.Plans[r.Plan], r.Name)
	}
	return r.Phase + ", " + r.Name
}

// imbalanceRule: a thread without a part in a step waits all the time.
func imbalanceRule(a *advisor) {
	threads := map[traces.Lane]bool{}
	for _, p := range a.counted {
		threads[p.Lane] = true
	}
	rows, mean, longest, gain := newTally(), 0.0, 0.0, int64(0)
	for i, r := range a.table.Rows {
		if r.Kind != tables.RowWork {
			continue
		}
		of := float64(r.Busy) / float64(len(threads))
		gain += a.takeRow(i, int64(r.LongestThread-of))
		mean, longest = mean+of, longest+r.LongestThread
		rows.add(a.rowName(&r), int64(r.LongestThread-of), int64(r.LongestThread), r.Calls)
	}
	a.hint(gain, rows.rows("run"),
		"divide the work between all threads, into more and smaller parts that they take as they come, "+
			"use as many threads as there are free cores, and look for other work on them",
		"The slowest thread of a step takes %.2f times the mean of %d threads: %s ms of %s ms are waiting for it.",
		longest/max(1, mean), len(threads), humanize.InMilliseconds(int64(longest-mean)), humanize.InMilliseconds(int64(longest)))
}

func numberOf(n int, thing string) string {
	if thing == "copy or set" {
		return humanize.Count(n, thing, "copies or sets")
	}
	return humanize.Count(n, thing, humanize.Plural(thing))
}

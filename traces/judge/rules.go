package judge

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"gpt2scope/ceilings"
	"gpt2scope/internal/humanize"
	"gpt2scope/internal/stats"
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
	slowLaunch    = 10  // times the median of the launches,
	slowLaunchNS  = 5e4 // and at least so long: loading a module takes hundreds of us

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

// The processors.
const (
	GPU Processor = 1 << iota
	CPU
)

// Rules are all rules of [Advise].
var Rules = []Rule{
	{"copies", GPU, "copies take longer than kernels", "their time beside no kernel", copiesRule},
	{"pageable", GPU, "copies of memory that is not page-locked", "their time beside no kernel", pageableRule},
	{"host-late", GPU, "the GPU is idle because the host has not launched the next work", "that time",
		idleRule(tables.IdleHost, "The GPU is idle for %s ms in %s because the host has not launched the next work.",
			"launch further ahead of the GPU, and take work of the host out of the pass; a CUDA graph (torch.cuda.graph, or "+
				"torch.compile with mode='reduce-overhead') replaces the launches of a pass by one",
			"launch the next graph before the one before has ended, and take work of the host out from between them")},
	{"launch-latency", GPU, "the GPU is idle between a launch and the start of its work", "that time",
		idleRule(tables.IdleLaunch, "The GPU is idle for %s ms in %s between a launch and its start.",
			"queue work before the GPU runs dry; a CUDA graph has one launch in place of many",
			"launch the next graph before the one before has ended")},
	{"sync", GPU, "the GPU repeatedly runs dry while the host waits for it", "those gaps", syncRule},
	{"dependency", GPU, "the GPU is idle between kernels that are queued", "that time",
		idleRule(tables.IdleDependency, "Between kernels that were queued the GPU is idle for %s ms in %s.",
			"let the next kernel begin early (programmatic dependent launch), or fuse small steps", "")},
	{"sm-waits", GPU, "SMs wait for each other inside a kernel, as in mode persistent", "the mean of these waits", smWaitsRule},
	{"small-grid", GPU, "kernels have fewer blocks than the GPU has SMs",
		"their time times the share of SMs that are empty", smallGridRule},
	{"occupancy", GPU, "theoretical occupancy is below 50 %, and memory below 70 % of its peak",
		"their time times the share of warps that are missing", occupancyRule},
	{"floor", GPU | CPU, "stages take more than twice their floor", "the time above it", floorRule},
	{"unaligned", GPU, "products read fewer than 16 bytes at once: a dimension is not padded", "their time",
		productsRule(unaligned, "%s read fewer than 16 bytes at once, because a dimension is not divisible by 8, in %s ms.",
			"pad the dimension to a multiple of 8 (of 64 for a vocabulary): 50257 to 50304")},
	{"float32", GPU, "products do not use tensor cores", "their time",
		productsRule(withoutTensorCores, "%s in float32 without tensor cores, in %s ms.",
			"multiply in bfloat16 or float16, or allow TF32 (torch.set_float32_matmul_precision('high')), "+
				"if the results are exact enough")},
	{"elementwise", GPU, "elementwise kernels follow each other where one would do", "all but the longest, and the gaps", elementwiseRule},
	{"small-copies", GPU, "there are many copies of few bytes", "their time and the gaps before them", smallCopiesRule},
	{"divergence", GPU, "few threads of a warp are active, by --counters",
		"their time times the share of threads that are not", divergenceRule},
	{"imbalance", CPU, "threads of a step wait for the slowest", "what the slowest takes beyond the mean", imbalanceRule},
	{"few-threads", CPU, "only some threads run a step", "its time times the share of threads without work", fewThreadsRule},
	{"barriers", CPU, "threads synchronise between steps", "that time",
		idleRule(tables.IdleThreads, "Between steps of a pass no thread works for %s ms in %s, in which the threads meet.",
			"fuse small steps, let threads spin rather than sleep where they meet, and use fewer threads for small passes", "")},
	{"between-passes", CPU, "no step runs", "that time",
		idleRule(tables.IdleHost, "No step runs for %s ms in %s: the program does other things.",
			"take work out from between passes: output, allocation, sampling", "")},
	{"warm-up", GPU | CPU, "module loading is counted in", "idle time within the API calls", loadingRule},
}

// idleRule reports the idle time of a cause. tryGraphs is what to try if the work comes by graphs, "" for the same.
func idleRule(cause, says, try, tryGraphs string) func(*advisor) {
	return func(a *advisor) {
		ns, rows := a.idleOf(cause)
		what := try
		if a.graphs && tryGraphs != "" {
			what = tryGraphs
		}
		a.hint(ns, rows.rows("gap"), what, says, inMS(ns), numberOf(rows.n, "gap"))
	}
}

// slow is what a rule finds in kernels: the gain in a stage is at most what is above its floor.
type slow struct {
	*tally
	gains map[stageKey]int64
	time  int64
}

// stageKey is a stage of a kind of pass, "" for the work of none.
type stageKey struct{ phase, name string }

// kernels collects the kernels for which share is positive: which share of their time could be gained, and a few words
// on why.
func (a *advisor) kernels(share func(counted) (share float64, why string)) *slow {
	s := &slow{newTally(), map[stageKey]int64{}, 0}
	for _, p := range a.counted {
		if p.Kind != traces.KindKernel {
			continue
		}
		if share, why := share(p); share > 0 {
			gain := int64(share * float64(p.own))
			step, _ := a.Header.Step(p.Event)
			s.gains[stageKey{a.Header.PhaseOf(p.Event), step.Name}] += gain
			s.time += p.own
			s.add(a.where(p.Event)+": "+traces.ShortKernel(p.Name)+why, gain, p.own, 1)
		}
	}
	return s
}

// gain sums the gains of stages, each at most what the stage takes above its floor.
func (s *slow) gain(a *advisor) int64 {
	sum, floors := int64(0), map[stageKey]int64{}
	for _, r := range a.table.Rows {
		if r.Kind == tables.RowWork && r.Floor > 0 {
			floors[stageKey{r.Phase, r.Name}] = max(0, r.Exclusive-r.Floor)
		}
	}
	for k, gain := range s.gains {
		if most, ok := floors[k]; ok {
			gain = min(gain, most)
		}
		sum += gain
	}
	return sum
}

func copiesRule(a *advisor) {
	m := a.measured
	if m.copying <= m.computing {
		return
	}
	a.hint(m.copyAlone, a.copied(func(counted) bool { return true }).rows("event"),
		"keep the data on the GPU, copy less, and overlap what is left with kernels on a stream of its own",
		"Copies and sets take %s ms, longer than the kernels with %s ms; %s ms of them run beside no kernel.",
		inMS(m.copying), inMS(m.computing), inMS(m.copyAlone))
}

// copied sums copies and sets.
func (a *advisor) copied(is func(counted) bool) *tally {
	rows := newTally()
	for _, p := range a.counted {
		if (p.Kind == traces.KindMemcpy || p.Kind == traces.KindMemset) && is(p) {
			rows.add(p.Name, p.Duration, p.Duration, 1)
		}
	}
	return rows
}

// pageableRule: the driver stages such copies through a buffer of its own while the host waits.
func pageableRule(a *advisor) {
	unknown, alone, bytes, time := 0, int64(0), int64(0), int64(0)
	rows := a.copied(func(p counted) bool {
		is, known := p.Pageable()
		if p.Kind == traces.KindMemcpy && !known {
			unknown++
		}
		if is {
			copied := window.Interval{From: p.Time, To: min(p.End(), a.table.Time.To)}
			bytes, time, alone = bytes+p.Bytes, time+p.Duration, alone+outside([]window.Interval{copied}, a.measured.computed)
		}
		return is
	})
	if unknown > 0 {
		a.note("pageable: %s, whose kind of memory the source does not report", numberOf(unknown, "copy or set"))
	}
	a.hint(alone, rows.rows("copy or set"),
		"allocate host buffers page-locked (cudaHostAlloc) and copy with cudaMemcpyAsync",
		"%s memory that is pageable, at %.1f GB/s, %s ms of it beside no kernel.",
		humanize.Count(rows.n, "copy uses", "copies use"), float64(bytes)/float64(max(1, time)), inMS(alone))
}

// syncRule: one wait, at the end of a run, is no loop.
func syncRule(a *advisor) {
	names, calls := newTally(), 0
	for i := range a.Events {
		e := &a.Events[i]
		if !e.Kind.IsCall() {
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
	a.hint(sum, names.rows("call"),
		"leave results on the GPU and read them behind the next pass; "+
			"wait for an event of what is needed, not for the stream or device",
		"%d times the GPU runs dry while the host waits for it, and is idle for %s ms until the next work.", n, inMS(sum))
}

func smWaitsRule(a *advisor) {
	rows, gain, all := newTally(), int64(0), traces.Parts{}
	for _, r := range a.table.Rows {
		if r.Inside == nil {
			continue
		}
		all.Add(*r.Inside)
		ns := min(r.Exclusive, r.Inside.Inputs+r.Inside.Imbalance)
		gain += min(ns, max(0, r.Exclusive-r.Floor))
		rows.add(a.rowName(&r), ns, ns, r.Kernels)
	}
	a.hint(gain, rows.rows("step"),
		"exchange fewer or smaller vectors between SMs, or within clusters; "+
			"give SMs equal work: 'infer trace report' shows which come last",
		"Inside the kernel an SM waits %s ms for what others compute, and %s ms for the last of them.",
		inMS(all.Inputs), inMS(all.Imbalance))
}

func smallGridRule(a *advisor) {
	sms := int64(a.Header.Device(a.table.Device).SMs)
	if sms <= 0 {
		a.note("small-grid: the recording does not say how many SMs the GPU has")
		return
	}
	unknown := 0
	found := a.kernels(func(p counted) (float64, string) {
		s := tables.ShapeOf(p.Event)
		if !s.Known() {
			unknown++
			return 0, ""
		}
		return 1 - float64(s.Blocks())/float64(sms), blocks(p.Event)
	})
	if unknown > 0 {
		a.note("small-grid, occupancy: %s without a grid in the recording", numberOf(unknown, "kernel"))
	}
	a.hint(found.gain(a), found.rows("kernel"),
		"split the work into more blocks (over rows, heads, or along the sum: split-K), "+
			"or fuse the step into a kernel that fills the GPU",
		"%s fewer blocks than the GPU has SMs (%d), in %s ms.",
		humanize.Count(found.n, "kernel has", "kernels have"), sms, inMS(found.time))
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
	found := a.kernels(func(p counted) (float64, string) {
		s := tables.ShapeOf(p.Event)
		o, ok := tables.OccupancyOf(device, &s)
		if !ok {
			return 0, ""
		}
		known++
		if o.Percent >= lowOccupancy || s.Blocks() < int64(device.SMs) || a.boundByMemory(p.Event) {
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
	a.hint(found.gain(a), found.rows("kernel"), strings.Join(tries, ", ")+
		"; kernels that keep much in flight per thread, such as matrix products on tensor cores, need no more warps",
		"%s a theoretical occupancy below %d %%, in %s ms.",
		humanize.Count(found.n, "kernel has", "kernels have"), lowOccupancy, inMS(found.time))
}

func divergenceRule(a *advisor) {
	found := a.kernels(func(p counted) (float64, string) {
		efficiency, ok := p.Counters.Get(traces.CounterWarpEfficiency)
		if !ok || efficiency >= lowEfficiency {
			return 0, ""
		}
		return 1 - efficiency/100, fmt.Sprintf(" with %.0f %%", efficiency)
	})
	a.hint(found.gain(a), found.rows("kernel"),
		"let the threads of a warp take the same branches, and give each as many elements as the others",
		"In %s fewer than %d %% of the threads of a warp are active, in %s ms.",
		numberOf(found.n, "kernel"), lowEfficiency, inMS(found.time))
}

// productsRule reports products whose name says something.
func productsRule(is func(name string) bool, says, try string) func(*advisor) {
	return func(a *advisor) {
		known := map[string]bool{}
		found := a.kernels(func(p counted) (float64, string) {
			yes, ok := known[p.Name]
			if !ok {
				yes = is(p.Name)
				known[p.Name] = yes
			}
			if !yes {
				return 0, ""
			}
			return 1, blocks(p.Event)
		})
		a.hint(found.gain(a), found.rows("kernel"), try, says, numberOf(found.n, "product"), inMS(found.time))
	}
}

func floorRule(a *advisor) {
	rows, floors, n, gain, time := newTally(), 0, 0, int64(0), int64(0)
	for _, r := range a.table.Rows {
		if r.Kind != tables.RowWork || r.Floor <= 0 {
			continue
		}
		floors++
		if r.Exclusive <= farFromFloor*r.Floor {
			continue
		}
		n, gain, time = n+1, gain+r.Exclusive-r.Floor, time+r.Exclusive
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
		humanize.Count(n, "stage takes", "stages take"), farFromFloor, inMS(time), inMS(time-gain))
}

func elementwiseRule(a *advisor) {
	rows, kernels, gain := newTally(), 0, int64(0)
	var run []counted
	end := func() {
		if len(run) >= longRun {
			longest, sum := int64(0), -run[0].before
			var names []string
			for _, p := range run {
				longest, sum = max(longest, p.own), sum+p.own+p.before
				names = append(names, cmp.Or(traces.Applies(p.Name), traces.ShortKernel(p.Name)))
			}
			kernels, gain = kernels+len(run), gain+sum-longest
			what := fmt.Sprintf("%s: %d kernels in a row: %s", a.where(run[0].Event), len(run), strings.Join(names, ", "))
			rows.add(what, sum-longest, sum, 1)
		}
		run = run[:0]
	}
	for _, p := range a.counted {
		if p.Kind != traces.KindKernel || !elementwise.MatchString(p.Name) {
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
		"let a compiler fuse them (torch.compile), or use one operator for the whole formula, "+
			"such as F.gelu(x, approximate='tanh')",
		"%s of elementwise kernels (%s in all), where one kernel could do the work of a run.",
		numberOf(rows.n, "run"), numberOf(kernels, "kernel"))
}

func smallCopiesRule(a *advisor) {
	rows, gain := newTally(), int64(0)
	for _, p := range a.counted {
		if p.Kind == traces.KindMemcpy && p.Bytes > 0 && p.Bytes <= smallCopy {
			lost := p.own + p.before
			gain += lost
			rows.add(fmt.Sprintf("%s of %s", p.Name, humanize.Size(p.Bytes)), lost, lost, 1)
		}
	}
	if rows.n < fewestSmall {
		return
	}
	a.hint(gain, rows.rows("copy"), "gather them into one copy, or make the values on the GPU",
		"%s at most %s: with the idle time before them they take %s ms.",
		humanize.Count(rows.n, "copy has", "copies have"), humanize.Size(smallCopy), inMS(gain))
}

// loadingRule looks for API calls that loaded modules, or launched so slowly that they must have done so.
func loadingRule(a *advisor) {
	slow := int64(slowLaunchNS)
	var launches []int64
	for i := range a.Events {
		if e := &a.Events[i]; e.Call() == traces.CallLaunch && a.inWindow(e) {
			launches = append(launches, e.Duration)
		}
	}
	if len(launches) > 0 {
		slow = max(slow, slowLaunch*stats.MedianOf(launches))
	}
	rows, idle := newTally(), int64(0)
	var list []window.Interval
	for i := range a.Events {
		e := &a.Events[i]
		if call := e.Call(); a.inWindow(e) && (call == traces.CallLoad || call == traces.CallLaunch && e.Duration >= slow) {
			list = append(list, window.Interval{From: e.Time, To: min(e.End(), a.table.Time.To)})
			rows.add(e.Name, e.Duration, e.Duration, 1)
		}
	}
	list = window.Union(list)
	for _, call := range list {
		idle += window.Covered(a.idle, call)
	}
	a.hint(idle, rows.rows("call"), "run passes before recording, in a range named 'warm-up', which tables leave out",
		"API calls that load modules or are far slower than others of their kind take %s ms, with the device idle in %s ms.",
		inMS(window.Length(list)), inMS(idle))
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

func imbalanceRule(a *advisor) {
	rows, mean, longest := newTally(), 0.0, 0.0
	for _, r := range a.table.Rows {
		if r.Kernels > r.Calls {
			mean, longest = mean+r.MeanThread, longest+r.LongestThread
			rows.add(a.rowName(&r), int64(r.LongestThread-r.MeanThread), int64(r.LongestThread), r.Calls)
		}
	}
	a.hint(int64(longest-mean), rows.rows("run"),
		"divide the work into more and smaller parts that threads take as they come, "+
			"use as many threads as there are free cores, and look for other work on them",
		"The slowest thread of a step takes %.2f times the mean of its threads: %s ms of %s ms are waiting for it.",
		longest/max(1, mean), inMS(int64(longest-mean)), inMS(int64(longest)))
}

func fewThreadsRule(a *advisor) {
	threads := map[traces.Lane]bool{}
	for _, p := range a.counted {
		threads[p.Lane] = true
	}
	rows, gain, time := newTally(), int64(0), int64(0)
	for _, r := range a.table.Rows {
		if all := r.Calls * len(threads); r.Kind == tables.RowWork && r.Kernels < all {
			lost := r.Exclusive * int64(all-r.Kernels) / int64(all)
			gain, time = gain+lost, time+r.Exclusive
			rows.add(a.rowName(&r), lost, r.Exclusive, r.Calls)
		}
	}
	a.hint(gain, rows.rows("run"), "divide these steps between the threads, or fuse them with a neighbour that is divided",
		"Of %d threads fewer have work in %s, which take %s ms.", len(threads), numberOf(rows.n, "step run"), inMS(time))
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

package judge

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"

	"gpt2scope/ceilings"
	"gpt2scope/internal/humanize"
	"gpt2scope/traces"
	"gpt2scope/traces/tables"
	"gpt2scope/traces/window"
)

// This file has the rules about how a program uses libraries and a framework. What a kernel of a
// library does is known only by its name.

var (
	productName = regexp.MustCompile(`(?i)gemm|gemv|nvjet|cutlass.*tensorop`)
	alignment   = regexp.MustCompile(`(?i)(?:_|\b)align[abc]?(\d+)(?:_|\b|$)`)
	halfName    = regexp.MustCompile(`(?i)bf16|f16|s16816|h16816|h1688|half|bfloat16|_hh|_bb`)
	float32Name = regexp.MustCompile(`(?i)(?:\b|_)sgem[mv]|simt_s|_ffma|f32f32_f32f32_f32|gemv\w*<(?:\w+, )*?float, float, float\b`)
	tensorName  = regexp.MustCompile(`(?i)tf32|tensorop|s1688|s16816|hmma|wgmma|gmma|nvjet|3xtf32|bf16`)
	elementwise = regexp.MustCompile(`elementwise_kernel`)
)

// unaligned reports whether the name of a product says that it reads its operands in parts
// smaller than 16 bytes, because a dimension is not divisible.
func unaligned(name string) bool {
	if !productName.MatchString(name) || strings.Contains(name, "simt") || strings.Contains(name, "ffma") {
		return false
	}
	size := 4
	if halfName.MatchString(name) {
		size = 2
	}
	for _, m := range alignment.FindAllStringSubmatch(name, -1) {
		if n, err := strconv.Atoi(m[1]); err == nil && n*size < wholeAccess {
			return true
		}
	}
	return false
}

// withoutTensorCores reports whether the name of a product says that it multiplies in float32
// without tensor cores.
func withoutTensorCores(name string) bool {
	return float32Name.MatchString(name) && !tensorName.MatchString(name)
}

// namedProducts reports products whose name says something. Bound: their time, at most what is
// above the floor.
func (a *advisor) namedProducts(is func(name string) bool, try, what string) {
	rows, gains := newTally(), map[stageKey]int64{}
	n, time := 0, int64(0)
	known := map[string]bool{}
	for _, p := range a.counted {
		if p.Kind != traces.KindKernel {
			continue
		}
		found, ok := known[p.Name]
		if !ok {
			found = is(p.Name)
			known[p.Name] = found
		}
		if !found {
			continue
		}
		n, time = n+1, time+p.own
		gains[a.keyOf(p.Event)] += p.own
		row := a.where(p.Event) + ": " + traces.ShortKernel(p.Name)
		if s := tables.ShapeOf(p.Event); s.Known() {
			row += " of " + numberOf(int(s.Blocks()), "block")
		}
		rows.add(row, p.own, p.own, 1)
	}
	a.hint(a.capped(gains), rows.rows("kernel"), try, "%s %s, in %s ms.", humanize.Count(n, "product", "products"),
		what, inMS(time))
}

func unalignedRule(a *advisor) {
	a.namedProducts(unaligned, "pad the dimension to a multiple of 8 (of 64 for a vocabulary): 50257 to 50304",
		"read fewer than 16 bytes at once, because a dimension is not divisible by 8")
}

func float32Rule(a *advisor) {
	a.namedProducts(withoutTensorCores, "multiply in bfloat16 or float16, or allow TF32 (torch.set_float32_matmul_precision('high')), if the results are exact enough", "in float32 without tensor cores")
}

func elementwiseRule(a *advisor) {
	rows := newTally()
	runs, kernels, gain := 0, 0, int64(0)
	var run []counted
	end := func() {
		if len(run) >= longRun {
			longest, sum := int64(0), int64(0)
			var names []string
			for i, p := range run {
				longest, sum = max(longest, p.own), sum+p.own
				if i > 0 {
					sum += p.before
				}
				names = append(names, cmp.Or(traces.Applies(p.Name), traces.ShortKernel(p.Name)))
			}
			runs, kernels, gain = runs+1, kernels+len(run), gain+sum-longest
			rows.add(fmt.Sprintf("%s: %d kernels in a row: %s", a.where(run[0].Event), len(run),
				strings.Join(names, ", ")), sum-longest, sum, 1)
		}
		run = run[:0]
	}
	for _, p := range a.counted {
		if p.Kind != traces.KindKernel || !elementwise.MatchString(p.Name) {
			end()
			continue
		}
		if n := len(run); n > 0 && (run[n-1].Lane != p.Lane || blocksOf(run[n-1].Event) != blocksOf(p.Event) ||
			a.PassOf(run[n-1].Event) != a.PassOf(p.Event)) {
			end()
		}
		run = append(run, p)
	}
	end()
	a.hint(gain, rows.rows("run"), "let a compiler fuse them (torch.compile), or use one operator for the whole formula, such as F.gelu(x, approximate='tanh')",
		"%s %s, where one kernel could do the work of a run.", humanize.Count(runs, "run", "runs"), fmt.Sprintf("of elementwise kernels (%s in all)", numberOf(kernels, "kernel")))
}

func blocksOf(e *traces.Event) int64 {
	s := tables.ShapeOf(e)
	return s.Blocks()
}

func smallCopiesRule(a *advisor) {
	rows, n, gain := newTally(), 0, int64(0)
	for _, p := range a.counted {
		if p.Kind != traces.KindMemcpy || p.Bytes <= 0 || p.Bytes > smallCopy {
			continue
		}
		n++
		lost := p.own + p.before
		gain += lost
		rows.add(fmt.Sprintf("%s of %s", p.Name, humanize.Size(p.Bytes)), lost, lost, 1)
	}
	if n < fewestSmall {
		return
	}
	a.hint(gain, rows.rows("copy"), "gather them into one copy, or make the values on the GPU",
		"%s at most %s: with the idle time before them they take %s ms.", humanize.Count(n, "copy has", "copies have"), humanize.Size(smallCopy), inMS(gain))
}

func frameworkRule(a *advisor) {
	type span struct {
		window.Interval
		name string
	}
	byThread := map[[2]int64][]span{} // the outermost operators
	for i := range a.Events {
		e := &a.Events[i]
		if e.Kind != traces.KindOp || e.Lane.Kind != traces.LaneThread {
			continue
		}
		key := [2]int64{a.Header.ProcessOf(e), e.Lane.ID}
		list := byThread[key]
		if n := len(list); n == 0 || list[n-1].To <= e.Time {
			byThread[key] = append(list, span{window.Interval{From: e.Time, To: e.End()}, e.Name})
		}
	}
	if len(byThread) == 0 {
		return
	}
	rows, inside, outside := newTally(), int64(0), int64(0)
	for _, g := range a.table.Gaps {
		late := int64(0)
		for _, c := range g.Causes {
			if c.Name == tables.IdleHost {
				late += c.Time
			}
		}
		if late == 0 || g.Next == nil {
			continue
		}
		call := a.CallOf(g.Next)
		if call == nil {
			continue
		}
		x := window.Interval{From: g.From, To: min(g.To, max(g.From, call.Time))}
		list := byThread[[2]int64{a.Header.ProcessOf(call), call.Lane.ID}]
		within := int64(0)
		for i := sort.Search(len(list), func(i int) bool { return list[i].To > x.From }); i < len(list) && list[i].From < x.To; i++ {
			ns := min(list[i].To, x.To) - max(list[i].From, x.From)
			within += ns
			rows.add("in "+list[i].name, ns, ns, 1)
		}
		within = min(within, late)
		inside, outside = inside+within, outside+late-within
	}
	if inside+outside == 0 {
		return
	}
	if outside > 0 {
		rows.add("outside all operators: the program itself", outside, outside, 0)
	}
	a.hint(inside+outside, rows.rows("gap"),
		"replay a CUDA graph (torch.cuda.graph), compile the model (torch.compile with mode='reduce-overhead'), or give each operator more work (a larger batch)",
		"The GPU waits for the framework: of the idle time in which the host is late, %s ms pass inside its operators and %s ms in the program between them.", inMS(inside), inMS(outside))
}

func divergenceRule(a *advisor) {
	rows, gains, n, time := newTally(), map[stageKey]int64{}, 0, int64(0)
	for _, p := range a.counted {
		efficiency, ok := p.Counters.Get(traces.CounterWarpEfficiency)
		if p.Kind != traces.KindKernel || !ok || efficiency >= lowEfficiency {
			continue
		}
		n, time = n+1, time+p.own
		gain := int64(float64(p.own) * (1 - efficiency/100))
		gains[a.keyOf(p.Event)] += gain
		rows.add(fmt.Sprintf("%s: %s with %.0f %%", a.where(p.Event), traces.ShortKernel(p.Name), efficiency), gain,
			p.own, 1)
	}
	a.hint(a.capped(gains), rows.rows("kernel"),
		"let the threads of a warp take the same branches, and give each as many elements as the others",
		"In %s fewer than %d %% of the threads of a warp are active, in %s ms.", numberOf(n, "kernel"), lowEfficiency, inMS(time))
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

// syncsInPasses returns how many calls that wait for the GPU lie within a pass: work of the pass
// is launched before and after them. per is how many there are in a pass, in the mean.
func (a *advisor) syncsInPasses() (n int, per float64) {
	passes := a.Steady().Passes
	if len(passes) == 0 {
		return 0, 0
	}
	passAt := func(time int64) int {
		i := sort.Search(len(passes), func(i int) bool { return passes[i].To > time })
		if i < len(passes) && passes[i].From <= time {
			return i
		}
		return -1
	}
	type launch struct {
		time int64
		pass int
	}
	var launches []launch
	for _, p := range a.counted {
		if call := a.CallOf(p.Event); call != nil {
			launches = append(launches, launch{call.Time, passAt(p.Time)})
		}
	}
	slices.SortFunc(launches, func(x, y launch) int { return cmp.Compare(x.time, y.time) })
	for i := range a.Events {
		e := &a.Events[i]
		if !e.Kind.IsCall() || e.Wait == traces.WaitNone || !a.inWindow(e) {
			continue
		}
		next := sort.Search(len(launches), func(i int) bool { return launches[i].time >= e.End() })
		if next > 0 && next < len(launches) && launches[next].pass >= 0 &&
			launches[next].pass == launches[next-1].pass {
			n++
		}
	}
	return n, float64(n) / float64(len(passes))
}

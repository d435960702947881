package window

import (
	"cmp"
	"maps"
	"slices"

	"gpt2scope/internal/stats"
	"gpt2scope/traces"
)

// Steady is the part of a recording in which its passes repeat, without what comes before:
// loading, and the passes of the warm-up.
type Steady struct {
	Interval            // from the start of the first of Passes to the end of the last; all work if none were found
	Passes   []Interval // in order, apart from each other
	WarmUp   []Interval // passes before them that are far longer
	Source   Source     // how the passes were found
}

// Source is how passes were found.
type Source string

const (
	FromRanges     Source = "ranges"     // the recording names its passes
	FromRepetition Source = "repetition" // of kernels by their names
	FromNothing    Source = ""           // no passes were found
)

const (
	fewestRepeats = 3   // passes that make a repetition
	sameKernels   = 0.9 // share of kernels that the next pass has too
	longLeading   = 1.5 // times the median of the passes after it: warm-up
	mostlyRegular = 0.7 // share of the distances between anchors that are about the period
	leastPart     = 4   // passes are at least this part of the recording
	mostAnchors   = 256 // that are compared
	mostWork      = 1 << 25
)

// Steady finds the passes of a recording and which of them are warm-up. Passes that the recording names are those of
// [Window.Passes]. In a recording without passes the sequence of kernel names repeats with a period, and each period is
// a pass; passes at the beginning that take more than 1.5 times the median of those after them are warm-up. A pass
// whose kernels have more blocks, such as that of a longer prompt, may take longer in proportion.
func (w *Window) Steady() Steady {
	if w.steady == nil {
		s := w.findSteady()
		w.steady = &s
	}
	return *w.steady
}

func (w *Window) findSteady() Steady {
	if len(w.Passes) > 0 {
		s := Steady{Interval: w.Span, Source: FromRanges}
		for _, p := range w.Passes {
			s.Passes = append(s.Passes, p.Time)
		}
		for _, e := range w.WarmUp {
			if e.Time < s.From {
				s.WarmUp = append(s.WarmUp, Interval{e.Time, e.End()})
			}
		}
		return s
	}
	times, blocks := w.repetition()
	if len(times) == 0 {
		return Steady{Interval: w.Whole()}
	}
	n := leading(times, blocks)
	return Steady{Interval{times[n].From, times[len(times)-1].To}, times[n:], times[:n], FromRepetition}
}

// leading returns how many passes at the beginning are far longer than those after them. blocks are
// those of the kernels of each pass; nil, or 0 for a pass, if they are not known.
func leading(times []Interval, blocks []int64) int {
	n := 0
	for ; len(times)-n > fewestRepeats; n++ {
		var rest []int64
		for _, x := range times[n+1:] {
			rest = append(rest, x.Length())
		}
		larger := 1.0
		if blocks != nil {
			larger = max(1, float64(blocks[n])/float64(max(1, stats.MedianOf(blocks[n+1:]))))
		}
		if float64(times[n].Length()) <= longLeading*larger*float64(stats.MedianOf(rest)) {
			break
		}
	}
	return n
}

// leadingWarmUp returns which of Passes are warm-up by their times, of each process. That is asked of recordings of
// other programs, which do not say what their warm-up is, and only if all passes are of one kind: the times of a
// prefill and a decode step, or of two prefills of different lengths, say nothing about each other.
func (w *Window) leadingWarmUp() map[*traces.Event]bool {
	if len(w.WarmUp) > 0 || w.Device < 0 {
		return nil
	}
	byProcess := map[int64][]*traces.Event{}
	for _, p := range w.Passes {
		if p.Event.Domain == traces.Domain || w.Header.Tool == traces.Domain ||
			w.PassName(p.Event) != w.PassName(w.Passes[0].Event) || p.Event.Plan != w.Passes[0].Event.Plan {
			return nil
		}
		process := w.Header.ProcessOf(p.Event)
		byProcess[process] = append(byProcess[process], p.Event)
	}
	early := map[*traces.Event]bool{}
	for _, passes := range byProcess {
		var times []Interval
		for i, e := range passes {
			x := Interval{e.Time, e.End()}
			if at := w.index[e]; len(byProcess) == 1 { // with the idle time before its work
				x = w.Passes[at].Time
			} else if i+1 < len(passes) { // the host may be ahead of the device
				x.To = max(x.To, passes[i+1].Time)
			}
			times = append(times, x)
		}
		for _, e := range passes[:leading(times, nil)] {
			early[e] = true
		}
	}
	return early
}

// repetition finds the passes of a recording by the names of its kernels. A pass begins so that
// as many as possible are whole, and where the device was idle longest, in the median over the
// passes: between passes the host works. blocks are those of the kernels of each pass.
func (w *Window) repetition() (passes []Interval, blocks []int64) {
	var kernels []*traces.Event
	var ids []int32
	known := map[string]int32{}
	process := w.busiestProcess()
	for _, e := range w.Work {
		if e.Kind != traces.KindKernel && e.Kind != traces.KindGraph || w.Header.ProcessOf(e) != process {
			continue
		}
		id, ok := known[e.Name]
		if !ok {
			id = int32(len(known))
			known[e.Name] = id
		}
		kernels, ids = append(kernels, e), append(ids, id)
	}
	anchors, period := findPeriod(ids)
	if period == 0 || betweenLayers(ids, anchors, period) {
		return nil, nil
	}
	// The idle time before each kernel.
	gaps, end := make([]int64, len(kernels)), kernels[0].End()
	for i, e := range kernels {
		gaps[i] = max(0, e.Time-end)
		end = max(end, e.End())
	}
	back, whole, longest := 0, -1, int64(-1)
	for offset := range period {
		var list []int64
		n := 0
		for j, a := range anchors {
			i := a - offset
			if i > 0 {
				list = append(list, gaps[i])
			}
			if i >= 0 && (j+1 < len(anchors) || i+period <= len(kernels)) {
				n++
			}
		}
		if median := stats.MedianOf(list); n > whole || n == whole && median > longest {
			back, whole, longest = offset, n, median
		}
	}
	var begins []int
	for _, a := range anchors {
		if i := a - back; i >= 0 {
			begins = append(begins, i)
		}
	}
	for i, from := range begins {
		to := from + period
		if i+1 < len(begins) {
			to = begins[i+1]
		} else if to = min(to, len(kernels)); to-from < period*9/10 {
			break // the last pass is cut off
		}
		x := Interval{kernels[from].Time, kernels[from].Time}
		sum := int64(0)
		for _, e := range kernels[from:to] {
			x.To = max(x.To, e.End())
			sum += int64(e.Grid[0]) * int64(max(1, e.Grid[1])) * int64(max(1, e.Grid[2]))
		}
		switch {
		case i+1 < len(begins): // the idle time after a pass is its own
			x.To = max(x.From, kernels[to].Time)
		case to == len(kernels): // copies of its results follow
			x.To = max(x.To, w.Whole().To)
		}
		passes, blocks = append(passes, x), append(blocks, sum)
	}
	if len(passes) < 2 {
		return nil, nil
	}
	return passes, blocks
}

// betweenLayers reports whether a period is that of layers, as of a recording of two passes: then some kernels run only
// where the anchors are farther apart than the period, and before the first or after the last, which are those before
// and after the layers.
func betweenLayers(ids []int32, anchors []int, period int) bool {
	regular := map[int32]bool{}
	for i := range anchors[1:] {
		if anchors[i+1]-anchors[i] <= period+period/20 {
			for _, id := range ids[anchors[i]:anchors[i+1]] {
				regular[id] = true
			}
		}
	}
	inner := map[int32]bool{}
	last := anchors[len(anchors)-1]
	for _, id := range ids[anchors[0]:last] {
		inner[id] = !regular[id]
	}
	return slices.ContainsFunc(slices.Concat(ids[:anchors[0]], ids[last:]), func(id int32) bool { return inner[id] })
}

// busiestProcess returns the process that ran the most kernels: the sequences of several
// processes on one device interleave by chance.
func (w *Window) busiestProcess() int64 {
	kernels := map[int64]int{}
	best := int64(0)
	for _, e := range w.Work {
		if e.Kind == traces.KindKernel || e.Kind == traces.KindGraph {
			p := w.Header.ProcessOf(e)
			if kernels[p]++; kernels[p] > kernels[best] {
				best = p
			}
		}
	}
	return best
}

// anchor is a kernel that recurs.
type anchor struct {
	at     []int // where it is
	period int   // the median distance
}

// findPeriod returns the number of kernels after which a sequence repeats, and where in each repetition a kernel stands
// that occurs once in it; 0 if there is none. Layers repeat too, more often than passes: the kernel that recurs regularly
// with the longest period is one before or after the layers.
func findPeriod(ids []int32) (anchors []int, period int) {
	n := len(ids)
	if n < 2*fewestRepeats || n > mostWork {
		return nil, 0
	}
	var best anchor
	all := anchorsOf(ids)
	for _, a := range all {
		if a.period > best.period && agreement(ids, a) >= sameKernels {
			best = a
		}
	}
	if best.period < 2 { // one kernel over and over
		return nil, 0
	}
	best = ofEach(ids, all, best)
	return best.at, best.period
}

// ofEach returns an anchor that is in each pass. The one that was found may be in every second or third
// pass only, such as a kernel that depends on whether the number of tokens is even; it is returned if
// no other anchor recurs two or three times as often.
func ofEach(ids []int32, anchors []anchor, found anchor) anchor {
	best := found
	for _, a := range anchors {
		for times := 2; times <= 3; times++ {
			off := found.period - times*a.period
			if a.period < best.period && 100*max(off, -off) <= found.period && agreement(ids, a) >= sameKernels {
				best = a
			}
		}
	}
	return best
}

// anchorsOf returns the kernels that recur regularly in a large part of the sequence and up to its end: one for each
// period and number of them, the earliest first.
func anchorsOf(ids []int32) []anchor {
	n := len(ids)
	places := map[int32][]int{}
	for i, id := range ids {
		places[id] = append(places[id], i)
	}
	byForm := map[[2]int]anchor{}
	for _, at := range places {
		if len(at) < fewestRepeats {
			continue
		}
		distances := make([]int, 0, len(at)-1)
		for i := range at[1:] {
			distances = append(distances, at[i+1]-at[i])
		}
		slices.Sort(distances)
		p := distances[len(distances)/2]
		slack, about := p/20, 0
		for _, d := range distances {
			if d >= p-slack && d <= p+slack {
				about++
			}
		}
		last := at[len(at)-1]
		if last+p-at[0] < n/leastPart || n-last > 2*p || float64(about) < mostlyRegular*float64(len(distances)) &&
			about < len(distances)-1 {
			continue
		}
		form := [2]int{p, len(at)}
		if old, ok := byForm[form]; !ok || at[0] < old.at[0] {
			byForm[form] = anchor{at: at, period: p}
		}
	}
	list := slices.SortedFunc(maps.Values(byForm), func(a, b anchor) int {
		return cmp.Or(cmp.Compare(len(b.at)*b.period, len(a.at)*a.period), cmp.Compare(a.period, b.period),
			cmp.Compare(a.at[0], b.at[0]))
	})
	return list[:min(len(list), mostAnchors)]
}

// agreement returns which share of the kernels between anchors also stand, in any order, between the next two anchors.
func agreement(ids []int32, a anchor) float64 {
	count := make([]int, slices.Max(ids)+1)
	shared, all := 0, 0
	for i := 0; i+2 < len(a.at); i++ {
		x, y := ids[a.at[i]:a.at[i+1]], ids[a.at[i+1]:a.at[i+2]]
		// Where an anchor is lost, two repetitions stand between those beside it.
		if 2*max(len(x), len(y)) > 3*a.period {
			continue
		}
		for _, id := range x {
			count[id]++
		}
		for _, id := range y {
			if count[id] > 0 {
				count[id]--
				shared++
			}
		}
		for _, id := range x {
			count[id] = 0
		}
		all += max(len(x), len(y))
	}
	return float64(shared) / float64(max(1, all))
}

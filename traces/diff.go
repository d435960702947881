package traces

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Verdict says what a comparison showed.
type Verdict string

// The verdicts.
const (
	Longer   Verdict = "longer"    // B takes longer than A
	Shorter  Verdict = "shorter"   // B takes less time than A
	NoChange Verdict = "no change" // the noise covers what change there is
	TooFew   Verdict = "too few"   // too few samples to tell
	OnlyInA  Verdict = "only in A"
	OnlyInB  Verdict = "only in B"
)

// ChangeKind tells the rows of a comparison apart.
type ChangeKind string

// The kinds of rows. Of each pass, the idle time, the steps and the other work make
// the whole.
const (
	ChangePass  ChangeKind = "pass"
	ChangeIdle  ChangeKind = "idle"
	ChangeStage ChangeKind = "stage"
	ChangeOther ChangeKind = "other" // kernels, copies and sets of no step, in the time of the pass
)

// Change is a row of a [Comparison]. Times are ns of one pass.
type Change struct {
	Kind  ChangeKind `json:"kind"`
	Phase string     `json:"phase"`
	Name  string     `json:"name"`

	A *Sample `json:"a,omitempty"` // nil where A has no such row
	B *Sample `json:"b,omitempty"`

	// Shift is the median of B less that of A. Low and High bound it with the
	// confidence 1 - alpha; nil where there are too few samples. Percent and its
	// bounds are the same in percent of A's median; nil where that is 0.
	Shift       float64  `json:"shift"`
	Low         *float64 `json:"low,omitempty"`
	High        *float64 `json:"high,omitempty"`
	Percent     *float64 `json:"percent,omitempty"`
	PercentLow  *float64 `json:"percentLow,omitempty"`
	PercentHigh *float64 `json:"percentHigh,omitempty"`

	// P is the probability of a difference like this where there is none, and
	// Adjusted the same corrected for the number of comparisons, by which the verdict
	// is made; nil where there are too few samples.
	P        *float64 `json:"p,omitempty"`
	Adjusted *float64 `json:"adjusted,omitempty"`
	Verdict  Verdict  `json:"verdict"`
}

// Comparison is what [Diff] makes of two traces.
type Comparison struct {
	A     string  `json:"a"` // where it comes from
	B     string  `json:"b"`
	Alpha float64 `json:"alpha"`
	Tests int     `json:"tests"` // comparisons that were made, of those that could be

	// Notes says in sentences why the traces can not be compared fairly.
	Notes []string `json:"notes"`
	Rows  []Change `json:"rows"`
}

// Diff compares two traces: per kind of pass the whole pass, its idle time, and its
// steps, which are matched by name, so that passes of different layers compare in
// what they share. alpha is the probability of a wrong verdict that is accepted,
// such as 0.05.
//
// # What is compared
//
// A sample is the times of one step in the passes of one trace: in each pass the
// time in which a kernel of the step (on the CPU, one of its worker threads) ran and
// nothing that began before it still did, which is the exclusive time of [Row]. A
// kernel that is launched early and waits for the one before it so is not longer for
// that. A whole pass is the time from the end of the work of the pass before it to the
// end of its own; the idle time is the part of that in which the device had nothing
// to do. Warm-up passes are left out, as [Summarize] does. Of a trace of several
// devices the first that worked is compared.
//
// # How
//
// The statistics are those of benchstat (golang.org/x/perf/benchmath): medians with
// intervals from order statistics, and the Mann-Whitney U test, which assumes no
// distribution. The interval of the change holds the shifts that the same test would
// not reject, so that it lies off zero where p is below alpha (but for ties, of which
// it takes no account, and the correction of p). Many rows are compared at once, and
// of a hundred with no change five would have p < 0.05: verdicts are made by p after
// the correction of Benjamini and Hochberg, so that of the changes that are told a
// share of at most alpha is expected to be chance. Where a sample has fewer than four
// values, or the test could not show a difference however large, there is no verdict.
//
// The samples are passes of one run each. What differs from run to run (clocks,
// placement, neighbours) is not in them: a change that is small should be seen in
// several pairs of recordings.
func Diff(a, b *Trace, alpha float64) (*Comparison, error) {
	if !(alpha > 0 && alpha < 1) {
		return nil, fmt.Errorf("alpha is %g; it must lie between 0 and 1", alpha)
	}
	pa, pb := passesOf(a, -1), passesOf(b, -1)
	for _, x := range []struct {
		name string
		p    *passList
	}{{"A", pa}, {"B", pb}} {
		if len(x.p.list) == 0 {
			return nil, fmt.Errorf("trace %s has no pass of a model that is no warm-up, so that there are no stages to compare", x.name)
		}
	}
	c := &Comparison{A: a.Header.Describe(), B: b.Header.Describe(), Alpha: alpha, Notes: unfair(pa, pb)}
	keysA, timesA := pa.table()
	keysB, timesB := pb.table()
	keys := append(slices.Clone(keysA), keysB...)
	// A phase at a time, in A's order: its passes, idle time and steps, then what only
	// B has.
	var phases []string
	for _, k := range keys {
		if !slices.Contains(phases, k.phase) {
			phases = append(phases, k.phase)
		}
	}
	shift := &shifts{alpha, map[[2]int]int{}}
	seen := map[changeKey]bool{}
	for _, phase := range phases {
		for _, k := range keys {
			if k.phase == phase && !seen[k] {
				seen[k] = true
				c.Rows = append(c.Rows, change(k, timesA[k], timesB[k], shift))
			}
		}
	}
	c.judge()
	return c, nil
}

// changeKey names a row.
type changeKey struct {
	kind        ChangeKind
	phase, name string
}

// table returns the samples of all rows, and their order.
func (p *passList) table() ([]changeKey, map[changeKey][]int64) {
	var keys []changeKey
	rows := map[changeKey][]int64{}
	add := func(k changeKey, values ...int64) {
		if rows[k] == nil {
			keys = append(keys, k)
		}
		rows[k] = append(rows[k], values...)
	}
	for _, l := range p.list {
		phase := p.phase(l.event)
		add(changeKey{ChangePass, phase, "whole pass"}, l.time.to-l.time.from)
		add(changeKey{ChangeIdle, phase, "idle"}, l.time.to-l.time.from-l.busy)
	}
	steps, times, _ := p.stepTimes()
	for _, s := range steps {
		k := changeKey{ChangeStage, s.phase, s.name}
		if s.name == "" {
			k = changeKey{ChangeOther, s.phase, "work of no step"}
		}
		add(k, times[s]...)
	}
	for _, list := range rows {
		slices.Sort(list)
	}
	return keys, rows
}

// phase names the kind of a pass.
func (p *passList) phase(e *Event) string {
	if e.Phase >= 0 && int(e.Phase) < len(p.Header.Plans) {
		return p.Header.Plans[e.Phase].Phase
	}
	return e.Name
}

// change compares the samples of a row, which are sorted. Its verdict is left to
// judge where it depends on the other rows.
func change(k changeKey, a, b []int64, s *shifts) Change {
	c := Change{Kind: k.kind, Phase: k.phase, Name: k.name}
	if len(a) > 0 {
		c.A = sampleOf(a, s.alpha)
	}
	if len(b) > 0 {
		c.B = sampleOf(b, s.alpha)
	}
	switch {
	case c.A == nil:
		c.Verdict = OnlyInB
		return c
	case c.B == nil:
		c.Verdict = OnlyInA
		return c
	}
	c.Shift = c.B.Median - c.A.Median
	percent := func(ns float64) *float64 {
		if c.A.Median == 0 {
			return nil
		}
		return finite(100 * ns / c.A.Median)
	}
	c.Percent = percent(c.Shift)
	if !enough(len(a), len(b), s.alpha) {
		c.Verdict = TooFew
		return c
	}
	p := pValue(a, b, s.alpha)
	c.P = &p
	if low, high, ok := s.interval(a, b); ok {
		c.Low, c.High = finite(float64(low)), finite(float64(high))
		c.PercentLow, c.PercentHigh = percent(float64(low)), percent(float64(high))
	}
	return c
}

// judge makes the verdicts of the rows that were tested.
func (c *Comparison) judge() {
	var p []float64
	for _, r := range c.Rows {
		if r.P != nil {
			p = append(p, *r.P)
		}
	}
	c.Tests = len(p)
	adjusted := adjust(p)
	for i := range c.Rows {
		r := &c.Rows[i]
		if r.P == nil {
			continue
		}
		r.Adjusted, adjusted = &adjusted[0], adjusted[1:]
		switch {
		case *r.Adjusted >= c.Alpha:
			r.Verdict = NoChange
		case r.lower():
			r.Verdict = Shorter
		default:
			r.Verdict = Longer
		}
	}
}

// lower tells the direction of a change. The medians may be equal where the
// distributions are not: then the interval tells.
func (r *Change) lower() bool {
	if r.Shift == 0 && r.Low != nil && r.High != nil {
		return *r.Low+*r.High < 0
	}
	return r.Shift < 0
}

// unfair says why two traces can not be compared fairly.
func unfair(a, b *passList) []string {
	var notes []string
	add := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	differ := func(what, x, y string) {
		if x != y {
			add("%s differs: %s in A, %s in B", what, orUnknown(x), orUnknown(y))
		}
	}
	for _, x := range []struct {
		name string
		p    *passList
	}{{"A", a}, {"B", b}} {
		for _, f := range Examine(x.p.Header, x.p.Attribution) {
			if f.Misleads {
				add("%s is incomplete: %s", x.name, f.Text)
			}
		}
		if _, _, lost := x.p.stepTimes(); lost > 0 {
			add("%s has work of steps (%d pieces) whose pass it does not tell, and which is left out", x.name, lost)
		}
	}
	if x, y := a.Header.Recorder, b.Header.Recorder; x != y {
		add("the recorder differs: %s in A, %s in B; each takes time of its own and bounds kernels in its own way", orUnknown(x), orUnknown(y))
	}
	differ("the device", a.deviceName(), b.deviceName())
	differ("the type of the matrix products", a.Header.DType, b.Header.DType)
	differ("the mode", a.mode(), b.mode())
	for _, phase := range a.phases() {
		pa, okA := a.plan(phase)
		pb, okB := b.plan(phase)
		if !okA || !okB {
			continue
		}
		number := func(what string, x, y int) {
			if x != y {
				add("%s: %s in A, %s in B", phase, countOf(x, what), countOf(y, what))
			}
		}
		number("sequence", pa.Batch, pb.Batch)
		number("token", pa.Tokens, pb.Tokens)
		if pa.Padded != pb.Padded {
			add("%s: %s in A, %s in B", phase, padding(pa), padding(pb))
		}
		number("layer", layers(pa), layers(pb))
		fromA, toA, okA := a.positions(phase)
		fromB, toB, okB := b.positions(phase)
		if okA && okB && (fromA != fromB || toA != toB) {
			add("%s: A has passes at positions %d to %d, B at %d to %d; attention takes longer the more tokens lie before", phase, fromA, toA, fromB, toB)
		}
		x, okA := a.looking(phase)
		y, okB := b.looking(phase)
		if okA && okB && math.Abs(x-y) >= 1 {
			add("%s: recording made a pass %s in A, %s in B", phase, longer(x), longer(y))
		}
	}
	for _, what := range slices.Sorted(keys(a.Header.Versions)) {
		// Schemas are the exporter's; the mode stands above, by what ran.
		if y, ok := b.Header.Versions[what]; ok && what != "schema" && (what != "mode" || a.mode() == b.mode()) {
			differ(versionOf(what), a.Header.Versions[what], y)
		}
	}
	return notes
}

// versionOf names an entry of the header's versions, some of which are none.
func versionOf(what string) string {
	if what == "mode" || what == "model" {
		return "the " + what
	}
	return "the version of " + what
}

func orUnknown(s string) string {
	if s == "" {
		return "unknown"
	}
	return s
}

// countOf writes a number of things, of which 0 stands for an unknown number.
func countOf(n int, thing string) string {
	switch n {
	case 0:
		return "an unknown number of " + thing + "s"
	case 1:
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

func padding(p *Plan) string {
	if p.Padded == 0 {
		return "no padding"
	}
	return fmt.Sprintf("%d tokens padded to %d", p.Tokens, p.Padded)
}

// deviceName names the device whose work is compared.
func (p *passList) deviceName() string {
	if p.device < 0 {
		return "CPU"
	}
	for _, d := range p.Header.Devices {
		if d.ID == int(p.device) {
			return d.Name
		}
	}
	return ""
}

// mode says how work came to the device.
func (p *passList) mode() string {
	switch {
	case p.device < 0:
		return "CPU"
	case p.GraphLaunches > 0 || slices.ContainsFunc(p.work, func(e *Event) bool { return e.Node != 0 || e.Kind == KindGraph }):
		return "CUDA graphs"
	}
	return "eager"
}

// phases names the kinds of passes there are.
func (p *passList) phases() []string {
	var names []string
	for _, l := range p.list {
		if name := p.phase(l.event); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// plan returns the plan of the first pass of a kind.
func (p *passList) plan(phase string) (*Plan, bool) {
	for _, l := range p.list {
		if i := int(l.event.Phase); i >= 0 && i < len(p.Header.Plans) && p.phase(l.event) == phase {
			return &p.Header.Plans[i], true
		}
	}
	return nil, false
}

// layers counts the layers that a plan runs.
func layers(p *Plan) int {
	slots := map[int]bool{}
	for _, s := range p.Steps {
		if s.Slot >= 0 {
			slots[s.Slot] = true
		}
	}
	return len(slots)
}

// positions returns where the passes of a kind begin, in tokens of the cache. Other
// tools' ranges have other values, if any.
func (p *passList) positions(phase string) (from, to int, ok bool) {
	if !strings.EqualFold(p.Header.Tool, Domain) {
		return 0, 0, false
	}
	for _, l := range p.list {
		if v := l.event.Value; p.phase(l.event) == phase && v >= 0 && v < 1<<31 {
			if !ok {
				from, to, ok = int(v), int(v), true
			}
			from, to = min(from, int(v)), max(to, int(v))
		}
	}
	return from, to, ok
}

// looking returns by how many percent recording made a pass longer, at least 0, and
// whether that is known.
func (p *passList) looking(phase string) (percent float64, ok bool) {
	for _, l := range p.Header.Looking {
		if percent, ok = l.Longer(); ok && l.Phase == phase {
			return max(0, percent), true
		}
	}
	return 0, false
}

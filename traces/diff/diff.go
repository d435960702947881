// Package diff compares two traces stage by stage and tests whether a change is noise.
package diff

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"gpt2scope/traces"
	"gpt2scope/traces/window"
)

// Verdict says what a comparison showed.
type Verdict string

// The verdicts.
const (
	Longer   Verdict = "longer"    // B takes longer than A
	Shorter  Verdict = "shorter"   // B takes less time than A
	NoChange Verdict = "no change" // any change is within the noise
	TooFew   Verdict = "too few"   // too few samples to tell
	OnlyInA  Verdict = "only in A"
	OnlyInB  Verdict = "only in B"
)

// ChangeKind distinguishes the rows of a comparison.
type ChangeKind string

// The kinds of rows. The idle time, the stages and the other work of a pass sum to the
// whole pass.
const (
	ChangePass  ChangeKind = "pass"
	ChangeIdle  ChangeKind = "idle"
	ChangeStage ChangeKind = "stage"
	ChangeOther ChangeKind = "other" // kernels, copies and sets of no step, in the time of the pass; without stages, copies and sets

	// Of a comparison without stages; their times do not sum to anything.
	ChangeOp     ChangeKind = "op"     // operators of a framework
	ChangeKernel ChangeKind = "kernel" // kernels of a name
)

// Change is a row of a [Comparison]. Times are in ns per pass.
type Change struct {
	Kind  ChangeKind `json:"kind"`
	Phase string     `json:"phase"`
	Name  string     `json:"name"`

	A *Sample `json:"a,omitempty"` // nil if A has no such row
	B *Sample `json:"b,omitempty"`

	// Shift is the median of B minus the median of A. Low and High are its confidence
	// interval for the level 1 - alpha; nil if there are too few samples. Percent and its
	// interval are the same in percent of A's median; nil if that is 0.
	Shift       float64  `json:"shift"`
	Low         *float64 `json:"low,omitempty"`
	High        *float64 `json:"high,omitempty"`
	Percent     *float64 `json:"percent,omitempty"`
	PercentLow  *float64 `json:"percent_low,omitempty"`
	PercentHigh *float64 `json:"percent_high,omitempty"`

	// P is the probability of such a difference by chance alone. Adjusted is P corrected
	// for the number of comparisons; it decides the verdict. Both are nil if there are too
	// few samples.
	P        *float64 `json:"p,omitempty"`
	Adjusted *float64 `json:"adjusted,omitempty"`
	Verdict  Verdict  `json:"verdict"`
}

// Comparison is the result of [Compare].
type Comparison struct {
	A  string `json:"a"` // where it comes from
	B  string `json:"b"`
	By By     `json:"by"`

	// Instead says why the rows are not those that were asked for: a trace has no stages.
	Instead string `json:"instead,omitempty"`

	Alpha float64 `json:"alpha"`
	Tests int     `json:"tests"` // rows with enough samples for a test

	// Notes says in sentences why the traces cannot be compared fairly.
	Notes []string `json:"notes"`
	Rows  []Change `json:"rows"`
}

// By is what the rows of a comparison are, besides whole passes and idle time.
type By string

// The rows there are.
const (
	ByFolded By = "folded" // stages, those of all layers together
	ByStage  By = "stage"  // stages of each layer
	ByLayer  By = "layer"  // layers
	ByOp     By = "op"     // operations: "Linear"; without stages, the operators of a framework
	ByKernel By = "kernel" // kernels of a name, in the whole recordings
)

// Bys are all kinds of rows.
var Bys = []By{ByFolded, ByStage, ByLayer, ByOp, ByKernel}

// Compare compares two traces: for each kind of pass the whole pass, its idle time, and its
// steps, summed as by says. Rows are matched by name. So passes with different layers compare
// in the layers that they share: a folded row sums these, and another row those that only one
// trace has. alpha, such as 0.05, is the accepted probability of a wrong verdict.
//
// # What is compared
//
// A sample is the times of one step in the passes of one trace. The time of a step in a
// pass is its exclusive time as in [tables.Row]: a kernel of the step (on the CPU, a worker
// thread) runs, and nothing that began earlier is still running. So a kernel that is
// launched early and waits for the kernel before it does not get longer by waiting. A whole
// pass is the time from the end of the work of the previous pass to the end of its own
// work; idle time is the part of it in which the device does nothing. Warm-up passes are
// excluded, as in [tables.Summarize]. For a trace of several devices, the first that worked
// is compared.
//
// # How
//
// The statistics are those of benchstat (golang.org/x/perf/benchmath): medians with
// intervals from order statistics, and the Mann-Whitney U test, which assumes no
// distribution. The interval of the change contains the shifts that the same test would
// not reject, so it excludes zero if p is below alpha. (The interval ignores ties and the
// correction of p.) Many rows are compared at once: of a hundred rows without a change, five
// would have p < 0.05. Verdicts therefore use p after the correction of Benjamini and
// Hochberg, so at most a share alpha of the reported changes is expected to be chance.
// There is no verdict if a sample has fewer than four values, or if the samples are so
// small that the test could not reject.
//
// Each sample comes from the passes of one run. Differences between runs (clocks,
// placement, neighbours) are not in it: confirm a small change with several pairs of
// recordings.
//
// # Traces without stages
//
// If a trace has no passes, or the two have no kind of pass in common, the rows are the operators
// of a framework if both have them, otherwise the kernels by name, over the whole recordings;
// [Comparison.Instead] says so.
func Compare(a, b *traces.Trace, by By, alpha float64) (*Comparison, error) {
	if !slices.Contains(Bys, by) {
		return nil, fmt.Errorf("there is no comparison by %q", by)
	}
	if !(alpha > 0 && alpha < 1) {
		return nil, fmt.Errorf("alpha is %g; it must lie between 0 and 1", alpha)
	}
	pa, pb := side{window.New(a, -1)}, side{window.New(b, -1)}
	c := &Comparison{A: a.Header.Describe(), B: b.Header.Describe(), By: by, Alpha: alpha, Notes: unfair(pa, pb)}
	var keysA, keysB []changeKey
	var timesA, timesB map[changeKey][]int64
	if why := whyLoose(pa, pb); why != "" || by == ByKernel {
		c.By, keysA, keysB, timesA, timesB = loosely(by, pa, pb)
		if len(keysA)+len(keysB) == 0 {
			return nil, fmt.Errorf("neither trace has work of a GPU or operators of a framework to compare")
		}
		if c.By != by {
			c.Instead = fmt.Sprintf("%s, so that there are no stages to compare: the rows are by %s", why, c.By)
		}
	} else {
		keysA, timesA = pa.table(rowNames(by, pa, pb))
		keysB, timesB = pb.table(rowNames(by, pb, pa))
	}
	keys := append(slices.Clone(keysA), keysB...)
	// Rows are grouped by phase, in A's order: passes, idle time and steps, then the rows
	// that only B has.
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

// side is one of the two traces.
type side struct{ *window.Window }

// changeKey names a row.
type changeKey struct {
	kind        ChangeKind
	phase, name string
}

// rowNames returns what names the row of a step of a side, compared with another. "" is the
// step of work that has none.
func rowNames(by By, of, other side) func(phase string, s traces.Step) string {
	switch by {
	case ByLayer:
		return func(_ string, s traces.Step) string {
			switch {
			case s.Name == "":
				return ""
			case s.Layer < 0:
				return "outside the layers"
			}
			return fmt.Sprintf("h.%d", s.Layer)
		}
	case ByOp:
		return func(_ string, s traces.Step) string { return cmp.Or(s.Op, s.Name) }
	case ByFolded:
		names := folded(of.steps(), other.steps())
		return func(phase string, s traces.Step) string { return names[stepKey{phase, s.Name}] }
	}
	return func(_ string, s traces.Step) string { return s.Name }
}

// folded names the rows of steps that are summed over layers: apart for layers that the
// other trace has as well and for those that it has not.
func folded(steps, other []stepKey) map[stepKey]string {
	group := func(k stepKey) stepKey {
		name := traces.InAnyLayer(k.name)
		if name != k.name && !slices.Contains(other, k) {
			name += " of other layers"
		}
		return stepKey{k.phase, name}
	}
	sizes := map[stepKey]int{}
	for _, k := range steps {
		sizes[group(k)]++
	}
	names := map[stepKey]string{}
	for _, k := range steps {
		if names[k] = k.name; sizes[group(k)] > 1 {
			names[k] = group(k).name
		}
	}
	return names
}

// steps lists the steps of the plans.
func (p side) steps() []stepKey {
	var keys []stepKey
	for _, plan := range p.Header.Plans {
		for _, s := range plan.Steps {
			if k := (stepKey{plan.Phase, s.Name}); !slices.Contains(keys, k) {
				keys = append(keys, k)
			}
		}
	}
	return keys
}

// table returns the samples of all rows, and their order.
func (p side) table(name func(phase string, s traces.Step) string) ([]changeKey, map[changeKey][]int64) {
	var keys []changeKey
	rows := map[changeKey][]int64{}
	add := func(k changeKey, values ...int64) {
		if rows[k] == nil {
			keys = append(keys, k)
		}
		rows[k] = append(rows[k], values...)
	}
	for _, l := range p.Passes {
		phase := p.PassName(l.Event)
		add(changeKey{ChangePass, phase, "whole pass"}, l.Time.Length())
		add(changeKey{ChangeIdle, phase, "idle"}, l.Time.Length()-l.Busy)
	}
	steps, times, _ := p.stepTimes(name)
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

// change compares the samples of a row, which are sorted. judge sets the verdicts that
// depend on the other rows.
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

// lower reports whether B takes less time. If the medians are equal although the
// distributions differ, the interval decides.
func (r *Change) lower() bool {
	if r.Shift == 0 && r.Low != nil && r.High != nil {
		return *r.Low+*r.High < 0
	}
	return r.Shift < 0
}

// unfair lists the reasons why two traces cannot be compared fairly.
func unfair(a, b side) []string {
	var notes []string
	add := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	differ := func(what, x, y string) {
		if x != y {
			add("%s differs: %s in A, %s in B", what, orUnknown(x), orUnknown(y))
		}
	}
	for _, x := range []struct {
		name string
		p    side
	}{{"A", a}, {"B", b}} {
		for _, f := range traces.Examine(x.p.Header, x.p.Attribution) {
			if f.Misleads {
				add("%s: %s", x.name, f.Text)
			}
		}
		if _, _, lost := x.p.stepTimes(rowNames(ByStage, x.p, x.p)); lost > 0 {
			add("%s has work of steps (%d kernels) whose pass is not recorded; it is not compared", x.name, lost)
		}
	}
	if x, y := a.Header.Recorder, b.Header.Recorder; x != y {
		add("the recorder differs: %s in A, %s in B; each has its own overhead and its own start and end of a kernel",
			orUnknown(x), orUnknown(y))
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
			add("%s: A has passes at positions %d to %d, B at %d to %d; attention takes longer after more tokens",
				phase, fromA, toA, fromB, toB)
		}
		x, okA := a.overhead(phase)
		y, okB := b.overhead(phase)
		if okA && okB && math.Abs(x-y) >= 1 {
			add("%s: recording made a pass %s in A, %s in B", phase, traces.LongerText(x), traces.LongerText(y))
		}
	}
	for _, what := range slices.Sorted(maps.Keys(a.Header.Versions)) {
		// The schema is that of the exporter, and each trace of Kineto has an id of its own. The
		// mode was compared above, by what ran.
		if y, ok := b.Header.Versions[what]; ok && what != "schema" && what != "trace_id" &&
			(what != "mode" || a.mode() == b.mode()) {
			differ(versionOf(what), a.Header.Versions[what], y)
		}
	}
	return notes
}

// versionOf names an entry of the header's versions; mode and model are not versions.
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

// countOf writes a number of things; 0 is an unknown number.
func countOf(n int, thing string) string {
	switch n {
	case 0:
		return "an unknown number of " + thing + "s"
	case 1:
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

func padding(p *traces.Plan) string {
	if p.Padded == 0 {
		return "no padding"
	}
	return fmt.Sprintf("%d tokens padded to %d", p.Tokens, p.Padded)
}

// deviceName names the device whose work is compared.
func (p side) deviceName() string {
	if p.Device < 0 {
		return "CPU"
	}
	for _, d := range p.Header.Devices {
		if d.ID == int(p.Device) {
			return d.Name
		}
	}
	return ""
}

// mode says how work came to the device.
func (p side) mode() string {
	switch {
	case p.Device < 0:
		return "CPU"
	case p.GraphLaunches > 0 || slices.ContainsFunc(p.Work, func(e *traces.Event) bool { return e.Node != 0 || e.Kind == traces.KindGraph }):
		return "CUDA graphs"
	}
	return "eager"
}

// phases names the kinds of passes there are.
func (p side) phases() []string {
	var names []string
	for _, l := range p.Passes {
		if name := p.PassName(l.Event); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// plan returns the plan of the first pass of a kind.
func (p side) plan(phase string) (*traces.Plan, bool) {
	for _, l := range p.Passes {
		if i := int(l.Event.Plan); i >= 0 && i < len(p.Header.Plans) && p.PassName(l.Event) == phase {
			return &p.Header.Plans[i], true
		}
	}
	return nil, false
}

// layers counts the layers that a plan runs.
func layers(p *traces.Plan) int {
	slots := map[int]bool{}
	for _, s := range p.Steps {
		if s.Slot >= 0 {
			slots[s.Slot] = true
		}
	}
	return len(slots)
}

// positions returns the least and greatest position of the passes of a kind, in tokens of
// the cache. ok is false for other tools, whose ranges have other values.
func (p side) positions(phase string) (from, to int, ok bool) {
	if !strings.EqualFold(p.Header.Tool, traces.Domain) {
		return 0, 0, false
	}
	for _, l := range p.Passes {
		if v := l.Event.Value; p.PassName(l.Event) == phase && v >= 0 && v < 1<<31 {
			if !ok {
				from, to, ok = int(v), int(v), true
			}
			from, to = min(from, int(v)), max(to, int(v))
		}
	}
	return from, to, ok
}

// overhead returns by how many percent recording made a pass longer, at least 0, and
// whether that is known.
func (p side) overhead(phase string) (percent float64, ok bool) {
	for _, l := range p.Header.Overhead {
		if percent, ok = l.Longer(); ok && l.Phase == phase {
			return max(0, percent), true
		}
	}
	return 0, false
}

// stepKey names a step or row of a kind of pass; "" is the work of no step.
type stepKey struct{ phase, name string }

// stepTimes returns the exclusive times of each row of steps, one for each pass that ran one,
// and the number of kernels whose step is known but whose pass is not recorded. Rows are in
// the order of the plans.
func (p side) stepTimes(name func(phase string, s traces.Step) string) (order []stepKey, times map[stepKey][]int64,
	lost int) {
	if len(p.Passes) == 0 {
		return nil, nil, 0
	}
	type at struct {
		key  stepKey
		pass int
	}
	var found []at
	sums := map[at]int64{}
	p.Sweep(window.Interval{From: p.Passes[0].Time.From, To: traces.MaxTime},
		func(e, _ *traces.Event, _, own window.Interval) {
			step, ok := p.Header.Step(e)
			owner := p.PassOf(e)
			if owner == nil && !ok {
				owner = p.PassDuring(own) // work of no pass
			}
			switch {
			case owner == nil && ok:
				lost++
			case owner == nil || e.Open:
			default:
				i, measured := p.PassIndex(owner)
				if !measured {
					return
				}
				phase := p.PassName(owner)
				k := at{stepKey{phase, name(phase, step)}, i}
				if _, ok := sums[k]; !ok {
					found = append(found, k)
				}
				sums[k] += own.Length()
			}
		})
	times = map[stepKey][]int64{}
	for _, k := range found {
		times[k.key] = append(times[k.key], sums[k])
	}
	seen := map[stepKey]bool{}
	add := func(key stepKey) {
		if times[key] != nil && !seen[key] {
			seen[key] = true
			order = append(order, key)
		}
	}
	for _, plan := range p.Header.Plans {
		for _, step := range plan.Steps {
			add(stepKey{plan.Phase, name(plan.Phase, step)})
		}
		add(stepKey{plan.Phase, ""})
	}
	for _, k := range found { // of passes that name no plan
		add(k.key)
	}
	return order, times, lost
}

// Package diff compares two traces stage by stage and tests whether a change is noise.
package diff

import (
	"cmp"
	"fmt"
	"slices"

	"gpt2scope/internal/humanize"
	"gpt2scope/traces"
	"gpt2scope/traces/tables"
	"gpt2scope/traces/window"
)

// Verdict says what a comparison showed.
type Verdict string

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

// The kinds of rows. The idle time, the stages and the other work of a pass sum to the whole pass.
const (
	ChangePass  ChangeKind = "pass"
	ChangeIdle  ChangeKind = "idle"
	ChangeStage ChangeKind = "stage"
	// ChangeOther is kernels, copies and sets of no step, in the time of the pass; without stages, copies and sets.
	ChangeOther ChangeKind = "other"

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

	Shift   float64  `json:"shift"`             // the median of B minus the median of A
	Percent *float64 `json:"percent,omitempty"` // the same in percent of A's median; nil if that is 0

	// P is the probability of such a difference by chance alone. Adjusted is P corrected for the number of comparisons;
	// it decides the verdict. Both are nil if there are too few samples.
	P        *float64 `json:"p,omitempty"`
	Adjusted *float64 `json:"adjusted,omitempty"`
	Verdict  Verdict  `json:"verdict"`
}

// Comparison is the result of [Compare].
type Comparison struct {
	FileA string    `json:"file_a"` // as the user names them
	FileB string    `json:"file_b"`
	A     string    `json:"a"` // what recorded what, on which device
	B     string    `json:"b"`
	By    tables.By `json:"by"`

	// Instead says why the rows are not those that were asked for: a trace has no stages.
	Instead string `json:"instead,omitempty"`

	Alpha float64 `json:"alpha"`
	Tests int     `json:"tests"` // rows with enough samples for a test

	// Notes says in sentences why the traces cannot be compared fairly.
	Notes []string `json:"notes"`
	Rows  []Change `json:"rows"`
}

// Bys are what the rows of a comparison may be, besides whole passes and idle time. By op they are, without stages, the
// operators of a framework, and by kernel those of a name, in the whole recordings.
var Bys = []tables.By{tables.ByFolded, tables.ByStage, tables.ByLayer, tables.ByOp, tables.ByKernel}

// Compare compares two traces: for each kind of pass the whole pass, its idle time, and its steps, summed as by says.
// Rows are matched by name. A sample is the exclusive times of a row, as in [tables.Row], in the passes of one trace
// after its warm-up, on one device; gpu -1 is the first that worked. alpha, such as 0.05, is the accepted share of
// wrong verdicts.
//
// The statistics are those of benchstat (golang.org/x/perf/benchmath): medians with intervals from order statistics,
// and the Mann-Whitney U test, which assumes no distribution. Of a hundred rows without a change five would have
// p < 0.05, so verdicts use p after the correction of Benjamini and Hochberg.
//
// If a trace has no passes, or the two have no kind of pass in common, the rows are the operators of a framework if
// both have them, otherwise the kernels by name, over the whole recordings; [Comparison.Instead] says so.
func Compare(a, b *traces.Trace, by tables.By, alpha float64, gpu int32) (*Comparison, error) {
	if !slices.Contains(Bys, by) {
		return nil, fmt.Errorf("there is no comparison by %q", by)
	}
	if !(alpha > 0 && alpha < 1) {
		return nil, fmt.Errorf("alpha is %g; it must lie between 0 and 1", alpha)
	}
	pa, pb := side{window.New(a, gpu)}, side{window.New(b, gpu)}
	c := &Comparison{A: a.Header.Describe(), B: b.Header.Describe(), By: by, Alpha: alpha, Notes: unfair(pa, pb)}
	var inA, inB *samples
	if why := whyLoose(pa, pb); why != "" || by == tables.ByKernel {
		c.By, inA, inB = loosely(by, pa, pb)
		if len(inA.keys)+len(inB.keys) == 0 {
			return nil, fmt.Errorf("neither trace has work of a GPU or operators of a framework to compare")
		}
		if c.By != by {
			c.Instead = fmt.Sprintf("%s, so that there are no stages to compare: the rows are by %s", why, c.By)
		}
	} else {
		inA, inB = pa.stages(rowNames(by, pa, pb)), pb.stages(rowNames(by, pb, pa))
		for i, s := range []*samples{inA, inB} {
			if s.lost > 0 {
				c.Notes = append(c.Notes, fmt.Sprintf("%s has work of steps (%s) whose pass is not recorded; "+
					"it is not compared", sideNames[i], humanize.Count(s.lost, "kernel", "kernels")))
			}
		}
	}
	// Rows are grouped by phase, in A's order, then those that only B has.
	keys := append(slices.Clone(inA.keys), inB.keys...)
	var phases []string
	for _, k := range keys {
		if !slices.Contains(phases, k.phase) {
			phases = append(phases, k.phase)
		}
	}
	seen := map[changeKey]bool{}
	for _, phase := range phases {
		for _, k := range keys {
			if k.phase == phase && !seen[k] {
				seen[k] = true
				c.Rows = append(c.Rows, change(k, inA.times[k], inB.times[k], alpha))
			}
		}
	}
	c.judge()
	return c, nil
}

// Over returns the passes and stages, or without them the operators and kernels, that take longer by more than so many
// percent, and not by chance.
func (c *Comparison) Over(percent float64) (over []Change) {
	for _, r := range c.Rows {
		if r.Verdict == Longer && r.Kind != ChangeIdle && (r.Percent == nil || *r.Percent > percent) {
			over = append(over, r)
		}
	}
	return over
}

// side is one of the two traces.
type side struct{ *window.Window }

var sideNames = []string{"A", "B"}

// changeKey names a row.
type changeKey struct {
	kind        ChangeKind
	phase, name string
}

// samples are the rows of one trace, in order, with their times.
type samples struct {
	keys  []changeKey
	times map[changeKey][]int64
	lost  int // kernels whose step is known but whose pass is not recorded
}

func (s *samples) add(k changeKey, values ...int64) {
	if s.times[k] == nil {
		s.keys = append(s.keys, k)
	}
	s.times[k] = append(s.times[k], values...)
}

// rowNames returns what names the row of a step of a side, compared with another. "" is the step of work that has none.
func rowNames(by tables.By, of, other side) func(phase string, s traces.Step) string {
	switch by {
	case tables.ByLayer:
		return func(_ string, s traces.Step) string {
			switch {
			case s.Name == "":
				return ""
			case s.Layer < 0:
				return "outside the layers"
			}
			return fmt.Sprintf("h.%d", s.Layer)
		}
	case tables.ByOp:
		return func(_ string, s traces.Step) string { return cmp.Or(s.Op, s.Name) }
	case tables.ByFolded:
		names := folded(of.steps(), other.steps())
		return func(phase string, s traces.Step) string { return names[stepKey{phase, s.Name}] }
	}
	return func(_ string, s traces.Step) string { return s.Name }
}

// stepKey names a step of a kind of pass.
type stepKey struct{ phase, name string }

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

// stages returns the times of whole passes, of their idle time, and of the rows of their steps in the order of the
// plans: the exclusive time in each pass that ran one.
func (p side) stages(name func(phase string, s traces.Step) string) *samples {
	rows := &samples{times: map[changeKey][]int64{}}
	for _, l := range p.Passes {
		phase := p.PassName(l.Event)
		rows.add(changeKey{ChangePass, phase, "whole pass"}, l.Time.Length())
		rows.add(changeKey{ChangeIdle, phase, "idle"}, l.Time.Length()-l.Busy)
	}
	if len(p.Passes) == 0 {
		return rows
	}
	key := func(phase string, step traces.Step) changeKey {
		if name := name(phase, step); name != "" {
			return changeKey{ChangeStage, phase, name}
		}
		return changeKey{ChangeOther, phase, "work of no step"}
	}
	type at struct {
		key  changeKey
		pass int
	}
	var found []at
	sums := map[at]int64{}
	p.Sweep(window.Interval{From: p.Passes[0].Time.From, To: traces.MaxTime},
		func(e, _ *traces.Event, _, own window.Interval) {
			step, ok := p.Header.Step(e)
			pass := p.PassOf(e)
			if pass == nil && !ok {
				pass = p.PassDuring(own) // work of no pass
			}
			if pass == nil && ok {
				rows.lost++
			}
			i, measured := p.PassIndex(pass)
			if pass == nil || !measured || e.Open {
				return
			}
			k := at{key(p.PassName(pass), step), i}
			if _, ok := sums[k]; !ok {
				found = append(found, k)
			}
			sums[k] += own.Length()
		})
	times := map[changeKey][]int64{}
	for _, k := range found {
		times[k.key] = append(times[k.key], sums[k])
	}
	add := func(k changeKey) {
		if times[k] != nil && rows.times[k] == nil {
			rows.add(k, times[k]...)
		}
	}
	for _, plan := range p.Header.Plans {
		for _, step := range plan.Steps {
			add(key(plan.Phase, step))
		}
		add(key(plan.Phase, traces.Step{}))
	}
	for _, k := range found { // of passes that name no plan
		add(k.key)
	}
	return rows
}

// change compares the samples of a row. judge sets the verdicts that depend on the other rows.
func change(k changeKey, a, b []int64, alpha float64) Change {
	c := Change{Kind: k.kind, Phase: k.phase, Name: k.name, A: sampleOf(a, alpha), B: sampleOf(b, alpha)}
	switch {
	case c.A == nil:
		c.Verdict = OnlyInB
		return c
	case c.B == nil:
		c.Verdict = OnlyInA
		return c
	}
	c.Shift = c.B.Median - c.A.Median
	if c.A.Median != 0 {
		c.Percent = finite(100 * c.Shift / c.A.Median)
	}
	if c.Verdict = TooFew; enough(len(a), len(b), alpha) {
		p := pValue(a, b, alpha)
		c.P = &p
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
		case *r.Adjusted >= c.Alpha || r.Shift == 0:
			r.Verdict = NoChange
		case r.Shift < 0:
			r.Verdict = Shorter
		default:
			r.Verdict = Longer
		}
	}
}

// Package judge says what to make of a recording: whether its shares of time can be trusted
// ([TrustOf]), what its indicators answer ([Measure]), and which bottlenecks it has ([Advise]),
// each with the most that removing its cause could gain. Rules and questions are rows of tables.
package judge

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"gpt2scope/internal/humanize"
	"gpt2scope/traces"
	"gpt2scope/traces/tables"
	"gpt2scope/traces/window"
)

// Hint is a bottleneck that a rule of [Advise] found.
type Hint struct {
	Rule string   `json:"rule"`
	Text string   `json:"text"` // a sentence with the numbers
	Rows []string `json:"rows"` // where: those that matter most
	Try  string   `json:"try"`

	// Gain is the most, in ns of the wall time, that removing the cause could gain: a bound, not a forecast. Percent is
	// the same in percent of the wall time; nil if the trace is incomplete.
	Gain    int64    `json:"gain"`
	Percent *float64 `json:"percent"`
}

// Trust is what [TrustOf] says: the one place where it is decided whether shares of a recording's time can be trusted.
type Trust struct {
	Source   string             `json:"source"` // what recorded what, on which device
	Trusted  bool               `json:"trusted"`
	Counts   traces.Attribution `json:"counts"`
	Findings []traces.Finding   `json:"findings"` // those that mislead are the reasons
}

// TrustOf says what a recording holds and lacks, as [traces.Examine] does, and whether a ceiling of its device was
// measured too low.
func TrustOf(t *traces.Trace) Trust {
	trust := Trust{Source: t.Header.Describe(), Counts: t.Attribution, Findings: []traces.Finding{}}
	trust.Findings = append(trust.Findings, traces.Examine(t.Header, t.Attribution)...)
	if table, err := tables.SummarizeAny(t, -1); err == nil {
		if finding, ok := table.BelowFloor(); ok {
			trust.Findings = append(trust.Findings, traces.Finding{Text: finding})
		}
	}
	trust.Trusted = !traces.Misleads(trust.Findings)
	return trust
}

// Reasons is how many findings mislead.
func (t Trust) Reasons() int { return traces.Reasons(t.Findings) }

// Advice is what [Advise] makes of a trace.
type Advice struct {
	Source string `json:"source"` // what recorded what, on which device
	Device int32  `json:"device"` // -1 for the CPU
	Wall   int64  `json:"wall"`   // ns, of the stage table; of a trace without passes, of the table by kernel
	Hints  []Hint `json:"hints"`  // the one that could gain most first

	// Notes say what could not be judged, and why.
	Notes []string `json:"notes"`
}

// Above returns the hints that could gain a share of the wall time, in percent.
func (a *Advice) Above(percent float64) []Hint {
	some := []Hint{}
	for _, h := range a.Hints {
		if float64(h.Gain) >= percent/100*float64(a.Wall) {
			some = append(some, h)
		}
	}
	return some
}

// advisor is the state of Advise.
type advisor struct {
	*window.Window
	*Advice
	table    *tables.Table
	measured *measured         // in the table's time
	counted  []counted         // work in it
	idle     []window.Interval // in order, apart
	graphs   bool              // the work came by CUDA graphs
	rule     string            // the one that looks for a bottleneck now
}

// counted is an event of the work and the part of the wall time that is its own.
type counted struct {
	*traces.Event
	own    int64 // ns
	before int64 // ns of idle time just before
}

// Advise looks for bottlenecks by [Rules], of which the gains overlap: they do not add up. device is as
// in [tables.Summarize].
func Advise(t *traces.Trace, device int32) (*Advice, error) {
	table, err := tables.SummarizeSteady(t, device)
	if err != nil {
		return nil, err
	}
	a := &advisor{Window: table.Window, table: table, measured: measure(table.Window, table.Time),
		Advice: &Advice{table.Source, table.Device, table.Wall, []Hint{}, []string{}}}
	rest := a.Sweep(table.Time, func(e, _ *traces.Event, gap, own window.Interval) {
		a.counted = append(a.counted, counted{e, own.Length(), gap.Length()})
		a.graphs = a.graphs || e.Node != 0 || e.Kind == traces.KindGraph
		if gap.Length() > 0 {
			a.idle = append(a.idle, gap)
		}
	})
	if rest.Length() > 0 {
		a.idle = append(a.idle, rest)
	}
	if steady := a.Steady(); table.By == tables.ByKernel && steady.Source == window.FromRepetition {
		a.note("%s; what counts are %s, which are found by the repetition of kernel names; "+
			"%s ms of loading and %s of warm-up before them are left out",
			table.Instead, humanize.Count(len(steady.Passes), "pass", "passes"), inMS(max(0, steady.From-a.Whole().From)),
			humanize.Count(len(steady.WarmUp), "pass", "passes"))
	} else if table.Instead != "" {
		a.note("%s; all that is recorded counts, with loading and warm-up", table.Instead)
	}
	if table.By == tables.ByOp {
		a.noteOps()
		return a.Advice, nil
	}
	a.Notes = append(a.Notes, table.Window.GPUNotes()...)
	if finding, ok := table.BelowFloor(); ok {
		a.note("%s", finding)
	}
	if traces.Misleads(table.Findings) {
		a.note("shares are withheld, since they would mislead: 'infer trace check' says why")
	}
	for _, l := range t.Header.Overhead {
		if percent, ok := l.Longer(); ok && percent > 1 {
			a.note("recording made a %s %s: part of the idle time may be the recorder's", l.Phase,
				traces.LongerText(percent))
		}
	}
	of := GPU
	if table.Device < 0 {
		of = CPU
	}
	for _, r := range Rules {
		if r.Of&of != 0 {
			a.rule = r.ID
			r.find(a)
		}
	}
	slices.SortStableFunc(a.Hints, func(x, y Hint) int { return cmp.Compare(y.Gain, x.Gain) })
	return a.Advice, nil
}

func (a *advisor) note(format string, args ...any) {
	a.Notes = append(a.Notes, fmt.Sprintf(format, args...))
}

// hint adds what a rule found, unless it could gain nothing.
func (a *advisor) hint(gain int64, rows []string, try, format string, args ...any) {
	if gain = min(gain, a.Wall); gain <= 0 {
		return
	}
	h := Hint{Rule: a.rule, Text: fmt.Sprintf(format, args...), Rows: rows, Try: try, Gain: gain}
	if !traces.Misleads(a.table.Findings) {
		percent := 100 * float64(gain) / float64(a.Wall)
		h.Percent = &percent
	}
	a.Hints = append(a.Hints, h)
}

// noteOps names the operations that took the most time of their own: rules judge passes of a model and work of a GPU.
func (a *advisor) noteOps() {
	ops := slices.SortedStableFunc(slices.Values(a.table.Ops),
		func(x, y tables.OpRow) int { return cmp.Compare(y.SelfCPU, x.SelfCPU) })
	sum := int64(0)
	for _, o := range ops {
		sum += o.SelfCPU
	}
	var longest []string
	for _, o := range ops[:min(most, len(ops))] {
		longest = append(longest, fmt.Sprintf("%s %.1f %%", o.Name, 100*float64(o.SelfCPU)/float64(max(1, sum))))
	}
	a.note("rules judge passes of a model and work of a GPU, and the recording has neither; "+
		"most of the time of operations is that of %s", strings.Join(longest, ", "))
}

// idleOf sums the idle time of a cause, by the stage and the operator before which it lies.
func (a *advisor) idleOf(cause string) (ns int64, rows *tally) {
	rows = newTally()
	for _, g := range a.table.Gaps {
		for _, c := range g.Causes {
			if c.Name == cause {
				where := "at the end"
				if g.Next != nil {
					where = "before " + a.where(g.Next) + a.operator(g.Next)
				}
				ns += c.Time
				rows.add(where, c.Time, c.Time, 1)
			}
		}
	}
	return ns, rows
}

// outside returns how much of a union lies outside of another.
func outside(list, other []window.Interval) int64 {
	sum := int64(0)
	for _, x := range list {
		sum += x.Length() - window.Covered(other, x)
	}
	return sum
}

// inWindow reports whether an event reaches into the time that the advice is of.
func (a *advisor) inWindow(e *traces.Event) bool {
	return e.End() > a.table.Time.From && e.Time < a.table.Time.To
}

// operator names the outermost operator of a framework that launched an event, behind a colon; "" for none.
func (a *advisor) operator(e *traces.Event) (text string) {
	for around := range a.Around(e) {
		if around.Kind == traces.KindOp {
			text = ": " + around.Name
		}
	}
	return text
}

// where names the step of an event of the work, by one name for all layers.
func (a *advisor) where(e *traces.Event) string {
	step, ok := a.Header.Step(e)
	if !ok {
		if phase := a.Header.PhaseOf(e); phase != "" {
			return phase + ", outside the steps"
		}
		return "work outside the passes"
	}
	plan := &a.Header.Plans[e.Plan]
	return plan.Phase + ", " + foldLayers(plan, step.Name)
}

// foldLayers writes h.N for the layers of a plan that has several.
func foldLayers(p *traces.Plan, name string) string {
	for _, s := range p.Steps {
		if s.Slot > 0 {
			return traces.InAnyLayer(name)
		}
	}
	return name
}

// tally sums gains by row.
type tally struct {
	list  []*tallied
	index map[string]*tallied
	n     int // of all rows
}

type tallied struct {
	name       string
	gain, time int64 // ns
	n          int
}

func newTally() *tally { return &tally{index: map[string]*tallied{}} }

func (t *tally) add(name string, gain, time int64, n int) {
	x := t.index[name]
	if x == nil {
		x = &tallied{name: name}
		t.index[name] = x
		t.list = append(t.list, x)
	}
	x.gain, x.time, x.n, t.n = x.gain+gain, x.time+time, x.n+n, t.n+n
}

// most is how many rows a hint names.
const most = 5

// sorted returns those that could gain most first.
func (t *tally) sorted() []*tallied {
	slices.SortStableFunc(t.list, func(a, b *tallied) int { return cmp.Compare(b.gain, a.gain) })
	return t.list
}

// rows writes those that could gain most, and how many more there are.
func (t *tally) rows(thing string) []string {
	var rows []string
	for _, x := range t.sorted() {
		row := fmt.Sprintf("%s: %s ms", x.name, inMS(x.time))
		if x.n > 0 {
			row += " in " + numberOf(x.n, thing)
		}
		rows = append(rows, row)
	}
	return humanize.First(rows, most)
}

func sum(list []int64) (ns int64) {
	for _, x := range list {
		ns += x
	}
	return ns
}

// inMS writes ns as milliseconds.
func inMS(ns int64) string { return fmt.Sprintf("%.3f", float64(ns)/1e6) }

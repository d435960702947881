// Package judge says what to make of a recording: whether its shares of time can be trusted
// ([TrustOf]), what its indicators answer ([Measure]), and which bottlenecks it has ([Advise]),
// each with the most that removing its cause could gain. Rules and questions are rows of tables.
package judge

import (
	"cmp"
	"fmt"
	"math"
	"slices"

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

	// From and To are where in the recording the most of it lies, in ns after its base; both are 0 if it is at no place.
	From int64 `json:"from"`
	To   int64 `json:"to"`
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

// WorthPercent is the share of the wall time that a hint must be able to gain to be shown where not all are.
const WorthPercent = 1

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
	measured *measured                  // in the table's time
	counted  []counted                  // work in it
	parts    []part                     // idle time, in order
	rows     []int64                    // ns of each row of the table above its floor that no rule has found
	where    func(*traces.Event) string // names the step of an event of the work, by one name for all layers
	graphs   bool                       // the work came by CUDA graphs
	rule     string                     // the one that looks for a bottleneck now
	most     int64                      // ns that the rule found at one place,
	place    window.Interval            // which is here
}

// once is a function of an event that is called once for each key.
func once[K comparable, T any](key func(*traces.Event) K, of func(*traces.Event) T) func(*traces.Event) T {
	known := map[K]T{}
	return func(e *traces.Event) T {
		at := key(e)
		v, ok := known[at]
		if !ok {
			v = of(e)
			known[at] = v
		}
		return v
	}
}

// byWhat is a function of an event that looks at its What alone: there are few of many events.
func byWhat[T any](of func(*traces.Event) T) func(*traces.Event) T {
	return once(func(e *traces.Event) *traces.What { return e.What }, of)
}

// counted is an event of the work and the part of the wall time that is its own.
type counted struct {
	*traces.Event
	own, left int64 // ns; left is what no rule has found
	row       int32 // of the table, -1 for none
	before    int32 // place of the first part of the idle time just before it
	beside    bool  // most of it runs beside another kernel
}

// part is the part of a gap that has a cause.
type part struct {
	window.Interval               // of the gap
	next            *traces.Event // nil at the end
	cause           string
	left            int64 // ns that no rule has found
}

// takeIdle finds idle time, and returns what of it no rule has found before.
func (a *advisor) takeIdle(p *part) (ns int64) {
	a.placed(p.left, p.From, p.To)
	ns, p.left = p.left, 0
	return ns
}

// takeBefore does the same for the idle time just before work: of one cause, of all if it is "".
func (a *advisor) takeBefore(p *counted, cause string) (ns int64) {
	for i := int(p.before); i < len(a.parts) && a.parts[i].next == p.Event; i++ {
		if cause == "" || a.parts[i].cause == cause {
			ns += a.takeIdle(&a.parts[i])
		}
	}
	return ns
}

// placed notes where the rule has found so much time.
func (a *advisor) placed(ns, from, to int64) {
	if ns > a.most {
		a.most, a.place = ns, window.Interval{From: from, To: to}
	}
}

// take finds so much time of an event, and returns what of it no rule has found before: of a row at most what is above
// its floor.
func (a *advisor) take(p *counted, ns int64) int64 {
	ns = min(ns, p.left)
	if p.row >= 0 {
		ns = max(0, min(ns, a.rows[p.row]))
		a.rows[p.row] -= ns
	}
	p.left -= ns
	a.placed(ns, p.Time, p.End())
	return ns
}

// takeRow does the same for a row.
func (a *advisor) takeRow(row int, ns int64) int64 {
	ns = max(0, min(ns, a.rows[row]))
	a.rows[row] -= ns
	if ns > a.most {
		longest := int64(-1)
		for i := range a.counted {
			if p := &a.counted[i]; int(p.row) == row && p.own > longest {
				longest, a.most, a.place = p.own, ns, window.Interval{From: p.Time, To: p.End()}
			}
		}
	}
	return ns
}

// Advise looks for bottlenecks by [Rules]. Each nanosecond counts in one of them, so that the gains add up to no more than
// the wall time. device is as in [tables.Summarize].
func Advise(t *traces.Trace, device int32) (*Advice, error) {
	table, err := tables.SummarizeSteady(t, device)
	if err != nil {
		return nil, err
	}
	return advise(table, measure(table.Window, table.Time)), nil
}

// Both is [Advise] and [Measure] for a table of [tables.SummarizeSteady]. The report is nil on the CPU.
func Both(table *tables.Table) (*Advice, *Report) {
	m := measure(table.Window, table.Time)
	report, _ := reportOn(table, m)
	return advise(table, m), report
}

// advise advises on a table, in whose time m was measured.
func advise(table *tables.Table, m *measured) *Advice {
	a := &advisor{Window: table.Window, table: table, measured: m,
		Advice: &Advice{table.Source, table.Device, table.Wall, []Hint{}, []string{}}}
	a.where = once(func(e *traces.Event) [2]int32 { return [2]int32{e.Plan, e.Step} }, a.whereStep)
	a.count()
	if steady := a.Steady(); table.By == tables.ByKernel && steady.Source == window.FromRepetition {
		left := ""
		if early := steady.From - a.Whole().From; early > 0 {
			left = fmt.Sprintf("; %s ms of loading and %s of warm-up before them are left out", humanize.InMilliseconds(early),
				humanize.Count(len(steady.WarmUp), "pass", "passes"))
		}
		a.note("%s; what counts are %s, which are found by the repetition of kernel names%s", table.Instead,
			humanize.Count(len(steady.Passes), "pass", "passes"), left)
	} else if table.Instead != "" {
		a.note("%s; all that is recorded counts, with loading and warm-up", table.Instead)
	}
	if table.By == tables.ByOp {
		a.note("rules judge passes of a model and work of a GPU, and the recording has neither; " +
			"'infer trace show --by op' has the time of its operations")
		return a.Advice
	}
	a.Notes = append(a.Notes, table.Window.GPUNotes()...)
	if finding, ok := table.BelowFloor(); ok {
		a.note("%s", finding)
	}
	if traces.Misleads(table.Findings) {
		a.note("shares are withheld, since they would mislead: 'infer trace check' says why")
	}
	for _, l := range a.Header.Overhead {
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
			a.rule, a.most, a.place = r.ID, 0, window.Interval{}
			r.find(a)
		}
	}
	slices.SortStableFunc(a.Hints, func(x, y Hint) int { return cmp.Compare(y.Gain, x.Gain) })
	return a.Advice
}

func (a *advisor) note(format string, args ...any) {
	a.Notes = append(a.Notes, fmt.Sprintf(format, args...))
}

// hint adds what a rule found, unless it could gain nothing.
func (a *advisor) hint(gain int64, rows []string, try, format string, args ...any) {
	if gain = min(gain, a.Wall); gain <= 0 {
		return
	}
	h := Hint{Rule: a.rule, Text: fmt.Sprintf(format, args...), Rows: rows, Try: try, Gain: gain, From: a.place.From, To: a.place.To}
	if !traces.Misleads(a.table.Findings) {
		percent := 100 * float64(gain) / float64(a.Wall)
		h.Percent = &percent
	}
	a.Hints = append(a.Hints, h)
}

// count prepares what rules look at: work, idle time, and rows.
func (a *advisor) count() {
	for _, r := range a.table.Rows {
		a.rows = append(a.rows, max(0, r.Exclusive-r.Floor))
	}
	var several []window.Interval // in which kernels of several streams run; those of one wait for each other
	until := map[traces.Lane]int64{}
	a.counted = make([]counted, 0, len(a.Work))
	a.Sweep(a.table.Time, func(e, _ *traces.Event, _, own window.Interval) {
		a.counted = append(a.counted, counted{Event: e, own: own.Length(), left: own.Length(), row: int32(a.table.RowOf(e))})
		a.graphs = a.graphs || e.Node != 0 || e.Kind == traces.KindGraph
		if e.Kind == traces.KindKernel {
			for lane, end := range until {
				if lane != e.Lane && e.Time < end {
					several = window.Join(several, window.Interval{From: e.Time, To: min(end, e.End())})
				}
			}
			until[e.Lane] = max(until[e.Lane], e.End())
		}
	})
	for i := range a.counted {
		p := &a.counted[i]
		p.beside = 2*window.Covered(several, window.Interval{From: p.Time, To: p.End()}) > p.Duration
	}
	at, causes := 0, 0
	for _, r := range a.table.Rows {
		if r.Kind == tables.RowIdle {
			causes += r.Calls
		}
	}
	a.parts = make([]part, 0, causes)
	for g := range a.table.Gaps {
		if g.Next != nil && g.Next == g.Before { // a copy runs
			continue
		}
		for at < len(a.counted) && a.counted[at].Event != g.Next {
			at++
		}
		if at < len(a.counted) {
			a.counted[at].before = int32(len(a.parts))
		}
		for _, c := range g.Causes {
			a.parts = append(a.parts, part{g.Interval, g.Next, c.Name, c.Time})
		}
	}
}

// idleOf takes the idle time of a cause, by the stage and the outermost operator before which it lies.
func (a *advisor) idleOf(cause string) (ns int64, rows *tally) {
	rows = newTally()
	for i := range a.parts {
		if p := &a.parts[i]; p.cause == cause && p.left > 0 {
			where := "at the end"
			if p.next != nil {
				where = "before " + a.where(p.next)
				if op := a.Operator(p.next); op != nil {
					where += ": " + op.Name
				}
			}
			rows.add(where, p.left, p.left, 1)
			ns += a.takeIdle(p)
		}
	}
	return ns, rows
}

// hostDoing sums the time in which the host is late by the innermost call or range that is open then on the thread that
// launches the next work.
func (a *advisor) hostDoing() *tally {
	type late struct {
		window.Interval
		gap int
	}
	rows := newTally()
	waits := map[traces.ThreadID][]late{} // in order, apart from each other
	for i, p := range a.parts {
		if p.cause != tables.IdleHost || p.left == 0 {
			continue
		}
		call := a.launchOf(p.next)
		if call == nil {
			rows.add("at the end, or before work whose launch is not recorded", p.left, p.left, 1)
			continue
		}
		thread := a.Header.ThreadOf(call)
		_, left := a.HeldIn(a.Header.ProcessOf(call), window.Interval{From: p.From, To: max(p.From, min(call.Time, p.To))})
		for _, x := range left {
			waits[thread] = append(waits[thread], late{x, i + 1})
		}
	}
	open, in := map[traces.ThreadID][]*traces.Event{}, map[string]int{} // in: the last gap of a row
	// until gives the time before it that is not given yet to what is open.
	until := func(thread traces.ThreadID, time int64) {
		list := waits[thread]
		for ; len(list) > 0 && list[0].From < time; list = list[1:] {
			x := &list[0]
			what, ns, n := "outside recorded calls and ranges", min(x.To, time)-x.From, 0
			if stack := open[thread]; len(stack) > 0 {
				what = "in " + a.doing(stack[len(stack)-1])
			}
			if in[what] != x.gap {
				in[what], n = x.gap, 1
			}
			rows.add(what, ns, ns, n)
			if x.From += ns; x.From < x.To {
				break
			}
		}
		waits[thread] = list
	}
	close := func(thread traces.ThreadID, time int64) {
		stack := open[thread]
		for len(stack) > 0 && !stack[len(stack)-1].Open && stack[len(stack)-1].End() <= time {
			until(thread, stack[len(stack)-1].End())
			stack = stack[:len(stack)-1]
			open[thread] = stack
		}
		until(thread, time)
	}
	for i := range a.Events {
		if e := &a.Events[i]; e.Kind.IsCall() || e.Kind.IsRange() && e.Lane.Kind == traces.LaneThread {
			if at := a.Header.ThreadOf(e); len(waits[at]) > 0 {
				close(at, e.Time)
				open[at] = append(open[at], e)
			}
		}
	}
	for thread := range waits {
		close(thread, math.MaxInt64)
	}
	return rows
}

// doing names a call or a range of the host, by one name for all passes and layers.
func (a *advisor) doing(e *traces.Event) string {
	switch {
	case e.Kind.IsCall():
		return inRange(a.Window, e)
	case e.Kind == traces.KindPass:
		return a.PassName(e)
	case e.Kind == traces.KindStep:
		return a.where(e)
	}
	return traces.InAnyLayer(e.Name)
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

// whereStep is [advisor.where] for the first event of a step.
func (a *advisor) whereStep(e *traces.Event) string {
	step, ok := a.Header.Step(e)
	if !ok {
		if phase := a.Header.PhaseOf(e); phase != "" {
			return phase + ", outside the steps"
		}
		if a.Steady().Source == window.FromRepetition {
			return "work of the passes"
		}
		return "work outside the passes"
	}
	plan := &a.Header.Plans[e.Plan]
	if step.Name == plan.Phase { // a pass without stages is one stage of its own name
		return plan.Phase
	}
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
		row := fmt.Sprintf("%s: %s ms", x.name, humanize.InMilliseconds(x.time))
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

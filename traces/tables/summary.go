package tables

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"gpt2scope/ceilings"
	"gpt2scope/traces"
	"gpt2scope/traces/window"
)

// By is what the rows of a table are.
type By string

const (
	ByFolded By = "folded" // steps of the plans, those of all layers together: in Table.Folded
	ByStage  By = "stage"  // steps of the plans
	ByLayer  By = "layer"  // steps of a layer together
	ByPhase  By = "phase"  // steps of a kind of pass together
	ByOp     By = "op"     // operations and ranges as PyTorch's profiler shows them: in Table.Ops
	ByPython By = "python" // functions of Python that a profiler saw, on the host: in Table.Ops
	ByKernel By = "kernel" // kernels by name and launch shape

	ByRange   By = "range"   // ranges by name, on the host and projected onto the GPU: in Table.Ranges
	ByMemory  By = "memory"  // memory over time, by device and counter: in Table.Memory
	ByProcess By = "process" // the processes of the recording, on all devices: in Table.Processes
)

// part is the part of a trace that a table covers.
type part uint8

const (
	ofPasses    part = iota // from the first pass after the warm-up to the end of the last; there must be one
	passesOrRun             // the same if there are passes, otherwise from the first event to the last
	allWork                 // from the first to the last work of the GPU, whatever launched it
	allRun                  // from the first event to the last
)

// kind describes a table.
type kind struct {
	by    By
	of    part
	fill  func(*summary, *Table) error
	needs string // what a recording of the CPU lacks for this table; "" if it can be made
}

// kinds are all tables, in the order in which help lists them.
var kinds = []kind{
	{by: ByFolded, of: ofPasses, fill: (*summary).folded},
	{by: ByStage, of: ofPasses, fill: (*summary).exclusive},
	{by: ByOp, of: passesOrRun, fill: (*summary).ops},
	{by: ByPython, of: passesOrRun, fill: (*summary).ops},
	{by: ByLayer, of: ofPasses, fill: (*summary).exclusive},
	{by: ByPhase, of: ofPasses, fill: (*summary).exclusive},
	{by: ByKernel, of: allWork, fill: (*summary).exclusive, needs: "kernels"},
	{by: ByRange, of: allRun, fill: (*summary).byRange},
	{by: ByMemory, of: allRun, fill: (*summary).byMemory},
	{by: ByProcess, of: allWork, fill: (*summary).byProcess, needs: "kernels"},
}

// Bys are all tables, as a user may name them.
var Bys = bys(func(kind) bool { return true })

func bys(keep func(kind) bool) []By {
	var names []By
	for _, k := range kinds {
		if keep(k) {
			names = append(names, k.by)
		}
	}
	return names
}

// OfCPU returns why a recording of the CPU gives no table of a kind, or nil if it gives one.
func OfCPU(by By) error {
	for _, k := range kinds {
		if k.by == by && k.needs != "" {
			return fmt.Errorf("a recording of the CPU has no %s; a table by %s can be made", k.needs,
				List(bys(func(k kind) bool { return k.needs == "" })))
		}
	}
	return nil
}

// List writes names of tables for people: "stage, op or layer".
func List(bys []By) string {
	text := ""
	for i, by := range bys {
		switch {
		case i > 0 && i == len(bys)-1:
			text += " or "
		case i > 0:
			text += ", "
		}
		text += string(by)
	}
	return text
}

// RowKind distinguishes the rows of a table.
type RowKind string

const (
	RowWork     RowKind = "work"     // steps, or a kernel
	RowOther    RowKind = "other"    // kernels of no step; by kernel, copies and sets
	RowIdle     RowKind = "idle"     // no stage computes
	RowResidual RowKind = "residual" // what no other row accounts for of the wall time
)

// Unaccounted is the row of the time that no other row accounts for.
const Unaccounted = "unaccounted"

// OutsideLayers is the row, by layer, of the steps that belong to none.
const OutsideLayers = "outside the layers"

// Row is a row of a table. Times are ns.
type Row struct {
	Kind  RowKind `json:"kind"`
	Phase string  `json:"phase,omitempty"`
	Name  string  `json:"name"`
	Op    string  `json:"op,omitempty"`

	// Calls is how many times the step ran, once in each pass on however many threads or streams; of a layer or phase,
	// in how many passes; of a kernel, how many there are; of idle time, how many gaps.
	Calls    int   `json:"calls"`
	Layers   int   `json:"layers,omitempty"`   // how many layers a row of [Table.Folded] sums; 0 outside the layers
	Of       []int `json:"-"`                  // of such a row: the places of the summed rows in [Table.Rows], in order
	Kernels  int   `json:"kernels"`            // with copies and sets; on the CPU, events of threads
	Bounded  int   `json:"bounded,omitempty"`  // kernels whose times are only bounded: see traces.Event
	Launches int   `json:"launches,omitempty"` // API calls that launched them; a graph's counts in its first kernel's row
	Queued   int64 `json:"queued,omitempty"`   // by kernel: from the end of calls to the start of their kernels, summed
	Host     int64 `json:"host"`               // in the steps' ranges on the host, if a GPU works
	Busy     int64 `json:"busy"`               // sum of the durations, however they overlap

	// Exclusive is this row's part of the wall time: its work runs, and nothing that began earlier is still running. If
	// a kernel is launched early and waits for the kernel before (programmatic dependent launch), the wait counts for
	// the kernel before. For a step that several threads run, it is the time in which any of them runs it. The
	// exclusive times of all rows sum to the wall time.
	Exclusive int64 `json:"exclusive"`

	Copies int64 `json:"copies,omitempty"` // the part of Exclusive in which copies and sets run that the step caused

	Spread // of the durations

	FLOPs int64  `json:"flops,omitempty"` // least work of all calls; 0 if not known
	Bytes int64  `json:"bytes,omitempty"` // least traffic of all calls; of copies, what they copied
	Floor int64  `json:"floor,omitempty"` // least time: sum of the calls' floors; 0 if not known
	Bound string `json:"bound,omitempty"` // ceilings.BoundBytes or BoundFLOPs: what most of Floor is made of

	// Imbalance is, on the CPU, the time of the slowest thread of a step over the
	// mean of its threads, 1 if all take the same time; 0 if not known.
	Imbalance float64 `json:"imbalance,omitempty"`

	LongestThread, MeanThread float64 `json:"-"` // on the CPU: ns of the slowest thread and of the mean, summed over calls

	// Inside says what the SMs did during steps inside a kernel, as means over them that sum to
	// Busy; nil if no step of the row was one.
	Inside *traces.Parts `json:"inside,omitempty"`

	Plan int32 `json:"-"` // index in Header.Plans, -1 for none

	Shape     *Shape     `json:"shape,omitempty"`     // of a kernel
	Occupancy *Occupancy `json:"occupancy,omitempty"` // if the source says enough of shape and device

	// Counters are the means by time of hardware counters in percent, by [traces.CounterInfo.Key];
	// nil if none were measured.
	Counters traces.Counters `json:"counters,omitempty"`

	durations    []int64
	counters     traces.CounterMean
	floor        float64
	floorOfBytes float64 // the part of floor that is bound by bytes
	order        int32   // within a plan
	made         *Row    // what this is a copy of in [Table.Rows], nil for a row of no event
	place        int     // there
}

// Table says where the wall time of a trace went.
type Table struct {
	Source string   `json:"source"` // what recorded what, on which device
	By     By       `json:"by"`
	Device int32    `json:"device"` // -1 for the CPU
	Wall   int64    `json:"wall"`   // ns
	Before int64    `json:"before"` // ns from the first event of the trace to the start of the table: loading, warm-up
	Passes []Passes `json:"passes,omitempty"`
	WarmUp Passes   `json:"warm_up"` // passes that the table leaves out
	Rows   []Row    `json:"rows,omitempty"`
	Folded []Row    `json:"folded,omitempty"` // Rows, with one row per stage over all layers

	Ops       []OpRow      `json:"ops,omitempty"`
	Ranges    []RangeRow   `json:"ranges,omitempty"`
	Processes []ProcessRow `json:"processes,omitempty"`
	Memory    []MemoryRow  `json:"memory,omitempty"`

	Window *window.Window  `json:"-"` // what the table is made of
	Time   window.Interval `json:"-"` // the part of the trace that the table covers

	rowOf func(*traces.Event) int
	gaps  func(each func(*Gap))

	Instead  string           `json:"instead,omitempty"` // why the table is not by stage, of [SummarizeAny]
	Trust    string           `json:"trust"`             // a line
	Notes    []string         `json:"notes,omitempty"`
	Findings []traces.Finding `json:"findings,omitempty"`
}

// Gap is a time in which the device did nothing, or only work that counts as idle time.
type Gap struct {
	window.Interval
	Causes       []Cause       // they sum to the gap; valid until the next gap
	Before, Next *traces.Event // nil at the ends; if a copy ran meanwhile, both are that copy
}

// Gaps yields the idle times of the table, in order. They are found anew each time, since there may be millions.
func (t *Table) Gaps(yield func(*Gap) bool) {
	if on := true; t.gaps != nil {
		t.gaps(func(g *Gap) { on = on && yield(g) })
	}
}

// Cause is a part of a gap.
type Cause struct {
	Name string // one of the Idle constants
	Time int64  // ns
}

// Passes are the passes of a kind in a table.
type Passes struct {
	Phase  string `json:"phase,omitempty"`
	Tokens int    `json:"tokens,omitempty"` // of each pass and sequence, if it is known
	Count  int    `json:"count"`
	Time   int64  `json:"time"` // ns, of the host's ranges

	plan int32
}

// Share returns a row's share of the wall time in percent. ok is false if the trace is too incomplete to say it.
func (t *Table) Share(r *Row) (percent float64, ok bool) {
	if traces.Misleads(t.Findings) || t.Wall == 0 {
		return 0, false
	}
	return 100 * float64(r.Exclusive) / float64(t.Wall), true
}

// Roofline returns the least time of a row in percent of its time: 100 is as fast as the
// device can be. ok is false if the least time is not known, the recording is incomplete, or
// the row is faster than its least time, which [Table.BelowFloor] reports.
func (t *Table) Roofline(r *Row) (percent float64, ok bool) {
	if traces.Misleads(t.Findings) {
		return 0, false
	}
	return ceilings.Roofline(float64(r.Floor), float64(r.Exclusive))
}

// TooFast reports whether a row is faster than its least time. Then a ceiling is lower than
// what the device can do, or the row's data were fetched before the row began.
func (r *Row) TooFast() bool { return r.Kind == RowWork && r.Floor > r.Exclusive && r.Exclusive > 0 }

// BelowFloor says in a sentence how many rows are faster than their least time, if any are. That is a finding about the
// ceilings, not about the rows: neither their share of the roofline nor that of all rows together should be shown.
func (t *Table) BelowFloor() (finding string, ok bool) {
	n, floors, most, bound := 0, 0, 0.0, ""
	for _, r := range t.Shown() {
		if r.Kind == RowWork && r.Floor > 0 {
			floors++
		}
		if r.TooFast() {
			n++
			if percent := 100 * float64(r.Floor) / float64(r.Exclusive); percent > most {
				most, bound = percent, r.Bound
			}
		}
	}
	if n == 0 {
		return "", false
	}
	ceiling := "the ceiling of arithmetic"
	if bound == ceilings.BoundBytes {
		ceiling = "the ceiling of bandwidth"
	}
	return fmt.Sprintf("ceilings: %d of %d rows with a floor are faster than it (up to %.1f %% of the roofline): "+
		"%s was measured too low, or data were fetched early; roofline %% of these rows is withheld; "+
		"'infer bench ceilings --measure' measures "+
		"the ceilings again", n, floors, most, ceiling), true
}

// Shown are the rows of the table, or of Folded if it has that.
func (t *Table) Shown() []Row {
	if t.Folded == nil {
		return t.Rows
	}
	return t.Folded
}

// rowKey distinguishes rows.
type rowKey struct {
	kind        RowKind
	phase, name string
	shape       Shape
}

// summary is the state of Summarize.
type summary struct {
	*window.Window
	kind
	steady         bool // of all work only the passes that repeat count
	from, to       int64
	hostSteps      map[traces.Run]*traces.Event
	launched       []bool // calls, by their places, whose launch was counted
	rows           map[rowKey]*Row
	layers         map[int]string // names
	severalThreads bool           // on the CPU
	alike          map[alike]*Row
	gap            Gap // whose causes are being found
}

// alike is what events of one row have in common.
type alike struct {
	*traces.What
	kind       traces.Kind
	plan, step int32
}

func alikeOf(e *traces.Event) alike { return alike{e.What, e.Kind, e.Plan, e.Step} }

// Summarize makes a table of the time of one device. Device -1 is the first GPU that worked, or the CPU if none did.
func Summarize(t *traces.Trace, by By, device int32) (*Table, error) {
	return summarize(window.New(t, device), by, false)
}

func summarize(w *window.Window, by By, steady bool) (*Table, error) {
	i := slices.IndexFunc(kinds, func(k kind) bool { return k.by == by })
	if i < 0 {
		return nil, fmt.Errorf("there is no table by %q; there is one by %s", by, List(Bys))
	}
	s := &summary{Window: w, kind: kinds[i], steady: steady, hostSteps: map[traces.Run]*traces.Event{},
		launched: make([]bool, len(w.Events)), rows: map[rowKey]*Row{}, layers: map[int]string{}, alike: map[alike]*Row{}}
	if !s.hasWork() {
		return nil, s.noWork()
	}
	table := &Table{Source: w.Header.Describe(), By: by, Device: w.Device, Window: w}
	if table.Findings = traces.Examine(w.Header, w.Attribution); s.of == allWork {
		table.Findings = traces.ExamineKernels(w.Header, w.Attribution)
	}
	if err := s.times(table); err != nil {
		return nil, err
	}
	table.Time = window.Interval{From: s.from, To: s.to}
	table.Wall, table.Before = s.to-s.from, s.from-s.Events[0].Time
	if err := s.fill(s, table); err != nil {
		return nil, err
	}
	table.Trust = traces.Trust(w.Header, w.Attribution, table.Findings)
	table.Notes = s.notes(table)
	return table, nil
}

// exclusive fills a table whose rows sum to the wall time.
func (s *summary) exclusive(t *Table) error {
	s.host()
	s.sweep()
	t.gaps = func(each func(*Gap)) { s.divide(nil, each) }
	s.runs()
	s.finish(t)
	return nil
}

// folded fills a table by stage and folds its layers.
func (s *summary) folded(t *Table) error {
	s.by, t.By = ByStage, ByStage
	if err := s.exclusive(t); err != nil {
		return err
	}
	t.Folded = FoldLayers(t)
	return nil
}

// SummarizeAny makes the table by stage, with the folded one. A trace without passes of a
// model has no stages: then the table is by kernel or, if no GPU worked, by operation, whose
// rows are also in Table.Rows; Table.Instead says so. The error is that of the table by stage.
func SummarizeAny(t *traces.Trace, device int32) (*Table, error) {
	return summarizeAny(window.New(t, device), false)
}

// SummarizeSteady makes the table of [SummarizeAny], but one by kernel covers only the passes
// that the kernels repeat in, without what comes before: see [window.Window.Steady].
func SummarizeSteady(t *traces.Trace, device int32) (*Table, error) {
	return summarizeAny(window.New(t, device), true)
}

// Steady returns the table of [SummarizeSteady] of what a table is of.
func (t *Table) Steady() *Table {
	if t.By == ByKernel {
		if steady, err := summarizeAny(t.Window, true); err == nil {
			return steady
		}
	}
	return t
}

func summarizeAny(w *window.Window, steady bool) (*Table, error) {
	table, err := summarize(w, ByFolded, false)
	if err == nil {
		return table, nil
	}
	for _, by := range []By{ByKernel, ByOp} {
		table, other := summarize(w, by, steady)
		if other != nil {
			continue
		}
		table.Instead = fmt.Sprintf("the recording has no pass of a model, so it has no stages: the table is by %s", by)
		if by == ByKernel {
			table.Instead += "; --infer looks for the stages of a transformer"
		}
		table.Notes = append([]string{table.Instead}, table.Notes...)
		if by == ByOp {
			table.Rows = rowsOfOps(table)
		}
		return table, nil
	}
	return nil, err
}

// rowsOfOps makes rows of operations: the exclusive time of one is what its threads spend in
// it themselves, and idle is the time in which no thread is in any. If operations of several
// threads overlap, the rows sum to more than the wall time.
func rowsOfOps(t *Table) []Row {
	var rows []Row
	for _, o := range t.Ops {
		rows = append(rows, Row{Kind: RowWork, Name: o.Name, Calls: o.Calls, Exclusive: o.SelfCPU, Busy: o.CPU,
			Plan: -1})
	}
	var inside []window.Interval
	for i := range t.Window.Events {
		if e := &t.Window.Events[i]; isOp(e) && !e.IsPython() {
			inside = window.Join(inside, window.Interval{From: e.Time, To: e.End()})
		}
	}
	if left := t.Wall - window.Length(inside); left > 0 {
		rows = append(rows, Row{Kind: RowIdle, Name: IdleNoOp, Exclusive: left, Plan: -1})
	}
	return rows
}

func (s *summary) hasWork() bool {
	switch {
	case s.Device < 0 && s.needs != "":
		return false
	case s.Device < 0 && (s.of == allRun || s.of == passesOrRun):
		return slices.ContainsFunc(s.Events, func(e traces.Event) bool {
			return e.Kind.IsRange() && e.Lane.Kind == traces.LaneThread
		})
	}
	return len(s.Work) > 0
}

// noWork says why there is no table of the device, or of any if that is -1.
func (s *summary) noWork() error {
	var gpus []int32
	onCPU, hasRanges := false, false
	for i := range s.Events {
		e := &s.Events[i]
		if e.Kind.IsGPU() && !slices.Contains(gpus, e.Lane.Device) {
			gpus = append(gpus, e.Lane.Device)
		}
		onCPU = onCPU || e.Kind == traces.KindStep && e.Lane.Kind == traces.LaneThread
		hasRanges = hasRanges || e.Kind.IsRange()
	}
	slices.Sort(gpus)
	switch {
	case len(gpus) > 0:
		return fmt.Errorf("the recording has no work of GPU %d; what worked is GPU %s",
			s.Device, strings.Trim(fmt.Sprint(gpus), "[]"))
	case onCPU && s.needs != "":
		return OfCPU(s.by)
	case onCPU:
		return fmt.Errorf("a recording of the CPU has no GPU %d", s.Device)
	case s.Device >= 0:
		return fmt.Errorf("the recording has no work of GPU %d or any other GPU", s.Device)
	case s.by != ByOp && hasRanges:
		return fmt.Errorf("the trace has no pass of a model and no work of a GPU; a table by op can be made")
	}
	return fmt.Errorf("the trace has no work to make a table of")
}

// times finds the part of the trace that the table covers, and counts its passes.
func (s *summary) times(t *Table) error {
	for _, e := range s.WarmUp {
		t.WarmUp.Count++
		t.WarmUp.Time += e.Duration
	}
	for _, pass := range s.Passes {
		e := pass.Event
		at := slices.IndexFunc(t.Passes, func(p Passes) bool { return p.plan == e.Plan && p.Phase == s.PassName(e) })
		if at < 0 {
			at = len(t.Passes)
			t.Passes = append(t.Passes, Passes{Phase: s.PassName(e), plan: e.Plan})
			if e.Plan >= 0 && int(e.Plan) < len(s.Header.Plans) {
				t.Passes[at].Tokens = s.Header.Plans[e.Plan].Tokens
			}
		}
		t.Passes[at].Count++
		t.Passes[at].Time += e.Duration
	}
	x := s.Span
	switch found := len(s.Passes) > 0; {
	case !found && s.of == ofPasses:
		return fmt.Errorf("the trace has no pass of a model, so there are no stages; a table by kernel can be made")
	case s.of == allRun, s.of == passesOrRun && !found: // events of the host may begin before the work and end after it
		x = window.Interval{From: s.Events[0].Time, To: s.Events[0].End()}
		for i := range s.Events {
			x.To = max(x.To, s.Events[i].End())
		}
	case s.of == allWork && s.steady:
		x = s.Steady().Interval
	case s.of == allWork || !found:
		x = s.Whole()
	}
	s.from, s.to = x.From, x.To
	return nil
}

// host notes the steps of the host and their time.
func (s *summary) host() {
	var thread traces.Lane
	for i := range s.Events {
		e := &s.Events[i]
		if e.Kind != traces.KindStep || e.Lane.Kind != traces.LaneThread || e.Step < 0 || !s.Serves(e) {
			continue
		}
		if s.Device < 0 {
			s.severalThreads = s.severalThreads || thread != traces.Lane{} && thread != e.Lane
			thread = e.Lane
			continue
		}
		if s.Header.Recorder == traces.RecorderStamps {
			s.hostSteps[e.Run(e.Parent)] = e
		}
		if s.of == ofPasses && e.Time >= s.from && e.Time < s.to && !s.InWarmUp(e) {
			s.row(e).Host += e.Duration
		}
	}
}

// at returns the row of a key, which it makes if there is none.
func at[K comparable, R any](rows map[K]*R, key K) *R {
	if rows[key] == nil {
		rows[key] = new(R)
	}
	return rows[key]
}

// at returns a row, which it makes if there is none.
func (s *summary) at(key rowKey) *Row {
	r := s.rows[key]
	if r == nil {
		r = &Row{Kind: key.kind, Phase: key.phase, Name: key.name, order: -1, Plan: -1}
		s.rows[key] = r
	}
	return r
}

func (s *summary) named(kind RowKind, phase, name string) *Row {
	return s.at(rowKey{kind: kind, phase: phase, name: name})
}

// key names the row of an event: of work, or of what has a step.
func (s *summary) key(e *traces.Event) rowKey {
	isCopy := e.Kind == traces.KindMemcpy || e.Kind == traces.KindMemset
	step, ok := s.Header.Step(e)
	phase := s.Header.PhaseOf(e)
	switch {
	case s.of != ofPasses && isCopy:
		return rowKey{kind: RowOther, name: e.Name}
	case s.of != ofPasses:
		return rowKey{kind: RowWork, name: e.Name, shape: ShapeOf(e)}
	case !ok && isCopy:
		return rowKey{kind: RowIdle, phase: phase, name: IdleCopy}
	case !ok:
		return rowKey{kind: RowOther, phase: phase, name: "kernels of no step"}
	case s.by == ByPhase:
		return rowKey{kind: RowWork, name: phase}
	case s.by == ByStage:
		return rowKey{kind: RowWork, phase: phase, name: step.Name}
	case step.Layer < 0:
		return rowKey{kind: RowWork, phase: phase, name: OutsideLayers}
	}
	name := s.layers[step.Layer]
	if name == "" {
		name = fmt.Sprintf("h.%d", step.Layer)
		s.layers[step.Layer] = name
	}
	return rowKey{kind: RowWork, phase: phase, name: name}
}

// row returns the row of an event of the work, which it makes if there is none.
func (s *summary) row(e *traces.Event) *Row {
	of := alikeOf(e)
	if r := s.alike[of]; r != nil {
		return r
	}
	key := s.key(e)
	r, known := s.rows[key]
	if !known {
		r = s.at(key)
	}
	if s.alike[of] = r; known {
		return r
	}
	if key.shape != (Shape{}) {
		r.Shape = &key.shape
		if o, ok := OccupancyOf(s.Header.Device(s.Device), r.Shape); ok {
			r.Occupancy = &o
		}
	}
	if r.Kind != RowWork || s.of != ofPasses {
		return r
	}
	r.Plan = e.Plan
	switch step, _ := s.Header.Step(e); {
	case s.by == ByPhase:
		r.order = 0
	case s.by == ByStage:
		r.Op, r.order = step.Op, e.Step
	case step.Layer >= 0:
		r.order = int32(min(step.Layer, 1<<29))
	default:
		r.order = 1 << 30
	}
	return r
}

// RowOf returns the place in Rows of the row that an event belongs to, -1 for none. It
// holds for the rows as they were made.
func (t *Table) RowOf(e *traces.Event) int {
	if t.rowOf == nil {
		return -1
	}
	return t.rowOf(e)
}

// index lets the table find the row of an event.
func (s *summary) index(t *Table) {
	for i := range t.Rows {
		if r := t.Rows[i].made; r != nil {
			r.place = i
		}
	}
	t.rowOf = func(e *traces.Event) int {
		_, ofStep := s.Header.Step(e)
		isWork := e.Kind.IsGPU() && (s.by != ByKernel || e.Lane.Device == s.Device) ||
			s.Device < 0 && e.Kind == traces.KindStep
		if !isWork && (s.by == ByKernel || !ofStep) {
			return -1
		}
		of := alikeOf(e)
		r, known := s.alike[of]
		if !known {
			r = s.rows[s.key(e)]
			s.alike[of] = r
		}
		if r == nil {
			return -1
		}
		return r.place
	}
}

// sweep gives each ns of the wall time to a row.
func (s *summary) sweep() {
	work := func(e *traces.Event, own int64) {
		r := s.row(e)
		r.Kernels++
		r.Busy += e.Duration
		if e.Bounded {
			r.Bounded++
		}
		r.durations = append(r.durations, e.Duration)
		r.counters.Add(e.Counters, e.Duration)
		if e.Inside != nil {
			r.inside(e.Inside.Parts)
		}
		if r.Kind == RowIdle || r.Kind == RowOther {
			r.Bytes += max(0, e.Bytes)
		}
		if at, ok := s.CallAt(e); ok {
			r.Queued += window.Delay(&s.Events[at], e)
			if !s.launched[at] {
				s.launched[at] = true
				r.Launches++
			}
		}
		r.Exclusive += own
		if r.Kind == RowWork && (e.Kind == traces.KindMemcpy || e.Kind == traces.KindMemset) {
			r.Copies += own
		}
	}
	s.divide(work, func(g *Gap) {
		if g.Next != nil && g.Next == g.Before { // a copy, which is work too
			return
		}
		phase := ""
		if s.by != ByKernel {
			phase = s.Header.PhaseOf(cmp.Or(g.Next, g.Before, s.Work[0]))
		}
		for _, c := range g.Causes {
			r := s.named(RowIdle, phase, c.Name)
			r.Exclusive += c.Time
			r.Calls++
		}
	})
}

// divide calls work, if it is not nil, for each event of the work with the ns that it owns, and idle for each gap.
func (s *summary) divide(work func(e *traces.Event, own int64), idle func(*Gap)) {
	gap := func(x window.Interval, before, next *traces.Event) {
		if x.Length() > 0 {
			s.gap = Gap{Interval: x, Causes: s.gap.Causes[:0], Before: before, Next: next}
			s.causes()
			idle(&s.gap)
		}
	}
	var last *traces.Event
	rest := s.Sweep(window.Interval{From: s.from, To: s.to}, func(e, before *traces.Event, x, own window.Interval) {
		gap(x, before, e)
		if work != nil {
			work(e, own.Length())
		}
		if own.Length() > 0 && s.row(e).Kind == RowIdle {
			gap(own, e, e)
		}
		last = e
	})
	gap(rest, last, nil)
}

// run is a step in a pass.
type run struct {
	row      *Row
	max, sum int64 // of threads
	threads  int
}

type rowInPass struct {
	row  *Row
	pass uint64
}

// runs counts how often each step ran, with its cost there.
func (s *summary) runs() {
	if s.of != ofPasses {
		return
	}
	seen := map[traces.Run]*run{}
	counted := map[rowInPass]bool{}
	costs := costsOf(s.Header, s.Device)
	var order []*run
	for _, e := range s.Work {
		step, ok := s.Header.Step(e)
		if !ok || e.Time < s.from || e.Time >= s.to {
			continue
		}
		pass := s.PassOf(e)
		var r *run
		if pass != nil {
			r = seen[e.Run(pass.ID)]
		}
		if r == nil {
			r = &run{row: s.row(e)}
			order = append(order, r)
			isNew := true // where the pass is not known, each event counts as a run
			if pass != nil {
				seen[e.Run(pass.ID)] = r
				at := rowInPass{r.row, pass.ID}
				isNew = s.by == ByStage || !counted[at]
				counted[at] = true
			}
			if isNew {
				r.row.Calls++
			}
			flops, bytes, floor := costs.of(&s.Header.Plans[e.Plan], step, pass)
			r.row.FLOPs += flops
			r.row.Bytes += bytes
			r.row.floor += floor.Time
			if floor.Bound == ceilings.BoundBytes {
				r.row.floorOfBytes += floor.Time
			}
		}
		r.max, r.sum, r.threads = max(r.max, e.Duration), r.sum+e.Duration, r.threads+1
	}
	if s.Device >= 0 {
		return
	}
	for _, r := range order {
		r.row.LongestThread += float64(r.max)
		r.row.MeanThread += float64(r.sum) / float64(r.threads)
	}
}

func (r *Row) inside(p traces.Parts) {
	if r.Inside == nil {
		r.Inside = new(traces.Parts)
	}
	r.Inside.Add(p)
}

// settle sets the fields that follow from sums.
func (r *Row) settle() {
	r.Spread, r.Counters = spreadOf(r.durations), r.counters.Counters()
	if r.MeanThread > 0 {
		r.Imbalance = r.LongestThread / r.MeanThread
	}
	r.Floor, r.Bound = 0, ""
	if r.floor > 0 && r.floor < traces.MaxTime {
		r.Floor, r.Bound = int64(r.floor+0.5), ceilings.BoundFLOPs
		if 2*r.floorOfBytes > r.floor {
			r.Bound = ceilings.BoundBytes
		}
	}
}

// finish puts the rows into the table: work by phase and step, or by time, then the rest.
func (s *summary) finish(t *Table) {
	sum := int64(0)
	for _, r := range s.rows {
		r.settle()
		switch {
		case s.of != ofPasses && r.Kind != RowIdle:
			r.Calls = r.Kernels
		case r.Kind == RowIdle && r.Kernels > 0:
			r.Calls += r.Kernels
		}
		sum += r.Exclusive
		r.made = r
		t.Rows = append(t.Rows, *r)
	}
	t.Rows = append(t.Rows, Row{Kind: RowResidual, Name: Unaccounted, Exclusive: t.Wall - sum, order: -1, Plan: -1})
	slices.SortFunc(t.Rows, func(a, b Row) int {
		byTime := cmp.Compare(b.Exclusive, a.Exclusive)
		if s.by == ByKernel {
			byTime = cmp.Compare(b.Busy, a.Busy)
		}
		byKind := cmp.Compare(slices.Index(RowKinds, a.Kind), slices.Index(RowKinds, b.Kind))
		return cmp.Or(byKind, cmp.Compare(a.Plan, b.Plan), cmp.Compare(a.order, b.order), byTime,
			cmp.Compare(a.Phase, b.Phase), cmp.Compare(a.Name, b.Name), compareShapes(a.Shape, b.Shape))
	})
	s.index(t)
}

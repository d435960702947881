package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"gpt2scope/internal/humanize"
	"gpt2scope/internal/stats"
	"gpt2scope/traces"
	"gpt2scope/traces/tables"
	"gpt2scope/traces/window"
)

// timeline is what the script draws over time. Times are ns after the origin.
type timeline struct {
	Span    int64      `json:"span"` // to the end of the last event
	From    int64      `json:"from"` // of the table
	To      int64      `json:"to"`
	Names   *texts     `json:"names"`
	Shorts  []string   `json:"shorts"` // of names, "" for those that are short
	Helps   []string   `json:"helps"`  // of names, "" for those that no glossary has
	Details *texts     `json:"details"`
	Tracks  []*track   `json:"tracks"`
	Series  []*counter `json:"counters"`

	Device  int32                `json:"device"`  // of the table
	Kernels map[string][]*listed `json:"kernels"` // the work of rows of the page's table, by their rows of the table

	origin int64
	events int
	ops    bool            // the table is by operation
	time   window.Interval // of the table

	// cell is the time in which what is short is drawn as one block: 0 for none. kept are the times in which all is drawn.
	cell   int64
	kept   []window.Interval
	listed map[listKey]*listed
	groups [][]string // of each row of the table, the keys of Kernels
}

// A page of a recording of more events thins them: in each part of so many of the whole time, those of a track that are
// shorter than the part are one block.
var mostEvents, cells = 600_000, int64(100_000)

// track is a lane, or the steps of a lane, which have a track of their own.
type track struct {
	Title string  `json:"title"`
	Kind  string  `json:"kind"` // "thread", "api", "steps", "stream", "sync", "overhead"
	Bands []*band `json:"bands"`

	lane   traces.Lane
	passes bool
	inTime bool // it has events in the time of the table
	block  block
}

// listKey tells lists apart: one for each group of rows, and name, on a CPU the track.
type listKey struct {
	group string
	name  int
	track *track
}

// listed is the work of a name in rows of the table. Times are ns.
type listed struct {
	Name   int   `json:"name"` // index in the page's names
	N      int   `json:"n"`
	Busy   int64 `json:"busy"`
	Median int64 `json:"median"`
	Most   int64 `json:"most"`

	durations []int64
	track     *track
}

// block is what a thinned page draws in place of short events that follow each other.
type block struct {
	from, to, busy int64
	n              int
	rows           map[int]int64 // ns of each row of the table
}

// band is a row of a track. Its events do not overlap, except in the last band of a track that would need more than
// maxBands.
type band struct {
	columns
	end int64
}

// maxBands bounds the bands of a track.
const maxBands = 12

// counter is a series of values. Each value holds until the next.
type counter struct {
	Title  string    `json:"title"`
	Unit   string    `json:"unit"`
	Times  []int64   `json:"times"` // ns after that before
	Values []float32 `json:"values"`

	lane  traces.Lane
	last  int64
	until int64 // of a thinned page: until when the largest value is drawn alone
}

// seriesKey distinguishes counters.
type seriesKey struct {
	lane traces.Lane
	name string
}

// trackKey distinguishes tracks. The steps of a stream have another track than its kernels.
type trackKey struct {
	lane  traces.Lane
	steps bool
}

// newTimeline puts the events of a trace on tracks; of very many only those in the times to be kept are all drawn.
func newTimeline(t *traces.Trace, table *tables.Table, kept []window.Interval) *timeline {
	line := &timeline{origin: t.Events[0].Time, Names: newTexts(), Details: newTexts(), Tracks: []*track{},
		Series: []*counter{}, Device: table.Device, time: table.Time, listed: map[listKey]*listed{},
		Kernels: map[string][]*listed{}, groups: make([][]string, len(table.Rows))}
	for _, f := range foldedRows(table) {
		for _, row := range f.Of {
			line.groups[row] = append(line.groups[row], idsOf(f.Of))
			if len(f.Of) > 1 {
				line.groups[row] = append(line.groups[row], idsOf([]int{row}))
			}
		}
	}
	line.From, line.ops = table.Before, table.By == tables.ByOp
	line.To = line.From + table.Wall
	end := line.origin + line.To
	for i := range t.Events {
		end = max(end, t.Events[i].End())
	}
	line.Span = end - line.origin
	if len(t.Events) > mostEvents {
		line.cell = max(1, line.Span/cells)
		for _, x := range kept {
			x.To = min(x.To, x.From+line.Span/100)
			line.kept = append(line.kept, x)
		}
		line.kept = window.Union(line.kept)
	}
	steps := traces.Project(t.Header, t.Events)
	traces.Sort(steps)
	rowOf := table.RowOf
	if line.ops { // whose rows are all events of a name
		rows := map[string]int{}
		for i := range table.Rows {
			rows[table.Rows[i].Name] = i
		}
		rowOf = func(e *traces.Event) int {
			if i, ok := rows[e.Name]; ok && e.Kind.IsRange() && table.Rows[i].Kind == tables.RowWork {
				return i
			}
			return -1
		}
	}
	tracks := map[trackKey]*track{}
	series := map[seriesKey]*counter{}
	for _, events := range [][]traces.Event{steps, t.Events} {
		for i := range events {
			e := &events[i]
			switch e.Kind {
			case traces.KindNode: // a graph's node, from the capture: nothing runs
			case traces.KindCounter:
				line.count(series, e)
			default:
				line.add(t.Header, tracks, e, rowOf(e), end)
			}
		}
	}
	window.QueueDepth(t, func(e traces.Event) { line.count(series, &e) })
	for _, t := range line.Tracks {
		line.flush(t)
	}
	line.nameProcesses(t.Header)
	line.nameTwins()
	for _, list := range line.Kernels {
		for _, k := range list {
			slices.Sort(k.durations)
			k.N, k.Median, k.Most = len(k.durations), stats.Median(k.durations), k.durations[len(k.durations)-1]
			if k.track != nil {
				k.Name = line.Names.of(k.track.Title)
			}
		}
		slices.SortStableFunc(list, func(a, b *listed) int { return cmp.Compare(b.Busy, a.Busy) })
	}
	for _, name := range line.Names.all {
		line.Shorts = append(line.Shorts, unless(shortName(name) == name, shortName(name)))
		line.Helps = append(line.Helps, nameHelp(name))
	}
	slices.SortStableFunc(line.Tracks, compareTracks)
	slices.SortStableFunc(line.Series, func(a, b *counter) int { return cmp.Compare(a.lane.Device, b.lane.Device) })
	return line
}

func (l *timeline) add(h *traces.Header, tracks map[trackKey]*track, e *traces.Event, row int, end int64) {
	key := trackKey{e.Lane, e.Lane.Kind == traces.LaneStream && e.Kind.IsRange()}
	t := tracks[key]
	if t == nil {
		t = newTrack(h, key)
		tracks[key] = t
		l.Tracks = append(l.Tracks, t)
	}
	t.passes = t.passes || e.Kind == traces.KindPass
	t.inTime = t.inTime || e.Open || l.time.Has(e)
	name, duration := e.Name, e.Duration
	if e.Open {
		name, duration = name+" (never ended)", end-e.Time
	}
	l.events++
	if isWork := e.Kind.IsGPU() || l.Device < 0 && e.Kind.IsRange(); row >= 0 && isWork && e.Lane.Device == l.Device &&
		l.time.Has(e) {
		for _, group := range l.groups[row] {
			l.list(e, t, group)
		}
	}
	isShort := duration < l.cell && !l.isKept(e.Time)
	if b := &t.block; !isShort || e.Time >= b.from+l.cell {
		l.flush(t)
	}
	if isShort {
		t.block.add(e, row)
		return
	}
	t.add(l.origin, e.Time, duration, l.Names.of(name), row, l.Details.of(detail(e)), e.Correlation)
}

// list counts an event among the work of its name in a group of rows.
func (l *timeline) list(e *traces.Event, t *track, group string) {
	at := listKey{group: group}
	if l.Device < 0 {
		at.track = t
	} else {
		at.name = l.Names.of(e.Name)
	}
	k := l.listed[at]
	if k == nil {
		k = &listed{Name: at.name, track: at.track}
		l.listed[at] = k
		l.Kernels[group] = append(l.Kernels[group], k)
	}
	k.Busy += e.Duration
	k.durations = append(k.durations, e.Duration)
}

// isKept reports whether a time is one of those in which all events are drawn.
func (l *timeline) isKept(time int64) bool {
	return window.Covered(l.kept, window.Interval{From: time, To: time + 1}) > 0
}

func (b *block) add(e *traces.Event, row int) {
	if b.n == 0 {
		*b = block{from: e.Time, to: e.Time, rows: b.rows}
		clear(b.rows)
	}
	b.n++
	b.busy += max(0, e.End()-max(b.to, e.Time))
	b.to = max(b.to, e.End())
	b.rows[row] += e.Duration
}

// flush draws the short events of a track that wait as one block, of the row that took most of it.
func (l *timeline) flush(t *track) {
	b := &t.block
	if b.n == 0 {
		return
	}
	row, most := -1, int64(-1)
	for r, ns := range b.rows {
		if ns > most || ns == most && r < row {
			row, most = r, ns
		}
	}
	text := fmt.Sprintf("too short to be drawn alone, busy %.0f %% of this time", 100*float64(b.busy)/float64(max(1, b.to-b.from)))
	t.add(l.origin, b.from, b.to-b.from, l.Names.of(humanize.Count(b.n, "event", "events")), row, l.Details.of(text), 0)
	b.n = 0
}

func (t *track) add(origin, start, duration int64, name, row, detail int, correlation uint64) {
	var b *band
	for _, other := range t.Bands {
		if other.end <= start {
			b = other
			break
		}
	}
	if b == nil && len(t.Bands) < maxBands {
		b = new(band)
		b.last = origin
		t.Bands = append(t.Bands, b)
	} else if b == nil {
		b = t.Bands[maxBands-1]
	}
	b.end = max(b.end, start+duration)
	b.columns.add(start, duration, name, row, detail, correlation)
}

func newTrack(h *traces.Header, key trackKey) *track {
	t := &track{lane: key.lane, Title: key.lane.String(), block: block{rows: map[int]int64{}}}
	for _, n := range h.Lanes {
		if n.Lane == key.lane && n.Name != "" {
			t.Title = n.Name
		}
	}
	t.Kind = cmp.Or(map[traces.LaneKind]string{traces.LaneThread: "thread", traces.LaneAPI: "api", traces.LaneSync: "sync",
		traces.LaneOverhead: "overhead"}[key.lane.Kind], "stream")
	if key.steps {
		t.Kind, t.Title = "steps", "steps on "+t.Title
	}
	if key.lane.Device >= 0 && len(h.Devices) > 1 {
		t.Title = fmt.Sprintf("GPU %d, %s", key.lane.Device, t.Title)
	}
	return t
}

// nameProcesses adds its process, or rank, to the title of each track and counter of one, if there are several.
func (l *timeline) nameProcesses(h *traces.Header) {
	titles := map[int64][]*string{} // of a process, which is -1 for what PyTorch's profiler does itself
	for _, t := range l.Tracks {
		if process := h.ProcessOf(&traces.Event{Lane: t.lane}); process > 0 {
			titles[process] = append(titles[process], &t.Title)
		}
	}
	if len(titles) < 2 {
		return
	}
	for _, c := range l.Series {
		titles[c.lane.Process] = append(titles[c.lane.Process], &c.Title)
	}
	delete(titles, 0) // counters of a device
	for process, of := range titles {
		for _, title := range of {
			*title = h.ProcessName(process) + ", " + *title
		}
	}
}

// nameTwins adds its thread, or its context of a GPU, to the title of each track that others have too.
func (l *timeline) nameTwins() {
	twins := map[string]int{}
	for _, t := range l.Tracks {
		twins[t.Title]++
	}
	for _, t := range l.Tracks {
		switch own := t.lane.String(); {
		case twins[t.Title] == 1:
		case t.lane.Device >= 0:
			t.Title += fmt.Sprintf(", context %d", t.lane.Context)
		case !strings.HasSuffix(t.Title, own):
			t.Title += ", " + own
		}
	}
}

// compareTracks orders tracks: first the threads that run passes, each with its API calls, then other threads, then
// each GPU's streams, each below its steps. Those without events in the time of the table come last.
func compareTracks(a, b *track) int {
	if a.inTime != b.inTime {
		if a.inTime {
			return -1
		}
		return 1
	}
	place := func(t *track) []int64 {
		l := t.lane
		if l.Device < 0 {
			return []int64{-1, l.Process, l.ID, int64(l.Kind)}
		}
		first := map[string]int64{"steps": -2, "stream": -1}[t.Kind]
		return []int64{int64(l.Device), int64(l.Context), l.ID, first}
	}
	if a.lane.Device < 0 && b.lane.Device < 0 && a.passes != b.passes && a.lane.ID != b.lane.ID {
		if a.passes {
			return -1
		}
		return 1
	}
	return slices.Compare(place(a), place(b))
}

// count adds the value of an event to its counter.
func (l *timeline) count(series map[seriesKey]*counter, e *traces.Event) {
	key := seriesKey{e.Lane, e.Name}
	c := series[key]
	if c == nil {
		c = &counter{Title: e.Name, lane: e.Lane, last: l.origin, Unit: units[e.Name]}
		if e.Lane.Device > 0 {
			c.Title = fmt.Sprintf("GPU %d, %s", e.Lane.Device, e.Name)
		}
		series[key] = c
		l.Series = append(l.Series, c)
	}
	value := e.Value
	if !(math.Abs(value) <= math.MaxFloat32) {
		value = 0
	}
	if len(c.Values) > 0 && e.Time < c.until && !l.isKept(e.Time) {
		latest := &c.Values[len(c.Values)-1]
		*latest = max(*latest, float32(value))
		return
	}
	c.Times, c.Values = append(c.Times, e.Time-c.last), append(c.Values, float32(value))
	c.last, c.until = e.Time, e.Time+l.cell
}

// units are the units of the counters that this module's recorders write.
var units = map[string]string{"power": "W", "SM clock": "MHz", traces.MemoryUsed: "B", traces.MemoryAllocated: "B",
	traces.MemoryReserved: "B", "GPU utilisation": "%", "queue depth": "kernels"}

// detail describes an event besides its name and times.
func detail(e *traces.Event) string {
	var parts []string
	add := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	switch e.Kind {
	case traces.KindKernel:
		if shape := tables.ShapeOf(e); shape.Known() {
			add("grid %s, block %s", tables.Dims(e.Grid), tables.Dims(e.Block))
		}
		if e.Registers > 0 {
			add("%d registers per thread", e.Registers)
		}
		if s := int64(e.StaticShared) + int64(e.DynamicShared); s > 0 {
			add("%s B shared memory", humanize.Thousands(s))
		}
		if e.Occupancy > 0 {
			add("estimated occupancy %.0f %%", e.Occupancy)
		}
		for _, c := range traces.AllCounters {
			if v, ok := e.Counters.Get(c.Key); ok {
				add("%s %.1f %%", c.Name, v)
			}
		}
		if e.Node != 0 {
			add("in a graph")
		}
		if e.Bounded {
			add("bounded by its neighbours")
		}
		if e.DividedEvery > 0 {
			add("its part of a time, divided as in each %dth pass", e.DividedEvery)
		}
	case traces.KindMemcpy, traces.KindMemset:
		add("%s B", humanize.Thousands(e.Bytes))
	case traces.KindPass:
		add("pass, %s tokens in the cache before it", humanize.Thousands(int64(max(0, min(e.Value, 1<<40)))))
	case traces.KindRuntime:
		add("CUDA runtime call")
	case traces.KindDriver:
		add("CUDA driver call")
	case traces.KindRange:
		if e.Domain != "" {
			add("range of %s", e.Domain)
		}
	default:
		add("%s", e.Kind)
	}
	return strings.Join(parts, ", ")
}

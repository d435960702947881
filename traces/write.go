package traces

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// Writer writes a trace as a stream. The first error sticks: later calls return it and do nothing.
//
// Events of a lane must come in the order of [Compare]. Events of a lane that overlap
// without nesting go to separate tracks, because viewers drop them otherwise.
type Writer struct {
	w      *bufio.Writer
	header *Header
	err    error
	line   []byte
	events int64

	lanes    map[Lane]*laneTracks
	pids     map[int64]int // Chrome processes seen, and how many threads and streams they have
	ranks    map[Lane]int  // position of a thread or stream in its process, by its lane with Kind 0
	lastTID  int64
	names    map[Lane]string
	flows    uint64
	calls    map[Correlation]place // where API calls are from which no arrow leads yet
	waiting  map[Correlation]place // first work of those that were not written yet
	isClosed bool
}

// place is a moment on a track.
type place struct {
	pid, tid int64
	time     int64
}

// laneTracks are the tracks of a lane.
type laneTracks struct {
	pid    int64
	rank   int
	tracks []track
}

// track is a row of a viewer: its events nest, or do not overlap.
type track struct {
	tid  int64
	last int64 // when the last event began
	open []span
}

// span is an event of a track that may contain the next.
type span struct {
	end    int64
	parent uint64
	tag    int32
	isStep bool
}

// maxTracks bounds the tracks of a lane. A lane that needs more has events out of order.
const maxTracks = 256

// firstTID is the first id of the tracks that the writer adds, above the ids of threads and streams.
const firstTID = 1 << 30

// Compress returns a writer that compresses if the file's name ends in ".gz". Close it
// after the trace's writer and before w.
func Compress(w io.Writer, name string) io.WriteCloser {
	if strings.HasSuffix(strings.ToLower(name), ".gz") {
		return newZipper(w)
	}
	return plain{w}
}

type plain struct{ io.Writer }

func (plain) Close() error { return nil }

// NewWriter begins a trace. It writes the header at once; Close writes Dropped,
// NotRecorded and Incomplete again, with their final values.
func NewWriter(w io.Writer, h *Header) *Writer {
	t := &Writer{
		w: bufio.NewWriterSize(w, 1<<18), header: h, lastTID: firstTID,
		lanes: map[Lane]*laneTracks{}, pids: map[int64]int{}, ranks: map[Lane]int{}, names: map[Lane]string{},
		calls: map[Correlation]place{}, waiting: map[Correlation]place{},
	}
	h.Version = Version
	for _, l := range h.Lanes {
		t.names[l.Lane] = l.Name
	}
	text, err := marshal(h)
	if err != nil {
		t.err = fmt.Errorf("the header of a trace cannot be written: %w", err)
		return t
	}
	devices, _ := marshal(devicesOf(h)) // numbers and texts
	t.printf(`{"displayTimeUnit":"ns","baseTimeNanoseconds":%d,"gpt2scope":%s,`+"\n", h.Base, text)
	t.printf(`"deviceProperties":%s,`+"\n"+`"traceEvents":[`+"\n", devices)
	t.printf(`{"ph":"M","name":"trace","pid":0,"args":{"name":"gpt2scope"}}`) // no event begins with a comma
	return t
}

// deviceProperties is a GPU as PyTorch's profiler describes it, for programs that read its files.
type deviceProperties struct {
	ID      int    `json:"id"`
	Name    string `json:"name"`
	Memory  int64  `json:"totalGlobalMem,omitempty"`
	Major   int    `json:"computeMajor,omitempty"`
	Minor   int    `json:"computeMinor"`
	SMs     int    `json:"numSms,omitempty"`
	Threads int    `json:"maxThreadsPerMultiprocessor,omitempty"`
	Regs    int    `json:"regsPerMultiprocessor,omitempty"`
	Shared  int    `json:"sharedMemPerMultiprocessor,omitempty"`
	Warp    int    `json:"warpSize,omitempty"`
}

// devicesOf describes the GPUs of a header; an empty list if it has none.
func devicesOf(h *Header) []deviceProperties {
	list := []deviceProperties{}
	for _, d := range h.Devices {
		p := deviceProperties{ID: d.ID, Name: d.Name, Memory: d.Memory, SMs: d.SMs, Threads: 32 * d.WarpsPerSM,
			Regs: d.RegistersPerSM, Shared: d.SharedPerSM, Warp: 32}
		fmt.Sscanf(d.Compute, "%d.%d", &p.Major, &p.Minor)
		list = append(list, p)
	}
	return list
}

// marshal is json.Marshal without the escapes for HTML.
func marshal(v any) ([]byte, error) {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return []byte(strings.TrimSuffix(b.String(), "\n")), err
}

func (t *Writer) printf(format string, args ...any) {
	if t.err == nil {
		_, t.err = fmt.Fprintf(t.w, format, args...)
	}
}

// Close ends the trace. It does not close what it writes to.
func (t *Writer) Close() error {
	if t.isClosed || t.err != nil {
		return t.err
	}
	t.isClosed = true
	text, _ := marshal(ending{t.events, t.header.Dropped, t.header.NotRecorded, t.header.Incomplete})
	t.printf("\n],\n\"gpt2scopeEnd\":%s}\n", text)
	if t.err == nil {
		t.err = t.w.Flush()
	}
	return t.err
}

// ending is what is known at the end of a trace.
type ending struct {
	Events      int64            `json:"events"`
	Dropped     map[string]int64 `json:"dropped,omitempty"`
	NotRecorded []string         `json:"notRecorded,omitempty"`
	Incomplete  []string         `json:"incomplete,omitempty"`
}

// Write adds an event.
func (t *Writer) Write(e Event) error {
	if t.err != nil {
		return t.err
	}
	if t.isClosed {
		return errors.New("an event was written to a closed trace")
	}
	if err := e.Check(); err != nil {
		t.err = err
		return err
	}
	lane := t.lane(e.Lane)
	tid, err := t.place(lane, &e)
	if err != nil {
		t.err = err
		return err
	}
	t.line = t.appendEvent(t.line[:0], &e, lane.pid, tid)
	if _, t.err = t.w.Write(t.line); t.err != nil {
		return t.err
	}
	t.events++
	t.flow(&e, place{lane.pid, tid, e.Time})
	return t.err
}

// lane returns the tracks of a lane. A new lane gets a name for viewers. As in Kineto's
// files, a device is a process whose id is the device's number.
func (t *Writer) lane(l Lane) *laneTracks {
	if found := t.lanes[l]; found != nil {
		return found
	}
	made := &laneTracks{pid: cmp.Or(l.Process, t.header.Process)}
	if l.Device >= 0 {
		made.pid = int64(l.Device)
	}
	if _, known := t.pids[made.pid]; !known {
		name, index := fmt.Sprintf("process %d", made.pid), 0
		if _, ok := t.header.RankOf(made.pid); ok && l.Device < 0 {
			name = fmt.Sprintf("%s (%s)", t.header.ProcessName(made.pid), name)
		}
		if l.Device >= 0 {
			name, index = fmt.Sprintf("GPU %d", l.Device), 1+int(l.Device)
			for _, d := range t.header.Devices {
				if d.ID == int(l.Device) && d.Name != "" {
					name += " " + d.Name
				}
			}
		}
		t.meta("process_name", made.pid, -1, "name", appendString(nil, name))
		t.meta("process_sort_index", made.pid, -1, "sort_index", strconv.AppendInt(nil, int64(index), 10))
	}
	// Viewers show the lanes of a thread or stream next to each other.
	const perThread = int(LaneCounter) + 1
	key := l
	key.Kind = 0
	rank, known := t.ranks[key]
	if !known {
		rank = t.pids[made.pid]
		t.pids[made.pid]++
		t.ranks[key] = rank
	}
	made.rank = rank*perThread + int(l.Kind)
	t.lanes[l] = made
	return made
}

// newTrack adds a track to a lane.
func (t *Writer) newTrack(l Lane, lane *laneTracks) *track {
	n := len(lane.tracks)
	tid := l.ID
	if n > 0 || l.Kind != LaneThread && l.Kind != LaneStream || l.ID < 0 || l.ID >= firstTID || l.Kind == LaneStream &&
		l.Process != 0 && l.Process != t.header.Process {
		t.lastTID++
		tid = t.lastTID
	}
	name := l.String()
	if given := t.names[l]; given != "" {
		name = given
		if l.Kind == LaneThread {
			name += fmt.Sprintf(" (%d)", l.ID)
		}
	}
	if l.Kind == LaneStream && l.Process != 0 && l.Process != t.header.Process {
		name += " of " + t.header.ProcessName(l.Process)
	}
	if n > 0 {
		name += fmt.Sprintf(" [%d]", n+1)
	}
	t.meta("thread_name", lane.pid, tid, "name", appendString(nil, name))
	t.meta("thread_sort_index", lane.pid, tid, "sort_index", strconv.AppendInt(nil, int64(lane.rank*maxTracks+n), 10))
	lane.tracks = append(lane.tracks, track{tid: tid, last: math.MinInt64})
	return &lane.tracks[n]
}

// place chooses a track for an event.
func (t *Writer) place(lane *laneTracks, e *Event) (int64, error) {
	if e.Kind == KindCounter || e.Kind == KindMark || e.Kind == KindNode {
		if len(lane.tracks) == 0 && e.Kind != KindCounter {
			t.newTrack(e.Lane, lane)
		}
		if len(lane.tracks) == 0 {
			return 0, nil
		}
		return lane.tracks[0].tid, nil
	}
	end := e.End()
	if e.Open {
		end = math.MaxInt64
	}
	fit := -1
	for i := range lane.tracks {
		depth, fits := lane.tracks[i].fit(e.Time, end)
		if !fits {
			continue
		}
		if fit < 0 {
			fit = i
		}
		if e.Lane.Kind == LaneStream && e.Kind != KindStep && lane.tracks[i].inStep(depth, e) {
			fit = i
			break
		}
	}
	if fit < 0 {
		if len(lane.tracks) == maxTracks {
			return 0, fmt.Errorf("event %q at %d ns fits on none of the %d tracks of %s: events of a lane must come in order "+
				"of time", e.Name, e.Time, maxTracks, e.Lane)
		}
		t.newTrack(e.Lane, lane)
		fit = len(lane.tracks) - 1
	}
	tr := &lane.tracks[fit]
	depth, _ := tr.fit(e.Time, end)
	tr.open = append(tr.open[:depth], span{end, e.Parent, e.Step, e.Kind == KindStep})
	tr.last = e.Time
	return tr.tid, nil
}

// fit reports whether an event fits on a track, and how many open events it nests in there.
func (tr *track) fit(start, end int64) (depth int, fits bool) {
	if start < tr.last {
		return 0, false
	}
	depth = len(tr.open)
	for depth > 0 && tr.open[depth-1].end <= start {
		depth--
	}
	return depth, depth == 0 || tr.open[depth-1].end >= end
}

// inStep reports whether the event's own step is open on the track.
func (tr *track) inStep(depth int, e *Event) bool {
	for _, s := range tr.open[:depth] {
		if s.isStep && s.tag == e.Step && s.parent == e.Parent {
			return true
		}
	}
	return false
}

// meta writes a line that names something for viewers.
func (t *Writer) meta(what string, pid, tid int64, key string, value []byte) {
	if tid >= 0 {
		t.printf(",\n{\"ph\":\"M\",\"name\":%q,\"pid\":%d,\"tid\":%d,\"args\":{%q:%s}}", what, pid, tid, key, value)
	} else {
		t.printf(",\n{\"ph\":\"M\",\"name\":%q,\"pid\":%d,\"args\":{%q:%s}}", what, pid, key, value)
	}
}

// flow draws an arrow from each API call to the first work that it caused: arrows to each kernel of a graph would be a
// third of a file.
func (t *Writer) flow(e *Event, at place) {
	if e.Correlation == 0 {
		return
	}
	key := t.header.Correlate(e)
	switch {
	case e.Kind.IsCall():
		if work, ok := t.waiting[key]; ok {
			t.arrow(at, work)
			delete(t.waiting, key)
		} else {
			t.calls[key] = at
		}
	case e.Kind.IsGPU():
		if call, ok := t.calls[key]; ok {
			t.arrow(call, at)
			delete(t.calls, key)
		} else if _, is := t.waiting[key]; !is {
			t.waiting[key] = at
		}
	}
}

func (t *Writer) arrow(from, to place) {
	t.flows++
	for _, end := range []struct {
		ph string
		place
	}{{`"s"`, from}, {`"f","bp":"e"`, to}} {
		b := append(t.line[:0], ",\n{\"ph\":"...)
		b = append(b, end.ph...)
		b = append(b, `,"cat":"ac2g","name":"ac2g","id":`...)
		b = strconv.AppendUint(b, t.flows, 10)
		b = appendPlace(b, end.pid, end.tid, end.time)
		t.line = append(b, '}')
		if t.err == nil {
			_, t.err = t.w.Write(t.line)
		}
	}
}

func appendPlace(b []byte, pid, tid, time int64) []byte {
	b = strconv.AppendInt(append(b, `,"pid":`...), pid, 10)
	b = strconv.AppendInt(append(b, `,"tid":`...), tid, 10)
	return appendMicros(append(b, `,"ts":`...), time)
}

// appendMicros writes nanoseconds as microseconds with three decimals.
func appendMicros(b []byte, ns int64) []byte {
	if ns < 0 {
		b, ns = append(b, '-'), -ns
	}
	b = strconv.AppendInt(b, ns/1000, 10)
	r := ns % 1000
	return append(b, '.', byte('0'+r/100), byte('0'+r/10%10), byte('0'+r%10))
}

// appendEvent writes the line of an event.
func (t *Writer) appendEvent(b []byte, e *Event, pid, tid int64) []byte {
	ph := "X"
	switch {
	case e.Kind == KindCounter:
		ph = "C"
	case e.Kind == KindMark || e.Kind == KindNode:
		ph = `i","s":"t`
	case e.Open:
		ph = "B"
	}
	category := kinds[e.Kind].category
	onGPU := e.Lane.Device >= 0
	if onGPU && e.Kind.IsRange() {
		category = "gpu_user_annotation"
	}
	if onGPU && e.Kind == KindCounter {
		category = "gpu_counter"
	}
	b = append(b, ",\n{\"ph\":\""...)
	b = append(b, ph...)
	b = append(b, `","cat":"`...)
	b = append(b, category...)
	b = append(b, `","name":`...)
	b = appendString(b, e.Name)
	b = appendPlace(b, pid, tid, e.Time)
	if ph == "X" {
		b = appendMicros(append(b, `,"dur":`...), e.Duration)
	}
	b = append(b, `,"args":{`...)
	if e.Kind == KindCounter { // viewers plot each argument as a line; a counter has one
		b = strconv.AppendFloat(append(b, `"value":`...), e.Value, 'g', -1, 64)
		return append(b, "}}"...)
	}
	args := len(b)
	key := func(name string) { b = append(append(append(b, '"'), name...), '"', ':') }
	number := func(name string, v int64) {
		key(name)
		b = append(strconv.AppendInt(b, v, 10), ',')
	}
	some := func(name string, v int64) {
		if v != 0 {
			number(name, v)
		}
	}
	id := func(name string, v uint64) {
		if v != 0 {
			key(name)
			b = append(strconv.AppendUint(b, v, 10), ',')
		}
	}
	three := func(name string, v [3]int32) {
		key(name)
		b = append(b, '[')
		for _, n := range v {
			b = append(strconv.AppendInt(b, int64(n), 10), ',')
		}
		b[len(b)-1] = ']'
		b = append(b, ',')
	}
	float := func(name string, v float64, bits int) {
		key(name)
		b = append(strconv.AppendFloat(b, v, 'g', -1, bits), ',')
	}
	text := func(name, v string) {
		if v != "" {
			key(name)
			b = append(appendString(b, v), ',')
		}
	}
	yes := func(name string, v bool) {
		if v {
			key(name)
			b = append(b, "true,"...)
		}
	}
	if e.Kind == KindPass || e.Kind == KindStep || onGPU && e.Kind == KindOp {
		text("kind", kinds[e.Kind].name)
	}
	if onGPU {
		number("device", int64(e.Lane.Device))
		some("context", int64(e.Lane.Context))
		if e.Lane.Kind == LaneStream || e.Lane.Kind == LaneSync {
			number("stream", e.Lane.ID)
		}
		if e.Lane.Process != 0 && e.Lane.Process != t.header.Process {
			number("process", e.Lane.Process)
		}
	} else if tid != e.Lane.ID {
		number("thread", e.Lane.ID)
	}
	id("correlation", e.Correlation)
	if e.Kind == KindKernel {
		three("grid", e.Grid)
		three("block", e.Block)
		number("registers per thread", int64(e.Registers))
		number("shared memory", int64(e.StaticShared)+int64(e.DynamicShared))
		some("dynamic shared memory", int64(e.DynamicShared))
		if e.Occupancy > 0 {
			float("est. achieved occupancy %", float64(e.Occupancy), 32)
		}
		if e.Counters != nil {
			key("counters")
			b = append(b, '{')
			for _, c := range AllCounters {
				if v, ok := e.Counters.Get(c.Counter); ok {
					float(c.Key, v, 32)
				}
			}
			b = append(bytes.TrimSuffix(b, []byte{','}), "},"...)
		}
	}
	if in := e.Inside; in != nil && e.Kind == KindKernel {
		key("inside")
		b = append(b, '{')
		number("sms", int64(in.SMs))
		for i, ns := range in.Parts.fields() {
			number(partKeys[i], *ns)
		}
		if len(in.Each) > 0 {
			key("each")
			b = append(b, '[')
			for _, p := range in.Each {
				for _, ns := range p.fields() {
					b = append(strconv.AppendInt(b, *ns, 10), ',')
				}
			}
			b = append(bytes.TrimSuffix(b, []byte{','}), "],"...)
		}
		b = append(bytes.TrimSuffix(b, []byte{','}), "},"...)
	}
	id("External id", e.External)
	if e.Inputs != "" {
		key("Input Dims")
		b = append(append(b, e.Inputs...), ',')
	}
	yes("bounded", e.Bounded)
	some("divided as in each", int64(e.DividedEvery))
	yes("warm-up", e.WarmUp)
	text("wait", waitNames[e.Wait])
	some("bytes", e.Bytes)
	id("graph node id", e.Node)
	id("original graph node id", e.Origin)
	if e.Plan >= 0 {
		number("plan", int64(e.Plan))
	}
	if e.Step >= 0 {
		number("step", int64(e.Step))
	}
	id("range", e.ID)
	id("parent", e.Parent)
	text("domain", e.Domain)
	if e.Value != 0 {
		float("value", e.Value, 64)
	}
	if len(b) > args {
		b = b[:len(b)-1] // the last comma
	}
	return append(b, "}}"...)
}

// appendString writes a JSON string. Bytes that are not UTF-8 become U+FFFD.
func appendString(b []byte, s string) []byte {
	b, _ = jsontext.AppendQuote(b, s) // of other bytes its error says no more than that it replaced them
	return b
}

package traces

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/klauspost/pgzip"
)

// writer writes a trace.
type writer struct {
	*bufio.Writer
	header  *Header
	lanes   map[Lane]*laneTracks
	names   map[Lane]string
	lastTID int64
}

// place is a moment on a track.
type place struct{ pid, tid, time int64 }

// laneTracks are the tracks of a lane.
type laneTracks struct {
	pid    int64
	order  int // among the lanes of all
	tracks []track
}

// track is a row of a viewer: its events nest, or do not overlap.
type track struct {
	tid  int64
	open []*Event // that may contain the next
}

// maxTracks bounds the tracks of a lane: what overlaps more is on the last one, where viewers may drop it.
const maxTracks = 256

// firstTID is the first id of the tracks that the writer adds, above the ids of threads and streams.
const firstTID = 1 << 30

// Write writes a trace, compressed if the file's name ends in ".gz". It sorts the events, and notes their number in the
// header.
//
// Events of a lane that overlap without nesting go to separate tracks, because viewers drop them otherwise.
func Write(to io.Writer, name string, h *Header, events []Event) error {
	if strings.HasSuffix(strings.ToLower(name), ".gz") {
		// Level 6 is the last that is as fast as making the text; 9 takes five times as long for a tenth less.
		z, _ := pgzip.NewWriterLevel(to, 6)
		z.SetConcurrency(1<<20, 16) // blocks of 1 MiB
		return cmp.Or(Write(z, "", h, events), z.Close())
	}
	Sort(events)
	h.Version, h.Events = Version, int64(len(events))
	text, err := marshal(h)
	if err != nil {
		return fmt.Errorf("the header of a trace cannot be written: %w", err)
	}
	devices, _ := marshal(devicesOf(h)) // numbers and texts
	w := &writer{Writer: bufio.NewWriterSize(to, 1<<18), header: h, lanes: map[Lane]*laneTracks{},
		names: map[Lane]string{}, lastTID: firstTID}
	for _, l := range h.Lanes {
		w.names[l.Lane] = l.Name
	}
	fmt.Fprintf(w, `{"displayTimeUnit":"ns","baseTimeNanoseconds":%d,"gpt2scope":%s,`+"\n", h.Base, text)
	fmt.Fprintf(w, `"deviceProperties":%s,`+"\n"+`"traceEvents":[`+"\n", devices)
	w.WriteString(`{"ph":"M","name":"trace","pid":0,"args":{"name":"gpt2scope"}}`) // no event begins with a comma
	w.lay(events)
	places := make([]place, len(events))
	for i := range events {
		e := &events[i]
		if err := e.Check(); err != nil {
			return err
		}
		places[i] = w.place(e)
	}
	arrows := make(chan []byte, 1)
	go func() { arrows <- arrowsOf(h, events, places) }()
	const part = 1 << 12 // events whose text one processor makes at a time
	inParts(len(events), part, func(from, to int) []byte {
		var b []byte
		for i := from; i < to; i++ {
			b = w.event(b, &events[i], places[i])
		}
		return b
	}, func(b []byte) { w.Write(b) })
	w.Write(<-arrows)
	fmt.Fprintf(w, "\n],\n\"gpt2scopeEnd\":{\"events\":%d}}\n", len(events))
	return w.Flush()
}

// inParts makes parts of n things on several processors, and passes them on in their order.
func inParts(n, size int, of func(from, to int) []byte, next func([]byte)) {
	parts := make(chan chan []byte, runtime.GOMAXPROCS(0))
	go func() {
		defer close(parts)
		for from := 0; from < n; from += size {
			part := make(chan []byte, 1)
			parts <- part
			go func() { part <- of(from, min(from+size, n)) }()
		}
	}()
	for part := range parts {
		next(<-part)
	}
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

// lay gives each lane its place in viewers, those of a thread or stream beside each other, and names their processes. As
// in Kineto's files, a device is a process whose id is the device's number.
func (w *writer) lay(events []Event) {
	for i := range events {
		if l := events[i].Lane; w.lanes[l] == nil {
			w.lanes[l] = &laneTracks{pid: cmp.Or(l.Process, w.header.Process)}
			if l.Device >= 0 {
				w.lanes[l].pid = int64(l.Device)
			}
		}
	}
	named := map[int64]bool{}
	for i, l := range slices.SortedFunc(maps.Keys(w.lanes), compareLanes) {
		lane := w.lanes[l]
		lane.order = i
		if named[lane.pid] {
			continue
		}
		named[lane.pid] = true
		name, index := fmt.Sprintf("process %d", lane.pid), 0
		if _, ok := w.header.RankOf(lane.pid); ok && l.Device < 0 {
			name = fmt.Sprintf("%s (%s)", w.header.ProcessName(lane.pid), name)
		}
		if l.Device >= 0 {
			name, index = fmt.Sprintf("GPU %d", l.Device), 1+int(l.Device)
			for _, d := range w.header.Devices {
				if d.ID == int(l.Device) && d.Name != "" {
					name += " " + d.Name
				}
			}
		}
		pid := strconv.FormatInt(lane.pid, 10)
		w.meta("process", pid, name, index)
	}
}

func compareLanes(a, b Lane) int {
	return cmp.Or(cmp.Compare(a.Device, b.Device), cmp.Compare(a.Process, b.Process), cmp.Compare(a.Context, b.Context),
		cmp.Compare(a.ID, b.ID), cmp.Compare(a.Kind, b.Kind))
}

// meta names a process or thread for viewers, and gives its place among others. id has a pid, and a tid of a thread.
func (w *writer) meta(what, id, name string, index int) {
	fmt.Fprintf(w, ",\n{\"ph\":\"M\",\"name\":\"%s_name\",\"pid\":%s,\"args\":{\"name\":%s}}", what, id, appendString(nil, name))
	fmt.Fprintf(w, ",\n{\"ph\":\"M\",\"name\":\"%s_sort_index\",\"pid\":%s,\"args\":{\"sort_index\":%d}}", what, id, index)
}

func (w *writer) newTrack(l Lane, lane *laneTracks) {
	n, tid := len(lane.tracks), l.ID
	ofOther := l.Kind == LaneStream && l.Process != 0 && l.Process != w.header.Process
	if n > 0 || l.Kind != LaneThread && l.Kind != LaneStream || l.ID < 0 || l.ID >= firstTID || ofOther {
		w.lastTID++
		tid = w.lastTID
	}
	name := cmp.Or(w.names[l], l.String())
	if w.names[l] != "" && l.Kind == LaneThread {
		name += fmt.Sprintf(" (%d)", l.ID)
	}
	if ofOther {
		name += " of " + w.header.ProcessName(l.Process)
	}
	if n > 0 {
		name += fmt.Sprintf(" [%d]", n+1)
	}
	w.meta("thread", fmt.Sprintf(`%d,"tid":%d`, lane.pid, tid), name, lane.order*maxTracks+n)
	lane.tracks = append(lane.tracks, track{tid: tid})
}

// place chooses a track for an event.
func (w *writer) place(e *Event) place {
	lane := w.lanes[e.Lane]
	at := 0
	switch e.Kind {
	case KindCounter:
		return place{lane.pid, 0, e.Time}
	case KindMark, KindNode:
	default:
		at = len(lane.tracks)
		for i := range lane.tracks {
			t := &lane.tracks[i]
			if !t.fits(e) {
				continue
			}
			at = min(at, i)
			if e.Lane.Kind == LaneStream && e.Kind != KindStep && t.inStep(e) {
				at = i
				break
			}
		}
		at = min(at, maxTracks-1)
	}
	if at == len(lane.tracks) {
		w.newTrack(e.Lane, lane)
	}
	t := &lane.tracks[at]
	if e.Kind != KindMark && e.Kind != KindNode {
		t.open = append(t.open, e)
	}
	return place{lane.pid, t.tid, e.Time}
}

// fits reports whether an event, after all that begin earlier, nests in those that are open on a track.
func (t *track) fits(e *Event) bool {
	last := func() *Event { return t.open[len(t.open)-1] }
	for len(t.open) > 0 && end(last()) <= e.Time {
		t.open = t.open[:len(t.open)-1]
	}
	return len(t.open) == 0 || end(last()) >= end(e)
}

// end is when an event ends, or never.
func end(e *Event) int64 {
	if e.Open {
		return math.MaxInt64
	}
	return e.End()
}

// inStep reports whether the event's own step is open on the track.
func (t *track) inStep(e *Event) bool {
	return slices.ContainsFunc(t.open, func(s *Event) bool {
		return s.Kind == KindStep && s.Step == e.Step && s.Parent == e.Parent
	})
}

// arrowsOf makes an arrow from each API call to the first work that it caused: arrows to each kernel of a graph would be
// a third of a file.
func arrowsOf(h *Header, events []Event, places []place) (b []byte) {
	index, arrows, drawn := newIndex(h, events), uint64(0), make([]bool, len(events))
	end := func(ph string, at place) {
		b = append(append(b, ",\n{\"ph\":"...), ph...)
		b = strconv.AppendUint(append(b, `,"cat":"ac2g","name":"ac2g","id":`...), arrows, 10)
		b = append(appendPlace(b, at), '}')
	}
	for i := range events {
		if e := &events[i]; e.Kind.IsGPU() {
			if call, ok := index.CallAt(e); ok && !drawn[call] {
				drawn[call] = true
				arrows++
				end(`"s"`, places[call])
				end(`"f","bp":"e"`, places[i])
			}
		}
	}
	return b
}

func appendPlace(b []byte, at place) []byte {
	b = strconv.AppendInt(append(b, `,"pid":`...), at.pid, 10)
	b = strconv.AppendInt(append(b, `,"tid":`...), at.tid, 10)
	return appendMicros(append(b, `,"ts":`...), at.time)
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

func (w *writer) event(b []byte, e *Event, at place) []byte {
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
	b = append(append(b, ",\n{\"ph\":\""...), ph...)
	b = append(append(b, `","cat":"`...), category...)
	b = appendString(append(b, `","name":`...), e.Name)
	b = appendPlace(b, at)
	if ph == "X" {
		b = appendMicros(append(b, `,"dur":`...), e.Duration)
	}
	b = append(b, `,"args":{`...)
	args := len(b)
	number := func(name string, v int64) { b = strconv.AppendInt(appendKey(b, name), v, 10) }
	some := func(name string, v int64) {
		if v != 0 {
			number(name, v)
		}
	}
	switch {
	case e.Kind == KindCounter: // viewers plot each argument as a line; a counter has one
		b = strconv.AppendFloat(appendKey(b, "value"), e.Value, 'g', -1, 64)
	case e.Kind == KindPass || e.Kind == KindStep || onGPU && e.Kind == KindOp:
		b = appendString(appendKey(b, "kind"), kinds[e.Kind].name)
	}
	switch {
	case e.Kind == KindCounter:
	case onGPU:
		number("device", int64(e.Lane.Device))
		some("context", int64(e.Lane.Context))
		if e.Lane.Kind == LaneStream || e.Lane.Kind == LaneSync {
			number("stream", e.Lane.ID)
		}
		if e.Lane.Process != w.header.Process {
			some("process", e.Lane.Process)
		}
	case at.tid != e.Lane.ID:
		number("thread", e.Lane.ID)
	}
	if e.Kind == KindKernel {
		some("shared memory", int64(e.StaticShared)+int64(e.DynamicShared))
		if e.Counters != nil {
			counters, _ := marshal(e.Counters)
			b = append(appendKey(b, "counters"), counters...)
		}
		if e.Inside != nil {
			inside, _ := marshal(e.Inside)
			b = append(appendKey(b, "inside"), inside...)
		}
	}
	if e.Inputs != "" {
		b = append(appendKey(b, "Input Dims"), e.Inputs...)
	}
	if e.Plan >= 0 {
		number("plan", int64(e.Plan))
	}
	if e.Step >= 0 {
		number("step", int64(e.Step))
	}
	for i := range fields {
		if e.Kind != KindCounter {
			b = appendField(b, fields[i].name, fields[i].of(e))
		}
	}
	if len(b) > args { // without the first comma
		b = slices.Delete(b, args, args+1)
	}
	return append(b, "}}"...)
}

// fields are the arguments of an event in a file that are written and read as they are, by name; what is 0 is absent.
var fields = []struct {
	name string
	of   func(*Event) any
}{
	{"correlation", func(e *Event) any { return &e.Correlation }},
	{"grid", func(e *Event) any { return &e.Grid }},
	{"block", func(e *Event) any { return &e.Block }},
	{"registers per thread", func(e *Event) any { return &e.Registers }},
	{"dynamic shared memory", func(e *Event) any { return &e.DynamicShared }},
	{"est. achieved occupancy %", func(e *Event) any { return &e.Occupancy }},
	{"External id", func(e *Event) any { return &e.External }},
	{"bounded", func(e *Event) any { return &e.Bounded }},
	{"divided as in each", func(e *Event) any { return &e.DividedEvery }},
	{"warm-up", func(e *Event) any { return &e.WarmUp }},
	{"wait", func(e *Event) any { return &e.Wait }},
	{"bytes", func(e *Event) any { return &e.Bytes }},
	{"graph node id", func(e *Event) any { return &e.Node }},
	{"original graph node id", func(e *Event) any { return &e.Origin }},
	{"range", func(e *Event) any { return &e.ID }},
	{"parent", func(e *Event) any { return &e.Parent }},
	{"domain", func(e *Event) any { return &e.Domain }},
	{"value", func(e *Event) any { return &e.Value }},
}

func appendKey(b []byte, name string) []byte {
	return append(append(append(b, `,"`...), name...), `":`...)
}

// appendField writes an argument that is not 0.
func appendField(b []byte, name string, value any) []byte {
	before := len(b)
	b = appendKey(b, name)
	is := false
	switch v := value.(type) {
	case *bool:
		is, b = *v, strconv.AppendBool(b, *v)
	case *int32:
		is, b = *v != 0, strconv.AppendInt(b, int64(*v), 10)
	case *int64:
		is, b = *v != 0, strconv.AppendInt(b, *v, 10)
	case *uint64:
		is, b = *v != 0, strconv.AppendUint(b, *v, 10)
	case *float32:
		is, b = *v != 0, strconv.AppendFloat(b, float64(*v), 'g', -1, 32)
	case *float64:
		is, b = *v != 0, strconv.AppendFloat(b, *v, 'g', -1, 64)
	case *string:
		is, b = *v != "", appendString(b, *v)
	case *Wait:
		is, b = *v != WaitNone, appendString(b, waitNames[*v])
	case *[3]int32:
		is, b = *v != [3]int32{}, append(b, '[')
		for _, n := range v {
			b = append(strconv.AppendInt(b, int64(n), 10), ',')
		}
		b[len(b)-1] = ']'
	}
	if !is {
		b = b[:before]
	}
	return b
}

// appendString writes a JSON string. Bytes that are not UTF-8 become U+FFFD.
func appendString(b []byte, s string) []byte {
	b, _ = jsontext.AppendQuote(b, s) // of other bytes its error says no more than that it replaced them
	return b
}

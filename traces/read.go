package traces

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// TruncatedError says that a trace was cut off, and how much is missing.
type TruncatedError struct {
	Events   int64 // whole ones, which were read
	Expected int64 // as the header says; 0 if it does not
	Offset   int64 // bytes read, uncompressed
}

func (e *TruncatedError) Error() string {
	text := fmt.Sprintf("the trace is cut off at byte %d, after %d whole events", e.Offset, e.Events)
	if missing := e.Expected - e.Events; missing > 0 {
		return text + fmt.Sprintf(": %d of %d events are missing (%.1f %%)", missing, e.Expected,
			100*float64(missing)/float64(e.Expected))
	}
	return text + "; how many are missing is not known: the header was written before they were counted"
}

// Read reads a trace: one of ours, Chrome trace JSON as Kineto writes it, or an array of such events; also compressed
// by gzip or zstd. The events are in the order of the file; their names are interned. Of a trace that is cut off or damaged it
// returns what precedes the fault, and the error: a [*TruncatedError] if the trace is cut off.
func Read(r io.Reader) (*Header, []Event, error) {
	in, err := Uncompressed(r)
	if err != nil {
		return nil, nil, err
	}
	if head, _ := in.Peek(len(SQLite)); string(head) == SQLite {
		return nil, nil, errors.New("the trace is an sqlite file, which cannot be read as a stream; open it by name")
	}
	escapes := &escapes{in: in}
	c := &chrome{scanner: newScanner(escapes), strings: map[string]string{}, processes: map[int64]string{},
		threads: map[Lane]string{}, begun: map[Lane][]int{}}
	c.header = Header{Version: Version, Tool: unknownTool, Recorder: RecorderChrome,
		Clock: Clock{Domain: "unknown", Uncertainty: -1}}
	if err := c.head(); err != nil {
		return nil, nil, err
	}
	err = c.events()
	c.place()
	c.header.mend("backslashes in texts that are no escapes, as in paths of Windows, are kept as they stand",
		escapes.mended)
	return &c.header, c.list, err
}

// unknownTool is the tool of a file that does not name its writer.
const unknownTool = "unknown"

// chrome reads Chrome trace JSON.
type chrome struct {
	*scanner
	header  Header
	isOurs  bool
	strings map[string]string
	list    []Event
	ending  *struct{ Events int64 } // what the file says at its end
	isArray bool                    // of events alone, with no header

	processes map[int64]string // names
	threads   map[Lane]string  // names
	unplaced  []int            // events without a category, in list
	whats     Interner
	current   rawEvent
	begun     map[Lane][]int // ranges that wait for their end, in list; -1 for one that is left out
}

// head reads what precedes the events.
func (c *chrome) head() error {
	found := false
	if c.isArray = c.peek() == '['; c.isArray {
		found = true
	} else {
		c.want('{')
	}
	for c.ok() && !found && !c.is('}') {
		key := string(c.string())
		if found = key == "traceEvents"; !found {
			c.topLevel(key)
		}
	}
	switch {
	case errors.Is(c.err, errCut) && c.isOurs:
		return &TruncatedError{Expected: c.header.Events, Offset: c.json.InputOffset()}
	case errors.Is(c.err, errCut):
		return errors.New("it is not a trace, or it is cut off before its events")
	case c.err != nil:
		return fmt.Errorf("it is not a trace: %w", c.err)
	case !found:
		return errors.New("it is not a trace: it has no \"traceEvents\"")
	case c.isOurs:
		return c.header.check()
	}
	return nil
}

// topLevel reads a field beside the events.
func (c *chrome) topLevel(key string) {
	h := &c.header
	text := func(v any) {
		if raw := c.raw(); c.ok() {
			if err := json.Unmarshal(raw, v); err != nil {
				c.fail(fmt.Errorf("%q is damaged: %w", key, err))
			}
		}
	}
	switch key {
	case "gpt2scope":
		var ours Header
		if text(&ours); c.ok() {
			*h, c.isOurs = ours, true
		}
	case "gpt2scopeEnd":
		c.ending = new(struct{ Events int64 })
		text(c.ending)
	case "baseTimeNanoseconds":
		if base := c.int(); !c.isOurs {
			h.Base = base
		}
	case "deviceProperties":
		if c.isOurs { // the header has them
			c.skip()
			return
		}
		h.Tool, h.Recorder = "PyTorch", RecorderKineto
		var devices []deviceProperties
		text(&devices)
		for _, d := range devices {
			h.Devices = append(h.Devices, Device{ID: d.ID, Name: d.Name, Memory: d.Memory,
				Compute: fmt.Sprintf("%d.%d", d.Major, d.Minor),
				SMs:     d.SMs, WarpsPerSM: d.Threads / 32, RegistersPerSM: d.Regs, SharedPerSM: d.Shared})
		}
	case "distributedInfo":
		var info struct {
			Rank    *int   `json:"rank"`
			Backend string `json:"backend"` // "nccl", "cpu:gloo,cuda:nccl"
		}
		if raw := c.raw(); c.ok() && json.Unmarshal(raw, &info) == nil && info.Rank != nil && *info.Rank >= 0 &&
			!c.isOurs {
			h.Ranks = append(h.Ranks, Rank{Rank: *info.Rank, Source: "distributedInfo",
				OwnGPU: strings.Contains(info.Backend, "nccl")})
		}
	case "schemaVersion":
		h.Tool, h.Recorder = "PyTorch", RecorderKineto
		c.skip()
	case "cuda_runtime_version", "cuda_driver_version", "cupti_version", "profile_memory", "trace_id":
		c.version(key, string(c.string()))
	default:
		c.skip()
	}
}

func (c *chrome) version(key, value string) {
	if c.header.Versions == nil {
		c.header.Versions = map[string]string{}
	}
	c.header.Versions[key] = value
}

// events reads the events and what follows them.
func (c *chrome) events() error {
	c.want('[')
	for c.ok() && !c.is(']') {
		switch c.peek() {
		case '{':
			c.from.left = maxValue
			e, ok := c.event()
			if !c.ok() {
				continue
			}
			if at := e.track(); e.ph == "B" {
				begun := -1
				if ok {
					begun = len(c.list)
				}
				c.begun[at] = append(c.begun[at], begun)
			}
			if ok {
				if e.category == "" && !e.isNumbered {
					c.unplaced = append(c.unplaced, len(c.list))
				}
				c.list = append(c.list, e.Event)
				if e.reserved > 0 && e.Kind == KindCounter {
					e.What, e.Value = c.whats.Of(&What{Name: MemoryReserved}), float64(e.reserved)
					c.list = append(c.list, e.Event)
				}
			}
		case 0:
			// An array of events may lack its closing bracket and may end with a comma, because its writer can be killed at any
			// time (Trace Event Format, "JSON Array Format").
			if c.skip(); c.isArray && errors.Is(c.err, errCut) {
				c.header.NotRecorded = append(c.header.NotRecorded,
					"events after the last one, if there were any: the array of events has no end")
				return nil
			}
		default:
			c.fail(fmt.Errorf("expected an event, found %s", c.raw()))
		}
	}
	if c.ok() {
		c.rest()
	}
	if c.ok() && c.peek() == '{' {
		return errors.New("a second JSON object follows the trace: two recordings were written into one file; write each " +
			"into a file of its own")
	}
	events := int64(len(c.list))
	switch {
	case errors.Is(c.err, errCut):
		return &TruncatedError{Events: events, Expected: c.header.Events, Offset: c.json.InputOffset()}
	case c.err != nil:
		return fmt.Errorf("event %d: %w", events+1, c.err)
	case c.ending != nil && c.ending.Events != events:
		return fmt.Errorf("the trace is damaged: it has %d events, and its end says %d", events, c.ending.Events)
	}
	return nil
}

// rest reads what follows the events.
func (c *chrome) rest() {
	c.from.left = maxValue
	if c.isArray {
		if token, err := c.json.ReadToken(); !errors.Is(err, io.EOF) {
			c.fail(cmp.Or(err, fmt.Errorf("%s follows the array of events", token)))
		}
		return
	}
	for c.ok() && c.peek() == '"' {
		c.topLevel(string(c.string()))
	}
	c.want('}')
	if c.ok() && c.isOurs && c.ending == nil {
		c.err = errCut
	}
}

// intern returns one shared string for equal texts.
func (c *chrome) intern(b []byte) string {
	if s, ok := c.strings[string(b)]; ok {
		return s
	}
	s := strings.ToValidUTF8(string(b), "\ufffd")
	c.strings[string(b)] = s
	return s
}

// rawEvent is an event of the file.
type rawEvent struct {
	Event
	what                   What
	ph, category, kind     string
	pid, tid               int64
	device, stream, thread int64 // notGiven if the event does not say it
	process, context       int64
	shared                 int64
	name                   string // that the event gives to its track
	operator               string // of a node of ONNX Runtime
	isNumbered             bool   // a range that XLA's profiler got the number of a step for
	allocated, reserved    int64  // bytes, of PyTorch's allocator
	onDevice               bool   // that memory is of a device
}

const notGiven = math.MinInt64

func given(v, otherwise int64) int64 {
	if v == notGiven {
		return otherwise
	}
	return v
}

// track is where the file shows the event.
func (e *rawEvent) track() Lane { return Lane{Process: e.pid, ID: e.tid} }

// event reads one event, which is valid until the next one. It is not ok if the record has no such event, for example an
// arrow or the name of a track.
func (c *chrome) event() (e *rawEvent, ok bool) {
	e = &c.current
	*e = rawEvent{Event: Event{What: &e.what, Plan: -1, Step: -1}, device: notGiven, stream: notGiven, thread: notGiven}
	timeOK, durationOK := true, true
	c.object(func(key []byte) {
		switch string(key) {
		case "ph":
			e.ph = c.intern(c.string())
		case "cat":
			e.category = c.intern(c.string())
		case "name":
			e.Name = c.text()
		case "pid":
			e.pid = c.processID()
		case "tid":
			e.tid = c.trackID()
		case "ts":
			e.Time, timeOK = c.micros()
		case "dur":
			e.Duration, durationOK = c.micros()
		case "args":
			c.object(func(key []byte) {
				if read := arguments[string(key)]; read != nil {
					read(c, e)
				} else {
					c.skip()
				}
			})
		default:
			c.skip()
		}
	})
	if !c.ok() {
		return e, false
	}
	switch e.ph {
	case "M":
		c.named(e)
		return e, false
	case "E":
		timeOK = timeOK && c.end(e)
		if !timeOK {
			c.header.Drop("ends of ranges that never began", 1)
		}
		return e, false
	case "X", "B", "i", "I", "C":
	default: // an arrow or the like
		return e, false
	}
	if e.category == "Trace" || !c.finish(e) { // the former is Kineto's span over all
		return e, false
	}
	if !timeOK || !durationOK || e.Check() != nil {
		c.header.Drop("events with an impossible time", 1)
		return e, false
	}
	e.What = c.whats.Of(&e.what)
	return e, true
}

// end gives the last range that began on the track its end, and reports whether there was one.
func (c *chrome) end(e *rawEvent) bool {
	begun := c.begun[e.track()]
	if len(begun) == 0 {
		return false
	}
	last := begun[len(begun)-1]
	c.begun[e.track()] = begun[:len(begun)-1]
	if last < 0 {
		return true
	}
	b := &c.list[last]
	if b.Duration = e.Time - b.Time; b.Check() != nil {
		b.Duration = 0
		return false
	}
	b.Open = false
	return true
}

func (c *chrome) micros() (int64, bool) { return micros(c.string()) }

// trackID reads a pid or tid: a number, or text that ends in a number.
func (c *chrome) trackID() int64 {
	if c.peek() != '"' {
		return c.int()
	}
	return numberAtEnd(c.string())
}

func numberAtEnd(text []byte) int64 { return parseInt(text[len(bytes.TrimRight(text, "0123456789")):]) }

// processID reads a pid. A text that a row of tracks has names its process.
func (c *chrome) processID() int64 {
	if c.peek() != '"' {
		return c.trackID()
	}
	name := c.text()
	if row, _, _ := ofTrack(name, ""); row >= 0 {
		id := int64(row) + 1<<31 // more than any process id
		c.processes[id] = name
		return id
	}
	return numberAtEnd([]byte(name))
}

func init() {
	for _, f := range fields {
		arguments[f.name] = func(c *chrome, e *rawEvent) { c.into(f.of(&e.Event)) }
	}
}

func (c *chrome) into(field any) {
	switch v := field.(type) {
	case *bool:
		*v = string(c.raw()) == "true"
	case *int32:
		*v = c.int32()
	case *int64:
		*v = c.int()
	case *uint64:
		*v = c.uint()
	case *float32:
		*v = float32(c.float())
	case *float64:
		*v = c.float()
	case *string:
		*v = c.text()
	case *Wait:
		*v = Wait(max(0, slices.Index(waitNames, c.text())))
	case *[3]int32:
		i := 0
		c.array(func() {
			if n := c.int32(); i < 3 {
				v[i] = n
			}
			i++
		})
	}
}

// arguments read what an event has in "args", by name, beside [fields]. Others are skipped.
var arguments = map[string]func(*chrome, *rawEvent){
	"kind":          func(c *chrome, e *rawEvent) { e.kind = c.text() },
	"device":        func(c *chrome, e *rawEvent) { e.device = c.int() },
	"context":       func(c *chrome, e *rawEvent) { e.context = c.int() },
	"stream":        func(c *chrome, e *rawEvent) { e.stream = c.int() },
	"thread":        func(c *chrome, e *rawEvent) { e.thread = c.int() },
	"process":       func(c *chrome, e *rawEvent) { e.process = c.int() },
	"shared memory": func(c *chrome, e *rawEvent) { e.shared = c.int() },
	"counters": func(c *chrome, e *rawEvent) {
		if e.Counters = new(Counters); json.Unmarshal(c.raw(), e.Counters) != nil || len(*e.Counters) == 0 {
			e.Counters = nil
		}
	},
	"inside": func(c *chrome, e *rawEvent) {
		if e.Inside = new(Inside); json.Unmarshal(c.raw(), e.Inside) != nil {
			e.Inside = nil
		}
	},
	"Input Dims":      func(c *chrome, e *rawEvent) { e.Inputs = c.compact() },
	"plan":            func(c *chrome, e *rawEvent) { e.Plan = c.int32() },
	"step":            func(c *chrome, e *rawEvent) { e.Step = c.int32() },
	"name":            func(c *chrome, e *rawEvent) { e.name = c.text() },
	"correlation_id":  func(c *chrome, e *rawEvent) { e.Correlation = c.uint() },
	"kernel_details":  func(c *chrome, e *rawEvent) { e.details(c.text()) },
	"memcpy_details":  func(c *chrome, e *rawEvent) { e.details(c.text()) },
	"step_num":        func(c *chrome, e *rawEvent) { e.isNumbered = true; c.skip() },
	"Sequence number": func(c *chrome, e *rawEvent) { e.Value = max(0, c.float()) },
	"op_name":         func(c *chrome, e *rawEvent) { e.operator = c.text() },
	"grid_x":          func(c *chrome, e *rawEvent) { e.Grid[0] = c.int32() },
	"grid_y":          func(c *chrome, e *rawEvent) { e.Grid[1] = c.int32() },
	"grid_z":          func(c *chrome, e *rawEvent) { e.Grid[2] = c.int32() },
	"block_x":         func(c *chrome, e *rawEvent) { e.Block[0] = c.int32() },
	"block_y":         func(c *chrome, e *rawEvent) { e.Block[1] = c.int32() },
	"block_z":         func(c *chrome, e *rawEvent) { e.Block[2] = c.int32() },
	"Total Allocated": func(c *chrome, e *rawEvent) { e.allocated = c.int() },
	"Total Reserved":  func(c *chrome, e *rawEvent) { e.reserved = c.int() },
	"Device Type":     func(c *chrome, e *rawEvent) { e.onDevice = c.int() != 0 }, // 0 is the CPU
	"Device Id":       func(c *chrome, e *rawEvent) { e.device = c.int() },
	"module_fqn":      func(c *chrome, e *rawEvent) { e.name = cmp.Or(e.name, c.text()) },
	"str":             func(c *chrome, e *rawEvent) { e.name = cmp.Or(e.name, c.text()) },
}

// compact reads a value as JSON without spaces, and interns it; "" for what is too long or no array.
func (c *chrome) compact() string {
	const most = 1 << 12
	v := jsontext.Value(c.raw())
	if len(v) > most || v.Kind() != '[' || v.Compact() != nil {
		return ""
	}
	return c.intern(v)
}

// text reads a string and interns it; "" for another value.
func (c *chrome) text() string {
	if c.peek() != '"' {
		c.skip()
		return ""
	}
	return c.intern(c.string())
}

func (c *chrome) int32() int32 { return int32(min(max(c.int(), -1<<31), 1<<31-1)) }

// named takes the name of a process or thread from a foreign trace; our traces have them in the header.
func (c *chrome) named(e *rawEvent) {
	const most = 10000
	if c.isOurs || e.name == "" || len(c.threads)+len(c.processes) >= most {
		return
	}
	switch e.Name {
	case "process_name":
		c.processes[e.pid] = e.name
	case "thread_name":
		lane := Thread(e.pid, e.tid)
		if _, ok := c.threads[lane]; !ok {
			c.threads[lane] = e.name
			c.header.Lanes = append(c.header.Lanes, LaneName{lane, e.name})
		}
	}
}

// rangeKinds are the kinds of ranges by the argument "kind"; others are [KindRange], which is 0.
var rangeKinds = map[string]Kind{kinds[KindPass].name: KindPass, kinds[KindStep].name: KindStep, kinds[KindOp].name: KindOp}

// finish gives the event its kind and lane, and reports whether the event counts.
func (c *chrome) finish(e *rawEvent) bool {
	is, known := meanings[e.category]
	onGPU := is.kind.IsGPU() || is.kind == KindSync
	switch e.Kind = is.kind; {
	case c.isOurs && !known:
		e.Kind = KindRange
	case e.ph != "X" && e.ph != "B":
	case !known:
		c.header.unknown("category "+e.category, 1)
		return false
	case is.kind == kindSkipped:
		return false
	}
	c.toolIs(is.tool)
	switch {
	case e.category == "user_annotation":
		e.Kind = rangeKinds[e.kind]
	case e.category == "gpu_user_annotation":
		e.Kind, onGPU = rangeKinds[e.kind], true
	case e.category == "gpu_counter":
		onGPU = true
	case e.category == "cpu_instant_event": // of PyTorch's allocator with profile_memory
		if e.Name != "[memory]" || !e.onDevice {
			return false
		}
		e.Name, e.Value, onGPU = MemoryAllocated, float64(e.allocated), true
	case e.Kind == KindOp && strings.HasPrefix(e.Name, "ProfilerStep#"): // an Operator until PyTorch 1.11
		e.Kind = KindRange
	case e.Kind == KindRange && e.Domain == "":
		e.Domain = e.category
	}
	if e.category == "Node" && e.operator != "" && strings.HasSuffix(e.Name, "_kernel_time") {
		e.Name = e.operator
	}
	switch e.ph {
	case "C":
		e.Kind, e.Domain = KindCounter, ""
	case "i", "I":
		if e.Kind != KindNode && e.Kind != KindCounter {
			e.Kind, onGPU = KindMark, onGPU || e.device != notGiven
			if e.Domain == "mark" || e.Domain == e.category {
				e.Domain = ""
			}
		}
	case "B":
		e.Open, e.Duration = true, 0
	}
	onGPU = onGPU || e.Kind == KindOverhead && e.device != notGiven
	if onGPU {
		device, stream := given(e.device, e.pid), given(e.stream, e.tid)
		process := e.process
		if process == 0 && c.isOurs {
			process = c.header.Process
		}
		e.Lane = Lane{Kind: LaneStream, Device: int32(min(max(device, 0), 1<<16)),
			Context: int32(min(max(e.context, 0), 1<<31-1)), Process: process, ID: stream}
		switch e.Kind {
		case KindSync:
			e.Lane.Kind = LaneSync
		case KindCounter:
			e.Lane.Kind, e.Lane.ID = LaneCounter, 0
		}
	} else {
		e.Lane = Thread(e.pid, given(e.thread, e.tid))
		switch {
		case e.Kind.IsCall():
			e.Lane.Kind = LaneAPI
		case e.Kind == KindOverhead:
			e.Lane.Kind = LaneOverhead
		case e.Kind == KindCounter:
			e.Lane.Kind, e.Lane.ID = LaneCounter, 0
		}
	}
	if !c.isOurs {
		e.SetFactsOfName()
	}
	if e.Inside != nil && (e.Kind != KindKernel || !e.Inside.check(e.Duration)) {
		e.Inside = nil
	}
	if e.Kind.IsGPU() && e.Node != 0 && !c.isOurs {
		e.Domain = e.name // of [Trace.markedRanges]
	}
	if e.Kind == KindKernel {
		e.StaticShared = int32(min(max(e.shared-int64(e.DynamicShared), 0), 1<<31-1))
	}
	return true
}

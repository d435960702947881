package traces_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"gpt2scope/internal/require"
	"gpt2scope/traces"
	"gpt2scope/traces/internal/fixtures"
	"gpt2scope/traces/internal/samples"
	"gpt2scope/traces/load"
	"gpt2scope/traces/tables"
)

// sampleEvents has an event of every kind, and every field in one of them.
func sampleEvents() []traces.Event {
	thread, api, stream := traces.Thread(700, 701), traces.API(700, 701), traces.Stream(700, 0, 1, 7)
	sync, counter := stream, traces.Lane{Kind: traces.LaneCounter, Device: 0, Process: 700}
	sync.Kind = traces.LaneSync
	pass := traces.Plain(traces.KindPass, thread, "decode step", -5, 2_000_000)
	pass.ID, pass.Plan, pass.Value, pass.Domain = 1, 0, 17, traces.Domain
	step := traces.Plain(traces.KindStep, thread, "h.0.attn.c_attn", 1_001, 9_000)
	step.ID, step.Parent, step.Plan, step.Step = 2, 1, 0, 1
	launch := traces.Plain(traces.KindRuntime, api, "cudaLaunchKernelExC", 2_000, 4_000)
	launch.Correlation, launch.Parent, launch.Plan, launch.Step = 1<<63+5, 2, 0, 1
	driver := traces.Plain(traces.KindDriver, api, "cuMemcpyHtoD", 7_000, 1)
	driver.Wait = traces.WaitCopy
	over := traces.Plain(traces.KindStep, stream, "h.0.attn.c_attn", 20_000, 5_000)
	over.Plan, over.Step, over.Parent = 0, 1, 2
	kernel := traces.Plain(traces.KindKernel, stream, "void gemm<float, \"2\">(int\\*)\n\u00e9", 20_000, 3_123)
	kernel.Correlation, kernel.Parent, kernel.Plan, kernel.Step = launch.Correlation, 2, 0, 1
	kernel.Grid, kernel.Block = [3]int32{132, 2, 1}, [3]int32{128, 1, 1}
	kernel.Registers, kernel.StaticShared, kernel.DynamicShared, kernel.Occupancy = 90, 1024, 37368, 43.5
	kernel.Node, kernel.Origin, kernel.Bounded, kernel.DividedEvery = 8589934592, 4294967296, true, 16
	memcpy := traces.Plain(traces.KindMemcpy, stream, "Memcpy HtoD (Pageable -> Device)", 24_000, 7)
	memcpy.Bytes, memcpy.Correlation = 1<<40, 6
	memset := traces.Plain(traces.KindMemset, traces.Stream(700, 1, 2, 1<<33), "Memset", 24_100, 0)
	graph := traces.Plain(traces.KindGraph, traces.Stream(800, 0, 3, 7), "graph", 25_000, 10)
	wait := traces.Plain(traces.KindSync, sync, "Stream Sync", 26_000, 500)
	made := traces.Plain(traces.KindNode, thread, "node cloned", 27_000, 0)
	made.Node, made.Origin = 9, 8
	op := traces.Plain(traces.KindOp, thread, "aten::linear", 28_000, 10)
	overhead := traces.Plain(traces.KindOverhead, traces.Lane{Kind: traces.LaneOverhead, Device: -1, Process: 700,
		ID: 701}, "flush", 28_100, 900_000_000)
	mark := traces.Plain(traces.KindMark, thread, "first token", 29_000, 0)
	power := traces.Plain(traces.KindCounter, counter, "power (W)", 30_000, 0)
	power.Value = 512.25
	host := traces.Plain(traces.KindCounter, traces.Lane{Kind: traces.LaneCounter, Device: -1, Process: 700},
		"queue depth", 30_001, 0)
	host.Value = 3
	open := traces.Plain(traces.KindRange, traces.Thread(700, 702), "load", 31_000, 0)
	open.Open, open.Domain, open.ID, open.WarmUp = true, "user", 3, true
	return []traces.Event{pass, step, launch, driver, over, kernel, memcpy, memset, graph, wait, made, op, overhead, mark,
		power, host, open}
}

func TestRoundTrip(t *testing.T) {
	want := sampleEvents()
	seen := map[traces.Kind]bool{}
	for _, e := range want {
		seen[e.Kind] = true
	}
	for k := range traces.NumKinds {
		if !seen[k] {
			t.Errorf("there is no %s among the samples", k)
		}
		if name, category := traces.KindNames(k); name == "" || category == "" {
			t.Errorf("kind %d has no name", k)
		}
	}
	for _, name := range []string{"x.json", "x.json.gz"} {
		h := fixtures.Header()
		var b bytes.Buffer
		require.NoError(t, traces.Write(&b, name, h, want))
		if isGzip := bytes.HasPrefix(b.Bytes(), []byte("\x1f\x8b")); isGzip != (name == "x.json.gz") {
			t.Errorf("%s: compressed %v", name, isGzip)
		}
		gotHeader, got, err := traces.Read(&b)
		require.NoError(t, err)
		if !reflect.DeepEqual(gotHeader, h) {
			t.Errorf("header\n%+v, not\n%+v", gotHeader, h)
		}
		if len(got) != len(want) {
			t.Fatalf("%d events, not %d", len(got), len(want))
		}
		for i := range want {
			if !reflect.DeepEqual(got[i], want[i]) {
				t.Errorf("event %d is\n%+v, not\n%+v", i, got[i], want[i])
			}
		}
	}
}

// line is an event as a viewer sees it.
type line struct {
	Ph, Cat, Name string
	Pid, Tid      int64
	Ts, Dur       json.Number
	ID            uint64
	Bp            string
	Args          map[string]any
}

// asViewer decodes a file as a viewer does.
func asViewer(t *testing.T, file []byte) []line {
	t.Helper()
	var all struct {
		TraceEvents         []line
		DisplayTimeUnit     string
		BaseTimeNanoseconds int64
		Gpt2scope           traces.Header
	}
	d := json.NewDecoder(bytes.NewReader(file))
	d.UseNumber()
	require.NoError(t, d.Decode(&all))
	if all.DisplayTimeUnit != "ns" || all.BaseTimeNanoseconds != all.Gpt2scope.Base ||
		all.Gpt2scope.Version != traces.Version {
		t.Errorf("unit %q, base %d, header %+v", all.DisplayTimeUnit, all.BaseTimeNanoseconds, all.Gpt2scope)
	}
	return all.TraceEvents
}

// ns reads the time of a file, in microseconds to the nanosecond.
func ns(t *testing.T, n json.Number) int64 {
	t.Helper()
	whole, part, _ := strings.Cut(n.String(), ".")
	v, err := strconv.ParseInt(whole+(part + "000")[:3], 10, 64)
	if err != nil || len(part) > 3 {
		t.Fatalf("%q is no time to the nanosecond", n)
	}
	return v
}

// checkNesting fails where events of a track overlap without nesting.
func checkNesting(t *testing.T, lines []line) {
	t.Helper()
	type key struct{ pid, tid int64 }
	open := map[key][]int64{}
	last := map[key]int64{}
	for _, l := range lines {
		if l.Ph != "X" {
			continue
		}
		k, start := key{l.Pid, l.Tid}, ns(t, l.Ts)
		end := start + ns(t, l.Dur)
		if before, ok := last[k]; ok && start < before {
			t.Errorf("%s at %d comes after one at %d", l.Name, start, before)
		}
		last[k] = start
		s := open[k]
		for len(s) > 0 && s[len(s)-1] <= start {
			s = s[:len(s)-1]
		}
		if len(s) > 0 && s[len(s)-1] < end {
			t.Errorf("%s from %d to %d begins inside an event that ends at %d", l.Name, start, end, s[len(s)-1])
		}
		open[k] = append(s, end)
	}
}

// TestViewer looks at a file as Perfetto and the consumers of Kineto do.
func TestViewer(t *testing.T) {
	lines := asViewer(t, fixtures.Write(t, fixtures.Header(), sampleEvents()))
	checkNesting(t, lines)
	find := func(ph, cat string) line {
		i := slices.IndexFunc(lines, func(l line) bool { return l.Ph == ph && l.Cat == cat })
		if i < 0 {
			t.Fatalf("there is no %s %s", ph, cat)
		}
		return lines[i]
	}
	k := find("X", "kernel")
	if k.Ts != "20.000" || k.Dur != "3.123" || k.Pid != 0 {
		t.Errorf("the kernel is %+v", k)
	}
	want := map[string]string{"grid": "[132 2 1]", "block": "[128 1 1]", "correlation": "9223372036854775813",
		"stream": "7", "device": "0",
		"context": "1", "registers per thread": "90", "shared memory": "38392", "est. achieved occupancy %": "43.5"}
	for name, v := range want {
		if got := fmt.Sprint(k.Args[name]); got != v {
			t.Errorf("argument %q is %s, not %s", name, got, v)
		}
	}
	over := find("X", "gpu_user_annotation")
	if over.Pid != k.Pid || over.Tid != k.Tid {
		t.Errorf("the step is on track %d.%d, its kernel on %d.%d", over.Pid, over.Tid, k.Pid, k.Tid)
	}
	from, to, call := find("s", "ac2g"), find("f", "ac2g"), find("X", "cuda_runtime")
	if from.ID != to.ID || from.Tid != call.Tid || from.Ts != call.Ts || to.Tid != k.Tid || to.Ts != k.Ts || to.Bp != "e" {
		t.Errorf("the arrow leads from %+v to %+v", from, to)
	}
	if find("X", "cpu_op").Tid == call.Tid {
		t.Error("API calls share the track of ranges")
	}
	if c := find("C", "gpu_counter"); fmt.Sprint(c.Args) != "map[value:512.25]" {
		t.Errorf("the counter has %v", c.Args)
	}
	if find("B", "user_annotation").Name != "load" {
		t.Error("the open range does not begin one")
	}
	names := map[string]bool{}
	for _, l := range lines {
		if l.Ph == "M" {
			names[fmt.Sprint(l.Args["name"])] = true
		}
	}
	for _, name := range []string{"main (701)", "API of thread 701", "decode", "GPU 0 NVIDIA H200", "process 700",
		"synchronisation of stream 7"} {
		if !names[name] {
			t.Errorf("no track is called %q: %v", name, names)
		}
	}
}

// TestOverlap: overlapping kernels get tracks of their own, below their own steps.
func TestOverlap(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	stream := traces.Stream(700, 0, 1, 7)
	var events []traces.Event
	for i := range 300 {
		start := int64(i)*100 + r.Int64N(90)
		step := traces.Plain(traces.KindStep, stream, fmt.Sprint("step ", i), start, 50+r.Int64N(250))
		step.Plan, step.Step, step.Parent = 0, int32(i), 5
		events = append(events, step)
		for range 3 {
			k := traces.Plain(traces.KindKernel, stream, "kernel", start+r.Int64N(step.Duration), 0)
			k.Duration = r.Int64N(step.End() - k.Time + 1)
			k.Plan, k.Step, k.Parent = 0, int32(i), 5
			events = append(events, k)
		}
	}
	traces.Sort(events)
	lines := asViewer(t, fixtures.Write(t, &traces.Header{Process: 700}, events))
	checkNesting(t, lines)
	tracks := map[int64]bool{}
	for _, l := range lines {
		if l.Cat == "kernel" {
			tracks[l.Tid] = true
		}
	}
	if len(tracks) < 3 || len(tracks) > 20 {
		t.Errorf("kernels are on %d tracks", len(tracks))
	}
	_, got, err := traces.Read(bytes.NewReader(fixtures.Write(t, &traces.Header{Process: 700}, events)))
	if err != nil || !reflect.DeepEqual(got, events) {
		t.Errorf("tracks change what is read: %d of %d events, error %v", len(got), len(events), err)
	}
}

// failing is a full disk.
type failing struct{ left int }

var errFull = errors.New("no space left")

func (f *failing) Write(p []byte) (int, error) {
	if f.left -= len(p); f.left < 0 {
		return 0, errFull
	}
	return len(p), nil
}

func TestWriterErrors(t *testing.T) {
	events := make([]traces.Event, 100000)
	for i := range events {
		events[i] = traces.Plain(traces.KindRange, traces.Thread(1, 1), "x", int64(i), 0)
	}
	for _, name := range []string{"x.json", "x.json.gz"} {
		if err := traces.Write(&failing{1 << 16}, name, &traces.Header{}, events); !errors.Is(err, errFull) {
			t.Errorf("%s: a full disk gives %v", name, err)
		}
	}
	for _, bad := range []traces.Event{
		{Kind: traces.NumKinds}, {Duration: -1}, {Time: 1 << 62}, {Duration: 1 << 62},
	} {
		if traces.Write(io.Discard, "", &traces.Header{}, []traces.Event{bad}) == nil {
			t.Errorf("%+v is written", bad)
		}
	}
}

// TestTruncated cuts a file at every third byte, and at each around its first events.
func TestTruncated(t *testing.T) {
	want := sampleEvents()
	for _, counted := range []bool{true, false} {
		h := fixtures.Header()
		file := fixtures.Write(t, h, want)
		if !counted { // as when a header is written before the events are known
			h.Events = 0
			file = bytes.Replace(file, []byte(`,"events":17`), nil, 1)
		}
		begin := bytes.Index(file, []byte(`"traceEvents":[`)) + len(`"traceEvents":[`)
		most := 0
		for n := 0; n < len(file)-1; n++ {
			if n > begin+400 && n < len(file)-400 {
				n += 10
			}
			_, got, err := traces.Read(bytes.NewReader(file[:n]))
			if err == nil {
				t.Fatalf("cut at %d of %d: no error", n, len(file))
			}
			if n < begin {
				continue
			}
			var cut *traces.TruncatedError
			if !errors.As(err, &cut) {
				t.Fatalf("cut at %d of %d: %v", n, len(file), err)
			}
			if len(got) < most || len(got) > 0 && !reflect.DeepEqual(got, want[:len(got)]) || cut.Events != int64(len(got)) ||
				cut.Expected != h.Events {
				t.Fatalf("cut at %d: %d events after %d, %+v", n, len(got), most, cut)
			}
			most = len(got)
			missing := fmt.Sprintf("%d of %d events are missing", len(want)-len(got), len(want))
			if counted && len(got) < len(want) && !strings.Contains(err.Error(), missing) {
				t.Fatalf("cut at %d: %v, but %s", n, err, missing)
			}
		}
		if most != len(want) {
			t.Errorf("cut at the end, %d of %d events are read", most, len(want))
		}
	}
	// Compressed too.
	var b bytes.Buffer
	var events []traces.Event
	r := rand.New(rand.NewPCG(1, 2))
	for i := range int64(5000) {
		events = append(events, traces.Plain(traces.KindRange, traces.Thread(1, 1), fmt.Sprint(r.Uint64()), i, 0))
	}
	require.NoError(t, traces.Write(&b, "x.gz", &traces.Header{}, events))
	_, got, err := traces.Read(bytes.NewReader(b.Bytes()[:b.Len()/2]))
	var cut *traces.TruncatedError
	if !errors.As(err, &cut) || len(got) < 1000 || len(got) > 4000 || cut.Expected != 5000 {
		t.Errorf("half of a compressed file: %d events, %v", len(got), err)
	}
}

// xs is a reader of letters without an end.
type xs struct{}

func (xs) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = 'x'
	}
	return len(b), nil
}

func TestReadRefuses(t *testing.T) {
	good := string(fixtures.Write(t, fixtures.Header(), sampleEvents()))
	for name, c := range map[string]struct{ file, fact string }{
		"nothing":    {"", "not a trace"},
		"text":       {"hello", "not a trace"},
		"json":       {`{"a": 1}`, "traceEvents"},
		"sqlite":     {"SQLite format 3\x00", "open it by name"},
		"gzip":       {"\x1f\x8bxx", "compression"},
		"newer":      {strings.Replace(good, `"version":2`, `"version":3`, 1), "version 3"},
		"older":      {strings.Replace(good, `"version":2`, `"version":1`, 1), "version 1"},
		"plan":       {strings.Replace(good, `"tag":1,"name"`, `"tag":7,"name"`, 1), "step 1 has tag 7"},
		"count":      {strings.Replace(good, `"gpt2scopeEnd":{"events":17`, `"gpt2scopeEnd":{"events":18`, 1), "its end says 18"},
		"no comma":   {strings.Replace(good, "}},\n{", "}}\n{", 1), "expecting ','"},
		"deep":       {`{"traceEvents":[{"x":` + strings.Repeat("[", 20_000), "depth"},
		"quote":      {`{"traceEvents":[{"name":"a"b"}]}`, "a quote that is not escaped"},
		"two":        {`{"traceEvents":[]} {"traceEvents":[]}`, "a second JSON object follows"},
		"zstd":       {"\x28\xb5\x2f\xfd\x04X" + strings.Repeat("\x11", 99), "zstd -t"},
		"zstd long":  {"\x28\xb5\x2f\xfd\x00\xa0\x01\x00\x00", "zstd -d --long=31"},
		"bad header": {`{"gpt2scope":{"version":"one"},"traceEvents":[]}`, "gpt2scope"},
	} {
		if c.file == good {
			t.Fatalf("%s: nothing was changed", name)
		}
		if _, _, err := traces.Read(strings.NewReader(c.file)); err == nil || !strings.Contains(err.Error(), c.fact) {
			t.Errorf("%s: error %v, which should say %q", name, err, c.fact)
		}
	}
	endless := io.MultiReader(strings.NewReader(`{"traceEvents":[{"name":"`), xs{})
	if _, _, err := traces.Read(endless); err == nil || !strings.Contains(err.Error(), "a value has more than") {
		t.Errorf("a name without an end: %v", err)
	}
	// Impossible times are counted, not believed.
	h, got, err := traces.Read(strings.NewReader(`{"traceEvents":[{"ph":"X","ts":1e300,"dur":1},{"ph":"X","ts":1,"dur":-1},{"ph":"X","ts":"no","dur":1},{"ph":"X","ts":1.5,"dur":1}]}`))
	if err != nil || len(got) != 1 || got[0].Time != 1500 || h.Dropped["events with an impossible time"] != 3 {
		t.Errorf("%d events, dropped %v, error %v", len(got), h.Dropped, err)
	}
}

// TestArray reads events that stand in an array alone, which may have no end.
func TestArray(t *testing.T) {
	const event = `{"ph":"X","name":"a","ts":1.5,"dur":1,"pid":1,"tid":1}`
	for text, c := range map[string]struct {
		n, open int
		fact    string // of the error
	}{
		"[]":                              {},
		" [" + event + "," + event + "] ": {n: 2},
		"[" + event:                       {1, 1, ""},
		"[" + event + ",\n":               {1, 1, ""},
		"[":                               {0, 1, ""},
		"[" + event + "," + event[:20]:    {1, 0, "is cut off"},
		"[" + event + "]]":                {1, 0, "invalid character ']'"},
		"[" + event + event:               {1, 0, "expecting ','"},
		"[1, 2]":                          {0, 0, "expected"},
	} {
		h, got, err := traces.Read(strings.NewReader(text))
		if len(got) != c.n || h.Recorder != traces.RecorderChrome || len(h.NotRecorded) != c.open ||
			(err != nil) != (c.fact != "") {
			t.Errorf("%q: %d events, recorder %s, not recorded %q, error %v", text, len(got), h.Recorder, h.NotRecorded, err)
		} else if err != nil && !strings.Contains(err.Error(), c.fact) {
			t.Errorf("%q: error %v, which should say %q", text, err, c.fact)
		}
		if len(got) > 0 && (got[0].Name != "a" || got[0].Time != 1500 || got[0].Duration != 1000) {
			t.Errorf("%q: %+v", text, got[0])
		}
	}
}

func TestMicros(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "1": 1000, "-1.5": -1500, "4384331017087.847": 4384331017087847, "12.34567": 12346, "343.09999999999997": 343100, "-0.0006": -1, "0.00049": 0, "1e3": 1000000, "0.001": 1, "-0.001": -1, ".5": 500,
	} {
		if got, ok := traces.Micros([]byte(text)); !ok || got != want {
			t.Errorf("micros(%s) = %d, %v, not %d", text, got, ok, want)
		}
	}
	for _, text := range []string{"", "-", "x", "1e300", "99999999999999999999", "NaN", "Inf", "true", "."} {
		if got, ok := traces.Micros([]byte(text)); ok {
			t.Errorf("micros(%q) = %d", text, got)
		}
	}
	for range 1000 {
		want := rand.Int64N(2*traces.MaxTime+1) - traces.MaxTime
		if got, ok := traces.Micros(traces.AppendMicros(nil, want)); !ok || got != want {
			t.Errorf("%d became %d, %v", want, got, ok)
		}
	}
}

func TestKineto(t *testing.T) {
	tr := require.Value(load.Load(filepath.Join("testdata", "kineto.json")))(t)
	h := tr.Header
	if h.Recorder != traces.RecorderKineto || h.Base != 1790857026000000000 || len(h.Devices) != 1 ||
		h.Devices[0].SMs != 132 || h.Devices[0].Compute != "9.0" || h.Versions["cupti_version"] != "28" {
		t.Errorf("header %+v", h)
	}
	if !slices.Contains(h.Lanes, traces.LaneName{Lane: traces.Thread(700, 701), Name: "thread 701 (python)"}) {
		t.Errorf("lanes %v", h.Lanes)
	}
	byKind := map[traces.Kind]traces.Event{}
	for _, e := range tr.Events {
		byKind[e.Kind] = e
	}
	k := byKind[traces.KindKernel]
	if k.Name != "void gemm<float, 2>(int)" || k.Time != 4384331018300250 || k.Duration != 3500 ||
		k.Grid != [3]int32{64, 2, 1} || k.Block != [3]int32{128, 1, 1} ||
		k.Registers != 64 || k.StaticShared != 4096 || k.Occupancy != 3 || k.Correlation != 19 ||
		k.Lane != traces.Stream(700, 0, 1, 7) {
		t.Errorf("kernel %+v", k)
	}
	if op := byKind[traces.KindOp]; k.Parent != op.ID || op.Parent != byKind[traces.KindRange].ID || op.ID == 0 ||
		byKind[traces.KindRange].Name != "step \"one\" é" {
		t.Errorf("the kernel lies in %d, the operator is %+v, the range %+v", k.Parent, op, byKind[traces.KindRange])
	}
	if m := byKind[traces.KindMemcpy]; m.Bytes != 1024 || m.Duration != 1024 {
		t.Errorf("copy %+v", m)
	}
	if len(tr.Events) != 6 || tr.Kernels != 1 || tr.Copies != 1 || tr.CopiesWithoutCall != 1 ||
		tr.WithoutCall+tr.WithoutCorrelation+tr.WithoutRange != 0 {
		t.Errorf("%d events, %+v", len(tr.Events), tr.Attribution)
	}
}

// FuzzRead: whatever a file holds, reading ends, and what was read can be attributed, written and read again.
func FuzzRead(f *testing.F) {
	h := fixtures.Header()
	f.Add(fixtures.Write(f, h, sampleEvents()))
	f.Add([]byte(`{"traceEvents":[{"ph":"B","ts":1},{"ph":"X","cat":"kernel","ts":1.5,"dur":1e1,"pid":"x9","tid":null,"args":{"grid":[1,2,3,4],"correlation":"7"}}]}`))
	f.Add([]byte("{\"schemaVersion\":1,\"deviceProperties\":[{}],\"traceEvents\":[]}"))
	f.Add([]byte("\x1f\x8b\x08\x00"))
	f.Fuzz(func(t *testing.T, file []byte) {
		h, events, err := traces.Read(bytes.NewReader(file))
		if h == nil {
			return
		}
		for i := range events {
			require.NoError(t, events[i].Check())
		}
		traces.Sort(events)
		a := traces.Attribute(h, events)
		traces.Examine(h, a)
		for _, by := range tables.Bys {
			if len(events) == 0 || events[0].Time < -traces.MaxTime/4 || events[len(events)-1].Time > traces.MaxTime/4 {
				break // a wall time of more years than there are ns
			}
			if table, err := tables.Summarize(&traces.Trace{Header: h, Events: events, Attribution: a}, by, -1); err == nil {
				for _, r := range table.Rows {
					if r.Kind == tables.RowResidual && r.Exclusive != 0 {
						t.Fatalf("by %s the rows leave %d of %d ns", by, r.Exclusive, table.Wall)
					}
				}
			}
		}
		projected := traces.Project(h, events)
		for i := range projected {
			if projected[i].Check() != nil { // a span of two far ends
				return
			}
		}
		events = append(projected, events...)
		traces.Sort(events)
		var b bytes.Buffer
		require.NoError(t, traces.Write(&b, "", h, events))
		_, again, failed := traces.Read(&b)
		if failed != nil || len(again) != len(events) {
			t.Fatalf("%d events were written and %d read: %v; first error %v", len(events), len(again), failed, err)
		}
	})
}

// TestKinetoKeeps: what PyTorch's profiler says of an event, and the counters of a kernel, are
// kept when a recording is written, for other programs too.
func TestKinetoKeeps(t *testing.T) {
	tr := samples.Load(t, "pytorch/kineto.json.gz")
	counted := &traces.Counters{traces.CounterOccupancy: 12.5, traces.CounterL2Hits: 0}
	kernels := 0
	for i := range tr.Events {
		if e := &tr.Events[i]; e.Kind == traces.KindKernel {
			e.Counters = counted
			kernels++
		}
	}
	file := fixtures.Write(t, tr.Header, tr.Events)
	h, events, err := traces.Read(bytes.NewReader(file))
	require.NoError(t, err)
	var shapes, external, counters int
	for _, e := range events {
		if e.Kind == traces.KindOp && e.Name == "aten::embedding" && strings.HasPrefix(e.Inputs, "[[50304,768],[1,128]") {
			shapes++
		}
		if e.Kind == traces.KindKernel && e.External != 0 {
			external++
		}
		occupancy, ok := e.Counters.Get(traces.CounterOccupancy)
		if hits, other := e.Counters.Get(traces.CounterL2Hits); ok && other && occupancy == 12.5 && hits == 0 &&
			len(*e.Counters) == 2 {
			counters++
		}
	}
	if shapes != 3 || external != kernels || counters != kernels || kernels == 0 {
		t.Errorf("of %d kernels %d have an external id and %d their counters; %d of 3 embeddings have shapes", kernels,
			external, counters, shapes)
	}
	if len(h.Devices) != 1 || h.Devices[0].SMs != 132 || h.Tool != "PyTorch" {
		t.Errorf("the header is %+v", h)
	}
	var foreign struct {
		DeviceProperties []map[string]any `json:"deviceProperties"`
	}
	require.NoError(t, json.Unmarshal(file, &foreign))
	if d := foreign.DeviceProperties; len(d) != 1 || d[0]["name"] != "NVIDIA H200" || d[0]["numSms"] != 132. ||
		d[0]["computeMajor"] != 9. || d[0]["maxThreadsPerMultiprocessor"] != 2048. {
		t.Errorf("device properties %v", d)
	}
}

package traces_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"gpt2scope/internal/require"
	"gpt2scope/traces"
)

// TestDialects: what each program calls its events. An event is written as "kind name lane".
func TestDialects(t *testing.T) {
	x := func(facts string) string { return `{"ph":"X","ts":10,"dur":5,"name":"n",` + facts + `}` }
	host := func(category string) string { return x(`"pid":4,"tid":4,"cat":"` + category + `"`) }
	named := func(what, pid, tid, name string) string {
		return `{"ph":"M","name":"` + what + `","pid":` + pid + `,"tid":` + tid + `,"args":{"name":"` + name + `"}}`
	}
	for what, c := range map[string]struct {
		events  []string
		want    string
		unknown string
	}{
		"Kineto":      {[]string{host("cpu_op"), host("cuda_runtime"), host("kernel"), host("python_function")}, "op thread 4, runtime call API of thread 4, kernel stream 4, range thread 4", ""},
		"Kineto 1.8":  {[]string{host("Operator"), host("Runtime"), host("Kernel"), host("Memcpy"), host("Memset")}, "op thread 4, runtime call API of thread 4, kernel stream 4, memcpy stream 4, memset stream 4", ""},
		"XPU":         {[]string{host("xpu_runtime"), host("xpu_driver")}, "runtime call API of thread 4, driver call API of thread 4", ""},
		"ONNX":        {[]string{host("Session"), host("Node")}, "op thread 4, op thread 4", ""},
		"no category": {[]string{x(`"pid":4,"tid":4`)}, "range thread 4", ""},
		"skipped":     {[]string{host("Trace"), host("cuda_profiler_range")}, "", ""},
		"MTIA": {[]string{host("mtia_ccp_events"), host("mtia_ccp_events"), host("cpu_op")}, "op thread 4",
			"map[category mtia_ccp_events:2]"},
		"an instant of an unknown category": {[]string{`{"ph":"i","ts":1,"pid":4,"tid":4,"cat":"new","name":"n"}`}, "mark thread 4", ""},
		"XLA, names that follow": {[]string{x(`"pid":1,"tid":14`), x(`"pid":1,"tid":2`), x(`"pid":701,"tid":3`),
			named("process_name", "1", "0", "/device:GPU:3"), named("process_name", "701", "0", "/host:CPU"),
			named("thread_name", "1", "14", "Stream #14(Compute)"), named("thread_name", "1", "2", "XLA Ops")},
			"kernel stream 14, op thread 3", ""},
		"XLA, a TPU": {[]string{named("process_name", "1", "0", "/device:TPU:0"), x(`"pid":1,"tid":14`)}, "", "map[track /device:TPU:0:1]"},
		"TensorFlow's timeline": {[]string{named("process_name", "1", "0", "/device:GPU:0/stream:all Compute"), x(`"pid":1,"tid":0`)}, "",
			"map[track /device:GPU:0/stream:all Compute:1]"},
		"PyTorch before 1.8": {[]string{x(`"pid":"CPU functions","tid":0`), x(`"pid":"CUDA functions","tid":0`)}, "op thread 0",
			"map[track CUDA functions:1]"},
	} {
		h, events, err := traces.Read(strings.NewReader("[" + strings.Join(c.events, ",") + "]"))
		var got []string
		for _, e := range events {
			got = append(got, fmt.Sprint(e.Kind, " ", e.Lane))
		}
		if err != nil || strings.Join(got, ", ") != c.want {
			t.Errorf("%s: %q, not %q; error %v", what, strings.Join(got, ", "), c.want, err)
		}
		if unknown := fmt.Sprint(h.Unknown); unknown != c.unknown && (c.unknown != "" || h.Unknown != nil) {
			t.Errorf("%s: not understood are %s, not %s", what, unknown, c.unknown)
		}
	}
}

// TestBeginEnd: begins and ends are paired by track, the last begin first.
func TestBeginEnd(t *testing.T) {
	event := func(ph string, ts, tid int, name string) string {
		return fmt.Sprintf(`{"ph":%q,"ts":%d,"pid":1,"tid":%d,"name":%q}`, ph, ts, tid, name)
	}
	h, events, err := traces.Read(strings.NewReader("[" + strings.Join([]string{event("B", 1, 1, "a"), event("B", 2, 2, "b"),
		event("B", 3, 1, "c"), event("E", 4, 1, ""), event("E", 9, 1, ""), event("E", 10, 1, ""), event("B", 11, 1, "open")}, ",") + "]"))
	got := ""
	for _, e := range events {
		got += fmt.Sprintf("%s %d %v, ", e.Name, e.Duration, e.Open)
	}
	if err != nil || got != "a 8000 false, b 0 true, c 1000 false, open 0 true, " || h.Dropped["ends of ranges that never began"] != 1 {
		t.Errorf("%s; dropped %v; %v", got, h.Dropped, err)
	}
}

// TestUndone: a file is the same however it was compressed, with the mark of an editor, and with unescaped backslashes.
func TestUndone(t *testing.T) {
	const plain = `{"traceEvents":[{"ph":"X","ts":1,"dur":1,"name":"C:\\a\\_b\u0041\n"}]}`
	zip := func(text string) string {
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		w.Write([]byte(text))
		w.Close()
		return b.String()
	}
	zst := string(require.Value(zstd.NewWriter(nil))(t).EncodeAll([]byte(plain), nil))
	for what, c := range map[string]struct {
		text   string
		mended int64
	}{
		"plain": {plain, 0}, "gzip": {zip(plain), 0}, "gzip twice": {zip(zip(plain)), 0}, "zstd": {zst, 0},
		"zstd and gzip": {zip(zst), 0}, "a mark": {"\xef\xbb\xbf" + plain, 0}, "a mark in gzip": {zip("\xef\xbb\xbf" + plain), 0},
		"backslashes": {strings.Replace(plain, `C:\\a\\_b`, `C:\a\_b`, 1), 2},
	} {
		h, events, err := traces.Read(strings.NewReader(c.text))
		mended := int64(0)
		for _, n := range h.Mended {
			mended += n
		}
		if err != nil || len(events) != 1 || events[0].Name != "C:\\a\\_bA\n" || mended != c.mended {
			t.Errorf("%s: %+v, mended %v, error %v", what, events, h.Mended, err)
		}
	}
	// Wherever a buffer ends.
	for n := range 70 {
		name := strings.Repeat("a", (1<<16)-n-40) + `\q\\\"\u00e9\uz` + strings.Repeat(`\"`, 40)
		_, events, err := traces.Read(strings.NewReader(`{"traceEvents":[{"ph":"X","ts":1,"dur":1,"name":"` + name + `"}]}`))
		if err != nil || len(events) != 1 || !strings.HasSuffix(events[0].Name, `a\q\"`+"é"+`\uz`+strings.Repeat(`"`, 40)) {
			t.Fatalf("%d: %v", n, err)
		}
	}
}

// TestImpossibleTimes: work of a stream that cannot be as its source says.
func TestImpossibleTimes(t *testing.T) {
	const us, s = 1000, 1e9
	kernel := func(start, duration int64) traces.Event {
		return traces.Plain(traces.KindKernel, traces.Stream(1, 0, 1, 7), "k", start, duration)
	}
	node, other := kernel(10*us, 90*us), kernel(10*us, 90*us)
	node.Node, other.Lane.ID = 3, 8
	later := traces.Plain(traces.KindRange, traces.Thread(1, 1), "r", 5*s, 100)
	for what, c := range map[string]struct {
		events          []traces.Event
		want            string
		mended, dropped int
	}{
		"one after another":             {[]traces.Event{kernel(0, 10*us), kernel(10*us, 10*us)}, "0+10 10+10", 0, 0},
		"programmatic dependent launch": {[]traces.Event{kernel(0, 12*us), kernel(10*us, 10*us)}, "0+12 10+10", 0, 0},
		"over the next":                 {[]traces.Event{kernel(0, 10*us), kernel(10*us, 400*us), kernel(30*us, 15*us), kernel(50*us, 5*us)}, "0+10 10+15 30+15 50+5", 1, 0},
		"no other is whole":             {[]traces.Event{kernel(10*us, 400*us), kernel(30*us, 300*us), kernel(50*us, 35*us)}, "10+20 30+20 50+35", 2, 0},
		"another stream":                {[]traces.Event{kernel(20*us, 5*us), other}, "10+90 20+5", 0, 0},
		"nodes of a graph":              {[]traces.Event{node, kernel(20*us, 5*us)}, "10+90 20+5", 0, 0},
		"lost":                          {[]traces.Event{kernel(0, 0), kernel(0, 7), kernel(5*s, 5*us), later}, "5000000+5", 0, 2},
		"at the base":                   {[]traces.Event{kernel(0, 5*us), kernel(5*us, 5*us)}, "0+5 5+5", 0, 0},
	} {
		tr := traces.NewTrace(&traces.Header{Recorder: traces.RecorderKineto, Base: 1}, c.events)
		var got []string
		for _, e := range tr.Events {
			if e.Kind == traces.KindKernel {
				got = append(got, fmt.Sprintf("%d+%d", e.Time/us, e.Duration/us))
			}
		}
		count := func(m map[string]int64) (n int) {
			for _, v := range m {
				n += int(v)
			}
			return n
		}
		if strings.Join(got, " ") != c.want || count(tr.Header.Mended) != c.mended || count(tr.Header.Dropped) != c.dropped {
			t.Errorf("%s: %s, not %s; mended %v, dropped %v", what, strings.Join(got, " "), c.want, tr.Header.Mended, tr.Header.Dropped)
		}
	}
	tr := traces.NewTrace(&traces.Header{Recorder: traces.RecorderKineto}, []traces.Event{kernel(1694128201*s, 5)})
	if tr.Header.Base != 1694128201*s || tr.Events[0].Time != 0 {
		t.Errorf("times since 1970: base %d, %+v", tr.Header.Base, tr.Events[0])
	}
}

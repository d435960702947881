package exec

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"gpt2scope/cuda"
	"gpt2scope/cuda/cupti"
	"gpt2scope/gpt2"
	"gpt2scope/internal/stub"
	"gpt2scope/record"
	"gpt2scope/traces"
)

// fakeActivity makes the records that CUPTI would make of what the stub is called for under each tag. It knows of one
// graph.
type fakeActivity struct {
	t       *testing.T
	stub    *stub.Control
	tags    []uint64
	records []cupti.Record

	correlation uint64
	called      int64 // when the last call began
	capturing   bool
	names       []string // of the graph's nodes, which are numbered from 1; clones are 1000 further
}

func monotonic() int64 {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		panic(err)
	}
	return now.Nano()
}

// cuptiAhead is by how much CUPTI's clock is ahead of CLOCK_MONOTONIC here.
const cuptiAhead = 1_000_000

func (f *fakeActivity) Start() error { f.stub.Reset(); return nil }

func (f *fakeActivity) Stop() error {
	f.see()
	if len(f.tags) != 0 {
		f.t.Errorf("%d tags were not popped", len(f.tags))
	}
	return nil
}

func (f *fakeActivity) Push(tag uint64) {
	f.see()
	f.tags = append(f.tags, tag)
}

func (f *fakeActivity) Pop() {
	f.see()
	f.tags = f.tags[:len(f.tags)-1]
}

func (f *fakeActivity) Clock() (cupti.Clock, error) {
	now := monotonic()
	return cupti.Clock{CUPTI: now + cuptiAhead, Monotonic: now}, nil
}

func (f *fakeActivity) Records() []cupti.Record { return f.records }

func (f *fakeActivity) Describe(h *traces.Header, _ cupti.Clock) { h.Recorder = traces.RecorderCUPTI }

// see makes the records of the calls since it was last called.
func (f *fakeActivity) see() {
	for _, name := range f.stub.Calls() {
		switch name {
		case "gs_capture_begin":
			f.capturing, f.names = true, nil
		case "gs_capture_end":
			f.capturing = false
		case "gs_embed", "gs_layernorm", "gs_linear", "gs_attention", "gs_sample", "gs_add", "gs_activate":
			if f.capturing {
				f.node(name)
				continue
			}
			f.call("cudaLaunchKernel_v7000")
			f.kernel(name, 0)
		case "gs_graph_launch":
			f.call("cudaGraphLaunch_v10000")
			for i, name := range f.names {
				f.kernel(name, 1001+uint64(i))
			}
		}
	}
	f.stub.Reset()
}

func (f *fakeActivity) tagged(r *cupti.Record) {
	if len(f.tags) > 0 {
		r.External, r.Tagged = f.tags[len(f.tags)-1], true
	}
}

func (f *fakeActivity) node(name string) {
	f.names = append(f.names, name)
	id := uint64(len(f.names))
	now := monotonic() + cuptiAhead
	made := cupti.Record{Kind: cupti.KindNode, Start: now, End: now, Node: id}
	f.tagged(&made)
	f.records = append(f.records, made, cupti.Record{Kind: cupti.KindNode, Start: now, End: now, Node: id + 1000, Origin: id})
}

func (f *fakeActivity) call(name string) {
	f.correlation++
	now := monotonic() + cuptiAhead
	f.called = now
	external := cupti.Record{Kind: cupti.KindExternal, Correlation: f.correlation}
	if f.tagged(&external); external.Tagged {
		f.records = append(f.records, external)
	}
	f.records = append(f.records, cupti.Record{Kind: cupti.KindRuntime, Start: now, End: now + 1000, Name: name, Correlation: f.correlation, Process: 1, Thread: 1})
}

func (f *fakeActivity) kernel(name string, node uint64) {
	f.called += 2
	f.records = append(f.records, cupti.Record{Kind: cupti.KindKernel, Start: f.called, End: f.called + 1, Name: name, Correlation: f.correlation, Node: node, Stream: 7})
}

// By CUPTI each kernel belongs to its step and pass in both modes: that of a graph's node to the step under which it
// was captured.
func TestCUPTI(t *testing.T) {
	const steps = 20
	lib, c := onStub(t)
	m := randomModel(t, small)
	for _, mode := range []Mode{Eager, Graph} {
		r := prepared(t, m, c, backendOn(t, lib, Options{Mode: mode}), gpt2.Options{})
		to := record.New("test", "1")
		runtime.LockOSThread() // as StartRecording does
		rec, err := startCUPTI(&fakeActivity{t: t, stub: c}, notes{to: to, lane: to.Thread(), plans: r.plans, recorded: gpt2.NewRecordedPlans(to, r.backend.Sizes(nil))})
		must(t, err)
		r.recorder = rec
		began := to.Now()
		prefill(t, r, make([]int32, 20), samplingPass(1, 20))
		positions := map[float64]bool{}
		for range steps {
			must(t, r.Decode(t.Context(), 1, func([]gpt2.Token) bool { return true }))
		}
		must(t, r.StopRecording())
		trace := to.Trace()
		if n := checkKernels(t, trace, r.Plan(r.backend.executed(samplingPass(1, 20), 256)), r.Plan(r.decodePass())); n != steps+1 {
			t.Errorf("%v: %d passes, want %d", mode, n, steps+1)
		}
		for _, e := range trace.Events {
			if e.Kind == traces.KindPass {
				positions[e.Value] = true
			}
			if e.Name == "cudaLaunchKernel" && e.Step < 0 || e.Name == "cudaGraphLaunch" && e.Step != -1 {
				t.Errorf("%v: a call %s is of step %d", mode, e.Name, e.Step)
			}
			if e.Kind == traces.KindKernel && (e.Time < began || e.Time > to.Now()) {
				t.Errorf("%v: a kernel at %d, recorded from %d to %d", mode, e.Time, began, to.Now())
			}
		}
		if len(positions) != steps+1 || !positions[0] || !positions[20+steps-1] {
			t.Errorf("%v: passes at %v", mode, positions)
		}
	}
}

// Times of the device lie on the line through the two comparisons of the clocks.
func TestOfDevice(t *testing.T) {
	to := record.New("test", "1")
	zero := to.OfMonotonic(0)
	rec := &stampRecorder{host: notes{to: to}, clocks: [2]cuda.ClockPair{{Host: 5000, Device: 1_000_000}, {Host: 5000 + 2020, Device: 1_000_000 + 2000}}}
	for device, host := range map[uint64]int64{1_000_000: 5000, 1_001_000: 6010, 1_002_000: 7020, 1_004_000: 9040, 999_000: 3990} {
		if got := rec.ofDevice(device) - zero; got != host {
			t.Errorf("%d on the device is %d on the host, want %d", device, got, host)
		}
	}
}

// The time between the stamps around products of a library is divided as in passes with marker kernels. A step's
// further products count with its first.
func TestShares(t *testing.T) {
	of := &planStamps{}
	//                     kernel          product          marker           products of one step           kernel          product         kernel
	marked := []item{{step: 0, area: 0}, {step: 1, area: -1}, {step: -1, area: 1}, {step: 2, area: -1}, {step: 2, area: -1}, {step: 3, area: 2}, {step: 4, area: -1}, {step: -1, area: 3}}
	of.marked = &stampSet{of: of, items: marked, count: 4, rows: 2, passes: 5, pairs: []uint64{
		100, 110, 120, 121, 150, 160, 190, 191, // products 10, 29, 30
		200, 210, 240, 241, 302, 310, 333, 334, // products 30, 61, 23
	}}
	of.plain = &stampSet{of: of, items: []item{{step: 0, area: 0}, {step: 1, area: -1}, {step: 2, area: -1}, {step: 2, area: -1}, {step: 3, area: 1}, {step: 4, area: -1}, {step: -1, area: 2}},
		count: 3, rows: 2, passes: 1, pairs: []uint64{1000, 1010, 1140, 1150, 1160, 1161}}
	first := 40.0 / 130
	if got, want := of.shares(of.plain), [][2]float64{{0, 1}, {0, first}, {first, 1}, {1, 1}, {0, 1}, {0, 1}}; !slices.Equal(got, want) {
		t.Errorf("shares %v, want %v", got, want)
	}
	if got := of.shares(of.marked); slices.ContainsFunc(got, func(s [2]float64) bool { return s != [2]float64{0, 1} }) || len(got) != 6 {
		t.Errorf("shares of passes with marker kernels %v", got)
	}
	to := record.New("test", "1")
	rec := &stampRecorder{host: notes{to: to}, stream: stubStream(t)}
	zero := to.OfMonotonic(0)
	var got []string
	for _, e := range rec.kernels(passNote{id: 9, recorded: 2}, stampRow{of.plain, 0}, hostEvents{isGraph: true, launches: []launchEvent{{correlation: 5}}}) {
		if e.Parent != 9 || e.Plan != 2 || e.Correlation != 5 {
			t.Errorf("%+v", e)
		}
		got = append(got, fmt.Sprintf("%d: %d to %d", e.Step, e.Time-zero, e.End()-zero))
	}
	want := []string{"0: 1000 to 1010", "1: 1010 to 1050", "2: 1050 to 1140", "3: 1140 to 1150", "4: 1150 to 1160"}
	if !slices.Equal(got, want) || rec.lost != 0 {
		t.Errorf("kernels %q, want %q; %d were lost", got, want, rec.lost)
	}
	of.plain.pairs[0], of.plain.pairs[1] = 1<<64-1, 0 // no block of the first kernel stamped
	if got := rec.kernels(passNote{}, stampRow{of.plain, 0}, hostEvents{}); len(got) != 2 || rec.lost != 3 {
		t.Errorf("after a kernel left no stamp: %d kernels, %d lost; those of the two products that it bounds too", len(got), rec.lost)
	}
}

// Between products of a library there is a marker kernel where their steps differ, and one after a product that ends
// the pass.
func TestMarkerKernels(t *testing.T) {
	lib, c := onStub(t)
	m := randomModel(t, small)
	const batch = cuda.GEMVRows + 1 // so that the last layer's queries, and keys and values, are two products of one step
	r := prepared(t, m, c, backendOn(t, lib, Options{Mode: Eager}), gpt2.Options{Batch: batch})
	must(t, r.StartRecording(record.New("test", "1")))
	within, last := 0, 0
	for _, pass := range []gpt2.Pass{samplingPass(batch, 5), {Batch: batch, Tokens: 5, Logits: gpt2.LogitsAll}, {Batch: batch, Tokens: 1, Logits: gpt2.LogitsLast}} {
		for range 3 {
			must(t, r.Rewind(0))
			c.Reset()
			prefill(t, r, make([]int32, batch*pass.Tokens), pass)
			want, before := 0, -1 // the step of the launch before, where that was a library's
			for i, launches := range r.compiled[pass].steps {
				for _, l := range launches {
					switch {
					case l.product == 0:
						before = -1
						continue
					case before == i:
						within++
					case before >= 0:
						want++
					}
					before = i
				}
			}
			if before >= 0 {
				want++
				last++
			}
			if got := countOf(c.Calls(), "gs_stamp_mark"); got != want {
				t.Errorf("%+v: %d marker kernels, want %d", pass, got, want)
			}
		}
	}
	if within == 0 || last == 0 {
		t.Errorf("%d products follow one of their own step and %d end a pass: the test has no case", within, last)
	}
}

// In graph mode each markedEvery-th pass has marker kernels, and the time of products in the others is divided.
func TestMarkedPasses(t *testing.T) {
	lib, c := onStub(t)
	m := randomModel(t, small)
	r := prepared(t, m, c, backendOn(t, lib, Options{Mode: Graph}), gpt2.Options{})
	to := record.New("test", "1")
	must(t, r.StartRecording(to))
	const passes = 2*markedEvery + 1
	for range 1 + passes { // the first only shows which kernels there are
		must(t, r.Rewind(0))
		prefill(t, r, make([]int32, 20), samplingPass(1, 20))
	}
	must(t, r.StopRecording())
	divided := map[uint64]bool{}
	trace := to.Trace()
	for _, e := range trace.Events {
		if e.DividedEvery == markedEvery {
			divided[e.Parent] = true
		}
	}
	if n := checkKernels(t, trace, r.Plan(r.backend.executed(samplingPass(1, 20), 256)), nil); n != passes || len(divided) != passes-3 {
		t.Errorf("%d passes were recorded, in %d of them time was divided; want %d and %d", n, len(divided), passes, passes-3)
	}
}

func stubStream(t *testing.T) *cuda.Stream {
	t.Helper()
	lib, _ := onStub(t)
	dev, err := lib.Device(0)
	must(t, err)
	s, err := dev.NewStream()
	must(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

// Passes for whose stamps there is no room are counted, those before them are kept.
func TestRecordingIsBounded(t *testing.T) {
	lib, c := onStub(t)
	m := randomModel(t, small)
	const room, events = 3, 5
	for name, limit := range map[string]func(*stampRecorder, *compiled) (kept int){
		"rows": func(rec *stampRecorder, k *compiled) int { rec.plans[k].marked.rows = room; return room },
		"events": func(rec *stampRecorder, k *compiled) int {
			rec.host.events = maxRecorded - events*eventsOf(k.plan)
			return events
		},
	} {
		r := prepared(t, m, c, backendOn(t, lib, Options{Mode: Eager}), gpt2.Options{})
		to := record.New("test", "1")
		must(t, r.StartRecording(to))
		steps := func(n int) {
			must(t, r.Decode(t.Context(), n, func([]gpt2.Token) bool { return true }))
		}
		prefill(t, r, []int32{1, 2}, samplingPass(1, 2))
		steps(1) // shows which kernels there are
		kept := limit(r.recorder.(*stampRecorder), r.compiled[r.decodePass()])
		steps(12)
		if calls := len(r.recorder.(*stampRecorder).host.calls); calls > (2*kept+1)*eventsOf(r.compiled[r.decodePass()].plan) {
			t.Errorf("%s: %d calls are noted of %d passes", name, calls, kept)
		}
		must(t, r.StopRecording())
		trace := to.Trace()
		dropped := int64(0)
		for what, n := range trace.Header.Dropped {
			t.Log(what, n)
			dropped += n
		}
		if n := checkKernels(t, trace, nil, r.Plan(r.decodePass())); n != kept || dropped != int64(12-kept) {
			t.Errorf("%s: %d passes of 12 were kept, want %d; %d were counted as dropped", name, n, kept, dropped)
		}
	}
}

// A recording in which a call fails ends with one sentence, and leaves nothing.
func TestRecordingFails(t *testing.T) {
	lib, c := onStub(t)
	m := randomModel(t, small)
	for _, mode := range modes {
		b := backendOn(t, lib, Options{Mode: mode})
		prepared(t, m, c, b, gpt2.Options{}) // keeps the weights
		live := c.Live()
		run := func() (err error) {
			r, err := b.Prepare(context.Background(), m, gpt2.Options{Batch: 1, Context: 64, Layers: []int{0, 1}})
			if err != nil {
				return err
			}
			defer func() {
				if e := r.Close(); err == nil {
					err = e
				}
			}()
			gpu := r.(*Runner)
			if err := gpu.StartRecording(record.New("test", "1")); err != nil {
				return err
			}
			for range 3 {
				if err := gpu.Rewind(0); err != nil {
					return err
				}
				if _, err := gpu.Prefill(context.Background(), make([]int32, 20), samplingPass(1, 20)); err != nil {
					return err
				}
			}
			if err := gpu.Decode(context.Background(), 3, func([]gpt2.Token) bool { return true }); err != nil {
				return err
			}
			return gpu.StopRecording()
		}
		for _, what := range []string{"alloc", "launch", "gs_stamps_into", "gs_stamps_used", "gs_stamp_taken_by", "gs_stamp_mark", "gs_stamps_collect", "gs_clock_compare",
			"gs_copy_now", "gs_stream_synchronize", "gs_capture_begin"} {
			n := 1
			for ; ; n++ {
				c.Reset()
				c.Fail(what, n)
				err := run()
				c.Reset()
				if got := c.Live(); got != live {
					t.Fatalf("%s, %s number %d fails (%v): %d allocations are left", mode, what, n, err, got-live)
				}
				if err == nil {
					break
				}
				oneSentence(t, err)
				if n > 1000 {
					t.Fatalf("%s, %s: there is no end of failures: %v", mode, what, err)
				}
			}
			if n == 1 && !(what == "gs_capture_begin" && mode == Eager) {
				t.Errorf("%s: no call of %s could fail", mode, what)
			}
		}
	}
}

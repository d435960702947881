package cupti_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"gpt2scope/cuda/cupti"
	"gpt2scope/cuda/cupti/testdata/fake"
	"gpt2scope/internal/require"
	"gpt2scope/traces"
)

const sayError = "GPT2SCOPE_CUPTI_TEST_OPEN"

func TestMain(m *testing.M) {
	if os.Getenv(sayError) != "" { // a process of its own: libraries stay open
		rec, err := cupti.Open(cupti.Options{})
		fmt.Printf("%v: %v", errors.Is(err, cupti.ErrUnavailable), err)
		if err == nil {
			rec.Close()
		}
		os.Exit(0)
	}
	for _, e := range os.Environ() { // what a test under a tool would find
		name, _, _ := strings.Cut(e, "=")
		if strings.HasPrefix(name, "NSYS_") || strings.HasPrefix(name, "NVTX_") || strings.HasPrefix(name, "GPT2SCOPE_CUPTI") {
			os.Unsetenv(name)
		}
	}
	os.Exit(m.Run())
}

// open opens a recorder on a fake of a version.
func open(t testing.TB, version uint32, o cupti.Options) (*cupti.Recorder, *fake.Control) {
	t.Helper()
	runtime.LockOSThread() // to which tags belong: it ends with the test
	c := prepare(t, version)
	rec := require.Value(cupti.Open(o))(t)
	t.Cleanup(func() {
		c.Fail("", 0)
		rec.Close()
	})
	return rec, c
}

// prepare makes Open find the fake.
func prepare(t testing.TB, version uint32) *fake.Control {
	t.Helper()
	l := fake.Build(t)
	t.Setenv(cupti.LibraryEnv, l.Recorder)
	t.Setenv(cupti.CUPTIEnv, l.CUPTI)
	return fake.Open(t, l.CUPTI, version)
}

var must = require.NoError

// read flushes, and returns all records.
func read(t testing.TB, rec *cupti.Recorder, forced bool) []cupti.Record {
	t.Helper()
	must(t, rec.Flush(forced))
	return rec.Records()
}

// header is what the recorder says of itself.
func header(rec *cupti.Recorder) *traces.Header {
	h := &traces.Header{}
	rec.Describe(h, cupti.Clock{})
	return h
}

// onThread runs f on an OS thread of its own.
func onThread(f func()) {
	done := make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer close(done)
		f()
	}()
	<-done
}

// future is a version that no headers know, whose structs are longer.
const future = 140000

// TestRecords: each field of each kind of record comes through, whatever struct the version has for it.
func TestRecords(t *testing.T) {
	for _, version := range []uint32{22, 26, 28, 130000, 130001, 130201, 130300, 130400, 130500, future} {
		t.Run(fmt.Sprint(version), func(t *testing.T) {
			rec, c := open(t, version, cupti.Options{})
			must(t, rec.Start())
			if c.SystemThreads == 0 || c.AllSyncs != 0 {
				t.Error("thread ids are not the system's, or queries are recorded")
			}
			kernel := cupti.Record{Kind: cupti.KindKernel, Start: 1 << 40, End: 1<<40 + 1500, Name: "_Z4gemvIfEvPT_", Device: 1, Context: 2, Stream: 13, Correlation: 1 << 31,
				Node: 1 << 45, Grid: [3]int32{132, 2, 3}, Block: [3]int32{256, 4, 5}, Registers: 168, StaticShared: 1024, DynamicShared: 200000}
			memcpy := cupti.Record{Kind: cupti.KindMemcpy, Start: 5, End: 7, Device: 1, Context: 2, Stream: 14, Correlation: 4, Node: 6, Bytes: 1 << 33, CopyKind: 1, From: 2, To: 3}
			peer := memcpy
			peer.Kind, peer.CopyKind = cupti.KindMemcpyPeer, 10
			memset := cupti.Record{Kind: cupti.KindMemset, Start: 8, End: 9, Device: 1, Context: 2, Stream: 15, Correlation: 5, Node: 7, Bytes: 400, To: 3}
			sync := cupti.Record{Kind: cupti.KindSync, Start: 10, End: 20, Context: 2, Stream: cupti.AllStreams, Correlation: 6, Detail: 4}
			overhead := cupti.Record{Kind: cupti.KindOverhead, Start: 11, End: 12, Correlation: 7, Detail: 2 << 16, Process: 31, Thread: 32}
			all := []cupti.Record{kernel, memcpy, peer, memset, sync, overhead, kernel}
			for _, r := range all {
				c.Record(r)
			}
			got := read(t, rec, false)
			if len(got) != len(all) {
				t.Fatalf("%d records, want %d", len(got), len(all))
			}
			for i := range all {
				if got[i] != all[i] {
					t.Errorf("record %d is\n%+v, want\n%+v", i, got[i], all[i])
				}
			}
			if d := header(rec).Dropped; len(d) != 0 {
				t.Errorf("dropped %v", d)
			}
		})
	}
}

// TestTags: a call has the tag that is pushed last on its thread, or none; another program's external ids are left
// alone.
func TestTags(t *testing.T) {
	rec, c := open(t, 130001, cupti.Options{})
	rec.Push(99) // before Start: CUPTI does not get it, and Pop must not take another's tag
	must(t, rec.Start())
	rec.Pop()
	want := map[uint64]uint64{} // tags by correlation
	var mutex sync.Mutex
	note := func(correlation, tag uint64) {
		mutex.Lock()
		want[correlation] = tag
		mutex.Unlock()
	}
	var threads sync.WaitGroup
	for i := range uint64(4) {
		threads.Go(func() {
			onThread(func() {
				c.Call(false, 211, 1, 2) // no tag
				rec.Push(i)
				note(c.Call(false, 211, 3, 4), i)
				rec.Push(1<<63 + i)
				note(c.Call(true, 307, 5, 6), 1<<63+i)
				rec.Pop()
				note(c.Call(false, 311, 7, 8), i)
				rec.Pop()
				c.Call(false, 7, 9, 10)
				rec.Pop() // one too many does nothing
			})
		})
	}
	threads.Wait()
	if n := testing.AllocsPerRun(100, func() { rec.Push(1); rec.Pop() }); n != 0 {
		t.Errorf("Push and Pop allocate %v times", n)
	}
	got := map[uint64]uint64{}
	calls := map[string]int{}
	for _, r := range read(t, rec, false) {
		switch r.Kind {
		case cupti.KindExternal:
			got[r.Correlation] = r.External
		case cupti.KindRuntime, cupti.KindDriver:
			calls[r.Name]++
			if r.Thread == 0 || r.Process != uint32(os.Getpid()) || r.End != r.Start+1 {
				t.Errorf("call is %+v", r)
			}
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("tags by correlation are %v, want %v", got, want)
	}
	if calls["cudaLaunchKernel_v7000"] != 8 || calls["cuLaunchKernel"] != 4 || calls["cudaGraphLaunch_v10000"] != 4 || calls["call 7"] != 4 {
		t.Errorf("calls are %v", calls)
	}
	for range 40 {
		rec.Push(1)
	}
	for range 40 {
		rec.Pop()
	}
	if n := header(rec).Dropped[cupti.DroppedPushes]; n != 8 {
		t.Errorf("%d tags were nested too deep, want 8", n)
	}
}

// TestFull: memory is bounded; what does not fit is counted, and recording goes on when there is room again.
func TestFull(t *testing.T) {
	rec, c := open(t, 130001, cupti.Options{BufferSize: 1 << 12, Buffers: 3})
	must(t, rec.Start())
	seen, dropped := map[uint64]bool{}, int64(0)
	for round := range uint64(5) {
		for i := range uint64(500) {
			c.Record(cupti.Record{Kind: cupti.KindKernel, Start: 1, End: 2, Correlation: 500*round + i + 1, Name: "k"})
		}
		for _, r := range read(t, rec, false) {
			if seen[r.Correlation] {
				t.Fatalf("record %d comes twice", r.Correlation)
			}
			seen[r.Correlation] = true
		}
		if !seen[500*round+1] {
			t.Fatalf("round %d: the first record is lost", round)
		}
		now := header(rec).Dropped[cupti.DroppedRecords]
		if now <= dropped || len(seen)+int(now) != int(500*round+500) {
			t.Fatalf("round %d: %d records and %d dropped of %d", round, len(seen), now, 500*round+500)
		}
		dropped = now
	}
	if c.Dirty != 0 {
		t.Errorf("%d buffers were given out that were not of zeros", c.Dirty)
	}
}

// TestIncomplete: work that has not ended is given out by a forced flush only, and counted as without times.
func TestIncomplete(t *testing.T) {
	rec, c := open(t, 130001, cupti.Options{})
	must(t, rec.Start())
	c.Record(cupti.Record{Kind: cupti.KindKernel, Start: 10, End: 0, Correlation: 1, Name: "k"})
	if got := read(t, rec, false); len(got) != 0 {
		t.Fatalf("%d records before the work ended", len(got))
	}
	got := read(t, rec, true)
	if len(got) != 1 || header(rec).Dropped[cupti.DroppedTimes] != 1 {
		t.Fatalf("%d records, dropped %v", len(got), header(rec).Dropped)
	}
	if events := cupti.Convert(got, 0, nil); len(events) != 0 {
		t.Errorf("a kernel without times became %+v", events)
	}
}

func TestNodesFull(t *testing.T) {
	rec, c := open(t, 130001, cupti.Options{Nodes: 4})
	for round := range 2 {
		for i := range uint64(10) {
			c.Node(i+1, 0)
		}
		if n := len(read(t, rec, false)); n != 4 {
			t.Fatalf("%d nodes, want 4", n)
		}
		if n := header(rec).Dropped[cupti.DroppedNodes]; n != int64(6*(round+1)) {
			t.Errorf("%d nodes were dropped, want %d", n, 6*(round+1))
		}
	}
}

// TestDamage: of a buffer that can not be read to its end the rest is counted as lost.
func TestDamage(t *testing.T) {
	rec, c := open(t, 130001, cupti.Options{})
	must(t, rec.Start())
	c.Call(false, 211, 1, 2)
	c.Damage()
	c.Call(false, 211, 3, 4)
	if got := read(t, rec, false); len(got) != 1 {
		t.Errorf("%d records, want the one before the damage", len(got))
	}
	if n := header(rec).Dropped[cupti.DroppedBuffers]; n != 1 {
		t.Errorf("%d buffers lost their end, want 1", n)
	}
	c.Fatal(999)
	if n := header(rec).Dropped[cupti.DroppedByCUPTI]; n != 1 {
		t.Errorf("a fatal error of CUPTI is not counted")
	}
}

// TestQueries: calls that only ask are not recorded.
func TestQueries(t *testing.T) {
	rec, c := open(t, 130001, cupti.Options{})
	must(t, rec.Start())
	const getDevice, getLastError, launch, kernelGetName, getCurrent, launchEx = 17, 10, 211, 719, 304, 652
	for i, id := range []uint32{getDevice, getLastError, launch, kernelGetName, getCurrent, launchEx} {
		c.Call(i > 2, id, 1, 2)
	}
	got := read(t, rec, false)
	if len(got) != 2 || got[0].Detail != launch || got[1].Detail != launchEx {
		t.Errorf("recorded %+v, want only the launches", got)
	}
}

func TestClock(t *testing.T) {
	rec, c := open(t, 130001, cupti.Options{})
	at := require.Value(rec.Clock())(t)
	if d := at.CUPTI - at.Monotonic + 7e9; d < -at.Uncertainty || d > at.Uncertainty || at.Uncertainty <= 0 || at.Uncertainty > 1e7 {
		t.Errorf("the clock is %+v: off by %d ns", at, d)
	}
	c.Fail("cuptiGetTimestamp", 999)
	if _, err := rec.Clock(); err == nil || !strings.Contains(err.Error(), "cuptiGetTimestamp") {
		t.Errorf("error is %v", err)
	}
}

// TestEnds: Stop gives out everything and disables all; Close unsubscribes; later calls do nothing or say so; and a
// recorder can be opened again.
func TestEnds(t *testing.T) {
	rec, c := open(t, 130001, cupti.Options{})
	c.Call(false, 211, 1, 2)
	must(t, rec.Start())
	must(t, rec.Start()) // twice is once
	if c.Enabled != 9 {
		t.Errorf("%d kinds are enabled, want 9", c.Enabled)
	}
	c.Call(false, 211, 3, 4)
	must(t, rec.Stop())
	c.Call(false, 211, 5, 6)
	if got := rec.Records(); len(got) != 1 || got[0].Start != 3 {
		t.Errorf("records are %+v", got)
	}
	if c.Enabled != 0 || c.Subscribed == 0 {
		t.Errorf("%d kinds are enabled after Stop, subscribed %v", c.Enabled, c.Subscribed != 0)
	}
	must(t, rec.Start())
	for i := range int64(3) {
		c.Call(false, 211, 7, 8+i)
	}
	must(t, rec.Flush(false))
	if n := len(rec.Records()); n != 3 {
		t.Errorf("%d records, want 3", n)
	}
	must(t, rec.Close())
	must(t, rec.Close())
	if c.Subscribed != 0 || c.Enabled != 0 {
		t.Error("still subscribed after Close")
	}
	if list := rec.Records(); len(list) != 0 {
		t.Fatalf("records after Close: %+v", list)
	}
	c.Node(1, 0)
	rec.Push(1)
	rec.Pop()
	again, _ := open(t, 22, cupti.Options{})
	must(t, again.Start())
	if got := read(t, again, true); len(got) != 0 {
		t.Errorf("the second recorder has records of the first: %+v", got)
	}
}

// TestLateBuffers: CUPTI may keep a buffer beyond Close. What it gives back then is of no later recorder.
func TestLateBuffers(t *testing.T) {
	c := prepare(t, 130001)
	for round := range 3 {
		rec := require.Value(cupti.Open(cupti.Options{BufferSize: 1 << 12, Buffers: 1 << round}))(t)
		defer rec.Close()
		must(t, rec.Start())
		c.Complete() // in round 2 that of round 1
		for range 3 {
			c.Call(false, 211, 1, 2)
		}
		if got := read(t, rec, true); len(got) != 3 {
			t.Errorf("round %d: %d records, want 3", round, len(got))
		}
		must(t, rec.Stop())
		c.Damage() // takes a buffer, after the last flush
		must(t, rec.Close())
		if round != 1 {
			c.Complete() // while none is open
		}
	}
	if c.Dirty != 0 {
		t.Errorf("%d buffers were given out that were not of zeros", c.Dirty)
	}
}

func TestBusy(t *testing.T) {
	c := prepare(t, 130001)
	check := func(what string, words ...string) {
		t.Helper()
		rec, err := cupti.Open(cupti.Options{})
		if !errors.Is(err, cupti.ErrUnavailable) || rec != nil {
			t.Fatalf("%s: error is %v", what, err)
		}
		for _, w := range words {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %q does not say %q", what, err, w)
			}
		}
	}
	c.Fail("cuptiSubscribe", 39)
	check("another subscriber", "subscriber", "Nsight Systems", "steps aside")
	if c.NamesSubscriber != 0 {
		check("another subscriber", "CUPTI for a profiler")
	}
	c.Fail("", 0)
	t.Run("tool", func(t *testing.T) {
		t.Setenv("NSYS_PROFILING_SESSION_ID", "1")
		check("nsys", "NSYS_PROFILING_SESSION_ID", "steps aside")
	})
	rec := require.Value(cupti.Open(cupti.Options{}))(t)
	check("a second recorder", "it already has a subscriber")
	must(t, rec.Close())
}

// TestRefused: what the system forbids is a plain error, and leaves nothing enabled; a kind that only this CUPTI lacks
// is noted.
func TestRefused(t *testing.T) {
	for _, v := range []struct {
		call  string
		code  int
		known bool
		want  string
	}{
		{"cuptiActivityEnable 10", 35, true, "NVreg_RestrictProfilingToAdminUsers"},
		{"cuptiActivityEnable 10", 43, true, "MIG"},
		{"cuptiActivityEnable 5", 33, true, "virtual GPU"},
		{"cuptiActivityEnable 10", 27, false, "cuptiActivityEnable for kernels failed"},
		{"cuptiActivityEnable 38", 999, false, "CUPTI_ERROR_UNKNOWN"},
	} {
		t.Run(fmt.Sprint(v.call, v.code), func(t *testing.T) {
			rec, c := open(t, 130001, cupti.Options{})
			c.Fail(v.call, v.code)
			err := rec.Start()
			if err == nil || errors.Is(err, cupti.ErrUnavailable) != v.known || !strings.Contains(err.Error(), v.want) {
				t.Fatalf("error is %v", err)
			}
			if strings.Contains(err.Error(), "\n") || c.Enabled != 0 {
				t.Errorf("%d kinds stay enabled after %q", c.Enabled, err)
			}
		})
	}
	rec, c := open(t, 130001, cupti.Options{})
	c.Fail("cuptiActivityEnable 38", 27)
	must(t, rec.Start())
	h := traces.Header{}
	at := require.Value(rec.Clock())(t)
	c.Node(1, 0)
	rec.Describe(&h, at)
	if h.Recorder != traces.RecorderCUPTI || len(h.NotRecorded) != 1 || !strings.Contains(h.NotRecorded[0], "synchronisations") || !strings.Contains(h.Versions["CUPTI"], "13.0") || h.Clock.Uncertainty != at.Uncertainty {
		t.Errorf("header is %+v", h)
	}
}

// TestOpenFails: each call that Open makes can fail; it says so, and CUPTI is free again.
func TestOpenFails(t *testing.T) {
	c := prepare(t, 130001)
	for _, call := range []string{"cuptiGetVersion", "cuptiSubscribe", "cuptiSetThreadIdType", "cuptiActivityRegisterCallbacks", "cuptiEnableCallback"} {
		c.Fail(call, 15)
		if _, err := cupti.Open(cupti.Options{}); !errors.Is(err, cupti.ErrUnavailable) || !strings.Contains(err.Error(), "driver") {
			t.Errorf("%s fails: error is %v", call, err)
		}
		if c.Subscribed != 0 {
			t.Fatalf("%s fails: still subscribed", call)
		}
	}
	c.Fail("cuptiActivitySetAttribute", 1) // only a wish
	rec := require.Value(cupti.Open(cupti.Options{}))(t)
	must(t, rec.Close())
	prepare(t, 21)
	if _, err := cupti.Open(cupti.Options{}); !errors.Is(err, cupti.ErrUnavailable) || !strings.Contains(err.Error(), "CUDA 12.4") {
		t.Errorf("an old CUPTI: error is %v", err)
	}
}

// TestAbsent opens in processes of their own, where libraries are missing or are none.
func TestAbsent(t *testing.T) {
	l := fake.Build(t)
	text := filepath.Join(t.TempDir(), "text.so")
	must(t, os.WriteFile(text, []byte("no library"), 0o600))
	home := installed(t, l.CUPTI, "extras/CUPTI/lib64")
	for _, v := range []struct {
		name string
		env  []string
		want []string
	}{
		{"no recorder", nil, []string{"true: ", cupti.Library, "make cupti", cupti.LibraryEnv}},
		{"named recorder missing", []string{cupti.LibraryEnv + "=/nowhere.so"}, []string{"true: ", "/nowhere.so"}},
		{"recorder is none", []string{cupti.LibraryEnv + "=" + text}, []string{"true: ", text, "cannot be opened"}},
		{"recorder is another", []string{cupti.LibraryEnv + "=" + l.CUPTI}, []string{"true: ", "gs_cupti"}},
		{"no CUPTI", []string{cupti.LibraryEnv + "=" + l.Recorder, "CUDA_HOME=/nowhere"}, []string{"true: ", "no libcupti", "/nowhere", cupti.CUPTIEnv}},
		{"CUPTI is none", []string{cupti.LibraryEnv + "=" + l.Recorder, cupti.CUPTIEnv + "=" + text}, []string{"true: ", text}},
		{"CUPTI is another", []string{cupti.LibraryEnv + "=" + l.Recorder, cupti.CUPTIEnv + "=" + l.Recorder}, []string{"true: ", "it has no cupti"}},
		{"CUPTI in CUDA_HOME", []string{cupti.LibraryEnv + "=" + l.Recorder, "CUDA_HOME=" + home}, []string{"it is version 0"}},
		{"CUPTI of pip", []string{cupti.LibraryEnv + "=" + l.Recorder, "VIRTUAL_ENV=" + installed(t, l.CUPTI, "lib/python3.13/site-packages/nvidia/cu13/lib")}, []string{"it is version 0"}},
		{"tool", []string{cupti.LibraryEnv + "=" + l.Recorder, "CUDA_INJECTION64_PATH=/x.so"}, []string{"true: ", "CUDA_INJECTION64_PATH"}},
	} {
		t.Run(v.name, func(t *testing.T) {
			c := exec.Command(os.Args[0])
			c.Dir = t.TempDir()
			c.Env = append([]string{sayError + "=1", "PATH=" + os.Getenv("PATH"), "HOME=" + c.Dir}, v.env...)
			out := require.Value(c.Output())(t)
			if sign := map[string]string{"no CUPTI": "no libcupti", "CUPTI in CUDA_HOME": home, "CUPTI of pip": "python3.13"}[v.name]; !strings.Contains(string(out), sign) {
				t.Skip("this machine has a libcupti where one is looked for")
			}
			for _, want := range v.want {
				if !strings.Contains(string(out), want) {
					t.Errorf("%q does not say %q", out, want)
				}
			}
			if strings.Contains(string(out), "\n") {
				t.Errorf("%q has more than one line", out)
			}
		})
	}
}

// installed puts a libcupti into a folder below a new one, which it returns.
func installed(t *testing.T, library, folder string) string {
	root := t.TempDir()
	folder = filepath.Join(root, folder)
	must(t, os.MkdirAll(folder, 0o700))
	must(t, os.Symlink(library, filepath.Join(folder, "libcupti.so.13")))
	return root
}

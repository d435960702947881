package inject_test

import (
	"bytes"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"gpt2scope/cuda/cupti"
	"gpt2scope/cuda/cupti/testdata/fake"
	"gpt2scope/cuda/inject"
	"gpt2scope/internal/require"
	"gpt2scope/traces"
	"gpt2scope/traces/tables"

	"golang.org/x/sys/unix"
)

// program names the program that the test binary is for a child process.
const program = "GPT2SCOPE_INJECT_TEST"

func TestMain(m *testing.M) {
	if name := os.Getenv(program); name != "" {
		runtime.LockOSThread()
		programs[name](&gpu{})
		fake.Program{}.Exit(7)
	}
	os.Unsetenv("NVTX_INJECTION64_PATH")
	os.Exit(m.Run())
}

// child is a test's side in the child process.
type child struct{ testing.TB }

func (child) Helper()                        {}
func (child) Fatalf(format string, a ...any) { panic(fmt.Sprintf(format, a...)) }

// gpu stands for CUDA in the child process.
type gpu struct {
	fake.Program
	c   *fake.Control
	now int64
}

// start starts CUDA with a CUPTI of a version, in which a call fails.
func (g *gpu) start(version uint32, failing string, code int) {
	g.c = fake.Open(child{}, os.Getenv(cupti.CUPTIEnv), version)
	g.c.Fail(failing, code)
	g.Begin()
}

// clock is the fake's, 7 s behind CLOCK_MONOTONIC.
func clock() int64 {
	var t unix.Timespec
	unix.ClockGettime(unix.CLOCK_MONOTONIC, &t)
	return t.Nano() - 7e9
}

// kernel launches a kernel that takes a microsecond.
func (g *gpu) kernel(name string) {
	for clock() < g.now+4000 { // the one before has ended
	}
	g.now = clock()
	id := g.c.Call(false, 211, g.now, g.now+10)
	g.c.Record(cupti.Record{Kind: cupti.KindKernel, Device: 0, Context: 1, Stream: 7, Start: g.now + 2000, End: g.now + 3000,
		Correlation: id, Name: name, Grid: [3]int32{2, 1, 1}, Block: [3]int32{32, 1, 1}, Registers: 16})
}

const getDevice = 17 // the id of a call that only asks

const wide = "gr\u00f6\u00dfe \u20ac \U0001d11e"

const flushed = 600 * time.Millisecond // after which what happened is in the spool

var programs = map[string]func(*gpu){
	"all": func(g *gpu) {
		g.start(130001, "", 0)
		g.NVTX()
		g.c.Record(cupti.Record{Kind: cupti.KindDevice, Name: "Fake GPU", Bytes: 1 << 30})
		g.c.Record(cupti.Record{Kind: cupti.KindDevice, Device: 1, Name: "GPU that the program cannot see"})
		for i := range 30 {
			g.Range("step", func() {
				g.Range("first", func() { g.kernel("_Z3addPf") })
				g.kernel("mul")
				g.c.Record(cupti.Record{Kind: cupti.KindMemory, Detail: uint32(1 + i%2), From: 3, Bytes: 1000, Start: g.now})
			})
		}
		g.c.Call(false, getDevice, g.now+4000, g.now+5000)
		g.c.Call(false, 502, g.now+5000, g.now+6000) // __cudaPushCallConfiguration
		id := g.c.Call(false, 311, g.now+6000, g.now+7000)
		g.c.Record(cupti.Record{Kind: cupti.KindGraph, Start: g.now + 8000, End: g.now + 9000, Correlation: id, Stream: 7, Context: 1})
		g.Wide(wide)
		g.Fork("warm-up")
		time.Sleep(20 * time.Millisecond)
	},
	"newer": func(g *gpu) {
		g.start(future, "", 0)
		g.kernel("k")
		g.c.Call(false, getDevice, g.now+4000, g.now+5000)
		g.c.Record(cupti.Record{Kind: cupti.KindKernel, Correlation: g.c.Call(false, 211, clock(), clock()+10), Name: "without times"})
	},
	"busy": func(g *gpu) { g.start(130001, "cuptiSubscribe", 39) },
	"none": func(g *gpu) {},
	"off": func(g *gpu) {
		g.start(130001, "", 0)
		time.Sleep(50 * time.Millisecond)
		if g.c.Subscribed != 0 {
			panic("CUPTI was opened for nothing")
		}
	},
	"toggled": func(g *gpu) {
		g.start(130001, "", 0)
		g.kernel("before")
		for _, name := range []string{"within", "after", "within"} {
			launched := g.c.Call(false, 311, clock(), clock()+10)
			syscall.Kill(os.Getppid(), syscall.SIGUSR1)
			for (g.c.Enabled > 0) != (name == "within") {
				time.Sleep(time.Millisecond)
			}
			g.kernel(name)
			g.c.Record(cupti.Record{Kind: cupti.KindKernel, Correlation: launched, Name: "without times"})
		}
	},
	"killed": func(g *gpu) {
		g.start(130001, "", 0)
		g.kernel("k")
		time.Sleep(flushed)
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
	},
	"many": many,
	"nodisk": func(g *gpu) {
		g.start(130001, "", 0)
		signal.Ignore(syscall.SIGXFSZ)
		syscall.Setrlimit(1 /* RLIMIT_FSIZE */, &syscall.Rlimit{Cur: 200000, Max: 200000})
		many(g)
	},
	"window": func(g *gpu) {
		g.start(130001, "", 0)
		g.NVTX()
		g.steps(700 * time.Millisecond)
	},
	"long": func(g *gpu) {
		g.start(130001, "", 0)
		g.NVTX()
		g.steps(3200 * time.Millisecond)
	},
}

func (g *gpu) steps(d time.Duration) {
	for begun := time.Now(); time.Since(begun) < d; {
		g.Range("step", func() {
			g.Range("inner", func() { g.kernel("k"); time.Sleep(5 * time.Millisecond) })
		})
	}
}

const future, manyKernels = 140000, 6000

func many(g *gpu) {
	if g.c == nil {
		g.start(130001, "", 0)
	}
	for range manyKernels {
		g.kernel("k")
	}
}

// run records one of the programs.
func run(t *testing.T, name string, o inject.Options) (*inject.Run, *traces.Trace) {
	t.Helper()
	l := fake.Build(t)
	t.Setenv(cupti.LibraryEnv, l.Recorder)
	t.Setenv(cupti.CUPTIEnv, l.CUPTI)
	t.Setenv(program, name)
	t.Setenv("TMPDIR", t.TempDir())
	o.Command = []string{os.Args[0]}
	if o.Limit == 0 {
		o.Limit = 1 << 26
	}
	r := require.Value(inject.Record(o))(t)
	trace := require.Value(r.Trace())(t)
	require.NoError(t, r.Close())
	if left, _ := os.ReadDir(os.Getenv("TMPDIR")); len(left) > 0 {
		t.Errorf("%v was left behind", left)
	}
	return r, trace
}

func named(tr *traces.Trace, name string) (list []*traces.Event) {
	for i := range tr.Events {
		if tr.Events[i].Name == name {
			list = append(list, &tr.Events[i])
		}
	}
	return list
}

func TestAll(t *testing.T) {
	r, tr := run(t, "all", inject.Options{})
	if r.Status != 7 || !r.StartedCUDA() || len(r.Says()) > 0 || r.Processes != 2 {
		t.Errorf("status %d, CUDA %v, failures %v, %d processes", r.Status, r.StartedCUDA(), r.Says(), r.Processes)
	}
	if tr.Kernels != 60 || tr.Graphs != 1 || tr.Calls != 61 || tr.Ranges != 62 || tr.WithoutCall != 0 {
		t.Errorf("attribution is %+v", tr.Attribution)
	}
	k := named(tr, "add(float*)")
	if len(k) != 30 || k[0].Grid != [3]int32{2, 1, 1} || k[0].Registers != 16 || k[0].Duration != 1000 || k[0].Correlation == 0 {
		t.Fatalf("kernels are %d, %+v", len(k), k)
	}
	if m := named(tr, traces.MemoryAllocated); len(m) != 30 || m[0].Value != 1000 || m[1].Value != 0 {
		t.Errorf("memory is %d values", len(m))
	}
	if h := tr.Header; len(h.Devices) != 1 || h.Devices[0].Name != "Fake GPU" || h.Devices[0].SMs != 132 || len(h.Dropped) > 0 {
		t.Errorf("header is %+v", h)
	}
	child, own := named(tr, "warm-up"), named(tr, "step")
	if len(child) != 1 || !child[0].WarmUp || len(own) != 30 || child[0].Lane.Process == own[0].Lane.Process {
		t.Errorf("ranges are %+v %d", child, len(own))
	}
	if w := named(tr, wide); len(w) != 2 || w[0].Domain != "" || w[1].Domain != wide || w[1].Kind != traces.KindMark {
		t.Errorf("wide names are %+v", w)
	}
	if at := own[0].Time; at < 0 || at > 60e9 || k[0].Time < at || k[0].Parent == 0 || tr.WithoutRange != 0 {
		t.Errorf("a range is at %d ns, its kernel at %d", at, k[0].Time)
	}
}

func TestFaults(t *testing.T) {
	t.Run("newer", func(t *testing.T) {
		_, tr := run(t, "newer", inject.Options{AllCalls: true})
		if tr.Kernels != 1 || tr.Calls != 3 || !strings.Contains(tr.Header.Versions["CUPTI"], "newer") || tr.Header.Dropped[cupti.DroppedTimes] != 1 {
			t.Errorf("%d kernels by %v, lost %v", tr.Kernels, tr.Header.Versions, tr.Header.Dropped)
		}
	})
	t.Run("busy", func(t *testing.T) {
		r, _ := run(t, "busy", inject.Options{})
		if f := strings.Join(r.Says(), "\n"); !r.StartedCUDA() || strings.Count(f, "process ") != 1 || !strings.Contains(f, "run without it") ||
			!strings.Contains(f, "CUPTI for a profiler") {
			t.Errorf("failures are %q", f)
		}
	})
	t.Run("none", func(t *testing.T) {
		if r, tr := run(t, "none", inject.Options{}); r.StartedCUDA() || tr != nil {
			t.Errorf("CUDA %v, recorded %v", r.StartedCUDA(), tr)
		}
	})
	t.Run("killed", func(t *testing.T) {
		r, tr := run(t, "killed", inject.Options{})
		if r.Status != 128+9 || tr.Kernels != 1 || !slices.ContainsFunc(tr.Header.Notes, func(s string) bool { return strings.Contains(s, "killed") }) {
			t.Errorf("status %d, %d kernels, %q", r.Status, tr.Kernels, tr.Header.Notes)
		}
	})
	for name, o := range map[string]inject.Options{"many": {Limit: 1 << 20}, "nodisk": {}} {
		t.Run(name, func(t *testing.T) {
			_, tr := run(t, name, o)
			lost := int64(0)
			for what, n := range tr.Header.Dropped {
				if lost += n; !strings.Contains(what, "spool") {
					t.Errorf("%d %s were lost", n, what)
				}
			}
			if kept := int64(tr.Kernels + tr.Calls); kept == 0 || lost == 0 || kept+lost != 2*manyKernels {
				t.Errorf("%d were kept and %d lost of %d", kept, lost, 2*manyKernels)
			}
		})
	}
}

// TestToggle: CUPTI is opened when recording is switched on, and not before.
func TestToggle(t *testing.T) {
	r, tr := run(t, "off", inject.Options{Toggle: syscall.SIGUSR1})
	if r.Status != 7 || tr != nil || !r.StartedCUDA() || len(r.Says()) > 0 {
		t.Errorf("status %d, recorded %v, CUDA %v, failures %v", r.Status, tr, r.StartedCUDA(), r.Says())
	}
	r, tr = run(t, "toggled", inject.Options{Toggle: syscall.SIGUSR1})
	if r.Status != 7 || tr.Kernels != 2 || len(named(tr, "within")) != 2 || len(r.Says()) > 0 || len(tr.Header.Dropped) > 0 {
		t.Errorf("status %d, %d kernels, %d within, failures %v, lost %v", r.Status, tr.Kernels, len(named(tr, "within")), r.Says(), tr.Header.Dropped)
	}
}

// TestWindow: only what happens in the window is recorded, and ranges say what recording costs.
func TestWindow(t *testing.T) {
	_, tr := run(t, "window", inject.Options{Delay: 300 * time.Millisecond, Duration: 200 * time.Millisecond})
	steps := named(tr, "step")
	if n := len(steps); tr.Kernels == 0 || n < tr.Kernels-10 || n > tr.Kernels+60 {
		t.Errorf("%d kernels and %d ranges", tr.Kernels, n)
	}
	if o := tr.Header.Overhead; len(o) != 2 || o[1].Phase != "step" || o[0].Baseline < 5e6 || o[0].Recorded < 5e6 {
		t.Errorf("overhead is %+v", o)
	}
}

// TestLive: each second is told, and its sums are served.
func TestLive(t *testing.T) {
	var told []*inject.Second
	_, tr := run(t, "long", inject.Options{Live: func(s *inject.Second) { told = append(told, s) }, Forget: true})
	if tr != nil {
		t.Errorf("%d events were kept", len(tr.Events))
	}
	last := told[len(told)-1]
	if last.Kernels < 50 || !last.Stages || len(last.Rows) != 1 || last.Rows[0].Name != "inner" || last.Busy <= 0 || last.Busy > 0.1 ||
		last.Processes != 1 || last.Since != time.Duration(len(told))*time.Second { // none is left out
		t.Errorf("told of %d seconds, last of %+v", len(told), last)
	}
	var sums inject.Metrics
	s := &inject.Second{Busy: 0.5, Copied: 10, Copies: time.Second, Rows: []tables.Row{{Name: `a "b"`, Exclusive: 1e9}}}
	sums.Add(s)
	for i := range 2000 {
		sums.Add(&inject.Second{Rows: []tables.Row{{Name: strconv.Itoa(i), Exclusive: 1e9}}})
	}
	var w bytes.Buffer
	sums.Write(&w)
	for _, want := range []string{`kernel_seconds_total{stage="a \"b\""} 1`, "copy_bytes_total 10", `{stage="others"} 1001`} {
		if !strings.Contains(w.String(), want) {
			t.Errorf("%s is not in\n%.500s", want, w.String())
		}
	}
}

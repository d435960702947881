package cupti_test

import (
	"bytes"
	"errors"
	"maps"
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"

	"gpt2scope/cuda"
	"gpt2scope/cuda/cupti"
	"gpt2scope/traces"
)

// TestGPU records on a GPU: a hundred passes launch by launch, and a hundred replays of a graph of the same work, with
// kernels of the project and of cuBLASLt, a copy and a set. Every kernel must be of its step and pass, in the same
// numbers either way. It needs lib/libgpt2scope_cupti.so and libcupti, and is skipped where there is no GPU, unless
// GPT2SCOPE_REQUIRE_GPU=1 says that there must be.
func TestGPU(t *testing.T) {
	need := func(err error) {
		t.Helper()
		var missing *cuda.UnavailableError
		switch {
		case err == nil:
		case (errors.As(err, &missing) || errors.Is(err, cupti.ErrUnavailable)) && os.Getenv("GPT2SCOPE_REQUIRE_GPU") != "1":
			t.Skipf("needs a GPU: %v", err)
		default:
			t.Fatal(err)
		}
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	lib, err := cuda.Open()
	need(err)
	if n, err := lib.DeviceCount(); err != nil || n == 0 {
		if os.Getenv("GPT2SCOPE_REQUIRE_GPU") == "1" {
			t.Fatalf("%d GPUs: %v", n, err)
		}
		t.Skipf("needs a GPU: there are %d: %v", n, err)
	}
	if os.Getenv(cupti.LibraryEnv) == "" { // tests run in the folder of their package
		t.Setenv(cupti.LibraryEnv, "../../lib/"+cupti.Library)
	}
	rec, err := cupti.Open(cupti.Options{})
	need(err)
	defer rec.Close()
	before, err := rec.Clock()
	need(err)

	dev, err := lib.Device(0)
	need(err)
	need(lib.OpenBLAS())
	stream, err := dev.NewStream()
	need(err)
	defer stream.Close()
	const n = 256
	buffer := func() *cuda.Buffer {
		b, err := dev.Alloc(4 * n * n)
		need(err)
		t.Cleanup(func() { b.Free() })
		need(b.Write(0, make([]byte, 4*n*n)))
		return b
	}
	x, y, z := buffer(), buffer(), buffer()
	pinned, err := dev.AllocHost(4 * n)
	need(err)
	defer pinned.Free()
	copy(pinned.Bytes(), bytes.Repeat([]byte{1}, 4*n))

	work := []func() error{
		stream.EmptyKernel,
		func() error { return stream.CopyKernel(y.Ptr(), x.Ptr(), x.Size()) },
		func() error {
			return stream.Linear(cuda.LinearArgs{X: x.Ptr(), W: y.Ptr(), Y: z.Ptr(), M: n, N: n, K: n, LDX: n, LDY: n, DType: cuda.F32, YType: cuda.F32})
		},
		func() error { return errors.Join(stream.EmptyKernel(), stream.EmptyKernel()) },
		func() error { return stream.Set(z, 0, 0, z.Size()) },
		func() error { return stream.CopyToDevice(x, 0, pinned, 0, int64(len(pinned.Bytes()))) },
	}
	pass := func(id uint64) error {
		for i, f := range work {
			rec.Push(tagOf(1, int32(i), id))
			err := f()
			rec.Pop()
			if err != nil {
				return err
			}
		}
		return nil
	}
	need(pass(0)) // loads kernels and makes cuBLASLt's plan, before anything is recorded
	need(stream.Synchronize())

	// Captured before Start: nodes are noted from Open on. A second graph is captured after it, since CUPTI may prepare
	// only those for its records.
	early, err := stream.Capture(func() error { return pass(0) })
	need(err)
	defer early.Free()
	need(rec.Start())
	graph, err := stream.Capture(func() error { return pass(0) })
	need(err)
	defer graph.Free()

	const passes = 100
	type where struct {
		step int32
		kind traces.Kind
		name string
	}
	// drain reads what CUPTI has given out. Nodes are kept: a graph is made once, and runs later.
	var nodes []cupti.Record
	drain := func() (others []cupti.Record) {
		for _, r := range rec.Records() {
			if r.Kind == cupti.KindNode {
				nodes = append(nodes, r)
			} else {
				others = append(others, r)
			}
		}
		return others
	}
	// count returns how often each kernel, copy and set ran in each step of 100 passes, and checks all that holds for
	// each.
	count := func(what string, run func(id uint64) error) map[where]int {
		t.Helper()
		need(rec.Flush(false))
		drain() // what was before
		start := time.Now()
		for i := range uint64(passes) {
			need(run(i + 1))
		}
		need(stream.Synchronize())
		took := time.Since(start)
		after, err := rec.Clock()
		need(err)
		need(rec.Flush(false))
		events := cupti.Convert(append(drain(), nodes...), before.CUPTI, decode)
		got, perPass := map[where]int{}, map[uint64]int{}
		kinds := map[traces.Kind]int{}
		for i := range events {
			e := &events[i]
			kinds[e.Kind]++
			if e.Kind.IsCall() && e.Time > 0 && e.Lane.ID != int64(syscall.Gettid()) && e.Plan >= 0 {
				t.Errorf("%s: %s of a step is on thread %d, want %d", what, e.Name, e.Lane.ID, syscall.Gettid())
			}
			if !e.Kind.IsGPU() {
				continue
			}
			w := where{e.Step, e.Kind, e.Name}
			if int(e.Step) >= len(work)-2 { // CUDA may do a set or copy of a graph by a kernel
				w = where{step: e.Step}
			}
			got[w]++
			perPass[e.Parent]++
			if e.Time < 0 || e.End() > after.CUPTI-before.CUPTI+int64(time.Millisecond) || e.Duration <= 0 {
				t.Errorf("%s: %s is at %d for %d ns, outside of the recording", what, e.Name, e.Time, e.Duration)
			}
			if e.Kind == traces.KindKernel && (e.Grid[0] < 1 || e.Block[0] < 1 || e.Registers < 1 || e.Correlation == 0) {
				t.Errorf("%s: kernel is %+v", what, *e)
			}
			if e.Plan != 1 || e.Step < 0 || e.Parent < 1 || e.Parent > passes {
				t.Errorf("%s: %s belongs to phase %d, step %d, pass %d", what, e.Name, e.Plan, e.Step, e.Parent)
			}
		}
		for id, m := range perPass {
			if m != perPass[1] {
				t.Errorf("%s: pass %d has %d pieces of work, the first %d", what, id, m, perPass[1])
			}
		}
		h := traces.Header{Version: traces.Version, Process: int64(os.Getpid()), Plans: []traces.Plan{{}, {Steps: make([]traces.Step, len(work))}}}
		a := traces.Attribute(&h, events)
		if a.Kernels == 0 || a.WithoutCall+a.WithoutCorrelation+a.UnknownNodes != 0 || a.InSteps != a.Kernels {
			t.Errorf("%s: attribution is %+v", what, a)
		}
		if d := header(rec).Dropped; len(d) != 0 {
			t.Errorf("%s: dropped %v", what, d)
		}
		t.Logf("%s: %v a pass; events %v; calls that began after their kernel: %d, by %d ns at most", what, took/passes, kinds, a.EarlyStarts, a.Earliest)
		for w, m := range got {
			t.Logf("  step %d: %d x %s", w.step, m, w.name)
		}
		return got
	}
	eager := count("eager", pass)
	replay := func(g *cuda.Graph) func(uint64) error {
		return func(id uint64) error {
			rec.Push(tagOf(1, -1, id))
			defer rec.Pop()
			return g.Launch(stream)
		}
	}
	if got := count("graph", replay(graph)); !maps.Equal(eager, got) {
		t.Errorf("a graph has other kernels per step than eager passes:\n%v\n%v", got, eager)
	}
	if got := count("graph captured before Start", replay(early)); !maps.Equal(eager, got) {
		t.Errorf("a graph captured before Start has other kernels per step than eager passes:\n%v\n%v", got, eager)
	}
	need(rec.Stop())
	start := time.Now()
	for i := range uint64(passes) {
		need(replay(graph)(i))
	}
	need(stream.Synchronize())
	t.Logf("graph, recording stopped: %v a pass", time.Since(start)/passes)
	need(rec.Close())
}

package cuda_test

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"gpt2scope/cuda"
	"gpt2scope/internal/require"
	"gpt2scope/internal/stub"
	"gpt2scope/nvtx"
)

// The steps of any GPU program, with a kernel compiled at run time. Each has an NVTX range of its own and is timed;
// while the GPU works, the CPU counts.
func Example_vectorAdd() {
	lib, err := cuda.Open()
	if err != nil {
		fmt.Println(err) // one sentence: what is missing
		return
	}
	right, err := vectorAdd(lib, 1<<20)
	fmt.Println(right, err)
}

func vectorAdd(lib *cuda.Library, n int) (right bool, err error) {
	runtime.LockOSThread() // NVTX ranges belong to the OS thread
	defer runtime.UnlockOSThread()
	step := func(name string, color nvtx.Color, f func() error) {
		if err != nil {
			return // the first error sticks
		}
		nvtx.Push(nvtx.Range{Name: name, Color: color, Payload: nvtx.NoPayload})
		start := time.Now()
		err = f()
		fmt.Printf("%-24s %v\n", name, time.Since(start))
		nvtx.Pop()
	}
	dev, err := lib.Device(0)
	if err != nil {
		return false, err
	}
	stream, err := dev.NewStream()
	if err != nil {
		return false, err
	}
	defer stream.Close()
	module, err := dev.Compile("add.cu", `
		extern "C" __global__ void add(float *z, const float *x, const float *y, int n) {
			int i = blockIdx.x * blockDim.x + threadIdx.x;
			if (i < n) z[i] = x[i] + y[i];
		}`)
	if err != nil {
		return false, err
	}
	defer module.Free()
	add, err := module.Function("add")
	if err != nil {
		return false, err
	}

	bytes := int64(4 * n)
	var host [3]*cuda.HostBuffer // x, y, z
	var device [3]*cuda.Buffer
	defer func() {
		for i := range host {
			if host[i] != nil {
				host[i].Free()
			}
			if device[i] != nil {
				device[i].Free()
			}
		}
	}()
	step("allocate", nvtx.Cyan, func() (err error) {
		for i := range host {
			if host[i], err = dev.AllocHost(bytes); err != nil {
				return err
			}
			if device[i], err = dev.Alloc(bytes); err != nil {
				return err
			}
		}
		return nil
	})
	x, y, z := host[0], host[1], host[2]
	dx, dy, dz := device[0], device[1], device[2]
	floats := func(h *cuda.HostBuffer) []float32 {
		return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(h.Bytes()))), n)
	}
	step("fill", nvtx.Blue, func() error {
		for i := range n {
			floats(x)[i], floats(y)[i] = float32(i%1000), 0.5
		}
		return nil
	})
	step("copy to the device", nvtx.Yellow, func() error {
		return errors.Join(stream.CopyToDevice(dx, 0, x, 0, bytes), stream.CopyToDevice(dy, 0, y, 0, bytes), stream.Synchronize())
	})
	step("launch", nvtx.Green, func() error {
		start := time.Now()
		err := add.Launch(stream, cuda.Launch{Grid: cuda.Dim{X: (n + 255) / 256}, Block: cuda.Dim{X: 256}}, dz, dx, dy, int32(n))
		returned, counted := time.Since(start), 0
		for err == nil { // the CPU is free
			var done bool
			if done, err = stream.Query(); done {
				break
			}
			counted++
		}
		if err == nil {
			fmt.Printf("the launch returned after %v; the CPU counted to %d while the GPU worked\n", returned, counted)
		}
		return errors.Join(err, stream.Synchronize())
	})
	step("copy back", nvtx.Yellow, func() error {
		return errors.Join(stream.CopyToHost(z, 0, dz, 0, bytes), stream.Synchronize())
	})
	if err != nil {
		return false, err
	}
	for i, v := range floats(z) {
		if v != float32(i%1000)+0.5 {
			return false, nil
		}
	}
	return true, nil
}

// The example is right, on the stub and, where there is one, on a GPU.
func TestExampleVectorAdd(t *testing.T) {
	t.Run("stub", func(t *testing.T) {
		lib, _, c := openStub(t)
		stub.NVRTC(t)
		if right, err := vectorAdd(lib, 1001); !right || err != nil || c.Live() != 0 {
			t.Fatalf("right %v, %v, %d objects live", right, err, c.Live())
		}
		for _, f := range []struct {
			what string
			nth  int
		}{{"gs_alloc_host", 2}, {"gs_alloc", 2}, {"gs_copy", 1}, {"launch", 1}, {"gs_copy", 3}} {
			c.Fail(f.what, f.nth)
			if right, err := vectorAdd(lib, 1001); right || !errors.As(err, new(*cuda.Error)) || c.Live() != 0 {
				t.Errorf("%s %d fails: right %v, %v, %d objects live", f.what, f.nth, right, err, c.Live())
			}
		}
	})
	t.Run("GPU", func(t *testing.T) {
		if right, err := vectorAdd(open(t).lib, 1<<20+3); !right || err != nil {
			t.Fatal(right, err)
		}
	})
}

// NVRTC and modules, as far as the Go side goes.
func TestModule(t *testing.T) {
	_, dev, c := openStub(t)
	t.Setenv("GPT2SCOPE_NVRTC", "/nowhere/libnvrtc.so.13")
	const source = `extern "C" __global__ void add() {}`
	var missing *cuda.UnavailableError
	if _, err := dev.Compile("a.cu", source); !errors.As(err, &missing) || !slices.Equal(missing.Looked, []string{"/nowhere/libnvrtc.so.13"}) ||
		!strings.Contains(err.Error(), "NVRTC of CUDA 13 was not found (set GPT2SCOPE_NVRTC or CUDA_HOME") {
		t.Fatal(err)
	}
	stub.NVRTC(t)
	var compile *cuda.CompileError
	if _, err := dev.Compile("wrong.cu", "void f();"); !errors.As(err, &compile) || compile.Name != "wrong.cu" || !strings.Contains(err.Error(), "wrong.cu(1): error: no kernel") {
		t.Fatal(err)
	}
	c.Fail("gs_module_compile", 1)
	if _, err := dev.Compile("a.cu", source); !errors.Is(err, cuda.ErrOutOfMemory) {
		t.Fatal(err)
	}
	m, err := dev.Compile("a.cu", source)
	must(t, err)
	if _, err := m.Function("missing"); err == nil || !strings.Contains(err.Error(), "kernel missing: gs_module_function: ") {
		t.Fatal(err)
	}
	f, err := m.Function("add")
	must(t, err)
	s := stream(t, dev)
	var shape *cuda.ShapeError
	c.Reset()
	for name, err := range map[string]error{
		"block":    f.Launch(s, cuda.Launch{Block: cuda.Dim{X: 1025}}),
		"product":  f.Launch(s, cuda.Launch{Block: cuda.Dim{X: 64, Y: 32}}),
		"negative": f.Launch(s, cuda.Launch{Grid: cuda.Dim{Y: -1}}),
		"shared":   f.Launch(s, cuda.Launch{Shared: 1 << 20}),
		"type":     f.Launch(s, cuda.Launch{}, 1),
		"many":     f.Launch(s, cuda.Launch{}, make([]any, 65)...),
		"threads":  func() error { _, err := f.Occupancy(0, 0); return err }(),
	} {
		if !errors.As(err, &shape) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if calls := c.Calls(); len(calls) != 0 {
		t.Errorf("crossed into C: %v", calls)
	}
	o, err := f.Occupancy(256, 0)
	if err != nil || o.BlocksPerProcessor != 8 || o.Registers != 16 || o.Fraction != 1 {
		t.Errorf("%+v, %v", o, err)
	}
	b := require.Value(dev.Alloc(4))(t)
	must(t, b.Free())
	if err := f.Launch(s, cuda.Launch{}, b); !errors.Is(err, cuda.ErrFreed) {
		t.Errorf("a freed buffer: %v", err)
	}
	for range 2 {
		must(t, m.Free())
	}
	_, functionErr := m.Function("add")
	_, occupancyErr := f.Occupancy(32, 0)
	for name, err := range map[string]error{"launch": f.Launch(s, cuda.Launch{}), "function": functionErr, "occupancy": occupancyErr} {
		if !errors.Is(err, cuda.ErrFreed) {
			t.Errorf("%s of a freed module: %v", name, err)
		}
	}
	if c.Live() != 1 { // the stream
		t.Errorf("%d objects live", c.Live())
	}
}

// launches are all launchers of a pass, with arguments that pass the checks.
func launches(s *cuda.Stream) map[string]func() error {
	embed := cuda.EmbedArgs{IDs: 1, Pos: 1, WTE: 1, WPE: 1, X: 1, B: 1, T: 1, C: 8, P: 4}
	norm := cuda.LayerNormArgs{X: 1, Gain: 1, Bias: 1, Y: 1, M: 1, C: 8, LDX: 8, LDY: 8}
	linear := cuda.LinearArgs{X: 1, W: 1, Y: 1, M: 1, N: 8, K: 8, LDX: 8, LDY: 8}
	attention := cuda.AttentionArgs{QKV: 1, KCache: 1, VCache: 1, Pos: 1, Y: 1, Work: 1, B: 1, T: 1, Q: 1, NH: 1, HS: 8, P: 4, LDQKV: 24, LDY: 8}
	activation := cuda.ActivationArgs{X: 1, Y: 1, M: 1, N: 8, LDX: 8, LDY: 8, Act: cuda.ReLU}
	add := cuda.AddArgs{X: 1, Z: 1, M: 1, N: 8, LDX: 8, LDZ: 8}
	pack := cuda.PackArgs{Src: 1, Dst: 1, Rows: 1, Cols: 8, LDDst: 8}
	sample := cuda.SampleArgs{Logits: 1, Sampling: 1, Pos: 1, Tokens: 1, Slots: 1, Work: 1, B: 1, V: 8, LD: 8, T: 1, Count: 4}
	return map[string]func() error{
		"Embed":       func() error { return s.Embed(embed) },
		"LayerNorm":   func() error { return s.LayerNorm(norm) },
		"Linear":      func() error { return s.Linear(linear) },
		"Attention":   func() error { return s.Attention(attention) },
		"Activate":    func() error { return s.Activate(activation) },
		"Add":         func() error { return s.Add(add) },
		"Pack":        func() error { return s.Pack(pack) },
		"Sample":      func() error { return s.Sample(sample) },
		"EmptyKernel": s.EmptyKernel,
	}
}

// A launch allocates nothing in Go. Launches of Sample are recorded and never replayed: its addresses are none.
func TestLaunchesAllocateNothing(t *testing.T) {
	_, dev, c := openStub(t)
	s := stream(t, dev)
	g, err := s.Capture(func() error {
		for name, launch := range launches(s) {
			err := launch()
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			if n := testing.AllocsPerRun(100, func() { err = launch() }); n != 0 || err != nil {
				t.Errorf("%s allocates %v times, %v", name, n, err)
			}
		}
		return nil
	})
	must(t, err)
	must(t, g.Free())
	empty, err := s.Capture(s.EmptyKernel)
	must(t, err)
	if n := testing.AllocsPerRun(100, func() { err = empty.Launch(s) }); n != 0 || err != nil {
		t.Errorf("a graph's launch allocates %v times, %v", n, err)
	}
	if err := errors.Join(empty.Free(), s.Close()); err != nil || c.Live() != 0 {
		t.Errorf("%v, %d objects live", err, c.Live())
	}
}

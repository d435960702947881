// Command vectoradd shows the six steps of any GPU program with z = x + y:
// allocate on the host, allocate on the device, fill, copy to the device, launch,
// copy back. Each step is timed and has an NVTX range of its own, so that
// nsys profile ./vectoradd shows it. A launch only queues the work: while the GPU
// works, the program sums what it put in.
//
//	go run ./cuda/examples/vectoradd -n 16777216
//
// The exit status is 0, 1 for a failure or a wrong result, 2 for wrong usage.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"time"
	"unsafe"

	"gpt2scope/cuda"
	"gpt2scope/nvtx"
)

// source is compiled at run time, by NVRTC. Thread i of the grid adds element i.
const source = `
extern "C" __global__ void add(float *z, const float *x, const float *y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) z[i] = x[i] + y[i];
}
`

const block = 256 // threads

func main() {
	n := flag.Int("n", 1<<24, "numbers to add")
	device := flag.Int("device", 0, "which GPU")
	flag.Parse()
	if flag.NArg() > 0 || *n < 1 || *n > 1<<29 {
		fmt.Fprintln(os.Stderr, "vectoradd: -n must be from 1 to 536870912, and nothing may follow the flags")
		nvtx.Exit(2)
	}
	runtime.LockOSThread() // ranges belong to the thread
	if err := run(os.Stdout, *device, *n); err != nil {
		fmt.Fprintln(os.Stderr, "vectoradd:", err)
		nvtx.Exit(1)
	}
	nvtx.Exit(0)
}

// steps times steps, each under a range.
type steps struct {
	domain *nvtx.Domain
	out    io.Writer
}

func (s steps) do(name string, color nvtx.Color, bytes int, f func() error) error {
	s.domain.Push(nvtx.Event{Message: s.domain.Register(name), Color: color, Payload: int64(bytes)})
	start := time.Now()
	err := f()
	d := time.Since(start)
	s.domain.Pop()
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if bytes == 0 {
		fmt.Fprintf(s.out, "%-24s %10.1f us\n", name, us(d))
		return nil
	}
	fmt.Fprintf(s.out, "%-24s %10.1f us %8.2f GB/s\n", name, us(d), float64(bytes)/float64(max(1, d.Nanoseconds())))
	return nil
}

func us(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }

// floats is the memory as numbers.
func floats(h *cuda.HostBuffer) []float32 {
	b := h.Bytes()
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/4)
}

// program holds what the steps make.
type program struct {
	steps
	dev     *cuda.Device
	stream  *cuda.Stream
	module  *cuda.Module
	kernel  *cuda.Function
	x, y, z *cuda.HostBuffer // pinned: copies from and to it are asynchronous
	dx, dy  *cuda.Buffer
	dz      *cuda.Buffer
	n       int
	summed  int     // of the numbers of x and y, by the CPU
	sum     float64 // of those
	note    string  // printed after the step
}

// run adds n numbers on a GPU and checks the result.
func run(out io.Writer, device, n int) (err error) {
	lib, err := cuda.Open()
	if err != nil {
		return err
	}
	dev, err := lib.Device(device)
	if err != nil {
		return err
	}
	p := &program{steps: steps{nvtx.NewDomain("vectoradd"), out}, dev: dev, n: n}
	defer func() { err = errors.Join(err, p.free()) }()
	if p.stream, err = dev.NewStream(); err != nil {
		return err
	}
	fmt.Fprintf(out, "%s, z = x + y of %d numbers\n", dev.Info().Name, n)
	for _, s := range []struct {
		name  string
		color nvtx.Color
		bytes int // moved
		f     func() error
	}{
		{"compile", nvtx.Blue, 0, p.compile},
		{"1 allocate on the host", nvtx.Cyan, 12 * n, p.allocateHost},
		{"2 allocate on the device", nvtx.Cyan, 12 * n, p.allocateDevice},
		{"3 fill", nvtx.Blue, 8 * n, p.fill},
		{"4 copy to the device", nvtx.Yellow, 8 * n, p.copyIn},
		{"5 launch", nvtx.Green, 12 * n, p.launch},
		{"6 copy back", nvtx.Yellow, 4 * n, p.copyOut},
		{"check", nvtx.Blue, 12 * n, p.check},
	} {
		if err := p.do(s.name, s.color, s.bytes, s.f); err != nil {
			return err
		}
		fmt.Fprint(out, p.note)
		p.note = ""
	}
	fmt.Fprintln(out, "right: every z is x + y")
	return nil
}

func (p *program) compile() (err error) {
	if p.module, err = p.dev.Compile("add.cu", source); err == nil {
		p.kernel, err = p.module.Function("add")
	}
	return err
}

func (p *program) allocateHost() (err error) {
	for _, h := range []**cuda.HostBuffer{&p.x, &p.y, &p.z} {
		if *h, err = p.dev.AllocHost(4 * int64(p.n)); err != nil {
			return err
		}
	}
	return nil
}

func (p *program) allocateDevice() (err error) {
	for _, b := range []**cuda.Buffer{&p.dx, &p.dy, &p.dz} {
		if *b, err = p.dev.Alloc(4 * int64(p.n)); err != nil {
			return err
		}
	}
	return nil
}

// fill takes numbers whose sums float32 holds exactly.
func (p *program) fill() error {
	x, y, z := floats(p.x), floats(p.y), floats(p.z)
	for i := range x {
		x[i], y[i], z[i] = float32(i%4096), 0.5*float32(i%1021), float32(math.NaN())
	}
	return nil
}

func (p *program) copyIn() error {
	return errors.Join(p.stream.CopyToDevice(p.dx, 0, p.x, 0, p.x.Size()), p.stream.CopyToDevice(p.dy, 0, p.y, 0, p.y.Size()), p.stream.Synchronize())
}

// launch queues the kernel, and sums x and y until the GPU is done.
func (p *program) launch() error {
	start := time.Now()
	grid := (p.n + block - 1) / block
	if err := p.kernel.Launch(p.stream, cuda.Launch{Grid: cuda.Dim{X: grid}, Block: cuda.Dim{X: block}}, p.dz, p.dx, p.dy, int32(p.n)); err != nil {
		return err
	}
	returned := time.Now()
	for p.summed < p.n {
		if done, err := p.stream.Query(); err != nil || done {
			if err != nil {
				return err
			}
			break
		}
		p.sumSome()
	}
	wait := time.Now()
	err := p.stream.Synchronize()
	p.note = fmt.Sprintf("  the launch returned after %.1f us; the CPU summed %d of %d pairs while the GPU worked, then waited %.1f us\n",
		us(returned.Sub(start)), p.summed, p.n, us(time.Since(wait)))
	return err
}

// sumSome sums the next numbers of x and y.
func (p *program) sumSome() {
	end := min(p.summed+1024, p.n)
	x, y := floats(p.x)[p.summed:end], floats(p.y)[p.summed:end]
	for i := range x {
		p.sum += float64(x[i]) + float64(y[i])
	}
	p.summed = end
}

func (p *program) copyOut() error {
	return errors.Join(p.stream.CopyToHost(p.z, 0, p.dz, 0, p.z.Size()), p.stream.Synchronize())
}

// check compares each z, and the sum of all with that of x and y, which the CPU
// began while the GPU worked.
func (p *program) check() error {
	for p.summed < p.n {
		p.sumSome()
	}
	x, y, z := floats(p.x), floats(p.y), floats(p.z)
	sum := 0.0
	for i := range z {
		if z[i] != x[i]+y[i] {
			return fmt.Errorf("z[%d] is %g, not %g + %g", i, z[i], x[i], y[i])
		}
		sum += float64(z[i])
	}
	if sum != p.sum {
		return fmt.Errorf("the sum of z is %g, that of x and y %g", sum, p.sum)
	}
	return nil
}

// free frees what was made, also when a step failed half way.
func (p *program) free() error {
	var errs []error
	for _, h := range []*cuda.HostBuffer{p.x, p.y, p.z} {
		if h != nil {
			errs = append(errs, h.Free())
		}
	}
	for _, b := range []*cuda.Buffer{p.dx, p.dy, p.dz} {
		if b != nil {
			errs = append(errs, b.Free())
		}
	}
	if p.module != nil {
		errs = append(errs, p.module.Free())
	}
	if p.stream != nil {
		errs = append(errs, p.stream.Close())
	}
	return errors.Join(errs...)
}

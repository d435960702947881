package learn

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"gpt2scope/cuda"
	"gpt2scope/traces"
	"gpt2scope/traces/load"
	"gpt2scope/traces/samples"
)

// Env is what experiments may use.
type Env struct {
	Device *cuda.Device // nil without a GPU
	NoGPU  string       // why there is none
	// Infer runs the command infer in a process of its own, such as for a Program, and returns what it writes; nil if
	// that cannot be.
	Infer func(ctx context.Context, words []string) ([]byte, error)
	Quick bool // small sizes and few repeats, for tests: the figures mean nothing

	Size, Block int  // of the launch that lesson 21 lays out; 0 for its own
	Managed     bool // lesson 14 tries unified memory too
}

// pick returns the first number, the second if the environment is quick.
func (e *Env) pick(n, quick int) int {
	if e.Quick {
		return quick
	}
	return n
}

// errNotHere is why an experiment cannot run on a machine. It is no failure.
var errNotHere = errors.New("it cannot run here")

// lab is what an experiment works with, and the data that it measures.
type lab struct {
	*Env
	Data
	ctx context.Context
}

// failure is what check panics with and attempt catches, as package text/template does.
type failure struct{ error }

// check ends an experiment if there is an error.
func check(errs ...error) {
	if err := errors.Join(errs...); err != nil {
		panic(failure{err})
	}
}

// must is a value without an error.
func must[T any](value T, err error) T {
	check(err)
	return value
}

// attempt runs f and returns the error by which check ended it.
func attempt(f func()) (err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case failure:
			err = r.error
		default:
			panic(r)
		}
	}()
	f()
	return nil
}

func measure(ctx context.Context, e *Env, run func(l *lab)) (Data, error) {
	l := &lab{Env: e, ctx: ctx}
	if err := attempt(func() { run(l) }); err != nil {
		return nil, err
	}
	return l.Data, nil
}

// way is one of the ways that an experiment compares. It returns its time in us.
type way struct {
	of       string
	quantity string // "time_us" if empty
	x        float64
	run      func() (us float64)
}

// inTurns measures ways in random order, in so many rounds after one for warm-up.
func (l *lab) inTurns(rounds int, ways ...way) {
	random := rand.New(rand.NewPCG(6, 6))
	for round := range rounds + 1 {
		times := make([]float64, len(ways))
		for _, i := range random.Perm(len(ways)) {
			check(context.Cause(l.ctx))
			times[i] = ways[i].run()
		}
		for i, w := range ways {
			if round > 0 {
				l.add(w.of, cmp.Or(w.quantity, "time_us"), w.x, times[i])
			}
		}
	}
}

// timed is the microseconds that f takes by the host's clock.
func timed(f func()) float64 {
	start := time.Now()
	f()
	return us(time.Since(start))
}

func us(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }

// infer runs the command infer for at most a minute and returns what it wrote.
func (l *lab) infer(words ...string) []byte {
	if l.Infer == nil {
		check(fmt.Errorf("%w: no command is given for what needs a process of its own", errNotHere))
	}
	ctx, cancel := context.WithTimeout(l.ctx, time.Minute)
	defer cancel()
	text, err := l.Infer(ctx, words)
	if err != nil {
		check(fmt.Errorf("%s: %w", strings.Join(words, " "), err))
	}
	return text
}

// fresh runs a Program in so many processes of their own, one after the other, and adds the data that they write.
func (l *lab) fresh(processes int, program string, args ...string) {
	for range processes {
		text := l.infer(append([]string{"learn", "program", program}, args...)...)
		var part Data
		if err := json.Unmarshal(text, &part); err != nil {
			check(fmt.Errorf("%s writes %q: %w", program, text[:min(len(text), 80)], err))
		}
		l.Data = append(l.Data, part...)
	}
}

// recordRun generates tokens with a model of random weights in a process of its own, records that with CUPTI, and reads
// the recording. words are flags of the command infer.
func (l *lab) recordRun(mode string, words ...string) *traces.Trace {
	if l.Quick {
		check(fmt.Errorf("%w: a test records no run", errNotHere))
	}
	dir := must(os.MkdirTemp("", "learn"))
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "run.json.gz")
	// 64 tokens: products of many rows, which cuBLASLt computes
	ids := strings.TrimSuffix(strings.Repeat("464,", 64), ",")
	l.infer(append([]string{"-m", "random:gpt2", "--ids", ids, "-s", "1", "--ignore-eos", "--device",
		fmt.Sprintf("cuda:%d", l.Device.Info().Index), "--mode", mode, "--recorder", "cupti", "--no-baseline", "--quiet",
		"--trace", file}, words...)...)
	return must(load.Source{Path: file, Context: l.ctx}.Load())
}

func (l *lab) sample(name string) *traces.Trace {
	return must(load.Source{Path: samples.Prefix + name, Context: l.ctx}.Load())
}

// ofEagerRun makes a Run of an experiment whose data are of a recorded run in eager mode.
func ofEagerRun(data func(t *traces.Trace) Data) func(l *lab) {
	return func(l *lab) { l.Data = data(l.recordRun("eager", "-n", "12")) }
}

// gpu is a lab with a stream. All that its methods make is freed after the experiment.
type gpu struct {
	*lab
	*cuda.Bench
}

// onGPU makes a Run of an experiment that works with a gpu.
func onGPU(run func(g *gpu)) func(l *lab) {
	return func(l *lab) { l.withGPU(l.Env.Device, run) }
}

func (l *lab) withGPU(dev *cuda.Device, run func(g *gpu)) {
	g := &gpu{l, must(cuda.NewBench(dev))}
	check(attempt(func() { run(g) }), g.Close())
}

func (g *gpu) event() *cuda.Event {
	e := must(g.Device.NewEvent())
	g.OnClose(e.Close)
	return e
}

func (g *gpu) kernels(file string, names ...string) []*cuda.Function {
	return g.compile(file, source(file), names...)
}

func (g *gpu) compile(file, text string, names ...string) (kernels []*cuda.Function) {
	m := must(g.Device.Compile(file, text))
	g.OnClose(m.Free)
	for _, name := range names {
		kernels = append(kernels, must(m.Function(name)))
	}
	return kernels
}

// elements returns a number of elements of so many bytes each: n, or what takes a quarter of the memory that is free,
// if that is less.
func (g *gpu) elements(n, bytes int) int {
	free, _, err := g.Device.Memory()
	check(err)
	n = int(min(uint64(n), free/4/uint64(bytes)))
	if n < 1 {
		check(fmt.Errorf("%w: the GPU has %d bytes of free memory", errNotHere, free))
	}
	return n
}

func (g *gpu) buffer(bytes int64) *cuda.Buffer {
	b := must(g.Alloc(bytes))
	check(g.Stream.Set(b, 0, 0, bytes), g.Stream.Synchronize())
	return b
}

func (g *gpu) read(b *cuda.Buffer, n int) []byte {
	out := make([]byte, n)
	check(b.Read(0, out))
	return out
}

// host allocates pinned memory and touches it.
func (g *gpu) host(bytes int64) *cuda.HostBuffer {
	b := must(g.AllocHost(bytes))
	clear(b.Bytes())
	return b
}

// launch queues a kernel of one-dimensional blocks.
func (g *gpu) launch(k *cuda.Function, blocks, threads int, arguments ...any) {
	check(k.Launch(g.Stream, line(blocks, threads), arguments...))
}

func (g *gpu) wait() { check(g.Stream.Synchronize()) }

// timeUs returns the microseconds that what f queues takes on the device, by events.
func (g *gpu) timeUs(f func()) float64 {
	return us(must(g.Time(1, 1, func() error { f(); return nil }))[0])
}

// spin returns a function that queues a kernel of one block that takes so many microseconds at the highest clock.
func (g *gpu) spin() func(us float64) {
	kernel := g.kernels("spin.cu", "spin")[0]
	perUs := math.Max(1, float64(g.Device.Info().ClockKHz)/1e3)
	return func(us float64) {
		cycles := int64(us * perUs)
		g.launch(kernel, 1, 1, cycles, int32(min(cycles/2+1, math.MaxInt32))) // a step takes more than two cycles
	}
}

// line is a launch of one-dimensional blocks.
func line(blocks, threads int) cuda.Launch {
	return cuda.Launch{Grid: cuda.Dim{X: blocks}, Block: cuda.Dim{X: threads}}
}

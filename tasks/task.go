// Package tasks is a suite of work that a CPU and a GPU can both do, and measures it on both.
//
// A [Task] is a file: a reference in float64, the ways to do it on either device, what it costs and at which sizes it
// is measured. [All] lists the tasks. Adding one takes a file and a line of that list.
//
// A [Case] is one way of a task with its shape, type and memory; a [Sample] is one measured repeat of it. [Bench.Run]
// measures the cases of a [Suite] in turns, in random order, on random numbers whose results are checked each time.
package tasks

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"gpt2scope/ceilings"
	"gpt2scope/cpu"
	"gpt2scope/gpt2"
	"gpt2scope/predict"
)

// Devices of ways.
const (
	CPU = "cpu"
	GPU = "cuda"
)

// Tuned is the variant that is as fast as can be on its device.
const Tuned = "tuned"

// Types of the elements of inputs.
const (
	Float32  = "float32"
	BFloat16 = "bfloat16"
)

// All lists the tasks. Those that run GPT-2 have sizes for the shipped model.
func All() []*Task { return ForModel(Geometry) }

// ForModel lists the tasks, with sizes for a model of some geometry.
func ForModel(c gpt2.Config) []*Task {
	return []*Task{vectorAdd(), vectorSquare(), reduceSum(), matmul(), prefill(c), decode(c), generate(c)}
}

// Task is work that a CPU and a GPU can do.
type Task struct {
	Name   string
	DTypes []string
	Sizes  []Shape // ascending

	Of    func(n int) Shape // the shape of one size, n or m = n = k; nil of a task that runs GPT-2
	Short []int             // sizes of the short suite, with those that introductions to GPU profiling measure

	// Cost is what the task takes at least; an error says what is wrong with the shape.
	Cost func(s Shape, dtype string) (Cost, error)

	Ways []Way

	Arrays *Arrays               // how it is computed, if it is over arrays
	work   func(Shape) modelWork // what it runs, if it runs GPT-2
}

// open makes the inputs of a shape on a machine.
func (t *Task) open(ctx context.Context, m *Machine, s Shape, dtype string) (Opened, error) {
	if t.Arrays == nil {
		return openModel(ctx, m, t, s, dtype)
	}
	return openArrays(ctx, m, t, s, dtype)
}

// Cost is what a task takes at least, whatever it runs on.
type Cost struct {
	FLOPs, Bytes float64
	In, Out      int64 // bytes of the inputs and of the result, which a transfer moves
	Steps        int   // launches, one after another
	Rows         int   // of a matrix product: rows of the first matrix; of a pass: tokens of all sequences; else 0
	Products     []Product
	Multiply     string // the type that products multiply in, as [ceilings.Set.Rate] takes it

	passes []passes // of GPT-2
}

// passes is the work of the steps of a pass that is done so many times.
type passes struct {
	work  []ceilings.Work
	times int
}

// Way is one way to do a task.
type Way struct {
	Device  string // CPU or GPU
	Variant string
	DTypes  []string         // the task's if nil
	Most    func(Shape) bool // whether a shape is not too large for the way; nil for any

	CPU CPUWay // how it is done over arrays, on its device
	GPU GPUWay
}

func (w Way) fits(s Shape, dtype string) bool {
	return (w.DTypes == nil || slices.Contains(w.DTypes, dtype)) && (w.Most == nil || w.Most(s))
}

// Opened is a task of one shape with its inputs.
type Opened interface {
	// prepare makes a way ready: memory, kernels. It runs in a slot of a GPU; nil is the CPU.
	prepare(ctx context.Context, w Way, s *slot, memory predict.Memory) (Ready, error)
	Close() error
}

// Ready is a way that can run again and again.
type Ready struct {
	run   func(context.Context) (Times, error) // does the task once; the result of an earlier run is spoilt before
	check func() error                         // compares the result of the last run with the reference
	end   func() error                         // frees what was made; may be nil
}

func (r Ready) checked(ctx context.Context) (Times, error) {
	t, err := r.run(ctx)
	if err == nil {
		err = r.check()
	}
	return t, err
}

func (r Ready) close() error {
	if r.end == nil {
		return nil
	}
	return r.end()
}

// Times are the parts of a run in microseconds, 0 where they are not known: see [Sample].
type Times struct{ Submit, H2D, Kernel, D2H, Wall float64 }

// Find returns those of the tasks that have these names: a name is that of a task, or the part
// before the dot, as vector is of vector.add and vector.square. No names are all tasks.
func Find(all []*Task, names []string) ([]*Task, error) {
	if len(names) == 0 {
		return all, nil
	}
	is := func(t *Task, name string) bool { return t.Name == name || strings.HasPrefix(t.Name, name+".") }
	for _, name := range names {
		if !slices.ContainsFunc(all, func(t *Task) bool { return is(t, name) }) {
			var known []string
			for _, t := range all {
				known = append(known, t.Name)
			}
			return nil, fmt.Errorf("there is no task %q; tasks are %s", name, strings.Join(known, ", "))
		}
	}
	return slices.DeleteFunc(slices.Clone(all), func(t *Task) bool {
		return !slices.ContainsFunc(names, func(name string) bool { return is(t, name) })
	}), nil
}

// OverArrays finds the task over arrays of a name, or part of it.
func OverArrays(name string) (*Task, error) {
	found, _ := Find(All(), []string{name})
	if len(found) != 1 || found[0].Arrays == nil {
		return nil, fmt.Errorf("%q: give one of vector.add, vector.square, reduce.sum and matmul", name)
	}
	return found[0], nil
}

// FloorUs returns the least time of a cost in microseconds, 0 if a ceiling is not known.
func (c Cost) FloorUs(set ceilings.Set) float64 {
	var sum time.Duration
	for _, p := range c.passes {
		d := set.PassFloor(p.work)
		if d == 0 {
			return 0
		}
		sum += time.Duration(p.times) * d
	}
	if c.passes != nil {
		return microseconds(sum)
	}
	w := ceilings.Work{FLOPs: int64(c.FLOPs), Type: c.Multiply, Bytes: int64(c.Bytes)}
	if f, ok := set.Floor(w, w.Bytes); ok {
		return f.Time / 1e3
	}
	return 0
}

// Product is a matrix product of (M, K) by (K, N), done so many times.
type Product struct{ M, N, K, Times int }

// work returns what is known of work before it runs on a device.
func (c Cost) work(task, dtype string, memory predict.Memory, d *Device) predict.Work {
	w := predict.Work{
		Task: task, DType: dtype, FLOPs: c.FLOPs, Bytes: c.Bytes, Steps: float64(c.Steps), Rows: float64(c.Rows),
		FloorUs: c.FloorUs(d.Ceilings), Memory: memory,
	}
	if memory == predict.Pageable || memory == predict.Pinned {
		w.BytesIn, w.BytesOut = float64(c.In), float64(c.Out)
	}
	if len(c.Products) == 1 {
		w.Inner = float64(c.Products[0].K)
	}
	if memory != predict.Host {
		return w
	}
	w.Threads = float64(d.Threads)
	const leastRows = 12 // a product of fewer rows takes about as long: it reads all weights
	var all, idle float64
	for _, p := range c.Products {
		_, parts := cpu.Divide(d.Kernels, d.Threads, p.M, p.N, p.K, dtype == BFloat16)
		size := float64(max(p.M, leastRows)) * float64(p.N) * float64(p.K) * float64(p.Times)
		all, idle = all+size, idle+size*max(1, float64(d.Threads)/float64(parts))
	}
	if all > 0 {
		kernel, _ := cpu.Divide(d.Kernels, d.Threads, c.Rows, 1, 1, dtype == BFloat16)
		w.Kernel, w.Idle = float64(kernel), idle/all
	}
	return w
}

func microseconds(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }

// Dim is a size by its name: "n", 1048576.
type Dim struct {
	Name  string
	Value int
}

// Shape is the sizes of a task, in the task's order.
type Shape []Dim

// String writes a shape: "m=256,n=256,k=256".
func (s Shape) String() string {
	var parts []string
	for _, d := range s {
		parts = append(parts, d.Name+"="+strconv.Itoa(d.Value))
	}
	return strings.Join(parts, ",")
}

// Get returns a size by its name, 0 if the shape has none.
func (s Shape) Get(name string) int {
	for _, d := range s {
		if d.Name == name {
			return d.Value
		}
	}
	return 0
}

// ParseShape reads what [Shape.String] writes.
func ParseShape(text string) (Shape, error) {
	var s Shape
	for part := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(part, "=")
		n, err := strconv.Atoi(value)
		if name == "" || err != nil || n < 0 || n > 1<<40 || len(s) == 8 {
			return nil, fmt.Errorf("shape %q: %q is not one of at most 8 sizes such as n=1024", text, part)
		}
		s = append(s, Dim{name, n})
	}
	return s, nil
}

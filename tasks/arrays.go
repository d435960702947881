package tasks

import (
	"context"
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"time"
	"unsafe"

	"gpt2scope/cpu"
	"gpt2scope/cuda"
	"gpt2scope/nvtx"
	"gpt2scope/nvtx/annotate"
	"gpt2scope/predict"
	"gpt2scope/weights"
)

// Arrays is a task over arrays: how it is computed on a CPU and on a GPU.
type Arrays struct {
	// Layout returns the inputs and the result.
	Layout func(s Shape, dtype string) (in []Array, out Array)

	// Reference is element i of the result in float64, and the sum of the absolute values
	// of what is added up there, to which rounding errors are relative.
	Reference func(s Shape, in []View, i int) (value, size float64)

	// Error is the rounding error that is allowed, relative to size.
	Error func(s Shape, dtype string) float64

	CPU map[string]CPUWay // by the variant
	GPU map[string]GPUWay
}

// Array is numbers of a type.
type Array struct {
	Len   int
	DType string
}

// Bytes returns the size of an array.
func (a Array) Bytes() int64 { return int64(a.Len) * int64(elementBytes(a.DType)) }

func elementBytes(dtype string) int {
	if dtype == BFloat16 {
		return 2
	}
	return 4
}

// CPUWay prepares a way on the CPU: run does the task once, and close, which may be nil,
// frees what was made for it.
type CPUWay func(t *cpu.Team, s Shape, in []View, out View) (run func() error, close func(), err error)

// View is an array in host memory.
type View struct {
	Array
	Memory *cpu.Memory
}

// Float32 returns the values of a float32 array.
func (v View) Float32() []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(v.Memory.Bytes()))), v.Len)
}

// Words returns the values of a bfloat16 array as they are stored.
func (v View) Words() []uint16 {
	return unsafe.Slice((*uint16)(unsafe.Pointer(unsafe.SliceData(v.Memory.Bytes()))), v.Len)
}

// At returns a value as float64.
func (v View) At(i int) float64 {
	if v.DType == BFloat16 {
		return float64(weights.BFloat16ToFloat32(v.Words()[i]))
	}
	return float64(v.Float32()[i])
}

// fill writes random numbers from -1 to 1 that depend on the seed only. Zeros would be
// faster: they take less power.
func (v View) fill(seed uint64) {
	random := rand.New(rand.NewPCG(seed, 0x7461736b73)) // "tasks"
	next := func() float32 { return float32(int32(random.Uint32())) * 0x1p-31 }
	if v.DType == BFloat16 {
		for i := range v.Words() {
			v.Words()[i] = weights.Float32ToBFloat16(next())
		}
		return
	}
	x := v.Float32()
	for i := range x {
		x[i] = next()
	}
}

// checked is how many elements of a result are compared after each run.
const checked = 64

// openArrays is a task with its inputs.
type openArrays struct {
	m     *Machine
	task  *Task
	of    *Arrays
	shape Shape
	dtype string
	in    []View
	out   View
	at    []int     // elements that are checked
	want  []float64 // their values
	error []float64 // and how far a result may be from them

	shared bool // the machine frees the arrays
}

// memory makes an array, of random numbers if it is the i-th input, from 1; 0 is a result.
func (m *Machine) memory(a Array, i int) (*cpu.Memory, error) {
	memory, err := cpu.NewMemory(a.Bytes())
	if err != nil {
		return nil, err
	}
	if m.Team != nil {
		m.Team.Place(memory)
	}
	if i > 0 {
		View{a, memory}.fill(uint64(i))
	}
	return memory, nil
}

// sharedKey names memory that work shares.
type sharedKey struct {
	dtype string
	i     int
	bits  int // of the number of elements
}

// sharedKeyOf names the memory of the i-th array of work, as memory counts them.
func sharedKeyOf(a Array, i int) sharedKey {
	return sharedKey{a.DType, i, bits.Len(uint(max(a.Len, 1) - 1))}
}

// array is as long as the longest that shares the memory.
func (k sharedKey) array() Array { return Array{1 << k.bits, k.dtype} }

// shared returns the memory of the arrays of all shapes that are longer than half of it: inputs of one number hold the
// same random numbers in all shapes, and a result is compared before the next task runs.
func (m *Machine) shared(a Array, i int) (*cpu.Memory, error) {
	k := sharedKeyOf(a, i)
	if m.arrays[k] == nil {
		memory, err := m.memory(k.array(), i)
		if err != nil {
			return nil, err
		}
		if m.arrays == nil {
			m.arrays = map[sharedKey]*cpu.Memory{}
		}
		m.arrays[k] = memory
	}
	return m.arrays[k], nil
}

// sharedPinned returns a copy of shared memory of an input, in pinned memory, which any GPU reads.
func (m *Machine) sharedPinned(g *GPUDevice, a Array, i int) (*cuda.HostBuffer, error) {
	k := sharedKeyOf(a, i)
	if m.pinned[k] == nil {
		memory, err := m.shared(a, i)
		if err != nil {
			return nil, err
		}
		h, err := g.Device.AllocHost(k.array().Bytes())
		if err != nil {
			return nil, err
		}
		copy(h.Bytes(), memory.Bytes())
		if m.pinned == nil {
			m.pinned = map[sharedKey]*cuda.HostBuffer{}
		}
		m.pinned[k] = h
	}
	return m.pinned[k], nil
}

// open makes random inputs, and the reference of some elements. With shared, arrays are in memory that the machine has
// for all work: see [Machine.shared].
func (a *Arrays) open(ctx context.Context, m *Machine, t *Task, s Shape, dtype string, shared bool) (_ Opened, err error) {
	o := &openArrays{m: m, task: t, of: a, shape: s, dtype: dtype, shared: shared}
	defer func() {
		if err != nil {
			o.Close()
		}
	}()
	memory := m.memory
	if shared {
		memory = m.shared
	}
	in, out := a.Layout(s, dtype)
	for i, array := range in {
		v := View{Array: array}
		if v.Memory, err = memory(array, i+1); err != nil {
			return nil, err
		}
		o.in = append(o.in, v)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
	o.out = View{Array: out}
	if o.out.Memory, err = memory(out, 0); err != nil {
		return nil, err
	}
	random := rand.New(rand.NewPCG(uint64(out.Len), 1))
	for i := range min(checked, out.Len) {
		at := random.IntN(out.Len)
		switch {
		case i == 0:
			at = 0
		case i == 1 || out.Len <= checked:
			at = (out.Len - i) % out.Len
		}
		value, size := a.Reference(s, o.in, at)
		o.at, o.want, o.error = append(o.at, at), append(o.want, value), append(o.error, size*a.Error(s, dtype))
	}
	return o, nil
}

func (o *openArrays) Close() error {
	for _, v := range append(o.in, o.out) {
		if v.Memory != nil && !o.shared {
			v.Memory.Free()
		}
	}
	return nil
}

// Prepare makes a way ready.
func (o *openArrays) Prepare(ctx context.Context, w Way, device string, memory predict.Memory) (Ready, error) {
	if w.Device == GPU {
		return o.prepareGPU(w, device, memory)
	}
	run, close, err := o.of.CPU[w.Variant](o.m.Team, o.shape, o.in, o.out)
	if err != nil {
		return nil, err
	}
	return &hostRun{o, run, close}, nil
}

// hostRun runs a task on the CPU.
type hostRun struct {
	*openArrays
	run   func() error
	close func()
}

func (r *hostRun) Run(context.Context) (Times, error) {
	for _, i := range r.at {
		r.out.Float32()[i] = float32(math.NaN())
	}
	times := unknown()
	defer annotate.Range("compute on the CPU", nvtx.Blue)()
	start := time.Now()
	err := r.run()
	times.Wall = microseconds(time.Since(start))
	times.Kernel = times.Wall
	return times, err
}

func (r *hostRun) Check(context.Context) error {
	return r.compare(func(i int) (float64, error) { return r.out.At(i), nil })
}

func (r *hostRun) Close() error {
	if r.close != nil {
		r.close()
	}
	return nil
}

// compare compares some elements of a result with the reference.
func (o *openArrays) compare(value func(i int) (float64, error)) error {
	for n, i := range o.at {
		got, err := value(i)
		if err != nil {
			return err
		}
		if !(math.Abs(got-o.want[n]) <= o.error[n]) {
			return fmt.Errorf("element %d of %s of %s is %g; expected %g within %.2g", i, o.task.Name, o.shape, got, o.want[n], o.error[n])
		}
	}
	return nil
}

package tasks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
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

	// Reference is element i of the result in float64, and the sum of the absolute values of what is added up there, to
	// which rounding errors are relative.
	Reference func(s Shape, in []View, i int) (value, size float64)

	// Error is the rounding error that is allowed, relative to size.
	Error func(s Shape, dtype string) float64
}

// CPUWay prepares a way on the CPU: run does the task once, and end, which may be nil, frees what was made for it.
type CPUWay func(t *cpu.Team, s Shape, in []View, out View) (run, end func() error, err error)

// GPUWay prepares a way on a GPU, from inputs, result and type: launch queues it on a stream.
type GPUWay func(*GPUDevice, Shape, []cuda.Ptr, cuda.Ptr, string) (launch Launch, end func() error, err error)

// Launch queues work on a stream.
type Launch = func(*cuda.Stream) error

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

// View is an array in host memory.
type View struct {
	Array
	Memory *cpu.Memory
	pinned *cuda.HostBuffer // a copy that GPUs read; nil if none is needed
}

func (v View) bytes() []byte { return v.Memory.Bytes()[:v.Bytes()] }

// Float32 returns the values of a float32 array.
func (v View) Float32() []float32 { return floats(v.Memory.Bytes(), v.Len) }

func floats(b []byte, n int) []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(b))), n)
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

// Fill writes random numbers from -1 to 1 that depend on the seed only. Zeros would be faster: they take less power.
func (v View) Fill(seed uint64) {
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

// array makes an array, of random numbers if it is the i-th input, from 1; 0 is a result. GPUs read a copy of an input.
func (m *Machine) array(a Array, i int) (v View, err error) {
	v.Array = a
	if v.Memory, err = cpu.NewMemory(a.Bytes()); err != nil {
		return v, err
	}
	if m.Team != nil {
		m.Team.Place(v.Memory)
	}
	if i == 0 {
		return v, nil
	}
	v.Fill(uint64(i))
	if len(m.GPUs) > 0 { // any GPU reads what one has pinned
		defer annotate.Range("allocate pinned memory", nvtx.Cyan)()
		if v.pinned, err = m.GPUs[0].Device.AllocHost(a.Bytes()); err == nil {
			copy(v.pinned.Bytes(), v.bytes())
		}
	}
	return v, err
}

// checked is how many elements of a result are compared after each run.
const checked = 64

// arrays is a task with its inputs.
type arrays struct {
	m     *Machine
	task  *Task
	shape Shape
	dtype string
	in    []View
	out   View
	at    []int     // elements that are checked
	want  []float64 // their values
	error []float64 // and how far a result may be from them
}

// openArrays makes random inputs, and the reference of some elements.
func openArrays(ctx context.Context, m *Machine, t *Task, s Shape, dtype string) (_ Opened, err error) {
	a, o := t.Arrays, &arrays{m: m, task: t, shape: s, dtype: dtype}
	defer func() {
		if err != nil {
			err = errors.Join(err, o.Close())
		}
	}()
	in, out := a.Layout(s, dtype)
	for i, array := range in {
		v, err := m.array(array, i+1)
		o.in = append(o.in, v)
		if err = cmp.Or(err, context.Cause(ctx)); err != nil {
			return nil, err
		}
	}
	if o.out, err = m.array(out, 0); err != nil {
		return nil, err
	}
	o.refer()
	return o, nil
}

// refer computes the reference of some elements.
func (o *arrays) refer() {
	n := min(checked, o.out.Len)
	for i := range n {
		at := i * (o.out.Len - 1) / max(1, n-1) // from the first to the last
		value, size := o.task.Arrays.Reference(o.shape, o.in, at)
		o.at, o.want = append(o.at, at), append(o.want, value)
		o.error = append(o.error, size*o.task.Arrays.Error(o.shape, o.dtype))
	}
}

func (o *arrays) Close() (err error) {
	for _, v := range append(o.in, o.out) {
		if v.Memory != nil {
			v.Memory.Free()
		}
		if v.pinned != nil {
			err = errors.Join(err, v.pinned.Free())
		}
	}
	return err
}

// deviceBytes returns how many bytes of a GPU the inputs and the result take.
func (o *arrays) deviceBytes() int64 { return o.offset(len(o.in)) + aligned(o.out.Bytes()) }

// offset returns where on a GPU the i-th input begins; behind the inputs is the result.
func (o *arrays) offset(i int) (n int64) {
	for _, v := range o.in[:i] {
		n += aligned(v.Bytes())
	}
	return n
}

// aligned rounds a size up, so that an array behind it can be read in any width.
func aligned(n int64) int64 { return (n + 255) &^ 255 }

func (o *arrays) prepare(_ context.Context, w Way, s *slot, memory predict.Memory) (Ready, error) {
	if s != nil {
		return o.prepareGPU(w, s, memory)
	}
	run, end, err := w.CPU(o.m.Team, o.shape, o.in, o.out)
	return Ready{
		run: func(context.Context) (t Times, err error) {
			o.spoil(o.out.Float32())
			defer annotate.Range("compute on the CPU", nvtx.Blue)()
			start := time.Now()
			err = run()
			t.Wall = microseconds(time.Since(start))
			t.Kernel = t.Wall
			return t, err
		},
		check: func() error { return o.compare(o.out.Float32()) },
		end:   end,
	}, err
}

// spoil overwrites the elements of a result that are compared, so that a run that computes nothing is found.
func (o *arrays) spoil(result []float32) {
	for _, i := range o.at {
		result[i] = float32(math.NaN())
	}
}

// compare compares some elements of a result with the reference.
func (o *arrays) compare(result []float32) error {
	for n, i := range o.at {
		if got := float64(result[i]); !(math.Abs(got-o.want[n]) <= o.error[n]) {
			return fmt.Errorf("element %d of %s of %s is %g; expected %g within %.2g", i, o.task.Name, o.shape, got,
				o.want[n], o.error[n])
		}
	}
	return nil
}

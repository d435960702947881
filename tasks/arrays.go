package tasks

import (
	"context"
	"errors"
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

	// Reference is element i of the result in float64, and the sum of the absolute values of what is added up there, to
	// which rounding errors are relative.
	Reference func(s Shape, in []View, i int) (value, size float64)

	// Error is the rounding error that is allowed, relative to size.
	Error func(s Shape, dtype string) float64

	CPU map[string]CPUWay // by the variant
	GPU map[string]GPUWay
}

// CPUWay prepares a way on the CPU: run does the task once, and close, which may be nil, frees what was made for it.
type CPUWay func(t *cpu.Team, s Shape, in []View, out View) (run func() error, close func(), err error)

// GPUWay prepares a way on a GPU: launch queues it on a stream. in and out are device memory.
type GPUWay func(g *GPUDevice, s Shape, in []cuda.Ptr, out cuda.Ptr, dtype string) (launch func(*cuda.Stream) error, close func() error, err error)

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

// fill writes random numbers from -1 to 1 that depend on the seed only. Zeros would be faster: they take less power.
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

// memory makes an array, of random numbers if it is the i-th input, from 1; 0 is a result.
func (m *Machine) memory(a Array, i int) (View, error) {
	memory, err := cpu.NewMemory(a.Bytes())
	if err != nil {
		return View{}, err
	}
	if m.Team != nil {
		m.Team.Place(memory)
	}
	v := View{Array: a, Memory: memory}
	if i > 0 {
		v.fill(uint64(i))
	}
	return v, nil
}

// sharedKey names memory that work shares: the i-th array of all work in a type with so many bits in its length.
type sharedKey struct {
	dtype   string
	i, bits int
}

// shared is memory for the arrays of all shapes that are longer than half of it: inputs of one number hold the same
// random numbers in all shapes, and a result is compared before the next task runs.
func (m *Machine) shared(a Array, i int) (View, error) {
	k := sharedKey{a.DType, i, bits.Len(uint(max(a.Len, 1) - 1))}
	v, ok := m.arrays[k]
	if !ok {
		var err error
		if v, err = m.memory(Array{1 << k.bits, k.dtype}, i); err != nil {
			return v, err
		}
		if i > 0 && len(m.GPUs) > 0 { // any GPU reads what one has pinned
			if err := v.pin(m.GPUs[0]); err != nil {
				return v, errors.Join(err, v.free())
			}
		}
		m.arrays[k] = v
	}
	v.Array = a
	return v, nil
}

// pin makes the copy that GPUs read.
func (v *View) pin(g *GPUDevice) (err error) {
	if v.pinned == nil {
		defer annotate.Range("allocate pinned memory", nvtx.Cyan)()
		if v.pinned, err = g.Device.AllocHost(v.Bytes()); err == nil {
			copy(v.pinned.Bytes(), v.bytes())
		}
	}
	return err
}

func (v *View) free() (err error) {
	if v.Memory != nil {
		v.Memory.Free()
	}
	if v.pinned != nil {
		err = v.pinned.Free()
	}
	return err
}

// checked is how many elements of a result are compared after each run.
const checked = 64

// openArrays is a task with its inputs.
type openArrays struct {
	m     *Machine
	task  *Task
	shape Shape
	dtype string
	in    []View
	out   View
	at    []int     // elements that are checked
	want  []float64 // their values
	error []float64 // and how far a result may be from them

	shared bool // the machine frees the arrays
}

// open makes random inputs, and the reference of some elements. With shared, arrays are in memory that the machine has
// for all work: see [Machine.shared].
func (a *Arrays) open(ctx context.Context, m *Machine, t *Task, s Shape, dtype string, shared bool) (_ Opened, err error) {
	o := &openArrays{m: m, task: t, shape: s, dtype: dtype, shared: shared}
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
		v, err := memory(array, i+1)
		if err != nil {
			return nil, err
		}
		o.in = append(o.in, v)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
	if o.out, err = memory(out, 0); err != nil {
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

func (o *openArrays) Close() (err error) {
	if o.shared {
		return nil
	}
	for _, v := range append(o.in, o.out) {
		err = errors.Join(err, v.free())
	}
	return err
}

// Prepare makes a way ready.
func (o *openArrays) Prepare(ctx context.Context, w Way, device string, memory predict.Memory) (Ready, error) {
	if w.Device == GPU {
		g := o.m.gpu(device)
		if g == nil {
			return nil, fmt.Errorf("GPU %s is not open", device)
		}
		return o.prepareGPU(w, g.slot, memory)
	}
	run, close, err := o.task.Arrays.CPU[w.Variant](o.m.Team, o.shape, o.in, o.out)
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

func (r *hostRun) Run(context.Context) (t Times, err error) {
	r.spoil(r.out.Float32())
	defer annotate.Range("compute on the CPU", nvtx.Blue)()
	start := time.Now()
	err = r.run()
	t.Wall = microseconds(time.Since(start))
	t.Kernel = t.Wall
	return t, err
}

func (r *hostRun) Check(context.Context) error { return r.compare(r.out.Float32()) }

func (r *hostRun) Close() error {
	if r.close != nil {
		r.close()
	}
	return nil
}

// spoil overwrites the elements of a result that are compared, so that a run that computes nothing is found.
func (o *openArrays) spoil(result []float32) {
	for _, i := range o.at {
		result[i] = float32(math.NaN())
	}
}

// compare compares some elements of a result with the reference.
func (o *openArrays) compare(result []float32) error {
	for n, i := range o.at {
		if got := float64(result[i]); !(math.Abs(got-o.want[n]) <= o.error[n]) {
			return fmt.Errorf("element %d of %s of %s is %g; expected %g within %.2g", i, o.task.Name, o.shape, got, o.want[n], o.error[n])
		}
	}
	return nil
}

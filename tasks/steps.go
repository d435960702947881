package tasks

import (
	"context"
	"errors"
	"slices"
	"time"

	"gpt2scope/cpu"
	"gpt2scope/cuda"
)

// Step is one step of a program for a GPU, as one first writes it, and how long it took each time.
type Step struct {
	Name string
	Us   []float64
}

// Steps runs a task over float32 arrays step by step, so many times, on the machine's first GPU, or without one on the CPU,
// and times each step. All memory is allocated and freed each time. Results are compared with the reference.
func (m *Machine) Steps(ctx context.Context, t *Task, s Shape, times int) (steps []Step, err error) {
	for range times {
		if err := errors.Join(context.Cause(ctx), m.stepByStep(t, s, &steps)); err != nil {
			return nil, err
		}
	}
	return steps, nil
}

func (m *Machine) stepByStep(t *Task, s Shape, steps *[]Step) (err error) {
	step := func(name string, f func() error) {
		if err != nil {
			return
		}
		start := time.Now()
		err = f()
		us := microseconds(time.Since(start))
		i := slices.IndexFunc(*steps, func(s Step) bool { return s.Name == name })
		if i < 0 {
			i, *steps = len(*steps), append(*steps, Step{Name: name})
		}
		(*steps)[i].Us = append((*steps)[i].Us, us)
	}
	o := &arrays{m: m, task: t, shape: s, dtype: Float32}
	in, out := t.Arrays.Layout(s, Float32)
	var buffer *cuda.Buffer
	defer func() {
		err = errors.Join(err, o.Close())
		if buffer != nil {
			err = errors.Join(err, buffer.Free())
		}
	}()
	step("allocate on the host", func() error {
		for _, a := range append(slices.Clip(in), out) {
			memory, err := cpu.NewMemory(a.Bytes())
			if err != nil {
				return err
			}
			o.in = append(o.in, View{Array: a, Memory: memory})
		}
		o.in, o.out = o.in[:len(in)], o.in[len(in)]
		return nil
	})
	step("fill the inputs", func() error {
		for i, v := range o.in {
			v.fill(uint64(i + 1))
		}
		return nil
	})
	if err != nil {
		return err
	}
	o.refer()
	way := t.Ways[slices.IndexFunc(t.Ways, func(w Way) bool { return (w.Device == GPU) == (len(m.GPUs) > 0) && w.Variant == Tuned })]
	if len(m.GPUs) == 0 {
		run, end, err := way.CPU(m.Team, s, o.in, o.out)
		if err == nil {
			step("compute on the CPU", run)
		}
		if end != nil {
			err = errors.Join(err, end())
		}
		if err != nil {
			return err
		}
	} else if err = m.gpuSteps(way, o, &buffer, step); err != nil {
		return err
	}
	if err == nil {
		err = o.compare(o.out.Float32())
	}
	step("free", func() error {
		b, all := buffer, *o
		buffer, o.in, o.out = nil, nil, View{}
		if b != nil {
			return errors.Join(b.Free(), all.Close())
		}
		return all.Close()
	})
	return err
}

// gpuSteps are those between the inputs and the result on the host.
func (m *Machine) gpuSteps(way Way, o *arrays, buffer **cuda.Buffer, step func(string, func() error)) error {
	g := m.GPUs[0]
	stream, at := g.slot.work, o.offset(len(o.in))
	step("allocate on the GPU", func() (err error) {
		*buffer, err = g.Device.Alloc(o.deviceBytes())
		return err
	})
	if *buffer == nil {
		return nil
	}
	step("copy to the GPU", func() (err error) {
		for i, v := range o.in {
			err = errors.Join(err, (*buffer).Write(o.offset(i), v.bytes()))
		}
		return err
	})
	var in []cuda.Ptr
	for i := range o.in {
		in = append(in, (*buffer).Ptr()+cuda.Ptr(o.offset(i)))
	}
	launch, end, failed := way.GPU(g, o.shape, in, (*buffer).Ptr()+cuda.Ptr(at), o.dtype)
	if failed == nil {
		step("launch: until the call returns", func() error { return launch(stream) })
		step("wait for the kernel", stream.Synchronize)
		step("copy back", func() error { return (*buffer).Read(at, o.out.bytes()) })
	}
	if end != nil {
		failed = errors.Join(failed, end())
	}
	return failed
}

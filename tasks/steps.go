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
	free := func() (err error) {
		b, all := buffer, *o
		if buffer, o.in, o.out = nil, nil, (View{}); b != nil {
			err = b.Free()
		}
		return errors.Join(err, all.Close())
	}
	defer func() { err = errors.Join(err, free()) }()
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
			v.Fill(uint64(i + 1))
		}
		return nil
	})
	if err != nil {
		return err
	}
	o.refer()
	way := t.Ways[slices.IndexFunc(t.Ways, func(w Way) bool { return (w.Device == GPU) == (len(m.GPUs) > 0) && w.Variant == Tuned })]
	var end func() error
	if len(m.GPUs) == 0 {
		var run func() error
		run, end, err = way.CPU(m.Team, s, o.in, o.out)
		step("compute on the CPU", func() error { return run() })
	} else {
		g, at := m.GPUs[0], o.offset(len(o.in))
		step("allocate on the GPU", func() (err error) {
			buffer, err = g.Device.Alloc(o.deviceBytes())
			return err
		})
		step("copy to the GPU", func() (err error) {
			for i, v := range o.in {
				err = errors.Join(err, buffer.Write(o.offset(i), v.bytes()))
			}
			return err
		})
		if err != nil {
			return err
		}
		var from []cuda.Ptr
		for i := range o.in {
			from = append(from, buffer.Ptr()+cuda.Ptr(o.offset(i)))
		}
		var launch Launch
		launch, end, err = way.GPU(g, s, from, buffer.Ptr()+cuda.Ptr(at), Float32)
		step("launch: until the call returns", func() error { return launch(g.slot.work) })
		step("wait for the kernel", g.slot.work.Synchronize)
		step("copy back", func() error { return buffer.Read(at, o.out.bytes()) })
	}
	if end != nil {
		err = errors.Join(err, end())
	}
	if err == nil {
		err = o.compare(o.out.Float32())
	}
	step("free", free)
	return err
}

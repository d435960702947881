package tasks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"gpt2scope/predict"
)

// Once is what a process that has just started tells of its one run.
type Once struct {
	Submit *float64 `json:"submit_us"` // null if it is not known, as below
	H2D    *float64 `json:"h2d_us"`
	Kernel *float64 `json:"kernel_us"`
	D2H    *float64 `json:"d2h_us"`
	Aside  float64  `json:"aside_us"` // that inputs, their reference and the check took: not part of the work
}

// Once does the tuned way of a task once, and checks the result.
func (m *Machine) Once(ctx context.Context, t *Task, s Shape, dtype, device string, memory predict.Memory) (o Once, err error) {
	i := slices.IndexFunc(t.Ways, func(w Way) bool { return w.Device == kindOf(device) && w.Variant == Tuned })
	if i < 0 || !slices.Contains(m.Devices(), device) {
		return o, fmt.Errorf("device %s does not do %s", device, t.Name)
	}
	m.once = true
	began := time.Now()
	inputs, err := t.Open(ctx, m, s, dtype)
	if err != nil {
		return o, err
	}
	defer func() { err = errors.Join(err, inputs.Close()) }()
	aside := time.Since(began)
	r, err := inputs.Prepare(ctx, t.Ways[i], device, memory)
	if err != nil {
		return o, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	times, err := r.Run(ctx)
	if err != nil {
		return o, err
	}
	began = time.Now()
	err = r.Check(ctx)
	o = Once{orNil(times.Submit), orNil(times.H2D), orNil(times.Kernel), orNil(times.D2H), microseconds(aside + time.Since(began))}
	return o, err
}

// Again makes the tuned way of a task ready, for runs whose results do not count. The result is not checked.
func (m *Machine) Again(ctx context.Context, t *Task, s Shape, dtype, device string, memory predict.Memory) (run func(context.Context) (Times, error), end func() error, err error) {
	way, ok := t.tuned(kindOf(device), s, dtype)
	if !ok {
		return nil, nil, fmt.Errorf("device %s does not do %s of %s", device, t.Name, s)
	}
	inputs, err := t.Open(ctx, m, s, dtype)
	if err != nil {
		return nil, nil, err
	}
	r, err := inputs.Prepare(ctx, way, device, memory)
	if err != nil {
		return nil, nil, errors.Join(err, inputs.Close())
	}
	return r.Run, func() error { return errors.Join(r.Close(), inputs.Close()) }, nil
}

// orNil returns nil for NaN, which JSON cannot hold.
func orNil(us float64) *float64 {
	if us != us {
		return nil
	}
	return &us
}

// Times returns the times of a process that took so many microseconds in all.
func (o Once) Times(wall float64) Times {
	t := unknown()
	for to, from := range map[*float64]*float64{&t.Submit: o.Submit, &t.H2D: o.H2D, &t.Kernel: o.Kernel, &t.D2H: o.D2H} {
		if from != nil {
			*to = *from
		}
	}
	t.Wall = max(0, wall-o.Aside)
	return t
}

package predict

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"gpt2scope/internal/stats"
)

// Medians returns one row for each shape that was measured warm, with the medians of its repeats, in a fixed order. It
// returns an error if a row holds a value that no measurement gives.
func Medians(rows []Row) ([]Row, error) {
	repeats := map[Case][]Row{}
	for i := range rows {
		r := &rows[i]
		if err := r.check(); err != nil {
			return nil, fmt.Errorf("row %d (%s %s on %s): %w", i+1, r.Task, r.Shape, r.Device, err)
		}
		if !r.Cold {
			repeats[r.Case()] = append(repeats[r.Case()], *r)
		}
	}
	out := make([]Row, 0, len(repeats))
	for _, all := range repeats {
		r := all[0]
		for _, field := range []func(*Row) *float64{
			func(r *Row) *float64 { return &r.Us }, func(r *Row) *float64 { return &r.H2DUs },
			func(r *Row) *float64 { return &r.D2HUs }, func(r *Row) *float64 { return &r.FloorUs },
		} {
			values := make([]float64, len(all))
			for i := range all {
				values[i] = *field(&all[i])
			}
			*field(&r) = stats.MedianOf(values)
		}
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b Row) int {
		return cmp.Or(cmp.Compare(a.Machine, b.Machine), cmp.Compare(a.Device, b.Device), cmp.Compare(a.Task, b.Task),
			cmp.Compare(a.DType, b.DType), cmp.Compare(a.Shape, b.Shape), cmp.Compare(a.Memory, b.Memory))
	})
	return out, nil
}

// check finds values that no measurement gives.
func (r *Row) check() error {
	for _, v := range []float64{r.Us, r.H2DUs, r.D2HUs} {
		if !(v >= 0 && v < maxNumber) {
			return fmt.Errorf("%g us, which no measurement gives", v)
		}
	}
	switch {
	case r.Us == 0:
		return errors.New("it took no time")
	case r.Task == "" || r.Machine == "":
		return errors.New("it lacks a task or a machine")
	case kindOf(r.Device) < 0:
		return fmt.Errorf("device %q is neither cpu nor cuda:N", r.Device)
	}
	return r.Work.check()
}

// Fit fits a model to measured times. Rows of one shape are repeats, of which the median counts.
func Fit(ctx context.Context, rows []Row) (*Model, error) {
	shapes, err := Medians(rows)
	if err != nil {
		return nil, err
	}
	if len(shapes) == 0 {
		return nil, errors.New("there is nothing to fit: no measurement was given")
	}
	m, err := fitLaws(ctx, shapes)
	if err != nil {
		return nil, err
	}
	m.Rows = len(rows)
	return m, m.setSpreads(ctx)
}

// How strongly a law is pulled to that of all tasks, in measurements, and that one to the floor.
const (
	lawPull   = 0.5
	floorPull = 1e-3
)

// fitLaws returns a model without intervals.
func fitLaws(ctx context.Context, shapes []Row) (*Model, error) {
	m := &Model{Version: modelVersion, Measured: shapes}
	for _, own := range groups(shapes, func(r *Row) string { return Kind(r.Device) }) {
		kind := Kind(own[0].Device)
		all, err := fitLaw(equations(own, byTask), Law{Floor: 1.3}, floorPull)
		if err != nil {
			return nil, fmt.Errorf("fitting %s: %w", kind, err)
		}
		m.Laws = append(m.Laws, TaskLaw{Device: kind, Law: all})
		for _, of := range groups(own, func(r *Row) string { return r.Task + "\x00" + r.DType }) {
			if err := context.Cause(ctx); err != nil {
				return nil, err
			}
			law, err := fitLaw(equations(of, byDevice), all, lawPull)
			if err != nil {
				return nil, fmt.Errorf("fitting %s on %s: %w", of[0].Task, kind, err)
			}
			m.Laws = append(m.Laws, TaskLaw{Device: kind, Task: of[0].Task, DType: of[0].DType, Law: law})
		}
	}
	slices.SortStableFunc(m.Laws, func(a, b TaskLaw) int {
		return cmp.Or(cmp.Compare(a.Device, b.Device), cmp.Compare(a.Task, b.Task), cmp.Compare(a.DType, b.DType))
	})
	return m, m.connect()
}

// setSpreads sets the intervals, by the errors of predictions of what was left out: of shapes that were measured on the
// device, of tasks for that of other tasks, and of processors.
func (m *Model) setSpreads(ctx context.Context) error {
	processors, err := leaveOut(ctx, m.Measured, func(r *Row) string { return cmp.Or(r.Processor, r.Machine) })
	if err != nil {
		return err
	}
	tasks, err := leaveOut(ctx, m.Measured, func(r *Row) string { return r.Task })
	if err != nil {
		return err
	}
	for i := range m.Laws {
		l := &m.Laws[i]
		var known, unknown []float64
		for j := range m.Measured {
			r := &m.Measured[j]
			switch {
			case Kind(r.Device) != l.Device:
			case l.Task == "":
				unknown = append(unknown, tasks[j])
			case r.Task == l.Task && r.DType == l.DType:
				unknown = append(unknown, processors[j])
			}
		}
		for at, all := range m.near {
			if l.Task != "" && l.Task == at.task && l.DType == at.dtype && l.Device == Kind(m.devices[at.device].Device) {
				for j, n := range all {
					mean, _ := correction(n.at, all, j)
					known = append(known, math.Abs(n.residual-mean))
				}
			}
		}
		l.Elsewhere = spread(unknown, math.Ln2)
		l.Spread = spread(known, l.Elsewhere)
	}
	return nil
}

// leaveOut returns the errors of measurements in logarithm, each predicted by a fit that knows nothing of its group;
// NaN where no such work was left.
func leaveOut(ctx context.Context, rows []Row, group func(*Row) string) ([]float64, error) {
	const folds = 16 // into which groups are divided at most
	part := map[string]int{}
	for i := range rows {
		if name := group(&rows[i]); part[name] == 0 {
			part[name] = 1 + len(part)%folds
		}
	}
	out := make([]float64, len(rows))
	for k := range min(len(part), folds) {
		m, err := fitLaws(ctx, slices.DeleteFunc(slices.Clone(rows), func(r Row) bool { return part[group(&r)] == k+1 }))
		if err != nil {
			return nil, err
		}
		for i := range rows {
			if r := &rows[i]; part[group(r)] == k+1 {
				out[i] = math.NaN()
				d, _ := m.Device(r)
				if e := m.Predict(d, &r.Work); e.High < math.MaxFloat64 {
					out[i] = math.Abs(math.Log(r.Us / e.Us))
				}
			}
		}
	}
	return out, nil
}

// spread returns the error that nine of ten future ones do not exceed (Vovk, Gammerman and Shafer, "Algorithmic
// learning in a random world", 2005). If errors are too few for that, it is the largest, but at least few.
func spread(errors []float64, few float64) float64 {
	const coverage, least, most = 0.9, 0.01, 20
	errors = slices.DeleteFunc(errors, math.IsNaN)
	if len(errors) == 0 {
		return few
	}
	slices.Sort(errors)
	at := int(math.Ceil(coverage*float64(len(errors)+1))) - 1
	if at >= len(errors) {
		return min(max(errors[len(errors)-1], few), most)
	}
	return min(max(errors[at], least), most)
}

func byDevice(r *Row) string { return r.Machine + "\x00" + r.Device }
func byTask(r *Row) string   { return byDevice(r) + "\x00" + r.Task }

// groups divides rows by a name, in the order in which names first stand.
func groups(rows []Row, name func(*Row) string) (all [][]Row) {
	at := map[string]int{}
	for i := range rows {
		k, ok := at[name(&rows[i])]
		if !ok {
			k = len(all)
			at[name(&rows[i])], all = k, append(all, nil)
		}
		all[k] = append(all[k], rows[i])
	}
	return all
}

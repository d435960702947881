package predict

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"slices"

	"gpt2scope/internal/stats"
)

// Medians returns one row for each shape, with the medians of its repeats, in a fixed order. It returns an error if a
// row holds a value that no measurement gives.
func Medians(rows []Row) ([]Row, error) {
	repeats := map[Case][]Row{}
	for i := range rows {
		r := &rows[i]
		if err := r.check(); err != nil {
			return nil, fmt.Errorf("row %d (%s %s on %s): %w", i+1, r.Task, r.Shape, r.Device, err)
		}
		repeats[r.Case()] = append(repeats[r.Case()], *r)
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
			cmp.Compare(a.DType, b.DType), cmp.Compare(a.Shape, b.Shape), cmp.Compare(a.Memory, b.Memory), bit(a.Cold)-bit(b.Cold))
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
	kind := Kind(r.Device)
	switch {
	case r.Us == 0:
		return errors.New("it took no time")
	case r.Task == "" || r.Machine == "":
		return errors.New("it lacks a task or a machine")
	case kind != "cpu" && kind != "cuda":
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
	m := &Model{Version: modelVersion, SHA256: Hash(shapes), Rows: len(rows), Shapes: len(shapes)}
	for _, kind := range []string{"cpu", "cuda"} {
		own := slices.DeleteFunc(slices.Clone(shapes), func(r Row) bool { return Kind(r.Device) != kind })
		if len(own) == 0 {
			continue
		}
		n := &m.GPU
		if kind == "cpu" {
			n = &m.CPU
		}
		devices, err := fitKind(ctx, kind, own, n)
		if err != nil {
			return nil, fmt.Errorf("fitting %s: %w", kind, err)
		}
		m.Devices = append(m.Devices, devices...)
	}
	return m, m.connect()
}

// fitKind fits the devices of a kind, and says how far predictions are off.
func fitKind(ctx context.Context, kind string, rows []Row, n *Neighbourhood) ([]Device, error) {
	m, err := fitLaws(ctx, kind, rows, n)
	if err != nil {
		return nil, err
	}
	if *n, err = m.tune(ctx); err != nil {
		return nil, err
	}
	if err := m.connect(); err != nil {
		return nil, err
	}
	left := errorsOf{rows: rows, shape: m.leaveShapesOut(n)}
	if left.machine, err = leaveOut(ctx, kind, rows, n, byDevice); err != nil {
		return nil, err
	}
	best := math.Inf(1)
	for _, part := range []float64{0, 0.5, 1} {
		try := *n
		try.Elsewhere = part
		errors, err := leaveOut(ctx, kind, rows, &try, processor)
		if err != nil {
			return nil, err
		}
		if e := meanSize(errors); e < best || left.processor == nil {
			best, left.processor, *n = e, errors, try
		}
	}
	if left.task, err = leaveOut(ctx, kind, rows, n, task); err != nil {
		return nil, err
	}
	for i := range m.Devices {
		m.Devices[i].setSpreads(&left, &m.Devices[0])
	}
	return m.Devices, nil
}

// fitLaws returns a model of a kind of device without intervals.
func fitLaws(ctx context.Context, kind string, rows []Row, n *Neighbourhood) (*Model, error) {
	m := &Model{Version: modelVersion, CPU: *n, GPU: *n}
	all := Device{Device: kind}
	if err := all.fit(rows, nil); err != nil {
		return nil, err
	}
	m.Devices = append(m.Devices, all)
	for _, own := range groups(rows, processor) {
		if own[0].Processor == "" {
			continue
		}
		d := Device{Device: kind, Processor: own[0].Processor}
		if err := d.fit(own, &all); err != nil {
			return nil, err
		}
		m.Devices = append(m.Devices, d)
	}
	for _, own := range groups(rows, byDevice) {
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
		d := Device{Machine: own[0].Machine, Processor: own[0].Processor, Threads: own[0].Threads, Device: own[0].Device}
		if err := d.fit(own, &all); err != nil {
			return nil, err
		}
		for i := range own {
			c := d.cell(own[i].Task, own[i].DType)
			c.Measured = append(c.Measured, Measured{own[i].Work, own[i].Us})
		}
		m.Devices = append(m.Devices, d)
	}
	return m, m.connect()
}

// errorsOf are the errors of predictions of rows, in logarithm, by what was left out of the prediction; NaN where
// nothing was predicted.
type errorsOf struct {
	rows                            []Row
	shape, task, machine, processor []float64
}

// folds is into how many parts groups are divided at most to be left out.
const folds = 16

// leaveOut returns the errors of rows, each predicted by a fit that knows nothing of its group.
func leaveOut(
	ctx context.Context, kind string, rows []Row, n *Neighbourhood, group func(*Row) string,
) ([]float64, error) {
	part := map[string]int{}
	for i := range rows {
		if name := group(&rows[i]); part[name] == 0 {
			part[name] = 1 + len(part)%folds
		}
	}
	out := make([]float64, len(rows))
	for k := range min(len(part), folds) {
		others := slices.DeleteFunc(slices.Clone(rows), func(r Row) bool { return part[group(&r)] == k+1 })
		var m *Model
		if len(others) > 0 {
			var err error
			if m, err = fitLaws(ctx, kind, others, n); err != nil {
				return nil, err
			}
		}
		for i := range rows {
			if r := &rows[i]; part[group(r)] == k+1 {
				out[i] = math.NaN()
				if m != nil {
					d, _ := m.Device(r)
					out[i] = math.Log(r.Us / m.Predict(d, &r.Work).Us)
				}
			}
		}
	}
	return out, nil
}

// setSpreads sets how far predictions of a device are off: on a measured device, of shapes that were left out, and of
// tasks; on another, of devices.
func (d *Device) setSpreads(left *errorsOf, kind *Device) {
	own, errors := func(r *Row) bool { return true }, left.processor
	switch {
	case d.Machine != "":
		own, errors = func(r *Row) bool { return r.Machine == d.Machine && r.Device == d.Device }, left.shape
	case d.Processor != "":
		own, errors = func(r *Row) bool { return r.Processor == d.Processor }, left.machine
	}
	unknown := Cell{Spread: math.Ln2, ColdSpread: math.Ln2}
	near := &kind.Other
	if d == kind {
		near = &unknown
	}
	warm, cold := left.spreads(errors, near, own)
	d.Other.Spread, d.Other.ColdSpread = left.spreads(left.task, near, own)
	if d.Machine == "" {
		d.Other.Spread, d.Other.ColdSpread = max(d.Other.Spread, warm), max(d.Other.ColdSpread, cold)
	}
	for i := range d.Tasks {
		t := &d.Tasks[i]
		if d != kind {
			near = kind.cell(t.Task, t.DType)
		}
		of := func(r *Row) bool { return own(r) && r.Task == t.Task && r.DType == t.DType }
		t.Spread, t.ColdSpread = left.spreads(errors, near, of)
	}
}

// spreads returns half the widths of the intervals that hold nine of ten errors of some rows, of warm runs and of cold
// starts.
func (left *errorsOf) spreads(errors []float64, few *Cell, of func(*Row) bool) (warm, cold float64) {
	var all [2][]float64
	for i, e := range errors {
		if r := &left.rows[i]; !math.IsNaN(e) && of(r) {
			all[bit(r.Cold)] = append(all[bit(r.Cold)], math.Abs(e))
		}
	}
	return spread(all[0], few.Spread), spread(all[1], few.ColdSpread)
}

// spread returns the error that nine of ten future ones do not exceed (Vovk, Gammerman and Shafer, "Algorithmic
// learning in a random world", 2005). If errors are too few for that, it is the largest, but at least few.
func spread(errors []float64, few float64) float64 {
	const coverage, least, most = 0.9, 0.01, 20
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

func meanSize(errors []float64) float64 {
	sum, n := 0.0, 0
	for _, e := range errors {
		if !math.IsNaN(e) {
			sum, n = sum+math.Abs(e), n+1
		}
	}
	return sum / float64(max(n, 1))
}

func task(r *Row) string      { return r.Task }
func processor(r *Row) string { return cmp.Or(r.Processor, r.Machine) }
func byDevice(r *Row) string  { return r.Machine + "\x00" + r.Device }
func byTask(r *Row) string    { return byDevice(r) + "\x00" + r.Task }

// How strongly a law is pulled to the one before it, in measurements, and the first law.
const (
	lawPull   = 0.5
	firstPull = 1e-3
)

var firstLaw = Law{Floor: 1.3}

// fit fits the laws of a device, each near that of the same task on all devices of the kind, if it has one.
func (d *Device) fit(rows []Row, kind *Device) (err error) {
	near, pull := firstLaw, firstPull
	if kind != nil {
		near, pull = kind.Other.Law, lawPull
	}
	if d.Other.Law, err = fitLaw(alike(rows, byTask), near, pull); err != nil {
		return err
	}
	for _, own := range groups(rows, func(r *Row) string { return r.Task + "\x00" + r.DType }) {
		t := Task{Task: own[0].Task, DType: own[0].DType}
		near := &d.Other
		if kind != nil {
			near = kind.cell(t.Task, t.DType)
		}
		if t.Law, err = fitLaw(alike(own, byDevice), near.Law, lawPull); err != nil {
			return err
		}
		d.Tasks = append(d.Tasks, t)
	}
	return nil
}

// alike returns the equations of rows with weights by which each group counts alike.
func alike(rows []Row, group func(*Row) string) (all []equation) {
	parts := groups(rows, group)
	for _, own := range parts {
		for i := range own {
			all = append(all, own[i].equations(float64(len(rows))/float64(len(parts)*len(own)))...)
		}
	}
	return all
}

// tune chooses a neighbourhood by the errors of measurements, each predicted by the others of its device.
func (m *Model) tune(ctx context.Context) (Neighbourhood, error) {
	best := math.Inf(1)
	n := Neighbourhood{Elsewhere: 1}
	for i := range n.Scale {
		n.Scale[i] = 1
	}
	try := func(next Neighbourhood) {
		if e := meanSize(m.leaveShapesOut(&next)); e < best {
			best, n = e, next
		}
	}
	try(n)
	for range 2 {
		for i := range features {
			now := n
			for _, factor := range []float64{0, 0.25, 0.5, 2, 4} {
				next := now
				if next.Scale[i] == 0 {
					next.Scale[i] = 1
				}
				next.Scale[i] *= factor
				try(next)
			}
			if err := context.Cause(ctx); err != nil {
				return n, err
			}
		}
	}
	return n, nil
}

// leaveShapesOut returns the errors of the measurements of all devices in their order, each predicted by the others of
// its device; of cold starts, by all that are warm.
func (m *Model) leaveShapesOut(n *Neighbourhood) (errors []float64) {
	for i := range m.Devices {
		for j := range m.Devices[i].Tasks {
			t := &m.Devices[i].Tasks[j]
			c := Cell{Law: t.Law, part: 1}
			for k := range t.Measured {
				c.add(n, &t.Measured[k])
			}
			at := [memories]int{}
			for k := range t.Measured {
				w, without := &t.Measured[k].Work, -1
				if !w.Cold {
					without = at[w.Memory]
					at[w.Memory]++
				}
				errors = append(errors, math.Log(t.Measured[k].Us/c.time(n, w, without)))
			}
		}
	}
	return errors
}

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

// Hash names the data of a fit, which are medians.
func Hash(shapes []Row) string {
	h := sha256.New()
	for _, r := range shapes {
		fmt.Fprintf(h, "%q %q %q %+v %g %g %g\n", r.Machine, r.Device, r.Shape, r.Work, r.Us, r.H2DUs, r.D2HUs)
	}
	return hex.EncodeToString(h.Sum(nil))
}

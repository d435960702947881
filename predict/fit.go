package predict

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"gpt2scope/internal/stats"
)

// op names what a law is for; the zero value is for all tasks.
type op struct{ task, dtype string }

// Kind returns the kind of a device: "cuda" for "cuda:0".
func Kind(device string) string {
	kind, _, _ := strings.Cut(device, ":")
	return kind
}

// Medians returns one row for each shape, with the medians of its repeats, in a fixed order.
// It returns an error if a row holds a value that no measurement gives.
func Medians(rows []Row) ([]Row, error) {
	if err := check(rows); err != nil {
		return nil, err
	}
	repeats := map[Case][]Row{}
	var keys []Case
	for _, r := range rows {
		k := r.Case()
		if repeats[k] == nil {
			keys = append(keys, k)
		}
		repeats[k] = append(repeats[k], r)
	}
	slices.SortFunc(keys, func(a, b Case) int {
		return cmp.Or(cmp.Compare(a.Machine, b.Machine), cmp.Compare(a.Device, b.Device), cmp.Compare(a.Task, b.Task), cmp.Compare(a.DType, b.DType),
			cmp.Compare(a.Shape, b.Shape), cmp.Compare(a.Memory, b.Memory), boolInt(a.Cold)-boolInt(b.Cold))
	})
	out := make([]Row, len(keys))
	for i, k := range keys {
		all := repeats[k]
		out[i] = all[0]
		out[i].Us = medianOf(all, func(r Row) float64 { return r.Us })
		out[i].H2DUs = medianOf(all, func(r Row) float64 { return r.H2DUs })
		out[i].D2HUs = medianOf(all, func(r Row) float64 { return r.D2HUs })
		out[i].FloorUs = medianOf(all, func(r Row) float64 { return r.FloorUs })
	}
	return out, nil
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

func medianOf(rows []Row, value func(Row) float64) float64 {
	all := make([]float64, len(rows))
	for i, r := range rows {
		all[i] = value(r)
	}
	slices.Sort(all)
	return stats.Median(all)
}

// check finds values that no measurement gives.
func check(rows []Row) error {
	for i, r := range rows {
		for _, v := range []float64{r.FLOPs, r.Bytes, r.BytesIn, r.BytesOut, r.Steps, r.Rows, r.FloorUs, r.H2DUs, r.D2HUs, r.Us} {
			if !(v >= 0 && v < 1e18) {
				return fmt.Errorf("row %d (%s %s on %s) holds %g, which no measurement gives", i+1, r.Task, r.Shape, r.Device, v)
			}
		}
		switch {
		case r.Us == 0:
			return fmt.Errorf("row %d (%s %s on %s) took no time", i+1, r.Task, r.Shape, r.Device)
		case r.Task == "" || r.Device == "":
			return fmt.Errorf("row %d (%s %s on %s) lacks a task or a device", i+1, r.Task, r.Shape, r.Device)
		case r.Memory >= memories:
			return fmt.Errorf("row %d (%s %s on %s) has data in %s", i+1, r.Task, r.Shape, r.Device, r.Memory)
		}
	}
	return nil
}

// firstLaw is what a law is pulled to if nothing was measured: near the floor.
var firstLaw = Law{Floor: 1.3}

// options say how a cell is fitted.
type options struct {
	group, part func(*Row) string // each group of rows counts alike; parts are left out to choose and to find the spread
	near        []*Cell           // cells of levels before, of which one is pulled to
	local       bool              // fit points
}

// choice is what is chosen by errors on rows that were left out.
type choice struct {
	near         *Cell
	scale, ridge float64
	errors       []float64 // in logarithm
}

// fitCell fits a cell to rows, pulled to a cell of a level before. Which level, how strong the correction and that of the points is, and
// the spread come from parts that were left out.
func fitCell(rows []Row, o options) (Cell, error) {
	warm := filter(rows, func(r *Row) bool { return !r.Cold })
	count := map[string]int{}
	for i := range warm {
		count[o.group(&warm[i])]++
	}
	weights := make([]float64, len(warm))
	for i := range warm {
		weights[i] = float64(len(warm)) / float64(len(count)*count[o.group(&warm[i])])
	}
	near := o.near[0]
	c := Cell{Law: near.Law, correction: near.correction, Spread: near.Spread, N: len(rows)}
	if len(warm) > 0 {
		best, err := choose(warm, weights, o)
		if err != nil {
			return c, err
		}
		near = best.near
		if c, err = fitParts(warm, weights, best); err != nil {
			return c, err
		}
		c.N, c.Spread = len(rows), spread(best.errors)
		if len(warm) < fewRows { // too few errors for a quantile: no narrower than the level before
			c.Spread = max(c.Spread, o.near[0].Spread)
		}
	}
	c.start(filter(rows, func(r *Row) bool { return r.Cold }), near)
	c.domain(rows)
	return c, nil
}

// fitParts fits law, correction and points.
func fitParts(rows []Row, weights []float64, how choice) (c Cell, err error) {
	if c.Law, err = fitLaw(rows, weights, how.near.Law); err != nil {
		return c, err
	}
	if c.correction, err = fitCorrection(rows, weights, &c.Law, &how.near.correction, how.scale); err != nil {
		return c, err
	}
	c.local = fitLocal(rows, &c, how.ridge)
	return c, nil
}

// start sets what a cold start costs: the median of what it took beyond the time of a warm run.
func (c *Cell) start(cold []Row, near *Cell) {
	c.Law.ColdUs, c.ColdSpread = near.Law.ColdUs, max(near.ColdSpread, unknownStart)
	if len(cold) == 0 {
		return
	}
	c.Law.ColdUs = 0
	beyond := make([]float64, len(cold))
	for i := range cold {
		beyond[i] = max(0, cold[i].Us-c.time(&cold[i].Work))
	}
	slices.Sort(beyond)
	c.Law.ColdUs = stats.Median(beyond)
	if c.ColdSpread = spread(misses(cold, func(op) *Cell { return c })); len(cold) < fewStarts {
		c.ColdSpread = max(c.ColdSpread, unknownStart)
	}
}

// unknownStart is the spread of cold starts of which few were measured: a factor of 1.5.
const (
	unknownStart = 0.4
	fewStarts    = 4
)

// size is the mean of absolute errors in logarithm, of which none counts as more than a factor of e.
func size(errors []float64) float64 {
	sum := 0.0
	for _, e := range errors {
		sum += min(math.Abs(e), 1)
	}
	return sum / float64(len(errors))
}

// choose returns the level, the scale of the penalties of the correction and the ridge of the points with the least
// errors on rows that were left out of the fit, some parts at a time.
func choose(rows []Row, weights []float64, o options) (best choice, err error) {
	part, next := map[string]int{}, 0
	for i := range rows {
		if name := o.part(&rows[i]); part[name] == 0 {
			part[name] = 1 + next%parts
			next++
		}
	}
	least, ridges := math.Inf(1), ridges
	if !o.local {
		ridges = ridges[len(ridges)-1:]
	}
	for _, near := range o.near {
		errors := make([][]float64, len(scales)*len(ridges))
		for k := range min(parts, next) {
			var fitted, others []Row
			var w []float64
			for i := range rows {
				if part[o.part(&rows[i])] == k+1 {
					others = append(others, rows[i])
				} else {
					fitted, w = append(fitted, rows[i]), append(w, weights[i])
				}
			}
			c := Cell{Law: near.Law}
			if len(fitted) > 0 {
				if c.Law, err = fitLaw(fitted, w, near.Law); err != nil {
					return best, err
				}
			}
			for i, scale := range scales {
				c.local = local{}
				if c.correction, err = fitCorrection(fitted, w, &c.Law, &near.correction, scale); err != nil {
					return best, err
				}
				for j, ridge := range ridges {
					c.local = local{}
					c.local = fitLocal(fitted, &c, ridge)
					at := &errors[i*len(ridges)+j]
					*at = append(*at, misses(others, func(op) *Cell { return &c })...)
				}
			}
		}
		for i, of := range errors {
			if e := size(of); e < least {
				least, best = e, choice{near, scales[i/len(ridges)], ridges[i%len(ridges)], of}
			}
		}
	}
	return best, nil
}

const (
	parts     = 5 // in which shapes are left out, for the spread
	fewRows   = 10
	leastHalf = 0.01 // of intervals, in logarithm
	coverage  = 0.9  // of intervals
)

// spread returns the half width of the interval that holds nine of ten errors.
func spread(errors []float64) float64 {
	if len(errors) == 0 {
		return math.Ln2
	}
	all := make([]float64, len(errors))
	for i, e := range errors {
		all[i] = math.Abs(e)
	}
	slices.Sort(all)
	// Nine of ten future errors lie below this one of n (Vovk, Gammerman and Shafer, "Algorithmic learning in a
	// random world", 2005); if there are too few, the largest has to do.
	at := int(math.Ceil(coverage*float64(len(all)+1))) - 1
	return min(max(all[min(at, len(all)-1)], leastHalf), 20)
}

// Fit fits a model to measured times. Rows of one shape are repeats, of which the median counts.
func Fit(rows []Row) (*Model, error) {
	shapes, err := Medians(rows)
	if err != nil {
		return nil, err
	}
	if len(shapes) == 0 {
		return nil, errors.New("there is nothing to fit: no measurement was given")
	}
	m := &Model{Version: modelVersion, SHA256: hash(shapes), Rows: len(rows), Shapes: len(shapes)}
	byKind := map[string][]Row{}
	for _, r := range shapes {
		byKind[Kind(r.Device)] = append(byKind[Kind(r.Device)], r)
	}
	for _, kind := range []string{"cpu", "cuda"} {
		devices, err := fitKind(kind, byKind[kind])
		if err != nil {
			return nil, fmt.Errorf("fitting %s: %w", kind, err)
		}
		m.Devices = append(m.Devices, devices...)
		delete(byKind, kind)
	}
	for kind := range byKind {
		return nil, fmt.Errorf("device %q is neither cpu nor cuda:N", kind)
	}
	return m, m.compile()
}

func byTask(r *Row) string    { return r.Machine + "\x00" + r.Device + "\x00" + r.Task }
func dtype(r *Row) string     { return r.DType }
func task(r *Row) string      { return r.Task }
func shape(r *Row) string     { return r.Shape }
func byMachine(r *Row) string { return r.Machine + "\x00" + r.Device }

// fitKind fits the devices of a kind: first the kind itself, which stands for devices that were
// never measured, then each device.
func fitKind(kind string, rows []Row) ([]Device, error) {
	if len(rows) == 0 {
		return nil, nil
	}
	type name struct{ machine, device string }
	var names []name
	for _, r := range rows {
		if n := (name{r.Machine, r.Device}); !slices.Contains(names, n) {
			names = append(names, n)
		}
	}
	levels, err := fitDevice(rows, &first, func(op) *Cell { return nil }, len(names) == 1)
	if err != nil {
		return nil, err
	}
	levels.Device = kind
	out := []Device{levels}
	general := &out[0]
	var unseen []float64 // errors on devices that were left out
	if len(names) == 1 {
		d := levels
		d.Tasks = slices.Clone(d.Tasks)
		d.Machine, d.Device, d.Key = names[0].machine, names[0].device, rows[0].Key
		out = append(out, d)
		names = nil
		for i := range general.Tasks { // points are of one device
			general.Tasks[i].local = local{}
		}
	}
	for _, n := range names {
		own := filter(rows, func(r *Row) bool { return r.Machine == n.machine && r.Device == n.device })
		others := filter(rows, func(r *Row) bool { return r.Machine != n.machine || r.Device != n.device })
		d, err := fitDevice(own, &general.Other, general.cell, true)
		if err != nil {
			return nil, err
		}
		d.Machine, d.Device, d.Key = n.machine, n.device, own[0].Key
		out = append(out, d)
		if len(others) > 0 {
			without, err := fitDevice(others, &first, func(op) *Cell { return nil }, false)
			if err != nil {
				return nil, err
			}
			unseen = append(unseen, misses(own, without.best)...)
		}
	}
	general = &out[0]
	if len(unseen) > 0 {
		general.Other.Spread = max(general.Other.Spread, spread(unseen))
		for i := range general.Tasks {
			general.Tasks[i].Spread = max(general.Tasks[i].Spread, spread(unseen))
		}
	} else { // nothing says how devices of this kind differ
		general.Other.Spread = max(general.Other.Spread, math.Ln2)
		for i := range general.Tasks {
			general.Tasks[i].Spread = max(general.Tasks[i].Spread, math.Ln2)
		}
	}
	return out, nil
}

func filter(rows []Row, keep func(*Row) bool) []Row {
	var out []Row
	for i := range rows {
		if keep(&rows[i]) {
			out = append(out, rows[i])
		}
	}
	return out
}

// distinct lists the values of rows, in order.
func distinct(rows []Row, value func(*Row) string) []string {
	var out []string
	for i := range rows {
		if v := value(&rows[i]); !slices.Contains(out, v) {
			out = append(out, v)
		}
	}
	return out
}

// misses returns the errors of predictions, in logarithm.
func misses(rows []Row, cell func(op) *Cell) []float64 {
	out := make([]float64, len(rows))
	for i := range rows {
		out[i] = math.Log(rows[i].Us / cell(op{rows[i].Task, rows[i].DType}).time(&rows[i].Work))
	}
	return out
}

// first is the level before all.
var first = Cell{Law: firstLaw, Spread: math.Ln2}

// fitDevice fits the cell for all tasks, near that of the kind, and one for each task, near that of the
// task on the kind, if there is one, or near what is nearer. Cells of a task in a type get points if the rows are of one device.
func fitDevice(rows []Row, near *Cell, ofKind func(op) *Cell, points bool) (d Device, err error) {
	if d.Other, err = fitCell(rows, options{group: byTask, part: task, near: []*Cell{near}}); err != nil {
		return d, err
	}
	var unseen []float64 // errors on tasks that were left out
	for _, name := range distinct(rows, task) {
		own := filter(rows, func(r *Row) bool { return r.Task == name })
		others := filter(rows, func(r *Row) bool { return r.Task != name })
		levels := []*Cell{&d.Other, &first}
		if parent := ofKind(op{name, ""}); parent != nil {
			levels = []*Cell{parent, &d.Other, &first}
		}
		of := options{group: byMachine, part: shape, near: levels}
		all, err := fitCell(own, of)
		if err != nil {
			return d, err
		}
		d.Tasks = append(d.Tasks, Task{Task: name, Cell: all})
		types := distinct(own, dtype)
		if of.local = points; len(types) > 1 {
			of.near = []*Cell{&all}
		}
		for _, dtype := range types {
			c, err := fitCell(filter(own, func(r *Row) bool { return r.DType == dtype }), of)
			if err != nil {
				return d, err
			}
			d.Tasks = append(d.Tasks, Task{Task: name, DType: dtype, Cell: c})
		}
		if len(others) > 0 {
			without, err := fitCell(others, options{group: byTask, part: task, near: []*Cell{near}})
			if err != nil {
				return d, err
			}
			unseen = append(unseen, misses(own, func(op) *Cell { return &without })...)
		}
	}
	d.Other.Spread = max(near.Spread, leastHalf)
	if len(unseen) > 0 {
		d.Other.Spread = spread(unseen)
	}
	for _, t := range d.Tasks { // what was not measured is no better known than what was
		d.Other.Spread = max(d.Other.Spread, t.Spread)
	}
	return d, nil
}

// hash names the data of a fit.
func hash(shapes []Row) string {
	h := sha256.New()
	for _, r := range shapes {
		fmt.Fprintf(h, "%q %q %q %+v %g %g %g\n", r.Machine, r.Device, r.Shape, r.Work, r.Us, r.H2DUs, r.D2HUs)
	}
	return hex.EncodeToString(h.Sum(nil))
}

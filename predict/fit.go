package predict

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

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
		if out[i].chance = all[0].chance; len(all) > 1 || all[0].chance == 0 {
			out[i].chance = chanceOf(all, out[i].Us)
		}
		out[i].H2DUs = medianOf(all, func(r Row) float64 { return r.H2DUs })
		out[i].D2HUs = medianOf(all, func(r Row) float64 { return r.D2HUs })
		out[i].FloorUs = medianOf(all, func(r Row) float64 { return r.FloorUs })
	}
	return out, nil
}

// chanceOf returns the standard error of the median of repeats, in logarithm, by their median deviation from it.
func chanceOf(repeats []Row, median float64) float64 {
	const fewRepeats, ofFew, least = 3, 0.1, 0.005 // the least of fewer repeats, and of any
	deviation := 1.48 * medianOf(repeats, func(r Row) float64 { return math.Abs(math.Log(r.Us / median)) })
	chance := 1.25 * deviation / math.Sqrt(float64(len(repeats)))
	if len(repeats) < fewRepeats {
		return max(chance, ofFew)
	}
	return max(chance, least)
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
		for _, v := range []float64{r.FLOPs, r.Bytes, r.BytesIn, r.BytesOut, r.Steps, r.Rows, r.Kernel, r.Idle, r.FloorUs, r.H2DUs, r.D2HUs, r.Us} {
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
	kinds := []string{"cpu", "cuda"}
	for kind := range byKind {
		if !slices.Contains(kinds, kind) {
			return nil, fmt.Errorf("device %q is neither cpu nor cuda:N", kind)
		}
	}
	fitted := make([][]Device, len(kinds))
	group := errgroup.Group{}
	for i, kind := range kinds {
		group.Go(func() (err error) {
			if fitted[i], err = fitKind(kind, byKind[kind]); err != nil {
				return fmt.Errorf("fitting %s: %w", kind, err)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	m.Devices = slices.Concat(fitted...)
	return m, m.compile()
}

func byMachine(r *Row) string { return r.Machine + "\x00" + r.Device }
func byTask(r *Row) string    { return byMachine(r) + "\x00" + r.Task }
func byShape(r *Row) string   { return byTask(r) + "\x00" + r.Shape }
func dtype(r *Row) string     { return r.DType }
func task(r *Row) string      { return r.Task }

// fitKind fits the devices of a kind: first the kind itself, which stands for devices that were
// never measured, then each device.
func fitKind(kind string, rows []Row) ([]Device, error) {
	if len(rows) == 0 {
		return nil, nil
	}
	rows = normalized(rows)
	f, machines := fitter{kind: kind, starts: startSquares(filter(rows, isCold))}, distinct(rows, byMachine)
	warm := filter(rows, isWarm)
	first := Cell{Law: firstLaw, Spread: math.Ln2}
	if len(warm) > 0 {
		law, err := fitLaw(warm, alike(warm, byTask), firstLaw)
		if err != nil {
			return nil, err
		}
		if f.process, err = fitProcess(kind, warm, law); err != nil {
			return nil, err
		}
		f.shapes, f.tasks = f.process.leftOut(byShape), f.process.leftOut(task)
		first.Law = law
	}
	general, err := f.device(labels{}, rows, &first, nil)
	if err != nil {
		return nil, err
	}
	general.Device = kind
	unseen := math.Ln2 // nothing says how devices of this kind differ
	var machinesOut []float64
	if len(warm) > 0 {
		if machinesOut = f.process.leftOut(byMachine); len(machines) > 1 {
			unseen = spread(machinesOut)
		}
	}
	general.widen(unseen)
	var processors []string
	if kind == "cpu" && len(machines) > 1 {
		processors = distinct(rows, (*Row).Processor)
	}
	out := make([]Device, 1+len(processors)+len(machines))
	out[0] = general
	group := errgroup.Group{} // devices do not depend on each other
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i, processor := range processors {
		group.Go(func() error {
			own := filter(rows, func(r *Row) bool { return r.Processor() == processor })
			d, err := f.device(labels{processor: processor}, own, &general.Other, general.cell)
			d.Device, d.Key = kind, processor
			if err == nil && len(distinct(own, byMachine)) > 1 {
				d.widen(spread(f.errors(machinesOut, labels{processor: processor})))
			} else {
				d.widen(unseen)
			}
			out[1+i] = d
			return err
		})
	}
	for i, machine := range machines {
		group.Go(func() error {
			own := filter(rows, func(r *Row) bool { return byMachine(r) == machine })
			d, err := f.device(labels{machine: machine}, own, &general.Other, general.cell)
			d.Machine, d.Device, d.Key = own[0].Machine, own[0].Device, own[0].Key
			out[1+len(processors)+i] = d
			return err
		})
	}
	return out, group.Wait()
}

// normalized returns rows with the floors that laws go by.
func normalized(rows []Row) []Row {
	out := slices.Clone(rows)
	for i := range out {
		out[i].Work = out[i].normalized()
	}
	return out
}

// widen makes the intervals of times no narrower than some.
func (d *Device) widen(spread float64) {
	d.Other.Spread = max(d.Other.Spread, spread)
	for i := range d.Tasks {
		d.Tasks[i].Spread = max(d.Tasks[i].Spread, spread)
	}
}

// fitter fits devices of a kind.
type fitter struct {
	kind    string
	process *process              // nil if nothing was measured warm
	starts  [startColumns]float64 // see startSquares

	// Errors, in logarithm, of the rows of the process: as predicted from other shapes, and from other tasks.
	shapes, tasks []float64
}

// device fits the cell for all tasks, near that of the kind, and one for each task, near that of the task on the kind,
// and for its types. of is a machine, a processor, or empty for the kind.
func (f *fitter) device(of labels, rows []Row, near *Cell, ofKind func(op) *Cell) (d Device, err error) {
	if d.Other, err = f.cell(of, rows, byTask, near); err != nil {
		return d, err
	}
	d.Other.Spread = max(near.Spread, leastHalf)
	if len(distinct(rows, task)) > 1 {
		d.Other.Spread = spread(f.errors(f.tasks, of))
	}
	for _, name := range distinct(rows, task) {
		own, parent := filter(rows, func(r *Row) bool { return r.Task == name }), &d.Other
		if ofKind != nil {
			if c := ofKind(op{name, ""}); c != nil {
				parent = c
			}
		}
		all, err := f.cell(of.with(name, ""), own, byMachine, parent)
		if err != nil {
			return d, err
		}
		d.Tasks = append(d.Tasks, Task{Task: name, Cell: all})
		for _, dtype := range distinct(own, dtype) {
			c, err := f.cell(of.with(name, dtype), filter(own, func(r *Row) bool { return r.DType == dtype }), byMachine, &all)
			if err != nil {
				return d, err
			}
			d.Tasks = append(d.Tasks, Task{Task: name, DType: dtype, Cell: c})
		}
	}
	for _, t := range d.Tasks { // what was not measured is no better known than what was
		d.Other.Spread = max(d.Other.Spread, t.Spread)
	}
	return d, nil
}

// errors returns those of the rows that have labels.
func (f *fitter) errors(all []float64, of labels) (out []float64) {
	for i, e := range all {
		if of.have(&f.process.labels[i]) {
			out = append(out, e)
		}
	}
	return out
}

// with returns labels with a task and a type.
func (of labels) with(task, dtype string) labels {
	of.task, of.dtype = task, dtype
	return of
}

// have tells whether labels include others, whatever the memory.
func (of *labels) have(l *labels) bool {
	return (of.machine == "" || of.machine == l.machine) && (of.processor == "" || of.processor == l.processor) && (of.task == "" || of.task == l.task) && (of.dtype == "" || of.dtype == l.dtype)
}

// cell fits a law to the rows that have some labels, near another law, and points that carry what the process expects beyond the law.
func (f *fitter) cell(of labels, rows []Row, group func(*Row) string, near *Cell) (Cell, error) {
	c := Cell{Law: near.Law, Spread: near.Spread, N: len(rows)}
	c.scale = scalesOf(f.kind)
	c.domain(rows)
	if warm := filter(rows, isWarm); len(warm) > 0 {
		var err error
		if c.Law, err = fitLaw(warm, alike(warm, group), near.Law); err != nil {
			return c, err
		}
		c.Spread = spread(f.errors(f.shapes, of))
		if len(warm) < fewRows { // too few errors for a quantile: no narrower than the level before
			c.Spread = max(c.Spread, near.Spread)
		}
	}
	if f.process != nil {
		floor, bytes := f.extents(of)
		for m := range memories {
			of.memory = m
			c.local[m] = regress(f.targets(of, &c.Law), floor, bytes)
		}
	}
	err := c.start(filter(rows, isCold), near, f.starts)
	return c, err
}

// How much a place counts where work of other labels was measured, beside 1 of these. The process says what to expect there, so that of a
// task and type it counts a good part: of a device with ten samples of a task most places are those of others.
const (
	elsewhereTarget = 0.3  // the same task and type on another device
	otherTypeTarget = 0.1  // the same task in another type
	otherTaskTarget = 0.01 // another task on the device
)

// targets lists what the process expects beyond a law: where work with these labels was measured, and, since that may be little,
// where the device ran other tasks and other devices this task.
func (f *fitter) targets(of labels, law *Law) []target {
	p := f.process
	threads := math.NaN()
	for i := range p.rows {
		if of.machine != "" && p.labels[i].machine == of.machine {
			threads, of.processor = p.rows[i].Threads, p.labels[i].processor
			break
		}
	}
	mean, scale := p.mean(of), scalesOf(f.kind)
	var out []target
	for i := range p.rows {
		l := &p.labels[i]
		t := target{weight: 1}
		switch {
		case l.memory != of.memory:
			continue
		case of.have(l):
		case of.task != "" && l.task == of.task && (of.dtype == "" || of.dtype == l.dtype):
			t.weight = elsewhereTarget
		case of.task != "" && l.task == of.task:
			t.weight = otherTypeTarget
		case of.machine != "" && l.machine == of.machine || of.machine == "" && of.processor != "" && l.processor == of.processor:
			t.weight = otherTaskTarget
		default:
			continue
		}
		w := p.rows[i].Work
		if !math.IsNaN(threads) {
			w.Threads = threads
		}
		here := p.placeOf(&w)
		t.at = scale.of(&w)
		t.value = mean(&here) + math.Log(max(p.law.Time(&w), leastUs)/max(law.Time(&w), leastUs))
		out = append(out, t)
	}
	return out
}

// extents returns from where to where floor and bytes go, scaled, of the task of labels wherever it was measured, with its data in whatever memory; without a task
// they are of all work of the labels.
func (f *fitter) extents(of labels) (floor, bytes Range) {
	none := Range{math.Inf(1), math.Inf(-1)}
	floor, bytes = none, none
	scale := scalesOf(f.kind)
	for i := range f.process.rows {
		if l := &f.process.labels[i]; of.have(l) || of.task != "" && l.task == of.task {
			at := scale.of(&f.process.rows[i].Work)
			floor.add(at[ofFloor])
			bytes.add(at[ofBytes])
		}
	}
	if floor == none { // only cold starts were measured
		return Range{-maxPoint, maxPoint}, Range{-maxPoint, maxPoint}
	}
	return floor, bytes
}

func isWarm(r *Row) bool { return !r.Cold }
func isCold(r *Row) bool { return r.Cold }

// alike returns weights of rows with which each group counts alike.
func alike(rows []Row, group func(*Row) string) []float64 {
	count := map[string]int{}
	for i := range rows {
		count[group(&rows[i])]++
	}
	weights := make([]float64, len(rows))
	for i := range rows {
		weights[i] = float64(len(rows)) / float64(len(count)*count[group(&rows[i])])
	}
	return weights
}

// start fits what a cold start costs, near that of a level before. The interval is that of errors of starts which were left out one at a time.
func (c *Cell) start(cold []Row, near *Cell, square [startColumns]float64) error {
	c.Law.Start, c.ColdSpread = near.Law.Start, max(near.ColdSpread, unknownStart)
	if len(cold) == 0 {
		return nil
	}
	warm := make([]float64, len(cold))
	for i := range cold {
		w := cold[i].Work
		w.Cold = false
		warm[i] = c.time(&w, w.FloorUs)
	}
	errors := make([]float64, len(cold))
	for i := range cold {
		others := append(slices.Clone(cold[:i]), cold[i+1:]...)
		start, err := fitStart(others, append(slices.Clone(warm[:i]), warm[i+1:]...), near.Law.Start, square)
		if err != nil {
			return err
		}
		errors[i] = math.Log(cold[i].Us / max(leastUs, warm[i]+start.Time(&cold[i].Work)))
	}
	var err error
	if c.Law.Start, err = fitStart(cold, warm, near.Law.Start, square); err != nil {
		return err
	}
	if c.ColdSpread = spread(errors); len(cold) < fewStarts {
		c.ColdSpread = max(c.ColdSpread, unknownStart)
	}
	return nil
}

// unknownStart is the spread of cold starts of which few were measured: a factor of 1.5.
const (
	unknownStart = 0.4
	fewStarts    = 4
)

const (
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

// hash names the data of a fit.
func hash(shapes []Row) string {
	h := sha256.New()
	for _, r := range shapes {
		fmt.Fprintf(h, "%q %q %q %+v %g %g %g\n", r.Machine, r.Device, r.Shape, r.Work, r.Us, r.H2DUs, r.D2HUs)
	}
	return hex.EncodeToString(h.Sum(nil))
}

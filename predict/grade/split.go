package grade

import (
	"cmp"
	"math/rand/v2"
	"slices"

	"gpt2scope/predict"
)

// Fold is a fit and what it is graded on, as indices of rows.
type Fold struct {
	Name       string // what was left out
	Fit, Grade []int
}

// Split is a way to divide measurements into what is fitted and what is graded. Repeats of a shape are never on both sides.
type Split struct {
	Name  string
	Folds []Fold
}

// Names of splits.
const (
	Random       = "random"
	Between      = "sizes between"
	Largest      = "largest 4x"
	TaskOut      = "task held out"
	TaskOutTen   = "task held out, 10 samples"
	DeviceOut    = "CPU held out"
	DeviceOutTen = "CPU held out, 10 samples"
	CoresOut     = "cores held out"
	GPUOut       = "GPU held out"
	GPUOutTen    = "GPU held out, 10 samples"
	Cold         = "cold starts"
)

var about = map[string]string{
	Random:       "a fifth of the shapes, drawn at random, each in turn; optimistic, since neighbours of each shape are known",
	Between:      "every other size of a task, but for the smallest and the largest",
	Largest:      "sizes above a quarter of the largest of a task",
	TaskOut:      "each task in turn: nothing of it is known",
	TaskOutTen:   "each task in turn, but for ten measurements of it on each device, those that tell most about the others",
	DeviceOut:    "each processor in turn, with all machines that have it: nothing of it is known but ceilings",
	DeviceOutTen: "the same, but for ten shapes of each task on one machine, those of infer tasks bench --few 10; the other shapes are graded",
	CoresOut:     "each machine whose processor others have too, with another number of cores: these are known",
	GPUOut:       "each model of GPU in turn, with all machines that have it: nothing of it is known but ceilings",
	GPUOutTen:    "the same, but for ten measurements of each task on one machine, those that tell most about the others",
	Cold:         "the same as random, of runs that start a process; the others are of runs in a process that has run before",
}

// About says what a split leaves out.
func About(split string) string { return about[split] }

const tenSamples = 10

// Splits lists the ways to divide rows. One without folds cannot be made of these rows: leaving out a CPU or a GPU needs two.
func Splits(rows []predict.Row) []Split {
	shapes := sizes(rows)
	names := []string{Random, Between, Largest, TaskOut, TaskOutTen, DeviceOut, DeviceOutTen, CoresOut, GPUOut, GPUOutTen}
	splits := make([]Split, len(names))
	for i, name := range names {
		splits[i].Name = name
	}
	random := rand.New(rand.NewPCG(3, 4))
	const parts = 5
	part := map[shape]int{}
	for _, task := range shapes {
		for i, k := range random.Perm(len(task)) {
			part[task[i]] = k % parts
		}
	}
	for k := range parts {
		splits[0].Folds = append(splits[0].Folds, fold(rows, "", func(r *predict.Row) bool { return part[shapeOf(r)] == k }))
	}
	between, largest := map[shape]bool{}, map[shape]bool{}
	for _, task := range shapes {
		for i, s := range task {
			between[s] = i%2 == 1 && i+1 < len(task)
			largest[s] = s.size*4 > task[len(task)-1].size
		}
	}
	splits[1].Folds = append(splits[1].Folds, fold(rows, "", func(r *predict.Row) bool { return between[shapeOf(r)] }))
	splits[2].Folds = append(splits[2].Folds, fold(rows, "", func(r *predict.Row) bool { return largest[shapeOf(r)] }))
	var tasks []string
	for i := range rows {
		if r := &rows[i]; !slices.Contains(tasks, r.Task) {
			tasks = append(tasks, r.Task)
		}
	}
	for _, task := range tasks {
		out := fold(rows, task, func(r *predict.Row) bool { return r.Task == task })
		splits[3].Folds = append(splits[3].Folds, out)
		splits[4].Folds = append(splits[4].Folds, withTen(rows, out))
	}
	cpus, gpus := devicesOf(rows, "cpu"), devicesOf(rows, "cuda")
	splits[5].Folds, splits[6].Folds = cpus.out(rows), cpus.outButTen(rows)
	splits[7].Folds = cpus.machineOut(rows)
	splits[8].Folds, splits[9].Folds = gpus.out(rows), gpus.outButTen(rows)
	for i := range splits {
		splits[i].Folds = slices.DeleteFunc(splits[i].Folds, func(f Fold) bool { return len(f.Fit) == 0 || len(f.Grade) == 0 })
	}
	return splits
}

// devices is which processor, a CPU or a GPU, each machine has.
type devices struct {
	kind      string
	machines  []string
	processor map[string]string // by machine
}

// devicesOf returns the devices of a kind that rows are of.
func devicesOf(rows []predict.Row, kind string) devices {
	d := devices{kind: kind, processor: map[string]string{}}
	for i := range rows {
		if r := &rows[i]; predict.Kind(r.Device) == kind && d.processor[r.Machine] == "" {
			d.machines, d.processor[r.Machine] = append(d.machines, r.Machine), r.Processor()
		}
	}
	return d
}

// without leaves out what runs on the devices of some machines.
func (d *devices) without(rows []predict.Row, name string, out func(machine string) bool) Fold {
	return fold(rows, name, func(r *predict.Row) bool { return predict.Kind(r.Device) == d.kind && out(r.Machine) })
}

// processors lists the processors, in the order of the machines.
func (d *devices) processors() (all []string) {
	for _, m := range d.machines {
		if p := d.processor[m]; !slices.Contains(all, p) {
			all = append(all, p)
		}
	}
	return all
}

// out leaves out each processor in turn, with all machines that have it; nothing if there is only one.
func (d *devices) out(rows []predict.Row) (folds []Fold) {
	all := d.processors()
	if len(all) < 2 {
		return nil
	}
	for _, p := range all {
		folds = append(folds, d.without(rows, p, func(machine string) bool { return d.processor[machine] == p }))
	}
	return folds
}

// outButTen grades each machine in turn, of whose processor nothing is known but ten rows of each task on it; nothing if there is only one processor.
func (d *devices) outButTen(rows []predict.Row) (folds []Fold) {
	if len(d.processors()) < 2 {
		return nil
	}
	for _, machine := range d.machines {
		out := d.without(rows, machine, func(other string) bool { return d.processor[other] == d.processor[machine] })
		out.Grade = slices.DeleteFunc(out.Grade, func(i int) bool { return rows[i].Machine != machine })
		folds = append(folds, withTen(rows, out))
	}
	return folds
}

// machineOut leaves out each machine in turn whose processor others have too.
func (d *devices) machineOut(rows []predict.Row) (folds []Fold) {
	for _, machine := range d.machines {
		if slices.ContainsFunc(d.machines, func(m string) bool { return m != machine && d.processor[m] == d.processor[machine] }) {
			folds = append(folds, d.without(rows, machine, func(other string) bool { return other == machine }))
		}
	}
	return folds
}

// shape is a size of a task, on whatever device.
type shape struct {
	task, dtype, name string
	size              float64 // FLOPs, or bytes of work without any
}

func shapeOf(r *predict.Row) shape {
	size := r.FLOPs
	if size == 0 {
		size = r.Bytes
	}
	return shape{r.Task, r.DType, r.Shape, size}
}

// sizes lists the shapes of each task and type, ascending.
func sizes(rows []predict.Row) [][]shape {
	type key struct{ task, dtype string }
	seen, of := map[shape]bool{}, map[key][]shape{}
	var keys []key
	for i := range rows {
		s := shapeOf(&rows[i])
		if k := (key{s.task, s.dtype}); !seen[s] {
			if of[k] == nil {
				keys = append(keys, k)
			}
			seen[s], of[k] = true, append(of[k], s)
		}
	}
	var out [][]shape
	for _, k := range keys {
		slices.SortFunc(of[k], func(a, b shape) int { return cmp.Or(cmp.Compare(a.size, b.size), cmp.Compare(a.name, b.name)) })
		out = append(out, of[k])
	}
	return out
}

func fold(rows []predict.Row, name string, out func(*predict.Row) bool) Fold {
	f := Fold{Name: name}
	for i := range rows {
		if out(&rows[i]) {
			f.Grade = append(f.Grade, i)
		} else {
			f.Fit = append(f.Fit, i)
		}
	}
	return f
}

// withTen moves ten rows of each task on each device, those that [predict.Few] chooses, from what is graded to what is fitted. What
// has no more than these is left out of the grade.
func withTen(rows []predict.Row, f Fold) Fold {
	type device struct{ machine, device string }
	var devices []device
	of, moved := map[device][]int{}, map[int]bool{}
	for _, i := range f.Grade {
		r := &rows[i]
		if r.Cold {
			continue
		}
		d := device{r.Machine, r.Device}
		if of[d] == nil {
			devices = append(devices, d)
		}
		of[d] = append(of[d], i)
	}
	for _, d := range devices {
		works := make([]predict.Work, len(of[d]))
		for k, i := range of[d] {
			works[k] = rows[i].Work
		}
		for _, k := range predict.Few(predict.Kind(d.device), works, tenSamples) {
			moved[of[d][k]] = true
		}
	}
	out := Fold{Name: f.Name, Fit: slices.Clone(f.Fit)}
	for _, i := range f.Grade {
		if moved[i] {
			out.Fit = append(out.Fit, i)
		} else {
			out.Grade = append(out.Grade, i)
		}
	}
	return out
}

package grade

import (
	"cmp"
	"errors"
	"math"
	"slices"

	"gpt2scope/internal/stats"
	"gpt2scope/predict"
)

// Family is a way to predict.
type Family struct {
	Name  string
	About string

	// Fit learns from the medians of shapes. Several goroutines may call it at once.
	Fit func(rows []predict.Row) (Predictor, error)
}

// Predictor predicts times.
type Predictor interface {
	// Time returns the predicted time of a row's work on its device in microseconds, NaN if the family
	// predicts none. It does not look at the row's times.
	Time(r *predict.Row) float64
}

// Chooser is a predictor that chooses between the CPU and the GPU otherwise than by the lesser time.
type Chooser interface {
	// GPU tells whether the work should run on the GPU; ok is false if it cannot say.
	GPU(cpu, gpu *predict.Row) (yes, ok bool)
}

// Families lists the ways that [Check] compares: those of other schedulers, and ours last.
func Families() []Family {
	return []Family{
		{"threshold", "the GPU from a size on, the one that is best on the measured sizes of the task", fitThreshold},
		{"floor", "the floor, and bytes at the highest rate of a transfer that was measured", fitFloors},
		{"power law", "a x FLOPs^b + c for each task, device and memory, as StarPU's nonlinear regression", fitPowers},
		{"nearest", "the time of the nearest shape that was measured, as a history does", fitNearest},
		{"forest", "a random forest of 40 trees on the logarithms of all features", fitForest},
		{Ours, "the cost model of infer tasks fit", fitOurs},
	}
}

// Ours is the name of the family that is this program's.
const Ours = "ours"

// place names what a time is of, from most to least particular: see where.
type place struct {
	machine, device, task, dtype string
	memory                       predict.Memory
	cold                         bool
}

// places lists where to look for measurements like a row, the most alike first. The last is of any
// device of the kind.
func places(r *predict.Row) [5]place {
	kind := predict.Kind(r.Device)
	return [5]place{
		{r.Machine, r.Device, r.Task, r.DType, r.Memory, r.Cold},
		{"", kind, r.Task, r.DType, r.Memory, r.Cold},
		{r.Machine, r.Device, "", "", r.Memory, r.Cold},
		{"", kind, "", "", r.Memory, r.Cold},
		{"", kind, "", "", 0, false},
	}
}

// byPlace collects rows by all their places.
func byPlace(rows []predict.Row) map[place][]*predict.Row {
	found := map[place][]*predict.Row{}
	for i := range rows {
		for _, p := range places(&rows[i]) {
			found[p] = append(found[p], &rows[i])
		}
	}
	return found
}

// floors predicts the floor of work and transfers.
type floors struct{ perByte [4]float64 } // microseconds, by memory

func fitFloors(rows []predict.Row) (Predictor, error) {
	f := floors{}
	for _, r := range rows {
		moved := r.BytesIn + r.BytesOut
		if us := r.H2DUs + r.D2HUs; moved > 0 && us > 0 && int(r.Memory) < len(f.perByte) {
			if at := &f.perByte[r.Memory]; *at == 0 || us/moved < *at {
				*at = us / moved
			}
		}
	}
	return &f, nil
}

func (f *floors) Time(r *predict.Row) float64 {
	t := r.FloorUs
	if int(r.Memory) < len(f.perByte) {
		t += f.perByte[r.Memory] * (r.BytesIn + r.BytesOut)
	}
	return max(t, 1e-3)
}

// power is a n^b + c.
type power struct{ a, b, c float64 }

func (p power) at(n float64) float64 { return p.a*math.Pow(max(n, 1), p.b) + p.c }

type powers struct{ of map[place]power }

// fitPowers fits a n^b + c with n the FLOPs. For each c of a grid a and b are those of the line through the
// logarithms, as in StarPU's regression (Augonnet, Thibault and Namyst, "Automatic calibration of performance
// models on heterogeneous multicore architectures", 2009); the c with the least absolute error in logarithm stays.
func fitPowers(rows []predict.Row) (Predictor, error) {
	f := &powers{map[place]power{}}
	for p, all := range byPlace(rows) {
		f.of[p] = fitPower(all)
	}
	return f, nil
}

func fitPower(rows []*predict.Row) power {
	least := math.Inf(1)
	for _, r := range rows {
		least = min(least, r.Us)
	}
	best, bestError := power{}, math.Inf(1)
	for k := range 41 {
		c := least * 0.99 * float64(k) / 40
		var n, x, y, xx, xy float64
		for _, r := range rows {
			u, v := math.Log(max(r.FLOPs, 1)), math.Log(r.Us-c)
			n, x, y, xx, xy = n+1, x+u, y+v, xx+u*u, xy+u*v
		}
		p := power{c: c}
		if spread := xx - x*x/n; spread > 1e-9 {
			p.b = max(0, (xy-x*y/n)/spread)
		}
		p.a = math.Exp(y/n - p.b*x/n)
		sum := 0.0
		for _, r := range rows {
			sum += math.Abs(math.Log(p.at(r.FLOPs) / r.Us))
		}
		if sum < bestError {
			best, bestError = p, sum
		}
	}
	return best
}

func (f *powers) Time(r *predict.Row) float64 {
	for _, p := range places(r) {
		if law, ok := f.of[p]; ok {
			return law.at(r.FLOPs)
		}
	}
	return math.NaN()
}

// nearest predicts the time of the nearest shape.
type nearest struct{ of map[place][]*predict.Row }

func fitNearest(rows []predict.Row) (Predictor, error) {
	rows = slices.Clone(rows)
	return &nearest{byPlace(rows)}, nil
}

func (f *nearest) Time(r *predict.Row) float64 {
	for _, p := range places(r) {
		best, us := math.Inf(1), 0.0
		for _, o := range f.of[p] {
			d := 0.0
			for _, pair := range [...][2]float64{{r.FLOPs, o.FLOPs}, {r.Bytes, o.Bytes}, {r.Rows, o.Rows}, {r.Steps, o.Steps}, {r.BytesIn, o.BytesIn}, {r.FloorUs, o.FloorUs}} {
				if pair[0] != pair[1] {
					l := math.Log((pair[0] + 1e-3) / (pair[1] + 1e-3))
					d += l * l
				}
			}
			if d < best {
				best, us = d, o.Us
			}
		}
		if us > 0 {
			return us
		}
	}
	return math.NaN()
}

// threshold chooses by the size of a task alone.
type threshold struct{ from map[place]float64 } // FLOPs, by task, type and memory of the GPU; without task for others

func thresholdPlaces(gpu *predict.Row) [2]place {
	return [2]place{{task: gpu.Task, dtype: gpu.DType, memory: gpu.Memory, cold: gpu.Cold}, {memory: gpu.Memory, cold: gpu.Cold}}
}

func fitThreshold(rows []predict.Row) (Predictor, error) {
	found := map[place][]Pair{}
	for _, p := range Pairs(rows) {
		for _, at := range thresholdPlaces(p.GPU) {
			found[at] = append(found[at], p)
		}
	}
	f := &threshold{map[place]float64{}}
	for at, pairs := range found {
		slices.SortFunc(pairs, func(a, b Pair) int { return cmp.Compare(a.GPU.FLOPs, b.GPU.FLOPs) })
		// The logarithms of times over the better device, which the grade sums too, if all run on the GPU; then
		// one after another, from the smallest on, runs on the CPU.
		sum := 0.0
		for _, p := range pairs {
			sum += math.Log(p.GPU.Us / p.Best())
		}
		best := sum
		f.from[at] = 0
		for i, p := range pairs {
			sum += math.Log(p.CPU.Us / p.GPU.Us)
			last := i+1 == len(pairs)
			if sum < best-1e-12 && (last || pairs[i+1].GPU.FLOPs > p.GPU.FLOPs) {
				best = sum
				if f.from[at] = math.Inf(1); !last {
					f.from[at] = math.Sqrt(p.GPU.FLOPs * pairs[i+1].GPU.FLOPs)
				}
			}
		}
	}
	return f, nil
}

func (f *threshold) Time(*predict.Row) float64 { return math.NaN() }

func (f *threshold) GPU(_, gpu *predict.Row) (yes, ok bool) {
	for _, at := range thresholdPlaces(gpu) {
		if from, ok := f.from[at]; ok {
			return gpu.FLOPs >= from, true
		}
	}
	return false, false
}

// ours predicts by the cost model.
type ours struct {
	model *predict.Model
	index map[[2]string]int // of machine and device
}

func fitOurs(rows []predict.Row) (Predictor, error) {
	m, err := predict.Fit(rows)
	if err != nil {
		return nil, err
	}
	return &ours{m, map[[2]string]int{}}, nil
}

func (f *ours) device(r *predict.Row) int {
	k := [2]string{r.Machine, r.Device}
	i, ok := f.index[k]
	if !ok {
		i, _ = f.model.Device(r.Machine, r.Key, r.Device)
		f.index[k] = i
	}
	return i
}

func (f *ours) Time(r *predict.Row) float64 { return f.model.Predict(f.device(r), &r.Work).Us }

// Pair is work that was measured on the CPU and on a GPU of one machine.
type Pair struct{ CPU, GPU *predict.Row }

// Best returns the lesser time.
func (p Pair) Best() float64 { return min(p.CPU.Us, p.GPU.Us) }

// Pairs lists the choices that rows hold. Data in the GPU's memory are no choice where the task was also measured with
// transfers: to the CPU's data in host memory only times with transfers compare.
func Pairs(rows []predict.Row) []Pair {
	type work struct {
		machine, task, dtype, shape string
		cold                        bool
	}
	cpu, moved := map[work]*predict.Row{}, map[[2]string]bool{}
	for i := range rows {
		r := &rows[i]
		if predict.Kind(r.Device) == "cpu" {
			cpu[work{r.Machine, r.Task, r.DType, r.Shape, r.Cold}] = r
		} else if r.Memory != predict.Resident {
			moved[[2]string{r.Machine, r.Task}] = true
		}
	}
	var out []Pair
	for i := range rows {
		r := &rows[i]
		if predict.Kind(r.Device) == "cpu" || r.Memory == predict.Resident && moved[[2]string{r.Machine, r.Task}] {
			continue
		}
		if c := cpu[work{r.Machine, r.Task, r.DType, r.Shape, r.Cold}]; c != nil {
			out = append(out, Pair{c, r})
		}
	}
	return out
}

// quantile of values, which it sorts.
func quantile(values []float64, q float64) float64 {
	slices.Sort(values)
	if q == 0.5 {
		return stats.Median(values)
	}
	return stats.Quantile(values, q)
}

var errNothing = errors.New("there is nothing to grade: no measurement was given")

package tasks

import (
	"cmp"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"gpt2scope/internal/stats"
	"gpt2scope/predict"
)

// Sweep names a line of shapes of a task on a machine, which differ in one size.
type Sweep struct {
	Machine string `json:"machine"`
	Task    string `json:"task"`
	DType   string `json:"dtype"`
	Line    string `json:"line"` // the shape, with * for the size that varies: "n=*"
}

// Crossover is the size from which on a GPU is faster than the CPU, along a line of shapes.
type Crossover struct {
	Sweep
	Device string         `json:"device"` // "cuda:0"
	Memory predict.Memory `json:"memory"` // of the GPU's data
	Faster string         `json:"faster"` // "cpu", "gpu", or "both": which device is faster where

	// Size is where the two take the same time, Low to High its 95 % interval by bootstrap of
	// the repeats; null where one device is faster at all sizes.
	Size *float64 `json:"size"`
	Low  *float64 `json:"low"`
	High *float64 `json:"high"`

	// Sizes is how many sizes were measured on both devices, and Exceptions at how many of them the
	// medians say otherwise: times may cross several times.
	Sizes      int `json:"sizes"`
	Exceptions int `json:"exceptions"`
}

// lineOf returns a line of shapes that differ in one size, or in all three of a square product, and the place on it.
func lineOf(s Shape) (line string, size int) {
	vary := "n"
	switch {
	case s.Get("t") > 0:
		vary = "t"
	case s.Get("past") > 0: // decode: over the batch
		vary = "b"
	case s.Get("m") > 0:
		vary = "m"
	}
	size = s.Get(vary)
	square := vary == "m" && size == s.Get("n") && size == s.Get("k")
	var parts []string
	for _, d := range s {
		text := Shape{d}.String()
		if d.Name == vary || square {
			text = d.Name + "=*"
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, ","), size
}

// What times are of.
const (
	TimeWall   = "wall"
	TimeKernel = "kernel"
	TimeH2D    = "h2d"
	TimeD2H    = "d2h"
	TimePlain  = "plain" // of the plain way
)

// StoredGPU names the GPU of stored samples beside the devices of a machine that has none.
const StoredGPU = "cuda:H200 (stored)"

// Beside returns samples of a machine without a GPU with those of another machine's first GPU beside them, of the same
// tasks and types. Samples of a GPU are returned as they are.
func Beside(samples, stored []Sample) []Sample {
	machines := map[[2]string]string{} // by task and type
	for i := range samples {
		s := &samples[i]
		if predict.Kind(s.Device) == GPU {
			return samples
		}
		machines[[2]string{s.Task, s.DType}] = s.Machine
	}
	all := slices.Clip(samples)
	for _, s := range stored {
		if to, ok := machines[[2]string{s.Task, s.DType}]; ok && s.Device == GPU+":0" {
			s.Machine, s.Device = to, StoredGPU
			all = append(all, s)
		}
	}
	return all
}

// curveKey names a time that was measured along a line of shapes.
type curveKey struct {
	Sweep
	device string
	memory predict.Memory
	time   string
}

func (a curveKey) compare(b curveKey) int {
	return cmp.Or(cmp.Compare(a.Machine, b.Machine), cmp.Compare(a.Task, b.Task), cmp.Compare(a.DType, b.DType),
		cmp.Compare(a.Line, b.Line), cmp.Compare(a.device, b.device), cmp.Compare(a.memory, b.memory),
		cmp.Compare(a.time, b.time))
}

// curve is times by size.
type curve map[int][]float64

// curvesOf sorts the times of the warm samples into curves.
func curvesOf(samples []Sample) map[curveKey]curve {
	all := map[curveKey]curve{}
	for i := range samples {
		s := &samples[i]
		shape, err := ParseShape(s.Shape)
		if err != nil || s.Cold {
			continue
		}
		line, size := lineOf(shape)
		times := map[string]float64{TimeWall: s.Us, TimeKernel: s.KernelUs, TimeH2D: s.H2DUs, TimeD2H: s.D2HUs}
		if s.Variant != Tuned {
			times = map[string]float64{TimePlain: s.Us}
		}
		for time, us := range times {
			k := curveKey{Sweep{s.Machine, s.Task, s.DType, line}, s.Device, s.Memory, time}
			if us > 0 {
				if all[k] == nil {
					all[k] = curve{}
				}
				all[k][size] = append(all[k][size], us)
			}
		}
	}
	return all
}

const (
	resamples  = 300 // bootstrap samples of an interval
	leastSizes = 3   // that two curves must share
)

// Crossovers finds them for each line of shapes and each kind of memory. The interval depends on the seed only.
func Crossovers(samples []Sample, seed uint64) []Crossover {
	return crossoversOf(curvesOf(samples), seed)
}

func crossoversOf(all map[curveKey]curve, seed uint64) []Crossover {
	out := []Crossover{}
	random := rand.New(rand.NewPCG(seed, 0x63726f7373)) // "cross"
	for _, k := range slices.SortedFunc(maps.Keys(all), curveKey.compare) {
		host := all[curveKey{k.Sweep, CPU, predict.Host, TimeWall}]
		gpu := maps.Clone(all[k])
		maps.DeleteFunc(gpu, func(size int, _ []float64) bool { return host[size] == nil })
		if predict.Kind(k.device) == GPU && k.time == TimeWall && len(gpu) >= leastSizes {
			c := Crossover{Sweep: k.Sweep, Device: k.device, Memory: k.memory}
			c.find(host, gpu, random)
			out = append(out, c)
		}
	}
	return out
}

// find finds where the times of a GPU, at sizes that the host has too, cross those of the host.
func (c *Crossover) find(host, gpu curve, random *rand.Rand) {
	sizes := slices.Sorted(maps.Keys(gpu))
	ratio := func(draw func([]float64) float64) []float64 { // log of GPU over CPU
		r := make([]float64, len(sizes))
		for i, size := range sizes {
			r[i] = math.Log(draw(gpu[size]) / draw(host[size]))
		}
		return r
	}
	medians := ratio(stats.MedianOf[float64])
	size, faster := crossing(sizes, medians)
	c.Faster, c.Sizes = faster, len(sizes)
	for i, r := range medians {
		if onGPU := faster == "gpu" || faster == "both" && float64(sizes[i]) > size; onGPU != (r < 0) {
			c.Exceptions++
		}
	}
	if faster != "both" {
		return
	}
	var found []float64
	for range resamples {
		drawn, f := crossing(sizes, ratio(func(x []float64) float64 {
			again := make([]float64, len(x))
			for i := range again {
				again[i] = x[random.IntN(len(x))]
			}
			return stats.MedianOf(again)
		}))
		if f == "both" {
			found = append(found, drawn)
		}
	}
	slices.Sort(found)
	low, high := stats.Quantile(found, 0.025), stats.Quantile(found, 0.975)
	c.Size, c.Low, c.High = &size, &low, &high
}

// crossing returns the size at which the log of the ratio of times changes its sign: of all changes the one that leaves
// the least wrong choices, by a straight line between two sizes in logarithms.
func crossing(sizes []int, ratio []float64) (size float64, faster string) {
	// Wrong choices if the GPU is taken from sizes[i] on, weighted by how much slower it is.
	best, at := math.Inf(1), 0
	for i := range len(sizes) + 1 {
		cost := 0.0
		for j, r := range ratio {
			if j < i {
				cost += max(0, -r) // the CPU, though the GPU is faster
			} else {
				cost += max(0, r)
			}
		}
		if cost < best {
			best, at = cost, i
		}
	}
	switch at {
	case 0:
		return 0, "gpu"
	case len(sizes):
		return 0, CPU
	}
	x0, x1, y0, y1 := math.Log(float64(sizes[at-1])), math.Log(float64(sizes[at])), ratio[at-1], ratio[at]
	x := (x0 + x1) / 2
	if y0 > 0 && y1 < 0 {
		x = x0 + (x1-x0)*y0/(y0-y1)
	}
	return math.Exp(x), "both"
}

// Chart is what was measured along a line of shapes on a machine: the tuned, warm ways.
type Chart struct {
	Sweep
	GPUs       []string
	Crossovers []Crossover

	curves map[curveKey]curve // of all charts
}

func (c *Chart) curve(device string, memory predict.Memory, time string) curve {
	return c.curves[curveKey{c.Sweep, device, memory, time}]
}

// Find returns the sizes and medians of a curve, nil if it was not measured.
func (c *Chart) Find(device string, memory predict.Memory, time string) (sizes []int, us []float64) {
	k := c.curve(device, memory, time)
	sizes = slices.Sorted(maps.Keys(k))
	for _, size := range sizes {
		us = append(us, stats.MedianOf(k[size]))
	}
	return sizes, us
}

// Charts returns for each task, type and machine the line of shapes with the most sizes.
func Charts(samples []Sample, seed uint64) []Chart {
	all := curvesOf(samples)
	sizes := map[Sweep]int{}
	for k, c := range all {
		sizes[k.Sweep] = max(sizes[k.Sweep], len(c))
	}
	best := map[Sweep]Sweep{} // by the key without the line
	for k, n := range sizes {
		of := k
		of.Line = ""
		now, ok := best[of]
		if n >= 2 && (!ok || cmp.Or(n-sizes[now], strings.Compare(k.Line, now.Line)) > 0) {
			best[of] = k
		}
	}
	crossovers := crossoversOf(all, seed)
	var out []Chart
	for _, k := range best {
		c := Chart{Sweep: k, curves: all}
		for at := range all {
			if at.Sweep == k && predict.Kind(at.device) == GPU && at.time == TimeWall && !slices.Contains(c.GPUs, at.device) {
				c.GPUs = append(c.GPUs, at.device)
			}
		}
		slices.Sort(c.GPUs)
		for _, x := range crossovers {
			if k == x.Sweep {
				c.Crossovers = append(c.Crossovers, x)
			}
		}
		out = append(out, c)
	}
	place := func(c Chart) int { return slices.IndexFunc(All(), func(t *Task) bool { return t.Name == c.Task }) }
	slices.SortFunc(out, func(a, b Chart) int {
		return cmp.Or(strings.Compare(a.Machine, b.Machine), place(a)-place(b), strings.Compare(b.DType, a.DType))
	})
	return out
}

// Shares divides the runs from one kind of memory: by size, the percent of the wall time that the copy to the GPU, the
// kernels, the copy back, and the rest take, such as waiting and launching.
func (c *Chart) Shares(device string, memory predict.Memory) (sizes []int, shares [][4]float64) {
	for _, size := range slices.Sorted(maps.Keys(c.curve(device, memory, TimeWall))) {
		var us [4]float64
		for i, time := range []string{TimeH2D, TimeKernel, TimeD2H, TimeWall} {
			us[i] = stats.MedianOf(c.curve(device, memory, time)[size])
		}
		if min(us[0], us[1], us[2]) == 0 {
			continue
		}
		parts := us[0] + us[1] + us[2]
		sum := max(us[3], parts) // medians of parts may sum to more than that of the whole
		us[3] = sum - parts
		for i := range us {
			us[i] *= 100 / sum
		}
		sizes, shares = append(sizes, size), append(shares, us)
	}
	return sizes, shares
}

// Profile is a table of one task along a line of shapes, a row for each size, in the form that notebooks about GPU
// profiling read.
type Profile struct{ File, Task, line string }

// Profiles are the tables of the three tasks that such notebooks have.
var Profiles = []Profile{
	{"task1_vector_addition_profile.csv", "vector.add", "n=*"},
	{"task2_matrix_multiplication_profile.csv", "matmul", "m=*,n=*,k=*"},
	{"task3_parallel_reduction_profile.csv", "reduce.sum", "n=*"},
}

// Column is one of a table, or a curve of a picture: medians of a device, warm, in microseconds.
type Column struct {
	Name, Device string
	Memory       predict.Memory
	Time         string
}

// profileColumns are the columns of the files, of the tuned ways. A GPU's time is with copies from and to ordinary memory,
// as one first writes it; then its parts, and the times from pinned memory and without copies.
var profileColumns = []Column{
	{"cpu_time_ms", CPU, predict.Host, TimeWall},
	{"gpu_time_ms", GPU, predict.Pageable, TimeWall},
	{"gpu_h2d_ms", GPU, predict.Pageable, TimeH2D},
	{"gpu_kernel_ms", GPU, predict.Pageable, TimeKernel},
	{"gpu_d2h_ms", GPU, predict.Pageable, TimeD2H},
	{"gpu_pinned_time_ms", GPU, predict.Pinned, TimeWall},
	{"gpu_resident_time_ms", GPU, predict.Resident, TimeWall},
}

func milliseconds(us float64) string { return strconv.FormatFloat(us/1e3, 'g', 6, 64) }

// Table returns the rows of a table, the names of the columns first; nil if it has no others. A time that was not
// measured is an empty cell.
func (p Profile) Table(samples []Sample, columns []Column, write func(us float64) string) [][]string {
	all, rows := curvesOf(samples), map[int][]string{} // by size
	for i, c := range columns {
		times := curve{}
		for k, of := range all {
			if k.Task == p.Task && k.Line == p.line && k.DType == Float32 && predict.Kind(k.device) == c.Device &&
				k.memory == c.Memory && k.time == c.Time {
				for size, us := range of {
					times[size] = append(times[size], us...)
				}
			}
		}
		for size, us := range times {
			if rows[size] == nil {
				rows[size] = make([]string, 1+len(columns))
				rows[size][0] = strconv.Itoa(size)
			}
			rows[size][1+i] = write(stats.MedianOf(us))
		}
	}
	if len(rows) == 0 {
		return nil
	}
	table := [][]string{{"size"}}
	for _, c := range columns {
		table[0] = append(table[0], c.Name)
	}
	for _, size := range slices.Sorted(maps.Keys(rows)) {
		table = append(table, rows[size])
	}
	return table
}

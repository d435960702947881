package tasks

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"

	"gpt2scope/internal/stats"
	"gpt2scope/predict"
)

// Curve is the medians of a time along a line of shapes.
type Curve struct {
	Device string
	Memory predict.Memory
	Time   string // TimeWall, TimeKernel, TimeH2D, TimeD2H
	Sizes  []int  // ascending
	Us     []float64
}

// What a curve is of.
const (
	TimeWall   = "wall"
	TimeKernel = "kernel"
	TimeH2D    = "h2d"
	TimeD2H    = "d2h"
)

// Chart is what was measured along a line of shapes on a machine: the tuned, warm ways.
type Chart struct {
	Machine, Task, DType string
	Line                 string // see [Crossover]
	Curves               []Curve
	Crossovers           []Crossover
}

// Find returns a curve, nil if it was not measured.
func (c *Chart) Find(device string, memory predict.Memory, time string) *Curve {
	for i := range c.Curves {
		if k := &c.Curves[i]; k.Device == device && k.Memory == memory && k.Time == time {
			return k
		}
	}
	return nil
}

// GPUs lists the GPUs of a chart.
func (c *Chart) GPUs() []string {
	found := map[string]bool{}
	for _, k := range c.Curves {
		if kindOf(k.Device) == GPU {
			found[k.Device] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// Charts returns for each task, type and machine the line of shapes with the most sizes.
func Charts(samples []Sample, seed uint64) []Chart {
	type where struct{ machine, task, dtype, line string }
	type what struct {
		device string
		memory predict.Memory
		time   string
	}
	all := map[where]map[what]map[int][]float64{}
	for i := range samples {
		s := &samples[i]
		shape, err := ParseShape(s.Shape)
		if err != nil || s.Variant != Tuned || s.Cold {
			continue
		}
		line, size := lineOf(shape)
		k := where{s.Machine, s.Task, s.DType, line}
		if all[k] == nil {
			all[k] = map[what]map[int][]float64{}
		}
		for time, us := range map[string]float64{TimeWall: s.Us, TimeKernel: s.KernelUs, TimeH2D: s.H2DUs, TimeD2H: s.D2HUs} {
			w := what{s.Device, s.Memory, time}
			if !(us > 0) {
				continue
			}
			if all[k][w] == nil {
				all[k][w] = map[int][]float64{}
			}
			all[k][w][size] = append(all[k][w][size], us)
		}
	}
	best := map[where]where{} // without the line
	sizes := func(k where) int {
		n := 0
		for _, c := range all[k] {
			n = max(n, len(c))
		}
		return n
	}
	for k := range all {
		of := where{k.machine, k.task, k.dtype, ""}
		now, ok := best[of]
		if !ok || cmp.Or(sizes(k)-sizes(now), strings.Compare(k.line, now.line)) > 0 {
			best[of] = k
		}
	}
	crossovers := Crossovers(samples, seed)
	var out []Chart
	for _, k := range best {
		if sizes(k) < 2 {
			continue
		}
		c := Chart{Machine: k.machine, Task: k.task, DType: k.dtype, Line: k.line}
		for w, times := range all[k] {
			curve := Curve{Device: w.device, Memory: w.memory, Time: w.time, Sizes: slices.Sorted(maps.Keys(times))}
			for _, size := range curve.Sizes {
				curve.Us = append(curve.Us, stats.MedianOf(times[size]))
			}
			c.Curves = append(c.Curves, curve)
		}
		slices.SortFunc(c.Curves, func(a, b Curve) int {
			return cmp.Or(strings.Compare(a.Device, b.Device), cmp.Compare(a.Memory, b.Memory), strings.Compare(a.Time, b.Time))
		})
		for _, x := range crossovers {
			if x.Machine == k.machine && x.Task == k.task && x.DType == k.dtype && x.Line == k.line {
				c.Crossovers = append(c.Crossovers, x)
			}
		}
		out = append(out, c)
	}
	order := map[string]int{}
	for i, t := range All() {
		order[t.Name] = i
	}
	slices.SortFunc(out, func(a, b Chart) int {
		return cmp.Or(strings.Compare(a.Machine, b.Machine), order[a.Task]-order[b.Task], -strings.Compare(a.DType, b.DType))
	})
	return out
}

// Share is how a run on a GPU divides, in percent of its wall time; Rest is what is in none of
// the parts, such as waiting and launching.
type Share struct{ H2D, Kernel, D2H, Rest float64 }

// Shares divides the runs from one kind of memory, by size.
func (c *Chart) Shares(device string, memory predict.Memory) (sizes []int, shares []Share) {
	wall := c.Find(device, memory, TimeWall)
	if wall == nil {
		return nil, nil
	}
	at := func(time string, size int) float64 {
		if k := c.Find(device, memory, time); k != nil {
			if i, ok := slices.BinarySearch(k.Sizes, size); ok {
				return k.Us[i]
			}
		}
		return math.NaN()
	}
	for i, size := range wall.Sizes {
		h, k, d := at(TimeH2D, size), at(TimeKernel, size), at(TimeD2H, size)
		if math.IsNaN(h + k + d) {
			continue
		}
		sum := max(wall.Us[i], h+k+d) // medians of parts may sum to more than that of the whole
		s := Share{100 * h / sum, 100 * k / sum, 100 * d / sum, 0}
		s.Rest = 100 - s.H2D - s.Kernel - s.D2H
		sizes, shares = append(sizes, size), append(shares, s)
	}
	return sizes, shares
}

package tasks

import (
	"cmp"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"gpt2scope/internal/stats"
	"gpt2scope/predict"
)

// Crossover is the size from which on a GPU is faster than the CPU, along a line of shapes that
// differ in one size.
type Crossover struct {
	Machine string         `json:"machine"`
	Task    string         `json:"task"`
	DType   string         `json:"dtype"`
	Line    string         `json:"line"`   // the shape, with * for the size that varies: "n=*"
	Device  string         `json:"device"` // "cuda:0"
	Memory  predict.Memory `json:"memory"` // of the GPU's data
	Faster  string         `json:"faster"` // "cpu", "gpu", or "both": which device is faster where

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

// Lines of shapes that differ in one size, which is a position, or in squares in all three.
func lineOf(s Shape) (line string, size int) {
	vary := map[string]bool{}
	switch {
	case s.Get("m") > 0 && s.Get("m") == s.Get("n") && s.Get("n") == s.Get("k"):
		vary = map[string]bool{"m": true, "n": true, "k": true}
		size = s.Get("m")
	default:
		for _, name := range []string{"t", "m", "n", "past", "b"} {
			if v := s.Get(name); v > 0 {
				vary[name], size = true, v
				break
			}
		}
		if s.Get("past") > 0 && s.Get("t") == 0 { // decode: over the batch
			vary, size = map[string]bool{"b": true}, s.Get("b")
		}
	}
	var parts []string
	for _, d := range s {
		text := Shape{d}.String()
		if vary[d.Name] {
			text = d.Name + "=*"
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, ","), size
}

// curve is the times of a way along a line, by size.
type curve map[int][]float64

// curveKey names a curve.
type curveKey struct {
	machine, task, dtype, line, device string
	memory                             predict.Memory
}

// curves sorts the tuned, warm samples into curves of wall time.
func curves(samples []Sample) map[curveKey]curve {
	out := map[curveKey]curve{}
	for i := range samples {
		s := &samples[i]
		shape, err := ParseShape(s.Shape)
		if err != nil || s.Variant != Tuned || s.Cold || !(s.Us > 0) {
			continue
		}
		line, size := lineOf(shape)
		k := curveKey{s.Machine, s.Task, s.DType, line, s.Device, s.Memory}
		if out[k] == nil {
			out[k] = curve{}
		}
		out[k][size] = append(out[k][size], s.Us)
	}
	return out
}

// resamples is how many bootstrap samples give an interval.
const resamples = 300

// leastSizes is how many sizes two curves must share.
const leastSizes = 3

// Crossovers finds them for each line of shapes and each kind of memory. The interval depends on
// the seed only.
func Crossovers(samples []Sample, seed uint64) []Crossover {
	all := curves(samples)
	out := []Crossover{}
	random := rand.New(rand.NewPCG(seed, 0x63726f7373)) // "cross"
	keys := slices.SortedFunc(maps.Keys(all), func(a, b curveKey) int {
		return cmp.Or(cmp.Compare(a.machine, b.machine), cmp.Compare(a.task, b.task), cmp.Compare(a.dtype, b.dtype), cmp.Compare(a.line, b.line),
			cmp.Compare(a.device, b.device), cmp.Compare(a.memory, b.memory))
	})
	for _, k := range keys {
		if kindOf(k.device) != GPU {
			continue
		}
		host := all[curveKey{k.machine, k.task, k.dtype, k.line, CPU, MemoryHost}]
		gpu := all[k]
		var sizes []int
		for size := range gpu {
			if host[size] != nil {
				sizes = append(sizes, size)
			}
		}
		if len(sizes) < leastSizes {
			continue
		}
		slices.Sort(sizes)
		c := Crossover{Machine: k.machine, Task: k.task, DType: k.dtype, Line: k.line, Device: k.device, Memory: k.memory}
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
		if faster == "both" {
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
		out = append(out, c)
	}
	return out
}

// crossing returns the size at which the log of the ratio of times changes its sign: of all
// changes the one that leaves the least wrong choices, with a straight line between two sizes
// in logarithms.
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

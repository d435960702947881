package predict

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/mat"
)

// Points are places among the features of work, of one kind of memory, each with its part in what the law of a cell leaves in the logarithm of times
// near it: weight / (1 + distance^2), where each feature is divided by its reach (see [Reach]) before the distance is taken. Features
// are log2 of their values, 0 for values below 1 but for floor, bytes and intensity. A list of zeros is left out.
//
// Floor and bytes beyond those of the task that were measured count as the furthest that were: there, time grows by the law alone. Caches make small arrays faster and
// faster than the law, and no array is faster or slower than memory for long.
type Points struct {
	Memory    string    `json:"memory"`
	Floor     []float64 `json:"floor,omitempty"`     // of microseconds
	Rows      []float64 `json:"rows,omitempty"`      // of the largest product
	Steps     []float64 `json:"steps,omitempty"`     // launches, or steps of a plan
	Inner     []float64 `json:"inner,omitempty"`     // the length of a product's sums
	Intensity []float64 `json:"intensity,omitempty"` // FLOPs for each byte
	Bytes     []float64 `json:"bytes,omitempty"`
	Kernel    []float64 `json:"kernel,omitempty"`  // which one multiplies: its number, not log2 of it
	Idle      []float64 `json:"idle,omitempty"`    // threads for each part of a product
	Threads   []float64 `json:"threads,omitempty"` // of the processor
	Weight    []float64 `json:"weight"`

	FloorRange Range `json:"floor_range"` // of the measured work: log2, as in the lists
	BytesRange Range `json:"bytes_range"`
}

// columns lists the features in their order.
func (p *Points) columns() [features]*[]float64 {
	return [features]*[]float64{&p.Floor, &p.Rows, &p.Steps, &p.Inner, &p.Intensity, &p.Bytes, &p.Kernel, &p.Idle, &p.Threads}
}

// maxPoints is the most points of a cell for each kind of memory: predictions visit all of one kind.
const maxPoints = 48

// features is the number of features of a point.
const features = 9

// The features that are bounded, see [Points], and the first of those that many cells have in common for all points.
const (
	ofFloor  = 0
	ofBytes  = 5
	ofKernel = 6
)

// Reach returns the distances in octaves at which a point of a kind of device has half its part, in the order of the features of
// [Points]. On a CPU they lie between those of the functions of the process, which the points stand for all together: see reaches.
func Reach(kind string) [features]float64 {
	if kind == "cuda" {
		return gpuReach
	}
	return [features]float64{10, 10, 16, 16, 8, 7, 1, 5, 10}
}

// gpuReach is that of points and of functions of a GPU, rounded from those with the largest marginal likelihood on the samples of tasks/samples. The kernel and the idle threads
// of a CPU are 0 there.
var gpuReach = [features]float64{8, 4, 16, 20, 4, 4, 1, 1, 5}

// scales are what natural logarithms of features are multiplied by, so that a distance of 1 is the reach.
type scales [features]float64

// scalesOf returns those of points of a kind of device.
func scalesOf(kind string) *scales { return scalesTo(Reach(kind)) }

// scalesTo returns those of reaches. A feature that reaches without end is left out.
func scalesTo(reach [features]float64) *scales {
	var s scales
	for i, r := range reach {
		s[i] = 1 / (math.Ln2 * r)
	}
	return &s
}

// octaves returns the distance of 1 in octaves.
func (s *scales) octaves(feature int) float64 { return 1 / (math.Ln2 * s[feature]) }

// of returns the scaled features of work.
func (s *scales) of(w *Work) (f [features]float64) { return s.with(w, w.FloorUs) }

// with returns the same with another floor.
func (s *scales) with(w *Work, floor float64) (f [features]float64) {
	bytes := log(w.Bytes)
	f = [features]float64{log(floor) * s[0], above1(w.Rows) * s[1], above1(w.Steps) * s[2], above1(w.Inner) * s[3], (log(w.FLOPs) - bytes) * s[4], bytes * s[5],
		w.Kernel * math.Ln2 * s[6], above1(w.Idle) * s[7], above1(w.Threads) * s[8]}
	for i := range f {
		if !(math.Abs(f[i]) <= maxPoint) { // also NaN: work without FLOPs or bytes
			f[i] = 0
		}
	}
	return f
}

// above1 returns the logarithm of what is above 1, else 0.
func above1(v float64) float64 {
	if !(v > 1) {
		return 0
	}
	return log(v)
}

// point is one of Points: its features are scaled.
type point struct {
	at     [features]float64
	weight float64
}

// near is the kernel of the regression, a rational quadratic: 1 at distance 0.
func near(p, o *[features]float64) float64 {
	a, b, c, d := p[0]-o[0], p[1]-o[1], p[2]-o[2], p[3]-o[3]
	e, f, g, h, i := p[4]-o[4], p[5]-o[5], p[6]-o[6], p[7]-o[7], p[8]-o[8]
	return 1 / (1 + (a*a + b*b + c*c + d*d + (e*e + f*f) + (g*g + h*h + i*i)))
}

// local is a sum over the points of each kind of memory.
type local [memories]cloud

// cloud is points, and where work was measured that they were fitted to.
type cloud struct {
	points       []point
	blocks       []block // the points, once they are complete
	floor, bytes Range   // scaled, as features are
}

// at returns the logarithm of the factor for work with these features.
func (l *local) at(memory Memory, here *[features]float64) float64 {
	if memory >= memories {
		return 0
	}
	c := &l[memory]
	p := c.origin(here)
	sum := p.sum(c.blocks)
	if !(math.Abs(sum) <= maxLog) {
		return 0
	}
	return sum
}

// target is a place and what a sum over points should be there.
type target struct {
	at            [features]float64
	value, weight float64
}

// regress returns at most maxPoints of the places of targets, with weights that minimise the weighted sum of squares of
// K w - values, where K is the kernel between all and the chosen points. A small penalty w' P w, with P the kernel between the chosen points, keeps
// weights small (Rasmussen and Williams, "Gaussian Processes for Machine Learning", 2006, section 8.3.1).
func regress(all []target, floor, bytes Range) cloud {
	c := cloud{floor: floor, bytes: bytes}
	chosen := greedy(all)
	n := len(chosen)
	if n == 0 {
		return c
	}
	const penalty, leastPenalty = 1e-3, 1e-6 // the latter keeps the matrix positive definite where points nearly coincide
	normal, right := mat.NewSymDense(n, nil), mat.NewVecDense(n, nil)
	for i := range n {
		for j := range i + 1 {
			normal.SetSym(i, j, penalty*near(&chosen[i].at, &chosen[j].at))
		}
		normal.SetSym(i, i, normal.At(i, i)+leastPenalty)
	}
	k := make([]float64, n)
	for r := range all {
		for i := range chosen {
			k[i] = near(&all[r].at, &chosen[i].at)
		}
		for i := range n {
			right.SetVec(i, right.AtVec(i)+all[r].weight*k[i]*all[r].value)
			for j := range i + 1 {
				normal.SetSym(i, j, normal.At(i, j)+all[r].weight*k[i]*k[j])
			}
		}
	}
	var factor mat.Cholesky
	weights := make([]float64, n)
	if !factor.Factorize(normal) || factor.SolveVecTo(mat.NewVecDense(n, weights), right) != nil {
		return c
	}
	for i := range chosen {
		chosen[i].weight = weights[i]
	}
	c.points, c.blocks = chosen, packed(chosen)
	return c
}

// greedy chooses places one after another, each the one where an interpolation at those before leaves the most, by its weight (R. Schaback and H. Wendland,
// "Adaptive greedy techniques for approximate solution of large RBF systems", 2000). What the process expects has no noise, so that few places where
// it bends are better than places far from each other.
func greedy(all []target) []point {
	const (
		ridge   = 1e-3  // a place is not met exactly, so that two that nearly coincide do not take opposite weights
		settled = ridge // of the kernel that is left at a place: one this near to those before is no candidate
		least   = 1e-4  // of what is left, in logarithm
	)
	left, free := make([]float64, len(all)), make([]float64, len(all)) // of the value, and of the kernel, once those before are subtracted
	for i := range all {
		left[i], free[i] = all[i].value, 1
	}
	var chosen []point
	var before [][]float64 // functions of the places before, orthogonal to each other (Newton's form)
	for len(chosen) < min(maxPoints, len(all)) {
		next, most := -1, least
		for i := range all {
			if v := math.Abs(left[i]) * math.Sqrt(all[i].weight); v > most && free[i] > settled {
				next, most = i, v
			}
		}
		if next < 0 {
			break
		}
		chosen = append(chosen, point{at: all[next].at})
		f, scale := make([]float64, len(all)), 1/math.Sqrt(free[next]+ridge)
		for i := range all {
			f[i] = near(&all[i].at, &all[next].at)
			for _, b := range before {
				f[i] -= b[i] * b[next]
			}
			f[i] *= scale
		}
		part := left[next] * scale
		for i := range all {
			left[i] -= part * f[i]
			free[i] -= f[i] * f[i]
		}
		before = append(before, f)
	}
	return chosen
}

// points returns what the file holds.
func (l *local) points(scale *scales) []Points {
	var out []Points
	for m := range memories {
		if len(l[m].points) == 0 {
			continue
		}
		inOctaves := func(feature int, v float64) float64 { return math.Round(v*scale.octaves(feature)*1e3)/1e3 + 0 }
		extent := func(feature int, e Range) Range {
			return Range{inOctaves(feature, e.Min), inOctaves(feature, e.Max)}
		}
		p := Points{Memory: m.String(), FloorRange: extent(ofFloor, l[m].floor), BytesRange: extent(ofBytes, l[m].bytes)}
		for i, column := range p.columns() {
			some := false
			for _, point := range l[m].points {
				v := inOctaves(i, point.at[i])
				*column = append(*column, v)
				some = some || v != 0
			}
			if !some {
				*column = nil
			}
		}
		for _, point := range l[m].points {
			p.Weight = append(p.Weight, math.Round(point.weight*1e5)/1e5+0)
		}
		out = append(out, p)
	}
	return out
}

// add adds what a file holds, and checks it.
func (l *local) add(p *Points, scale *scales) error {
	m, err := ParseMemory(p.Memory)
	if err != nil {
		return err
	}
	n, c := len(p.Weight), &l[m]
	if n > maxPoints || len(c.points) > 0 {
		return fmt.Errorf("it has more than %d points in %s memory", maxPoints, m)
	}
	for _, e := range []Range{p.FloorRange, p.BytesRange} {
		if !(e.Min <= e.Max && math.Abs(e.Min) <= maxRange && math.Abs(e.Max) <= maxRange) {
			return fmt.Errorf("points in %s memory go from %g to %g", m, e.Min, e.Max)
		}
	}
	c.points = make([]point, n)
	c.floor = Range{p.FloorRange.Min / scale.octaves(ofFloor), p.FloorRange.Max / scale.octaves(ofFloor)}
	c.bytes = Range{p.BytesRange.Min / scale.octaves(ofBytes), p.BytesRange.Max / scale.octaves(ofBytes)}
	for _, weight := range p.Weight {
		if !(math.Abs(weight) <= maxWeight) {
			return fmt.Errorf("the weight of a point is %g; expected -%g to %g", weight, maxWeight, maxWeight)
		}
	}
	for k, column := range p.columns() {
		if len(*column) != n && len(*column) != 0 {
			return fmt.Errorf("of %d points in %s memory %d have a feature", n, m, len(*column))
		}
		for i, v := range *column {
			if !(math.Abs(v) <= maxPoint) {
				return fmt.Errorf("a point holds %g; expected -%d to %d", v, maxPoint, maxPoint)
			}
			c.points[i].at[k] = v / scale.octaves(k)
		}
	}
	for i, weight := range p.Weight {
		c.points[i].weight = weight
	}
	c.blocks = packed(c.points)
	return nil
}

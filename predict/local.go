package predict

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/mat"
)

// Points are places among the features of work, of one kind of memory, each with its part in what the law of a cell leaves in the logarithm of times
// near it: weight / (1 + distance^2), where each feature is divided by its reach (see [Reach]) before the distance is taken. Features
// are log2 of their values, 0 for values below 1 but for floor, bytes and intensity. A list of zeros is left out.
type Points struct {
	Memory    string    `json:"memory"`
	Floor     []float64 `json:"floor,omitempty"`     // of microseconds
	Rows      []float64 `json:"rows,omitempty"`      // of the largest product
	Steps     []float64 `json:"steps,omitempty"`     // launches, or steps of a plan
	Inner     []float64 `json:"inner,omitempty"`     // the length of a product's sums
	Intensity []float64 `json:"intensity,omitempty"` // FLOPs for each byte
	Bytes     []float64 `json:"bytes,omitempty"`
	Threads   []float64 `json:"threads,omitempty"` // of the processor
	Weight    []float64 `json:"weight"`
}

// columns lists the features in their order.
func (p *Points) columns() [features]*[]float64 {
	return [features]*[]float64{&p.Floor, &p.Rows, &p.Steps, &p.Inner, &p.Intensity, &p.Bytes, &p.Threads}
}

// maxPoints is the most points of a cell for each kind of memory: predictions visit all of one kind.
const maxPoints = 48

// features is the number of features of a point.
const features = 7

// ofThreads is the feature that is the number of threads.
const ofThreads = features - 1

// Reach returns the distances in octaves at which a point of a kind of device has half its part, in the order of the features of
// [Points]. They are rounded from those with the largest marginal likelihood on the samples of tasks/samples.
func Reach(kind string) [features]float64 {
	if kind == "cuda" {
		return [features]float64{8, 4, 16, 20, 4, 4, 5}
	}
	return [features]float64{10, 12, 16, 8, 10, 7, 5}
}

// scales are what natural logarithms of features are multiplied by, so that a distance of 1 is the reach.
type scales [features]float64

// scalesOf returns those of a kind of device.
func scalesOf(kind string) *scales {
	var s scales
	for i, reach := range Reach(kind) {
		s[i] = 1 / (math.Ln2 * reach)
	}
	return &s
}

// octaves returns the distance of 1 in octaves.
func (s *scales) octaves(feature int) float64 { return 1 / (math.Ln2 * s[feature]) }

// of returns the scaled features of work.
func (s *scales) of(w *Work) (f [features]float64) { return s.with(w, w.FloorUs) }

// with returns the same with another floor.
func (s *scales) with(w *Work, floor float64) (f [features]float64) {
	bytes := math.Log(w.Bytes)
	f = [features]float64{math.Log(floor) * s[0], above1(w.Rows) * s[1], above1(w.Steps) * s[2], above1(w.Inner) * s[3], (math.Log(w.FLOPs) - bytes) * s[4], bytes * s[5], above1(w.Threads) * s[6]}
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
	if n := int(v); n < len(logs) && float64(n) == v {
		return logs[n]
	}
	return math.Log(v)
}

// logs are the logarithms of small numbers: rows, steps and threads are mostly some.
var logs = func() (l [1024]float64) {
	for n := range l[1:] {
		l[n+1] = math.Log(float64(n + 1))
	}
	return l
}()

// point is one of Points as predictions use it: its features are scaled.
type point struct {
	at     [features]float64
	weight float64
	square float64 // of its distance from 0: see set
}

// set sets the weight, and what follows from the place.
func (p *point) set(weight float64) {
	p.weight, p.square = weight, 0
	for _, v := range p.at {
		p.square += v * v
	}
}

// near is the kernel of the regression, a rational quadratic: 1 at distance 0.
func near(p, o *[features]float64) float64 {
	a, b, c, d := p[0]-o[0], p[1]-o[1], p[2]-o[2], p[3]-o[3]
	e, f, g := p[4]-o[4], p[5]-o[5], p[6]-o[6]
	return 1 / (1 + (a*a + b*b + c*c + d*d + (e*e + f*f + g*g)))
}

// local is a sum over the points of each kind of memory.
type local [memories][]point

// at returns the logarithm of the factor for work with these features.
func (l *local) at(memory Memory, here *[features]float64) float64 {
	if memory >= memories {
		return 0
	}
	// near, where the squared distance of p and h is p p - 2 p h + h h, of which p p is known before: this takes half the time.
	sum, own := 0.0, 1.0
	for _, v := range here {
		own += v * v
	}
	h0, h1, h2, h3, h4, h5, h6 := -2*here[0], -2*here[1], -2*here[2], -2*here[3], -2*here[4], -2*here[5], -2*here[6]
	for i := range l[memory] {
		p := &l[memory][i]
		sum += p.weight / ((own + p.square + p.at[0]*h0 + p.at[1]*h1) + (p.at[2]*h2 + p.at[3]*h3) + (p.at[4]*h4 + p.at[5]*h5 + p.at[6]*h6))
	}
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
func regress(all []target) []point {
	chosen := farthest(all)
	n := len(chosen)
	if n == 0 {
		return nil
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
		return nil
	}
	for i := range chosen {
		chosen[i].set(weights[i])
	}
	return chosen
}

// farthest chooses places one after another, each the one that is furthest from those before, by the kernel and its weight.
func farthest(all []target) []point {
	var chosen []point
	nearest := make([]float64, len(all)) // of the chosen ones, by the kernel
	far := func(i int) float64 { return (1 - nearest[i]) * all[i].weight }
	for len(chosen) < min(maxPoints, len(all)) {
		next := 0
		for i := range all {
			if far(i) > far(next) {
				next = i
			}
		}
		if far(next) < 1e-9 { // the others coincide with chosen ones
			break
		}
		chosen = append(chosen, point{at: all[next].at})
		for i := range all {
			nearest[i] = max(nearest[i], near(&all[i].at, &all[next].at))
		}
	}
	return chosen
}

// points returns what the file holds.
func (l *local) points(scale *scales) []Points {
	var out []Points
	for m := range memories {
		if len(l[m]) == 0 {
			continue
		}
		p := Points{Memory: m.String()}
		for i, column := range p.columns() {
			some := false
			for _, point := range l[m] {
				v := math.Round(point.at[i]*scale.octaves(i)*1e3)/1e3 + 0
				*column = append(*column, v)
				some = some || v != 0
			}
			if !some {
				*column = nil
			}
		}
		for _, point := range l[m] {
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
	n := len(p.Weight)
	if n > maxPoints || len(l[m]) > 0 {
		return fmt.Errorf("it has more than %d points in %s memory", maxPoints, m)
	}
	l[m] = make([]point, n)
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
			l[m][i].at[k] = v / scale.octaves(k)
		}
	}
	for i, weight := range p.Weight {
		l[m][i].set(weight)
	}
	return nil
}

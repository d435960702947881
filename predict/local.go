package predict

import (
	"math"

	"gonum.org/v1/gonum/mat"
)

// Point is measured work on a device, with its part in what law and correction leave in the logarithm of
// times near it: Weight / (1 + distance^2 / 4), with the distance in octaves.
type Point struct {
	Memory string  `json:"memory"`
	Floor  float64 `json:"floor"` // log2 of microseconds
	Rows   float64 `json:"rows"`  // log2 of the number, 0 for fewer than 1, as the next two
	Steps  float64 `json:"steps"`
	Inner  float64 `json:"inner"` // of the length of a product's sums
	Weight float64 `json:"weight"`
}

// maxPoints is the most points of a cell for each kind of memory: predictions visit all of one kind.
const maxPoints = 32

// reach is the distance in octaves at which a point has half its part.
const reach = 2.0

// ridges are the penalties of the weights that a fit tries. The last is no points.
var ridges = []float64{0.1, 0.3, 1, math.Inf(1)}

// point is a Point as predictions use it.
type point struct{ floor, rows, steps, inner, weight float64 }

// near is the kernel of the regression, a rational quadratic: 1 at distance 0.
func (p *point) near(o *point) float64 {
	a, b, c, d := p.floor-o.floor, p.rows-o.rows, p.steps-o.steps, p.inner-o.inner
	return 1 / (1 + (a*a+b*b+c*c+d*d)/(reach*reach))
}

// local is a sum over the points of each kind of memory.
type local [memories][]point

func pointOf(o *octaves) point {
	return point{floor: o.floor, rows: o.rows, steps: o.steps, inner: o.inner}
}

// at returns the logarithm of the factor for work.
func (l *local) at(memory Memory, o *octaves) float64 {
	if memory >= memories || len(l[memory]) == 0 {
		return 0
	}
	here, sum, points := pointOf(o), 0.0, l[memory]
	for i := range points {
		sum += points[i].weight * here.near(&points[i])
	}
	if !(math.Abs(sum) <= maxLocal) { // also NaN
		return 0
	}
	return sum
}

// maxLocal bounds the logarithm of the factor, and of what it is fitted to: a factor of e.
const maxLocal = 1

// fitLocal fits points to what law and correction of a cell leave in warm measurements, by a kernel ridge regression on at
// most maxPoints of them (Rasmussen and Williams, "Gaussian Processes for Machine Learning", 2006, section 8.3.1).
func fitLocal(rows []Row, c *Cell, ridge float64) (l local) {
	if math.IsInf(ridge, 1) {
		return l
	}
	for m := range memories {
		var all []point
		var left []float64
		for i := range rows {
			w := &rows[i].Work
			if w.Memory != m || w.FloorUs <= 0 {
				continue
			}
			o := octavesOf(w)
			all = append(all, pointOf(&o))
			left = append(left, max(-maxLocal, min(maxLocal, math.Log(rows[i].Us/c.time(w)))))
		}
		l[m] = regress(all, left, ridge)
	}
	return l
}

// regress returns the points that are furthest from each other, with weights that minimise
// |K w - values|^2 + ridge w' P w, where K is the kernel between all and the chosen points, P between these.
func regress(all []point, values []float64, ridge float64) []point {
	chosen := farthest(all)
	n := len(chosen)
	if n == 0 {
		return nil
	}
	const leastPenalty = 1e-6 // keeps the matrix positive definite where points nearly coincide
	normal, right := mat.NewSymDense(n, nil), mat.NewVecDense(n, nil)
	for i := range n {
		for j := range i + 1 {
			normal.SetSym(i, j, ridge*chosen[i].near(&chosen[j]))
		}
		normal.SetSym(i, i, normal.At(i, i)+leastPenalty)
	}
	k := make([]float64, n)
	for r := range all {
		for i := range chosen {
			k[i] = all[r].near(&chosen[i])
		}
		for i := range n {
			right.SetVec(i, right.AtVec(i)+k[i]*values[r])
			for j := range i + 1 {
				normal.SetSym(i, j, normal.At(i, j)+k[i]*k[j])
			}
		}
	}
	var factor mat.Cholesky
	weights := make([]float64, n)
	if !factor.Factorize(normal) || factor.SolveVecTo(mat.NewVecDense(n, weights), right) != nil {
		return nil
	}
	for i := range chosen {
		chosen[i].weight = weights[i]
	}
	return chosen
}

// farthest chooses points one after another, each the one that is furthest from those before.
func farthest(all []point) []point {
	var chosen []point
	nearest := make([]float64, len(all)) // of the chosen ones, by the kernel
	for len(chosen) < min(maxPoints, len(all)) {
		next := 0
		for i := range all {
			if nearest[i] < nearest[next] {
				next = i
			}
		}
		if nearest[next] > 1-1e-9 { // the others coincide with chosen ones
			break
		}
		chosen = append(chosen, all[next])
		for i := range all {
			nearest[i] = max(nearest[i], all[i].near(&all[next]))
		}
	}
	return chosen
}

// points returns what the file holds.
func (l *local) points() []Point {
	round := func(v float64) float64 { return math.Round(v*1e4)/1e4 + 0 }
	var out []Point
	for m := range memories {
		for _, p := range l[m] {
			out = append(out, Point{m.String(), round(p.floor), round(p.rows), round(p.steps), round(p.inner), math.Round(p.weight*1e6)/1e6 + 0})
		}
	}
	return out
}

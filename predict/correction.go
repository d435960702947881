package predict

import (
	"errors"
	"math"
	"slices"

	"gonum.org/v1/gonum/mat"
)

// A correction is a factor to a law's time, as the sum of a constant, a term for each kind of
// memory, and four piecewise linear functions, of log2 of floor, rows, bytes, and FLOPs
// for each byte. Its coefficients
// are values of these functions at knots, in natural logarithm.
type correction [terms]float64

// spline is a piecewise linear function with a knot each octave.
type spline struct {
	at    int     // of the first coefficient in a correction
	first float64 // log2 of the argument at the first knot
	knots int

	penalty float64 // of a coefficient
	smooth  bool    // differences of neighbours have a penalty too
}

const (
	memoryAt    = 1
	floorAt     = memoryAt + int(memories)
	rowsAt      = floorAt + 31
	bytesAt     = rowsAt + 17
	intensityAt = bytesAt + 29
	terms       = intensityAt + 15
)

var (
	ofFloor     = spline{floorAt, -6, 31, knotPenalty, true}     // 16 ns to 17 s
	ofRows      = spline{rowsAt, 0, 17, knotPenalty, true}       // 1 to 65536
	ofBytes     = spline{bytesAt, 8, 29, knotPenalty, true}      // 256 bytes to 64 GiB
	ofIntensity = spline{intensityAt, -4, 15, knotPenalty, true} // 1/16 to 1024 FLOPs for each byte

	// splines lists all functions; the constant and the kinds of memory are two without smoothness.
	splines = []spline{{0, 0, 1, constantPenalty, false}, {memoryAt, 0, int(memories), memoryPenalty, false}, ofFloor, ofRows, ofBytes, ofIntensity}
)

// octaves are what functions of work take: log2 of its features. Rows, steps and inner are 0 up to 1.
type octaves struct{ floor, rows, bytes, intensity, steps, inner float64 }

func octavesOf(w *Work) octaves {
	return octaves{math.Log2(w.FloorUs), log2(w.Rows), math.Log2(w.Bytes), math.Log2(w.FLOPs / w.Bytes), log2(w.Steps), log2(w.Inner)}
}

// log2 returns the logarithm of what is above 1, else 0.
func log2(v float64) float64 {
	if v > 1 {
		return math.Log2(v)
	}
	return 0
}

// locate returns the knot at or below v, and how far v lies towards the next, 0 to 1. Beyond
// the ends the function is constant.
func (s *spline) locate(v float64) (knot int, part float64) {
	p := v - s.first
	if !(p > 0) { // also NaN
		return s.at, 0
	}
	if last := float64(s.knots - 1); p >= last {
		return s.at + s.knots - 2, 1
	}
	knot = int(p)
	return s.at + knot, p - float64(knot)
}

// at returns the logarithm of the factor for work.
func (c *correction) at(memory Memory, o *octaves) float64 {
	sum := c[0]
	if memory < memories {
		sum += c[memoryAt+int(memory)]
	}
	k, p := ofFloor.locate(o.floor)
	sum += c[k]*(1-p) + c[k+1]*p
	k, p = ofRows.locate(o.rows)
	sum += c[k]*(1-p) + c[k+1]*p
	k, p = ofBytes.locate(o.bytes)
	sum += c[k]*(1-p) + c[k+1]*p
	k, p = ofIntensity.locate(o.intensity)
	return sum + c[k]*(1-p) + c[k+1]*p
}

// share is what a coefficient is multiplied by.
type share struct {
	term int
	of   float64
}

// shares lists the coefficients that work has: at as a sum.
func shares(w *Work) []share {
	out := []share{{0, 1}}
	if w.Memory < memories {
		out = append(out, share{memoryAt + int(w.Memory), 1})
	}
	o := octavesOf(w)
	for _, s := range []struct {
		spline *spline
		v      float64
	}{{&ofFloor, o.floor}, {&ofRows, o.rows}, {&ofBytes, o.bytes}, {&ofIntensity, o.intensity}} {
		k, p := s.spline.locate(s.v)
		out = append(out, share{k, 1 - p}, share{k + 1, p})
	}
	return out
}

// sum returns the logarithm of the factor.
func (c *correction) sum(of []share) (sum float64) {
	for _, s := range of {
		sum += c[s.term] * s.of
	}
	return sum
}

// Penalties of the correction, (noise / expected size)^2: of the constant, of a kind of memory, of
// the value at a knot, and of the difference of neighbouring knots (Eilers and Marx, "Flexible
// smoothing with B-splines and penalties", 1996).
const (
	constantPenalty   = 0.05
	memoryPenalty     = 0.5
	knotPenalty       = 0.02
	differencePenalty = 1
)

// scales of the penalties that a fit tries; with infinity there is no correction but that of the level before.
var scales = []float64{0.25, 1, 4, 16, math.Inf(1)}

// fitCorrection fits a correction, near that of the level before, to the logarithms of measured over the law's time.
func fitCorrection(rows []Row, weights []float64, law *Law, near *correction, scale float64) (c correction, err error) {
	n := len(rows)
	if n == 0 || math.IsInf(scale, 1) {
		return *near, nil
	}
	x, y, trust := make([][]share, n), make([]float64, n), slices.Clone(weights)
	for i := range rows {
		t := law.Time(&rows[i].Work)
		if !(t > 0) {
			t = 1e-3
		}
		x[i] = shares(&rows[i].Work)
		y[i] = math.Log(rows[i].Us/t) - near.sum(x[i])
	}
	// Coefficients between the first and the last that the rows have, of each function.
	var place [terms]int // of a coefficient among the fitted ones, from 1 on
	fitted := 0
	for _, s := range splines {
		first, last := terms, -1
		for i := range x {
			for _, a := range x[i] {
				if a.term >= s.at && a.term < s.at+s.knots {
					first, last = min(first, a.term), max(last, a.term)
				}
			}
		}
		for k := first; k <= last; k++ {
			fitted++
			place[k] = fitted
		}
	}
	penalty := mat.NewSymDense(fitted, nil)
	add := func(i, j int, v float64) {
		if i, j = place[i]-1, place[j]-1; i >= 0 && j >= 0 {
			penalty.SetSym(i, j, penalty.At(i, j)+scale*v)
		}
	}
	for _, s := range splines {
		for k := s.at; k < s.at+s.knots; k++ {
			add(k, k, s.penalty)
			if s.smooth && k > s.at && place[k-1] > 0 && place[k] > 0 {
				add(k, k, differencePenalty)
				add(k-1, k-1, differencePenalty)
				add(k-1, k, -differencePenalty)
			}
		}
	}
	for i := range x {
		for k := range x[i] {
			x[i][k].term = place[x[i][k].term] - 1
		}
	}
	delta := make([]float64, fitted)
	for range 3 {
		// (X' W X + P) delta = X' W y
		normal, right := mat.NewSymDense(fitted, nil), mat.NewVecDense(fitted, nil)
		normal.CopySym(penalty)
		sums := normal.RawSymmetric() // the upper triangle
		for i := range n {
			for _, a := range x[i] {
				right.SetVec(a.term, right.AtVec(a.term)+trust[i]*a.of*y[i])
				for _, b := range x[i] {
					if b.term >= a.term {
						sums.Data[a.term*sums.Stride+b.term] += trust[i] * a.of * b.of
					}
				}
			}
		}
		var factor mat.Cholesky
		if !factor.Factorize(normal) || factor.SolveVecTo(mat.NewVecDense(fitted, delta), right) != nil {
			return c, errors.New("the correction cannot be fitted: the data may hold extreme values")
		}
		for i := range n {
			trust[i] = weights[i]
			miss := y[i]
			for _, a := range x[i] {
				miss -= a.of * delta[a.term]
			}
			if miss = math.Abs(miss); miss > huberAt {
				trust[i] *= huberAt / miss
			}
		}
	}
	// Beyond the ends a function stays as far from that of the level before as at the end.
	c = *near
	for _, s := range splines {
		at := 0
		for k := s.at; k < s.at+s.knots; k++ {
			if place[k] > 0 {
				at = place[k]
			} else if at == 0 && s.smooth {
				for next := k; at == 0 && next < s.at+s.knots; next++ {
					at = place[next]
				}
			}
			if at > 0 && (s.smooth || place[k] > 0) {
				c[k] = max(-maxLog, min(maxLog, c[k]+delta[at-1]))
			}
		}
	}
	return c, nil
}

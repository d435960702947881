package predict

import (
	"errors"
	"math"

	"gonum.org/v1/gonum/mat"
)

// A correction is a factor to a law's time, as the sum of a constant, a term for each kind of
// memory, and three piecewise linear functions, of log2 of floor, rows and bytes. Its coefficients
// are values of these functions at knots, in natural logarithm.
type correction [terms]float64

// spline is a piecewise linear function with a knot each two octaves.
type spline struct {
	at    int     // of the first coefficient in a correction
	first float64 // log2 of the argument at the first knot
	knots int
}

const (
	memoryAt = 1
	floorAt  = memoryAt + int(memories)
	rowsAt   = floorAt + 16
	bytesAt  = rowsAt + 9
	terms    = bytesAt + 15
	octaves  = 2.0 // between knots
)

var (
	ofFloor = spline{floorAt, -6, 16} // 16 ns to 17 s
	ofRows  = spline{rowsAt, 0, 9}    // 1 to 65536
	ofBytes = spline{bytesAt, 8, 15}  // 256 bytes to 64 GiB
)

// locate returns the knot at or below log2(v), and how far v lies towards the next, 0 to 1. Beyond
// the ends the function is constant.
func (s *spline) locate(v float64) (knot int, part float64) {
	p := (math.Log2(v) - s.first) / octaves
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
func (c *correction) at(w *Work) float64 {
	sum := c[0]
	if w.Memory < memories {
		sum += c[memoryAt+int(w.Memory)]
	}
	k, p := ofFloor.locate(w.FloorUs)
	sum += c[k]*(1-p) + c[k+1]*p
	k, p = ofRows.locate(w.Rows)
	sum += c[k]*(1-p) + c[k+1]*p
	k, p = ofBytes.locate(w.Bytes)
	return sum + c[k]*(1-p) + c[k+1]*p
}

// row returns what each coefficient is multiplied by: at as a vector.
func row(w *Work) (x correction) {
	x[0] = 1
	if w.Memory < memories {
		x[memoryAt+int(w.Memory)] = 1
	}
	k, p := ofFloor.locate(w.FloorUs)
	x[k], x[k+1] = 1-p, p
	k, p = ofRows.locate(w.Rows)
	x[k], x[k+1] = 1-p, p
	k, p = ofBytes.locate(w.Bytes)
	x[k], x[k+1] = 1-p, p
	return x
}

// Penalties of the correction, (noise / expected size)^2: of the constant, of a kind of memory, of
// the value at a knot, and of the difference of neighbouring knots (Eilers and Marx, "Flexible
// smoothing with B-splines and penalties", 1996).
const (
	constantPenalty   = 0.05
	memoryPenalty     = 0.5
	knotPenalty       = 0.1
	differencePenalty = 0.5
)

// fitCorrection fits a correction, near that of the level before, to the logarithms of measured over the law's time.
func fitCorrection(rows []Row, weights []float64, law *Law, near *correction) (c correction, err error) {
	n := len(rows)
	if n == 0 {
		return *near, nil
	}
	x, y, trust := mat.NewDense(n, terms, nil), make([]float64, n), make([]float64, n)
	for i := range rows {
		t := law.Time(&rows[i].Work)
		if !(t > 0) {
			t = 1e-3
		}
		r := row(&rows[i].Work)
		x.SetRow(i, r[:])
		y[i], trust[i] = math.Log(rows[i].Us/t)-near.at(&rows[i].Work), weights[i]
	}
	penalty := mat.NewSymDense(terms, nil)
	add := func(i, j int, v float64) { penalty.SetSym(i, j, penalty.At(i, j)+v) }
	add(0, 0, constantPenalty)
	for j := memoryAt; j < floorAt; j++ {
		add(j, j, memoryPenalty)
	}
	for _, s := range []spline{ofFloor, ofRows, ofBytes} {
		for k := s.at; k < s.at+s.knots; k++ {
			add(k, k, knotPenalty)
			if k > s.at {
				add(k, k, differencePenalty)
				add(k-1, k-1, differencePenalty)
				add(k-1, k, -differencePenalty)
			}
		}
	}
	delta := mat.NewVecDense(terms, nil)
	for range 3 {
		// (X' W X + P) delta = X' W y
		normal, right := mat.NewSymDense(terms, nil), mat.NewVecDense(terms, nil)
		normal.CopySym(penalty)
		for i := range n {
			normal.SymRankOne(normal, trust[i], x.RowView(i))
			right.AddScaledVec(right, trust[i]*y[i], x.RowView(i))
		}
		var factor mat.Cholesky
		if !factor.Factorize(normal) || factor.SolveVecTo(delta, right) != nil {
			return c, errors.New("the correction cannot be fitted: the data may hold extreme values")
		}
		for i := range n {
			trust[i] = weights[i]
			if miss := math.Abs(y[i] - mat.Dot(x.RowView(i), delta)); miss > huberAt {
				trust[i] *= huberAt / miss
			}
		}
	}
	for j := range c {
		c[j] = near[j] + delta.AtVec(j)
	}
	return c, nil
}

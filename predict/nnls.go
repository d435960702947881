package predict

import (
	"errors"
	"math"

	"gonum.org/v1/gonum/mat"
)

// NNLS returns the x that minimises |A x - b| with no element below 0, by the active-set
// method of Lawson and Hanson ("Solving Least Squares Problems", 1974, chapter 23). A is (m, n),
// row after row; b has m elements. Of columns that depend on each other some get 0.
func NNLS(a *mat.Dense, b []float64) ([]float64, error) {
	m, n := a.Dims()
	if m != len(b) {
		return nil, errors.New("NNLS: A and b have different numbers of rows")
	}
	// Columns are scaled to norm 1, so that tolerances mean the same for each.
	scaled, scale := mat.DenseCopyOf(a), make([]float64, n)
	for j := range n {
		scale[j] = mat.Norm(a.ColView(j), 2)
		if math.IsNaN(scale[j]) || math.IsInf(scale[j], 0) {
			return nil, errors.New("NNLS: A has an element that is not a finite number")
		}
		for i := range m {
			if scale[j] > 0 {
				scaled.Set(i, j, a.At(i, j)/scale[j])
			}
		}
	}
	norm := mat.Norm(mat.NewVecDense(m, b), 2)
	if math.IsNaN(norm) || math.IsInf(norm, 0) {
		return nil, errors.New("NNLS: b has an element that is not a finite number")
	}
	if m > n+1 { // |A x - b| and |R x - r| are least for the same x, where (R r) is the triangle of (A b), of n+1 rows
		var both, triangle mat.Dense
		both.Augment(scaled, mat.NewVecDense(m, b))
		var qr mat.QR
		qr.Factorize(&both)
		qr.RTo(&triangle)
		scaled, b = mat.DenseCopyOf(triangle.Slice(0, n+1, 0, n)), mat.Col(nil, n, triangle.Slice(0, n+1, 0, n+1))
	}
	x, free, dependent := make([]float64, n), make([]bool, n), make([]bool, n)
	gradient := mat.NewVecDense(n, nil)
	for range 3*n + 10 {
		gradient.MulVec(scaled.T(), residual(scaled, x, b))
		next, most := -1, 1e-10*norm
		for j := range n {
			if g := gradient.AtVec(j); !free[j] && !dependent[j] && scale[j] > 0 && g > most {
				next, most = j, g
			}
		}
		if next < 0 {
			for j := range n {
				if scale[j] > 0 {
					x[j] /= scale[j]
				}
			}
			return x, nil
		}
		free[next] = true
		for range n + 1 {
			z, ok := leastSquares(scaled, free, b)
			if !ok || x[next] == 0 && z[next] <= 0 { // rounding: the column is a sum of others
				free[next], dependent[next] = false, true
				break
			}
			// As far from x towards z as no element falls below 0.
			step, stop := 1.0, -1
			for j := range n {
				if free[j] && z[j] <= 0 {
					if s := x[j] / (x[j] - z[j]); s <= step {
						step, stop = s, j
					}
				}
			}
			for j := range n {
				if free[j] {
					x[j] += step * (z[j] - x[j])
				}
			}
			if stop < 0 {
				clear(dependent)
				break
			}
			for j := range n {
				if free[j] && (j == stop || x[j] <= 0) {
					x[j], free[j] = 0, false
				}
			}
		}
	}
	return nil, errors.New("NNLS: no solution was found; the data may hold extreme values")
}

// residual returns b - A x.
func residual(a *mat.Dense, x, b []float64) *mat.VecDense {
	r := mat.NewVecDense(len(b), nil)
	r.MulVec(a, mat.NewVecDense(len(x), x))
	r.SubVec(mat.NewVecDense(len(b), b), r)
	return r
}

// leastSquares solves for the free columns; ok is false if they depend on each other.
func leastSquares(a *mat.Dense, free []bool, b []float64) (x []float64, ok bool) {
	m, n := a.Dims()
	var columns []int
	for j, f := range free {
		if f {
			columns = append(columns, j)
		}
	}
	if len(columns) > m {
		return nil, false
	}
	part := mat.NewDense(m, len(columns), nil)
	for k, j := range columns {
		part.SetCol(k, mat.Col(nil, j, a))
	}
	var qr mat.QR
	qr.Factorize(part)
	if qr.Cond() > 1e10 {
		return nil, false
	}
	var z mat.VecDense
	if qr.SolveVecTo(&z, false, mat.NewVecDense(m, b)) != nil {
		return nil, false
	}
	x = make([]float64, n)
	for k, j := range columns {
		x[j] = z.AtVec(k)
	}
	return x, true
}

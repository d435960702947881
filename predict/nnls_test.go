package predict

import (
	"math"
	"math/rand/v2"
	"testing"

	"gonum.org/v1/gonum/mat"
)

// Solutions satisfy the conditions of Karush, Kuhn and Tucker: x >= 0, the gradient of an element
// above 0 is 0, and of one at 0 it is not descending. Those hold for the minimum and for nothing else.
func TestNNLSConditions(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	atZero, above := 0, 0
	for range 200 {
		m, n := 1+random.IntN(30), 1+random.IntN(8)
		a, b := mat.NewDense(m, n, nil), make([]float64, m)
		for i := range m {
			b[i] = random.NormFloat64()
			for j := range n {
				a.Set(i, j, random.NormFloat64()*math.Pow(10, float64(j%4*3))) // columns of very different units
			}
			if n > 2 && random.IntN(2) == 0 {
				a.Set(i, 2, 2*a.At(i, 0)) // and some that nearly depend on others
			}
		}
		x, err := NNLS(a, b)
		if err != nil {
			t.Fatal(err)
		}
		r := residual(a, x, b)
		for j := range n {
			norm := mat.Norm(a.ColView(j), 2)
			gradient := mat.Dot(a.ColView(j), r) / max(norm, 1e-300)
			switch {
			case x[j] < 0:
				t.Errorf("x[%d] = %g of %dx%d", j, x[j], m, n)
			case x[j] == 0:
				atZero++
				if gradient > 1e-7 {
					t.Errorf("x[%d] is 0 and would be better above, gradient %g, of %dx%d", j, gradient, m, n)
				}
			case math.Abs(gradient) > 1e-7:
				t.Errorf("x[%d] = %g is not at the minimum, gradient %g, of %dx%d", j, x[j], gradient, m, n)
			default:
				above++
			}
		}
	}
	if atZero < 100 || above < 100 {
		t.Errorf("%d elements at 0 and %d above: the test should have many of both", atZero, above)
	}
}

// Where the unconstrained solution has no negative element, it is the solution.
func TestNNLSExact(t *testing.T) {
	a := mat.NewDense(4, 2, []float64{1, 1, 1, 2, 1, 3, 1, 4})
	x, err := NNLS(a, []float64{5, 7, 9, 11})
	if err != nil || math.Abs(x[0]-3) > 1e-9 || math.Abs(x[1]-2) > 1e-9 {
		t.Errorf("got %v, %v; want [3 2]", x, err)
	}
	x, err = NNLS(a, []float64{-1, 1, 3, 5}) // the line has intercept -3
	if err != nil || x[0] != 0 || math.Abs(x[1]-1) > 1e-9 {
		t.Errorf("got %v, %v; want [0 1]", x, err)
	}
}

// Bad input is an error, and columns without data or that depend on each other are not.
func TestNNLSBadInput(t *testing.T) {
	for _, bad := range []float64{math.NaN(), math.Inf(1)} {
		if _, err := NNLS(mat.NewDense(2, 1, []float64{1, bad}), []float64{1, 1}); err == nil {
			t.Errorf("A with %g was taken", bad)
		}
		if _, err := NNLS(mat.NewDense(2, 1, []float64{1, 2}), []float64{bad, 1}); err == nil {
			t.Errorf("b with %g was taken", bad)
		}
	}
	if _, err := NNLS(mat.NewDense(2, 1, []float64{1, 2}), []float64{1}); err == nil {
		t.Error("b of another length was taken")
	}
	x, err := NNLS(mat.NewDense(2, 3, []float64{1, 1, 0, 2, 2, 0}), []float64{2, 4})
	if err != nil || math.Abs(x[0]+x[1]-2) > 1e-9 || x[2] != 0 {
		t.Errorf("got %v, %v; want a sum of 2 and 0", x, err)
	}
}

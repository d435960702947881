package layers

import (
	"math"
	"testing"
)

func near(t *testing.T, what string, have, want, tolerance float64) {
	t.Helper()
	if !(math.Abs(have-want) <= tolerance) {
		t.Errorf("%s is %v, not %v", what, have, want)
	}
}

// The standard errors and the prediction interval of a line, worked out by hand of the textbook's formulas: x = 1..5, y
// = 2, 4, 5, 4, 5. Then mean x = 3, mean y = 4, Sxx = 10, Sxy = 6, so B = 0.6, A = 2.2; residuals -0.8, 0.6, 1, -0.6,
// -0.2, whose squares sum to 2.4; s^2 = 2.4/3 = 0.8; se(B) = sqrt(0.8/10); se(A) = sqrt(0.8 * 55/(5*10)); the total sum
// of squares is 6, R^2 = 1 - 2.4/6. t(3) at 97.5 % is 3.182446.
func TestLineByHand(t *testing.T) {
	l, ok := fitLine([]float64{1, 2, 3, 4, 5}, []float64{2, 4, 5, 4, 5})
	if !ok {
		t.Fatal("no line")
	}
	near(t, "A", l.A, 2.2, 1e-12)
	near(t, "B", l.B, 0.6, 1e-12)
	near(t, "standard error of A", l.AError, math.Sqrt(0.88), 1e-12)
	near(t, "standard error of B", l.BError, math.Sqrt(0.08), 1e-12)
	near(t, "R2", l.R2, 0.6, 1e-12)
	for i, want := range []float64{-0.8, 0.6, 1, -0.6, -0.2} {
		near(t, "residual", l.Residuals[i], want, 1e-12)
	}
	value, low, high := l.predict(6)
	d := 3.182446305284263 * math.Sqrt(0.8*(1+1./5+9./10))
	near(t, "value", value, 5.8, 1e-12)
	near(t, "low", low, 5.8-d, 1e-6)
	near(t, "high", high, 5.8+d, 1e-6)
}

func TestLineNeedsThreePlaces(t *testing.T) {
	for _, x := range [][]float64{{}, {1}, {1, 2}, {1, 1, 2, 2}} {
		if _, ok := fitLine(x, make([]float64, len(x))); ok {
			t.Errorf("a line through %v", x)
		}
	}
	l, ok := fitLine([]float64{1, 2, 3}, []float64{7, 7, 7})
	if !ok || l.B != 0 || l.A != 7 || math.IsNaN(l.R2) || math.IsNaN(l.BError) {
		t.Errorf("%+v, %v", l, ok)
	}
}

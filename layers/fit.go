package layers

import (
	"math"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// confidence is the level of every interval of this package.
const confidence = 0.95

// fitLine fits the line to points by ordinary least squares, with its standard errors and residuals (Draper and Smith,
// "Applied Regression Analysis", 1998, chapter 1). ok is false without three different x, which standard errors take.
func fitLine(x, y []float64) (l Fit, ok bool) {
	different := map[float64]bool{}
	for _, v := range x {
		different[v] = true
	}
	if len(x) != len(y) || len(different) < 3 {
		return l, false
	}
	l.n = len(x)
	l.A, l.B = stat.LinearRegression(x, y, nil, false)
	l.R2 = stat.RSquared(x, y, nil, l.A, l.B)
	if math.IsNaN(l.R2) || math.IsInf(l.R2, 0) { // all y are equal: the line explains them fully
		l.R2 = 1
	}
	l.mean = stat.Mean(x, nil)
	var squares, ofX float64
	for i := range x {
		r := y[i] - l.A - l.B*x[i]
		l.Residuals = append(l.Residuals, r)
		squares += r * r
		l.spread += (x[i] - l.mean) * (x[i] - l.mean)
		ofX += x[i] * x[i]
	}
	l.scatter = math.Sqrt(squares / float64(l.n-2))
	l.BError = l.scatter / math.Sqrt(l.spread)
	l.AError = l.scatter * math.Sqrt(ofX/(float64(l.n)*l.spread))
	return l, true
}

// predict returns the line at x, and the interval in which another measurement there lies with 95 % confidence:
//
//	A + B x ± t(n-2) s sqrt(1 + 1/n + (x - mean)^2 / sum (x_i - mean)^2)
func (l *Fit) predict(x float64) (value, low, high float64) {
	t := distuv.StudentsT{Mu: 0, Sigma: 1, Nu: float64(l.n - 2)}.Quantile((1 + confidence) / 2)
	value = l.A + l.B*x
	d := t * l.scatter * math.Sqrt(1+1/float64(l.n)+(x-l.mean)*(x-l.mean)/l.spread)
	return value, value - d, value + d
}

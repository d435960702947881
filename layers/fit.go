package layers

import (
	"errors"
	"math"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// confidence is the level of every interval of this package.
const confidence = 0.95

// Line is y = A + B x by ordinary least squares, with its standard errors and residuals (Draper and Smith, "Applied
// Regression Analysis", 1998, chapter 1).
type Line struct {
	A, B           float64
	AError, BError float64 // standard errors
	R2             float64
	Residuals      []float64 // y minus the line

	n       int
	mean    float64 // of x
	spread  float64 // sum of (x - mean)^2
	scatter float64 // sqrt(sum of squared residuals / (n - 2))
}

// errFewPoints is the error of fitting a line to less than three places.
var errFewPoints = errors.New("a line with standard errors needs at least three different depths")

// FitLine fits a line to points, at least three of them at different x.
func FitLine(x, y []float64) (Line, error) {
	different := map[float64]bool{}
	for _, v := range x {
		different[v] = true
	}
	if len(x) != len(y) || len(different) < 3 {
		return Line{}, errFewPoints
	}
	l := Line{n: len(x)}
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
	return l, nil
}

// Mean returns the line at x with its standard error there.
func (l Line) Mean(x float64) (value, deviation float64) {
	return l.A + l.B*x, l.scatter * math.Sqrt(1/float64(l.n)+(x-l.mean)*(x-l.mean)/l.spread)
}

// student returns the value that a t-distributed one is below with a probability p.
func student(p, degrees float64) float64 {
	return distuv.StudentsT{Mu: 0, Sigma: 1, Nu: degrees}.Quantile(p)
}

// Predict returns the line at x, and the interval in which another measurement there lies with 95 % confidence:
//
//	A + B x ± t(n-2) s sqrt(1 + 1/n + (x - mean)^2 / sum (x_i - mean)^2)
func (l Line) Predict(x float64) (value, low, high float64) {
	t := student((1+confidence)/2, float64(l.n-2))
	value = l.A + l.B*x
	d := t * l.scatter * math.Sqrt(1+1/float64(l.n)+(x-l.mean)*(x-l.mean)/l.spread)
	return value, value - d, value + d
}

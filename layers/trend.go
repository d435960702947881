package layers

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/gonum/stat/distuv"

	"gpt2scope/internal/stats"
)

// timed is a depth and the times that were measured of it, in ms.
type timed struct {
	layers int
	median float64
	times  []float64
}

// noise is the variance of the median of repeated times, from their median absolute
// deviation, which outliers do not change; 0 if there is one time. The factors are those
// of a normal distribution.
func (t timed) noise() float64 {
	if len(t.times) < 2 {
		return 0
	}
	away := make([]float64, len(t.times))
	for i, v := range t.times {
		away[i] = math.Abs(v - t.median)
	}
	slices.Sort(away)
	deviation := 1.4826 * stats.Median(away)
	return math.Pi / 2 * deviation * deviation / float64(len(t.times))
}

// Limits of the test of a line.
const (
	rejection = 0.99 // confidence that the residuals are more than the noise of the repeats
	bend      = 0.1  // a residual that matters, as a share of what the line adds from one depth to the next
	bendPart  = 0.05 // the same in a part of the depths, in which a curve is straighter
	leastPart = 4    // depths of a part that has a line of its own
)

// fit fits a line to the medians of depths, in their order, and tests it. If the times do
// not lie on a line, the line is that of the deepest of them that do, if there is one.
// Rejected says why. ok is false if there are too few depths for a line.
//
// The line is rejected for two reasons. The residuals are larger than the noise of the
// repeats explains, by the F-test for lack of fit (Draper and Smith, chapter 2), and large
// enough to matter. Or the line gives the rest of the pass a time below 0.
func fit(phase string, all []timed) (f Fit, l Line, ok bool) {
	f = Fit{Phase: phase, Unit: "ms"}
	if l, ok = f.through(all); !ok {
		return f, l, false
	}
	f.Rest, f.RestError = l.Mean(f.restAt())
	switch highest := f.Rest + student((1+confidence)/2, float64(len(all)-2))*f.RestError; {
	case highest < 0:
		f.Rejected = fmt.Sprintf("a line would give %s a time below 0 (%s ms)", f.RestName(), withError(f.Rest, f.RestError))
	default:
		f.Rejected = bends(all, l, bend)
	}
	if f.Rejected == "" {
		return f, l, true
	}
	f.Rest, f.RestError = 0, 0
	for i := 0; i+1 < len(all); i++ {
		a, b := all[i], all[i+1]
		per := float64(b.layers - a.layers)
		f.Steps = append(f.Steps, LayerStep{a.layers, b.layers, (b.median - a.median) / per, math.Sqrt(a.noise()+b.noise()) / per})
	}
	for i := range max(0, len(all)-leastPart+1) {
		part := f
		if l, ok := part.through(all[i:]); ok && bends(all[i:], l, bendPart) == "" && l.B > 0 {
			part.From = all[i].layers
			return part, l, true
		}
	}
	return f, l, true
}

// restAt is the depth at which a line has the time of the rest.
func (f *Fit) restAt() float64 {
	if f.Phase == TaskPrefill {
		return 1
	}
	return 0
}

// RestName says what Rest is the time of.
func (f *Fit) RestName() string {
	if f.Phase == TaskPrefill {
		return "the last layer and everything else"
	}
	return "everything else"
}

// Impossible says which terms of the line are times below 0, which noise alone gives: they are
// not to be shown. It is "" if none is, or if the line is rejected.
func (f *Fit) Impossible() string {
	var terms []string
	if f.Rejected == "" && f.B < 0 {
		terms = append(terms, "a layer")
	}
	if f.Rejected == "" && f.Rest < 0 {
		terms = append(terms, f.RestName())
	}
	if terms == nil {
		return ""
	}
	return fmt.Sprintf("the time of %s is not known: the line gives it a time below 0, since times vary too much from repeat to repeat", strings.Join(terms, " and of "))
}

// Stages returns what B and Rest are by the recording by stages; ok is false if there is
// none.
func (f *Fit) Stages() (layer, rest float64, ok bool) {
	if f.TraceA == nil || f.TraceB == nil {
		return 0, 0, false
	}
	return *f.TraceB, *f.TraceA + f.restAt()**f.TraceB, true
}

// through fits the line.
func (f *Fit) through(all []timed) (Line, bool) {
	var x, y []float64
	f.Depths = nil
	for _, t := range all {
		f.Depths = append(f.Depths, t.layers)
		x, y = append(x, float64(t.layers)), append(y, t.median)
	}
	l, err := FitLine(x, y)
	f.A, f.AError, f.B, f.BError, f.R2, f.Residuals = l.A, l.AError, l.B, l.BError, l.R2, l.Residuals
	return l, err == nil
}

// bends says why times do not lie on a line, "" if they may. Two repeats do not tell the
// noise.
func bends(all []timed, l Line, matters float64) string {
	n := float64(len(all))
	var noise, degrees, squares, most float64
	for i, t := range all {
		if len(t.times) < 3 {
			return ""
		}
		noise += t.noise() / n
		degrees += float64(len(t.times) - 1)
		squares += l.Residuals[i] * l.Residuals[i]
		most = max(most, math.Abs(l.Residuals[i]))
	}
	if step := math.Abs(l.B) * float64(all[len(all)-1].layers-all[0].layers) / (n - 1); most <= matters*step {
		return ""
	}
	if squares/(n-2) <= noise*(distuv.F{D1: n - 2, D2: degrees}).Quantile(rejection) {
		return ""
	}
	return fmt.Sprintf("the times miss a line by up to %.3g ms, and repeats differ by %.2g ms", most, math.Sqrt(noise))
}

// NoLine tells whether the times of the depths lie on no line: A, B and what belongs to
// them are then those of the line that was rejected.
func (f *Fit) NoLine() bool { return f.Rejected != "" && f.From == 0 }

// Trend says in a sentence what a layer costs at which depth, if the times of all depths do not lie on a line, and why.
func (f *Fit) Trend() string {
	if f.Rejected == "" || len(f.Steps) == 0 {
		return ""
	}
	cost := withError(f.B, f.BError)
	if f.From == f.Steps[0].From {
		return fmt.Sprintf("a layer costs %s ms; the time of %s is not known: %s", cost, f.RestName(), f.Rejected)
	}
	byCost := func(a, b LayerStep) int { return cmp.Compare(a.Cost, b.Cost) }
	least, most := slices.MinFunc(f.Steps, byCost), slices.MaxFunc(f.Steps, byCost)
	s := fmt.Sprintf("a layer costs from %.3g ms (%d to %d layers) to %.3g ms (%d to %d)",
		least.Cost, least.From, least.To, most.Cost, most.From, most.To)
	if f.From > 0 {
		return fmt.Sprintf("no line through all depths: %s; from %d layers on it is %s ms. The reason: %s", s, f.From, cost, f.Rejected)
	}
	return fmt.Sprintf("no line: %s. The reason: %s", s, f.Rejected)
}

// withError writes a value and its standard error to the second digit of the error.
func withError(v, e float64) string {
	if !(e > 1e-9*math.Abs(v)) {
		return fmt.Sprintf("%.3g", v)
	}
	decimals := min(max(1-int(math.Floor(math.Log10(e))), 0), 9)
	return fmt.Sprintf("%.*f ± %.*f", decimals, v, decimals, e)
}

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

// noise is the variance of the median of repeated times, from their median absolute deviation, which outliers do not
// change; 0 if there is one time. The factors are those of a normal distribution.
func (t timed) noise() float64 {
	if len(t.times) < 2 {
		return 0
	}
	away := make([]float64, len(t.times))
	for i, v := range t.times {
		away[i] = math.Abs(v - t.median)
	}
	deviation := 1.4826 * stats.MedianOf(away)
	return math.Pi / 2 * deviation * deviation / float64(len(t.times))
}

// Limits of the test of a line.
const (
	rejection = 0.99 // confidence that the residuals are more than the noise of the repeats
	bend      = 0.1  // a residual that matters, as a share of what the line adds from one depth to the next
	unsure    = 0.25 // a standard error of a layer's cost, as a share of it, with which it is not known
)

// fit fits a line to the medians of depths, in their order, and tests it. ok is false if there are too few depths for a
// line. The line is rejected if the residuals are larger than the noise of the repeats explains, by the F-test for lack
// of fit (Draper and Smith, chapter 2), and large enough to matter.
func fit(phase string, all []timed) (f Fit, ok bool) {
	var x, y []float64
	var depths []int
	for _, t := range all {
		depths = append(depths, t.layers)
		x, y = append(x, float64(t.layers)), append(y, t.median)
	}
	if f, ok = fitLine(x, y); !ok {
		return f, false
	}
	f.Phase, f.Unit, f.Depths = phase, "ms", depths
	if f.Rejected = f.bends(all); f.Rejected == "" && f.BError > unsure*math.Abs(f.B) {
		f.Rejected = fmt.Sprintf("a line gives a layer %.3g ± %.3g ms, which is not known well enough", f.B, f.BError)
	}
	for i := 0; f.Rejected != "" && i+1 < len(all); i++ {
		a, b := all[i], all[i+1]
		per := float64(b.layers - a.layers)
		f.Steps = append(f.Steps, LayerStep{a.layers, b.layers, (b.median - a.median) / per,
			math.Sqrt(a.noise()+b.noise()) / per})
	}
	return f, true
}

// Rest is the time that a line gives a pass without layers. A prefill computes only the last row of logits, so that its
// last layer does less than the others: there it is the time of the rest and the last layer.
func (f *Fit) Rest() float64 {
	if f.Phase == TaskPrefill {
		return f.A + f.B
	}
	return f.A
}

// Impossible says which terms of the line are times below 0, which are not to be shown. It is "" if none is, or if the
// line is rejected.
func (f *Fit) Impossible() string {
	var terms []string
	if f.B < 0 {
		terms = append(terms, "a layer")
	}
	if f.Rest() < 0 {
		terms = append(terms, map[string]string{TaskPrefill: "the last layer and everything else",
			TaskDecode: "everything else"}[f.Phase])
	}
	if terms == nil || f.Rejected != "" {
		return ""
	}
	return fmt.Sprintf("the time of %s is not known: the line gives it a time below 0", strings.Join(terms, " and of "))
}

// bends says why times do not lie on a line, "" if they may. Two repeats do not tell the noise.
func (f *Fit) bends(all []timed) string {
	n := float64(len(all))
	var noise, degrees, squares, most float64
	for i, t := range all {
		if len(t.times) < 3 {
			return ""
		}
		noise += t.noise() / n
		degrees += float64(len(t.times) - 1)
		squares += f.Residuals[i] * f.Residuals[i]
		most = max(most, math.Abs(f.Residuals[i]))
	}
	if step := math.Abs(f.B) * float64(all[len(all)-1].layers-all[0].layers) / (n - 1); most <= bend*step {
		return ""
	}
	if squares/(n-2) <= noise*(distuv.F{D1: n - 2, D2: degrees}).Quantile(rejection) {
		return ""
	}
	return fmt.Sprintf("the times miss a line by up to %.3g ms, and repeats differ by %.2g ms", most, math.Sqrt(noise))
}

// Trend says in a sentence what a layer costs at which depth, if the times do not lie on a line, and why.
func (f *Fit) Trend() string {
	if f.Rejected == "" || len(f.Steps) == 0 {
		return ""
	}
	byCost := func(a, b LayerStep) int { return cmp.Compare(a.Cost, b.Cost) }
	least, most := slices.MinFunc(f.Steps, byCost), slices.MaxFunc(f.Steps, byCost)
	return fmt.Sprintf("no line: a layer costs from %.3g ms (%d to %d layers) to %.3g ms (%d to %d). The reason: %s",
		least.Cost, least.From, least.To, most.Cost, most.From, most.To, f.Rejected)
}

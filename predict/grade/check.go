// Package grade compares ways to predict how long work takes, on sizes, tasks and devices that they have not seen.
//
// A [Family] is fitted to a part of the measurements and graded on the others; a [Split] says which. The grade is the
// absolute error relative to the measured time, and what the choices between CPU and GPU cost that the predictions
// lead to: the regret against the oracle, which knows both times. A shape that was measured with data in pageable and in
// pinned memory is two choices.
package grade

import (
	"cmp"
	"context"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"gpt2scope/internal/stats"
	"gpt2scope/predict"
)

// Interval is a value with an interval of 95 % by bootstrap over shapes.
type Interval struct {
	Value float64 `json:"value"`
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
}

// Score is how a family did in a split.
type Score struct {
	Split  string `json:"split"`
	Family string `json:"family"`
	Folds  int    `json:"folds"` // fits, each graded on what it left out; 0 if the split cannot be made

	N      int       `json:"n"`                // shapes and devices whose times were predicted; 0 if the family predicts none
	Median *Interval `json:"median,omitempty"` // of the absolute error, as a part of the measured time
	P90    *Interval `json:"p90,omitempty"`
	Noise  *Noise    `json:"noise,omitempty"`  // of the same measurements: what chance leaves to any way
	Turns  *Noise    `json:"turns,omitempty"`  // the same of turns: see turnsOf
	Within *float64  `json:"within,omitempty"` // part of the times that lie in the predicted interval; of ours alone
	Parts  []Part    `json:"parts,omitempty"`  // where the errors are; of ours alone

	Choices   int       `json:"choices"`             // between CPU and GPU; 0 if nothing was measured on both, or the family cannot choose
	Geometric *Interval `json:"geometric,omitempty"` // mean of time over the oracle's
	Total     *float64  `json:"total,omitempty"`     // sum of times over the oracle's
	Worst     *float64  `json:"worst,omitempty"`     // time over the oracle's
	WorstOf   string    `json:"worst_of,omitempty"`  // task and shape
	Wrong     *float64  `json:"wrong,omitempty"`     // part of the choices that took the slower device
	Near      int       `json:"near_choices"`        // choices where the times are within 3 x
	NearMean  *float64  `json:"near_geometric,omitempty"`
}

// Decision is what a choice between two devices costs.
type Decision struct {
	Family      string  `json:"family"`
	N           int     `json:"n"`
	Ns          float64 `json:"ns"`
	Allocations float64 `json:"allocations"`
}

// Result is what Check found.
type Result struct {
	Rows      int        `json:"rows"`   // measurements
	Shapes    int        `json:"shapes"` // of which each has repeats, on each device
	Scores    []Score    `json:"scores"`
	Decisions []Decision `json:"decisions"`
}

// Noise says how far repeats of a measurement differ: the absolute error of the median of the other repeats as a prediction
// of each, as a part of the measured time. No way to predict a single run does much better. Medians of repeats,
// which are what ways are graded on, differ less.
type Noise struct {
	Median float64 `json:"median"`
	P90    float64 `json:"p90"`
}

// Part is how well a family predicts the times of a task on a device.
type Part struct {
	Machine string  `json:"machine"`
	Device  string  `json:"device"`
	Task    string  `json:"task"`
	DType   string  `json:"dtype"`
	Memory  string  `json:"memory"`
	N       int     `json:"n"` // times that were predicted
	Median  float64 `json:"median"`
	P90     float64 `json:"p90"`
	Bias    float64 `json:"bias"` // median of predicted over measured time
	Noise   *Noise  `json:"noise,omitempty"`
	Turns   *Noise  `json:"turns,omitempty"`
}

// Check grades families on splits of measurements, all if none are named. What a choice costs is measured only with all.
func Check(ctx context.Context, rows []predict.Row, families []Family, only ...string) (*Result, error) {
	medians, err := predict.Medians(rows)
	if err != nil {
		return nil, err
	}
	if len(medians) == 0 {
		return nil, errNothing
	}
	chance := &chance{noiseOf(rows), turnsOf(rows)}
	result := &Result{Rows: len(rows), Shapes: len(medians)}
	splits := Splits(medians)
	cold := Split{Name: Cold}
	if slices.ContainsFunc(medians, func(r predict.Row) bool { return r.Cold }) {
		cold.Folds = splits[0].Folds
	}
	random := map[string][]Predictor{} // by family, of the folds that both splits have
	for _, s := range append(splits, cold) {
		if len(only) > 0 && !slices.Contains(only, s.Name) {
			continue
		}
		for _, f := range families {
			fitted := random[f.Name]
			if s.Name != Cold || fitted == nil {
				if fitted, err = fitFolds(ctx, medians, s.Folds, f); err != nil {
					return nil, err
				}
			}
			if s.Name == Random {
				random[f.Name] = fitted
			}
			result.Scores = append(result.Scores, grade(medians, chance, s, f.Name, fitted))
		}
	}
	if len(only) > 0 {
		return result, nil
	}
	for _, f := range families {
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
		d, err := decide(medians, f)
		if err != nil {
			return nil, err
		}
		if d.N > 0 {
			result.Decisions = append(result.Decisions, d)
		}
	}
	return result, nil
}

// outcome is of one row or choice: its shape and how it went.
type outcome struct {
	shape shape
	value float64
}

// near is the ratio of the times of two devices up to which a choice is close.
const near = 3

// chance is how far measurements of the same differ: errors of each case.
type chance struct{ repeats, turns map[predict.Case][]float64 }

// apart is how many seconds lie between repeats of different turns, at least: those of one come right after one another.
const apart = 2

// turnsOf returns for each case that was measured in several turns the error of the median of the other turns as a prediction of
// the median of each. The repeats of a turn share what disturbs a machine for seconds, as others that use its memory, and so
// differ less. No way to predict a median of repeats does much better.
func turnsOf(rows []predict.Row) map[predict.Case][]float64 {
	repeats := map[predict.Case][]predict.Row{}
	for _, r := range rows {
		if r.At > 0 {
			repeats[r.Case()] = append(repeats[r.Case()], r)
		}
	}
	out := map[predict.Case][]float64{}
	for k, all := range repeats {
		slices.SortFunc(all, func(a, b predict.Row) int { return cmp.Compare(a.At, b.At) })
		var medians, turn []float64
		for i := range all {
			if turn = append(turn, all[i].Us); i+1 == len(all) || all[i+1].At-all[i].At >= apart {
				medians = append(medians, stats.MedianOf(turn))
				turn = nil
			}
		}
		if errors := ofOthers(medians); len(errors) > 0 {
			out[k] = errors
		}
	}
	return out
}

// ofOthers returns the absolute error of the median of the other values as a prediction of each, nothing of one value.
func ofOthers(all []float64) (errors []float64) {
	if len(all) < 2 {
		return nil
	}
	for i, us := range all {
		errors = append(errors, math.Abs(stats.MedianOf(slices.Delete(slices.Clone(all), i, i+1))/us-1))
	}
	return errors
}

// noiseOf returns for each case that was repeated the errors of the median of the other repeats.
func noiseOf(rows []predict.Row) map[predict.Case][]float64 {
	repeats := map[predict.Case][]float64{}
	for i := range rows {
		k := rows[i].Case()
		repeats[k] = append(repeats[k], rows[i].Us)
	}
	noise := map[predict.Case][]float64{}
	for k, all := range repeats {
		if errors := ofOthers(all); len(errors) > 0 {
			noise[k] = errors
		}
	}
	return noise
}

// summary returns the quantiles of noise, nil if nothing was repeated.
func summary(noise []float64) *Noise {
	if len(noise) == 0 {
		return nil
	}
	return &Noise{quantile(noise, 0.5), quantile(noise, 0.9)}
}

// part collects what is known of a task on a device.
type part struct{ errors, ratios, noise, turns []float64 }

// partsOf makes the table of parts, in the order of their names.
func partsOf(of map[predict.Case]*part) []Part {
	var out []Part
	for k, p := range of {
		out = append(out, Part{k.Machine, k.Device, k.Task, k.DType, k.Memory.String(), len(p.errors), quantile(p.errors, 0.5), quantile(p.errors, 0.9), quantile(p.ratios, 0.5), summary(p.noise), summary(p.turns)})
	}
	slices.SortFunc(out, func(a, b Part) int {
		return cmp.Or(cmp.Compare(a.Machine, b.Machine), cmp.Compare(a.Device, b.Device), cmp.Compare(a.Task, b.Task), cmp.Compare(a.DType, b.DType), cmp.Compare(a.Memory, b.Memory))
	})
	return out
}

// mostFits is how many fits run at once at most: each of ours needs some hundreds of megabytes.
const mostFits = 4

// fitFolds fits a family to what each fold has for it.
func fitFolds(ctx context.Context, rows []predict.Row, folds []Fold, f Family) ([]Predictor, error) {
	fitted := make([]Predictor, len(folds))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(min(mostFits, runtime.GOMAXPROCS(0)))
	for i, fold := range folds {
		group.Go(func() (err error) {
			if err := context.Cause(ctx); err != nil {
				return err
			}
			known := make([]predict.Row, len(fold.Fit))
			for k, r := range fold.Fit {
				known[k] = rows[r]
			}
			fitted[i], err = f.Fit(known)
			return err
		})
	}
	return fitted, group.Wait()
}

// grade grades a family by what was fitted to the folds of a split.
func grade(rows []predict.Row, chance *chance, s Split, family string, fitted []Predictor) Score {
	score := Score{Split: s.Name, Family: family, Folds: len(s.Folds)}
	var errors, regrets []outcome
	var noise, turns []float64
	parts := map[predict.Case]*part{}
	var chosen, best, worst, nearSum float64
	within, wrong, intervals := 0, 0, 0
	for i, fold := range s.Folds {
		p := fitted[i]
		graded := make(map[*predict.Row]bool, len(fold.Grade))
		for _, i := range fold.Grade {
			r := &rows[i]
			if r.Cold != (s.Name == Cold) {
				continue
			}
			graded[r] = true
			t := p.Time(r)
			if !math.IsNaN(t) {
				errors = append(errors, outcome{shapeOf(r), math.Abs(t/r.Us - 1)})
				noise, turns = append(noise, chance.repeats[r.Case()]...), append(turns, chance.turns[r.Case()]...)
			}
			if o, ok := p.(*ours); ok {
				e := o.model.Predict(o.device(r), &r.Work)
				intervals++
				if e.Low <= r.Us && r.Us <= e.High {
					within++
				}
				k := r.Case()
				k.Shape = ""
				if parts[k] == nil {
					parts[k] = &part{}
				}
				of := parts[k]
				of.errors, of.ratios = append(of.errors, math.Abs(t/r.Us-1)), append(of.ratios, t/r.Us)
				of.noise, of.turns = append(of.noise, chance.repeats[r.Case()]...), append(of.turns, chance.turns[r.Case()]...)
			}
		}
		for _, pair := range Pairs(rows) {
			if !graded[pair.CPU] && !graded[pair.GPU] {
				continue
			}
			gpu, ok := choose(p, pair)
			if !ok {
				continue
			}
			us := pair.CPU.Us
			if gpu {
				us = pair.GPU.Us
			}
			regret := us / pair.Best()
			regrets = append(regrets, outcome{shapeOf(pair.GPU), math.Log(regret)})
			chosen, best = chosen+us, best+pair.Best()
			if regret > 1 {
				wrong++
			}
			if regret > worst {
				worst = regret
				score.WorstOf = pair.GPU.Task + " " + pair.GPU.Shape + " " + pair.GPU.DType + " " + pair.GPU.Memory.String()
			}
			if max(pair.CPU.Us, pair.GPU.Us) <= near*pair.Best() {
				score.Near++
				nearSum += math.Log(regret)
			}
		}
	}
	if score.N = len(errors); score.N > 0 {
		score.Median = bootstrap(errors, func(v []float64) float64 { return quantile(v, 0.5) })
		score.P90 = bootstrap(errors, func(v []float64) float64 { return quantile(v, 0.9) })
		score.Noise, score.Turns, score.Parts = summary(noise), summary(turns), partsOf(parts)
	}
	if intervals > 0 {
		part := float64(within) / float64(intervals)
		score.Within = &part
	}
	if score.Choices = len(regrets); score.Choices > 0 {
		score.Geometric = bootstrap(regrets, func(v []float64) float64 {
			sum := 0.0
			for _, x := range v {
				sum += x
			}
			return math.Exp(sum / float64(len(v)))
		})
		total, part := chosen/best, float64(wrong)/float64(len(regrets))
		score.Total, score.Worst, score.Wrong = &total, &worst, &part
		if worst == 1 {
			score.WorstOf = ""
		}
		if score.Near > 0 {
			mean := math.Exp(nearSum / float64(score.Near))
			score.NearMean = &mean
		}
	}
	return score
}

// choose returns where a predictor would run work.
func choose(p Predictor, pair Pair) (gpu, ok bool) {
	if c, is := p.(Chooser); is {
		return c.GPU(pair.CPU, pair.GPU)
	}
	a, b := p.Time(pair.CPU), p.Time(pair.GPU)
	return b < a, !math.IsNaN(a) && !math.IsNaN(b)
}

// bootstrap returns a statistic of outcomes with its interval: shapes are drawn with replacement, since the rows of
// one shape resemble each other (Efron and Tibshirani, "An Introduction to the Bootstrap", 1993).
func bootstrap(all []outcome, statistic func([]float64) float64) *Interval {
	const draws = 400
	var shapes [][]float64
	index := map[shape]int{}
	values := make([]float64, 0, len(all))
	for _, o := range all {
		k, ok := index[o.shape]
		if !ok {
			k = len(shapes)
			index[o.shape] = k
			shapes = append(shapes, nil)
		}
		shapes[k] = append(shapes[k], o.value)
		values = append(values, o.value)
	}
	random := rand.New(rand.NewPCG(5, 6))
	drawn := make([]float64, draws)
	for i := range drawn {
		values := make([]float64, 0, 2*len(all))
		for range shapes {
			values = append(values, shapes[random.IntN(len(shapes))]...)
		}
		drawn[i] = statistic(values)
	}
	slices.Sort(drawn)
	return &Interval{statistic(values), quantile(drawn, 0.025), quantile(drawn, 0.975)}
}

// decide measures what choices cost: a million, or as many as a quarter of a second allows.
func decide(rows []predict.Row, f Family) (Decision, error) {
	const most, budget, batch = 1_000_000, time.Second / 4, 1000
	pairs := Pairs(rows)
	if len(pairs) == 0 { // no machine has both: devices are compared all the same, for the cost of it
		for i := range rows {
			pairs = append(pairs, Pair{&rows[i], &rows[(i+1)%len(rows)]})
		}
	}
	p, err := f.Fit(rows)
	if err != nil {
		return Decision{}, err
	}
	one := func(pair Pair) bool {
		gpu, _ := choose(p, pair)
		return gpu
	}
	if o, ok := p.(*ours); ok { // as a scheduler calls it, which knows its devices
		type indexed struct {
			Pair
			cpu, gpu int
		}
		all := make([]indexed, len(pairs))
		for i, pair := range pairs {
			all[i] = indexed{pair, o.device(pair.CPU), o.device(pair.GPU)}
		}
		next := 0
		one = func(Pair) bool {
			i := &all[next%len(all)]
			next++
			return o.model.Predict(i.gpu, &i.GPU.Work).Us < o.model.Predict(i.cpu, &i.CPU.Work).Us
		}
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	begin, n := time.Now(), 0
	for n < most && time.Since(begin) < budget {
		for range batch {
			one(pairs[n%len(pairs)])
			n++
		}
	}
	took := time.Since(begin)
	runtime.ReadMemStats(&after)
	return Decision{f.Name, n, float64(took.Nanoseconds()) / float64(n), math.Floor(float64(after.Mallocs-before.Mallocs) / float64(n))}, nil
}

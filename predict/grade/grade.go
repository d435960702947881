// Package grade compares ways to choose between CPU and GPU, on sizes, tasks and CPUs that they have not seen.
//
// Each [Way] is fitted to a part of the measurements and graded on the rest. The grade is the error of predicted times,
// and what the choices cost: the time on the chosen device over that on the better one, which an oracle would choose. A
// shape that was measured with data in pageable and in pinned memory is two choices.
package grade

import (
	"cmp"
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"

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

// Score is how a way did in a split.
type Score struct {
	Split string `json:"split"`
	Way   string `json:"way"`

	Times  int       `json:"times"`            // that were predicted; 0 if the way predicts none
	Median *Interval `json:"median,omitempty"` // of the absolute error, as a part of the measured time
	P90    *Interval `json:"p90,omitempty"`
	Within *float64  `json:"within,omitempty"` // part of the times in the predicted interval

	Choices    int       `json:"choices"`               // between CPU and GPU; 0 if nothing was measured on both
	OverOracle *Interval `json:"over_oracle,omitempty"` // geometric mean of time over the better device's
	Close      *float64  `json:"close,omitempty"`       // the same of choices where the times are within 3 x
	Worst      float64   `json:"worst,omitempty"`       // time over the better device's
	WorstOf    string    `json:"worst_of,omitempty"`    // task and shape
	Wrong      float64   `json:"wrong"`                 // part of the choices that took the slower device
}

// Result is what Check found.
type Result struct {
	Rows   int     `json:"rows"`   // measurements
	Shapes int     `json:"shapes"` // of which each has repeats, on each device
	Noise  float64 `json:"noise"`  // median error of the median of other repeats, which no way falls below
	Scores []Score `json:"scores"`
}

// Split divides measurements into what is fitted and what is graded. Repeats of a shape are never on both sides.
type Split struct {
	Name, About string

	group func(*predict.Row) string // what is held out together, group after group; "" is never held out
}

// Splits lists the splits of rows. Cold starts are always fitted, and never graded.
func Splits(rows []predict.Row) []Split {
	between := everyOther(rows)
	return []Split{
		{"sizes", "every other size of a task", func(r *predict.Row) string {
			if between[shapeOf(r)] {
				return "size"
			}
			return ""
		}},
		{"task", "each task in turn: nothing of it is known", func(r *predict.Row) string { return r.Task }},
		{"CPU", "each model of CPU in turn: nothing of it is known but ceilings", func(r *predict.Row) string {
			if predict.Kind(r.Device) != "cpu" {
				return ""
			}
			return cmp.Or(r.Processor, r.Machine)
		}},
	}
}

// shape is a size of a task, on whatever device.
type shape struct{ task, dtype, name string }

func shapeOf(r *predict.Row) shape { return shape{r.Task, r.DType, r.Shape} }

// everyOther returns every other shape of each task in one type, by FLOPs, but for the smallest and the largest.
func everyOther(rows []predict.Row) map[shape]bool {
	type op struct{ task, dtype string }
	sizes, of := map[shape]float64{}, map[op][]shape{}
	for i := range rows {
		r := &rows[i]
		s := shapeOf(r)
		if _, ok := sizes[s]; !ok {
			sizes[s] = cmp.Or(r.FLOPs, r.Bytes)
			of[op{r.Task, r.DType}] = append(of[op{r.Task, r.DType}], s)
		}
	}
	out := map[shape]bool{}
	for _, all := range of {
		slices.SortFunc(all, func(a, b shape) int {
			return cmp.Or(cmp.Compare(sizes[a], sizes[b]), cmp.Compare(a.name, b.name))
		})
		for i := 1; i+1 < len(all); i += 2 {
			out[all[i]] = true
		}
	}
	return out
}

// Pair is work that was measured on the CPU and on a GPU of one machine.
type Pair struct{ CPU, GPU *predict.Row }

// Best returns the lesser time.
func (p Pair) Best() float64 { return min(p.CPU.Us, p.GPU.Us) }

// Pairs lists the choices that rows hold. Data in the GPU's memory are no choice where the task was also measured with
// transfers: to the CPU's data in host memory only times with transfers compare.
func Pairs(rows []predict.Row) (out []Pair) {
	cpu, moved := map[predict.Case]*predict.Row{}, map[[2]string]bool{}
	onCPU := func(r *predict.Row) predict.Case {
		c := r.Case()
		c.Device, c.Memory = "cpu", predict.Host
		return c
	}
	for i := range rows {
		if r := &rows[i]; r.Device == "cpu" {
			cpu[onCPU(r)] = r
		} else if r.Memory != predict.Resident {
			moved[[2]string{r.Machine, r.Task}] = true
		}
	}
	for i := range rows {
		r := &rows[i]
		choice := r.Device != "cpu" && (r.Memory != predict.Resident || !moved[[2]string{r.Machine, r.Task}])
		if c := cpu[onCPU(r)]; choice && c != nil {
			out = append(out, Pair{c, r})
		}
	}
	return out
}

// Check grades the ways on the splits of measurements.
func Check(ctx context.Context, rows []predict.Row) (*Result, error) {
	medians, err := predict.Medians(rows)
	if err != nil {
		return nil, err
	}
	if len(medians) == 0 {
		return nil, errors.New("there is nothing to grade: no measurement was given")
	}
	result := &Result{Rows: len(rows), Shapes: len(medians), Noise: noise(rows)}
	for _, s := range Splits(medians) {
		for _, w := range Ways() {
			score, err := grade(ctx, medians, s, w)
			if err != nil {
				return nil, err
			}
			result.Scores = append(result.Scores, score)
		}
	}
	return result, nil
}

// noise returns the median error of the median of the other repeats as a prediction of each.
func noise(rows []predict.Row) float64 {
	repeats := map[predict.Case][]float64{}
	for i := range rows {
		repeats[rows[i].Case()] = append(repeats[rows[i].Case()], rows[i].Us)
	}
	var errors []float64
	for _, all := range repeats {
		for i, us := range all {
			if others := slices.Delete(slices.Clone(all), i, i+1); len(others) > 0 {
				errors = append(errors, math.Abs(stats.MedianOf(others)/us-1))
			}
		}
	}
	return stats.MedianOf(errors)
}

// closeTimes is the ratio of the times of two devices up to which a choice is close.
const closeTimes = 3

// outcome is an error, or the logarithm of a time over the better one.
type outcome struct {
	shape shape
	value float64
}

// outcomes are those of what was held out.
type outcomes struct {
	errors, regrets []outcome
	within          int // errors inside the predicted interval
	close           []float64
	worst           float64
	worstOf         string
	wrong           int
}

// grade grades a way on a split.
func grade(ctx context.Context, rows []predict.Row, s Split, w Way) (Score, error) {
	var held []string
	for i := range rows {
		if name := s.group(&rows[i]); name != "" && !slices.Contains(held, name) {
			held = append(held, name)
		}
	}
	parts := make([]outcomes, len(held))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i, name := range held {
		group.Go(func() (err error) {
			parts[i], err = holdOut(ctx, rows, func(r *predict.Row) bool { return s.group(r) == name }, w)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return Score{}, err
	}
	all := outcomes{}
	for _, p := range parts {
		all.errors, all.regrets = append(all.errors, p.errors...), append(all.regrets, p.regrets...)
		all.close = append(all.close, p.close...)
		all.within, all.wrong = all.within+p.within, all.wrong+p.wrong
		if p.worst > all.worst {
			all.worst, all.worstOf = p.worst, p.worstOf
		}
	}
	score := Score{Split: s.Name, Way: w.Name, Times: len(all.errors), Choices: len(all.regrets)}
	if score.Times > 0 {
		score.Median = bootstrap(all.errors, func(v []float64) float64 { return quantile(v, 0.5) })
		score.P90 = bootstrap(all.errors, func(v []float64) float64 { return quantile(v, 0.9) })
		part := float64(all.within) / float64(score.Times)
		score.Within = &part
	}
	if score.Choices > 0 {
		score.OverOracle = bootstrap(all.regrets, geometricMean)
		score.Worst, score.WorstOf, score.Wrong = all.worst, all.worstOf, float64(all.wrong)/float64(score.Choices)
		if len(all.close) > 0 {
			mean := geometricMean(all.close)
			score.Close = &mean
		}
	}
	return score, nil
}

// holdOut fits a way to rows but for those that are held out, and grades it on these.
func holdOut(ctx context.Context, rows []predict.Row, held func(*predict.Row) bool, w Way) (out outcomes, err error) {
	known := slices.DeleteFunc(slices.Clone(rows), func(r predict.Row) bool { return held(&r) })
	if len(known) == 0 {
		return out, nil
	}
	f, err := w.Fit(ctx, known)
	if err != nil {
		return out, err
	}
	graded := func(r *predict.Row) bool { return !r.Cold && held(r) }
	for i := range rows {
		if r := &rows[i]; f.Time != nil && graded(r) {
			e := f.Time(r)
			out.errors = append(out.errors, outcome{shapeOf(r), math.Abs(e.Us/r.Us - 1)})
			if e.Low <= r.Us && r.Us <= e.High {
				out.within++
			}
		}
	}
	for _, p := range Pairs(rows) {
		if f.OnGPU == nil || !graded(p.CPU) && !graded(p.GPU) {
			continue
		}
		us := p.CPU.Us
		if f.OnGPU(p) {
			us = p.GPU.Us
		}
		over := us / p.Best()
		out.regrets = append(out.regrets, outcome{shapeOf(p.GPU), math.Log(over)})
		if over > 1 {
			out.wrong++
		}
		if over > out.worst {
			out.worst, out.worstOf = over, p.GPU.Task+" "+p.GPU.Shape+" "+p.GPU.DType+" "+p.GPU.Memory.String()
		}
		if max(p.CPU.Us, p.GPU.Us) <= closeTimes*p.Best() {
			out.close = append(out.close, math.Log(over))
		}
	}
	return out, nil
}

// geometricMean takes logarithms.
func geometricMean(logs []float64) float64 {
	sum := 0.0
	for _, x := range logs {
		sum += x
	}
	return math.Exp(sum / float64(len(logs)))
}

func quantile(values []float64, q float64) float64 {
	return stats.Quantile(slices.Sorted(slices.Values(values)), q)
}

// bootstrap returns a statistic of outcomes with its interval: shapes are drawn with replacement, since the rows of
// one shape resemble each other (Efron and Tibshirani, "An Introduction to the Bootstrap", 1993).
func bootstrap(all []outcome, statistic func([]float64) float64) *Interval {
	const draws = 400
	var shapes [][]float64
	index := map[shape]int{}
	var values []float64
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
		var again []float64
		for range shapes {
			again = append(again, shapes[random.IntN(len(shapes))]...)
		}
		drawn[i] = statistic(again)
	}
	return &Interval{statistic(values), quantile(drawn, 0.025), quantile(drawn, 0.975)}
}

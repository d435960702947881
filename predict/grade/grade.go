// Package grade compares ways to choose between CPU and GPU, on sizes, tasks and CPUs that they have not seen.
//
// Each way is fitted to a part of the measurements and graded on the rest. The grade is the error of predicted times,
// and what the choices cost: the time on the chosen device over that on the better one, which an oracle would choose. A
// shape that was measured with data in pageable and in pinned memory is two choices.
package grade

import (
	"cmp"
	"context"
	"errors"
	"math"
	"runtime"
	"slices"

	"golang.org/x/sync/errgroup"

	"gpt2scope/internal/stats"
	"gpt2scope/predict"
)

// Score is how a way did in a split.
type Score struct {
	Split string `json:"split"`
	Way   string `json:"way"`

	Times  int     `json:"times"`            // that were predicted; 0 if the way predicts none
	Median float64 `json:"median,omitempty"` // of the absolute error, as a part of the measured time
	P90    float64 `json:"p90,omitempty"`
	Within float64 `json:"within,omitempty"` // part of the times in the predicted interval

	Choices    int     `json:"choices"`               // between CPU and GPU; 0 if nothing was measured on both
	OverOracle float64 `json:"over_oracle,omitempty"` // geometric mean of time over the better device's
	Worst      float64 `json:"worst,omitempty"`       // time over the better device's
	WorstOf    string  `json:"worst_of,omitempty"`    // task, shape, type and memory of the GPU's data
	Wrong      float64 `json:"wrong"`                 // part of the choices that took the slower device
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

// Splits lists the splits of rows.
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
	sizes, of := map[shape]float64{}, map[shape][]shape{}
	for i := range rows {
		s := shapeOf(&rows[i])
		if _, ok := sizes[s]; !ok {
			sizes[s] = cmp.Or(rows[i].FLOPs, rows[i].Bytes)
			op := shape{s.task, s.dtype, ""}
			of[op] = append(of[op], s)
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
		for _, w := range ways {
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

// outcomes are those of what was held out.
type outcomes struct {
	errors  []float64 // of times
	within  int       // errors inside the predicted interval
	regrets []float64 // of choices: logarithms of the time over the better device's
	worst   float64   // choice: time over the better device's
	worstOf string
}

func grade(ctx context.Context, rows []predict.Row, s Split, w way) (Score, error) {
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
	var all outcomes
	score := Score{Split: s.Name, Way: w.name}
	for _, p := range parts {
		all.errors, all.regrets = append(all.errors, p.errors...), append(all.regrets, p.regrets...)
		all.within += p.within
		if p.worst > score.Worst {
			score.Worst, score.WorstOf = p.worst, p.worstOf
		}
	}
	if score.Times = len(all.errors); score.Times > 0 {
		slices.Sort(all.errors)
		score.Median, score.P90 = stats.Median(all.errors), stats.Quantile(all.errors, 0.9)
		score.Within = float64(all.within) / float64(score.Times)
	}
	if score.Choices = len(all.regrets); score.Choices > 0 {
		sum, wrong := 0.0, 0
		for _, x := range all.regrets {
			if sum += x; x > 0 {
				wrong++
			}
		}
		score.OverOracle, score.Wrong = math.Exp(sum/float64(score.Choices)), float64(wrong)/float64(score.Choices)
	}
	return score, nil
}

// holdOut fits a way to rows but for those that are held out, and grades it on these.
func holdOut(ctx context.Context, rows []predict.Row, held func(*predict.Row) bool, w way) (out outcomes, err error) {
	known := slices.DeleteFunc(slices.Clone(rows), func(r predict.Row) bool { return held(&r) })
	if len(known) == 0 {
		return out, nil
	}
	f, err := w.fit(ctx, known)
	if err != nil {
		return out, err
	}
	for i := range rows {
		if r := &rows[i]; f.time != nil && held(r) {
			e := f.time(r)
			out.errors = append(out.errors, math.Abs(e.Us/r.Us-1))
			if e.Low <= r.Us && r.Us <= e.High {
				out.within++
			}
		}
	}
	for _, p := range Pairs(rows) {
		if f.onGPU == nil || !held(p.CPU) && !held(p.GPU) {
			continue
		}
		us := p.CPU.Us
		if f.onGPU(p) {
			us = p.GPU.Us
		}
		over := us / min(p.CPU.Us, p.GPU.Us)
		out.regrets = append(out.regrets, math.Log(over))
		if over > out.worst {
			out.worst, out.worstOf = over, p.GPU.Task+" "+p.GPU.Shape+" "+p.GPU.DType+" "+string(p.GPU.Memory)
		}
	}
	return out, nil
}

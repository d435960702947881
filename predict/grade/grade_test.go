package grade

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"

	"gpt2scope/predict"
)

// sizesOfTask are those that measured makes of a task.
const sizesOfTask = 16

// measured makes measurements of two machines with a CPU, one with a GPU, by laws that differ by task.
func measured(noise float64) []predict.Row {
	random := rand.New(rand.NewPCG(7, 8))
	var rows []predict.Row
	for t, task := range []string{"vector.add", "reduce.sum", "matmul", "gpt2.decode"} {
		for k := range sizesOfTask {
			n := math.Exp2(8 + 1.25*float64(k))
			w := predict.Work{Task: task, DType: "float32", FLOPs: n, Bytes: 12 * n, Rows: 1, Steps: 1}
			if task == "gpt2.decode" {
				w.Steps = float64(8 + 5*(k%6))
			}
			add := func(machine, device string, memory predict.Memory, perUs float64, law predict.Law) {
				w := w
				if w.FloorUs, w.Memory = w.Bytes/perUs, memory; memory == predict.Pageable || memory == predict.Pinned {
					w.BytesIn, w.BytesOut = 8*n, 4*n
				}
				law.Floor *= 1 + 0.05*float64(t)
				for range 2 {
					rows = append(rows, predict.Row{Machine: machine, Device: device, Shape: fmt.Sprintf("n=%.0f", n), Work: w, Us: law.Time(&w) * math.Exp(noise*random.NormFloat64())})
				}
			}
			cpu := predict.Law{Floor: 1.2, StepUs: 0.8, BaseUs: 1}
			gpu := predict.Law{Floor: 1.25, StepUs: 2, BaseUs: 6, PageableIn: predict.Transfer{LatencyUs: 9, UsPerMiB: 100}, PageableOut: predict.Transfer{LatencyUs: 8, UsPerMiB: 110},
				PinnedIn: predict.Transfer{LatencyUs: 7, UsPerMiB: 20}, PinnedOut: predict.Transfer{LatencyUs: 6, UsPerMiB: 20}}
			add("large", "cpu", predict.Host, 8e3, cpu)
			add("small", "cpu", predict.Host, 2e3, cpu)
			add("large", "cuda:0", predict.Pageable, 4e6, gpu)
			add("large", "cuda:0", predict.Pinned, 4e6, gpu)
			add("large", "cuda:0", predict.Resident, 4e6, gpu)
		}
	}
	return rows
}

func medians(t *testing.T, rows []predict.Row) []predict.Row {
	t.Helper()
	out, err := predict.Medians(rows)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Folds divide all rows in two, and what is left out is not in the fit.
func TestSplits(t *testing.T) {
	rows := medians(t, measured(0.1))
	folds := map[string]int{}
	for _, s := range Splits(rows) {
		folds[s.Name] = len(s.Folds)
		for _, f := range s.Folds {
			seen := slices.Concat(f.Fit, f.Grade)
			slices.Sort(seen)
			if seen = slices.Compact(seen); len(f.Fit)+len(f.Grade) != len(rows) || len(seen) != len(rows) || len(f.Fit) == 0 || len(f.Grade) == 0 {
				t.Errorf("%s %s: %d and %d of %d rows", s.Name, f.Name, len(f.Fit), len(f.Grade), len(rows))
			}
			shapes, tasks, ofTask := map[shape]bool{}, map[string]bool{}, map[[3]string]int{}
			largest := 0.0
			for _, i := range f.Fit {
				r := &rows[i]
				shapes[shapeOf(r)], tasks[r.Task] = true, true
				largest = max(largest, r.FLOPs)
				ofTask[[3]string{r.Machine, r.Device, r.Task}]++
			}
			for _, i := range f.Grade {
				r := &rows[i]
				out := true
				switch s.Name {
				case Random, Between:
					out = !shapes[shapeOf(r)]
				case Largest:
					out = r.FLOPs > largest
				case TaskOut:
					out = !tasks[r.Task] && r.Task == f.Name
				case TaskOutTen:
					out = ofTask[[3]string{r.Machine, r.Device, r.Task}] == tenSamples && r.Task == f.Name
				case DeviceOut:
					out = ofTask[[3]string{r.Machine, "cpu", r.Task}] == 0 && r.Machine == f.Name
				case DeviceOutTen:
					out = ofTask[[3]string{r.Machine, "cpu", r.Task}] == tenSamples && r.Machine == f.Name
				}
				if !out {
					t.Fatalf("%s %s: %s %s on %s of %s is known from the fit", s.Name, f.Name, r.Task, r.Shape, r.Device, r.Machine)
				}
			}
		}
	}
	for name, want := range map[string]int{Random: 5, Between: 1, Largest: 1, TaskOut: 4, TaskOutTen: 4, DeviceOut: 2, DeviceOutTen: 2} {
		if folds[name] != want {
			t.Errorf("%s has %d folds, expected %d", name, folds[name], want)
		}
	}
}

// A processor is left out with all machines that have it; with ten samples of one of these, the others stay unknown.
func TestSplitsOfProcessors(t *testing.T) {
	rows := measured(0.1)
	for i := range rows {
		if rows[i].Device == "cpu" {
			rows[i].Key = map[string]string{"large": "X, 16 threads", "small": "X, 2 threads"}[rows[i].Machine]
		}
	}
	for _, r := range slices.Clone(rows) {
		if r.Machine == "small" {
			r.Machine, r.Key = "other", "Y, 2 threads"
			rows = append(rows, r)
		}
	}
	rows = medians(t, rows)
	processor := map[string]string{"large": "X", "small": "X", "other": "Y"}
	folds := map[string][]string{}
	for _, s := range Splits(rows) {
		for _, f := range s.Folds {
			if s.Name == DeviceOut || s.Name == DeviceOutTen || s.Name == CoresOut {
				folds[s.Name] = append(folds[s.Name], f.Name)
			}
			known := map[string]map[string]int{} // rows of CPUs by machine and task
			for _, i := range f.Fit {
				if r := &rows[i]; r.Device == "cpu" {
					if known[r.Machine] == nil {
						known[r.Machine] = map[string]int{}
					}
					known[r.Machine][r.Task]++
				}
			}
			for _, i := range f.Grade {
				r := &rows[i]
				for machine, tasks := range known {
					of := processor[machine] == processor[r.Machine]
					if s.Name == DeviceOut && of || s.Name == DeviceOutTen && of && (machine != r.Machine || tasks[r.Task] != tenSamples) || s.Name == CoresOut && machine == r.Machine {
						t.Fatalf("%s %s: %d rows of %s on %s are known, of %s are graded", s.Name, f.Name, tasks[r.Task], r.Task, machine, r.Machine)
					}
				}
				if s.Name == CoresOut && (len(known) != 2 || processor[r.Machine] != "X") {
					t.Fatalf("%s: %s is graded with %d CPUs known", s.Name, r.Machine, len(known))
				}
			}
		}
	}
	for name, want := range map[string][]string{DeviceOut: {"X", "Y"}, DeviceOutTen: {"large", "other", "small"}, CoresOut: {"large", "small"}} {
		slices.Sort(folds[name])
		if !slices.Equal(folds[name], want) {
			t.Errorf("%s has folds %q, expected %q", name, folds[name], want)
		}
	}
}

// Work whose data have to be moved is compared, and data that are on the GPU only for tasks without transfers.
func TestPairs(t *testing.T) {
	rows := medians(t, measured(0))
	for _, p := range Pairs(rows) {
		if p.GPU.Memory == predict.Resident || p.CPU.Machine != "large" || p.CPU.Shape != p.GPU.Shape || p.CPU.Task != p.GPU.Task || p.CPU.Device != "cpu" {
			t.Fatalf("%+v and %+v", p.CPU, p.GPU)
		}
	}
	if n := len(Pairs(rows)); n != 4*sizesOfTask*2 {
		t.Errorf("%d pairs, expected %d", n, 4*sizesOfTask*2)
	}
	rows = slices.DeleteFunc(rows, func(r predict.Row) bool { return r.Memory == predict.Pageable || r.Memory == predict.Pinned })
	if n := len(Pairs(rows)); n != 4*sizesOfTask {
		t.Errorf("%d pairs of tasks without transfers, expected %d", n, 4*sizesOfTask)
	}
}

// fixed predicts a factor of the true time on each kind of device.
type fixed struct{ cpu, gpu float64 }

func (f fixed) Time(r *predict.Row) float64 {
	if r.Device == "cpu" {
		return f.cpu * r.Us
	}
	return f.gpu * r.Us
}

// The figures of a score are those of predictions whose errors are known.
func TestScore(t *testing.T) {
	rows := medians(t, measured(0.1))
	score := func(f fixed) Score {
		s := Splits(rows)[0]
		return grade(rows, &chance{}, s, "fixed", slices.Repeat([]Predictor{f}, len(s.Folds)))
	}
	s := score(fixed{1.5, 1.5}) // all off alike: choices are right
	if s.N != len(rows) || math.Abs(s.Median.Value-0.5) > 1e-9 || math.Abs(s.P90.Low-0.5) > 1e-9 || s.Geometric.Value != 1 || *s.Worst != 1 || *s.Wrong != 0 || s.Choices != 4*sizesOfTask*2 {
		t.Errorf("%+v, median %+v", s, s.Median)
	}
	s = score(fixed{1e-6, 1}) // always the CPU
	worst, sum, chosen, best := 0.0, 0.0, 0.0, 0.0
	for _, p := range Pairs(rows) {
		worst = max(worst, p.CPU.Us/p.Best())
		sum += math.Log(p.CPU.Us/p.Best()) / float64(4*sizesOfTask*2)
		chosen, best = chosen+p.CPU.Us, best+p.Best()
	}
	if math.Abs(*s.Worst-worst) > 1e-9 || math.Abs(s.Geometric.Value-math.Exp(sum)) > 1e-9 || math.Abs(*s.Total-chosen/best) > 1e-9 || worst < 2 {
		t.Errorf("worst %g, mean %g, total %g; expected %g, %g, %g", *s.Worst, s.Geometric.Value, *s.Total, worst, math.Exp(sum), chosen/best)
	}
	if s.Geometric.Low > s.Geometric.Value || s.Geometric.High < s.Geometric.Value || s.Geometric.Low == s.Geometric.High {
		t.Errorf("interval %+v", s.Geometric)
	}
}

// Noise is the error of the other repeats, and stands beside the errors of the same measurements.
func TestNoise(t *testing.T) {
	var rows []predict.Row
	for k := range 8 {
		for repeat := range 3 { // two repeats agree, and one takes twice the time
			n := math.Exp2(float64(8 + k))
			us := n
			if repeat == 2 {
				us *= 2
			}
			rows = append(rows, predict.Row{Machine: "m", Device: "cpu", Shape: fmt.Sprintf("n=%.0f", n), Us: us,
				Work: predict.Work{Task: "vector.add", DType: "float32", FLOPs: n, Bytes: n, Steps: 1, Rows: 1, FloorUs: n / 2}})
		}
	}
	rows = append(rows, rows[0]) // a case that was not repeated has no noise
	rows[len(rows)-1].Shape = "n=1"
	result, err := Check(context.Background(), rows, []Family{{Name: Ours, Fit: fitOurs}}, Between)
	if err != nil {
		t.Fatal(err)
	}
	s := result.Scores[0]
	// The median of 1 and 2 is 1.5: off by a half of 1; that of 1 and 1 is off by a half of 2.
	if s.Noise == nil || s.Noise.Median != 0.5 || s.Noise.P90 != 0.5 {
		t.Errorf("noise %+v, expected 0.5", s.Noise)
	}
	if len(s.Parts) != 1 || s.Parts[0].N != s.N || s.Parts[0].Median != s.Median.Value || s.Parts[0].Noise.Median != 0.5 || !(s.Parts[0].Bias > 0.5 && s.Parts[0].Bias < 2) {
		t.Errorf("parts %+v of %d times with a median error of %g", s.Parts, s.N, s.Median.Value)
	}
	if chance := noiseOf(rows)[rows[len(rows)-1].Case()]; chance != nil {
		t.Errorf("a case that was measured once has noise %g", chance)
	}
}

// Repeats of one turn agree; the medians of turns say how far a measurement at another time would be off.
func TestNoiseOfTurns(t *testing.T) {
	row := func(shape string, at int64, us float64) predict.Row {
		return predict.Row{Machine: "m", Device: "cpu", Shape: shape, At: at, Us: us, Work: predict.Work{Task: "a", FLOPs: 1, Bytes: 1, FloorUs: 1}}
	}
	var rows []predict.Row
	for k, us := range []float64{99, 100, 101, 198, 200, 202, 100, 100, 100} { // three turns, a minute from each other
		rows = append(rows, row("twice", int64(1000+60*(k/3)+k%3), us))
	}
	rows = append(rows, row("once", 1000, 5), row("once", 1001, 50), row("unknown", 0, 5), row("unknown", 0, 50))
	turns := turnsOf(rows)
	if got := turns[rows[0].Case()]; len(got) != 3 || math.Abs(got[0]-0.5) > 1e-9 || math.Abs(got[1]-0.5) > 1e-9 || math.Abs(got[2]-0.5) > 1e-9 {
		// 100 from 150, 200 from 100, 100 from 150
		t.Errorf("errors of turns %v, expected 0.5 three times", got)
	}
	if n := len(turns); n != 1 {
		t.Errorf("%d cases have turns, expected one", n)
	}
	all, split, family := medians(t, rows), Split{Name: Random, Folds: []Fold{{Fit: []int{0, 1, 2}, Grade: []int{0, 1, 2}}}}, Families()[len(Families())-1]
	fitted, err := fitFolds(t.Context(), all, split.Folds, family)
	if err != nil {
		t.Fatal(err)
	}
	s := grade(all, &chance{noiseOf(rows), turns}, split, family.Name, fitted)
	if s.Turns == nil || math.Abs(s.Turns.Median-0.5) > 1e-9 || s.Noise.Median > 10 || len(s.Parts) != 1 || s.Parts[0].Turns == nil {
		t.Errorf("turns %+v, noise %+v", s.Turns, s.Noise)
	}
}

// Each family does what it is known for.
func TestFamilies(t *testing.T) {
	rows := medians(t, measured(0))
	for _, f := range Families() {
		p, err := f.Fit(rows)
		if err != nil {
			t.Fatal(f.Name, err)
		}
		worst := 0.0 // error on what was fitted
		for i := range rows {
			if e := math.Abs(math.Log(p.Time(&rows[i]) / rows[i].Us)); !(e < worst) {
				worst = e
			}
		}
		switch f.Name {
		case "nearest":
			if worst != 0 {
				t.Errorf("nearest: a shape that was measured is off by %g", worst)
			}
		case "forest":
			if !(worst < 1.5) {
				t.Errorf("forest: a shape that was measured is off by %g", worst)
			}
		case Ours:
			if !(worst < 0.1) {
				t.Errorf("ours: times of a law are off by %g", worst)
			}
		case "threshold":
			c := p.(Chooser)
			right, all := 0, 0
			for _, pair := range Pairs(rows) {
				gpu, ok := c.GPU(pair.CPU, pair.GPU)
				if !ok {
					t.Fatal("threshold: no choice for a task that was measured")
				}
				if all++; gpu == (pair.GPU.Us < pair.CPU.Us) {
					right++
				}
			}
			if right < all*9/10 {
				t.Errorf("threshold: %d of %d choices are right", right, all)
			}
		}
	}
	var law []*predict.Row
	for k := range 12 {
		n := math.Exp2(float64(10 + k))
		law = append(law, &predict.Row{Work: predict.Work{FLOPs: n}, Us: 3*math.Pow(n, 0.8) + 40})
	}
	for _, r := range law {
		if p := fitPower(law); math.Abs(p.at(r.FLOPs)/r.Us-1) > 0.05 {
			t.Errorf("power law: %g FLOPs take %g, and %g by %+v", r.FLOPs, r.Us, p.at(r.FLOPs), p)
		}
	}
}

// Cold starts are graded apart.
func TestCold(t *testing.T) {
	rows := medians(t, measured(0))
	for _, r := range slices.Clone(rows) {
		if r.FLOPs < 1000 && r.Memory != predict.Pageable && r.Memory != predict.Pinned {
			r.Cold = true
			if r.Us += 1e4; r.Device != "cpu" {
				r.Us += 2e5
			}
			rows = append(rows, r)
		}
	}
	result, err := Check(context.Background(), rows, []Family{{Name: Ours, Fit: fitOurs}})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range result.Scores {
		if n := 2 * 3 * 4; s.Split == Cold && (s.N != n || s.Median.Value > 0.05) || s.Split == Random && s.N != len(rows)-n {
			t.Errorf("%s: %d of %d, median %g", s.Split, s.N, len(rows), s.Median.Value)
		}
	}
}

// On times of a law with noise no other family is clearly better than the cost model, wherever it was not fitted.
func TestCheck(t *testing.T) {
	result, err := Check(context.Background(), measured(0.05), Families())
	if err != nil {
		t.Fatal(err)
	}
	of := map[[2]string]Score{}
	for _, s := range result.Scores {
		of[[2]string{s.Split, s.Family}] = s
	}
	for _, split := range []string{Random, Between, Largest, TaskOut, TaskOutTen, DeviceOut, DeviceOutTen} {
		ours := of[[2]string{split, Ours}]
		if ours.N == 0 {
			t.Fatalf("%s is not graded", split)
		}
		if ours.Median.Value > 0.08 || ours.P90.Value > 0.3 || ours.Geometric.Value > 1.05 {
			t.Errorf("%s: median %.3f, P90 %.3f, over the oracle %.3f", split, ours.Median.Value, ours.P90.Value, ours.Geometric.Value)
		}
		for _, f := range []string{"floor", "power law", "nearest", "forest"} {
			if s := of[[2]string{split, f}]; s.N > 0 && s.Median.Value < ours.Median.Low {
				t.Errorf("%s: %s has a median error of %.3f, ours of %+v", split, f, s.Median.Value, *ours.Median)
			}
		}
		if split != DeviceOut && *ours.Within < 0.75 {
			t.Errorf("%s: %.2f of the times lie in an interval for 0.9", split, *ours.Within)
		}
	}
	if n := len(result.Decisions); n != len(Families()) {
		t.Errorf("decisions of %d families", n)
	}
	for _, d := range result.Decisions {
		if d.Family == Ours && (d.Allocations != 0 || d.N < 1000) {
			t.Errorf("%+v", d)
		}
	}
}

// The end of the context ends the grading with its cause.
func TestCheckEnds(t *testing.T) {
	ctx, cancel := context.WithCancelCause(context.Background())
	var fits atomic.Int32
	counts := Family{Name: "counts", Fit: func([]predict.Row) (Predictor, error) {
		if fits.Add(1) == 2 {
			cancel(errors.New("enough"))
		}
		return fixed{1, 1}, nil
	}}
	if _, err := Check(ctx, measured(0), []Family{counts}); err == nil || err.Error() != "enough" || fits.Load() > 1+mostFits { // those that had begun
		t.Errorf("%v after %d fits", err, fits.Load())
	}
}

package tasks

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"gpt2scope/internal/journal"
	"gpt2scope/internal/stats"
	"gpt2scope/nvtx"
	"gpt2scope/nvtx/annotate"
	"gpt2scope/predict"
)

// Bench measures the cases of a suite on a machine.
type Bench struct {
	Machine *Machine
	Suite   Suite

	// Cold runs a case once in a process that has just started; nil if nothing can. See
	// [Machine.Once].
	Cold func(ctx context.Context, c Case) (Times, error)

	// Progress, if not nil, is called after each turn with how many are done and how many there
	// are as far as is known.
	Progress func(done, total int)
}

// StateFile is the file in a directory of results from which a measurement goes on.
const StateFile = "tasks.state"

// state is its format.
var state = journal.Format[[]string]{File: StateFile, Name: "gpt2scope tasks", Whole: func(row []string) bool {
	_, err := parse(row)
	return err == nil
}}

// Journal is what of a suite is measured.
type Journal struct{ *journal.Journal[[]string] }

// OpenJournal creates the directory and its state file, or goes on from the file that is there,
// whose configuration must be the same.
func OpenJournal(dir string, configuration map[string]any) (*Journal, error) {
	j, err := state.Open(dir, configuration)
	return &Journal{j}, err
}

// Samples returns what was measured so far, in the order in which it was.
func (j *Journal) Samples() []Sample {
	var out []Sample
	for _, row := range j.Rows() {
		s, _ := parse(row) // it was checked, or written here
		out = append(out, s)
	}
	return out
}

// add writes the samples of a turn to disk.
func (j *Journal) add(t Turn, samples []Sample) error {
	rows := [][]string{}
	for i := range samples {
		rows = append(rows, cells(&samples[i]))
	}
	return j.Add(t.Key(), rows)
}

// Run measures what the journal does not hold yet: cold starts, all sizes of the tasks, and the
// sizes between those at which two devices take similar times.
func (b *Bench) Run(ctx context.Context, j *Journal) error {
	first, cold := b.Suite.Turns(), b.coldTurns()
	total := len(first) + len(cold)
	done := 0
	all := func(turns []Turn) error {
		for _, t := range turns {
			if err := context.Cause(ctx); err != nil {
				return err
			}
			if !j.Done(t.Key()) {
				samples, err := b.Turn(ctx, t)
				if err != nil {
					return err
				}
				if err := j.add(t, samples); err != nil {
					return err
				}
			}
			if done++; b.Progress != nil {
				b.Progress(done, total)
			}
		}
		return nil
	}
	if err := all(append(cold, first...)); err != nil {
		return err
	}
	between := b.Suite.Between(j.Samples())
	total += len(between)
	return all(between)
}

// coldTurns lists the turns of cold starts.
func (b *Bench) coldTurns() []Turn {
	if b.Cold == nil {
		return nil
	}
	return b.Suite.ColdTurns()
}

// similar is how many times longer one device may take than another at sizes between which
// there are more to measure: near the crossover it matters which is chosen.
const similar = 3

// Between lists the turns of shapes after those at which the tuned ways of two devices take
// times within a factor of 3.
func (s Suite) Between(samples []Sample) []Turn {
	type where struct{ task, shape, dtype string }
	times := map[where]map[string][]float64{} // by device and memory
	for i := range samples {
		if r := &samples[i]; r.Variant == Tuned && !r.Cold {
			w := where{r.Task, r.Shape, r.DType}
			if times[w] == nil {
				times[w] = map[string][]float64{}
			}
			times[w][r.Device+" "+r.Memory.String()] = append(times[w][r.Device+" "+r.Memory.String()], r.Us)
		}
	}
	near := func(t *Task, shape Shape, dtype string) bool {
		var host, gpu []float64
		for way, us := range times[where{t.Name, shape.String(), dtype}] {
			slices.Sort(us)
			if way == CPU+" "+MemoryHost.String() {
				host = append(host, stats.Median(us))
			} else {
				gpu = append(gpu, stats.Median(us))
			}
		}
		for _, h := range host {
			for _, g := range gpu {
				if max(h, g) <= similar*min(h, g) {
					return true
				}
			}
		}
		return false
	}
	var shapes []Turn
	for _, t := range s.Tasks {
		seen := map[string]bool{}
		for _, shape := range t.Sizes {
			seen[shape.String()] = true
		}
		for _, dtype := range t.DTypes {
			added := map[string]bool{}
			for _, shape := range t.Sizes {
				if t.Between == nil || !near(t, shape, dtype) {
					continue
				}
				for _, more := range t.Between(shape) {
					if name := more.String(); !seen[name] && !added[name] && s.has(t, more, dtype) {
						added[name] = true
						shapes = append(shapes, Turn{Task: t, Shape: more, DType: dtype})
					}
				}
			}
		}
	}
	return s.rounds(shapes, 1)
}

// warmUps is how often a case runs before its repeats.
const warmUps = 2

// A case that takes longer than long has one run for warm-up, and as few repeats in a turn as
// fit in a few times that.
const long = 150 * time.Millisecond

// A run that takes less than briefly comes right after another of the same case, which is not measured: threads that
// sleep take 0.3 ms to wake on a machine of 16 cores, and whether they do is chance.
const briefly = 5 * time.Millisecond

// Turn measures the cases of a turn, one repeat of each after another in random order. The
// results of all runs, also of those for warm-up, are checked.
func (b *Bench) Turn(ctx context.Context, t Turn) (samples []Sample, err error) {
	cost, err := t.Task.Cost(t.Shape, t.DType)
	if err != nil {
		return nil, err
	}
	cases := b.Suite.Cases(t)
	random := rand.New(rand.NewPCG(b.Suite.Seed, uint64(t.From)))
	if t.Cold {
		return b.cold(ctx, t, cases, cost, random)
	}
	end := annotate.Range(t.Key(), nvtx.Red)
	defer end()
	inputs, err := t.Task.Open(ctx, b.Machine, t.Shape, t.DType)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t.Key(), err)
	}
	defer inputs.Close()
	ready := make([]Ready, len(cases))
	left := make([]int, len(cases))   // repeats
	brief := make([]bool, len(cases)) // how long threads take to wake would show in the time
	for i, c := range cases {
		r, err := inputs.Prepare(ctx, c.Way, c.Device, c.Memory)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c, err)
		}
		defer r.Close()
		ready[i], left[i] = r, t.To-t.From+1
	}
	watch := b.Machine.watch()
	for n := t.From - warmUps; n <= t.To; n++ {
		for _, i := range random.Perm(len(cases)) {
			if n == t.From-1 && left[i] < t.To-t.From+1 || n >= t.From && n-t.From >= left[i] { // a long one
				continue
			}
			if n >= t.From && brief[i] { // threads slept while results were checked and other ways ran
				if _, err := ready[i].Run(ctx); err != nil {
					return nil, fmt.Errorf("%s: %w", cases[i], err)
				}
			}
			watch.begin()
			times, err := ready[i].Run(ctx)
			watch.end()
			if err == nil {
				err = ready[i].Check(ctx)
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %w", cases[i], err)
			}
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			if d := time.Duration(times.Wall * 1e3); n == t.From-warmUps && d > long {
				left[i] = min(left[i], max(2, int(4*long/d)))
			}
			brief[i] = time.Duration(times.Wall*1e3) < briefly
			if n >= t.From {
				samples = append(samples, watch.note(b.sample(cases[i], cost, n, times)))
			}
		}
	}
	watch.finish(samples)
	return samples, nil
}

// cold measures cold starts, each in a process of its own.
func (b *Bench) cold(ctx context.Context, t Turn, cases []Case, cost Cost, random *rand.Rand) (samples []Sample, err error) {
	watch := b.Machine.watch()
	for n := t.From; n <= t.To; n++ {
		for _, i := range random.Perm(len(cases)) {
			watch.begin()
			times, err := b.Cold(ctx, cases[i])
			watch.end()
			if err != nil {
				return nil, fmt.Errorf("%s: %w", cases[i], err)
			}
			samples = append(samples, watch.note(b.sample(cases[i], cost, n, times)))
		}
	}
	watch.finish(samples)
	return samples, nil
}

// sample makes the row of a repeat.
func (b *Bench) sample(c Case, cost Cost, repeat int, t Times) Sample {
	d := b.Machine.device(c.Device)
	return Sample{
		Row: predict.Row{
			Machine: b.Machine.Name, Processor: d.Processor, Device: c.Device, Shape: c.Shape.String(),
			Work: cost.work(c.Task.Name, c.DType, c.Memory, c.Cold, &d), Us: t.Wall, H2DUs: known(t.H2D), D2HUs: known(t.D2H),
		},
		Variant: c.Way.Variant, Repeat: repeat, SubmitUs: known(t.Submit), KernelUs: known(t.Kernel), MachineKey: d.Key,
		Time: time.Now().UTC(),
	}
}

// known returns a time, 0 if it was not measured.
func known(us float64) float64 {
	if math.IsNaN(us) {
		return 0
	}
	return us
}

package tasks

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"time"

	"gpt2scope/cuda/nvml"
	"gpt2scope/internal/journal"
	"gpt2scope/nvtx"
	"gpt2scope/nvtx/annotate"
	"gpt2scope/predict"
)

// Suite is what to measure.
type Suite struct {
	Tasks   []*Task
	Devices []string // "cpu", "cuda:0"
	Repeat  int      // samples of each case
	Rounds  int      // in which the repeats are made
	Seed    uint64   // of the order
	Most    int64    // bytes of the inputs and the result at most; 0 is any
	Few     int      // shapes of each task at most, in whatever type, from the first to the last; 0 is all
	Short   bool     // the sizes of [Task.Short] alone, in float32
	Sizes   []int    // these sizes alone, of tasks that have [Task.Of]
	Shard   journal.Shard
}

// Case is what a sample is of.
type Case struct {
	Turn
	Device string // "cpu", "cuda:0"
	Way    Way
	Memory predict.Memory
}

// String names a case.
func (c Case) String() string {
	return strings.Join([]string{c.Task.Name, c.Shape.String(), c.DType, c.Device, c.Way.Variant, string(c.Memory)}, " ")
}

// Turn is the cases of a shape in one type, which share inputs, and the repeats that are measured of each in turns.
type Turn struct {
	Task     *Task
	Shape    Shape
	DType    string
	From, To int // repeats, from 1 on; To is measured too
}

// Key names a turn in the journal.
func (t Turn) Key() string {
	return fmt.Sprintf("%s %s %s, %d to %d", t.Task.Name, t.Shape, t.DType, t.From, t.To)
}

// Cases lists what is measured in a turn.
func (s Suite) Cases(t Turn) []Case {
	var out []Case
	for _, w := range t.Task.Ways {
		if !w.fits(t.Shape, t.DType) {
			continue
		}
		for _, device := range s.Devices {
			if predict.Kind(device) != w.Device {
				continue
			}
			memories := []predict.Memory{predict.Pageable, predict.Pinned, predict.Resident}
			if w.Device == CPU {
				memories = []predict.Memory{predict.Host}
			} else if t.Task.Arrays == nil {
				memories = memories[2:]
			}
			for _, memory := range memories {
				out = append(out, Case{t, device, w, memory})
			}
		}
	}
	return out
}

// Turns lists the turns of all shapes: each shape once in a round, in an order that depends on the seed only, so that
// drift affects all alike.
func (s Suite) Turns() []Turn {
	var shapes []Turn
	for _, t := range s.Tasks {
		shapes = append(shapes, s.shapes(t)...)
	}
	shapes = journal.Of(s.Shard, shapes)
	random := rand.New(rand.NewPCG(s.Seed, 0x7461736b73)) // "tasks"
	var out []Turn
	for n := range s.Rounds {
		from, to := n*s.Repeat/s.Rounds+1, (n+1)*s.Repeat/s.Rounds
		if from > to {
			continue
		}
		for _, i := range random.Perm(len(shapes)) {
			t := shapes[i]
			t.From, t.To = from, to
			out = append(out, t)
		}
	}
	return out
}

// shapes lists the shapes of a task whose arrays are not too large; of more than a few those that are farthest apart.
func (s Suite) shapes(t *Task) (all []Turn) {
	dtypes, sizes, numbers := t.DTypes, t.Sizes, s.Sizes
	if s.Short && numbers == nil {
		dtypes, numbers = dtypes[:1], t.Short
	}
	if s.Short || s.Sizes != nil {
		sizes = nil
		for _, n := range numbers {
			if t.Of != nil {
				sizes = append(sizes, t.Of(n))
			}
		}
	}
	for _, dtype := range dtypes {
		for _, shape := range sizes {
			if c, err := t.Cost(shape, dtype); err == nil && (s.Most == 0 || c.In+c.Out <= s.Most) {
				all = append(all, Turn{Task: t, Shape: shape, DType: dtype})
			}
		}
	}
	if s.Few < 1 || s.Few >= len(all) {
		return all
	}
	few := make([]Turn, s.Few)
	for i := range few {
		few[i] = all[i*(len(all)-1)/max(1, s.Few-1)]
	}
	return few
}

// State is the file in a directory of results from which a measurement goes on.
var State = journal.Format[Sample]{File: "tasks.state", Name: "gpt2scope tasks"}

// Bench measures the cases of a suite on a machine.
type Bench struct {
	Machine *Machine
	Suite   Suite
}

// Run measures what the journal does not hold yet. progress is called after each turn.
func (b *Bench) Run(ctx context.Context, j *journal.Journal[Sample], progress func(done, total int)) error {
	turns := b.Suite.Turns()
	for i, t := range turns {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if !j.Done(t.Key()) {
			samples, err := b.Turn(ctx, t)
			if err != nil {
				return err
			}
			if err := j.Add(t.Key(), samples); err != nil {
				return err
			}
		}
		progress(i+1, len(turns))
	}
	return nil
}

const (
	warmUps = 2 // how often a case runs before its repeats

	// A case that takes longer than long has one run for warm-up, and as few repeats in a turn as fit in a few times that.
	long = 150 * time.Millisecond

	// A run that takes less than briefly comes right after another of the same case, which is not measured: threads that
	// sleep take 0.3 ms to wake on a machine of 16 cores, and whether they do is chance.
	briefly = 5 * time.Millisecond
)

// Turn measures the cases of a turn, one repeat of each after another in random order. The results of all runs, also of
// those for warm-up, are checked.
func (b *Bench) Turn(ctx context.Context, t Turn) (samples []Sample, err error) {
	cost, err := t.Task.Cost(t.Shape, t.DType)
	if err != nil {
		return nil, err
	}
	defer annotate.Range(t.Key(), nvtx.Red)()
	inputs, err := t.Task.open(ctx, b.Machine, t.Shape, t.DType)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t.Key(), err)
	}
	defer inputs.Close()
	return b.measure(ctx, t, cost, inputs)
}

func (b *Bench) measure(ctx context.Context, t Turn, cost Cost, inputs Opened) (samples []Sample, err error) {
	cases := b.Suite.Cases(t)
	random := rand.New(rand.NewPCG(b.Suite.Seed, uint64(t.From)))
	ready := make([]Ready, len(cases))
	left := make([]int, len(cases))   // repeats
	brief := make([]bool, len(cases)) // how long threads take to wake would show in the time
	for i, c := range cases {
		var s *slot
		if g := b.Machine.gpu(c.Device); g != nil {
			s = g.slot
		}
		r, err := inputs.prepare(ctx, c.Way, s, c.Memory)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c, err)
		}
		defer r.close()
		ready[i], left[i] = r, t.To-t.From+1
	}
	for n := t.From - warmUps; n <= t.To; n++ {
		for _, i := range random.Perm(len(cases)) {
			if n == t.From-1 && left[i] < t.To-t.From+1 || n >= t.From && n-t.From >= left[i] { // a long one
				continue
			}
			if n >= t.From && brief[i] { // threads slept while results were checked and other ways ran
				if _, err := ready[i].run(ctx); err != nil {
					return nil, fmt.Errorf("%s: %w", cases[i], err)
				}
			}
			before := interruptions()
			times, err := ready[i].run(ctx)
			after := interruptions()
			if err == nil {
				err = ready[i].check()
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %w", cases[i], err)
			}
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			d := time.Duration(times.Wall * 1e3)
			if n == t.From-warmUps && d > long {
				left[i] = min(left[i], max(2, int(4*long/d)))
			}
			if brief[i] = d < briefly; n >= t.From {
				s := b.sample(cases[i], cost, n, times)
				s.Disturbed = after > before && predict.Kind(s.Device) == CPU
				samples = append(samples, s)
			}
		}
	}
	b.Machine.noteGPUs(samples)
	return samples, nil
}

// sample makes the row of a repeat.
func (b *Bench) sample(c Case, cost Cost, repeat int, t Times) Sample {
	d := b.Machine.device(c.Device)
	return Sample{
		Row: predict.Row{
			Machine: b.Machine.Name, Processor: d.Processor, Device: c.Device, Shape: c.Shape.String(),
			Work: cost.work(c.Task.Name, c.DType, c.Memory, d), Us: t.Wall, H2DUs: t.H2D, D2HUs: t.D2H,
		},
		Variant: c.Way.Variant, Repeat: repeat, SubmitUs: t.Submit, KernelUs: t.Kernel, MachineKey: d.Key,
		Time: time.Now().UTC(),
	}
}

// interruptions returns how often this process has lost a processor to another one; 0 if that is not known.
func interruptions() int64 {
	var u syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return int64(u.Nivcsw)
}

// noteGPUs fills in what NVML says of the GPUs that samples are of: their clock, and whether others use them.
func (m *Machine) noteGPUs(samples []Sample) {
	for _, g := range m.GPUs {
		if m.nvml == nil {
			return
		}
		is, _ := m.nvml.GPU(g.Device.Info().PCI)
		for i := range samples {
			if s := &samples[i]; s.Device == g.name {
				s.SMClockMHz, s.Throttle = float64(max(0, is.SMClock)), strings.Join(is.Throttle, ", ")
				s.UsedByOthers = is.Processes > 1
				s.Disturbed = s.UsedByOthers || slices.ContainsFunc(is.Throttle, nvml.Slows)
			}
		}
	}
}

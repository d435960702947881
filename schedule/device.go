package schedule

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"gpt2scope/cuda"
	"gpt2scope/tasks"
)

// Threads returns how many cores run the CPU's tasks: each slot of a GPU keeps one, and the driver one. It is
// 0, for all, without a GPU.
func Threads(cores, gpus int) int {
	if gpus == 0 {
		return 0
	}
	return max(1, cores-maxSlots*gpus-1)
}

// cpuExecutor runs work on the CPU, with all threads of the machine's team.
type cpuExecutor struct {
	ctx   context.Context
	works []*tasks.Work // by task
}

func (c cpuExecutor) Run(_ int, j *Job) (Times, error) {
	t, err := c.works[j.ID].Run(c.ctx)
	return Times{Run: t.Wall}, err
}

func (c cpuExecutor) Held() int64 { return 0 }

// gpuExecutor runs work through a queue.
type gpuExecutor struct {
	ctx   context.Context
	queue *tasks.Queue
	works []*tasks.Work // by task

	mu       sync.Mutex
	failed   bool
	overhead float64 // us of a task over arrays that are neither copies nor kernels: a moving mean of tasks that ran alone
}

func (g *gpuExecutor) Run(slot int, j *Job) (Times, error) {
	t, alone, err := g.queue.Run(g.ctx, slot, g.works[j.ID])
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case errors.Is(err, cuda.ErrOutOfMemory):
		return Times{}, fmt.Errorf("%w: %w", ErrRefused, err)
	case err != nil:
		g.failed = true
		return Times{}, err
	case t.Kernel == 0: // GPT-2 waits for its tokens
		return Times{Run: t.Wall}, nil
	}
	parts := Times{t.H2D, t.Kernel, t.D2H}
	if rest := t.Wall - parts.Total(); alone && rest >= 0 {
		if g.overhead == 0 {
			g.overhead = rest
		}
		g.overhead += (rest - g.overhead) / 8
	}
	parts.Run += g.overhead
	return parts, nil
}

func (g *gpuExecutor) Held() int64 { return g.queue.Held() }

// Machine runs prepared streams on real devices.
type Machine struct {
	*tasks.Machine
	Read func(device int) *Reading // see [Stream]

	opened map[caseKey]*tasks.Work
	works  []*tasks.Work        // by task
	queues map[int]*tasks.Queue // by device: opened for the first stream, and used by all until the GPU is lost
}

// Open makes the inputs of all tasks of a stream.
func (p *Prepared) Open(ctx context.Context, m *tasks.Machine, suite []*tasks.Task) (r *Machine, err error) {
	r = &Machine{Machine: m, opened: map[caseKey]*tasks.Work{}, queues: map[int]*tasks.Queue{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.Close())
		}
	}()
	for i := range p.Jobs {
		j := &p.Jobs[i]
		k := caseKey{j.Task, j.Work[Host].DType, j.Shape}
		if r.opened[k] == nil {
			at := slices.IndexFunc(suite, func(t *tasks.Task) bool { return t.Name == j.Task })
			if at < 0 {
				return r, fmt.Errorf("the samples have a task %q, which this program has not", j.Task)
			}
			shape, err := tasks.ParseShape(j.Shape)
			if err != nil {
				return r, err
			}
			w, err := m.OpenWork(ctx, suite[at], shape, k.dtype)
			if err != nil {
				return r, err
			}
			r.opened[k] = w
		}
		r.works = append(r.works, r.opened[k])
		j.Memory = r.opened[k].DeviceBytes
	}
	return r, nil
}

// Close frees the inputs and the queues.
func (r *Machine) Close() error {
	var errs []error
	for _, q := range r.queues {
		errs = append(errs, q.Close())
	}
	for _, w := range r.opened {
		errs = append(errs, w.Close())
	}
	return errors.Join(errs...)
}

// Run runs the stream on the devices under a policy.
func (r *Machine) Run(ctx context.Context, p *Prepared, policy Policy) (Result, error) {
	s := Stream{Devices: p.Devices, Jobs: slices.Clone(p.Jobs), Kinds: len(p.Kinds), Policy: policy, Read: r.Read}
	for d, device := range p.Devices {
		if d == Host {
			s.Executors = append(s.Executors, cpuExecutor{ctx, r.works})
			continue
		}
		if r.queues[d] == nil {
			q, err := r.NewQueue(ctx, device.Name, device.Slots, slices.Collect(maps.Values(r.opened)))
			if err != nil {
				return Result{}, err
			}
			r.queues[d] = q
		}
		s.Executors = append(s.Executors, &gpuExecutor{ctx: ctx, queue: r.queues[d], works: r.works})
	}
	result, err := s.Run(ctx)
	for d, e := range s.Executors {
		if g, ok := e.(*gpuExecutor); ok && g.failed {
			r.queues[d].Close() // of a lost GPU: what it says is no news
			delete(r.queues, d)
		}
	}
	return result, err
}

// Measure measures what a stream can be made of: the tuned ways of all sizes whose floor on the CPU, in us, and whose
// memory, in bytes, are within bounds. It leaves out sizes for which a GPU has too little memory, and counts them.
// progress, if not nil, is told how many of how many are done.
func Measure(ctx context.Context, m *tasks.Machine, chosen []*tasks.Task, repeat int, longestUs float64, most int64,
	seed uint64, progress func(done, of int)) (samples []tasks.Sample, leftOut int, err error) {
	b := tasks.Bench{Machine: m, Suite: tasks.Suite{
		Tasks: chosen, Devices: m.Devices(), Repeat: repeat, Rounds: 1, Seed: seed, Most: most,
	}}
	turns := slices.DeleteFunc(b.Suite.Turns(), func(t tasks.Turn) bool {
		c, err := t.Task.Cost(t.Shape, t.DType)
		floor := c.FloorUs(m.CPU.Ceilings)
		return err != nil || !(floor <= longestUs)
	})
	for i, t := range turns {
		some, err := b.Turn(ctx, t)
		if errors.Is(err, cuda.ErrOutOfMemory) {
			leftOut++
		} else if err != nil {
			return nil, 0, err
		}
		samples = append(samples, some...)
		if progress != nil {
			progress(i+1, len(turns))
		}
	}
	return samples, leftOut, nil
}

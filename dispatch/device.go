package dispatch

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"gpt2scope/cuda"
	"gpt2scope/tasks"
)

// maxGPULanes is how many jobs a GPU runs in lanes unless its user says otherwise. With eight the oracle ends sooner, ours not surely, and policies that give the CPU too much end later (docs/scheduling.md).
const maxGPULanes = 6

// MaxLanes is how many lanes a GPU may have.
const MaxLanes = maxLanes

// Threads divides cores, if there are GPUs: host threads run the CPU's jobs, and beside the thread that feeds it each GPU has so many lanes, of which 0 asks for as many as
// the cores suggest. One core is left to the driver, the runtime, plans and the checks of lanes' results. If one of these took the core of a thread of a job, the others would wait for what that thread has
// begun (docs/scheduling.md).
func Threads(cores, gpus, lanes int) (host, of int) {
	if gpus == 0 {
		return 0, 0
	}
	if lanes == 0 {
		lanes = max(1, min(maxGPULanes, 3*cores/8/gpus))
	}
	return max(1, cores-beside(gpus, lanes)), lanes
}

// beside is how many cores GPUs with so many lanes take: see Threads.
func beside(gpus, lanes int) int {
	if gpus == 0 {
		return 0
	}
	return gpus*(lanes+1) + 1
}

// hostExecutor runs work on the CPU.
type hostExecutor struct {
	ctx   context.Context
	works func(*Job) *tasks.Work
	ended *Job
	times Times
}

// NewHost returns what runs jobs on the CPU, each with all threads of the machine's team.
func NewHost(ctx context.Context, works func(*Job) *tasks.Work) Executor {
	return &hostExecutor{ctx: ctx, works: works}
}

func (h *hostExecutor) Begin(j *Job) error {
	t, err := h.works(j).Run(h.ctx)
	h.ended, h.times = j, Times{Run: t.Wall}
	return err
}

func (h *hostExecutor) Ended() (*Job, Times, error) {
	j := h.ended
	h.ended = nil
	return j, h.times, nil
}

func (h *hostExecutor) Held() int64 { return 0 }

func (h *hostExecutor) Close() error { return nil }

// gpu is a GPU with a thread that is locked to a thread of the system, and a queue that is opened there for the first stream and used by all.
type gpu struct {
	calls chan func()
	queue *tasks.Queue
	keep  bool // the queue keeps inputs
}

func newGPU() *gpu {
	g := &gpu{calls: make(chan func())}
	go locked(func() {
		for f := range g.calls {
			f()
		}
	})
	return g
}

// do runs f on the thread of the GPU.
func (g *gpu) do(f func()) {
	ended := make(chan struct{})
	g.calls <- func() { defer close(ended); f() }
	<-ended
}

// end closes the queue. It is called on the thread of the GPU.
func (g *gpu) end() error {
	if g.queue == nil {
		return nil
	}
	err := g.queue.Close()
	g.queue = nil
	return err
}

// close closes the queue and ends the thread.
func (g *gpu) close() (err error) {
	g.do(func() { err = g.end() })
	close(g.calls)
	return err
}

// gpuExecutor runs work through a queue.
type gpuExecutor struct {
	gpu   *gpu
	queue *tasks.Queue // of the GPU
	ctx   context.Context
	works func(*Job) *tasks.Work
	jobs  []*Job // in flight
	begun time.Time
	lost  atomic.Bool // the queue failed
	rest  float64     // us of a job that are neither copies nor kernels, of jobs that ran alone: a moving mean
	known bool
}

// open returns what runs jobs on the GPU. It must be called on its thread.
func (g *gpu) open(ctx context.Context, m *tasks.Machine, device Device, all []*tasks.Work, works func(*Job) *tasks.Work, keep bool) (Executor, error) {
	if g.queue != nil && g.keep != keep {
		if err := g.end(); err != nil {
			return nil, err
		}
	}
	if g.queue == nil {
		q, err := m.NewQueue(ctx, device.Name, device.InFlight, device.Lanes, all, keep)
		if err != nil {
			return nil, err
		}
		g.queue, g.keep = q, keep
	}
	return &gpuExecutor{gpu: g, queue: g.queue, ctx: ctx, works: works}, nil
}

func (g *gpuExecutor) Begin(j *Job) error {
	if len(g.jobs) == 0 {
		g.begun = time.Now()
	}
	err := g.queue.Begin(g.ctx, g.works(j), j.moved > 0)
	if errors.Is(err, cuda.ErrOutOfMemory) {
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	if err != nil {
		g.lost.Store(true)
		return err
	}
	g.jobs = append(g.jobs, j)
	return nil
}

// The thread of a GPU asks again and again whether jobs have ended. If one job is alone in flight, without copies that are left to be issued, and longUs or more of its expected time are
// left, the thread sleeps for half of that, mostUs at most, and leaves its processor to the CPU's jobs.
const (
	longUs = 400.0
	mostUs = 1000.0
)

func (g *gpuExecutor) Ended() (*Job, Times, error) {
	e, ok, err := g.queue.Ended(g.ctx)
	if err != nil {
		g.lost.Store(true)
		return nil, Times{}, err
	}
	if !ok {
		if left := g.jobs[0].estimates[g.jobs[0].device].Total() - float64(time.Since(g.begun).Nanoseconds())/1e3; len(g.jobs) == 1 && left > longUs && !g.queue.Copying() {
			time.Sleep(time.Duration(min(left/2, mostUs)) * time.Microsecond)
		} else {
			tasks.Relax()
		}
		return nil, Times{}, nil
	}
	at := slices.IndexFunc(g.jobs, func(j *Job) bool { return g.works(j) == e.Work }) // of the same work, that which began first ends first
	j := g.jobs[at]
	g.jobs = slices.Delete(g.jobs, at, at+1)
	g.begun = time.Now()
	return j, g.times(e), nil
}

// times takes the time of a job apart. If other jobs were in flight, the host's clock has their time too: then
// what is beside copies and kernels is that of jobs which ran alone.
func (g *gpuExecutor) times(e tasks.Ended) Times {
	t := e.Times
	if math.IsNaN(t.Kernel) { // only the host's clock is known
		return Times{Run: t.Wall}
	}
	parts := Times{In: zero(t.H2D), Run: t.Kernel, Out: zero(t.D2H)}
	if rest := t.Wall - parts.Total(); e.Alone && rest >= 0 {
		if !g.known {
			g.rest, g.known = rest, true
		}
		g.rest += (rest - g.rest) / 8
		parts.Run += rest
	} else {
		parts.Run += g.rest
	}
	return parts
}

// zero returns a time, 0 if it is not known.
func zero(us float64) float64 {
	if math.IsNaN(us) {
		return 0
	}
	return us
}

// RunLane implements Laned. What a job takes is its time by the host's clock, since it waits for its tokens.
func (g *gpuExecutor) RunLane(j *Job) (Times, Check, error) {
	t, u, err := g.queue.RunLane(g.ctx, g.works(j))
	if errors.Is(err, cuda.ErrOutOfMemory) {
		return Times{}, nil, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	if err != nil {
		g.lost.Store(true)
		return Times{}, nil, err
	}
	return Times{Run: t.Wall}, func(wait bool) (bool, error) {
		done, err := u.Check(g.ctx, wait)
		if err != nil {
			g.lost.Store(true)
		}
		return done, err
	}, nil
}

func (g *gpuExecutor) Held() int64 { return g.queue.Held() }

// Close leaves the queue open for the next stream, unless it failed or jobs are in flight.
func (g *gpuExecutor) Close() error {
	if g.lost.Load() || len(g.jobs) > 0 {
		return g.gpu.end()
	}
	return nil
}

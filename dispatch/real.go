package dispatch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"

	"gpt2scope/cpu"
	"gpt2scope/cuda"
	"gpt2scope/internal/stats"
	"gpt2scope/predict"
	"gpt2scope/tasks"
)

// Measure measures what a stream on a machine can be made of: the tuned ways of all sizes whose floor on the CPU
// and whose memory are within bounds. progress, if not nil, is told how many of how many are done. What a GPU has too
// little memory for is left out; leftOut counts these sizes.
func Measure(ctx context.Context, m *tasks.Machine, chosen []*tasks.Task, repeat int, longestUs float64, most int64, seed uint64, progress func(done, of int)) (samples []tasks.Sample, leftOut int, err error) {
	b := tasks.Bench{Machine: m, Suite: tasks.Suite{Tasks: chosen, Devices: m.Devices(), Repeat: repeat, Rounds: 1, Seed: seed, Most: most}}
	turns := slices.DeleteFunc(b.Suite.Turns(), func(t tasks.Turn) bool {
		c, err := t.Task.Cost(t.Shape, t.DType)
		floor := c.FloorUs(m.CPU.Ceilings)
		return err != nil || !(floor <= longestUs)
	})
	for i, t := range turns {
		some, err := b.Turn(ctx, t)
		switch {
		case errors.Is(err, cuda.ErrOutOfMemory):
			leftOut++
		case err != nil:
			return nil, 0, err
		}
		samples = append(samples, some...)
		if progress != nil {
			progress(i+1, len(turns))
		}
	}
	return samples, leftOut, nil
}

// Within returns the rows of tasks whose floor on the CPU and whose inputs and result are within bounds, in us and bytes. The bytes are those of the
// task wherever its data were when it was measured.
func Within(rows []predict.Row, chosen []*tasks.Task, longestUs float64, most int64) []predict.Row {
	small := map[caseKey]bool{}
	fits := func(r *predict.Row) bool {
		k := caseKey{r.Task, r.DType, r.Shape}
		is, known := small[k]
		if known {
			return is
		}
		at := slices.IndexFunc(chosen, func(t *tasks.Task) bool { return t.Name == r.Task })
		if shape, err := tasks.ParseShape(r.Shape); err == nil && at >= 0 {
			c, err := chosen[at].Cost(shape, r.DType)
			is = err == nil && c.In+c.Out <= most
		}
		small[k] = is
		return is
	}
	return slices.DeleteFunc(rows, func(r predict.Row) bool { return !fits(&r) || r.Device == tasks.CPU && r.FloorUs > longestUs })
}

// Machine runs prepared streams on real devices.
type Machine struct {
	*tasks.Machine
	works map[caseKey]*tasks.Work
	all   []*tasks.Work // of the jobs: the same work as often as there are jobs
	gpus  []*gpu        // by device; nil for the host, and before the first run
	Keep  bool          // inputs stay on a GPU once they were copied there

	Load *Injected // what is put on a device in the middle of each stream, nil for nothing

	Watch Watcher // of streams, beside that of the host; nil for none
}

// Open makes the inputs of all work of a stream.
func (p *Prepared) Open(ctx context.Context, m *tasks.Machine, suite []*tasks.Task) (r *Machine, err error) {
	r = &Machine{Machine: m, works: map[caseKey]*tasks.Work{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.Close())
		}
	}()
	for i := range p.Jobs {
		j := &p.Jobs[i]
		k := caseKey{j.Task, j.Work[Host].DType, j.Shape}
		if r.works[k] != nil {
			r.all = append(r.all, r.works[k])
			continue
		}
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
		r.works[k] = w
		r.all = append(r.all, w)
	}
	return r, nil
}

// WatchNVML makes runs take note of what NVML says of the GPUs, until ctx ends. NVML is opened in the background.
func (r *Machine) WatchNVML(ctx context.Context) {
	pci := []string{""} // of the CPU
	for _, g := range r.GPUs {
		if g != nil {
			pci = append(pci, g.Device.Info().PCI)
		}
	}
	if len(pci) > 1 {
		r.Watch = Watch(NVML(ctx, pci))
	}
}

// Close frees the inputs, and what streams left open on GPUs.
func (r *Machine) Close() error {
	var errs []error
	for _, g := range r.gpus {
		if g != nil {
			errs = append(errs, g.close())
		}
	}
	for _, w := range r.works {
		errs = append(errs, w.Close())
	}
	return errors.Join(errs...)
}

// Run runs the stream on the devices under a policy.
func (r *Machine) Run(ctx context.Context, p *Prepared, policy Policy) (Result, error) {
	works := func(j *Job) *tasks.Work { return r.works[caseKey{j.Task, j.Work[Host].DType, j.Shape}] }
	jobs := slices.Clone(p.Jobs)
	for i := range jobs {
		jobs[i].Memory = works(&jobs[i]).DeviceBytes()
	}
	if r.Keep {
		data := map[*tasks.Work]*Data{}
		for i := range jobs {
			j := &jobs[i]
			w := works(j)
			if data[w] == nil && w.Cost.In > 0 && w.DeviceBytes() > 0 {
				data[w] = &Data{Bytes: w.Cost.In}
			}
			if data[w] != nil {
				j.Reads = []*Data{data[w]}
			}
		}
	}
	s := Stream{Devices: p.Devices, Jobs: jobs, Classes: p.Classes, Policy: policy, Watch: r.Watch}
	for d, device := range p.Devices {
		if d == Host {
			s.Open = append(s.Open, func() (Executor, error) { return NewHost(ctx, works), nil })
			continue
		}
		for len(r.gpus) <= d {
			r.gpus = append(r.gpus, nil)
		}
		if r.gpus[d] == nil {
			r.gpus[d] = newGPU()
		}
		s.Open = append(s.Open, func() (Executor, error) { return r.gpus[d].open(ctx, r.Machine, device, r.all, works, r.Keep) })
	}
	if r.Team != nil && r.Team.Threads() > 1 {
		cores := HostCores{Cores: runtime.NumCPU(), Threads: r.Team.Threads(), Beside: beside(len(p.Devices)-1, p.Devices[len(p.Devices)-1].Lanes)}
		s.Watch = watchAll(r.Watch, WatchHost(cores, cpu.NewOthers().Cores, r.Team.Use))
	}
	s.On = func(d int, f func()) {
		if d == Host {
			locked(f)
		} else {
			r.gpus[d].do(f)
		}
	}
	s.OnLane = func(d, lane int, f func()) { r.gpus[d].queue.OnLane(lane, f) }
	if r.Load == nil {
		return s.Run(ctx)
	}
	if _, err := r.Load.Index(p.Devices); err != nil {
		return Result{}, err
	}
	load, err := r.Load.ready(ctx, r.Machine)
	if err != nil {
		return Result{}, err
	}
	left := r.Load.After(len(jobs))
	var begun sync.WaitGroup
	s.Ended = func(Done) {
		if left--; left == 0 {
			begun.Go(load.begin) // the thread of a device does not wait until processes have started
		}
	}
	result, err := s.Run(ctx)
	begun.Wait()
	return result, errors.Join(err, load.end())
}

// Settled returns after how many jobs that ran on a device its predictions held: see Grade.Recovered.
func (r Result) Settled(device int) int {
	var c []Choice
	for _, d := range r.Done {
		c = append(c, Choice{Device: d.Device, Us: d.Times.Total(), PredictedUs: d.Decided.Total()})
	}
	return Grade{Choices: c}.Recovered(device, 0, settleWindow, settleError)
}

const (
	settleWindow = 5
	settleError  = 0.15
)

// Error returns the median of the relative error of the predictions of a device, NaN if it ran nothing.
func (r Result) Error(device int) float64 {
	var off []float64
	for _, d := range r.Done {
		if d.Device == device {
			off = append(off, math.Abs(d.Decided.Total()/d.Times.Total()-1))
		}
	}
	if len(off) == 0 {
		return math.NaN()
	}
	return stats.MedianOf(off)
}

// RunReport is what policies made of a stream on real devices.
type RunReport struct {
	Machine  string      `json:"machine"`
	Tasks    int         `json:"tasks"`
	BoundUs  float64     `json:"lower_bound_us"`
	SerialUs float64     `json:"lower_bound_serial_us"`            // if a GPU ran one task's kernels at a time
	AtWorkUs float64     `json:"lower_bound_at_work_us,omitempty"` // from what tasks took while all devices worked; 0: no run tells
	Devices  []string    `json:"devices"`
	Rounds   int         `json:"rounds"`
	Load     string      `json:"load,omitempty"`
	Runs     []PolicyRun `json:"policies"`
}

// PolicyRun is what a policy made of the stream.
type PolicyRun struct {
	Policy      string      `json:"policy"`
	MakespanUs  float64     `json:"makespan_us"` // the median of the rounds
	MakespansUs []float64   `json:"makespans_us"`
	OverBound   float64     `json:"over_bound"`
	OverSerial  float64     `json:"over_serial_bound"`
	SimulatedUs float64     `json:"simulated_makespan_us"`
	AtWorkUs    float64     `json:"simulated_at_work_us,omitempty"` // with what tasks took while all devices worked
	Plans       int         `json:"plans"`
	Moved       int         `json:"moved"`
	Probes      int         `json:"measured"`
	Drifts      int         `json:"drifts"`
	NoRoom      int         `json:"no_gpu_memory"`            // tasks done on the CPU, for which a GPU had too little memory
	OverBest    float64     `json:"over_best_geometric_mean"` // times of tasks over their usual ones on the device that is best for each
	P99         float64     `json:"over_best_p99"`
	Worst       float64     `json:"over_best_worst"`
	Lost        string      `json:"lost,omitempty"`
	Devices     []DeviceRun `json:"devices"`
}

// DeviceRun is what a device did in the round of the median.
type DeviceRun struct {
	Device  string   `json:"device"`
	Tasks   int      `json:"tasks"`
	Busy    float64  `json:"busy"` // share of the makespan
	Error   *float64 `json:"median_error,omitempty"`
	Settled int      `json:"settled_after"`

	// Medians of the rounds, of tasks that began after the load was put on a device, if one was.
	Recovered  *int    `json:"recovered_after"`      // nil: never
	Recoveries []int   `json:"recovered_after_each"` // of the rounds in which they did, the soonest first
	LostUs     float64 `json:"recovery_lost_us"`
}

// ReportOf makes the report of the runs of each policy, by its name, in which load was put on a device if it is
// not nil. truth is what jobs usually take.
func (p *Prepared) ReportOf(truth Truth, runs map[string][]Result, load *Injected) RunReport {
	r := RunReport{Machine: p.Machine, Tasks: len(p.Jobs), BoundUs: LowerBound(p.Devices, p.Jobs, truth), SerialUs: SerialBound(p.Devices, p.Jobs, truth)}
	for _, d := range p.Devices {
		r.Devices = append(r.Devices, d.Name)
	}
	simulated := *p.Simulation
	simulated.Truth = truth
	injected := 0
	if load != nil {
		r.Load, injected = load.String(), load.After(len(p.Jobs))
		simulated.Inject(*load) // the device is there: it ran
	}
	atWork, known := p.atWork(truth, runs, load)
	var again []Policy // of the second simulation, since some policies learn in the first
	if known {
		again, r.AtWorkUs = p.Policies(truth), LowerBound(p.Devices, p.Jobs, atWork.Truth)
	}
	for i, policy := range p.Policies(truth) {
		results := byMakespan(runs[policy.Name])
		if len(results) == 0 {
			continue
		}
		r.Rounds = max(r.Rounds, len(results))
		middle := Median(results)
		run := PolicyRun{
			Policy: policy.Name, MakespanUs: middle.Makespan, OverBound: middle.Makespan / r.BoundUs, OverSerial: middle.Makespan / r.SerialUs, SimulatedUs: simulated.Run(policy).Makespan,
			Plans: middle.Decided.Plans, Moved: middle.Decided.Moved, Probes: middle.Decided.Probes, Drifts: middle.Decided.Drifts, NoRoom: middle.Decided.NoRoom,
		}
		if known {
			run.AtWorkUs = atWork.Run(again[i]).Makespan
		}
		over := middle.OverBest(truth)
		run.OverBest, run.P99, run.Worst = over.GeoMean, over.P99, over.Worst
		for _, x := range results {
			run.MakespansUs = append(run.MakespansUs, x.Makespan)
			if x.Lost != nil {
				run.Lost = x.Lost.Error()
			}
		}
		for d, device := range p.Devices {
			one := DeviceRun{Device: device.Name, Recoveries: []int{}, Busy: middle.Busy[d] / middle.Makespan, Settled: middle.Settled(d)}
			var all []Recovery
			for _, x := range results {
				all = append(all, x.Recovery(d, x.since(injected), truth))
			}
			recovery := medianRecovery(all)
			if one.LostUs = recovery.LostUs; recovery.Ever {
				one.Recovered = &recovery.Tasks
			}
			for _, r := range all {
				if r.Ever {
					one.Recoveries = append(one.Recoveries, r.Tasks)
				}
			}
			for _, x := range middle.Done {
				if x.Device == d {
					one.Tasks++
				}
			}
			if e := middle.Error(d); !math.IsNaN(e) {
				one.Error = &e
			}
			run.Devices = append(run.Devices, one)
		}
		r.Runs = append(r.Runs, run)
	}
	return r
}

// atWork returns a simulation in which jobs take what runs without load show them to take while all devices work. ok is false if none does.
func (p *Prepared) atWork(truth Truth, runs map[string][]Result, load *Injected) (s *Simulation, ok bool) {
	if load != nil {
		return nil, false
	}
	var all []Result
	for _, name := range PolicyNames(p.Devices) {
		all = append(all, runs[name]...)
	}
	there := *p.Simulation
	there.Truth, ok = AtWork(p.Devices, p.Classes, truth, all)
	return &there, ok
}

// Median returns the run of a policy whose makespan is in the middle.
func Median(results []Result) Result { return byMakespan(results)[(len(results)-1)/2] }

// byMakespan returns runs, the shortest first.
func byMakespan(results []Result) []Result {
	return slices.SortedStableFunc(slices.Values(results), func(a, b Result) int { return cmp.Compare(a.Makespan, b.Makespan) })
}

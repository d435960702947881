package schedule

import (
	"cmp"
	"math"
	"slices"

	"gpt2scope/internal/stats"
)

// Span is a part of a stream's time, in us.
type Span struct{ Start, End float64 }

// Done is a task that has ended.
type Done struct {
	Job      *Job
	Device   int
	Plan     Span // from its begin to its end as expected then
	Actual   Span
	Times    Times
	Expected Times
}

// Result is what a policy made of a stream.
type Result struct {
	Policy      string    `json:"policy"`
	MakespanUs  float64   `json:"makespan_us"`
	MakespansUs []float64 `json:"makespans_us"` // of all rounds, the shortest first
	OverBound   float64   `json:"over_bound"`
	SimulatedUs float64   `json:"simulated_makespan_us"` // of a stream on real devices
	Counts
	Lost    string         `json:"lost,omitempty"` // which GPUs were lost, and why
	Devices []DeviceResult `json:"devices"`
	Done    []Done         `json:"-"` // in the order in which they ended
}

// DeviceResult is what a device did.
type DeviceResult struct {
	Device string   `json:"device"`
	Tasks  int      `json:"tasks"`
	Busy   float64  `json:"busy"`                   // share of the makespan
	Error  *float64 `json:"median_error,omitempty"` // of expected times, relative; none if it ran no task
}

func newResult(p Policy, devices []Device) *Result {
	r := &Result{Policy: p.Name}
	for _, d := range devices {
		r.Devices = append(r.Devices, DeviceResult{Device: d.Name})
	}
	return r
}

// add notes that a task has ended now.
func (r *Result) add(j *Job, device int, t Times, now float64) {
	r.Done = append(r.Done, Done{j, device, Span{j.start, j.begun.out}, Span{j.start, now}, t, j.expected})
	r.MakespanUs = math.Max(r.MakespanUs, now)
}

// finish sums up what the devices did.
func (r *Result) finish(s *Scheduler) Result {
	r.Counts = s.Counts
	for d := range r.Devices {
		device := &r.Devices[d]
		var off []float64
		busy, until := 0.0, 0.0
		for _, x := range r.Done {
			if x.Device == d {
				off = append(off, math.Abs(x.Expected.Total()/x.Times.Total()-1))
				busy += x.Actual.End - math.Max(x.Actual.Start, until)
				until = x.Actual.End
			}
		}
		if device.Tasks = len(off); device.Tasks > 0 {
			e := stats.MedianOf(off)
			device.Busy, device.Error = busy/r.MakespanUs, &e
		}
	}
	return *r
}

// Report is what policies made of a stream, simulated or on real devices.
type Report struct {
	Machine  string   `json:"machine"`
	Tasks    int      `json:"tasks"`
	Devices  []string `json:"devices"`
	BoundUs  float64  `json:"lower_bound_us"` // of the makespan: no schedule can beat it
	Rounds   int      `json:"rounds"`
	Policies []Result `json:"policies"` // each in the round of its median makespan
}

// Simulate runs the stream under all policies.
func (p *Prepared) Simulate() map[string][]Result {
	runs := map[string][]Result{}
	for _, policy := range p.Policies() {
		runs[policy.Name] = []Result{p.Run(policy)}
	}
	return runs
}

// Report makes the report of the runs of each policy, by its name.
func (p *Prepared) Report(runs map[string][]Result) Report {
	r := Report{Machine: p.Machine, Tasks: len(p.Jobs), BoundUs: LowerBound(p.Devices, p.Jobs, p.Truth)}
	for _, d := range p.Devices {
		r.Devices = append(r.Devices, d.Name)
	}
	for _, policy := range p.Policies() {
		results := runs[policy.Name]
		if len(results) == 0 {
			continue
		}
		run := Median(results)
		run.OverBound, run.SimulatedUs = run.MakespanUs/r.BoundUs, p.Run(policy).MakespanUs
		for _, x := range results {
			run.MakespansUs = append(run.MakespansUs, x.MakespanUs)
			run.Lost = cmp.Or(run.Lost, x.Lost)
		}
		slices.Sort(run.MakespansUs)
		r.Rounds = max(r.Rounds, len(results))
		r.Policies = append(r.Policies, run)
	}
	return r
}

// Median returns the run whose makespan is in the middle.
func Median(results []Result) Result {
	return slices.SortedStableFunc(slices.Values(results), func(a, b Result) int {
		return cmp.Compare(a.MakespanUs, b.MakespanUs)
	})[(len(results)-1)/2]
}

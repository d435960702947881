package schedule

import (
	"cmp"
	"math"
	"slices"

	"gpt2scope/internal/stats"
)

// Report is what policies made of a stream, simulated or on real devices.
type Report struct {
	Machine  string         `json:"machine"`
	Tasks    int            `json:"tasks"`
	Devices  []string       `json:"devices"`
	BoundUs  float64        `json:"lower_bound_us"` // of the makespan: no schedule can beat it
	Rounds   int            `json:"rounds"`
	Policies []PolicyReport `json:"policies"`
}

// PolicyReport is what a policy made of the stream, in the round of the median makespan.
type PolicyReport struct {
	Policy      string         `json:"policy"`
	MakespanUs  float64        `json:"makespan_us"`
	MakespansUs []float64      `json:"makespans_us"` // of all rounds, the shortest first
	OverBound   float64        `json:"over_bound"`
	SimulatedUs float64        `json:"simulated_makespan_us"` // of a stream on real devices
	Plans       int            `json:"plans"`
	Moved       int            `json:"moved"`         // tasks that changed their queue
	NoRoom      int            `json:"no_gpu_memory"` // tasks done on the CPU, for which a GPU had too little memory
	Lost        string         `json:"lost,omitempty"`
	Devices     []DeviceReport `json:"devices"`
}

// DeviceReport is what a device did.
type DeviceReport struct {
	Device string   `json:"device"`
	Tasks  int      `json:"tasks"`
	Busy   float64  `json:"busy"`                   // share of the makespan
	Error  *float64 `json:"median_error,omitempty"` // of expected times, relative; none if it ran no task
}

// Simulate runs the stream under all policies.
func (p *Prepared) Simulate() map[string][]Result {
	runs := map[string][]Result{}
	for _, policy := range p.Policies(p.Truth) {
		runs[policy.Name] = []Result{p.Run(policy)}
	}
	return runs
}

// Report makes the report of the runs of each policy, by its name. The truth is what tasks take, or usually take.
func (p *Prepared) Report(runs map[string][]Result, truth Truth) Report {
	r := Report{Machine: p.Machine, Tasks: len(p.Jobs), BoundUs: LowerBound(p.Devices, p.Jobs, truth)}
	for _, d := range p.Devices {
		r.Devices = append(r.Devices, d.Name)
	}
	simulated := p.Simulation
	simulated.Truth = truth
	for _, policy := range p.Policies(truth) {
		results := byMakespan(runs[policy.Name])
		if len(results) == 0 {
			continue
		}
		r.Rounds = max(r.Rounds, len(results))
		middle := Median(results)
		run := PolicyReport{
			Policy: policy.Name, MakespanUs: middle.Makespan, OverBound: middle.Makespan / r.BoundUs,
			SimulatedUs: simulated.Run(policy).Makespan,
			Plans:       middle.Counts.Plans, Moved: middle.Counts.Moved, NoRoom: middle.Counts.NoRoom,
		}
		for _, x := range results {
			run.MakespansUs = append(run.MakespansUs, x.Makespan)
			if x.Lost != nil {
				run.Lost = x.Lost.Error()
			}
		}
		for d, device := range p.Devices {
			one := DeviceReport{Device: device.Name, Busy: middle.Busy[d] / middle.Makespan}
			var off []float64
			for _, x := range middle.Done {
				if x.Device == d {
					off = append(off, math.Abs(x.Expected.Total()/x.Times.Total()-1))
				}
			}
			if one.Tasks = len(off); one.Tasks > 0 {
				e := stats.MedianOf(off)
				one.Error = &e
			}
			run.Devices = append(run.Devices, one)
		}
		r.Policies = append(r.Policies, run)
	}
	return r
}

// Median returns the run whose makespan is in the middle.
func Median(results []Result) Result { return byMakespan(results)[(len(results)-1)/2] }

// byMakespan returns runs, the shortest first.
func byMakespan(results []Result) []Result {
	return slices.SortedStableFunc(slices.Values(results), func(a, b Result) int { return cmp.Compare(a.Makespan, b.Makespan) })
}

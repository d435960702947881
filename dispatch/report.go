package dispatch

import "time"

// Comparison is what policies made of one stream.
type Comparison struct {
	Bound      float64
	Results    []Result // by policy, of the stream on all devices
	Grades     []Grade  // by policy, of one job at a time
	DecisionNs float64
	Decisions  int
	Load       *Injected // nil: none
	usual      Truth
}

// Compare runs the stream under all policies. Load that is not nil is put on a device in the middle of it.
func (p *Prepared) Compare(load *Injected) (Comparison, error) {
	simulated := *p.Simulation
	if load != nil {
		if err := simulated.Inject(*load); err != nil {
			return Comparison{}, err
		}
	}
	c := Comparison{Load: load, usual: p.Medians(), Bound: LowerBound(p.Devices, p.Jobs, p.Truth)}
	for _, policy := range p.Policies(p.Truth) {
		c.Results = append(c.Results, simulated.Run(policy))
	}
	for _, policy := range p.Policies(p.Medians()) {
		c.Grades = append(c.Grades, p.Alone(policy))
	}
	c.Decisions = timedDecisions
	c.DecisionNs = p.DecisionTime(p.Ours(), c.Decisions)
	return c, nil
}

const timedDecisions = 200_000

// DecisionTime returns what a decision takes in ns, the mean of n.
func (p *Prepared) DecisionTime(policy Policy, n int) float64 {
	if len(p.Jobs) == 0 || n == 0 {
		return 0
	}
	s := New(p.Devices, p.Classes, policy)
	jobs := append([]Job(nil), p.Jobs[:min(len(p.Jobs), 1024)]...)
	for i := range jobs {
		s.Decide(&jobs[i], 0)
	}
	start := time.Now()
	for i := range n {
		s.Decide(&jobs[i%len(jobs)], 0)
	}
	return float64(time.Since(start).Nanoseconds()) / float64(n)
}

// Report is a Comparison as JSON.
type Report struct {
	Tasks      int            `json:"tasks"`
	BoundUs    float64        `json:"lower_bound_us"`
	DecisionNs float64        `json:"decision_ns"`
	Decisions  int            `json:"decisions"`
	Devices    []string       `json:"devices"`
	Load       string         `json:"load,omitempty"`
	Policies   []PolicyReport `json:"policies"`
}

// PolicyReport is what a policy made of the stream.
type PolicyReport struct {
	Policy     string    `json:"policy"`
	MakespanUs float64   `json:"makespan_us"`
	OverBound  float64   `json:"over_bound"`
	Busy       []float64 `json:"busy"` // by device, as a share of the makespan
	Moved      int       `json:"moved"`
	Probes     int       `json:"measured"`
	Plans      int       `json:"plans"`
	Drifts     int       `json:"drifts"`

	GeoMean float64 `json:"alone_geometric_mean"`
	P99     float64 `json:"alone_p99"`
	Worst   float64 `json:"alone_worst"`
	Regret  float64 `json:"alone_time_lost"`
	Right   float64 `json:"alone_best_device"`

	// Of the device that load is put on.
	Recovered *int    `json:"recovered_after,omitempty"` // nil: never
	LostUs    float64 `json:"recovery_lost_us,omitempty"`
}

// Report makes one.
func (c Comparison) Report() Report {
	r := Report{BoundUs: c.Bound, DecisionNs: c.DecisionNs, Decisions: c.Decisions}
	if c.Load != nil {
		r.Load = c.Load.String()
	}
	for i, result := range c.Results {
		if i == 0 {
			r.Tasks = len(result.Done)
			for _, d := range result.Devices {
				r.Devices = append(r.Devices, d.Name)
			}
		}
		g := c.Grades[i]
		p := PolicyReport{
			Policy: result.Policy, MakespanUs: result.Makespan, OverBound: result.Makespan / c.Bound,
			Moved: result.Decided.Moved, Probes: result.Decided.Probes, Plans: result.Decided.Plans, Drifts: result.Decided.Drifts,
			GeoMean: g.GeoMean, P99: g.P99, Worst: g.Worst, Regret: g.Regret, Right: g.Right,
		}
		if c.Load != nil {
			device, _ := c.Load.Index(result.Devices) // it is there: Compare
			recovery := result.Recovery(device, result.since(c.Load.After(len(result.Done))), c.usual)
			if p.LostUs = recovery.LostUs; recovery.Ever {
				p.Recovered = &recovery.Tasks
			}
		}
		for _, busy := range result.Busy {
			p.Busy = append(p.Busy, busy/result.Makespan)
		}
		r.Policies = append(r.Policies, p)
	}
	return r
}

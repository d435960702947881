package dispatch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"gpt2scope/predict"
)

// HeldOut says what the model of a simulation has not seen.
type HeldOut string

// What is held out.
const (
	Nothing HeldOut = "nothing" // the stream is of work that was fitted
	Sizes   HeldOut = "sizes"   // every second size of each task; the stream is of these
	Tasks   HeldOut = "task"    // each task is predicted by a model of the others
)

// Setup makes simulations of measurements.
type Setup struct {
	Rows     []predict.Row
	Machine  string         // whose rows; "": the first that has the CPU and a GPU
	Memory   predict.Memory // where the inputs of GPU work are: Pinned, Pageable or Resident. Work that was measured Resident only is
	Devices  []string       // the CPU first; nil: all that the machine has, at least one GPU
	HeldOut  HeldOut
	Jobs     int
	Interval float64 // us between arrivals, on average; 0: all are there from the start
	Seed     uint64
	Lanes    int // of each GPU; 0: as many as it has at most

	// Model, if not nil, is used instead of one fitted to the rows.
	Model *predict.Model
}

// Prepared is a stream with what its policies believe.
type Prepared struct {
	*Simulation
	Machine  string
	Cases    int // that the stream is drawn from
	Kinds    []string
	Model    Estimator
	Link     float64 // bytes per us of the fastest copy to a GPU that was measured
	history  []Case  // that were fitted
	stream   []Case  // that jobs are drawn from
	HeldOut  HeldOut
	Interval float64
}

// Prepare draws the stream and fits the model.
func (s Setup) Prepare() (*Prepared, error) {
	machine, devices, err := s.machine()
	if err != nil {
		return nil, err
	}
	all := s.cases(machine, devices)
	if len(all) == 0 {
		return nil, fmt.Errorf("no work was measured on all devices of %s with inputs in %s memory", machine, s.Memory)
	}
	p := &Prepared{Machine: machine, HeldOut: s.HeldOut, Interval: s.Interval}
	var stream []Case
	nth := map[string]int{}
	held := map[caseKey]bool{}
	for _, c := range all {
		kind := kindOf(&c)
		if !slices.Contains(p.Kinds, kind) {
			p.Kinds = append(p.Kinds, kind)
		}
		nth[kind]++
		if s.HeldOut == Sizes && nth[kind]%2 == 1 {
			p.history = append(p.history, c)
			continue
		}
		if s.HeldOut == Sizes {
			held[keyOf(&c)] = true
		}
		if s.HeldOut == Nothing || s.HeldOut == "" {
			p.history = append(p.history, c)
		}
		stream = append(stream, c)
	}
	if len(stream) == 0 {
		return nil, errors.New("each task was measured at one size: nothing is left if sizes are held out")
	}
	if p.Model, err = s.model(machine, devices, p.Kinds, held); err != nil {
		return nil, err
	}
	for _, r := range s.Rows {
		if r.Machine == machine && r.Device != devices[Host] && r.H2DUs > 0 && r.BytesIn > 0 {
			p.Link = math.Max(p.Link, r.BytesIn/r.H2DUs)
		}
	}
	d := Draw(stream, s.Jobs, s.Interval, s.Seed)
	p.Cases, p.stream = len(stream), stream
	p.Simulation = &Simulation{Jobs: d.Jobs, Classes: d.Classes, Truth: d, Usual: d.Medians()}
	p.Devices = DevicesOf(devices, cmp.Or(s.Lanes, maxGPULanes))
	return p, nil
}

// DevicesOf returns devices by their names, the CPU first: a GPU takes two jobs over arrays at once, and others in so many lanes.
func DevicesOf(names []string, lanes int) []Device {
	all := make([]Device, len(names))
	for i, name := range names {
		all[i] = Device{Name: name, InFlight: 2, Lanes: lanes}
	}
	all[Host].InFlight, all[Host].Lanes = 1, 0
	return all
}

// machine returns the machine and its devices, the CPU first.
func (s Setup) machine() (string, []string, error) {
	of := map[string][]string{}
	var order []string
	for _, r := range s.Rows {
		if of[r.Machine] == nil {
			order = append(order, r.Machine)
		}
		if !slices.Contains(of[r.Machine], r.Device) {
			of[r.Machine] = append(of[r.Machine], r.Device)
		}
	}
	for _, name := range order {
		devices := of[name]
		slices.Sort(devices) // "cpu" is before "cuda:0"
		if s.Machine != "" && name != s.Machine {
			continue
		}
		if s.Devices != nil && !slices.ContainsFunc(s.Devices, func(d string) bool { return !slices.Contains(devices, d) }) {
			return name, s.Devices, nil
		}
		if s.Devices == nil && len(devices) > 1 && devices[0] == "cpu" {
			return name, devices, nil
		}
	}
	if s.Devices != nil {
		return "", nil, fmt.Errorf("the samples hold no machine that measured all of %s", strings.Join(s.Devices, ", "))
	}
	if s.Machine != "" && of[s.Machine] == nil {
		return "", nil, fmt.Errorf("machine %q is not in the samples; they are of %s", s.Machine, strings.Join(order, ", "))
	}
	return "", nil, errors.New("the samples hold no machine that measured both its CPU and a GPU; give those of 'infer tasks bench --device all'")
}

type caseKey struct{ task, dtype, shape string }

func keyOf(c *Case) caseKey { return caseKey{c.Task, c.Work[Host].DType, c.Shape} }

// kindOf names the kind of a job: its task and type.
func kindOf(c *Case) string { return c.Task + " " + c.Work[Host].DType }

// timesOf takes a measured time apart.
func timesOf(r *predict.Row) Times {
	in, out := math.Min(r.H2DUs, r.Us), math.Min(r.D2HUs, math.Max(0, r.Us-r.H2DUs))
	return Times{In: in, Run: math.Max(0, r.Us-in-out), Out: out}
}

// cases returns the work that was measured warm on all devices, in the order of tasks and sizes.
func (s Setup) cases(machine string, devices []string) []Case {
	found := map[caseKey]*Case{}
	type where struct {
		caseKey
		device int
	}
	resident := map[where]bool{} // what of a case on a GPU was measured with its data there, and not yet in the asked memory
	for i := range s.Rows {
		r := &s.Rows[i]
		at := slices.Index(devices, r.Device)
		if r.Machine != machine || at < 0 || r.Cold {
			continue
		}
		k := caseKey{r.Task, r.DType, r.Shape}
		c := found[k]
		if c == nil {
			c = &Case{Task: r.Task, Shape: r.Shape, Work: make([]predict.Work, len(devices)), Repeats: make([][]Times, len(devices))}
			found[k] = c
		}
		if w := (where{k, at}); at != Host && r.Memory != s.Memory {
			if r.Memory != predict.Resident || len(c.Repeats[at]) > 0 && !resident[w] {
				continue
			}
			resident[w] = true
		} else if at != Host && resident[w] {
			c.Repeats[at], resident[w] = nil, false
		}
		c.Work[at] = r.Work
		c.Repeats[at] = append(c.Repeats[at], timesOf(r))
	}
	var out []Case
	for _, k := range slices.SortedFunc(maps.Keys(found), func(a, b caseKey) int {
		return cmp.Or(cmp.Compare(a.task, b.task), cmp.Compare(a.dtype, b.dtype), cmp.Compare(found[a].Work[Host].FloorUs, found[b].Work[Host].FloorUs), cmp.Compare(a.shape, b.shape))
	}) {
		if c := found[k]; !slices.ContainsFunc(c.Repeats, func(r []Times) bool { return len(r) == 0 }) {
			out = append(out, *c)
		}
	}
	return out
}

// model returns what predicts the stream.
func (s Setup) model(machine string, devices, kinds []string, held map[caseKey]bool) (Estimator, error) {
	index := func(m *predict.Model) Model {
		out := Model{Model: m}
		for _, d := range devices {
			key := ""
			if at := slices.IndexFunc(s.Rows, func(r predict.Row) bool { return r.Machine == machine && r.Device == d }); at >= 0 {
				key = s.Rows[at].Key
			}
			i, _ := m.Device(machine, key, d)
			out.Index = append(out.Index, i)
		}
		return out
	}
	if s.Model != nil {
		return index(s.Model), nil
	}
	var warm []predict.Row
	for _, r := range s.Rows {
		if !r.Cold && !held[caseKey{r.Task, r.DType, r.Shape}] {
			warm = append(warm, r)
		}
	}
	if s.HeldOut != Tasks {
		m, err := predict.Fit(context.Background(), warm)
		if err != nil {
			return nil, err
		}
		return index(m), nil
	}
	models := Models{}
	for _, r := range s.Rows {
		if _, ok := models[r.Task]; ok {
			continue
		}
		m, err := predict.Fit(context.Background(), slices.DeleteFunc(slices.Clone(warm), func(o predict.Row) bool { return o.Task == r.Task }))
		if err != nil {
			return nil, fmt.Errorf("without %s: %w", r.Task, err)
		}
		models[r.Task] = index(m)
	}
	return models, nil
}

// Models estimates each task by a model of its own.
type Models map[string]Estimator

// Estimate implements Estimator.
func (m Models) Estimate(device int, j *Job, in int64) Estimate {
	return m[j.Task].Estimate(device, j, in)
}

// History returns an estimator that has seen what the model was fitted to.
func (p *Prepared) History() *History {
	h := NewHistory()
	for i := range p.history {
		c := &p.history[i]
		j := &Job{Task: c.Task, Shape: c.Shape, Work: c.Work}
		for d, repeats := range c.Repeats {
			for _, t := range repeats {
				h.Observe(d, j, t)
			}
		}
	}
	return h
}

// Medians returns the median of the measured times of each job of the stream: the truth of a run in which the
// times are not known beforehand, and of grades.
func (p *Prepared) Medians() Truth { return p.Usual }

// Floors returns the estimator by floors.
func (p *Prepared) Floors() Floors { return Floors{LinkBytesPerUs: p.Link} }

// Ours returns the policy of this package.
func (p *Prepared) Ours() Policy { return Ours(p.Model, Constants{p.Floors()}) }

// PolicyNames lists the policies that [Prepared.Policies] has for devices.
func PolicyNames(devices []Device) []string {
	p := Prepared{Simulation: &Simulation{Devices: devices}}
	var names []string
	for _, policy := range p.Policies(nil) { // no job asks for what it takes
		names = append(names, policy.Name)
	}
	return names
}

// Policies returns those that are compared, new for each use since some learn. The oracle, the threshold in
// hindsight and the lower bound take truth for what jobs take.
func (p *Prepared) Policies(truth Truth) []Policy {
	size := func(j *Job) float64 { return j.Work[Host].FLOPs }
	bytes := func(j *Job) float64 { return j.Work[Host].Bytes }
	if len(p.Devices) == 1 {
		return []Policy{Always("always cpu", Host, p.Model), p.Ours()}
	}
	gpu := 1
	threshold := func(name string, size func(*Job) float64) Policy {
		t := Threshold(size, p.BestThreshold(gpu, size, truth), gpu, p.Model)
		t.Name = name
		return t
	}
	return []Policy{
		Oracle(True{truth}),
		Always("always cpu", Host, p.Model),
		Always("always "+p.Devices[gpu].Name, gpu, p.Model),
		threshold("threshold of FLOPs", size),
		threshold("threshold of bytes", bytes),
		DMDA("dmda on floors", p.Floors()),
		DMDA("dmda on history", p.History()),
		p.Ours(),
	}
}

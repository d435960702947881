package schedule

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"gpt2scope/internal/stats"
	"gpt2scope/predict"
	"gpt2scope/tasks"
)

// Setup makes a stream of measurements. Every second size of each task is in the stream; the model is fitted to the
// others.
type Setup struct {
	Rows     []predict.Row
	Machine  string         // whose rows; "": the first that has all devices
	Devices  []string       // the CPU first; nil: all that the machine has, at least one GPU
	Memory   predict.Memory // where the inputs of GPU work are; work that was only measured Resident is
	Jobs     int
	Interval float64 // us between arrivals, on average; 0: all tasks are there from the start
	Seed     uint64

	Chosen    []*tasks.Task // nil: all
	LongestUs float64       // the longest floor on the CPU; 0: any
	Most      int64         // bytes of inputs and result; 0: any

	// Model returns a model fitted to rows; nil: the caller sets [Prepared.Model].
	Model func(rows []predict.Row) (*predict.Model, error)
}

// Prepared is a stream with what its policies know.
type Prepared struct {
	Simulation
	Machine string
	Cases   int   // that the stream is drawn from
	Medians Truth // what tasks usually take
	Model   Predictor
	Floors  Predictor
}

// caseKey names work.
type caseKey struct{ task, dtype, shape string }

func keyOf(r *predict.Row) caseKey { return caseKey{r.Task, r.DType, r.Shape} }

// kind is what a correction is of.
func (k caseKey) kind() string { return k.task + " " + k.dtype }

// workCase is work that was measured on all devices.
type workCase struct {
	caseKey
	work    []predict.Work // by device
	repeats [][]Times      // by device
}

// Prepare draws the stream and fits the model.
func (s Setup) Prepare() (*Prepared, error) {
	machine, devices, err := s.Place()
	if err != nil {
		return nil, err
	}
	p := &Prepared{Machine: machine}
	p.Devices = DevicesOf(devices)
	var stream []workCase
	nth, held := map[string]int{}, map[caseKey]bool{}
	for _, c := range s.cases(machine, devices) {
		if nth[c.kind()]++; nth[c.kind()]%2 == 0 {
			held[c.caseKey] = true
			stream = append(stream, c)
		}
	}
	if p.Cases = len(stream); p.Cases == 0 {
		return nil, fmt.Errorf("no task was measured at two sizes on all of %s of %s with inputs in %s memory",
			strings.Join(devices, ", "), machine, s.Memory)
	}
	index, link := make([]int, len(devices)), 0.0
	var rest []predict.Row
	for _, r := range s.Rows {
		if !r.Cold && !held[keyOf(&r)] {
			rest = append(rest, r)
		}
		if r.Machine == machine && r.Device != devices[Host] && r.H2DUs > 0 {
			link = math.Max(link, r.BytesIn/r.H2DUs)
		}
	}
	p.Floors = floors(link)
	if s.Model != nil {
		m, err := s.Model(rest)
		if err != nil {
			return nil, err
		}
		for d, name := range devices {
			at := slices.IndexFunc(s.Rows, func(r predict.Row) bool { return r.Machine == machine && r.Device == name })
			index[d], _ = m.Device(&s.Rows[at])
		}
		p.Model = func(j *Job, device int) Times {
			e := m.Predict(index[device], &j.Work[device])
			return Times{e.InUs, e.Us - e.InUs - e.OutUs, e.OutUs}
		}
	}
	p.draw(stream, s.Jobs, s.Interval, s.Seed)
	return p, nil
}

// draw draws tasks. Kinds are equally likely, and so are the cases of a kind. Each task takes the time of one repeat on
// each device, the same under all policies.
func (p *Prepared) draw(stream []workCase, n int, interval float64, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 0))
	byKind := map[string][]*workCase{}
	for i := range stream {
		c := &stream[i]
		if byKind[c.kind()] == nil {
			p.Kinds = append(p.Kinds, c.kind())
		}
		byKind[c.kind()] = append(byKind[c.kind()], c)
	}
	drawn, medians := make([][]Times, n), make([][]Times, n)
	at := 0.0
	for i := range n {
		kind := random.IntN(len(p.Kinds))
		cases := byKind[p.Kinds[kind]]
		c := cases[random.IntN(len(cases))]
		for _, repeats := range c.repeats {
			drawn[i] = append(drawn[i], repeats[random.IntN(len(repeats))])
			medians[i] = append(medians[i], medianTimes(repeats))
		}
		p.Jobs = append(p.Jobs, Job{ID: i, Task: c.task, Shape: c.shape, Kind: kind, Work: c.work, Shares: tasks.LeavesRoom(c.task), Arrive: at})
		if interval > 0 {
			at += random.ExpFloat64() * interval
		}
	}
	p.Truth = func(j *Job, device int) Times { return drawn[j.ID][device] }
	p.Medians = func(j *Job, device int) Times { return medians[j.ID][device] }
}

// medianTimes returns the median of each part.
func medianTimes(all []Times) Times {
	median := func(part func(Times) float64) float64 {
		v := make([]float64, len(all))
		for i, t := range all {
			v[i] = part(t)
		}
		return stats.MedianOf(v)
	}
	return Times{
		median(func(t Times) float64 { return t.In }),
		median(func(t Times) float64 { return t.Run }),
		median(func(t Times) float64 { return t.Out }),
	}
}

// Place returns the machine and its devices, the CPU first.
func (s Setup) Place() (string, []string, error) {
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
		wanted := s.Devices
		if wanted == nil && len(devices) > 1 && devices[0] == tasks.CPU {
			wanted = devices
		}
		lacks := func(d string) bool { return !slices.Contains(devices, d) }
		if wanted != nil && !slices.ContainsFunc(wanted, lacks) && (s.Machine == "" || name == s.Machine) {
			return name, wanted, nil
		}
	}
	wanted := "its CPU and a GPU; 'infer tasks bench --device all' does"
	if s.Devices != nil {
		wanted = "all of " + strings.Join(s.Devices, ", ")
	}
	if s.Machine != "" && of[s.Machine] == nil {
		return "", nil, fmt.Errorf("machine %q is not in the samples; they are of %s", s.Machine, strings.Join(order, ", "))
	}
	return "", nil, fmt.Errorf("the samples hold no machine that measured %s", wanted)
}

// cases returns the chosen work that was measured warm on all devices, in the order of tasks and sizes. Work that was
// measured on a GPU both in the asked memory and with its data there counts in the asked memory.
func (s Setup) cases(machine string, devices []string) []workCase {
	type place struct {
		caseKey
		device int
	}
	at := func(r *predict.Row) int {
		if r.Machine != machine || r.Cold {
			return -1
		}
		return slices.Index(devices, r.Device)
	}
	asked := map[place]bool{}
	for i := range s.Rows {
		if r := &s.Rows[i]; r.Memory == s.Memory {
			asked[place{keyOf(r), at(r)}] = true
		}
	}
	found := map[caseKey]*workCase{}
	for i := range s.Rows {
		r := &s.Rows[i]
		k, d := keyOf(r), at(r)
		resident := r.Memory == predict.Resident && !asked[place{k, d}]
		if d < 0 || d != Host && r.Memory != s.Memory && !resident {
			continue
		}
		if found[k] == nil {
			found[k] = &workCase{k, make([]predict.Work, len(devices)), make([][]Times, len(devices))}
		}
		in, out := math.Min(r.H2DUs, r.Us), math.Min(r.D2HUs, math.Max(0, r.Us-r.H2DUs))
		found[k].work[d] = r.Work
		found[k].repeats[d] = append(found[k].repeats[d], Times{in, math.Max(0, r.Us-in-out), out})
	}
	var all []workCase
	for _, c := range found {
		if s.chooses(c) && !slices.ContainsFunc(c.repeats, func(r []Times) bool { return len(r) == 0 }) {
			all = append(all, *c)
		}
	}
	slices.SortFunc(all, func(a, b workCase) int {
		return cmp.Or(cmp.Compare(a.task, b.task), cmp.Compare(a.dtype, b.dtype),
			cmp.Compare(a.work[Host].FloorUs, b.work[Host].FloorUs), cmp.Compare(a.shape, b.shape))
	})
	return all
}

// chooses tells whether work is of a chosen task and within the bounds, wherever its data were when it was measured.
func (s Setup) chooses(c *workCase) bool {
	if s.Chosen == nil {
		return true
	}
	at := slices.IndexFunc(s.Chosen, func(t *tasks.Task) bool { return t.Name == c.task })
	shape, err := tasks.ParseShape(c.shape)
	if at < 0 || err != nil || s.LongestUs > 0 && c.work[Host].FloorUs > s.LongestUs {
		return false
	}
	cost, err := s.Chosen[at].Cost(shape, c.dtype)
	return err == nil && (s.Most == 0 || cost.In+cost.Out <= s.Most)
}

// floors predicts the least time of the work by the device's ceilings, and of its copies over a link of a number of
// bytes per us, 0 if it is not known.
func floors(link float64) Predictor {
	return func(j *Job, device int) Times {
		w := &j.Work[device]
		t := Times{Run: w.FloorUs}
		if device != Host && link > 0 {
			t.In, t.Out = w.BytesIn/link, w.BytesOut/link
		}
		return t
	}
}

// PolicyNames lists the policies that [Prepared.Policies] has for devices.
func PolicyNames(devices []Device) []string {
	if len(devices) == 1 {
		return []string{"always cpu", "ours"}
	}
	return []string{"oracle", "always cpu", "always " + devices[1].Name, "best threshold", "expected finish on floors", "ours"}
}

// Policies returns the policies that are compared, in the order of [PolicyNames]. The oracle and the best threshold
// know the truth.
func (p *Prepared) Policies(truth Truth) []Policy {
	ours := Ours(p.Model)
	if len(p.Devices) == 1 {
		return []Policy{Always("cpu", Host, p.Model), ours}
	}
	const gpu = 1
	size, bound := p.bestThreshold(gpu, truth)
	return []Policy{
		Oracle(truth), Always("cpu", Host, p.Model), Always(p.Devices[gpu].Name, gpu, p.Model),
		Threshold(size, bound, gpu, p.Model), {Name: "expected finish on floors", Predict: p.Floors}, ours,
	}
}

// bestThreshold returns the bound of FLOPs or of bytes with which choosing by it alone takes the least time, in
// hindsight, if tasks run one after another.
func (p *Prepared) bestThreshold(gpu int, truth Truth) (size func(*Job) float64, bound float64) {
	least := math.Inf(1)
	for _, by := range []func(*Job) float64{
		func(j *Job) float64 { return j.Work[Host].FLOPs },
		func(j *Job) float64 { return j.Work[Host].Bytes },
	} {
		jobs, total := make([]*Job, len(p.Jobs)), 0.0
		for i := range p.Jobs {
			jobs[i] = &p.Jobs[i]
			total += truth(jobs[i], gpu).Total()
		}
		slices.SortStableFunc(jobs, func(a, b *Job) int { return cmp.Compare(by(a), by(b)) })
		for i := 0; i <= len(jobs); i++ { // the first i on the CPU
			at := math.Inf(1)
			if i < len(jobs) {
				at = by(jobs[i])
			}
			if total < least && (i == 0 || by(jobs[i-1]) < at) {
				size, bound, least = by, at, total
			}
			if i < len(jobs) {
				total += truth(jobs[i], Host).Total() - truth(jobs[i], gpu).Total()
			}
		}
	}
	return size, bound
}

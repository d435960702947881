package schedule

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"gpt2scope/predict"
	"gpt2scope/tasks"
)

// Setup makes a stream of measurements. Every second size of each task is in the stream; the model is fitted to the
// others.
type Setup struct {
	Rows     []predict.Row
	Machine  string   // whose rows; "": the first that has all devices
	Devices  []string // the CPU first; nil: all that the machine has, at least one GPU
	Jobs     int
	Interval float64 // us between arrivals, on average; 0: all tasks are there from the start
	Seed     uint64

	Chosen    []*tasks.Task // nil: all, without the two bounds below
	LongestUs float64       // the longest floor on the CPU; 0: any
	Most      int64         // bytes of inputs and result; 0: any

	// Model returns a model fitted to rows; nil: the caller sets [Prepared.Model].
	Model func(rows []predict.Row) (*predict.Model, error)
}

// Prepared is a stream with what its policies know.
type Prepared struct {
	Simulation
	Machine string
	Cases   int // that the stream is drawn from
	Model   Predictor
	Floors  Predictor
}

// caseKey names work.
type caseKey struct{ task, dtype, shape string }

func keyOf(r *predict.Row) caseKey { return caseKey{r.Task, r.DType, r.Shape} }

// kind is what a correction is of.
func kind(r *predict.Row) string { return r.Task + " " + r.DType }

// Prepare draws the stream and fits the model. Tasks take the medians of their samples.
func (s Setup) Prepare() (*Prepared, error) {
	machine, devices, err := s.place()
	if err != nil {
		return nil, err
	}
	medians, err := predict.Medians(s.Rows)
	if err != nil {
		return nil, err
	}
	p := &Prepared{Machine: machine}
	p.Devices = DevicesOf(devices)
	byKind, held, nth := map[string][][]*predict.Row{}, map[caseKey]bool{}, map[string]int{}
	for _, c := range s.cases(medians, machine, devices) {
		k := kind(c[Host])
		if nth[k]++; nth[k]%2 == 0 {
			if byKind[k] == nil {
				p.Kinds = append(p.Kinds, k)
			}
			byKind[k], held[keyOf(c[Host])] = append(byKind[k], c), true
			p.Cases++
		}
	}
	if p.Cases == 0 {
		return nil, fmt.Errorf("no task was measured at two sizes on all of %s of %s with inputs in pinned memory",
			strings.Join(devices, ", "), machine)
	}
	link := 0.0 // bytes for each us; 0: not known
	for i := range medians {
		if r := &medians[i]; r.Machine == machine && r.Device != devices[Host] && r.H2DUs > 0 {
			link = math.Max(link, r.BytesIn/r.H2DUs)
		}
	}
	p.Floors = func(j *Job, device int) Times {
		w := &j.Work[device]
		if device == Host || link == 0 {
			return Times{Run: w.FloorUs}
		}
		return Times{w.BytesIn / link, w.FloorUs, w.BytesOut / link}
	}
	if s.Model != nil {
		m, err := s.Model(slices.DeleteFunc(slices.Clone(s.Rows), func(r predict.Row) bool { return held[keyOf(&r)] }))
		if err != nil {
			return nil, err
		}
		index := make([]int, len(devices))
		for d, name := range devices {
			at := slices.IndexFunc(medians, func(r predict.Row) bool { return r.Machine == machine && r.Device == name })
			index[d], _ = m.Device(&medians[at])
		}
		p.Model = func(j *Job, device int) Times {
			e := m.Predict(index[device], &j.Work[device])
			return Times{e.InUs, e.Us - e.InUs - e.OutUs, e.OutUs}
		}
	}
	p.Truth = func(j *Job, device int) Times { return j.measured[device] }
	random := rand.New(rand.NewPCG(s.Seed, 0))
	at := 0.0
	for i := range s.Jobs { // kinds are equally likely, and so are the cases of a kind
		k := random.IntN(len(p.Kinds))
		cases := byKind[p.Kinds[k]]
		c := cases[random.IntN(len(cases))]
		j := Job{ID: i, Task: c[Host].Task, Shape: c[Host].Shape, Kind: k, Shares: tasks.LeavesRoom(c[Host].Task), Arrive: at}
		for _, r := range c {
			in, out := math.Min(r.H2DUs, r.Us), math.Min(r.D2HUs, math.Max(0, r.Us-r.H2DUs))
			j.Work = append(j.Work, r.Work)
			j.measured = append(j.measured, Times{in, math.Max(0, r.Us-in-out), out})
		}
		p.Jobs = append(p.Jobs, j)
		if s.Interval > 0 {
			at += random.ExpFloat64() * s.Interval
		}
	}
	return p, nil
}

// place returns the machine and its devices, the CPU first.
func (s Setup) place() (string, []string, error) {
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
	wanted := "its CPU and a GPU; 'infer tasks bench --device all' does, and without SAMPLES the stored ones are used"
	if s.Devices != nil {
		wanted = "all of " + strings.Join(s.Devices, ", ")
	}
	if s.Machine != "" && of[s.Machine] == nil {
		return "", nil, fmt.Errorf("machine %q is not in the samples; they are of %s", s.Machine, strings.Join(order, ", "))
	}
	return "", nil, fmt.Errorf("the samples hold no machine that measured %s", wanted)
}

// cases returns the chosen work that was measured on all devices, a row for each device, in the order of tasks and
// sizes. Inputs of work on a GPU are in pinned memory, or there if it was measured only so.
func (s Setup) cases(medians []predict.Row, machine string, devices []string) (all [][]*predict.Row) {
	found := map[caseKey][]*predict.Row{}
	for i := range medians {
		r := &medians[i]
		d := slices.Index(devices, r.Device)
		if r.Machine != machine || d < 0 || d != Host && r.Memory != predict.Pinned && r.Memory != predict.Resident {
			continue
		}
		k := keyOf(r)
		if found[k] == nil {
			found[k] = make([]*predict.Row, len(devices))
		}
		if found[k][d] == nil || r.Memory == predict.Pinned {
			found[k][d] = r
		}
	}
	for _, c := range found {
		if !slices.Contains(c, nil) && s.chooses(c[Host]) {
			all = append(all, c)
		}
	}
	slices.SortFunc(all, func(a, b []*predict.Row) int {
		return cmp.Or(cmp.Compare(kind(a[Host]), kind(b[Host])), cmp.Compare(a[Host].FloorUs, b[Host].FloorUs),
			cmp.Compare(a[Host].Shape, b[Host].Shape))
	})
	return all
}

// chooses tells whether work on the CPU is of a chosen task and within the bounds.
func (s Setup) chooses(r *predict.Row) bool {
	if s.Chosen == nil {
		return true
	}
	at := slices.IndexFunc(s.Chosen, func(t *tasks.Task) bool { return t.Name == r.Task })
	shape, err := tasks.ParseShape(r.Shape)
	if at < 0 || err != nil || s.LongestUs > 0 && r.FloorUs > s.LongestUs {
		return false
	}
	cost, err := s.Chosen[at].Cost(shape, r.DType)
	return err == nil && (s.Most == 0 || cost.In+cost.Out <= s.Most)
}

// Policies returns the policies that are compared, in the order of the table. The oracle and the best threshold
// know the truth.
func (p *Prepared) Policies() []Policy {
	ours := Policy{Name: "ours", Predict: p.Model, Plan: true, Learn: true}
	if len(p.Devices) == 1 {
		return []Policy{p.always(Host), ours}
	}
	return []Policy{{Name: "oracle", Predict: p.Truth, Plan: true}, p.always(Host), p.always(1), p.bestThreshold(),
		{Name: "expected finish on floors", Predict: p.Floors}, ours}
}

// always puts all tasks on one device.
func (p *Prepared) always(device int) Policy {
	return Policy{Name: "always " + p.Devices[device].Name, Predict: p.Model, Fixed: func(*Job) int { return device }}
}

// bestThreshold puts tasks of so many FLOPs and more on the first GPU and the others on the CPU: the number with which
// the tasks take the least time, in hindsight, if they run one after another.
func (p *Prepared) bestThreshold() Policy {
	const gpu = 1
	flops := func(j *Job) float64 { return j.Work[Host].FLOPs }
	jobs, total := make([]*Job, len(p.Jobs)), 0.0
	for i := range p.Jobs {
		jobs[i] = &p.Jobs[i]
		total += p.Truth(jobs[i], gpu).Total()
	}
	slices.SortStableFunc(jobs, func(a, b *Job) int { return cmp.Compare(flops(a), flops(b)) })
	least, bound := total, math.Inf(-1)
	for i, j := range jobs { // this and all with fewer FLOPs on the CPU
		total += p.Truth(j, Host).Total() - p.Truth(j, gpu).Total()
		next := math.Inf(1)
		if i+1 < len(jobs) {
			next = flops(jobs[i+1])
		}
		if total < least && flops(j) < next {
			least, bound = total, next
		}
	}
	return Policy{Name: "best threshold", Predict: p.Model, Fixed: func(j *Job) int {
		if flops(j) >= bound {
			return gpu
		}
		return Host
	}}
}

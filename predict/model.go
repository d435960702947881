package predict

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
)

// modelVersion is the version of the file's format and of what its numbers mean.
const modelVersion = 7

// Bounds of a file, since it may be damaged or of someone who means harm.
const (
	maxModelBytes = 8 << 20
	maxDevices    = 64
	maxTasks      = 256
	maxText       = 256
)

// Model predicts times. It is made by [Fit] or [Read]; a zero Model knows no device. It is not
// changed by predictions, so that goroutines may share it.
type Model struct {
	Version int    `json:"version"`
	SHA256  string `json:"data_sha256"` // of the medians that were fitted
	Rows    int    `json:"rows"`        // measurements
	Shapes  int    `json:"shapes"`      // of which each has repeats

	// Devices holds for each kind of device first one without a machine, which stands for devices that
	// were not measured, then, of CPUs, one for each processor, which stands for it with other numbers of threads, then those that were measured.
	Devices []Device `json:"devices"`
}

// Device is what a model knows of a device.
type Device struct {
	Machine string `json:"machine,omitempty"` // its computer; "": any
	Key     string `json:"key,omitempty"`     // names the device with its versions; of any machine, the processor: without the number of threads
	Device  string `json:"device"`            // "cpu", "cuda:0"; "cuda" of any machine

	Other Cell   `json:"other_tasks"` // for tasks that were not measured
	Tasks []Task `json:"tasks"`

	index index // into Tasks
}

// Task is what a model knows of a task on a device.
type Task struct {
	Task  string `json:"task"`
	DType string `json:"dtype,omitempty"` // "": any
	Cell
}

// Cell is a law with its correction, how far it is off, and where it holds.
type Cell struct {
	Law        Law      `json:"law"`
	Points     []Points `json:"points,omitempty"`
	Spread     float64  `json:"spread"`       // half width in natural logarithm of the interval that holds nine of ten times
	ColdSpread float64  `json:"start_spread"` // the same of cold starts
	N          int      `json:"n"`            // shapes that were fitted
	Domain     Domain   `json:"domain"`

	scale *scales // of its kind of device
	local local   // Points, by memory

	factor, coldFactor float64 // by the spreads
}

// Domain is where a cell was measured.
type Domain struct {
	FloorUs  Range    `json:"floor_us"`
	Steps    Range    `json:"steps"`
	Rows     Range    `json:"rows"`
	BytesIn  Range    `json:"bytes_in"`
	BytesOut Range    `json:"bytes_out"`
	Memory   []string `json:"memory"`
	Warm     bool     `json:"warm"`
	Cold     bool     `json:"cold"`

	memory [memories]bool
}

// Range is an interval, ends included.
type Range struct {
	Min float64 `json:"min"`
	Max float64 `json:"max"`
}

// slack widens ranges, for sizes that differ by rounding.
const slack = 1.05

// add extends an interval to a value.
func (r *Range) add(v float64) { r.Min, r.Max = min(r.Min, v), max(r.Max, v) }

func (r *Range) holds(v float64) bool { return v*slack >= r.Min && v <= r.Max*slack }

// domain sets where rows were measured.
func (c *Cell) domain(rows []Row) {
	d := &c.Domain
	for i := range rows {
		w := &rows[i].Work
		for _, r := range []struct {
			of *Range
			v  float64
		}{{&d.FloorUs, w.FloorUs}, {&d.Steps, w.Steps}, {&d.Rows, w.Rows}, {&d.BytesIn, w.BytesIn}, {&d.BytesOut, w.BytesOut}} {
			if i == 0 {
				*r.of = Range{r.v, r.v}
			}
			r.of.Min, r.of.Max = min(r.of.Min, r.v), max(r.of.Max, r.v)
		}
		d.memory[w.Memory] = true
		d.Cold, d.Warm = d.Cold || w.Cold, d.Warm || !w.Cold
	}
}

// holds tells whether work with a floor that laws go by lies where a cell was measured.
func (d *Domain) holds(w *Work, floor float64) bool {
	return w.Memory < memories && d.memory[w.Memory] && (w.Cold && d.Cold || !w.Cold && d.Warm) &&
		d.FloorUs.holds(floor) && d.Steps.holds(w.Steps) && d.Rows.holds(w.Rows) && d.BytesIn.holds(w.BytesIn) && d.BytesOut.holds(w.BytesOut)
}

// leastUs is the least time that is predicted.
const leastUs = 1e-3

// time returns the predicted time in microseconds of work with a floor that laws go by.
func (c *Cell) time(w *Work, floor float64) float64 {
	here := c.scale.with(w, floor)
	t := c.Law.with(w, floor) * math.Exp(c.local.at(w.Memory, &here))
	if w.Cold {
		n := *w
		n.FloorUs = floor
		t += c.Law.Start.Time(&n)
	}
	if !(t > leastUs) {
		return leastUs
	}
	return min(t, math.MaxFloat64)
}

// within returns how many times longer or shorter nine of ten times are at most.
func (c *Cell) within(w *Work) float64 {
	if w.Cold {
		return c.coldFactor
	}
	return c.factor
}

// Device returns the index of a device for [Model.Predict], by the name of its machine, or else by its own
// key, "" if one is not known. If the model has not measured it, known is false, and the index is that of any machine with its processor, of any device of its
// kind, or -1 if the model knows none. Where the model has no processor of a name with its family and model number, one that it has by the name alone stands for it.
func (m *Model) Device(machine, key, device string) (index int, known bool) {
	index, known = m.device(machine, key, device)
	if !known && (index < 0 || m.Devices[index].Key == "") {
		index, known = m.device(machine, nameOf(key), device)
	}
	return index, known
}

// device is Device for a key as it is.
func (m *Model) device(machine, key, device string) (index int, known bool) {
	index = -1
	processor := processorOf(key)
	for i := range m.Devices {
		switch d := &m.Devices[i]; {
		case d.Machine != "" && d.Device == device && d.Machine == machine:
			return i, true
		case d.Machine != "":
			if !known && d.Device == device && d.Key == key && key != "" {
				index, known = i, true
			}
		case !known && d.Device == Kind(device) && (d.Key == "" && index < 0 || d.Key != "" && d.Key == processor):
			index = i
		}
	}
	return index, known
}

// cell returns that of a task, nil if it was not measured on the device.
func (d *Device) cell(o op) *Cell {
	for i := range d.Tasks {
		if d.Tasks[i].Task == o.task && d.Tasks[i].DType == o.dtype {
			return &d.Tasks[i].Cell
		}
	}
	return nil
}

// Predict returns the time of work on a device, an index from [Model.Device]. For an index of no
// device the time is the floor, with an interval that says that nothing is known.
func (m *Model) Predict(device int, w *Work) Estimate {
	if device < 0 || device >= len(m.Devices) {
		t := min(max(w.FloorUs, leastUs), math.MaxFloat64)
		return Estimate{Us: t, Low: t, High: math.MaxFloat64}
	}
	d := &m.Devices[device]
	floor := w.floor()
	c, in := &d.Other, false
	i := d.index.of(d.Tasks, w.Task, w.DType)
	measured := i >= 0
	if !measured {
		i = d.index.of(d.Tasks, w.Task, "")
	}
	if i >= 0 {
		c = &d.Tasks[i].Cell
		in = measured && c.Domain.holds(w, floor)
	}
	t, factor := c.time(w, floor), c.within(w)
	if !in {
		factor = max(factor, d.Other.within(w))
	}
	return Estimate{Us: t, Low: t / factor, High: min(t*factor, math.MaxFloat64), InDomain: in && d.Machine != ""}
}

// index finds tasks by name and type: lists of tasks whose names have the same lengths and last letters, which takes a fraction of the time of
// a map, since names are not hashed.
type index [32][]int16

func slot(task, dtype string) int {
	h := len(task) + 8*len(dtype)
	if len(task) > 0 {
		h += 3 * int(task[len(task)-1])
	}
	return h % len(index{})
}

func (x *index) add(task, dtype string, at int) {
	s := slot(task, dtype)
	x[s] = append(x[s], int16(at)) // maxTasks fit
}

// of returns the place of a task, the last if there are several, -1 if there is none.
func (x *index) of(tasks []Task, task, dtype string) int {
	all := x[slot(task, dtype)]
	for i := len(all) - 1; i >= 0; i-- {
		if t := &tasks[all[i]]; t.Task == task && t.DType == dtype {
			return int(all[i])
		}
	}
	return -1
}

func wrongVersion(v int) error {
	return fmt.Errorf("the model is of version %d, and this program reads version %d: fit it again", v, modelVersion)
}

// compile checks a model and prepares it for predictions.
func (m *Model) compile() error {
	if m.Version != modelVersion {
		return wrongVersion(m.Version)
	}
	if len(m.Devices) == 0 || len(m.Devices) > maxDevices {
		return fmt.Errorf("the model has %d devices; expected 1 to %d", len(m.Devices), maxDevices)
	}
	if m.Rows < 0 || m.Shapes < 0 || len(m.SHA256) > maxText {
		return errors.New("the model does not say what it was fitted to")
	}
	for i := range m.Devices {
		d := &m.Devices[i]
		if k := Kind(d.Device); k != "cpu" && k != "cuda" || len(d.Device) > maxText || len(d.Machine) > maxText || len(d.Key) > maxText {
			return fmt.Errorf("device %d of the model is %.40q; expected cpu or cuda:N", i+1, d.Device)
		}
		if len(d.Tasks) > maxTasks {
			return fmt.Errorf("the model has %d tasks on %s; expected %d at most", len(d.Tasks), d.Device, maxTasks)
		}
		scale := scalesOf(Kind(d.Device))
		if err := d.Other.compile(scale); err != nil {
			return fmt.Errorf("the model's law for other tasks on %s: %w", d.Device, err)
		}
		d.index = index{}
		for j := range d.Tasks {
			t := &d.Tasks[j]
			if len(t.Task) > maxText || len(t.DType) > maxText {
				return fmt.Errorf("task %d of the model on %s has a name of more than %d bytes", j+1, d.Device, maxText)
			}
			if err := t.compile(scale); err != nil {
				return fmt.Errorf("the model's law for %s on %s: %w", t.Task, d.Device, err)
			}
			d.index.add(t.Task, t.DType, j)
		}
	}
	return nil
}

// Bounds of what a law may say.
const (
	maxCoefficient = 1e12
	maxLog         = 10 // of the sum over points: a factor of 22026
	maxPoint       = 100
	maxRange       = maxPoint * 32 // of a feature in octaves
	maxWeight      = 1e5
)

// compile checks a cell and fills what predictions use.
func (c *Cell) compile(scale *scales) error {
	c.scale = scale
	law, start := c.Law.vector(), c.Law.Start.vector()
	for _, v := range append(law[:], start[:]...) {
		if !(v >= 0 && v <= maxCoefficient) {
			return fmt.Errorf("a coefficient is %g; expected 0 to %g", v, maxCoefficient)
		}
	}
	if c.Points == nil {
		c.Points = c.local.points(scale)
	}
	c.local = local{}
	for i := range c.Points {
		if err := c.local.add(&c.Points[i], scale); err != nil {
			return err
		}
	}
	if !(c.Spread >= 0 && c.Spread <= 20 && c.ColdSpread >= 0 && c.ColdSpread <= 20) || c.N < 0 {
		return fmt.Errorf("its spread is %g, and %g of cold starts, of %d shapes", c.Spread, c.ColdSpread, c.N)
	}
	c.factor, c.coldFactor = math.Exp(c.Spread), math.Exp(max(c.Spread, c.ColdSpread))
	d := &c.Domain
	for _, r := range []Range{d.FloorUs, d.Steps, d.Rows, d.BytesIn, d.BytesOut} {
		if !(r.Min >= 0 && r.Max >= r.Min && r.Max < 1e18) {
			return fmt.Errorf("its domain goes from %g to %g", r.Min, r.Max)
		}
	}
	if d.Memory == nil {
		for m := range memories {
			if d.memory[m] {
				d.Memory = append(d.Memory, m.String())
			}
		}
	}
	if len(d.Memory) > int(memories) {
		return fmt.Errorf("its domain has %d kinds of memory; expected %d at most", len(d.Memory), memories)
	}
	for _, name := range d.Memory {
		m, err := ParseMemory(name)
		if err != nil {
			return err
		}
		d.memory[m] = true
	}
	return nil
}

// Write writes a model as JSON.
func (m *Model) Write(w io.Writer) error {
	data, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("the model cannot be written: %w", err)
	}
	_, err = w.Write(append(data, '\n'))
	return err
}

// Read reads a model that Write wrote. An error says what is wrong with it.
func Read(r io.Reader) (*Model, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxModelBytes+1))
	if err != nil {
		return nil, fmt.Errorf("the model cannot be read: %w", err)
	}
	if len(data) > maxModelBytes {
		return nil, fmt.Errorf("the model is larger than %d bytes", maxModelBytes)
	}
	var m Model
	d := json.NewDecoder(bytes.NewReader(data))
	if err := d.Decode(&m); err != nil {
		if wrong := (*json.UnmarshalTypeError)(nil); errors.As(err, &wrong) && m.Version != modelVersion { // fields had other types then
			return nil, wrongVersion(m.Version)
		}
		return nil, fmt.Errorf("the model is not JSON of a model, or was cut off: %w", err)
	}
	if d.More() {
		return nil, errors.New("something follows the model")
	}
	return &m, m.compile()
}

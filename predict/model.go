// Package predict predicts how long work takes on a device before it runs there.
//
//	time = law x e^correction
//	law  = a floor + b steps + transfers (latency + bytes / rate) + base, + start in a new process
//
// What is known of work before it runs is in a [Work]. The coefficients of a [Law] are not negative, so that by the law
// more work never takes less time. The correction is the mean of what the law leaves in the logarithms of measured
// times nearby. Both are of a task in one type on a device. Of work that was not measured there, they are those of the
// task on other devices of the kind, or of all work on the device.
//
// An [Estimate] has an interval that holds nine of ten times. It comes from errors at what was left out of the
// prediction: shapes, tasks and devices.
//
// docs/cost-model.md says how far off predictions are.
package predict

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
)

const modelVersion = 8

// Bounds of a file, since it may be damaged or of someone who means harm.
const (
	maxModelBytes = 32 << 20
	maxDevices    = 256
	maxText       = 256
)

// Model predicts times. It is made by [Fit] or [Read]. Predictions do not change it: goroutines may share it.
type Model struct {
	Version int    `json:"version"`
	SHA256  string `json:"data_sha256"` // of the medians that were fitted
	Rows    int    `json:"rows"`        // measurements
	Shapes  int    `json:"shapes"`      // of which each has repeats

	CPU     Neighbourhood `json:"cpu"`
	GPU     Neighbourhood `json:"gpu"`
	Devices []Device      `json:"devices"` // of each kind all together, then each processor, then each measured device
}

// Device is what a model knows of a device, or of several together.
type Device struct {
	Machine   string  `json:"machine,omitempty"`   // its computer; "": of several
	Processor string  `json:"processor,omitempty"` // whatever its number of threads
	Threads   float64 `json:"threads,omitempty"`   // of a CPU
	Device    string  `json:"device"`              // "cpu", "cuda:0"; of several, the kind

	Other Cell   `json:"other_tasks"` // for tasks that were not measured
	Tasks []Task `json:"tasks"`

	kind   *Device // all of its kind
	nearby *Neighbourhood
}

// Task is what a model knows of a task in one type on a device.
type Task struct {
	Task  string `json:"task"`
	DType string `json:"dtype"`
	Cell
}

// Cell is a law, how far predictions are off, and, of one device, what was measured.
type Cell struct {
	Law        Law        `json:"law"`
	Spread     float64    `json:"spread"`       // half the width of the interval that holds nine of ten times, in logarithm
	ColdSpread float64    `json:"start_spread"` // the same of cold starts
	Measured   []Measured `json:"measured,omitempty"`

	near   [memories][]neighbour // of warm runs
	part   float64               // of their correction that counts
	domain [2][memories]domain   // warm, cold
}

// Measured is work and its median time.
type Measured struct {
	Work
	Us float64 `json:"us"`
}

// domain is from where to where work was measured: floor, steps, rows and copied bytes.
type domain struct{ low, high [5]float64 }

func (w *Work) extent() [5]float64 {
	return [5]float64{w.FloorUs, w.Steps, w.Rows, w.BytesIn, w.BytesOut}
}

// slack widens domains, for sizes that differ by rounding.
const slack = 1.05

func (d *domain) add(w *Work) {
	first := d.high == [5]float64{}
	for i, v := range w.extent() {
		if d.high[i] = max(d.high[i], v*slack); first || v/slack < d.low[i] {
			d.low[i] = v / slack
		}
	}
}

func (d *domain) holds(w *Work) bool {
	for i, v := range w.extent() {
		if !(v >= d.low[i] && v <= d.high[i]) {
			return false
		}
	}
	return d.high != [5]float64{}
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}

// add notes measured work near other work.
func (c *Cell) add(n *Neighbourhood, m *Measured) {
	if w := &m.Work; !w.Cold {
		c.near[w.Memory] = append(c.near[w.Memory], neighbour{n.place(w), math.Log(m.Us / max(c.Law.Time(w), leastUs))})
	}
	c.domain[bit(m.Cold)][m.Memory].add(&m.Work)
}

// leastUs is the least time that is predicted.
const leastUs = 1e-3

// Kind returns the kind of a device: "cuda" of "cuda:0".
func Kind(device string) string {
	kind, _, _ := strings.Cut(device, ":")
	return kind
}

// Device returns the index of a row's device for [Model.Predict]: that of its machine, or else one with the same
// processor and threads. If there is none, known is false, and the index is that of its processor, of all devices of
// its kind, or -1.
func (m *Model) Device(r *Row) (index int, known bool) {
	index = -1
	for i := range m.Devices {
		d := &m.Devices[i]
		processor := d.Processor != "" && d.Processor == r.Processor
		switch {
		case d.Machine != "" && d.Device == r.Device && d.Machine == r.Machine:
			return i, true
		case d.Machine != "":
			if !known && processor && d.Device == r.Device && d.Threads == r.Threads {
				index, known = i, true
			}
		case !known && d.Device == Kind(r.Device) && (d.Processor == "" || processor):
			index = i
		}
	}
	return index, known
}

// cell returns that of a task, nil if it was not measured on the device.
func (d *Device) cell(task, dtype string) *Cell {
	for i := range d.Tasks {
		if t := &d.Tasks[i]; t.Task == task && t.DType == dtype {
			return &t.Cell
		}
	}
	return nil
}

// Predict returns the time of work on a device, an index from [Model.Device]. For an index of no device the time is the
// floor, with an interval that says that nothing is known. It allocates nothing.
func (m *Model) Predict(device int, w *Work) Estimate {
	if device < 0 || device >= len(m.Devices) || w.Memory >= memories {
		t := min(max(w.FloorUs, leastUs), math.MaxFloat64)
		return Estimate{Us: t, Low: t, High: math.MaxFloat64}
	}
	return m.Devices[device].predict(w)
}

func (d *Device) predict(w *Work) Estimate {
	c := d.cell(w.Task, w.DType)
	in := c != nil && d.Machine != "" && c.domain[bit(w.Cold)][w.Memory].holds(w)
	if c == nil {
		c = d.kind.cell(w.Task, w.DType)
	}
	if c == nil {
		c = &d.Other
	}
	us, spread := c.time(d.nearby, w, -1), c.Spread
	if w.Cold {
		spread = max(spread, c.ColdSpread)
	}
	if !in {
		spread = max(spread, d.Other.Spread)
	}
	factor := math.Exp(spread)
	return Estimate{Us: us, Low: us / factor, High: min(us*factor, math.MaxFloat64), InDomain: in}
}

// time returns the predicted time of work, but for what the measurement at an index says.
func (c *Cell) time(n *Neighbourhood, w *Work, without int) float64 {
	all, start := c.Law.Time(w), 0.0
	if w.Cold {
		start = c.Law.Start.Time(w)
	}
	if near := c.near[w.Memory]; len(near) > 0 {
		here := n.place(w)
		all = (all-start)*math.Exp(c.part*n.correction(&here, near, without)) + start
	}
	return min(max(all, leastUs), math.MaxFloat64)
}

// connect checks a model, and prepares it for predictions.
func (m *Model) connect() error {
	if m.Version != modelVersion {
		return fmt.Errorf("the model is of version %d, and this program reads version %d: fit it again", m.Version, modelVersion)
	}
	if len(m.Devices) == 0 || len(m.Devices) > maxDevices || m.Rows < 0 || m.Shapes < 0 || len(m.SHA256) > maxText {
		return fmt.Errorf("the model has %d devices and %d shapes; expected 1 to %d devices", len(m.Devices), m.Shapes, maxDevices)
	}
	if !m.CPU.valid() || !m.GPU.valid() {
		return errors.New("the model's neighbourhoods hold numbers that no fit gives")
	}
	kinds := map[string]*Device{}
	for i := range m.Devices {
		d := &m.Devices[i]
		kind := Kind(d.Device)
		if d.nearby = &m.GPU; kind == "cpu" {
			d.nearby = &m.CPU
		}
		if kinds[kind] == nil && d.Machine == "" && d.Processor == "" {
			kinds[kind] = d
		}
		if d.kind = kinds[kind]; d.kind == nil || kind != "cpu" && kind != "cuda" {
			return fmt.Errorf("device %d of the model is %.40q; expected cpu or cuda:N, after what is known of the kind", i+1, d.Device)
		}
		if len(d.Machine)+len(d.Processor)+len(d.Device) > 3*maxText {
			return fmt.Errorf("device %d of the model has a name of more than %d bytes", i+1, maxText)
		}
		if err := d.connect(); err != nil {
			return fmt.Errorf("the model of %s %.40s: %w", d.Device, d.Machine, err)
		}
	}
	for i := range m.Devices {
		if d := &m.Devices[i]; d.Machine != "" {
			for j := range m.Devices[:i] {
				g := &m.Devices[j]
				if g.Machine == "" && g.Device == Kind(d.Device) && (g.Processor == "" || g.Processor == d.Processor) {
					g.learn(d)
				}
			}
			d.learn(d)
		}
	}
	return nil
}

// learn notes what was measured on a device of several.
func (g *Device) learn(d *Device) {
	for i := range d.Tasks {
		t := &d.Tasks[i]
		c := g.cell(t.Task, t.DType)
		for j := range t.Measured {
			if c != nil {
				c.add(d.nearby, &t.Measured[j])
			}
			g.Other.add(d.nearby, &t.Measured[j])
		}
	}
}

func (d *Device) connect() error {
	part := 1.0
	if d.Machine == "" && d.Processor == "" {
		part = d.nearby.Elsewhere
	}
	if err := d.Other.check("", "", part); err != nil {
		return err
	}
	for i := range d.Tasks {
		t := &d.Tasks[i]
		if len(t.Task)+len(t.DType) > 2*maxText {
			return fmt.Errorf("task %d has a name of more than %d bytes", i+1, maxText)
		}
		if err := t.check(t.Task, t.DType, part); err != nil {
			return fmt.Errorf("%s in %s: %w", t.Task, t.DType, err)
		}
	}
	return nil
}

// check finds numbers that no fit gives, and empties what connect fills.
func (c *Cell) check(task, dtype string, part float64) error {
	const maxCoefficient, maxSpread = 1e12, 20
	c.near, c.domain, c.part = [memories][]neighbour{}, [2][memories]domain{}, part
	for _, v := range c.Law.vector() {
		if !(v >= 0 && v <= maxCoefficient) {
			return fmt.Errorf("a coefficient is %g; expected 0 to %g", v, float64(maxCoefficient))
		}
	}
	if !(c.Spread >= 0 && c.Spread <= maxSpread && c.ColdSpread >= 0 && c.ColdSpread <= maxSpread) {
		return fmt.Errorf("its spread is %g, and %g of cold starts", c.Spread, c.ColdSpread)
	}
	for i := range c.Measured {
		m := &c.Measured[i]
		m.Task, m.DType = task, dtype
		if err := m.Work.check(); err != nil || !(m.Us > 0 && m.Us < maxNumber) {
			return fmt.Errorf("measurement %d is %g us: %w", i+1, m.Us, err)
		}
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
	var version struct{ Version int }
	var m Model
	d := json.NewDecoder(bytes.NewReader(data))
	if err := d.Decode(&m); err != nil {
		if json.Unmarshal(data, &version) == nil && version.Version != modelVersion { // fields had other types then
			return nil, (&Model{Version: version.Version}).connect()
		}
		return nil, fmt.Errorf("the model is not JSON of a model, or was cut off: %w", err)
	}
	if d.More() {
		return nil, errors.New("something follows the model")
	}
	return &m, m.connect()
}

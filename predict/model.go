// Package predict predicts how long work takes on a device before it runs there.
//
//	time = law x e^correction
//	law  = a floor + b steps + transfers (latency + bytes / rate) + base
//
// What is known of work before it runs is in a [Work]. The coefficients of a [Law] are not negative, so that by the law
// more work never takes less time. A law is of a task in one type on a kind of device. The correction is the mean of
// what the law leaves in the logarithms of times that were measured nearby on the device. Tasks that were not measured
// have a law of their own.
//
// An [Estimate] has an interval that holds nine of ten times. It comes from errors at what was left out of the
// prediction: shapes, tasks and processors.
//
// docs/cost-model.md says how far off predictions are.
package predict

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
)

const modelVersion = 9

// Bounds of a file, since it may be damaged or of someone who means harm.
const (
	maxModelBytes = 32 << 20
	maxShapes     = 100_000
	maxNumber     = 1e18
)

// Model predicts times. It is made by [Fit] or [Read]. Predictions do not change it: goroutines may share it.
type Model struct {
	Version  int       `json:"version"`
	Rows     int       `json:"rows"` // measurements that were fitted
	Laws     []TaskLaw `json:"laws"`
	Measured []Row     `json:"measured"` // each shape, with the medians of its repeats

	devices []Row // the kinds, then each measured device
	laws    map[place]*TaskLaw
	near    map[place][]neighbour
}

// TaskLaw is the law of a task on a kind of device, and how far predictions are off: half the widths of intervals that
// hold nine of ten times, in logarithm.
type TaskLaw struct {
	Device string `json:"device"` // "cpu" or "cuda"
	Task   string `json:"task"`   // "" for tasks that were not measured
	DType  string `json:"dtype"`
	Law
	Spread    float64 `json:"spread"`       // near shapes that were measured on the device
	Elsewhere float64 `json:"spread_other"` // on a device, or far from all shapes, that were not measured
}

// place names measurements that are neighbours. Of a law the device is its kind.
type place struct {
	device      int
	task, dtype string
	memory      Memory
}

var kinds = []string{"cpu", "cuda"}

// Kind returns the kind of a device: "cuda" of "cuda:0".
func Kind(device string) string {
	kind, _, _ := strings.Cut(device, ":")
	return kind
}

// kindOf returns the index of a device's kind, -1 for none.
func kindOf(device string) int { return slices.Index(kinds, Kind(device)) }

// Device returns the index of a row's device for [Model.Predict]: that of its machine, or else one with the same
// processor and threads. If there is none, known is false, and the index is that of its kind.
func (m *Model) Device(r *Row) (index int, known bool) {
	index = max(0, kindOf(r.Device))
	for i := len(kinds); i < len(m.devices); i++ {
		switch d := &m.devices[i]; {
		case d.Device != r.Device:
		case d.Machine == r.Machine:
			return i, true
		case !known && d.Processor != "" && d.Processor == r.Processor && d.Threads == r.Threads:
			index, known = i, true
		}
	}
	return index, known
}

// leastUs is the least time that is predicted.
const leastUs = 1e-3

// Predict returns the time of work on a device, an index from [Model.Device]. Where nothing of the kind was measured
// the time is the floor, with an interval that says that nothing is known. It allocates nothing.
func (m *Model) Predict(device int, w *Work) Estimate {
	at := place{device: kindOf(m.devices[device].Device), task: w.Task, dtype: w.DType}
	l := m.laws[at]
	if l == nil {
		at.task, at.dtype = "", ""
		l = m.laws[at]
	}
	if l == nil {
		us := min(max(w.FloorUs, leastUs), math.MaxFloat64)
		return Estimate{Us: us, Low: us, High: math.MaxFloat64}
	}
	at.device, at.memory = device, w.Memory
	mean, nearest := correction(w.features(), m.near[at], -1)
	in, run, out := l.Time(w)
	factor, spread := math.Exp(mean), l.Elsewhere
	known := l.Task != "" && nearest <= near
	if known {
		spread = l.Spread
	}
	us := min(max((in+run+out)*factor, leastUs), math.MaxFloat64)
	return Estimate{Us: us, InUs: in * factor, OutUs: out * factor, Low: us / math.Exp(spread),
		High: min(us*math.Exp(spread), math.MaxFloat64), InDomain: known}
}

// connect checks a model, and prepares it for predictions.
func (m *Model) connect() error {
	m.devices, m.laws, m.near = nil, map[place]*TaskLaw{}, map[place][]neighbour{}
	for _, kind := range kinds {
		m.devices = append(m.devices, Row{Device: kind})
	}
	for i := range m.Laws {
		l := &m.Laws[i]
		coefficients := l.coefficients()
		for _, v := range append(coefficients[:], &l.Spread, &l.Elsewhere) {
			if !(*v >= 0 && *v < maxNumber) {
				return fmt.Errorf("law %d of the model holds %g, which no fit gives", i+1, *v)
			}
		}
		m.laws[place{kindOf(l.Device), l.Task, l.DType, ""}] = l
	}
	for i := range m.Measured {
		r := &m.Measured[i]
		if err := r.check(); err != nil {
			return fmt.Errorf("measurement %d of the model: %w", i+1, err)
		}
		device, known := m.Device(r)
		if !known || m.devices[device].Machine != r.Machine {
			device = len(m.devices)
			m.devices = append(m.devices, *r)
		}
		for _, at := range []place{{device, r.Task, r.DType, r.Memory}, {device, "", "", r.Memory}} {
			l := m.laws[place{kindOf(r.Device), at.task, at.dtype, ""}]
			if l == nil {
				return fmt.Errorf("the model has no law for measurement %d, %.40q on %s", i+1, r.Task, r.Device)
			}
			in, run, out := l.Time(&r.Work)
			m.near[at] = append(m.near[at], neighbour{r.features(), math.Log(r.Us / max(in+run+out, leastUs))})
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
	m := &Model{}
	err = json.Unmarshal(data, m)
	switch {
	case errors.As(err, new(*json.SyntaxError)):
		return nil, fmt.Errorf("the model is not JSON of a model, or was cut off: %w", err)
	case m.Version != modelVersion:
		return nil, fmt.Errorf("the model is of version %d, and this program reads version %d: fit it again", m.Version,
			modelVersion)
	case err != nil:
		return nil, fmt.Errorf("the model cannot be read: %w", err)
	case len(m.Measured) == 0 || len(m.Measured) > maxShapes || m.Rows < 0:
		return nil, fmt.Errorf("the model is of %d shapes; expected 1 to %d", len(m.Measured), maxShapes)
	}
	return m, m.connect()
}

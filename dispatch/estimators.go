package dispatch

import (
	"math"
	"slices"

	"gpt2scope/internal/stats"
	"gpt2scope/predict"
)

// Model estimates by a predict.Model.
type Model struct {
	Model *predict.Model
	Index []int // by device: what predict.Model.Device returned for it
}

// Estimate implements Estimator. What copies take is the difference that their bytes make.
func (m Model) Estimate(device int, j *Job, in int64) Estimate {
	w := j.Work[device]
	w.BytesIn = float64(in)
	all := m.Model.Predict(m.Index[device], &w)
	e := Estimate{Run: all.Us, Low: all.Low, High: all.High, Known: all.InDomain}
	if device == Host || w.BytesIn == 0 && w.BytesOut == 0 {
		return e
	}
	in64, out := w.BytesIn, w.BytesOut
	w.BytesIn, w.BytesOut = 0, 0
	e.Run = math.Min(all.Us, m.Model.Predict(m.Index[device], &w).Us)
	// Both directions are about as fast, and each copy has a latency of some KiB.
	const latency = 128 << 10
	if in64 > 0 {
		in64 += latency
	}
	if out > 0 {
		out += latency
	}
	e.In = (all.Us - e.Run) * in64 / (in64 + out)
	e.Out = all.Us - e.Run - e.In
	return e
}

// Floors estimates by floors alone: the least time of the work, and of its bytes over the link.
type Floors struct {
	LinkBytesPerUs float64 // 0: the link is not known and takes no time
}

// Estimate implements Estimator.
func (f Floors) Estimate(device int, j *Job, in int64) Estimate {
	w := &j.Work[device]
	e := Estimate{Run: w.FloorUs, Known: true}
	if device != Host && f.LinkBytesPerUs > 0 {
		e.In, e.Out = float64(in)/f.LinkBytesPerUs, w.BytesOut/f.LinkBytesPerUs
	}
	e.Low, e.High = e.Total(), math.Inf(1)
	return e
}

// Constants estimates by floors and by what calls, launches and copies cost on about any machine. It needs nothing measured but ceilings, and
// unlike Floors never predicts that a GPU ends small work before it could have been launched.
type Constants struct{ Floors }

// What calls cost, in us.
const (
	hostCall   = 1.0
	gpuCall    = 10.0
	hostStep   = 0.5
	gpuStep    = 2.5
	gpuCopy    = 8.0
	overFloors = 1.5 // times floors
)

// Estimate implements Estimator.
func (c Constants) Estimate(device int, j *Job, in int64) Estimate {
	e, w := c.Floors.Estimate(device, j, in), &j.Work[device]
	call, step := hostCall, hostStep
	if device != Host {
		call, step = gpuCall, gpuStep
		if in > 0 {
			e.In = e.In*overFloors + gpuCopy
		}
		if w.BytesOut > 0 {
			e.Out = e.Out*overFloors + gpuCopy
		}
	}
	e.Run = e.Run*overFloors + call + step*w.Steps
	e.Low = e.Total() / overFloors
	return e
}

// True estimates by what jobs will take, as no scheduler can.
type True struct{ Truth Truth }

// Estimate implements Estimator.
func (t True) Estimate(device int, j *Job, in int64) Estimate {
	a := t.Truth.Times(device, j)
	if all := j.inputs(); all > 0 && len(j.Reads) > 0 {
		a.In *= float64(in) / float64(all)
	}
	e := Estimate{In: a.In, Run: a.Run, Out: a.Out, Known: true}
	e.Low, e.High = e.Total(), e.Total()
	return e
}

// History estimates by the median of what the same work took, else by the nearest work of the same
// kind of task, scaled by the ratio of the floors. It learns from jobs that finish.
type History struct {
	of     map[historyKey]*record
	byTask map[historyKey][]*record // without shape, by floor
}

type historyKey struct {
	device      int
	task, dtype string
	shape       string
}

type record struct {
	floor float64
	all   []Times // the last ones
	at    Times   // their median
}

// historyDepth is how many times are kept of each work.
const historyDepth = 32

// NewHistory makes one that knows nothing.
func NewHistory() *History {
	return &History{of: map[historyKey]*record{}, byTask: map[historyKey][]*record{}}
}

// Observe implements Observer.
func (h *History) Observe(device int, j *Job, t Times) {
	k := historyKey{device, j.Task, j.Work[device].DType, j.Shape}
	r := h.of[k]
	if r == nil {
		r = &record{floor: j.Work[device].FloorUs}
		h.of[k] = r
		k.shape = ""
		h.byTask[k] = append(h.byTask[k], r)
	}
	if len(r.all) == historyDepth {
		r.all = slices.Delete(r.all, 0, 1)
	}
	r.all = append(r.all, t)
	r.at = medianTimes(r.all)
}

// medianTimes returns the medians of the parts.
func medianTimes(all []Times) Times {
	middle := func(part func(Times) float64) float64 {
		v := make([]float64, len(all))
		for i, t := range all {
			v[i] = part(t)
		}
		return stats.MedianOf(v)
	}
	return Times{middle(func(t Times) float64 { return t.In }), middle(func(t Times) float64 { return t.Run }), middle(func(t Times) float64 { return t.Out })}
}

// Estimate implements Estimator.
func (h *History) Estimate(device int, j *Job, in int64) Estimate {
	w := &j.Work[device]
	k := historyKey{device, j.Task, w.DType, j.Shape}
	r, scale := h.of[k], 1.0
	known := r != nil
	if r == nil {
		k.shape = ""
		far := math.Inf(1)
		for _, o := range h.byTask[k] {
			if d := math.Abs(math.Log((w.FloorUs + 1e-6) / (o.floor + 1e-6))); d < far {
				far, r, scale = d, o, (w.FloorUs+1e-6)/(o.floor+1e-6)
			}
		}
	}
	if r == nil {
		return Estimate{Run: w.FloorUs, High: math.Inf(1)}
	}
	e := Estimate{In: r.at.In * scale, Run: r.at.Run * scale, Out: r.at.Out * scale, Known: known}
	if w.BytesIn > 0 {
		e.In *= float64(in) / w.BytesIn
	}
	e.Low, e.High = e.Total()/2, e.Total()*2
	return e
}

package auto

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Times are how long the parts of a run take, in milliseconds; 0 is not known.
type Times struct {
	Process float64 `json:"process_ms"` // before the device is opened, and after the last token; not measured
	Open    float64 `json:"open_ms"`    // the device
	Load    float64 `json:"load_ms"`    // the weights
	Prefill float64 `json:"prefill_ms"` // all passes of more than a token, and what the first one loads
	Decode  float64 `json:"decode_ms"`  // all decode steps
}

// Total returns the sum.
func (t Times) Total() float64 { return t.Process + t.Open + t.Load + t.Prefill + t.Decode }

// The parts that a run measures of itself.
const (
	open = iota
	load
	prefill
	decode
	parts
)

// parts lists the parts that a run measures of itself.
func (t *Times) parts() [parts]*float64 {
	return [parts]*float64{&t.Open, &t.Load, &t.Prefill, &t.Decode}
}

// Prediction is how long a run takes on a device.
type Prediction struct {
	Times
	Runs int // of the history that tell of this device
}

// How earlier runs count.
const (
	halfLife  = 30 * 24 * time.Hour // after which a run counts half
	alike     = 0.5                 // logarithm of the ratio of two predictions at which a run counts e^-1/2
	anyRun    = 0.05                // what a run counts at least, however different
	otherwise = 0.2                 // factor for weights of another type, other ceilings, a busy machine, ...
	tableSays = 0.02                // weight of the table itself
	busy      = 0.1                 // share of its time for which a run waited for a processor on a busy machine
)

// plausible is the greatest factor between a predicted and a measured time that says something of the device. A greater
// one is of something else: a process that was stopped, or a reader that did not read.
const plausible = 20.0

// ratio returns the logarithm of measured / predicted time of a part; ok is false if it tells nothing of the device.
func (r *Record) ratio(part int) (log float64, ok bool) {
	measured, predicted := *r.Measured.parts()[part], *r.Predicted.parts()[part]
	if !(measured > 0 && predicted > 0) {
		return 0, false
	}
	log = math.Log(measured / predicted)
	return log, math.Abs(log) <= math.Log(plausible)
}

// Predict returns the times of work on a device, by the table and by the runs of the history on this device.
func (h *History) Predict(d *Device, w Work, now time.Time) Prediction {
	of := newRecord(d, w, Times{}, now)
	p := Prediction{Times: of.Predicted}
	for i := range h.Records {
		if h.Records[i].of(d) {
			p.Runs++
		}
	}
	for k, part := range p.parts() {
		type vote struct{ log, weight float64 }
		votes := []vote{{0, tableSays}}
		for i := range h.Records {
			r := &h.Records[i]
			if log, ok := r.ratio(k); ok && r.of(d) {
				votes = append(votes, vote{log, r.weight(k, &of, now)})
			}
		}
		slices.SortFunc(votes, func(a, b vote) int { return cmp.Compare(a.log, b.log) })
		half := 0.0
		for _, v := range votes {
			half += v.weight / 2
		}
		for _, v := range votes { // the weighted median
			if half -= v.weight; half <= 0 {
				*part *= math.Exp(v.log)
				break
			}
		}
	}
	return p
}

// weight returns how much a part of an earlier run tells of the same part of another.
func (r *Record) weight(part int, of *Record, now time.Time) float64 {
	distance := 0.0
	if p := *of.Predicted.parts()[part]; p > 0 {
		distance = math.Log(p / *r.Predicted.parts()[part]) / alike
	}
	weight := anyRun + (1-anyRun)*math.Exp(-distance*distance/2)
	for _, differs := range []bool{
		r.Waited > busy, part > open && r.DType != of.DType, part >= prefill && r.OnHost != of.OnHost,
		part >= prefill && r.Ceilings != of.Ceilings, part == prefill && r.BLAS != of.BLAS,
	} {
		if differs {
			weight *= otherwise
		}
	}
	return weight * math.Exp2(-max(0, now.Sub(r.at()).Hours()/halfLife.Hours()))
}

// Choice is which device finishes first, by prediction.
type Choice struct {
	GPU          bool
	OnCPU, OnGPU Prediction
}

// Choose predicts a run on both devices. The GPU is taken if the whole run is shorter there, the time of opening it
// included.
func (h *History) Choose(r Run, cpu, gpu *Device, now time.Time) Choice {
	c := Choice{OnCPU: h.Predict(cpu, cpu.Work(r), now), OnGPU: h.Predict(gpu, gpu.Work(r), now)}
	c.GPU = c.OnGPU.Total() < c.OnCPU.Total()
	return c
}

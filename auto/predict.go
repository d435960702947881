package auto

import (
	"cmp"
	"math"
	"slices"
	"time"

	"gpt2scope/predict"
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

// parts lists those that a run measures of itself.
func (t *Times) parts() [4]*float64 { return [4]*float64{&t.Open, &t.Load, &t.Prefill, &t.Decode} }

// Time predicts the parts by the table alone. first says that the device was not used since the
// machine started.
func (t *Table) Time(w Work, first bool) Times {
	law := func(l predict.Law, p Part) float64 {
		if p.Passes == 0 {
			return 0
		}
		return l.Time(&predict.Work{FloorUs: p.FloorUs, Steps: float64(p.Steps), Memory: predict.Resident}) / 1e3
	}
	out := Times{
		Process: t.Process / 1e3,
		Open:    t.Open / 1e3,
		Load:    t.Load.Time(&predict.Work{BytesIn: float64(w.Weights), Memory: predict.Pageable}) / 1e3,
		Prefill: law(t.Prefill, w.Prefill),
		Decode:  law(t.Decode, w.Decode),
	}
	if first {
		out.Open = t.First / 1e3
	}
	if w.BLAS && w.Prefill.Passes > 0 {
		out.Prefill += t.BLAS / 1e3
	}
	return out
}

// Prediction is how long a run takes on a device.
type Prediction struct {
	Times
	Runs int // of the history that tell of this device
}

// How earlier runs count.
const (
	halfLife  = 30 * 24 * time.Hour // after which a run counts half
	alike     = 0.5                 // logarithm of the ratio of two predictions at which a run counts as e^-1/2
	anyRun    = 0.05                // what a run counts at least, however different
	otherType = 0.2                 // factor for weights of another type, and for floors by other ceilings
	tableSays = 0.02                // weight of the table itself
	busy      = 0.1                 // a run that waited this part of its time for a processor counts as busyRun
	busyRun   = 0.1
	farthest  = 3.0 // a measured time counts as at most e^3 times the predicted one
)

// Predict returns the times of work on a device, by the table and by the runs of the history on
// this device.
func (h *History) Predict(d *Device, w Work, now time.Time) Prediction {
	table := d.table()
	first := d.GPU && !h.usedSince(d)
	p := Prediction{Times: table.Time(w, first)}
	type ratio struct{ log, weight float64 }
	var ratios [4][]ratio
	parts := p.parts()
	for i := range h.Records {
		r := &h.Records[i]
		if !r.of(d) {
			continue
		}
		p.Runs++
		theirs := table.Time(r.Work, r.First)
		predicted, measured := theirs.parts(), r.Times.parts()
		age := max(0, now.Sub(r.at()).Hours()/halfLife.Hours())
		for k := range ratios {
			if !(*measured[k] > 0 && *predicted[k] > 0) || k == 0 && r.First != first {
				continue
			}
			distance := 0.0
			if *parts[k] > 0 {
				distance = math.Log(*parts[k] / *predicted[k]) / alike
			}
			weight := anyRun + (1-anyRun)*math.Exp(-distance*distance/2)
			if k > 0 && r.DType != d.DType {
				weight *= otherType
			}
			if k >= 2 && r.Work.OnHost != w.OnHost || k == 2 && r.Work.BLAS != w.BLAS {
				weight *= anyRun
			}
			if k > 1 && r.Ceilings != d.ceilings() {
				weight *= otherType
			}
			if r.Waited > busy {
				weight *= busyRun
			}
			log := math.Log(*measured[k] / *predicted[k])
			ratios[k] = append(ratios[k], ratio{min(max(log, -farthest), farthest), weight * math.Exp2(-age)})
		}
	}
	for k, list := range ratios {
		list = append(list, ratio{0, tableSays})
		slices.SortFunc(list, func(a, b ratio) int { return cmp.Compare(a.log, b.log) })
		sum, half := 0.0, 0.0
		for _, x := range list {
			half += x.weight / 2
		}
		for _, x := range list {
			if sum += x.weight; sum >= half {
				*parts[k] *= math.Exp(x.log)
				break
			}
		}
	}
	return p
}

// Choice is which device finishes first, by prediction.
type Choice struct {
	GPU              bool
	OnCPU, OnGPU     Prediction
	CPUWork, GPUWork Work
}

// Choose predicts a run on both devices. The GPU is taken if the whole run is shorter there, the
// time of opening it included.
func (h *History) Choose(r Run, cpu, gpu *Device, now time.Time) Choice {
	c := Choice{OnCPU: h.Predict(cpu, cpu.Work(r), now), OnGPU: h.Predict(gpu, gpu.Work(r), now)}
	c.GPU = c.OnGPU.Total() < c.OnCPU.Total()
	return c
}

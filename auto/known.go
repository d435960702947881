package auto

import (
	"slices"
	"time"

	"gpt2scope/internal/stats"
)

// Known is what the history tells of a device.
type Known struct {
	Device string    `json:"device"` // processor, threads and kernels, or the GPU
	GPU    bool      `json:"gpu"`
	Runs   int       `json:"runs"`
	Busy   int       `json:"busy_runs,omitempty"` // of them on a busy machine: they count little
	Last   time.Time `json:"last"`                // end of the last run
	Open   float64   `json:"open_ms"`
	First  float64   `json:"first_open_ms,omitempty"` // of a GPU that was not used since the machine started

	// Medians of how long parts took, beside what is predicted without a history; 0 is not known.
	Load    float64 `json:"load_ratio,omitempty"`
	Prefill float64 `json:"prefill_ratio,omitempty"`
	Decode  float64 `json:"decode_ratio,omitempty"`
}

// Known returns what the history tells, of the devices used last first.
func (h *History) Known() []Known {
	var all []Known
	for i := len(h.Records) - 1; i >= 0; i-- {
		r := &h.Records[i]
		if !slices.ContainsFunc(all, func(k Known) bool { return k.Device == r.Device && k.GPU == r.GPU }) {
			all = append(all, h.known(r.Device, r.GPU))
		}
	}
	return all
}

func (h *History) known(device string, gpu bool) Known {
	k := Known{Device: device, GPU: gpu}
	var open, first []float64
	var ratios [4][]float64
	for i := range h.Records {
		r := &h.Records[i]
		if r.Device != device || r.GPU != gpu {
			continue
		}
		k.Runs++
		if r.Waited > busy {
			k.Busy++
		}
		if at := r.at().UTC(); at.After(k.Last) {
			k.Last = at
		}
		if r.First {
			first = append(first, r.Times.Open)
		} else {
			open = append(open, r.Times.Open)
		}
		table := TableOf(gpu).Time(r.Work, r.First)
		predicted, measured := table.parts(), r.Times.parts()
		for j := range ratios {
			if *predicted[j] > 0 && *measured[j] > 0 {
				ratios[j] = append(ratios[j], *measured[j] / *predicted[j])
			}
		}
	}
	k.Open, k.First = stats.MedianOf(open), stats.MedianOf(first)
	k.Load, k.Prefill, k.Decode = stats.MedianOf(ratios[1]), stats.MedianOf(ratios[2]), stats.MedianOf(ratios[3])
	return k
}

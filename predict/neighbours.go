package predict

import "math"

// features is how many numbers say how alike two works are: floor, rows, steps, length of sums, FLOPs for each byte, bytes,
// kernel, idle threads, threads.
const features = 9

// features returns logarithms to base 2, but for the kernel, which is a number.
func (w *Work) features() [features]float64 {
	log := func(v float64) float64 { return math.Log2(max(v, 1)) }
	f := [features]float64{math.Log2(max(w.floor(), 1e-6)), log(w.Rows), log(w.Steps), log(w.Inner), 0, log(w.Bytes),
		w.Kernel, log(w.Idle), log(w.Threads)}
	if w.FLOPs > 0 && w.Bytes > 0 {
		f[4] = math.Log2(w.FLOPs / w.Bytes)
	}
	return f
}

// Neighbourhood says how much measured work counts for work nearby: (1 + d^2)^-3 at a distance d, which is that of the
// features times Scale. Fit chooses the numbers by cross-validation.
type Neighbourhood struct {
	Scale     [features]float64 `json:"scale"`
	Elsewhere float64           `json:"elsewhere"` // part of a correction that holds on other devices
}

// neighbour is measured work: its scaled features, and the logarithm of the measured time over that by a law.
type neighbour struct {
	at   [features]float64
	left float64
}

func (n *Neighbourhood) place(w *Work) [features]float64 {
	at := w.features()
	for i := range at {
		at[i] *= n.Scale[i]
	}
	return at
}

// correction returns the weighted mean of what neighbours have left, but for the one at index without.
func (n *Neighbourhood) correction(here *[features]float64, all []neighbour, without int) float64 {
	sum, weights := 0.0, 0.0
	for i := range all {
		if i == without {
			continue
		}
		o := &all[i].at
		q := 1.0
		for k, v := range here {
			d := v - o[k]
			q += d * d
		}
		w := 1 / (q * q * q)
		sum, weights = sum+w*all[i].left, weights+w
	}
	if weights == 0 {
		return 0
	}
	return sum / weights
}

// valid tells whether a fit can have given the numbers.
func (n *Neighbourhood) valid() bool {
	for _, v := range append(n.Scale[:], n.Elsewhere) {
		if !(v >= 0 && v < 1e6) {
			return false
		}
	}
	return true
}

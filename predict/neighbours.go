package predict

import "math"

// features is how many numbers say how alike two works are: floor, rows, steps, length of sums, FLOPs for each byte,
// bytes, kernel, idle threads.
const features = 8

// features returns logarithms to base 2, but for the kernel, which is a number.
func (w *Work) features() [features]float64 {
	log := func(v float64) float64 { return math.Log2(max(v, 1)) }
	f := [features]float64{math.Log2(max(w.floor(), 1e-6)), log(w.Rows), log(w.Steps), log(w.Inner), 0, log(w.Bytes),
		w.Kernel, log(w.Idle)}
	if w.FLOPs > 0 && w.Bytes > 0 {
		f[4] = math.Log2(w.FLOPs / w.Bytes)
	}
	return f
}

// neighbour is measured work: its features, and the logarithm of the measured time over that by the law.
type neighbour struct {
	at       [features]float64
	residual float64
}

// near is the distance, squared, from which on measured work says little.
const near = 4

// correction returns the weighted mean of the residuals of neighbours, but for the one at index without, and the least
// distance, squared. A neighbour at a distance d counts (1 + d^2)^-3.
func correction(here [features]float64, all []neighbour, without int) (mean, nearest float64) {
	sum, weights, nearest := 0.0, 0.0, math.Inf(1)
	for i := range all {
		if i == without {
			continue
		}
		d := 0.0
		for k, v := range here {
			d += (v - all[i].at[k]) * (v - all[i].at[k])
		}
		w := 1 / ((1 + d) * (1 + d) * (1 + d))
		sum, weights, nearest = sum+w*all[i].residual, weights+w, min(nearest, d)
	}
	if weights == 0 {
		return 0, nearest
	}
	return sum / weights, nearest
}

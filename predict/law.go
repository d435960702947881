package predict

import (
	"errors"
	"math"
)

// Law is a time that grows with the work, in microseconds. No coefficient is below 0.
type Law struct {
	Floor  float64 `json:"floor"`   // times the floor: 1 is as fast as the device can be
	StepUs float64 `json:"step_us"` // for each step: a launch on a GPU, a barrier on a CPU
	BaseUs float64 `json:"base_us"` // for the call, whatever it does

	PageableIn  Transfer `json:"pageable_in"`
	PageableOut Transfer `json:"pageable_out"`
	PinnedIn    Transfer `json:"pinned_in"`
	PinnedOut   Transfer `json:"pinned_out"`
}

// Transfer is the time of a copy between host and device.
type Transfer struct {
	LatencyUs float64 `json:"latency_us"`
	UsPerMiB  float64 `json:"us_per_mib"`
}

const mebibyte = 1 << 20

// terms is the number of coefficients of a law.
const terms = 11

func (l *Law) coefficients() [terms]*float64 {
	return [terms]*float64{
		&l.Floor, &l.StepUs, &l.BaseUs,
		&l.PageableIn.LatencyUs, &l.PageableIn.UsPerMiB, &l.PageableOut.LatencyUs, &l.PageableOut.UsPerMiB,
		&l.PinnedIn.LatencyUs, &l.PinnedIn.UsPerMiB, &l.PinnedOut.LatencyUs, &l.PinnedOut.UsPerMiB,
	}
}

// Time returns the times of the copy in, of the work and of the copy out, in microseconds.
func (l *Law) Time(w *Work) (in, run, out float64) {
	run = l.Floor*w.floor() + l.StepUs*w.Steps + l.BaseUs
	switch w.Memory {
	case Pageable:
		in, out = l.PageableIn.time(w.BytesIn), l.PageableOut.time(w.BytesOut)
	case Pinned:
		in, out = l.PinnedIn.time(w.BytesIn), l.PinnedOut.time(w.BytesOut)
	}
	return in, run, out
}

func (t *Transfer) time(bytes float64) float64 {
	if bytes == 0 {
		return 0
	}
	return t.LatencyUs + t.UsPerMiB*bytes/mebibyte
}

// equation is a measured time: the sum of coefficients times x should be us.
type equation struct {
	x      [terms]float64
	us     float64
	weight float64
}

// equations returns those of rows: of each time, and of its copies where they were measured. Each group of rows counts
// alike.
func equations(rows []Row, group func(*Row) string) (all []equation) {
	const ofCopy = 0.3 // the weight of a copy beside that of the whole time
	parts := groups(rows, group)
	for _, own := range parts {
		weight := float64(len(rows)) / float64(len(parts)*len(own))
		for i := range own {
			r := &own[i]
			whole := equation{us: r.Us, weight: weight}
			in, out := equation{us: r.H2DUs, weight: ofCopy * weight}, equation{us: r.D2HUs, weight: ofCopy * weight}
			for j := range terms { // a law is linear in its coefficients
				var unit Law
				*unit.coefficients()[j] = 1
				var run float64
				in.x[j], run, out.x[j] = unit.Time(&r.Work)
				whole.x[j] = in.x[j] + run + out.x[j]
			}
			all = append(all, whole)
			for _, e := range []equation{in, out} {
				if e.us > 0 && e.x != [terms]float64{} {
					all = append(all, e)
				}
			}
		}
	}
	return all
}

// fitLaw returns the law with the least squares of relative errors. A measurement that is off by more than a quarter
// counts less (Huber). The law is pulled to another one as strongly as a number of measurements would, so that what
// rows say nothing about is that law's.
func fitLaw(equations []equation, near Law, pull float64) (Law, error) {
	const (
		rounds   = 6    // of weights
		huber    = 0.25 // error, in logarithm, beyond which a measurement counts less
		farthest = 20   // times, for weights
	)
	var prior [terms]float64
	for j, c := range near.coefficients() {
		prior[j] = *c
	}
	current := prior
	for round := range rounds {
		var gram [terms][terms]float64
		var right [terms]float64
		total := 0.0
		for i := range equations {
			e := &equations[i]
			size, weight := e.us, e.weight
			if round > 0 {
				predicted := 0.0
				for j, x := range e.x {
					predicted += current[j] * x
				}
				predicted = min(max(predicted, e.us/farthest), e.us*farthest)
				// By the geometric mean of measured and predicted, a relative error is nearly one of logarithms.
				size = math.Sqrt(e.us * predicted)
				if miss := math.Abs(math.Log(predicted / e.us)); miss > huber {
					weight *= huber / miss
				}
			}
			total += e.weight
			weight /= size * size
			for j, x := range e.x {
				if x == 0 {
					continue
				}
				for k, y := range e.x {
					gram[j][k] += weight * x * y
				}
				right[j] += weight * x * e.us
			}
		}
		var used []int
		for j := range terms {
			if gram[j][j] > 0 {
				s := pull * gram[j][j] / total // in units of what the term is of a time
				gram[j][j] += s
				right[j] += s * prior[j]
				used = append(used, j)
			}
		}
		var err error
		if current, err = nonNegative(&gram, &right, current, used); err != nil {
			return near, err
		}
	}
	var law Law
	for j, c := range law.coefficients() {
		*c = current[j]
	}
	return law, nil
}

// nonNegative minimises x'Gx/2 - r'x over some elements of x, none below 0, one element after another (Franc, Hlavac
// and Navara, "Sequential coordinate-wise algorithm for the non-negative least squares problem", 2005). G is positive
// definite for these.
func nonNegative(
	g *[terms][terms]float64, r *[terms]float64, x [terms]float64, elements []int,
) ([terms]float64, error) {
	const sweeps, tolerance = 10_000, 1e-6
	for range sweeps {
		change := 0.0
		for _, j := range elements {
			gradient := -r[j]
			for _, k := range elements {
				gradient += g[j][k] * x[k]
			}
			next := max(0, x[j]-gradient/g[j][j])
			change = max(change, math.Abs(next-x[j])*math.Sqrt(g[j][j]))
			x[j] = next
		}
		if math.IsNaN(change) || math.IsInf(change, 0) {
			return x, errors.New("a law cannot be fitted: the data may hold extreme values")
		}
		if change < tolerance {
			break
		}
	}
	return x, nil
}

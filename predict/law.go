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

	Start Start `json:"start"` // once if the process has not used the device before

	PageableIn  Transfer `json:"pageable_in"`
	PageableOut Transfer `json:"pageable_out"`
	PinnedIn    Transfer `json:"pinned_in"`
	PinnedOut   Transfer `json:"pinned_out"`
}

// Start is what a cold start adds to the time of work: opening the device, loading weights, filling a cache.
type Start struct {
	Us        float64 `json:"us"`         // whatever the work
	Floor     float64 `json:"floor"`      // times the floor
	LibraryUs float64 `json:"library_us"` // if a GPU has products of more than [LibraryRows] rows
}

// LibraryRows is up to how many rows the engine's own kernels multiply on a GPU. The library for larger products takes
// time to load.
const LibraryRows = 8

// Time returns the time of a start in microseconds.
func (s *Start) Time(w *Work) float64 {
	x := w.terms()
	return s.Us*x[ofStart] + s.Floor*x[ofStart+1] + s.LibraryUs*x[ofStart+2]
}

// Transfer is the time of a copy between host and device.
type Transfer struct {
	LatencyUs float64 `json:"latency_us"`
	UsPerMiB  float64 `json:"us_per_mib"`
}

const mebibyte = 1 << 20

// terms is the number of coefficients of a law, and places of some among them.
const (
	terms      = 14
	ofPinned   = 7
	ofTransfer = 3
	ofStart    = 11
)

// vector returns the coefficients in the order of [Work.terms].
func (l *Law) vector() [terms]float64 {
	return [terms]float64{
		l.Floor, l.StepUs, l.BaseUs,
		l.PageableIn.LatencyUs, l.PageableIn.UsPerMiB, l.PageableOut.LatencyUs, l.PageableOut.UsPerMiB,
		l.PinnedIn.LatencyUs, l.PinnedIn.UsPerMiB, l.PinnedOut.LatencyUs, l.PinnedOut.UsPerMiB,
		l.Start.Us, l.Start.Floor, l.Start.LibraryUs,
	}
}

// lawOf is the inverse of vector.
func lawOf(c [terms]float64) Law {
	return Law{
		c[0], c[1], c[2], Start{c[11], c[12], c[13]},
		Transfer{c[3], c[4]}, Transfer{c[5], c[6]}, Transfer{c[7], c[8]}, Transfer{c[9], c[10]},
	}
}

// terms returns what each coefficient of a law is multiplied by.
func (w *Work) terms() (x [terms]float64) {
	floor := w.floor()
	x[0], x[1], x[2] = floor, w.Steps, 1
	if at := ofTransfer; w.Memory == Pageable || w.Memory == Pinned {
		if w.Memory == Pinned {
			at = ofPinned
		}
		if w.BytesIn > 0 {
			x[at], x[at+1] = 1, w.BytesIn/mebibyte
		}
		if w.BytesOut > 0 {
			x[at+2], x[at+3] = 1, w.BytesOut/mebibyte
		}
	}
	if w.Cold {
		x[ofStart], x[ofStart+1] = 1, floor
		if w.Rows > LibraryRows && w.Memory != Host {
			x[ofStart+2] = 1
		}
	}
	return x
}

// Time returns the time of work in microseconds.
func (l *Law) Time(w *Work) (us float64) {
	x := w.terms()
	for i, c := range l.vector() {
		us += c * x[i]
	}
	return us
}

// equation is a measured time: the sum of terms times coefficients should be us.
type equation struct {
	x      [terms]float64
	us     float64
	weight float64
}

// equations returns those of a row: of its time, and of its copies where they were measured.
func (r *Row) equations(weight float64) []equation {
	const ofPart = 0.3 // the weight of a copy beside that of the whole time
	all := []equation{{r.terms(), r.Us, weight}}
	for i, us := range [2]float64{r.H2DUs, r.D2HUs} {
		at := ofTransfer + 2*i
		if r.Memory == Pinned {
			at = ofPinned + 2*i
		}
		if x := all[0].x; us > 0 && x[at] > 0 {
			part := equation{us: us, weight: ofPart * weight}
			part.x[at], part.x[at+1] = x[at], x[at+1]
			all = append(all, part)
		}
	}
	return all
}

// fitLaw returns the law with the least squares of relative errors. A measurement that is off by more than a quarter
// counts less (Huber). The law is pulled to another one as strongly as a measurement would, so that what rows say
// nothing about is that law's.
func fitLaw(equations []equation, near Law, pull float64) (Law, error) {
	const (
		rounds   = 6    // of weights
		huber    = 0.25 // error, in logarithm, beyond which a measurement counts less
		farthest = 20   // times, for weights
	)
	prior := near.vector()
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
	return lawOf(current), nil
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

package predict

import (
	"math"

	"gonum.org/v1/gonum/mat"
)

// Law is a time that grows with the work, in microseconds. No coefficient is below 0.
type Law struct {
	Floor  float64 `json:"floor"`   // times the floor: 1 is as fast as the device can be
	StepUs float64 `json:"step_us"` // for each step: a launch on a GPU, a barrier on a CPU
	BaseUs float64 `json:"base_us"` // for the call, whatever it does
	MiBUs  float64 `json:"mib_us"`  // for each MiB that the work moves, beside the floor

	Start Start `json:"start"` // once if the process has not used the device before

	PageableIn  Transfer `json:"pageable_in"`
	PageableOut Transfer `json:"pageable_out"`
	PinnedIn    Transfer `json:"pinned_in"`
	PinnedOut   Transfer `json:"pinned_out"`
}

// Start is what a cold start adds to the time of work: opening the device, and what the work needs made ready, such as weights that are
// loaded and a cache that is filled.
type Start struct {
	Us        float64 `json:"us"`         // whatever the work
	Floor     float64 `json:"floor"`      // times the floor
	MiBUs     float64 `json:"mib_us"`     // for each MiB that the work moves
	LibraryUs float64 `json:"library_us"` // if a GPU has products of more than [LibraryRows] rows
}

// LibraryRows is up to how many rows the engine's own kernels multiply on a GPU: the library for larger products takes time to load.
const LibraryRows = 8

// startColumns is the number of coefficients of a start.
const startColumns = 4

// columnsOfStart returns what each coefficient of a start is multiplied by.
func columnsOfStart(w *Work) [startColumns]float64 {
	x := [startColumns]float64{1, w.FloorUs, w.Bytes / mebibyte, 0}
	if w.Rows > LibraryRows && w.Memory != Host {
		x[3] = 1
	}
	return x
}

func (s *Start) vector() [startColumns]float64 {
	return [startColumns]float64{s.Us, s.Floor, s.MiBUs, s.LibraryUs}
}

// Time returns the time of a start in microseconds.
func (s *Start) Time(w *Work) float64 {
	t, coefficients := 0.0, s.vector()
	for i, x := range columnsOfStart(w) {
		t += coefficients[i] * x
	}
	return t
}

// startSquares returns the mean squares of what each column of a start contributes to times: the units in which starts are pulled to those of a
// level before. They are of all starts on a kind of device: of small work alone, nothing is known of how the start grows with the work.
func startSquares(rows []Row) (square [startColumns]float64) {
	for i := range rows {
		for j, x := range columnsOfStart(&rows[i].Work) {
			square[j] += (x / rows[i].Us) * (x / rows[i].Us) / float64(len(rows))
		}
	}
	return square
}

// fitStart fits what starts took beyond the times of warm runs, near the starts of a level before. Errors are relative to whole times. square is
// what startSquares returns.
func fitStart(rows []Row, warm []float64, near Start, square [startColumns]float64) (Start, error) {
	prior := near.vector()
	n := len(prior)
	pull := startPull
	if near == (Start{}) {
		pull = firstPull
	}
	a, b := mat.NewDense(len(rows)+n, n, nil), make([]float64, len(rows)+n)
	for j := range n {
		s := math.Sqrt(max(pull*square[j], 1e-30))
		a.Set(len(rows)+j, j, s)
		b[len(rows)+j] = s * prior[j]
	}
	current := prior
	for round := range lawRounds {
		for i := range rows {
			x, size, trust := columnsOfStart(&rows[i].Work), rows[i].Us, 1.0
			if round > 0 {
				predicted := warm[i]
				for j := range n {
					predicted += current[j] * x[j]
				}
				predicted = min(max(predicted, size/20), size*20)
				if miss := math.Abs(math.Log(predicted / size)); miss > huberAt {
					trust = huberAt / miss
				}
				size = math.Sqrt(size * predicted)
			}
			s := math.Sqrt(trust) / size
			for j := range n {
				a.Set(i, j, s*x[j])
			}
			b[i] = s * max(0, rows[i].Us-warm[i])
		}
		c, err := NNLS(a, b)
		if err != nil {
			return near, err
		}
		copy(current[:], c)
	}
	return Start{current[0], current[1], current[2], current[3]}, nil
}

// Transfer is the time of a copy between host and device.
type Transfer struct {
	LatencyUs float64 `json:"latency_us"`
	UsPerMiB  float64 `json:"us_per_mib"`
}

// lawColumns is the number of coefficients of a law.
const lawColumns = 12

// transferAt is the first coefficient of transfers.
const transferAt = 4

const mebibyte = 1 << 20

// columns returns what each coefficient is multiplied by. The start is fitted apart.
func columns(w *Work) (x [lawColumns]float64) {
	x[0], x[1], x[2] = w.FloorUs, w.Steps, 1
	x[3] = w.Bytes / mebibyte
	at := transferAt
	switch w.Memory {
	case Pageable:
	case Pinned:
		at = transferAt + 4
	default:
		return x
	}
	if w.BytesIn > 0 {
		x[at], x[at+1] = 1, w.BytesIn/mebibyte
	}
	if w.BytesOut > 0 {
		x[at+2], x[at+3] = 1, w.BytesOut/mebibyte
	}
	return x
}

// vector returns the coefficients in the order of columns.
func (l *Law) vector() [lawColumns]float64 {
	return [lawColumns]float64{
		l.Floor, l.StepUs, l.BaseUs, l.MiBUs,
		l.PageableIn.LatencyUs, l.PageableIn.UsPerMiB, l.PageableOut.LatencyUs, l.PageableOut.UsPerMiB,
		l.PinnedIn.LatencyUs, l.PinnedIn.UsPerMiB, l.PinnedOut.LatencyUs, l.PinnedOut.UsPerMiB,
	}
}

// lawOf is the inverse of vector.
func lawOf(c [lawColumns]float64, start Start) Law {
	return Law{c[0], c[1], c[2], c[3], start, Transfer{c[4], c[5]}, Transfer{c[6], c[7]}, Transfer{c[8], c[9]}, Transfer{c[10], c[11]}}
}

// Time returns the time of work in microseconds, without the start.
func (l *Law) Time(w *Work) float64 { return l.with(w, w.FloorUs) }

// with returns the same with another floor.
func (l *Law) with(w *Work, floor float64) float64 {
	t := l.Floor*floor + l.StepUs*w.Steps + l.BaseUs + l.MiBUs*(w.Bytes/mebibyte)
	in, out := &l.PageableIn, &l.PageableOut
	switch w.Memory {
	case Pageable:
	case Pinned:
		in, out = &l.PinnedIn, &l.PinnedOut
	default:
		return t
	}
	if w.BytesIn > 0 {
		t += in.LatencyUs + in.UsPerMiB*(w.BytesIn/mebibyte)
	}
	if w.BytesOut > 0 {
		t += out.LatencyUs + out.UsPerMiB*(w.BytesOut/mebibyte)
	}
	return t
}

// How a law is fitted.
const (
	lawPull   = 0.5  // how strongly coefficients are pulled to the level before, in measurements
	firstPull = 1e-3 // and to firstLaw, which nothing was measured for
	startPull = 0.5  // the same of starts
	linkPull  = 2    // those of transfers, in measurements that are off by all of the coefficient: see fitLaw
	partTrust = 0.3  // weight of a measured part of a time, beside the time itself
	lawRounds = 6    // of weights
	huberAt   = 0.25 // log error from which a measurement counts less
)

// fitLaw fits a law to measurements that are not cold, with weights, near a law of the level before. A
// coefficient of which the measurements say nothing is that law's, as the start is. Transfers are pulled most: a link is as fast for one task
// as for another, and one small copy whose latency is a little longer would otherwise double the time of large ones.
func fitLaw(rows []Row, weights []float64, near Law) (Law, error) {
	prior, pull := near.vector(), lawPull
	if near == firstLaw {
		pull = firstPull
	}
	type equation struct {
		x      [lawColumns]float64
		us     float64
		weight float64
	}
	var equations []equation
	for i := range rows {
		w := &rows[i].Work
		x := columns(w)
		equations = append(equations, equation{x, rows[i].Us, weights[i]})
		at := transferAt
		if w.Memory == Pinned {
			at = transferAt + 4
		}
		for k, us := range [2]float64{rows[i].H2DUs, rows[i].D2HUs} {
			if j := at + 2*k; us > 0 && x[j] > 0 {
				part := equation{us: us, weight: partTrust * weights[i]}
				part.x[j], part.x[j+1] = x[j], x[j+1]
				equations = append(equations, part)
			}
		}
	}
	// The mean square of what a column contributes to a time makes the pull independent of units.
	var square [lawColumns]float64
	total := 0.0
	for _, e := range equations {
		total += e.weight
		for j, x := range e.x {
			square[j] += e.weight * (x / e.us) * (x / e.us)
		}
	}
	var fitted []int
	for j := range lawColumns {
		if square[j] > 0 {
			fitted = append(fitted, j)
		}
	}
	if len(fitted) == 0 {
		return near, nil
	}
	a := mat.NewDense(len(equations)+len(fitted), len(fitted), nil)
	b := make([]float64, len(equations)+len(fitted))
	current := prior
	for round := range lawRounds {
		for i, e := range equations {
			size, trust := e.us, e.weight
			if round > 0 {
				predicted := 0.0
				for j, x := range e.x {
					predicted += current[j] * x
				}
				// The geometric mean of measured and predicted makes the relative error one of logarithms, nearly.
				predicted = min(max(predicted, e.us/20), e.us*20)
				size = math.Sqrt(e.us * predicted)
				if miss := math.Abs(math.Log(predicted / e.us)); miss > huberAt {
					trust *= huberAt / miss
				}
			}
			s := math.Sqrt(trust) / size
			for k, j := range fitted {
				a.Set(i, k, s*e.x[j])
			}
			b[i] = s * e.us
		}
		for k, j := range fitted {
			i := len(equations) + k
			s := math.Sqrt(pull * square[j] / total)
			if j >= transferAt && prior[j] > 0 {
				s = math.Max(s, math.Sqrt(linkPull)/prior[j])
			}
			a.Set(i, k, s)
			b[i] = s * prior[j]
		}
		c, err := NNLS(a, b)
		if err != nil {
			return Law{}, err
		}
		for k, j := range fitted {
			current[j] = c[k]
		}
	}
	return lawOf(current, near.Start), nil
}

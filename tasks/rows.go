package tasks

import (
	"math"
	"strconv"
	"strings"

	"gpt2scope/predict"
)

// LeftOut counts samples that are of no use for a prediction.
type LeftOut struct {
	Plain     int // of variants for learners, which a scheduler does not choose
	Disturbed int // of cases that were also measured undisturbed
	NoFloor   int // without ceilings of their device
}

// Rows makes of samples what package predict takes: of the tuned variants, and of a case that was measured disturbed and
// undisturbed only the latter.
func Rows(samples []Sample) ([]predict.Row, LeftOut) {
	type work struct{ machine, device, task, shape, dtype, memory, start string }
	of := func(s *Sample) work {
		return work{s.Machine, s.Device, s.Task, s.Shape, s.DType, s.Memory, s.Start}
	}
	undisturbed := map[work]bool{}
	for i := range samples {
		if s := &samples[i]; s.Variant == Tuned && !s.Disturbed {
			undisturbed[of(s)] = true
		}
	}
	var rows []predict.Row
	var left LeftOut
	for i := range samples {
		s := &samples[i]
		memory, err := predict.ParseMemory(s.Memory)
		switch {
		case s.Variant != Tuned || err != nil:
			left.Plain++
		case s.Disturbed && undisturbed[of(s)]:
			left.Disturbed++
		case !(s.FloorUs > 0) || !(s.WallUs > 0):
			left.NoFloor++
		default:
			rows = append(rows, predict.Row{
				Machine: s.Machine, Key: s.MachineKey, Device: s.Device, Shape: s.Shape, Us: s.WallUs, At: s.Time.Unix(), H2DUs: known(s.H2DUs), D2HUs: known(s.D2HUs),
				Work: predict.Work{
					Task: s.Task, DType: s.DType, FLOPs: s.FLOPs, Bytes: s.Bytes, BytesIn: float64(s.BytesIn), BytesOut: float64(s.BytesOut),
					Steps: float64(s.Steps), Rows: float64(s.Rows), Inner: inner(s.Shape), Threads: threads(s.MachineKey), FloorUs: s.FloorUs, Memory: memory, Cold: s.Start == StartCold,
				},
			})
		}
	}
	return rows, left
}

// known returns a time, 0 if it was not measured.
func known(us float64) float64 {
	if math.IsNaN(us) {
		return 0
	}
	return us
}

// threads returns the number that the key of a CPU names, 0 if it names none.
func threads(key string) float64 {
	for part := range strings.SplitSeq(key, ", ") {
		if number, ok := strings.CutSuffix(strings.TrimSuffix(part, "s"), " thread"); ok {
			if n, err := strconv.ParseUint(number, 10, 32); err == nil {
				return float64(n)
			}
		}
	}
	return 0
}

// inner returns the length of the sums of a product of matrices, 0 for other shapes.
func inner(shape string) float64 {
	s, err := ParseShape(shape)
	if err != nil {
		return 0
	}
	return float64(s.Get("k"))
}

package tasks

import (
	"math"

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
			r := predict.Row{
				Machine: s.Machine, Key: s.MachineKey, Device: s.Device, Shape: s.Shape, Us: s.WallUs, At: s.Time.Unix(), H2DUs: known(s.H2DUs), D2HUs: known(s.D2HUs),
				Work: predict.Work{
					Task: s.Task, DType: s.DType, FLOPs: s.FLOPs, Bytes: s.Bytes, BytesIn: float64(s.BytesIn), BytesOut: float64(s.BytesOut),
					Steps: float64(s.Steps), Rows: float64(s.Rows), FloorUs: s.FloorUs, Memory: memory, Cold: s.Start == StartCold,
				},
			}
			if shape, err := ParseShape(s.Shape); err == nil {
				r.Inner = float64(shape.Get("k"))
				if memory == predict.Host {
					setHost(&r.Work, shape, s.MachineKey)
				}
			}
			rows = append(rows, r)
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

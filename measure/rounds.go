package measure

import (
	"context"
	"slices"

	"gpt2scope/internal/stats"
)

// Series are the times of one kind of measurement in several rounds.
type Series struct {
	Kind  string
	Times []float64 // in the unit of what measures, in the order measured
	Err   error     // the last that a round failed with
}

// Median returns the median of the times, 0 of none.
func (s Series) Median() float64 {
	return stats.Median(slices.Sorted(slices.Values(s.Times)))
}

// Rounds measures kinds in turns, so that whatever drifts meets all alike. The first kind
// is what the others are compared with: an error of it ends the measurement.
func Rounds(ctx context.Context, kinds []string, rounds int, one func(kind string) (float64, error)) ([]Series, error) {
	all := make([]Series, len(kinds))
	for i, kind := range kinds {
		all[i].Kind = kind
	}
	for range rounds {
		for i := range all {
			s := &all[i]
			time, err := one(s.Kind)
			switch {
			case ctx.Err() != nil:
				return nil, context.Cause(ctx)
			case err != nil && i == 0:
				return nil, err
			case err != nil:
				s.Err = err
			default:
				s.Times = append(s.Times, time)
			}
		}
	}
	return all, nil
}

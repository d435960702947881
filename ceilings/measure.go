package ceilings

import (
	"context"
	"fmt"
	"slices"

	"gpt2scope/internal/stats"
)

// Way is one way to measure a quantity.
type Way struct {
	Name  string                    // what [Value.How] says
	Round func() ([]float64, error) // one round of measurements, at least one, in the unit
}

// Quantity is a value to measure, by one or more ways. The best way counts.
type Quantity struct {
	Value
	Ways []Way
}

// Rounds says how often quantities are measured.
type Rounds struct {
	Least, Most int

	// Ended, if not nil, is called after each round. If it returns true there is another round, up to Most.
	Ended func() (again bool)
}

// Measure measures quantities in rounds, in each all of them in turn, so that other work on the machine that lasts a
// while affects a round and not a quantity. The value of a quantity is its best median of a round: other work only
// makes a device slower. Rounds go on, up to Most, until each rate is confirmed by a second round ([Value.Confirmed]).
func Measure(ctx context.Context, r Rounds, quantities []Quantity) ([]Value, error) {
	values := make([]Value, len(quantities))
	for i, q := range quantities {
		values[i] = q.Value
	}
	for round := range max(1, r.Most) {
		for i, q := range quantities {
			v := &values[i]
			best, how := 0.0, ""
			for _, w := range q.Ways {
				if ctx.Err() != nil {
					return nil, context.Cause(ctx)
				}
				samples, err := w.Round()
				if err != nil {
					return nil, err
				}
				slices.Sort(samples)
				if m := stats.Median(samples); how == "" || v.better(m, best) {
					best, how = m, w.Name
				}
			}
			if v.Rounds = append(v.Rounds, best); round == 0 || v.better(best, v.Value) {
				v.Value, v.How = best, how
			}
		}
		again := r.Ended != nil && r.Ended()
		if unsure := slices.ContainsFunc(values, func(v Value) bool { return !v.Confirmed() }); round+1 >= r.Least &&
			!unsure && !again {
			break
		}
	}
	return values, nil
}

// better tells whether a is a better value than b: a higher rate, or a shorter time.
func (v Value) better(a, b float64) bool { return (a > b) != (v.Unit == Micro) && a != b }

// agree is the relative difference up to which two measurements are the same.
const agree = 0.05

// Confirmed tells whether two rounds at least agree on the value, within 5 %. A value that only one round reached may
// be far from the true one: something else may have disturbed all rounds. Times are not judged, since floors do not
// depend on them, nor are values without rounds, as files of earlier versions have them.
func (v Value) Confirmed() bool {
	if v.Unit == Micro || len(v.Rounds) == 0 {
		return v.Unit == Micro || v.Value > 0
	}
	near := 0
	for _, x := range v.Rounds {
		if x >= (1-agree)*v.Value {
			near++
		}
	}
	return near >= 2
}

// Spread returns the least and the greatest median of a round; both are the value if the rounds are not known.
func (v Value) Spread() (low, high float64) {
	if len(v.Rounds) == 0 {
		return v.Value, v.Value
	}
	return slices.Min(v.Rounds), slices.Max(v.Rounds)
}

// Raise takes over the values that another measurement of the same device found to be better: what a device did once,
// it can do.
func (s *Set) Raise(by Set) {
	for i := range s.Values {
		v := &s.Values[i]
		for _, o := range by.Values {
			same := o.Name == v.Name && o.Unit == v.Unit && o.Where == v.Where && o.Size == v.Size
			if same && o.Value > 0 && v.better(o.Value, v.Value) {
				*v = o
			}
		}
	}
}

// What names the value: "read, memory", "bf16".
func (v Value) What() string {
	if v.Where == "" {
		return v.Name
	}
	return v.Name + ", " + v.Where
}

// Judge sets Uncertainty and Disturbed from the rounds of the values: a rate is as sure as the second-best round is
// near the best.
func (s *Set) Judge() {
	s.Uncertainty, s.Disturbed = agree, ""
	for _, v := range s.Values {
		if v.Confirmed() {
			continue
		}
		rounds := slices.Sorted(slices.Values(v.Rounds))
		unsure := 0.5 // a single round
		if n := len(rounds); n > 1 && v.Value > 0 {
			unsure = min(0.99, 1-rounds[n-2]/v.Value)
		}
		if unsure > s.Uncertainty {
			low, high := v.Spread()
			s.Uncertainty, s.Disturbed = unsure, fmt.Sprintf("%s was %.3g to %.3g %s in %d rounds, of which no two agree on "+
				"the highest", v.What(), low, high, v.Unit, len(rounds))
		}
	}
}

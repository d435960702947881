package ceilings

import (
	"context"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
)

// rounds is a way that gives each round's samples in turn.
func rounds(name string, samples ...[]float64) Way {
	n := 0
	return Way{name, func() ([]float64, error) { n++; return samples[min(n, len(samples))-1], nil }}
}

// The best median of the best way, the spread of its samples, and the rounds.
func TestMeasure(t *testing.T) {
	r := Rounds{Least: 3, Most: 8}
	got, err := Measure(context.Background(), r, []Quantity{
		{Value{Name: "read", Unit: GBs, Where: "memory"}, []Way{rounds("steady", []float64{5, 4, 6}), rounds("rising", []float64{1, 2, 3}, []float64{6, 8, 7}, []float64{7.1, 7.2, 9})}},
		{Value{Name: "barrier", Unit: Micro}, []Way{rounds("one", []float64{2}, []float64{1.5}, []float64{3})}},
	})
	want := []Value{
		{Name: "read", Unit: GBs, Where: "memory", Value: 7.2, How: "rising", Rounds: []float64{5, 7, 7.2}},
		{Name: "barrier", Unit: Micro, Value: 1.5, How: "one", Rounds: []float64{2, 1.5, 3}},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
	if low, high := got[0].Spread(); low != 5 || high != 7.2 {
		t.Errorf("the rounds spread from %g to %g", low, high)
	}
}

// A measurement that other work disturbs goes on until a second round confirms the best;
// if none does it says so. One that is not disturbed ends at once.
func TestMeasureDisturbed(t *testing.T) {
	measure := func(name string, r Rounds, medians ...float64) Value {
		t.Helper()
		var samples [][]float64
		for _, m := range medians {
			samples = append(samples, []float64{m})
		}
		v, err := Measure(context.Background(), r, []Quantity{{Value{Name: name, Unit: GBs, Where: "memory"},
			[]Way{rounds("way", samples...)}}})
		must(t, err)
		return v[0]
	}
	r := Rounds{Least: 3, Most: 6}
	for _, c := range []struct {
		medians   []float64
		rounds    int
		value     float64
		confirmed bool
	}{
		{[]float64{55, 55.2, 54}, 3, 55.2, true},
		{[]float64{44, 43, 44.2}, 3, 44.2, true}, // disturbed all the time: nothing tells
		{[]float64{44, 55.2, 44, 44, 55}, 5, 55.2, true},
		{[]float64{0.9, 0.054, 0.054, 0.054, 0.3, 0.2}, 6, 0.9, false},
		{[]float64{30, 44, 55.2}, 4, 55.2, true}, // the last one is repeated
	} {
		v := measure("read", r, c.medians...)
		if len(v.Rounds) != c.rounds || v.Value != c.value || v.Confirmed() != c.confirmed {
			t.Errorf("%v: %+v, confirmed %v", c.medians, v, v.Confirmed())
		}
		s := Set{Values: []Value{{Name: "barrier", Unit: Micro, Value: 3, Rounds: []float64{3, 9}}, v}}
		s.Judge()
		switch {
		case c.confirmed && (s.Disturbed != "" || s.Uncertainty != agree):
			t.Errorf("%v: %+v", c.medians, s)
		case !c.confirmed && (!strings.Contains(s.Disturbed, "read, memory was 0.054 to 0.9 GB/s in 6 rounds") ||
			math.Abs(s.Uncertainty-2./3) > 1e-9):
			t.Errorf("%v: %+v", c.medians, s)
		}
	}
	asked := 0
	r.Ended = func() bool { asked++; return asked < 5 }
	if v := measure("read", r, 55); len(v.Rounds) != 5 {
		t.Errorf("rounds %v, want 5", v.Rounds)
	}
	r.Ended = func() bool { return true }
	if v := measure("read", r, 55); len(v.Rounds) != r.Most {
		t.Errorf("rounds %v, want %d", v.Rounds, r.Most)
	}
	if !(Value{Unit: GBs, Value: 5}).Confirmed() || !(Value{Unit: Micro, Rounds: []float64{1, 9}}).Confirmed() {
		t.Error("a value without rounds, or a time, is in doubt")
	}
}

func TestMeasureErrors(t *testing.T) {
	why := errors.New("why")
	q := []Quantity{{Value{Unit: GBs}, []Way{{"broken", func() ([]float64, error) { return nil, why }}}}}
	if _, err := Measure(context.Background(), Rounds{1, 1, nil}, q); err != why {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(why)
	if _, err := Measure(ctx, Rounds{1, 1, nil}, []Quantity{{Value{Unit: GBs},
		[]Way{rounds("a", []float64{1})}}}); err != why {
		t.Errorf("cancelled: %v", err)
	}
}

// The better of two measurements of the same device is kept, value by value.
func TestRaise(t *testing.T) {
	s, again := made("a"), made("a")
	again.Values[0].Value = 103 // within what measurements differ by
	again.Values[1].Value = 12  // better
	again.Values[3].Value = 0.5 // worse
	again.Values[4].Unit = GBs  // something else
	again.Values[6].Value = 1   // a shorter time
	again.Values = append(again.Values, Value{Name: "new", Unit: GBs, Value: 9})
	s.Raise(again)
	var values []float64
	for _, v := range s.Values {
		values = append(values, v.Value)
	}
	if want := []float64{103, 12, 0.5, 1, 1e-3, 4e-3, 1}; !reflect.DeepEqual(values, want) {
		t.Errorf("%v, want %v", values, want)
	}
}

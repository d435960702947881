package measure

import (
	"context"
	"errors"
	"strings"
	"testing"

	"gpt2scope/ceilings"
)

// The first process of each kind warms up; the costs are the medians of the others. What fails is missing, and the rest is there.
func TestStartCosts(t *testing.T) {
	n := map[string]int{}
	child := func(_ context.Context, what string) (map[string]float64, error) {
		n[what]++
		us := float64(n[what]) * 10
		if n[what] == 1 {
			us = 1e6
		}
		if what == StartNVML {
			return map[string]float64{ceilings.NVML: us}, nil
		}
		return map[string]float64{ceilings.CUDADriver: us, ceilings.CUDAContext: 2 * us}, nil
	}
	got, err := StartCosts(context.Background(), child)
	if err != nil || len(got) != 3 {
		t.Fatalf("%+v, %v", got, err)
	}
	for i, want := range []ceilings.Value{{Name: ceilings.CUDAContext, Value: 80}, {Name: ceilings.CUDADriver, Value: 40},
		{Name: ceilings.NVML, Value: 40}} {
		v := got[i]
		if v.Name != want.Name || v.Value != want.Value || v.Unit != ceilings.Micro || !v.IsCost() || v.How == "" ||
			!(v.P10 < v.Value && v.Value < v.P90 && v.P90 < 1e3) {
			t.Errorf("%+v, expected %+v", v, want)
		}
	}
	for name, c := range map[string]struct {
		us   map[string]float64
		err  error
		want string
	}{
		"a process that fails": {nil, errors.New("there is none"), "the start of cuda: there is none"},
		"what nobody asked":    {map[string]float64{"x": 1}, nil, "\"x\" took 1 us"},
		"a time of nothing":    {map[string]float64{ceilings.CUDADriver: 0}, nil, "took 0 us"},
	} {
		got, err := StartCosts(context.Background(), func(ctx context.Context, what string) (map[string]float64, error) {
			if what == StartCUDA {
				return c.us, c.err
			}
			return child(ctx, what)
		})
		if err == nil || !strings.Contains(err.Error(), c.want) || len(got) != 1 || got[0].Name != ceilings.NVML {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

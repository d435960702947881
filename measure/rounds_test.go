package measure_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"gpt2scope/measure"
)

// Kinds are measured in turns; one that fails does not end the others, the baseline does.
func TestRounds(t *testing.T) {
	var order []string
	calls := map[string]float64{}
	broken := errors.New("broken")
	got, err := measure.Rounds(t.Context(), []string{"none", "stamps", "cupti"}, 3, func(kind string) (float64, error) {
		order = append(order, kind)
		calls[kind]++
		if kind == "cupti" {
			return 0, broken
		}
		return 10 - calls[kind], nil
	})
	if err != nil || strings.Join(order, " ") != strings.Repeat("none stamps cupti ", 2)+"none stamps cupti" {
		t.Fatalf("%q, %v", order, err)
	}
	for i, want := range []measure.Series{{Kind: "none", Times: []float64{9, 8, 7}}, {Kind: "stamps", Times: []float64{9, 8, 7}}, {Kind: "cupti", Err: broken}} {
		if got[i].Kind != want.Kind || !slices.Equal(got[i].Times, want.Times) || got[i].Err != want.Err {
			t.Errorf("%+v, want %+v", got[i], want)
		}
	}
	if got[0].Median() != 8 || got[2].Median() != 0 {
		t.Errorf("medians %g and %g", got[0].Median(), got[2].Median())
	}
	if _, err := measure.Rounds(t.Context(), []string{"none"}, 3, func(string) (float64, error) { return 0, broken }); err != broken {
		t.Errorf("a baseline that fails: %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	if _, err := measure.Rounds(ctx, []string{"none", "stamps"}, 3, func(kind string) (float64, error) {
		if kind == "stamps" {
			cancel(broken)
		}
		return 1, nil
	}); err != broken {
		t.Errorf("cancelled: %v", err)
	}
}

package layers

import (
	"slices"
	"strings"
	"testing"
)

func TestParseDepths(t *testing.T) {
	for text, want := range map[string][]int{
		"1-6": {1, 2, 3, 4, 5, 6}, "1,2,4,12": {1, 2, 4, 12}, "8, 1-3,2": {1, 2, 3, 8}, "5-5": {5}, "4096": {4096},
	} {
		if have, err := ParseDepths(text); err != nil || !slices.Equal(have, want) {
			t.Errorf("%q is %v, %v", text, have, err)
		}
	}
	for text, want := range map[string]string{
		"": "not understood", " ": "not understood", "3-1": "ends before", "0": "at least 1 layer", "-3": "not understood", "1-": "not understood", "a": "not understood",
		"1,,2": "not understood", "1-9999999999999999999": "not understood", "1-5000": "at most 4096", "1-2-3": "not understood",
	} {
		if have, err := ParseDepths(text); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v, %v", text, have, err)
		}
	}
}

func TestVariants(t *testing.T) {
	check := func(v Variant, err error, label, kind string, order ...int) {
		t.Helper()
		if err != nil || v.Label != label || v.Kind != kind || v.Layers != len(order) || !slices.Equal(v.Order, order) {
			t.Errorf("%+v, %v", v, err)
		}
	}
	check(Depth(5, 3), nil, "5", KindDepth, 0, 1, 2, 0, 1)
	v, err := Drop(1, 3)
	check(v, err, "drop 1", KindDrop, 0, 2)
	v, err = RepeatLayer(1, 3)
	check(v, err, "repeat 1", KindRepeat, 0, 1, 1, 2)
	v, err = InOrder("0, 2,1,2", 3)
	check(v, err, "order 0,2,1,2", KindOrder, 0, 2, 1, 2)
	for _, f := range []func() (Variant, error){
		func() (Variant, error) { return Drop(3, 3) },
		func() (Variant, error) { return Drop(-1, 3) },
		func() (Variant, error) { return Drop(0, 1) },
		func() (Variant, error) { return RepeatLayer(3, 3) },
		func() (Variant, error) { return InOrder("", 3) },
		func() (Variant, error) { return InOrder("0,3", 3) },
		func() (Variant, error) { return InOrder("0,x", 3) },
		func() (Variant, error) { return InOrder(strings.Repeat("0,", MaxDepth)+"0", 3) },
	} {
		if v, err := f(); err == nil {
			t.Errorf("%+v is no variant", v)
		}
	}
}

// Each round has each phase of each variant once, not always in the same order; the seed alone decides.
func TestSchedule(t *testing.T) {
	variants := []Variant{Depth(1, 3), Depth(2, 3), Depth(3, 3)}
	s := Schedule{Phases: []string{TaskPrefill, TaskDecode}, Repeat: 20, Seed: 5, Once: []string{TaskQuality}}
	tasks := s.Tasks(variants)
	if n := 20*3*2 + 3; len(tasks) != n {
		t.Fatalf("%d tasks, not %d", len(tasks), n)
	}
	seen := map[string]bool{}
	orders := map[string]bool{}
	for round := range 20 {
		var order []string
		for _, task := range tasks[6*round : 6*round+6] {
			if task.Repeat != round+1 {
				t.Errorf("%s is in round %d", task.Key(), round+1)
			}
			order = append(order, task.What+task.Variant.Label)
		}
		orders[strings.Join(order, " ")] = true
	}
	for _, task := range tasks {
		if seen[task.Key()] {
			t.Errorf("%s comes twice", task.Key())
		}
		seen[task.Key()] = true
	}
	if len(orders) < 15 {
		t.Errorf("20 rounds have %d orders", len(orders))
	}
	keys := func(tasks []Task) (k []string) {
		for _, task := range tasks {
			k = append(k, task.Key())
		}
		return k
	}
	if !slices.Equal(keys(tasks), keys(s.Tasks(variants))) {
		t.Error("the same seed gives another order")
	}
	if s.Seed = 6; slices.Equal(keys(tasks), keys(s.Tasks(variants))) {
		t.Error("another seed gives the same order")
	}
}

package schedule

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"gpt2scope/internal/chart"
)

// Spans that overlap stand on lanes of their own, as far as there are lanes.
func TestWithoutOverlap(t *testing.T) {
	at := func(start, end float64) chart.Span { return chart.Span{Start: start, End: end} }
	got := withoutOverlap([]chart.Span{at(5, 8), at(0, 4), at(2, 6), at(4, 5), at(3, 9)}, 2)
	want := [][]chart.Span{{at(0, 4), at(3, 9)}, {at(2, 6)}}
	if len(got) != 2 || !slices.Equal(got[0][:2], want[0]) || got[1][0] != want[1][0] || len(got[0])+len(got[1]) != 5 {
		t.Errorf("lanes %v", got)
	}
}

// The picture names the policy, the devices and the kinds of tasks.
func TestGantt(t *testing.T) {
	r := Result{Policy: "ours", Makespan: 2500, Devices: []Device{{"cpu", 1}, {"cuda:0", 2}},
		Done: []Done{{Job: &Job{}, Device: 0, Plan: Span{Start: 0, End: 900}, Actual: Span{Start: 0, End: 1000}}, {Job: &Job{}, Device: 1, Plan: Span{Start: 0, End: 2400}, Actual: Span{Start: 10, End: 2500}}}}
	var b bytes.Buffer
	if err := Gantt(&b, r, []string{"vector.add"}); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"ours: 2 tasks in 2.5 ms", "cpu expected", "cpu actual", "cuda:0 actual", "vector.add", "time (ms)"} {
		if !strings.Contains(b.String(), ">"+text+"<") {
			t.Errorf("the picture has no %q", text)
		}
	}
}

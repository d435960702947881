package schedule

import (
	"bytes"
	"strings"
	"testing"
)

// The picture names the policy, the devices and the kinds of tasks, and has a row for each task in flight.
func TestGantt(t *testing.T) {
	done := func(device int, start, end float64) Done {
		return Done{Job: &Job{}, Device: device, Plan: Span{start, end - 1}, Actual: Span{start, end}}
	}
	r := Result{Policy: "ours", MakespanUs: 2500,
		Done: []Done{done(0, 0, 1000), done(1, 10, 1200), done(1, 20, 2500), done(1, 1300, 2400)}}
	var b bytes.Buffer
	must(t, Gantt(&b, r, []Device{{"cpu", 1}, {"cuda:0", 2}}, []string{"vector.add"}))
	for _, text := range []string{"ours: 4 tasks in 2.5 ms", "cpu expected", "cuda:0 actual", "vector.add", "time (ms)"} {
		if !strings.Contains(b.String(), ">"+text+"<") {
			t.Errorf("the picture has no %q", text)
		}
	}
	if n := strings.Count(b.String(), `fill="#0B4F96"`); n != 9 {
		t.Errorf("%d bars of the kind, expected two for each of 4 tasks, and the legend's", n)
	}
}

package dispatch

import (
	"math"
	"testing"
)

// What jobs take beside those of other devices is found from runs in which all devices work, and a simulation with it ends when such runs did. The bound by these times is a bound of the runs.
func TestAtWork(t *testing.T) {
	m := drawn(400, 0, 3)
	m.Devices = DevicesOf([]string{"cpu", "cuda:0"}, 2)
	usual := m.Truth
	slow := scaled{usual, [][]float64{{1.5, 2, 1.2, 1.7}, {1.1, 1, 1.3, 1.2}}}
	there := *m
	there.Truth = slow
	var runs []Result
	some := Policy{Believes: True{usual}, Fixed: func(j *Job) int { return min(1, j.ID%5) }}
	for _, policy := range []Policy{DMDA("", True{usual}), some, Always("", 1, True{usual})} {
		runs = append(runs, there.Run(policy))
	}
	last := runs[2]
	if _, ok := AtWork(m.Devices, m.Classes, usual, []Result{last}); ok {
		t.Error("a run of the GPU alone tells what jobs take beside those of the CPU")
	}
	found, ok := AtWork(m.Devices, m.Classes, usual, runs)
	if !ok {
		t.Fatal("no run tells")
	}
	for i := range m.Jobs {
		for d := range m.Devices {
			got, want := found.Times(d, &m.Jobs[i]), slow.Times(d, &m.Jobs[i])
			if math.Abs(got.Total()/want.Total()-1) > 1e-6 || math.Abs(got.In-want.In) > 1e-6*want.Total() {
				t.Fatalf("job %d takes %+v on device %d; expected %+v", i, got, d, want)
			}
		}
	}
	if bound, idle := LowerBound(m.Devices, m.Jobs, found), LowerBound(m.Devices, m.Jobs, usual); !(bound > 1.1*idle && bound <= runs[0].Makespan) {
		t.Errorf("the bound is %.0f us, that of idle times %.0f; a run took %.0f", bound, idle, runs[0].Makespan)
	}
}

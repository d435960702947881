package dispatch

import (
	"slices"
	"testing"

	"gpt2scope/predict"
	"gpt2scope/tasks"
	"gpt2scope/tasks/samples"
)

// stored returns a stream of the stored samples of a machine with a GPU.
func stored(t *testing.T, jobs int, seed uint64) *Prepared {
	t.Helper()
	all, err := samples.Read()
	if err != nil {
		t.Fatal(err)
	}
	all = slices.DeleteFunc(all, func(s tasks.Sample) bool { return s.Machine != "h200" })
	if !slices.ContainsFunc(all, func(s tasks.Sample) bool { return predict.Kind(s.Device) == "cuda" }) {
		t.Skip("the stored samples are of no GPU")
	}
	rows, _ := tasks.Rows(all)
	p, err := Setup{Rows: rows, Memory: predict.Pinned, HeldOut: Sizes, Jobs: jobs, Seed: seed}.Prepare()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// On the stored samples of a machine with a GPU the scheduler keeps to its bounds: geometric mean over the oracle, of sizes
// that the model has not seen, and the makespan against that of dmda on floors.
func TestStoredSamples(t *testing.T) {
	p := stored(t, 400, 1)
	bound := LowerBound(p.Devices, p.Jobs, p.Truth)
	g, r, floors := p.Alone(p.Ours()), p.Run(p.Ours()), p.Run(DMDA("", p.Floors()))
	every(t, p.Simulation, r)
	t.Logf("geometric mean %.4f, p99 %.2f, worst %.2f; makespan %.3f of the bound, %.3f of that of dmda on floors", g.GeoMean, g.P99, g.Worst, r.Makespan/bound, r.Makespan/floors.Makespan)
	if g.GeoMean > 1.05 {
		t.Errorf("geometric mean over the oracle %.4f, expected 1.05 at most", g.GeoMean)
	}
	if r.Makespan > 1.25*bound {
		t.Errorf("makespan %.3f of the bound, expected 1.25 at most", r.Makespan/bound)
	}
	if r.Makespan > 0.9*floors.Makespan {
		t.Errorf("makespan %.3f of that of dmda on floors, expected 0.9 at most", r.Makespan/floors.Makespan)
	}
}

// Work of more bytes than may be is left out wherever its data were, and none else is.
func TestWithin(t *testing.T) {
	all, err := samples.Read()
	if err != nil {
		t.Fatal(err)
	}
	rows, _ := tasks.Rows(all)
	before := len(rows)
	const most = 1 << 20
	rows = Within(rows, tasks.All()[:1], 1e6, most)
	devices := map[string]int{}
	for _, r := range rows {
		shape, err := tasks.ParseShape(r.Shape)
		if err != nil || r.Task != "vector.add" || 12*shape.Get("n") > most {
			t.Fatalf("%+v", r)
		}
		devices[r.Device]++
	}
	if len(rows) == before || devices["cpu"] == 0 {
		t.Errorf("%d of %d rows, %v", len(rows), before, devices)
	}
	if n := len(Within(slices.Clone(rows), tasks.All()[:1], 0.01, most)); n >= len(rows) {
		t.Errorf("%d of %d rows are of tasks that take the CPU 10 ns at most", n, len(rows))
	}
}

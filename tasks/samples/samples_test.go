package samples

import (
	"bytes"
	"flag"
	"os"
	"testing"

	"gpt2scope/predict"
	"gpt2scope/tasks"
)

var update = flag.Bool("update", false, "write model.json")

// The model that ships is the one that the samples give.
func TestModel(t *testing.T) {
	all, err := Read()
	if err != nil {
		t.Fatal(err)
	}
	rows, left := tasks.Rows(all)
	if len(rows) < 1000 || left.NoFloor > 0 {
		t.Errorf("%d rows, left out: %+v", len(rows), left)
	}
	fitted, err := predict.Fit(rows)
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		var b bytes.Buffer
		if err := fitted.Write(&b); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile("model.json", b.Bytes(), 0o666); err != nil {
			t.Fatal(err)
		}
		model = b.Bytes()
	}
	m, err := Model()
	if err != nil {
		t.Fatal(err)
	}
	if m.SHA256 != fitted.SHA256 || m.Rows != fitted.Rows {
		t.Fatalf("model.json is of other samples; write it with go test ./tasks/samples -update")
	}
	for i := range rows {
		r := &rows[i]
		d, known := m.Device(r.Machine, r.Key, r.Device)
		e, _ := fitted.Device(r.Machine, r.Key, r.Device)
		a, b := m.Predict(d, &r.Work), fitted.Predict(e, &r.Work)
		if ratio := a.Us / b.Us; !known || !a.InDomain || ratio < 0.99 || ratio > 1.01 {
			t.Fatalf("%s %s on %s: model.json predicts %+v, a fit %+v; write it with go test ./tasks/samples -update", r.Task, r.Shape, r.Device, a, b)
		}
	}
}

// decisions returns a function that chooses between two devices of a machine for one of a thousand stored measurements after another, by the
// shipped model. A scheduler has just made the work that it decides on, so that the caches hold it; they do not hold all stored measurements.
func decisions(tb testing.TB) func() {
	all, err := Read()
	if err != nil {
		tb.Fatal(err)
	}
	m, err := Model()
	if err != nil {
		tb.Fatal(err)
	}
	rows, _ := tasks.Rows(all)
	cpu, _ := m.Device("h200", "", "cpu")
	gpu, known := m.Device("h200", "", "cuda:0")
	if !known {
		tb.Fatal("the model knows no GPU")
	}
	const some = 1000
	works := make([]predict.Work, some)
	for i := range works {
		works[i] = rows[i*(len(rows)/some)].Work
	}
	next, gpus := 0, 0
	return func() {
		w := &works[next%some]
		if next++; m.Predict(gpu, w).Us < m.Predict(cpu, w).Us {
			gpus++
		}
	}
}

// A choice by the shipped model allocates nothing.
func TestDecisionAllocatesNothing(t *testing.T) {
	if n := testing.AllocsPerRun(1000, decisions(t)); n != 0 {
		t.Errorf("a choice allocates %v times", n)
	}
}

func BenchmarkDecision(b *testing.B) {
	decide := decisions(b)
	b.ReportAllocs()
	for b.Loop() {
		decide()
	}
}

package main

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"gpt2scope/ceilings"
	"gpt2scope/cmd/infer/bench"
	"gpt2scope/cpu"
	"gpt2scope/gpt2"
	"gpt2scope/measure"
)

// TestBenchRows measures rows on the CPU as --rows does on a GPU, and prints them.
func TestBenchRows(t *testing.T) {
	backend, err := cpu.New(cpu.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer backend.Close()
	device := &bench.BenchDevice{Set: ceilings.Set{Values: []ceilings.Value{{Name: "copy", Unit: "GB/s", Value: 1}, {Name: "f32", Unit: "TFLOP/s", Value: 1}, {Name: "barrier", Unit: "us", Value: 1}}}}
	sessions := measure.NewSessions(backend)
	defer sessions.Close()
	var results []bench.BenchResult
	for batch := 1; batch <= 2; batch++ {
		row := measure.Row{Name: "step", Model: tiny, Pass: gpt2.Pass{Batch: batch, Tokens: 1, Logits: gpt2.LogitsLast, Sample: true}, Past: 9}
		r, err := bench.MeasureRow(context.Background(), sessions, row, backend.Sizes(), device, 5)
		if err != nil {
			t.Fatal(err)
		}
		if !(r.Median > 0 && r.P10 <= r.Median && r.Median <= r.P90 && r.Floor > 0 && r.WithBarriers > r.Floor && r.GBS > 0) || r.Passes != 5 || r.Batch != batch {
			t.Errorf("%+v", r)
		}
		if want := r.Floor / r.Median; r.Share < 0.99*want || r.Share > 1.01*want {
			t.Errorf("the floor is %g of the time, not %g", want, r.Share)
		}
		results = append(results, r)
	}
	checkFailure(t, infer(t, "bench", "--rows", "--device", "cpu"), exitFailure, "--rows measures a GPU", "--device cuda")
	var table bytes.Buffer
	bench.PrintRows(&table, append(results, bench.BenchResult{Work: "start", Median: 512.25, P10: 500, P90: 600}, bench.BenchResult{Work: "broken", Error: "out of memory"}))
	lines := strings.Split(strings.TrimSpace(table.String()), "\n")
	if len(lines) != 5 || !strings.Contains(lines[3], "512.2") || !strings.Contains(lines[4], "failed") {
		t.Errorf("the table is\n%s", table.String())
	}
}

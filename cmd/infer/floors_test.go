package main

import (
	"context"
	"encoding/csv"
	"math"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"gpt2scope/ceilings"
	"gpt2scope/cpu"
	"gpt2scope/gpt2"
	"gpt2scope/traces/tables"
	"gpt2scope/weights"
)

// A step has one floor: the table of a recording, the stages and the
// pass of a benchmark, and an experiment over layers give the same for the same set of
// ceilings. The set has caches of several sizes and types of several rates, so that a
// definition that leaves one out differs.
func TestFloorsAgree(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	backend, err := cpu.New(cpu.Options{Threads: 1, DType: weights.BF16})
	must(t, err)
	defer backend.Close()
	key, err := backend.CeilingsKey()
	must(t, err)
	set := ceilings.Set{Key: key, Device: "made up", Time: time.Now(), Values: []ceilings.Value{
		{Name: "read", Unit: ceilings.GBs, Value: 160, Size: 1 << 10},
		{Name: "read", Unit: ceilings.GBs, Value: 80, Size: 1 << 20},
		{Name: "read", Unit: ceilings.GBs, Value: 20},
		{Name: ceilings.F32, Unit: ceilings.TFLOPs, Value: 4e-2},
		{Name: ceilings.BF16, Unit: ceilings.TFLOPs, Value: 0.1},
	}}
	must(t, ceilings.Store(context.Background(), set))
	const past = 3
	model := []string{"-m", tiny, "--dtype", "bf16", "--device", "cpu", "--threads", "1"}
	m, err := gpt2.Random(tiny)
	must(t, err)
	defer m.Close()
	phase := gpt2.Pass{Batch: 1, Tokens: 1, Logits: gpt2.LogitsLast, Sample: true}
	plan := backend.Fuse(gpt2.Forward(m.Config, gpt2.FirstLayers(2), phase))
	work := plan.Work(past, backend.Sizes(m))
	floors, ok := set.Floors(work)
	if !ok {
		t.Fatal("a ceiling is missing")
	}
	want, sum := map[string]float64{}, 0.0 // ns
	for i, s := range plan.Steps {
		want[s.Name()] = floors[i].Time
		sum += floors[i].Time
	}
	same := func(where, step string, ns, within float64) {
		t.Helper()
		floor, ok := want[step]
		if step == "" {
			floor, ok = sum, true
		}
		if !ok || math.Abs(ns-floor) > within {
			t.Errorf("%s: %q has a floor of %g ns, want %g", where, step, ns, floor)
		}
	}

	// One decode step, recorded, with the stored set. Files have whole ns.
	file := filepath.Join(t.TempDir(), "run.json")
	mustInfer(t, append(model, "--ids", "1,2,3", "-n", "2", "--ignore-eos", "--trace", file, "--no-baseline", "--quiet")...)
	rows, err := csv.NewReader(strings.NewReader(mustInfer(t, "trace", "show", file, "--by", "stage", "--format", "csv").stdout)).ReadAll()
	must(t, err)
	column := map[string]int{}
	for i, name := range rows[0] {
		column[name] = i
	}
	shown := 0
	for _, row := range rows[1:] {
		ns, err := strconv.ParseInt(row[column["floor_ns"]], 10, 64)
		if err != nil {
			continue // idle time
		}
		if row[column["phase"]] == "decode step" {
			shown++
			same("trace show", row[column["name"]], float64(ns), 0.5)
		}
	}
	if shown != len(plan.Steps) {
		t.Errorf("trace show has %d steps of %d:\n%q", shown, len(plan.Steps), rows)
	}

	same("bench, pass", "", float64(set.PassFloor(work)), 1)

	// An experiment over layers gives the share of a time.
	dir := filepath.Join(t.TempDir(), "layers")
	mustInfer(t, append(append([]string{"layers"}, model...), "--range", "2", "--phase", "decode", "--past", strconv.Itoa(past), "--repeat", "1", "--passes", "1",
		"--window", "16", "--energy-seconds", "0", "--warm-up", "0", "--quiet", "--no-plots", "-o", dir)...)
	metrics := resultOf(t, dir).Variants[0].Metrics
	same("layers", "", metrics["decode share of floor"].Median/100*metrics["decode time"].Median*1e6, 1)

	// A benchmark measures its own set.
	var bench struct {
		Floor   float64      `json:"floor_ms"`
		Device  ceilings.Set `json:"device"`
		Profile tables.Table `json:"profile"`
	}
	unmarshal(t, mustInfer(t, append(append([]string{"bench"}, model...), "--past", strconv.Itoa(past), "--repeat", "2", "--json")...).stdout, &bench)
	stages := 0.0 // of two passes, in whole ns a step
	for _, r := range bench.Profile.Rows {
		stages += float64(r.Floor)
	}
	measured := float64(bench.Device.PassFloor(work))
	if measured == 0 || math.Abs(1e6*bench.Floor-measured) > 1 || math.Abs(stages/2-measured) > float64(len(plan.Steps)) {
		t.Errorf("bench: the pass has a floor of %g ns, its stages of %g; by the ceilings that it prints %g", 1e6*bench.Floor, stages/2, measured)
	}
}

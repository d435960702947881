package main

import (
	"bytes"
	"math"
	"os"
	"strings"
	"testing"

	"gpt2scope/ceilings"
	benchcmd "gpt2scope/cmd/infer/bench"
)

func benchCeilings(t *testing.T, args ...string) (c benchcmd.CeilingsObject, stderr string) {
	t.Helper()
	e := mustInfer(t, append([]string{"bench", "ceilings", "--json", "--quiet=false"}, args...)...)
	decode(t, e.stdout, &c)
	return c, e.stderr
}

// A GPU is measured once, then found; a damaged file is told of and replaced.
func TestBenchCeilings(t *testing.T) {
	withStub(t)
	path, err := ceilings.CachePath()
	if err != nil || !strings.HasPrefix(path, os.Getenv("XDG_CACHE_HOME")) {
		t.Fatal(path, err)
	}
	writeFile(t, path, `{"version": 1, "sets": [`)
	first, stderr := benchCeilings(t, "--device", "cuda")
	contains(t, stderr, path, "is damaged", "ceilings are measured again")
	if strings.Count(stderr, "\n") != 1 {
		t.Errorf("stderr %q", stderr)
	}
	if first.Stored || !strings.HasPrefix(first.Set.Key, "Stub 0, compute capability 9.0, CUDA 13000") || len(first.Set.Values) != 8 {
		t.Errorf("%+v", first)
	}
	if again, stderr := benchCeilings(t, "--device", "cuda"); stderr != "" || !again.Stored || again.Set.Key != first.Set.Key || !again.Set.Time.Equal(first.Set.Time) {
		t.Errorf("%+v", again)
	}
	table := mustInfer(t, "bench", "ceilings", "--device", "cuda").stdout
	contains(t, strings.Join(strings.Fields(table), " "), "hop 96 B 0.000 us 3: 0.000 - 0.000 every SM reads 12 bytes x 2 of every other, in one kernel",
		"hop 192 B 0.000 us 3: 0.000 - 0.000 every SM reads 12 bytes x 4 of every other, in one kernel")
	contains(t, strings.Join(strings.Fields(table), " "), "read, L2 cache up to 50.0 MiB")
	contains(t, table, "--measure measures again", "read, memory", "copy, memory", "TFLOP/s", "an empty kernel after another", "hop")
}

// The CPU from the file, which needs no measurement, and beside a pass.
func TestBenchCeilingsOfCPU(t *testing.T) {
	var floor struct {
		Median float64      `json:"median_ms"`
		Floor  float64      `json:"floor_ms"`
		Share  float64      `json:"share_of_floor"`
		Roof   float64      `json:"roofline_percent"`
		Device ceilings.Set `json:"device"`
	}
	unmarshal(t, mustInfer(t, "bench", "-m", tiny, "--device", "cpu", "--threads", "1", "--repeat", "3", "--json").stdout, &floor)
	if !(floor.Floor > 0 && floor.Floor < floor.Median && floor.Share < 1 && math.Abs(floor.Roof-100*floor.Share) < 1e-9) || len(floor.Device.Values) == 0 || !strings.Contains(floor.Device.Key, "1 thread") {
		t.Errorf("%+v", floor)
	}
	contains(t, mustInfer(t, "bench", "-m", tiny, "--device", "cpu", "--threads", "1", "--repeat", "3").stdout, "% of the roofline\n", "1 thread, kernels ", "the pass is over data of ")
	if e := infer(t, "bench", "-m", tiny, "--device", "reference", "--repeat", "1"); e.status != exitOK || strings.Contains(e.stdout, "floor") {
		t.Errorf("%+v", e)
	}
	var table bytes.Buffer
	benchcmd.WriteCeilings(&table, ceilings.Set{Key: "a CPU", Uncertainty: 0.3, Disturbed: "somebody else ran", Values: []ceilings.Value{{Name: "read", Unit: "GB/s", Value: 123.4, Where: "L2 cache", Size: 1 << 20, How: "so", Rounds: []float64{99.5, 123.4, 17.5}}}}, false)
	if want := "a CPU\nthe ceilings may be too low by 30%: somebody else ran\n\nwhat            data           value  unit  rounds         by\nread, L2 cache  up to 1.0 MiB  123    GB/s  3: 17.5 - 123  so\n"; table.String() != want {
		t.Errorf("%q\nwant\n%q", table.String(), want)
	}
	if s := benchcmd.RooflineSays(3, 4); s != "75% of the roofline" {
		t.Error(s)
	}
	contains(t, benchcmd.RooflineSays(5, 4), "faster than its floor", "bench ceilings --measure")
	contains(t, benchcmd.RooflineSays(0, 4), "not known")
	checkFailure(t, infer(t, "bench", "ceilings", "--device", "reference"), exitFailure, "reference", "--device cpu")
	checkFailure(t, infer(t, "bench", "ceilings", "surplus"), exitUsage, "surplus")
}

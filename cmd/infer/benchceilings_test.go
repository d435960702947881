package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gpt2scope/ceilings"
)

// ceilingsJSON is what "infer bench ceilings --json" prints.
type ceilingsJSON struct {
	Stored bool         `json:"stored"`
	Set    ceilings.Set `json:"set"`
}

func benchCeilings(t *testing.T, args ...string) (c ceilingsJSON, stderr string) {
	t.Helper()
	e := mustInfer(t, append([]string{"bench", "ceilings", "--json", "--quiet=false"}, args...)...)
	d := json.NewDecoder(strings.NewReader(e.stdout))
	d.DisallowUnknownFields()
	if err := d.Decode(&c); err != nil {
		t.Fatal(err)
	}
	return c, e.stderr
}

// A GPU is measured once, then found; a damaged file is told of and replaced.
func TestBenchCeilings(t *testing.T) {
	withStub(t)
	first, _ := benchCeilings(t, "--device", "cuda")
	if first.Stored || !strings.HasPrefix(first.Set.Key, "Stub 0, compute capability 9.0, CUDA 13000") || len(first.Set.Values) != 7 {
		t.Errorf("%+v", first)
	}
	if again, _ := benchCeilings(t, "--device", "cuda"); !again.Stored || again.Set.Key != first.Set.Key || !again.Set.Time.Equal(first.Set.Time) {
		t.Errorf("%+v", again)
	}
	table := mustInfer(t, "bench", "ceilings", "--device", "cuda").stdout
	contains(t, table, "--measure measures again", "read, L2 cache  up to 50.0 MiB", "read, memory", "copy, memory", "TFLOP/s", "an empty kernel after another", "barrier")
	path, err := ceilings.CachePath()
	if err != nil || !strings.HasPrefix(path, os.Getenv("XDG_CACHE_HOME")) {
		t.Fatal(path, err)
	}
	if err := os.WriteFile(path, []byte(`{"version": 1, "sets": [`), 0o666); err != nil {
		t.Fatal(err)
	}
	damaged, stderr := benchCeilings(t, "--device", "cuda")
	if damaged.Stored || strings.Count(strings.TrimSpace(stderr), "\n") != 0 {
		t.Errorf("%+v, stderr %q", damaged, stderr)
	}
	contains(t, stderr, path, "is damaged", "ceilings are measured again")
	if again, stderr := benchCeilings(t, "--device", "cuda"); !again.Stored || stderr != "" {
		t.Errorf("%+v, stderr %q", again, stderr)
	}
	if forced, _ := benchCeilings(t, "--device", "cuda", "--measure"); forced.Stored {
		t.Error("--measure did not measure")
	}
}

// A file that cannot be replaced is told of; the values are there all the same.
func TestBenchCeilingsUnstored(t *testing.T) {
	withStub(t)
	path, err := ceilings.CachePath()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(path, "folder"), 0o777); err != nil {
		t.Fatal(err)
	}
	c, stderr := benchCeilings(t, "--device", "cuda")
	if c.Stored || len(c.Set.Values) == 0 {
		t.Errorf("%+v", c)
	}
	contains(t, stderr, "the stored ceilings cannot be read", path)
	if strings.Count(stderr, "\n") != 2 { // read, then written
		t.Errorf("stderr %q", stderr)
	}
}

// The CPU from the file, which needs no measurement, and beside a pass.
func TestBenchCeilingsOfCPU(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	var floor struct {
		Median float64 `json:"median_ms"`
		Floor  float64 `json:"floor_ms"`
		Share  float64 `json:"share_of_floor"`
		Device struct {
			Name     string           `json:"name"`
			Ceilings []ceilings.Value `json:"ceilings"`
		} `json:"device"`
	}
	if err := json.Unmarshal([]byte(mustInfer(t, "bench", "-m", tiny, "--device", "cpu", "--threads", "1", "--repeat", "3", "--json").stdout), &floor); err != nil {
		t.Fatal(err)
	}
	if !(floor.Floor > 0 && floor.Floor < floor.Median && floor.Share < 1) || len(floor.Device.Ceilings) == 0 || !strings.Contains(floor.Device.Name, "1 thread") {
		t.Errorf("%+v", floor)
	}
	contains(t, mustInfer(t, "bench", "-m", tiny, "--device", "cpu", "--threads", "1", "--repeat", "3").stdout, "% of floor\n", "1 thread, kernels ", "ceilings: read from ", "the pass is over data of ")
	if e := infer(t, "bench", "-m", tiny, "--device", "reference", "--repeat", "1"); e.status != exitOK || strings.Contains(e.stdout, "floor") {
		t.Errorf("%+v", e)
	}
	var table bytes.Buffer
	writeCeilings(&table, ceilings.Set{Key: "a CPU", Disturbed: "somebody else ran", Values: []ceilings.Value{{Name: "read", Unit: "GB/s", Value: 123.4, P10: 1.5, P90: 22.22, Where: "L2 cache", Size: 1 << 20, How: "so"}}}, false)
	if want := "a CPU\nthese may be too low: somebody else ran\n\nwhat            data           value  unit  p10 - p90     by\nread, L2 cache  up to 1.0 MiB  123    GB/s  1.500 - 22.2  so\n"; table.String() != want {
		t.Errorf("%q\nwant\n%q", table.String(), want)
	}
	checkFailure(t, infer(t, "bench", "ceilings", "--device", "reference"), exitFailure, "reference", "--device cpu")
	checkFailure(t, infer(t, "bench", "ceilings", "surplus"), exitUsage, "surplus")
}

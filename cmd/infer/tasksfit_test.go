package main

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gpt2scope/internal/require"
	"gpt2scope/predict"
	"gpt2scope/tasks"
)

// someSamples writes samples of two CPUs and a GPU that follow a law, and returns their file.
func someSamples(t *testing.T) string {
	t.Helper()
	random := rand.New(rand.NewPCG(1, 2))
	var all []tasks.Sample
	for _, task := range []string{"vector.add", "reduce.sum"} {
		for k := range 8 {
			n := math.Exp2(12 + 2*float64(k))
			for _, d := range []struct {
				machine, device string
				memory          predict.Memory
				floor, us       float64
			}{
				{"large", "cpu", predict.Host, 12 * n / 1e5, 1 + 1.3*12*n/1e5}, {"small", "cpu", predict.Host, 12 * n / 2e4, 1 + 1.3*12*n/2e4},
				{"large", "cuda:0", predict.Pinned, 12 * n / 4e6, 20 + 1.2*12*n/4e6 + 12*n/5e4}, {"large", "cuda:0", predict.Resident, 12 * n / 4e6, 10 + 1.2*12*n/4e6},
			} {
				s := tasks.Sample{Variant: tasks.Tuned, Row: predict.Row{Machine: d.machine, Processor: d.device + " of " + d.machine, Device: d.device, Shape: fmt.Sprintf("n=%.0f", n),
					Work: predict.Work{Task: task, DType: "float32", FLOPs: n, Bytes: 12 * n, Steps: 1, FloorUs: d.floor, Memory: d.memory}}}
				if d.memory == predict.Pinned {
					s.BytesIn, s.BytesOut = 8*n, map[string]float64{"vector.add": 4 * n, "reduce.sum": 4}[task]
				}
				for repeat := range 2 {
					s.Repeat, s.Us = repeat+1, d.us*math.Exp(0.02*random.NormFloat64())
					all = append(all, s)
				}
			}
		}
	}
	all = append(all, all[0], all[0], all[0])
	last := all[len(all)-3:]
	last[0].Variant, last[1].Disturbed, last[2].FloorUs = "scalar", true, 0
	path := filepath.Join(t.TempDir(), tasks.SamplesFile)
	f := require.Value(os.Create(path))(t)
	defer f.Close()
	must(t, tasks.WriteSamples(f, all))
	return path
}

// fit reads a file, a directory and a compressed file alike, writes a model that reads back, and says what it left out.
func TestTasksFit(t *testing.T) {
	samples := someSamples(t)
	dir := filepath.Dir(samples)
	file := filepath.Join(dir, "model.json")
	e := mustInfer(t, "tasks", "fit", dir, "-o", file)
	contains(t, e.stdout, "fitted to 128 measurements of 64 shapes", "vector.add", "other tasks", "cpu", "cuda")
	if slopes := regexp.MustCompile(`cuda +reduce\.sum .* -  +\d+\.\d+, - `); !slopes.MatchString(e.stdout) {
		t.Errorf("results of 4 bytes have a slope, or inputs none:\n%s", e.stdout)
	}
	contains(t, e.stderr, "left out: 1 that other programs may have slowed", "; 1 without a floor", "infer: the model is in "+file+";")
	f := require.Value(os.Open(file))(t)
	defer f.Close()
	m := require.Value(predict.Read(f))(t)
	gpu, known := m.Device(&predict.Row{Processor: "cuda:0 of large", Device: "cuda:0"})
	w := predict.Work{Task: "vector.add", DType: "float32", FLOPs: 1e6, Bytes: 12e6, BytesIn: 8e6, BytesOut: 4e6, Steps: 1, FloorUs: 3, Memory: predict.Pinned}
	if p := m.Predict(gpu, &w); !known || !p.InDomain || math.Abs(p.Us/(20+3.6+240)-1) > 0.15 {
		t.Errorf("%v: %+v", known, p)
	}
	plain := readFile(t, samples)
	packed := filepath.Join(dir, "samples.csv.gz")
	g := require.Value(os.Create(packed))(t)
	z := gzip.NewWriter(g)
	z.Write(plain)
	z.Close()
	g.Close()
	if again := mustInfer(t, "tasks", "fit", packed); again.stdout != e.stdout {
		t.Errorf("compressed:\n%s\nplain:\n%s", again.stdout, e.stdout)
	}
	var printed predict.Model
	text := mustInfer(t, "tasks", "fit", samples, "--json").stdout
	if err := json.Unmarshal([]byte(text), &printed); err != nil || !slices.Equal(printed.Laws, m.Laws) {
		t.Errorf("--json: %v, laws %+v, expected %+v", err, printed.Laws, m.Laws)
	}
}

// check has a row for each split and way.
func TestTasksCheck(t *testing.T) {
	out := mustInfer(t, "tasks", "check", someSamples(t)).stdout
	contains(t, out, "held out", "sizes", "task", "CPU", "floor", "threshold", "tree", "model", "over oracle", "CPU: each model")
	if strings.Contains(out, "NaN") || strings.Contains(out, "Inf") {
		t.Errorf("a figure is none:\n%s", out)
	}
}

// What cannot be fitted is refused with the file's name and what is wrong.
func TestTasksFitBadInput(t *testing.T) {
	dir := t.TempDir()
	good := readFile(t, someSamples(t))
	for name, c := range map[string]struct{ text, says string }{
		"empty.csv": {"", "is empty"}, "cut.csv": {string(good[:len(good)-20]), "line "}, "bad.gz": {"\x1f\x8bx", "gzip"},
	} {
		path := filepath.Join(dir, name)
		writeFile(t, path, c.text)
		for _, command := range []string{"fit", "check"} {
			checkFailure(t, infer(t, "tasks", command, path), exitFailure, c.says)
		}
	}
	samples := someSamples(t)
	if e := infer(t, "tasks", "fit", samples, "-o", samples); e.status == exitOK {
		t.Error("the samples were overwritten")
	}
	if e := infer(t, "tasks", "fit", filepath.Join(dir, "missing")); e.status != exitFailure || strings.Count(e.stderr, "missing") != 1 {
		t.Errorf("a file that is not there: %s", e.stderr)
	}
}

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gpt2scope/predict"
	"gpt2scope/tasks"
)

// taskSamples writes samples of a machine with a GPU that is worth its copies from some size on.
func taskSamples(t *testing.T) string {
	t.Helper()
	var all []tasks.Sample
	for k := 12; k <= 24; k++ {
		n := math.Exp2(float64(k))
		for _, task := range []struct {
			name  string
			flops float64
		}{{"vector.add", n}, {"matmul", 400 * n}} {
			for repeat := 1; repeat <= 3; repeat++ {
				jitter := 1 + 0.02*float64(repeat)
				s := tasks.Sample{Variant: tasks.Tuned, Repeat: repeat, Time: time.Unix(0, 0).UTC(), Row: predict.Row{Machine: "box", Shape: fmt.Sprintf("n=%.0f", n),
					Work: predict.Work{Task: task.name, DType: "float32", FLOPs: task.flops, Bytes: 12 * n, Steps: 1}}}
				host, gpu := s, s
				host.Device, host.Memory, host.FloorUs = "cpu", predict.Host, max(12*n/60e3, task.flops/1e6)
				host.Us = jitter * (3 + 1.2*host.FloorUs)
				gpu.Device, gpu.Memory, gpu.FloorUs = "cuda:0", predict.Pinned, max(12*n/3e6, task.flops/40e6)
				gpu.BytesIn, gpu.BytesOut = 8*n, 4*n
				gpu.H2DUs, gpu.D2HUs, gpu.KernelUs = jitter*(8+8*n/25e3), jitter*(8+4*n/25e3), jitter*(5+1.3*gpu.FloorUs)
				gpu.Us = gpu.H2DUs + gpu.D2HUs + gpu.KernelUs + 4
				all = append(all, host, gpu)
			}
		}
	}
	path := filepath.Join(t.TempDir(), "samples.csv")
	var b bytes.Buffer
	must(t, tasks.WriteSamples(&b, all))
	writeFile(t, path, b.String())
	return path
}

// A stored set of samples is enough to compare policies: no GPU takes part.
func TestTasksSimulate(t *testing.T) {
	path := taskSamples(t)
	picture := filepath.Join(t.TempDir(), "gantt.svg")
	out := mustInfer(t, "tasks", "simulate", path, "--count", "200", "--gantt", picture).stdout
	contains(t, out, "200 tasks of 2 kinds", "on box", "over bound", "cuda:0 tasks",
		"oracle", "expected finish on floors", "best threshold", "ours")
	svg, err := os.ReadFile(picture)
	if err != nil || !strings.HasPrefix(string(svg), "<svg") || strings.Count(string(svg), "<path") < 2*200 {
		t.Errorf("the picture has %d paths, expected two bars for each of 200 tasks (%v)", strings.Count(string(svg), "<path"), err)
	}
	out = mustInfer(t, "tasks", "simulate", path, "--count", "200", "--json").stdout
	var report struct {
		Tasks    int
		Policies []struct {
			Policy    string
			OverBound float64 `json:"over_bound"`
		}
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil || report.Tasks != 200 {
		t.Fatalf("%d tasks, %v", report.Tasks, err)
	}
	over := map[string]float64{}
	for _, p := range report.Policies {
		if over[p.Policy] = p.OverBound; p.OverBound < 1 {
			t.Errorf("%s is %.3f of a bound that none can beat", p.Policy, p.OverBound)
		}
	}
	if over["ours"] > 1.25 || over["ours"] > over["always cpu"] || over["ours"] > over["always cuda:0"] {
		t.Errorf("makespans over the bound: %v", over)
	}
}

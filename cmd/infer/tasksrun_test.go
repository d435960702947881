package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gpt2scope/cmd/infer/cli"
	"gpt2scope/internal/stub"
	"gpt2scope/schedule"
)

// A stream runs on the CPU and on a GPU that the stub computes for, each task once under each policy.
func TestTasksRun(t *testing.T) {
	withStub(t, "STUB_COMPUTES")
	stub.NVRTC(t)
	t.Setenv("CUDA_VISIBLE_DEVICES", "0")
	storeStub(t)
	picture := filepath.Join(t.TempDir(), "gantt.svg")
	e := mustInfer(t, "tasks", "run", "--device", "all", "--threads", "1", "--tasks", "vector.add,reduce", "--max-size", "1", "--count", "20", "--rounds", "1",
		"--gantt", picture, "--json")
	var report schedule.Report
	unmarshal(t, e.stdout, &report)
	if report.Tasks != 20 || len(report.Policies) != 6 || !(report.BoundUs > 0) || strings.Join(report.Devices, " ") != "cpu cuda:0" {
		t.Errorf("%+v", report)
	}
	for _, r := range report.Policies {
		if r.Devices[0].Tasks+r.Devices[1].Tasks != 20 || !(r.MakespanUs > 0) || r.Lost != "" || r.Policy == "always cuda:0" && r.Devices[1].Tasks != 20 {
			t.Errorf("%+v", r)
		}
	}
	if svg, err := os.ReadFile(picture); err != nil || strings.Count(string(svg), "<path") < 2*20 {
		t.Errorf("the picture has %d paths, expected two bars for each of 20 tasks (%v)", strings.Count(string(svg), "<path"), err)
	}
}

// With a GPU that has memory for small tasks only, the CPU does the others, and the table says so.
func TestTasksRunOnGPUOfLittleMemory(t *testing.T) {
	withStub(t, "STUB_COMPUTES", "STUB_MEMORY=400000")
	stub.NVRTC(t)
	t.Setenv("CUDA_VISIBLE_DEVICES", "0")
	storeStub(t)
	args := []string{"tasks", "run", "../../tasks/samples/h200.csv.gz", "--device", "all", "--threads", "1", "--tasks", "vector.add,reduce", "--max-size", "1", "--count", "20", "--rounds", "1"}
	var report schedule.Report
	unmarshal(t, mustInfer(t, append(args, "--json")...).stdout, &report)
	r := report.Policies[2]
	if r.NoRoom == 0 || r.Devices[0].Tasks != r.NoRoom || r.Devices[1].Tasks != 20-r.NoRoom || r.Devices[1].Tasks == 0 || r.Lost != "" {
		t.Errorf("%+v", r)
	}
	contains(t, mustInfer(t, args...).stdout, fmt.Sprintf("always cuda:0: %s done on the CPU, since a GPU had too little memory", cli.Count(r.NoRoom, "task")))
}

// Both of two GPUs get work, from the same inputs in pinned memory.
func TestTasksRunOnTwoGPUs(t *testing.T) {
	withStub(t, "STUB_COMPUTES", "STUB_DEVICES=2")
	stub.NVRTC(t)
	t.Setenv("CUDA_VISIBLE_DEVICES", "0,1")
	storeLow(t) // the GPUs are faster than the CPU
	storeStub(t)
	var report schedule.Report
	e := mustInfer(t, "tasks", "run", "--device", "all", "--threads", "1", "--tasks", "vector.add", "--max-size", "1", "--count", "100", "--rounds", "1", "--json")
	unmarshal(t, e.stdout, &report)
	r := report.Policies[4]
	n := map[string]int{}
	for _, d := range r.Devices {
		n[d.Device] = d.Tasks
	}
	if r.Lost != "" || n["cuda:0"] == 0 || n["cuda:1"] == 0 {
		t.Errorf("lost: %q; tasks: %v", r.Lost, n)
	}
}

// Without a GPU a stream runs on the CPU.
func TestTasksRunOnCPU(t *testing.T) {
	args := []string{"tasks", "run", "--device", "cpu", "--threads", "1", "--tasks", "vector.add", "--max-size", "1", "--count", "10", "--rounds", "1"}
	out := mustInfer(t, args...).stdout
	contains(t, out, "10 tasks of 1 kind on ", "policy", "over bound", "always cpu", "ours", "simulated ms", "cpu tasks")
	for flags, fact := range map[string]string{
		"--rounds 0": "--rounds 0", "--count 0": "--count 0", "--longest nan": "--longest", "--tasks x": "--tasks",
	} {
		checkFailure(t, infer(t, append(args, strings.Fields(flags)...)...), exitUsage, fact)
	}
}

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"gpt2scope/dispatch"
)

// TestTasksRunOnTwoGPUs: both GPUs get work, from the same inputs in pinned memory.
func TestTasksRunOnTwoGPUs(t *testing.T) {
	withStub(t, "STUB_COMPUTES", "STUB_DEVICES=2")
	nvrtc := filepath.Join(t.TempDir(), "stub-nvrtc.so")
	if err := os.WriteFile(nvrtc, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv("GPT2SCOPE_NVRTC", nvrtc)
	t.Setenv("CUDA_VISIBLE_DEVICES", "0,1")
	var report dispatch.RunReport
	e := mustInfer(t, "tasks", "run", "--device", "all", "--threads", "1", "--tasks", "vector.add", "--max-size", "1", "--count", "100", "--rounds", "1", "--policy", "dmda on floors", "--json")
	if err := json.Unmarshal([]byte(e.stdout), &report); err != nil {
		t.Fatal(err)
	}
	r := report.Runs[0]
	n := map[string]int{}
	for _, d := range r.Devices {
		n[d.Device] = d.Tasks
	}
	if r.Lost != "" || n["cuda:0"] == 0 || n["cuda:1"] == 0 {
		t.Errorf("lost: %q; tasks: %v", r.Lost, n)
	}
}

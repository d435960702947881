package main

import (
	"bytes"
	"context"
	"encoding/csv"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gpt2scope/cmd/infer/cli"
	"gpt2scope/internal/require"
	"gpt2scope/internal/stub"
	"gpt2scope/tasks"
)

// smallModel is of a geometry that tasks run in no time.
const smallModel = "random:L=1,C=64,NH=1,V=257,T=16"

// quickTasks are arguments of a measurement that takes no time.
var quickTasks = []string{"tasks", "bench", "-m", smallModel, "--threads", "1", "--repeat", "2", "--max-size", "1", "--no-floor", "--quiet", "--machine", "here"}

// The suite runs on the CPU, and writes samples and the tables that notebooks read.
func TestTasksBench(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "out")
	out := mustInfer(t, append(quickTasks, "--device", "cpu", "-o", dir)...).stdout
	samples := require.Value(tasks.ReadFiles(dir))(t)
	contains(t, out, cli.Count(len(samples), "sample")+" are in "+dir)
	seen := map[string]int{}
	for _, s := range samples {
		seen[s.Task]++
		if s.Machine != "here" || s.Device != "cpu" || !(s.Us > 0) || s.MachineKey == "" {
			t.Errorf("%+v", s)
		}
	}
	for _, task := range tasks.All() {
		if seen[task.Name] == 0 {
			t.Errorf("no sample of %s: %v", task.Name, seen)
		}
	}
	for _, p := range tasks.Profiles {
		data := readFile(t, filepath.Join(dir, p.File))
		rows, err := csv.NewReader(bytes.NewReader(data)).ReadAll()
		if err != nil || !strings.HasPrefix(string(data), "size,cpu_time_ms,gpu_time_ms") || len(rows) < 4 || rows[1][1] == "" || rows[1][2] != "" {
			t.Errorf("%s: %v\n%s", p.File, err, data)
		}
	}
	// The same again finds all done.
	before, _ := os.ReadFile(filepath.Join(dir, tasks.SamplesFile))
	mustInfer(t, append(quickTasks, "--device", "cpu", "-o", dir)...)
	if after, _ := os.ReadFile(filepath.Join(dir, tasks.SamplesFile)); !bytes.Equal(before, after) {
		t.Error("a second run of the same command measured again")
	}
	checkFailure(t, infer(t, append(quickTasks, "--device", "cpu", "--seed", "2", "-o", dir)...), exitFailure, "is of another experiment", "seed")
}

// On the stub of a GPU all tasks run, and parts of the work put together are all of it.
func TestTasksBenchGPU(t *testing.T) {
	withStub(t, "STUB_COMPUTES")
	stub.NVRTC(t)
	dirs := map[string]string{}
	cases := map[string]bool{}
	for _, shard := range []string{"1/2", "2/2"} {
		dirs[shard] = filepath.Join(t.TempDir(), "out")
		mustInfer(t, append(quickTasks, "--device", "all", "--tasks", "reduce,gpt2.generate", "--shard", shard, "-o", dirs[shard])...)
		samples := require.Value(tasks.ReadFiles(dirs[shard]))(t)
		for _, s := range samples {
			key := strings.Join([]string{s.Task, s.Shape, s.DType, s.Device, s.Variant, string(s.Memory)}, " ")
			if s.Repeat == 1 && cases[key] {
				t.Errorf("%s is in both parts", key)
			}
			cases[key] = true
		}
	}
	for _, want := range []string{"reduce.sum n=1024 float32 cuda:0 tuned pageable", "reduce.sum n=2048 float32 cuda:0 tuned resident", "reduce.sum n=1024 float32 cpu tuned host"} {
		if !cases[want] {
			t.Errorf("no sample of %s", want)
		}
	}
	all := filepath.Join(t.TempDir(), "all")
	out := mustInfer(t, "tasks", "merge", dirs["1/2"], dirs["2/2"], "-o", all).stdout
	merged, err := tasks.ReadFiles(all)
	one, _ := tasks.ReadFiles(dirs["1/2"])
	two, _ := tasks.ReadFiles(dirs["2/2"])
	if err != nil || len(merged) != len(one)+len(two) || !strings.Contains(out, cli.Count(len(merged), "sample")) {
		t.Errorf("%d samples of %d and %d: %v\n%s", len(merged), len(one), len(two), err, out)
	}
	// A part that is given twice counts once.
	mustInfer(t, "tasks", "merge", dirs["1/2"], dirs["2/2"], dirs["1/2"], "-o", all, "--force")
	if again, _ := tasks.ReadFiles(all); len(again) != len(merged) {
		t.Errorf("%d samples of parts given twice; want %d", len(again), len(merged))
	}
}

func TestTasksBenchWrong(t *testing.T) {
	for args, fact := range map[string]string{
		"":                       "give the directory to write: --out DIR",
		"-o x --tasks sort":      "there is no task \"sort\"; tasks are vector.add",
		"-o x --repeat 0":        "--repeat 0: it must be a whole number from 1",
		"-o x --shard 3/2":       "--shard: \"3/2\" is not a part such as 2/8",
		"-o x --max-size 0":      "--max-size 0",
		"-o x --few -1":          "--few -1",
		"-o x --device cpu,gpu":  "--device gpu",
		"-o x --threads 1,2":     "--threads 1,2: give one value",
		"-o x --device auto,abc": "--device abc",
	} {
		checkFailure(t, infer(t, append(strings.Fields("tasks bench -m "+smallModel), strings.Fields(args)...)...), exitUsage, fact)
	}
	checkFailure(t, infer(t, "tasks", "merge", "-o", "x"), exitUsage, "give the directories or files to put together")
	checkFailure(t, infer(t, "tasks", "merge", "no/such/dir", "-o", filepath.Join(t.TempDir(), "x")), exitFailure, "no/such/dir")
}

// plot draws what was measured into the same directory.
func TestTasksPlot(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "out")
	mustInfer(t, append(quickTasks, "--device", "cpu", "--tasks", "reduce", "-o", dir)...)
	out := mustInfer(t, "tasks", "plot", dir).stdout
	contains(t, out, "2 pictures and "+filepath.Join(dir, "tasks.html"))
	page, _ := os.ReadFile(filepath.Join(dir, "tasks.html"))
	contains(t, string(page), "stored H200, kernel alone", "as it would be with that GPU", "CPU, a plain loop")
	if _, err := os.Stat(filepath.Join(dir, "reduce.sum-float32.svg")); err != nil {
		t.Error(err)
	}
	stored := filepath.Join(t.TempDir(), "h200")
	contains(t, mustInfer(t, "tasks", "plot", "-o", stored).stdout, " pictures and "+filepath.Join(stored, "tasks.html"))
	checkFailure(t, infer(t, "tasks", "plot", t.TempDir()), exitFailure, "samples.csv")
	checkFailure(t, infer(t, "tasks", "plot", "no/such"), exitFailure, "no/such")
	checkFailure(t, infer(t, "tasks", "plot", "-o", "/proc/none"), exitFailure, "--out /proc/none: the directory")
}

// Without a GPU few sizes are measured, beside stored times of a GPU; sizes can be named.
func TestTasksBenchShort(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "out")
	args := append(quickTasks[:2:2], quickTasks[4:]...)
	out := mustInfer(t, append(args, "--device", "cpu", "-o", dir)...).stdout
	inOrder(t, out, "vector.add ", " 65,536 ", "matmul ", "reduce.sum ", "cuda:H200 (stored)", "No GPU was measured")
	samples, err := tasks.ReadFiles(dir)
	for i := range samples {
		if samples[i].Device != tasks.CPU || samples[i].DType != tasks.Float32 {
			t.Fatalf("%+v", samples[i])
		}
	}
	out = mustInfer(t, append(args, "--device", "cpu", "--tasks", "matmul", "--size", "20,30", "-o", dir+"2")...).stdout
	inOrder(t, out, "matmul    20 ", "matmul    30 ", "no crossover")
	if named, err2 := tasks.ReadFiles(dir + "2"); err != nil || err2 != nil || len(named) != 2*2*3 {
		t.Errorf("%d samples of two sizes, %v, %v", len(named), err, err2)
	}
	checkFailure(t, infer(t, append(args, "--tasks", "gpt2", "--size", "20", "-o", dir+"3")...), exitUsage, "nothing is measured")
}

// Each step of a program is timed, on the CPU beside the stored steps of a GPU, or on a GPU.
func TestTasksSteps(t *testing.T) {
	inOrder(t, mustInfer(t, "tasks", "steps", "--size", "5000", "--device", "cpu").stdout, "vector.add of n=5000", "fill the inputs",
		"compute on the CPU", "free", "NVIDIA H200, pageable memory, n=4096", "copy to the GPU", "kernel", "copy back")
	withStub(t, "STUB_COMPUTES")
	stub.NVRTC(t)
	for _, task := range []string{"matmul", "vector.square"} {
		inOrder(t, mustInfer(t, "tasks", "steps", task, "--size", "64", "--device", "cuda").stdout, "allocate on the host", "fill", "allocate on the GPU",
			"copy to the GPU", "launch", "wait", "copy back", "free")
	}
	checkFailure(t, infer(t, "tasks", "steps", "gpt2"), exitUsage, "give one of vector.add")
}

// A directory that cannot be made is an error before ceilings are measured.
func TestTasksBenchDirectoryFirst(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // which measuring would say
	var stdout, stderr bytes.Buffer
	status := run(ctx, &cli.ModelFlags{}, []string{"tasks", "bench", "-o", "/proc/none", "--device", "cpu"}, strings.NewReader(""), &stdout, &stderr)
	if status != exitFailure || !strings.Contains(stderr.String(), "--out /proc/none: the directory cannot be made") {
		t.Errorf("status %d, %q", status, stderr.String())
	}
}

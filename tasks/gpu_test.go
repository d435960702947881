package tasks

import (
	"context"
	"slices"
	"testing"

	"gpt2scope/cuda"
	"gpt2scope/internal/require"
	"gpt2scope/internal/stub"
	"gpt2scope/predict"
)

var must = require.NoError

// stubGPU adds a GPU that the stub computes for.
func stubGPU(t *testing.T, m *Machine) *stub.Control {
	t.Helper()
	c := stub.Use(t)
	lib := require.Value(cuda.Open())(t)
	dev := require.Value(lib.Device(0))(t)
	g := require.Value(OpenGPU(dev, "cuda:0"))(t)
	g.About = Device{Key: "a GPU", Ceilings: m.CPU.Ceilings}
	m.GPUs = []*GPUDevice{g}
	t.Cleanup(func() {
		m.GPUs = nil
		if err := g.Close(); err != nil {
			t.Error(err)
		}
		if n := c.Live(); n != 0 {
			t.Errorf("%d objects live", n)
		}
	})
	return c
}

// Each way of each task over arrays gives results that agree with its reference on a GPU, from
// each kind of memory, with all the times that belong to it. The stub computes what the kernels
// do.
func TestTasksGPU(t *testing.T) {
	m := testMachine(t)
	stubGPU(t, m)
	if got := m.Devices(); !slices.Equal(got, []string{"cpu", "cuda:0"}) {
		t.Fatal(got)
	}
	for _, task := range All() {
		if task.Arrays == nil {
			continue
		}
		for _, dtype := range task.DTypes {
			for _, shape := range task.Sizes[:2] {
				b := Bench{Machine: m, Suite: Suite{Tasks: []*Task{task}, Devices: m.Devices(), Repeat: 1, Rounds: 1}}
				samples := require.Value(b.Turn(context.Background(), Turn{Task: task, Shape: shape, DType: dtype, From: 1, To: 1}))(t)
				seen := map[string]int{}
				for _, s := range samples {
					copied := s.Memory == predict.Pageable || s.Memory == predict.Pinned
					seen[s.Device+" "+string(s.Memory)]++
					if s.Device == CPU {
						continue
					}
					if !(s.Us > 0 && s.KernelUs > 0 && s.SubmitUs > 0) || (s.H2DUs > 0) != copied || (s.D2HUs > 0) != copied ||
						(s.BytesIn > 0) != copied || (s.BytesOut > 0) != copied || s.MachineKey != "a GPU" {
						t.Errorf("%+v", s)
					}
				}
				if seen["cpu host"] == 0 || seen["cuda:0 pageable"] == 0 || seen["cuda:0 pageable"] != seen["cuda:0 pinned"] || seen["cuda:0 pinned"] != seen["cuda:0 resident"] {
					t.Errorf("%s: samples %v", task.Name, seen)
				}
			}
		}
	}
}

// A kernel that leaves the result as it is is found in each kind of memory, though an earlier
// run was right.
func TestWrongResultGPU(t *testing.T) {
	m := testMachine(t)
	stubGPU(t, m)
	for _, memory := range []predict.Memory{predict.Pageable, predict.Pinned, predict.Resident} {
		task := vectorAdd()
		way, runs := task.Ways[2], 0
		right := way.GPU
		way.GPU = func(g *GPUDevice, s Shape, in []cuda.Ptr, out cuda.Ptr, dtype string) (Launch, func() error, error) {
			launch, close, err := right(g, s, in, out, dtype)
			return func(s *cuda.Stream) error {
				if runs++; runs > 1 {
					return nil
				}
				return launch(s)
			}, close, err
		}
		o := require.Value(task.open(context.Background(), m, Shape{{"n", 5000}}, Float32))(t)
		r := require.Value(o.prepare(context.Background(), way, m.GPUs[0].slot, memory))(t)
		for n := range 2 {
			if _, err := r.run(context.Background()); err != nil {
				t.Fatal(err)
			}
			if err := r.check(); (err == nil) != (n == 0) {
				t.Errorf("%s, run %d: %v", memory, n, err)
			}
		}
		if err := r.close(); err != nil {
			t.Error(err)
		}
		if err := o.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Whatever fails is reported, and nothing leaks.
func TestFailuresGPU(t *testing.T) {
	m := testMachine(t)
	c := stubGPU(t, m)
	b := Bench{Machine: m, Suite: Suite{Tasks: []*Task{reduceSum()}, Devices: m.Devices(), Repeat: 1, Rounds: 1}}
	turn := Turn{Task: b.Suite.Tasks[0], Shape: Shape{{"n", 5000}}, DType: Float32, From: 1, To: 1}
	for _, what := range []string{"gs_alloc", "gs_alloc_host", "gs_copy", "gs_copy_now", "launch", "gs_stream_synchronize", "gs_event_record", "gs_event_elapsed"} {
		c.Reset()
		c.Fail(what, 1)
		if _, err := b.Turn(context.Background(), turn); err == nil {
			t.Errorf("%s failed, and the turn did not", what)
		}
		if err := m.GPUs[0].slot.free(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	c.Reset()
	if _, err := b.Turn(context.Background(), turn); err != nil {
		t.Errorf("after failures: %v", err)
	}
}

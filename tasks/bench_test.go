package tasks

import (
	"context"
	"slices"
	"strings"
	"testing"

	"gpt2scope/ceilings"
	"gpt2scope/cpu"
	"gpt2scope/gpt2"
	"gpt2scope/internal/journal"
	"gpt2scope/internal/require"
	"gpt2scope/predict"
)

// testModel has a small geometry.
const testModel = "random:L=2,C=64,NH=1,V=257,T=64"

// testMachine has a CPU with ceilings of round numbers, and a small model.
func testMachine(t *testing.T) *Machine {
	t.Helper()
	model := require.Value(gpt2.Random(testModel))(t)
	m := require.Value(Open(Options{Name: "here", CPU: true, Threads: 2, Model: model}))(t)
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
		model.Close()
	})
	m.SetCeilings(CPU, ceilings.Set{Key: "a CPU", Values: []ceilings.Value{
		{Name: "read", Unit: ceilings.GBs, Value: 12, Where: "memory"}, {Name: ceilings.F32, Unit: ceilings.TFLOPs, Value: 1}}})
	return m
}

// testTasks are all tasks, with sizes for the machine's model.
func testTasks(m *Machine) []*Task { return ForModel(m.Model.Config) }

// Each way of each task gives results that agree with its reference, on the CPU, at its
// smallest sizes.
func TestTasks(t *testing.T) {
	m := testMachine(t)
	for _, task := range testTasks(m) {
		for _, dtype := range task.DTypes {
			for _, shape := range task.Sizes[:3] {
				b := Bench{Machine: m, Suite: Suite{Tasks: []*Task{task}, Devices: []string{CPU}, Repeat: 2, Rounds: 1}}
				turn := Turn{Task: task, Shape: shape, DType: dtype, From: 1, To: 2}
				samples := require.Value(b.Turn(context.Background(), turn))(t)
				if cases := b.Suite.Cases(turn); len(samples) != 2*len(cases) || len(cases) < 1 {
					t.Fatalf("%s: %d samples of %d cases", turn.Key(), len(samples), len(cases))
				}
				for _, s := range samples {
					if !(s.Us > 0) || s.KernelUs != s.Us || !(s.FloorUs > 0) || !(s.Bytes > 0) || s.BytesIn != 0 || s.MachineKey != "a CPU" || s.Steps < 1 {
						t.Errorf("%+v", s)
					}
				}
			}
		}
	}
}

// A way that computes nothing, or something else, is found: results of earlier runs are
// spoilt before each run.
func TestWrongResult(t *testing.T) {
	m := testMachine(t)
	task := vectorAdd()
	right := task.Ways[0].CPU
	runs := 0
	task.Ways[0].CPU = func(team *cpu.Team, s Shape, in []View, out View) (func() error, func() error, error) {
		run, close, err := right(team, s, in, out)
		return func() error {
			if runs++; runs > 2 {
				return nil // leaves the result as it is
			}
			return run()
		}, close, err
	}
	b := Bench{Machine: m, Suite: Suite{Tasks: []*Task{task}, Devices: []string{CPU}, Repeat: 1, Rounds: 1}}
	_, err := b.Turn(context.Background(), Turn{Task: task, Shape: Shape{{"n", 1000}}, DType: Float32, From: 1, To: 1})
	if err == nil || !strings.Contains(err.Error(), "of vector.add of n=1000 is NaN; expected") || runs != 4 { // 2 for warm-up, 1 not measured
		t.Errorf("after %d runs: %v", runs, err)
	}
}

// The suite measures each shape in each round, in another order, and parts share the work.
func TestTurns(t *testing.T) {
	s := Suite{Tasks: All(), Devices: []string{CPU}, Repeat: 5, Rounds: 2, Seed: 3}
	all, n, moved := s.Turns(), 0, 0
	for _, task := range All() {
		n += len(task.DTypes) * len(task.Sizes)
	}
	if len(all) != 2*n || all[0].From != 1 || all[0].To != 2 || all[n].From != 3 || all[n].To != 5 {
		t.Fatalf("%d turns of %d shapes, from %+v to %+v; want repeats 1 to 2 and 3 to 5", len(all), n, all[0], all[2*n-1])
	}
	keys := map[string]int{}
	for i, turn := range all {
		keys[turn.Key()]++
		if all[i%n].Shape.String() != all[n+i%n].Shape.String() {
			moved++
		}
	}
	for i := range 3 {
		s.Shard = journal.Shard{Index: i + 1, Count: 3}
		for _, turn := range s.Turns() {
			keys[turn.Key()]++
		}
	}
	for key, times := range keys {
		if times != 2 {
			t.Errorf("%s is %d times in all and in three parts; want once each", key, times)
		}
	}
	if len(keys) != 2*n || moved == 0 {
		t.Errorf("%d names of %d turns; %d stand elsewhere in the second round", len(keys), 2*n, moved)
	}
}

// With few, each task keeps its number of shapes, which both small and large ones are among.
func TestFew(t *testing.T) {
	bytes := map[string][]float64{}
	for _, turn := range (Suite{Tasks: All(), Repeat: 1, Rounds: 1, Few: 4}).Turns() {
		cost := require.Value(turn.Task.Cost(turn.Shape, turn.DType))(t)
		bytes[turn.Task.Name] = append(bytes[turn.Task.Name], cost.Bytes)
	}
	for _, task := range All() {
		if b := bytes[task.Name]; len(b) != 4 || slices.Max(b) < 5*slices.Min(b) {
			t.Errorf("%s: shapes of %g bytes; expected 4, from small to large", task.Name, b)
		}
	}
}

// The floor is the longer of bytes and FLOPs by the ceilings.
func TestFloor(t *testing.T) {
	m := testMachine(t)
	for _, c := range []struct {
		cost Cost
		us   float64
	}{{Cost{FLOPs: 1e6, Bytes: 12e6, Multiply: ceilings.F32}, 1000}, {Cost{FLOPs: 1e12, Bytes: 12e6, Multiply: ceilings.F32}, 1e6}} {
		if got := c.cost.FloorUs(m.CPU.Ceilings); got != c.us {
			t.Errorf("%+v: %g us; want %g", c.cost, got, c.us)
		}
	}
	if got := (Cost{Bytes: 1}).FloorUs(ceilings.Set{}); got != 0 {
		t.Errorf("with no ceilings the floor is %g", got)
	}
}

// sleepy is a way whose threads sleep while its result is checked, and take 300 us to wake.
type sleepy struct {
	us     float64
	runs   int
	asleep bool
}

func (s *sleepy) Close() error { return nil }
func (s *sleepy) prepare(context.Context, Way, *slot, predict.Memory) (Ready, error) {
	return Ready{run: s.run, check: func() error { s.asleep = true; return nil }}, nil
}
func (s *sleepy) run(context.Context) (t Times, err error) {
	if t.Wall = s.us; s.asleep {
		t.Wall += 300
	}
	s.runs++
	s.asleep = false
	return t, nil
}

// A brief run is measured right after another, so that no time has threads that wake in it; a long one is not run
// twice.
func TestTurnWakes(t *testing.T) {
	for us, runs := range map[float64]int{20: warmUps + 2*5, 9000: warmUps + 5} {
		way := &sleepy{us: us}
		task := vectorAdd()
		task.Ways = task.Ways[:1]
		b := Bench{Machine: &Machine{}, Suite: Suite{Devices: []string{CPU}}}
		samples, err := b.measure(context.Background(), Turn{task, Shape{{"n", 1000}}, Float32, 1, 5}, Cost{}, way)
		if err != nil || len(samples) != 5 || way.runs != runs {
			t.Fatalf("%g us: %d samples of %d runs, expected 5 of %d (%v)", us, len(samples), way.runs, runs, err)
		}
		for _, s := range samples {
			if awake := s.Us == us; awake != (us == 20) {
				t.Errorf("%g us: a repeat took %g", us, s.Us)
			}
		}
	}
}

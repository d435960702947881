package measure

import (
	"context"
	"strings"
	"testing"
	"time"

	"gpt2scope/cpu"
	"gpt2scope/cuda/nvml"
	"gpt2scope/gpt2"
	"gpt2scope/traces"
)

// The rows are passes that their models can do, and their names are unique.
func TestRows(t *testing.T) {
	seen := map[string]bool{}
	for _, row := range Rows() {
		m, err := gpt2.Random(row.Model)
		if err != nil {
			t.Fatal(err)
		}
		if err := row.Pass.Check(m.Config, gpt2.FirstLayers(m.Config.Layers), m.Config.Positions-row.Past); err != nil {
			t.Errorf("%s: %v", row.Name, err)
		}
		m.Close()
		if seen[row.Name] {
			t.Errorf("there are two rows %q", row.Name)
		}
		seen[row.Name] = true
	}
}

// Rows of one model share its session, and one with a larger batch its weights.
func TestSessions(t *testing.T) {
	backend, err := cpu.New(cpu.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer backend.Close()
	sessions := NewSessions(backend)
	defer sessions.Close()
	for batch := 1; batch <= 2; batch++ {
		row := Row{"step", "random:L=2,C=32,NH=2,V=99,T=64", gpt2.Pass{Batch: batch, Tokens: 1, Logits: gpt2.LogitsLast, Sample: true}, 9}
		times, plan, err := sessions.Row(context.Background(), row, 3)
		if err != nil {
			t.Fatal(err)
		}
		if len(times.All) != 3 || times.Median <= 0 || plan.Pass != row.Pass {
			t.Errorf("batch %d: %+v of %v", batch, times, plan.Pass)
		}
	}
	if len(sessions.open) != 1 {
		t.Errorf("%d models are open; want 1", len(sessions.open))
	}
}

// The time is that of the first byte, not of the process's end.
func TestFirstOutput(t *testing.T) {
	times, err := FirstOutput(context.Background(), "/bin/sh", []string{"-c", "sleep 0.05; echo x; sleep 0.4"}, 2)
	if err != nil || len(times.All) != 2 || times.Median < 50*time.Millisecond || times.Median > 400*time.Millisecond {
		t.Errorf("%+v, %v", times, err)
	}
	for script, want := range map[string]string{"echo no luck >&2; exit 3": "exit status 3: no luck", "exit 0": "wrote nothing"} {
		if _, err := FirstOutput(context.Background(), "/bin/sh", []string{"-c", script}, 1); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", script, err, want)
		}
	}
}

// The energy of a run is counted from the last reading before it, and only if the counter was
// updated often enough.
func TestRunEnergy(t *testing.T) {
	at := func(ms int) time.Time { return time.Unix(0, int64(ms)*1e6) }
	var samples []nvml.Sample
	for i, mJ := range []uint64{0, 1000, 1400, 1400, 2000, 2000, 3100} {
		samples = append(samples, nvml.Sample{Time: at(100 * i), Energy: mJ})
	}
	e, ok := runEnergy(samples, at(150), 3, 8)
	want := traces.Energy{Device: 3, What: "run", Millijoule: 2100, Tokens: 8, Resolution: 1100, Source: nvml.TotalEnergy}
	if !ok || e != want {
		t.Errorf("%+v, %v; want %+v", e, ok, want)
	}
	if e, ok := runEnergy(samples, at(250), 3, 8); ok {
		t.Errorf("%+v of two updates", e)
	}
	if e, ok := runEnergy(samples, at(150), 3, 0); ok {
		t.Errorf("%+v of no token", e)
	}
	if e, ok := runEnergy(nil, at(0), 0, 1); ok {
		t.Errorf("%+v of no samples", e)
	}
}

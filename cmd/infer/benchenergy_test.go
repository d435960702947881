package main

import (
	"bytes"
	"context"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"gpt2scope/cmd/infer/bench"
	"gpt2scope/cmd/infer/cli"
	"gpt2scope/energy"
	"gpt2scope/gpt2"
	"gpt2scope/internal/require"
	"gpt2scope/measure"
)

// meter200 is a counter of 200 W that steps every 4 ms.
type meter200 struct{ start time.Time }

func (c meter200) Source() string { return "a test's counter" }
func (c meter200) Read() (float64, error) {
	return 800 * float64(time.Since(c.start)/(4*time.Millisecond)), nil
}

// still is a counter that does not count.
type still struct{}

func (still) Source() string         { return "a stopped counter" }
func (still) Read() (float64, error) { return 5, nil }

// energyCommand runs "infer bench energy" with a counter.
func energyCommand(t *testing.T, c energy.Counter, args ...string) (stdout string, err error) {
	t.Helper()
	var m cli.ModelFlags
	closed := 0
	root := &cobra.Command{Use: "infer", SilenceErrors: true, SilenceUsage: true}
	cli.AddFlags(root.PersistentFlags(), "Model", m.Register)
	root.AddCommand(bench.NewBenchEnergy(&m, func(gpt2.Backend) (*measure.Meter, error) {
		return &measure.Meter{Counter: c, Covers: "this test", Close: func() { closed++ }}, nil
	}))
	var out, errs bytes.Buffer
	root.SetOut(&out)
	root.SetErr(&errs)
	root.SetArgs(append([]string{"energy", "-m", tiny, "--seconds", "0.12"}, args...))
	if err = root.ExecuteContext(context.Background()); closed > 1 || err == nil && closed != 1 {
		t.Errorf("%q closed the counter %d times", args, closed)
	}
	return out.String(), err
}

func energyOf(t *testing.T, args ...string) (j bench.EnergyObject) {
	t.Helper()
	out, err := energyCommand(t, meter200{time.Now()}, append(args, "--json")...)
	if err != nil {
		t.Fatalf("%q: %v", args, err)
	}
	decode(t, out, &j)
	return j
}

// near checks an energy result: what each number says of the
// others must agree.
func near(t *testing.T, j bench.EnergyObject, r bench.EnergyResult, tokensPerPass, stepsPerPass int) {
	t.Helper()
	if r.Watts <= 0 || r.Uncertainty <= 0 || r.Calls < 1 || r.Steps < 1 || r.Period <= 0 || r.Resolution <= 0 {
		t.Errorf("%+v", r)
	}
	if want := r.Watts * r.Microsecond / 1e3; math.Abs(r.PerCall/want-1) > 1e-9 {
		t.Errorf("%g mJ a call, want %g", r.PerCall, want)
	}
	if want := r.PerCall * float64(stepsPerPass) / float64(tokensPerPass); math.Abs(r.PerToken/want-1) > 1e-9 {
		t.Errorf("%g mJ a token, want %g", r.PerToken, want)
	}
	if j.Idle == nil || r.AboveIdle == nil || math.Abs(float64(*r.AboveIdle)-(r.Watts-j.Idle.Watts)) > 1e-9 {
		t.Errorf("idle %+v; %+v", j.Idle, r)
	}
}

// On the CPU and on a GPU without one.
func TestBenchEnergy(t *testing.T) {
	withStub(t, "STUB_QUIET")
	for _, device := range []string{"cpu", "cuda"} {
		j := energyOf(t, "--device", device, "--batch", "2", "--prompt-len", "20", "--threads", "1")
		if len(j.Results) != 2 || j.Source != "a test's counter" || j.Configuration.Device != device {
			t.Fatalf("%+v", j)
		}
		for i, words := range []string{"prefill, B=2 T=20, last row of logits", "decode step, B=2, 32 tokens in the cache"} {
			if j.Results[i].Work != words {
				t.Errorf("%q, want %q", j.Results[i].Work, words)
			}
			near(t, j, j.Results[i], []int{40, 2}[i], 1)
		}
	}
	out := require.Value(energyCommand(t, meter200{time.Now()}, "--device", "cpu", "--threads", "1", "--phase", "decode"))(t)
	contains(t, out, "a test's counter, of this test; updated by ", "idle, with the model loaded: ", "mJ/token", "decode step, B=1, 32 tokens")
	if strings.Contains(out, "prefill") || strings.Contains(out, "%!") {
		t.Errorf("prefill was not asked for:\n%s", out)
	}
}

func TestBenchEnergyFails(t *testing.T) {
	if _, err := energyCommand(t, still{}, "--device", "cpu"); err == nil || !strings.Contains(err.Error(), "a stopped counter: only 0 counter updates") || !strings.Contains(err.Error(), "--seconds") {
		t.Error(err)
	}
	for _, args := range [][]string{{"--seconds", "NaN"}, {"--past", "64"}} {
		if _, err := energyCommand(t, meter200{}, append(args, "--device", "cpu")...); err == nil || !strings.Contains(err.Error(), args[0]) {
			t.Errorf("%q: %v", args, err)
		}
	}
	checkFailure(t, infer(t, "bench", "energy", "-m", tiny, "--device", "reference"), exitFailure, "--device cuda")
	withStub(t) // a GPU that NVML does not see
	checkFailure(t, infer(t, "bench", "energy", "-m", tiny, "--device", "cuda"), exitFailure, "NVML")
}

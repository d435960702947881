package measure

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"strings"
	"testing"

	"gpt2scope/gpt2"
)

// twoSMs makes times of two launches of three decode steps of a model of one layer, on two
// SMs. Each step takes 100 ns: SM 0 waits 10 for weights, 20 for inputs and computes 50; SM 1
// has no part in attention, is ready and has its inputs before the step begins, and computes
// 100. The first decode step of a launch takes longer.
func twoSMs(t *testing.T) *gpt2.InsideDecode {
	m, err := gpt2.Random("random:L=1,C=64,NH=1,V=257,T=16")
	if err != nil {
		t.Fatal(err)
	}
	plan := gpt2.Forward(m.Config, gpt2.FirstLayers(1), gpt2.Pass{Batch: 1, Tokens: 1, Logits: gpt2.LogitsLast, Sample: true})
	d := &gpt2.InsideDecode{Plan: plan, Tokens: 3, Blocks: 2}
	for i := range plan.Steps {
		d.Steps = append(d.Steps, i)
	}
	for range 2 {
		var times []gpt2.BlockTimes
		end := uint64(5000)
		for n := range d.Tokens * len(d.Steps) {
			begin := end
			end += 100
			if n < len(d.Steps) {
				end += 900
			}
			one := gpt2.BlockTimes{Ready: begin - 7, Arrived: begin - 3, Published: end}
			if plan.Steps[n%len(d.Steps)].Op() == gpt2.OpAttention {
				one = gpt2.BlockTimes{}
				end = begin + 80
			}
			times = append(times, gpt2.BlockTimes{Ready: begin + 10, Arrived: begin + 30, Published: begin + 80}, one)
		}
		d.Launches = append(d.Launches, times)
	}
	return d
}

// TestSumInside: the parts of each row sum to its time, rows sum to the decode step, and the
// first decode step of a launch is left out.
func TestSumInside(t *testing.T) {
	d := twoSMs(t)
	in, err := SumInside(d)
	if err != nil {
		t.Fatal(err)
	}
	steps := len(d.Steps)
	if want := (100*float64(steps) - 20) / 1e3; math.Abs(in.Step-want) > 1e-9 || in.Steps != 4 {
		t.Errorf("a step takes %.4f us by %d steps, want %.4f by 4", in.Step, in.Steps, want)
	}
	near := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > 1e-9 {
			t.Errorf("%s: %.6f, want %.6f", what, got, want)
		}
	}
	sum, calls := 0.0, 0
	for _, r := range in.Stages {
		near(r.Name, r.Weights+r.Inputs+r.Compute+r.Imbalance, r.Time)
		sum += r.Time
		calls += r.Calls
		n := float64(r.Calls)
		if strings.HasSuffix(r.Name, "sdpa") {
			near(r.Name+" weights", r.Weights, 0.010*n)
			near(r.Name+" imbalance", r.Imbalance, 0)
			continue
		}
		near(r.Name+" weights", r.Weights, 0.005*n)
		near(r.Name+" inputs", r.Inputs, 0.010*n)
		near(r.Name+" compute", r.Compute, 0.075*n)
		near(r.Name+" imbalance", r.Imbalance, 0.010*n)
	}
	near("all stages", sum, in.Step)
	if calls != steps {
		t.Errorf("%d calls of %d steps", calls, steps)
	}
	for i, r := range in.SMs {
		near(r.Name, r.Weights+r.Inputs+r.Compute+r.Imbalance+r.Idle, in.Step)
		near(r.Name+" without a part", r.Idle, []float64{0, 0.080}[i])
	}
	if in.SMs[0].Calls != steps || in.SMs[1].Calls != steps-1 {
		t.Errorf("SMs have a part in %d and %d of %d steps", in.SMs[0].Calls, in.SMs[1].Calls, steps)
	}

	d.Tokens = 1
	if _, err := SumInside(d); err == nil {
		t.Error("launches of one decode step give no error")
	}
}

// TestDrawInside: the picture is well-formed, names the model as text, and is drawn again
// with other times as another one.
func TestDrawInside(t *testing.T) {
	d := twoSMs(t)
	draw := func() string {
		var b bytes.Buffer
		if err := DrawInside(&b, "a<b", d); err != nil {
			t.Fatal(err)
		}
		for x := xml.NewDecoder(bytes.NewReader(b.Bytes())); ; {
			if _, err := x.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
		}
		return b.String()
	}
	first := draw()
	if !strings.Contains(first, "a&lt;b") || !strings.Contains(first, "waiting for inputs") {
		t.Errorf("the picture has no title or legend:\n%.400s", first)
	}
	for i := range d.Launches[0] {
		if at := &d.Launches[0][i]; at.Arrived > 0 {
			at.Arrived += 15
		}
	}
	if draw() == first {
		t.Error("other times give the same picture")
	}
	d.Launches = nil
	if err := DrawInside(io.Discard, "a", d); err == nil {
		t.Error("no launch gives no error")
	}
}

package exec

import (
	"slices"
	"testing"

	"gpt2scope/gpt2"
	"gpt2scope/record"
	"gpt2scope/traces"
	"gpt2scope/traces/tables"
)

// TestPersistentRecordedOnGPU: recorded decode steps make the tokens of others; each step of each decode step has its
// time, which its parts sum to and follows that of the step before; the table sums to wall time, and little of it is
// idle inside a launch.
func TestPersistentRecordedOnGPU(t *testing.T) {
	b := persistentGPU(t, false)
	for n, spec := range []string{"", "random:L=2,C=768,NH=12,V=50257,T=1024", "random:L=2,C=1024,NH=16,V=1000,T=256", "random:L=2,C=1280,NH=20,V=1000,T=256", "random:L=2,C=1600,NH=25,V=1000,T=256", "", "random:L=2,C=768,NH=12,V=50257,T=1024", "random:L=2,C=768,NH=12,V=50257,T=1024"} {
		drawn, sampling := n == 7, gpt2.Sampling{} // drawn by a kernel of its own
		switch {
		case drawn:
			sampling = gpt2.Sampling{Temperature: 1, TopK: 200, Seed: 1}
		case n >= 5:
			sampling = gpt2.Sampling{Temperature: 1, TopK: 40, Seed: 1}
		}
		m := shipped(t)
		if spec != "" {
			m = randomModel(t, spec)
		}
		const n = 150
		prompt := []int32{20, 21, 22, 23}
		s := session(t, m, b, gpt2.Options{})
		g := gpt2.Generation{Tokens: n, IgnoreEOS: true, Sampling: sampling}
		want := idsOf(generate(t, s, prompt, g))
		to := record.New("test", "1")
		must(t, s.Reset())
		must(t, s.Record(to))
		warm := to.WarmUp()
		for range 2 {
			generate(t, s, prompt, gpt2.Generation{Tokens: 9, IgnoreEOS: true, Sampling: sampling})
			must(t, s.Reset())
		}
		warm()
		got := idsOf(generate(t, s, prompt, g))
		inOneKernel(t, s)
		must(t, s.StopRecording())
		if !slices.Equal(got, want) {
			t.Errorf("%s: tokens of the recorded run differ from others", m.Name)
		}
		trace := to.Trace()
		if found := traces.Examine(trace.Header, trace.Attribution); traces.Misleads(found) || len(trace.Header.Dropped) > 0 {
			t.Errorf("%s: %+v, dropped %v", m.Name, found, trace.Header.Dropped)
		}
		passes, kernels := ofDecode(trace)
		if len(passes) != n-1 {
			t.Fatalf("%s: %d decode steps are recorded, want %d", m.Name, len(passes), n-1)
		}
		sms := b.Device().Info().Processors
		launches := map[uint64]bool{}
		for _, pass := range passes {
			of := kernels[pass.ID]
			if len(of) != len(s.Runner().Plan(samplingPass(1, 1)).Steps)-1 {
				t.Fatalf("%s: a decode step has %d kernels", m.Name, len(of))
			}
			launches[of[0].Correlation] = true
			for i, e := range of {
				if drawn && i == len(of)-1 {
					if e.Inside != nil || e.Duration <= 0 || e.Time < of[i-1].End() || e.Correlation == of[0].Correlation {
						t.Fatalf("%s: the kernel that draws: %+v", m.Name, e)
					}
					continue
				}
				if e.Inside == nil || e.Inside.SMs < 1 || e.Inside.SMs > sms || e.Inside.Parts.Sum() != e.Duration || e.Duration <= 0 {
					t.Fatalf("%s: step %d of %d ns: %+v", m.Name, i, e.Duration, e.Inside)
				}
				if i > 0 && e.Time != of[i-1].End() {
					t.Fatalf("%s: step %d begins %d ns after the one before it ends", m.Name, i, e.Time-of[i-1].End())
				}
				if each := e.Inside.Each; each != nil && len(each) != sms {
					t.Fatalf("%s: step %d: %d SMs", m.Name, i, len(each))
				}
			}
		}
		each := s.Runner().(*Runner).persistent.kernel.Tokens(sampling)
		if want := (n - 1 + each - 1) / each; len(launches) != want {
			t.Errorf("%s: %d launches", m.Name, len(launches))
		}
		table, err := tables.Summarize(trace, tables.ByFolded, -1)
		must(t, err)
		var sum int64
		for _, f := range table.Folded {
			sum += f.Exclusive
			if f.Inside != nil {
				if f.Inside.Compute <= 0 || f.Inside.Inputs <= 0 && f.Name != "sample" {
					t.Errorf("%s: %s has %+v", m.Name, f.Name, *f.Inside)
				}
				t.Logf("%s: %-50s %8.3f us a step: %+v", m.Name, f.Name, float64(f.Exclusive)/1e3/(n-1), *f.Inside)
			} else if f.Phase == gpt2.DecodePass {
				t.Logf("%s: %-50s %8.3f us a step", m.Name, f.Name, float64(f.Exclusive)/1e3/(n-1))
			}
		}
		if sum != table.Wall {
			t.Errorf("%s: rows sum to %d of %d ns", m.Name, sum, table.Wall)
		}
	}
}

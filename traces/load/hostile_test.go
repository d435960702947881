package load

import (
	"math/rand/v2"
	"testing"

	"gpt2scope/traces"
	"gpt2scope/traces/diff"
	"gpt2scope/traces/internal/fixtures"
	"gpt2scope/traces/judge"
	"gpt2scope/traces/pprof"
	"gpt2scope/traces/tables"
)

// TestHostile: whatever the events are, comparing, advising and profiling end, and
// the profile sums to the wall time.
func TestHostile(t *testing.T) {
	done := [3]int{}
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 9))
		random := func() *traces.Trace {
			h := fixtures.Plan("wte+wpe", "h.0.ln_1", "h.0.ln_1", "h.7.ln_1")
			h.Devices[0].SMs = r.IntN(3) * 50
			if seed%2 == 0 {
				h.Recorder = traces.RecorderStamps
			}
			h.Ceilings = []traces.Ceiling{{Device: r.IntN(2) - 1, Name: "read", Unit: "GB/s", Value: r.Float64()*4 - 1}}
			for i := range h.Plans[0].Steps {
				h.Plans[0].Steps[i].Bytes = r.Int64N(4000) - 500
			}
			times := []int64{1, 1000, 1e9, traces.MaxTime - 1}
			lanes := []traces.Lane{traces.Thread(1, 1), traces.Thread(1, 2), traces.API(1, 1), traces.Stream(1, 0, 1, 7), traces.Stream(1, 0, 1, 8), traces.Stream(2, 1, 1, 7)}
			var events []traces.Event
			for range r.IntN(60) {
				e := traces.Plain(traces.Kind(r.IntN(int(traces.KindCounter)+1)), lanes[r.IntN(len(lanes))], []string{"warm-up", "Memcpy", "cudaStreamSynchronize", "cudaLaunchKernel", "x"}[r.IntN(5)], 0, 0)
				limit := times[r.IntN(len(times))]
				e.Time, e.Duration = r.Int64N(2*limit)-limit, r.Int64N(limit)
				e.Open = r.IntN(20) == 0 && e.Kind.IsRange()
				if e.Open {
					e.Duration = 0
				}
				e.Plan, e.Step = int32(r.IntN(4)-2), int32(r.IntN(7)-2)
				e.ID, e.Parent, e.Correlation, e.Node = uint64(r.IntN(8)), uint64(r.IntN(8)), uint64(r.IntN(8)), uint64(r.IntN(3))
				for i := range e.Grid {
					e.Grid[i], e.Block[i] = int32(r.IntN(5)-1), int32(r.Uint32())
				}
				e.Registers, e.DynamicShared = int32(r.Uint32()), int32(r.Uint32())
				e.Value = r.NormFloat64() * 1e9
				events = append(events, e)
			}
			return fixtures.Trace(h, events...)
		}
		a, b := random(), random()
		if c, err := diff.Compare(a, b, diff.ByStage, 0.05); err == nil {
			done[0]++
			if len(c.Rows) == 0 {
				t.Errorf("seed %d: a comparison of nothing", seed)
			}
		}
		if advice, err := judge.Advise(a, -1); err == nil {
			done[1]++
			for _, h := range advice.Hints {
				if h.Gain <= 0 || h.Gain > advice.Wall {
					t.Errorf("seed %d: of %d ns there could be gained: %+v", seed, advice.Wall, h)
				}
			}
		}
		if p, err := pprof.Profile(a, -1); err == nil {
			done[2]++
			sum := int64(0)
			for _, s := range p.Sample {
				sum += s.Value[0]
			}
			// Operations of several threads overlap, as in any profile of CPUs.
			table, err := tables.SummarizeAny(a, -1)
			if overlap := err == nil && table.By == tables.ByOp && sum > p.DurationNanos; sum != p.DurationNanos && !overlap {
				t.Errorf("seed %d: the profile sums to %d of %d", seed, sum, p.DurationNanos)
			}
		}
	}
	for i, n := range done {
		if n < 20 {
			t.Errorf("only %d of function %d were made", n, i)
		}
	}
}

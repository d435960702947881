package tables

import (
	"errors"

	"gpt2scope/traces"
	"gpt2scope/traces/window"
)

// SMRow says what an SM did in passes inside a kernel: means in ns of a pass. The times after
// the first sum to it.
type SMRow struct {
	SM        int     `json:"sm"`
	Steps     float64 `json:"steps"` // of a pass, in which the SM has a part
	Time      float64 `json:"time"`
	Weights   float64 `json:"weights"`
	Inputs    float64 `json:"inputs"`
	Compute   float64 `json:"compute"`
	Imbalance float64 `json:"imbalance"`
	NoPart    float64 `json:"no_part"` // in steps in which it has no part
	Idle      float64 `json:"idle"`    // no step runs
}

// InsidePass is a pass inside a kernel of which a recording has the times of each SM.
type InsidePass struct {
	Pass  window.Pass
	Steps []*traces.Event // its work, in order
}

// InsidePasses returns the passes, after the warm-up, whose work has the times of each SM.
func InsidePasses(w *window.Window) []InsidePass {
	var passes []InsidePass
	index := map[*traces.Event]int{} // of passes, in the result
	for _, e := range w.Work {
		if e.Inside == nil || e.Inside.Each == nil {
			continue
		}
		pass := w.PassOf(e)
		i, ok := w.PassIndex(pass)
		if pass == nil || !ok {
			continue
		}
		at, known := index[pass]
		if !known {
			at = len(passes)
			index[pass] = at
			passes = append(passes, InsidePass{Pass: w.Passes[i]})
		}
		passes[at].Steps = append(passes[at].Steps, e)
	}
	return passes
}

// bySM fills a table by SM.
func (s *summary) bySM(t *Table) error {
	passes := InsidePasses(s.Window)
	if len(passes) == 0 {
		return errors.New("the recording does not say what each SM did; that of decode steps in one kernel does (--mode persistent --recorder stamps)")
	}
	t.SMPasses, t.smPlan = len(passes), passes[0].Pass.Event.Plan
	type sum struct {
		traces.Parts
		steps, noPart int64
	}
	var sums []sum
	idle := int64(0)
	for _, p := range passes {
		idle += p.Pass.Time.Length()
		for _, e := range p.Steps {
			idle -= e.Duration
			for len(sums) < len(e.Inside.Each) {
				sums = append(sums, sum{})
			}
			for sm, parts := range e.Inside.Each {
				if parts == (traces.Parts{}) {
					sums[sm].noPart += e.Duration
					continue
				}
				sums[sm].steps++
				sums[sm].Add(parts)
			}
		}
	}
	mean := func(ns int64) float64 { return float64(ns) / float64(len(passes)) }
	for sm, s := range sums {
		t.SMs = append(t.SMs, SMRow{SM: sm, Steps: mean(s.steps), Time: mean(s.Sum() + s.noPart + idle),
			Weights: mean(s.Weights), Inputs: mean(s.Inputs), Compute: mean(s.Compute), Imbalance: mean(s.Imbalance),
			NoPart: mean(s.noPart), Idle: mean(idle)})
	}
	return nil
}

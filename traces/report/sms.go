package report

import (
	"fmt"
	"slices"

	"gpt2scope/traces"
	"gpt2scope/traces/tables"
)

// sms describes the picture of what each SM did in a pass inside a kernel.
type sms struct {
	Count   int    // SMs
	Pass    string // "decode step after 137 tokens"
	Time    string // of the pass
	Of      int    // passes of which the times of each SM are kept
	Parts   []fact // means over the SMs
	picture smsJSON
}

// smsJSON is what the script draws: the steps of a pass, in ns after the start of the first. Parts has of each step and
// each SM the wait for weights, the wait for inputs and the time of computing; -1 alone if it has no part in the step.
type smsJSON struct {
	N     int          `json:"n"`
	Span  int64        `json:"span"`
	Steps []smStepJSON `json:"steps"`
	Parts []int64      `json:"parts"`
}

// smStepJSON is a step of the picture.
type smStepJSON struct {
	Row  int   `json:"row"` // of the table
	From int64 `json:"from"`
	To   int64 `json:"to"`
}

// newSMs makes the picture of the pass of median length, nil if the times of each SM are kept of none.
func newSMs(table *tables.Table) *sms {
	passes := tables.InsidePasses(table.Window)
	if len(passes) == 0 || table.By != tables.ByStage {
		return nil
	}
	length := func(p tables.InsidePass) int64 { return p.Steps[len(p.Steps)-1].End() - p.Steps[0].Time }
	slices.SortStableFunc(passes, func(a, b tables.InsidePass) int { return int(length(a) - length(b)) })
	p := passes[(len(passes)-1)/2]
	from, whole := p.Steps[0].Time, length(p)
	s := &sms{Time: duration(whole), Of: len(passes),
		Pass: fmt.Sprintf("%s after %d tokens", table.Window.PassName(p.Pass.Event), int64(p.Pass.Event.Value))}
	for _, e := range p.Steps {
		s.Count = max(s.Count, len(e.Inside.Each))
	}
	var sum traces.Parts
	noPart := int64(0)
	for _, e := range p.Steps {
		s.picture.Steps = append(s.picture.Steps, smStepJSON{table.RowOf(e), e.Time - from, e.End() - from})
		for sm := range s.Count {
			var of traces.Parts
			if sm < len(e.Inside.Each) {
				of = e.Inside.Each[sm]
			}
			if of == (traces.Parts{}) {
				s.picture.Parts = append(s.picture.Parts, -1)
				noPart += e.Duration
				continue
			}
			sum.Add(of)
			s.picture.Parts = append(s.picture.Parts, of.Weights, of.Inputs, of.Compute)
		}
	}
	s.picture.N, s.picture.Span = s.Count, whole
	mean := func(ns int64) string {
		return fmt.Sprintf("%s, %s %%", duration(ns/int64(s.Count)), percent(ns/int64(s.Count), max(1, whole), 1))
	}
	s.Parts = []fact{{"computes", mean(sum.Compute)}, {"waits for inputs", mean(sum.Inputs)},
		{"waits for weights", mean(sum.Weights)},
		{"waits for the last SM", mean(sum.Imbalance)}, {"has no part", mean(noPart)}}
	return s
}

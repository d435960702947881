package tables

import (
	"gpt2scope/traces"
	"gpt2scope/traces/window"
)

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

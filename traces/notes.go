package traces

import (
	"fmt"
	"math"
	"strings"
)

// notes are the lines that a reader of the table needs: what it is of, what
// recording cost, what energy was used, and what it cannot say.
func (s *summary) notes(t *Table) []string {
	var notes []string
	add := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	h := s.Header
	if len(t.Passes) > 0 {
		var parts []string
		for _, p := range t.Passes {
			parts = append(parts, p.describe(h))
		}
		text := strings.Join(parts, ", ")
		if n := t.WarmUp.Count; n > 0 {
			out := "left out"
			if s.by == ByKernel {
				out = "counted in"
			}
			text += fmt.Sprintf("; warm-up is %s: %s", out, passes(n))
			if t.Device < 0 { // else the host's time is that of launching
				text += fmt.Sprintf(", %.3f ms", float64(t.WarmUp.Time)/1e6)
			}
		}
		add("passes: %s", text)
	}
	switch {
	case s.by == ByKernel && len(t.Passes) > 0:
		add("the table is of the whole recording, from the first to the last work of the GPU; the others are of the passes")
	case s.by == ByKernel || s.by == ByLaunch && len(t.Passes) == 0:
		add("the table is of the whole recording, from the first to the last work of the GPU")
	case s.by == ByOp && len(t.Passes) == 0:
		add("the table is of the whole recording, from its first event to its last")
	}
	if s.by == ByOp && t.Device < 0 && len(t.Passes) > 0 {
		add("the times are those of the main thread, which runs the passes; 'infer trace show' by stage counts its workers too")
	}
	notes = append(notes, h.lookingNotes(t.Passes)...)
	for _, e := range h.Energy {
		if e.Tokens <= 0 || e.Device != int(t.Device) && t.Device >= 0 {
			continue
		}
		n := float64(e.Tokens)
		add("energy: %s %.3g mJ per token, +-%.2g, over %d tokens (%s)", e.What, e.Millijoule/n, e.Resolution/n, e.Tokens, e.Source)
	}
	if s.by.ofPasses() {
		switch known := s.costsKnown(t); {
		case !known:
			add("floors: the recording does not say what steps cost")
		case !h.hasCeilings(t.Device):
			add("floors: no ceilings of this device are known; 'infer bench ceilings' measures them")
		}
	}
	return notes
}

// costsKnown tells whether any row has a cost.
func (s *summary) costsKnown(t *Table) bool {
	for i := range t.Rows {
		if r := &t.Rows[i]; r.Kind == RowWork && (r.FLOPs > 0 || r.Bytes > 0) {
			return true
		}
	}
	return false
}

// describe is such as "prefill of 6 tokens, padded to 64" or "7 decode steps".
func (p Passes) describe(h *Header) string {
	text := fmt.Sprintf("%d %s", p.Count, p.Phase)
	if p.Count != 1 {
		text += "s"
	}
	if p.plan < 0 || int(p.plan) >= len(h.Plans) {
		return text
	}
	plan := &h.Plans[p.plan]
	if plan.Tokens > 1 || plan.Padded > 0 {
		text += fmt.Sprintf(" of %d tokens", plan.Tokens)
	}
	if plan.Batch > 1 {
		text += fmt.Sprintf(" of %d sequences", plan.Batch)
	}
	if plan.Padded > 0 {
		text += fmt.Sprintf(", padded to %d", plan.Padded)
	}
	return text
}

func passes(n int) string {
	if n == 1 {
		return "1 pass"
	}
	return fmt.Sprintf("%d passes", n)
}

// fewPasses is how many passes make a median that can be compared: that of fewer, in
// two processes, differs by more than recording costs.
const fewPasses = 24

// Longer returns by how many percent recording made a pass longer, negative where it
// was shorter. ok is false where that was not measured, or on too few passes to tell.
func (l *Looking) Longer() (percent float64, ok bool) {
	if !(l.Baseline > 0) || !(l.Recorded > 0) || l.Passes < fewPasses {
		return 0, false
	}
	percent = 100 * (l.Recorded/l.Baseline - 1)
	return percent, !math.IsInf(percent, 0) && !math.IsNaN(percent)
}

// passes says how many passes a measurement is of.
func (l *Looking) passes() string {
	switch {
	case l.Passes <= 0:
		return "an unknown number of passes"
	case l.Passes == 1:
		return "one pass"
	}
	return passes(l.Passes)
}

// longer says by how much recording made a pass longer. A pass that was shorter was so
// by chance.
func longer(percent float64) string {
	if percent <= 0 {
		return "no longer"
	}
	return fmt.Sprintf("%.1f %% longer", percent)
}

// lookingNotes says what recording cost, for the passes of a table.
func (h *Header) lookingNotes(of []Passes) []string {
	var notes []string
	for _, l := range h.Looking {
		if !(l.Baseline > 0) || !(l.Recorded > 0) {
			continue
		}
		wanted := len(of) == 0
		for _, p := range of {
			wanted = wanted || p.Phase == l.Phase
		}
		if !wanted {
			continue
		}
		percent, ok := l.Longer()
		if !ok {
			notes = append(notes, fmt.Sprintf("looking: a %s took %.1f us, and %.1f us in a process that never recorded: %s each, which says little", l.Phase, l.Recorded/1e3, l.Baseline/1e3, l.passes()))
			continue
		}
		notes = append(notes, fmt.Sprintf("looking: recording made a %s %s: %.1f us, %.1f us in a process that never recorded", l.Phase, longer(percent), l.Recorded/1e3, l.Baseline/1e3))
	}
	if len(notes) > 0 {
		return notes
	}
	switch h.Recorder {
	case RecorderCUPTI, RecorderStamps, RecorderHost:
		return []string{"looking: what recording cost was not measured; 'infer bench overhead' measures it"}
	}
	return []string{"looking: what recording cost was not measured"}
}

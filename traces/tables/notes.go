package tables

import (
	"fmt"
	"slices"
	"strings"

	"gpt2scope/internal/humanize"
	"gpt2scope/traces"
	"gpt2scope/traces/window"
)

// notes are the lines that a reader of the table needs: what it is of, what
// recording cost, what energy was used, and what it cannot say.
func (s *summary) notes(t *Table) []string {
	var notes []string
	add := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	h := s.Header
	if len(t.Passes) > 0 {
		text := described(h, t.Passes)
		if n := t.WarmUp.Count; n > 0 {
			out, whole := "left out", s.of == allWork || s.of == allRun
			if whole {
				out = "counted in"
			}
			text += fmt.Sprintf("; warm-up is %s: %s", out, passes(n))
			if t.Device < 0 { // else the host's time is that of launching
				text += fmt.Sprintf(", %.3f ms", float64(t.WarmUp.Time)/1e6)
			}
			beside := 0
			for _, e := range s.WarmUp {
				if !whole && s.from <= e.Time && e.Time < s.to {
					beside++
				}
			}
			if beside > 0 {
				text += fmt.Sprintf(", but for %d among the passes that count", beside)
			}
		}
		add("passes: %s", text)
	}
	if d := h.Drafts; d != (traces.Drafts{}) {
		add("drafts: %d accepted, %d dropped", d.Accepted, d.Dropped)
	}
	switch {
	case s.of == allWork && s.steady && s.Steady().Source == window.FromRepetition:
		add("the table is of %s, which are found by the repetition of kernel names", passes(len(s.Steady().Passes)))
	case s.of == allWork && len(t.Passes) > 0:
		add("the table is of the whole recording, from the first to the last work of the GPU; the others are of the passes")
	case s.of == allWork:
		add("the table is of the whole recording, from the first to the last work of the GPU")
	case s.of == allRun || s.of == passesOrRun && len(t.Passes) == 0:
		add("the table is of the whole recording, from its first event to its last")
	}
	if s.by == ByOp && t.Device < 0 && len(t.Passes) > 0 {
		add("the times are those of the main thread, which runs the passes; 'infer trace show' by stage counts its workers too")
	}
	if s.by != ByProcess {
		notes = append(notes, s.GPUNotes()...)
	}
	if len(h.Against) > 0 {
		add("the stages are inferred; against them: %s", strings.Join(h.Against, "; "))
	}
	var ranks []string
	for _, r := range h.Ranks {
		ranks = append(ranks, fmt.Sprintf("rank %d is process %s (by %s)", r.Rank, traces.ProcessText(r.Process), r.Source))
	}
	if len(ranks) > 0 {
		add("processes: %s", strings.Join(humanize.First(ranks, 8), ", "))
	}
	if h.Clock.Aligned != "" {
		add("clocks: %s", h.Clock.Aligned)
	}
	notes = append(notes, overheadNotes(h, t.Passes, traces.Misleads(t.Findings))...)
	for _, e := range h.Energy {
		if e.Tokens <= 0 || e.Device != int(t.Device) && t.Device >= 0 {
			continue
		}
		n := float64(e.Tokens)
		add("energy: %s %s ± %s mJ per token, over %s (%s)", e.What, humanize.Significant(e.Millijoule/n, 3),
			humanize.Significant(e.Resolution/n, 2), humanize.Count(int(e.Tokens), "token", "tokens"), e.Source)
	}
	if s.of == ofPasses {
		if len(h.CostsFrom) > 0 {
			add("costs: %s", strings.Join(h.CostsFrom, "; "))
		}
		hasCost := func(r Row) bool { return r.Kind == RowWork && (r.FLOPs > 0 || r.Bytes > 0) }
		switch {
		case !slices.ContainsFunc(t.Rows, hasCost):
			add("floors: the recording does not say what steps cost")
		case len(Ceilings(h, t.Device).Values) == 0:
			add("floors: no ceilings of this device are known; 'infer bench ceilings' measures them")
		}
	}
	if finding, ok := t.BelowFloor(); ok {
		add("%s", finding)
	}
	return notes
}

// described is such as "1 prefill of 6 tokens, padded to 64, 7 decode steps". Those of plans that are described alike, as
// draft steps of more and fewer layers, are counted together.
func described(h *traces.Header, all []Passes) string {
	type key struct{ phase, sizes string }
	var keys []key
	counts := map[key]int{}
	for _, p := range all {
		k := key{p.Phase, p.sizes(h)}
		if counts[k] == 0 {
			keys = append(keys, k)
		}
		counts[k] += p.Count
	}
	var parts []string
	for _, k := range keys {
		sizes := k.sizes
		if sizes == "" && slices.ContainsFunc(keys, func(o key) bool { return o.phase == k.phase && o != k }) {
			sizes = " of 1 token"
		}
		parts = append(parts, humanize.Count(counts[k], k.phase, humanize.Plural(k.phase))+sizes)
	}
	return strings.Join(parts, ", ")
}

// sizes is such as " of 6 tokens, padded to 64".
func (p Passes) sizes(h *traces.Header) (text string) {
	if p.plan < 0 || int(p.plan) >= len(h.Plans) {
		return ""
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

func passes(n int) string { return humanize.Count(n, "pass", "passes") }

// overheadNotes says what recording cost, for the passes of a table; misleads is whether shares of the recording do.
func overheadNotes(h *traces.Header, of []Passes, misleads bool) []string {
	var notes []string
	for _, l := range h.Overhead {
		wanted := len(of) == 0 || l.Phase == traces.OverheadToken ||
			slices.ContainsFunc(of, func(p Passes) bool { return p.Phase == l.Phase })
		if !wanted || !(l.Baseline > 0) || !(l.Recorded > 0) {
			continue
		}
		times := fmt.Sprintf("%.1f us, %.1f us without recording", l.Recorded/1e3, l.Baseline/1e3)
		if percent, ok := l.Longer(); ok {
			note := fmt.Sprintf("recording overhead: recording made a %s %s: %s", l.Phase, traces.LongerText(percent), times)
			if misleads {
				note += "; unreliable, since shares mislead"
			}
			notes = append(notes, note)
		} else {
			notes = append(notes, fmt.Sprintf("recording overhead: a %s took %s: too few passes to tell", l.Phase, times))
		}
	}
	if len(notes) > 0 {
		return notes
	}
	note := "recording overhead: what recording cost was not measured"
	switch recorder := h.Recorder; {
	case recorder == traces.RecorderCUPTI && h.Versions["model"] == "":
		note += "; --baseline or --delay of 'infer trace record' measures it"
	case recorder == traces.RecorderCUPTI, recorder == traces.RecorderStamps, recorder == traces.RecorderHost:
		note += "; a run without --no-baseline measures it"
	}
	return []string{note}
}

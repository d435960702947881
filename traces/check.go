package traces

import (
	"fmt"
	"slices"
)

// Finding is one thing that a trace's trust depends on.
type Finding struct {
	Text     string // a sentence
	Misleads bool   // shares computed from the trace would mislead
}

// Examine says what a trace lacks. Shares of time are to be trusted where no finding
// misleads.
func Examine(h *Header, a Attribution) []Finding {
	var found []Finding
	add := func(misleads bool, format string, args ...any) {
		found = append(found, Finding{fmt.Sprintf(format, args...), misleads})
	}
	some := func(n int, misleads bool, one, many string) {
		switch {
		case n == 1:
			add(misleads, "1 %s", one)
		case n > 1:
			add(misleads, "%d %s", n, many)
		}
	}
	for _, what := range slices.Sorted(keys(h.Dropped)) {
		add(true, "%d records were dropped: %s", h.Dropped[what], what)
	}
	for _, what := range h.Incomplete {
		add(true, "%s", what)
	}
	some(a.WithoutCorrelation, true, "kernel has no correlation id", "kernels have no correlation id")
	some(a.WithoutCall, true, "kernel has a correlation id that no API call has", "kernels have correlation ids that no API call has")
	some(a.CopiesWithoutCall, false, "copy or set has no API call", "copies and sets have no API call")
	some(a.UnknownNodes, len(h.Plans) > 0, "kernel ran as a graph node that cannot be followed to a step", "kernels ran as graph nodes that cannot be followed to a step")
	some(a.OpaqueLaunches, true, "graph launch has no kernels recorded (nsys needs --cuda-graph-trace=node)", "graph launches have no kernels recorded (nsys needs --cuda-graph-trace=node)")
	some(a.LaunchesWithoutWork, true, "launch has no kernel recorded", "launches have no kernel recorded")
	some(a.InPassOnly, true, "kernel lies in a pass, but in no step", "kernels lie in a pass, but in no step")
	some(a.OpenRanges, true, "range never ended", "ranges never ended")
	some(a.StepsWithoutWork, true, "step has no kernel, copy or set", "steps have no kernel, copy or set")
	if a.EarlyStarts > 0 {
		misleads := h.Clock.Uncertainty >= 0 && a.Earliest > h.Clock.Uncertainty
		text := fmt.Sprintf("%d kernels began before their launch did, by up to %d ns: the clocks of host and GPU are apart", a.EarlyStarts, a.Earliest)
		if h.Clock.Uncertainty >= 0 {
			text += fmt.Sprintf("; their uncertainty is %d ns", h.Clock.Uncertainty)
		}
		add(misleads, "%s", text)
	}
	if outside := a.WithoutRange; outside > 0 && a.Ranges > 0 {
		some(outside, false, "kernel was launched outside all ranges", "kernels were launched outside all ranges")
	}
	if a.Kernels+a.Graphs+a.Copies == 0 {
		add(false, "there is no work of a GPU")
	}
	if a.Kernels > 0 && a.Ranges == 0 {
		add(false, "there are no ranges: kernels belong to no stage")
	}
	for _, what := range h.NotRecorded {
		add(false, "not recorded: %s", what)
	}
	return found
}

// Misleads tells whether one of the findings does.
func Misleads(found []Finding) bool {
	return slices.ContainsFunc(found, func(f Finding) bool { return f.Misleads })
}

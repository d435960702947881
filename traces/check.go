package traces

import (
	"fmt"
	"maps"
	"slices"

	"gpt2scope/internal/humanize"
)

// Finding is one fact that decides how far a trace can be trusted.
type Finding struct {
	Text     string `json:"text"`     // a sentence
	Misleads bool   `json:"misleads"` // shares computed from the trace would mislead
}

// farApart is, in ns, more than any conversion between the clocks of host and GPU is off, if a recording does not say
// how far they agree.
const farApart = 100_000

// Examine says what a trace lacks. Shares of time can be trusted if no finding misleads.
func Examine(h *Header, a Attribution) []Finding { return examine(h, a, len(h.Plans) > 0) }

// ExamineKernels is Examine for shares by kernel, for which it does not matter what launched a kernel.
func ExamineKernels(h *Header, a Attribution) []Finding { return examine(h, a, false) }

func examine(h *Header, a Attribution, byStep bool) []Finding {
	var found []Finding
	add := func(misleads bool, format string, args ...any) {
		found = append(found, Finding{fmt.Sprintf(format, args...), misleads})
	}
	some := func(n int, misleads bool, one, many string) {
		if n > 0 {
			add(misleads, "%s", humanize.Count(n, one, many))
		}
	}
	for _, what := range slices.Sorted(maps.Keys(h.Dropped)) {
		n := int(h.Dropped[what])
		add(true, "%s dropped: %s", humanize.Count(n, "record was", "records were"), what)
	}
	for _, what := range h.Incomplete {
		add(true, "%s", what)
	}
	for _, what := range slices.Sorted(maps.Keys(h.Unknown)) {
		n := int(h.Unknown[what])
		add(true, "%s not understood, and nobody's work", humanize.Count(n, "event of "+what+" is", "events of "+what+" are"))
	}
	for _, what := range slices.Sorted(maps.Keys(h.Mended)) {
		add(false, "%s mended: %s", humanize.Count(int(h.Mended[what]), "record", "records"), what)
	}
	// Kernels that write stamps name their step, but no call.
	stamps := h.Recorder == RecorderStamps
	if stamps {
		some(a.Unattributed, true, "kernel belongs to no step and no pass", "kernels belong to no step and no pass")
	} else {
		// Times of kernels need no call. Only the call says which step launched them; our own recorder gives each an id.
		some(a.WithoutCorrelation, byStep || h.Recorder == RecorderCUPTI, "kernel has no correlation id",
			"kernels have no correlation id")
		some(a.WithoutCall, byStep || a.Calls > 0, "kernel has a correlation id that no API call has",
			"kernels have correlation ids that no API call has")
		some(a.BeforeRecording, false, "kernel was launched before the recording began, which found it in the queue",
			"kernels were launched before the recording began, which found them in the queue")
	}
	some(a.Bounded, false, "kernel stands for a library product, which counts as one kernel even if it ran several",
		"kernels stand for library products, each of which counts as one kernel even if it ran several")
	some(a.Divided, false, "kernel has its part of the time of several, divided as in passes that time each",
		"kernels have their parts of the time of several, divided as in passes that time each")
	some(a.CopiesWithoutCall, false, "copy or set has no API call", "copies and sets have no API call")
	some(a.UnknownNodes, byStep, "kernel ran as a graph node that cannot be followed to a step",
		"kernels ran as graph nodes that cannot be followed to a step")
	if !stamps {
		some(a.OpaqueLaunches, true, "graph launch has no kernels recorded (nsys needs --cuda-graph-trace=node)",
			"graph launches have no kernels recorded (nsys needs --cuda-graph-trace=node)")
		some(a.LaunchesWithoutWork-a.WithoutCorrelation, true, "launch has no kernel recorded",
			"launches have no kernel recorded")
	}
	some(a.InPassOnly, true, "kernel lies in a pass, but in no step", "kernels lie in a pass, but in no step")
	some(a.OpenRanges, true, "range never ended", "ranges never ended")
	some(a.StepsUnknown, true, "step is in none of the plans", "steps are in none of the plans")
	some(a.StepsWithoutWork, true, "step has no kernel, copy or set", "steps have no kernel, copy or set")
	if a.EarlyStarts > 0 {
		most, agree := int64(farApart), ""
		if u := h.Clock.Uncertainty; u >= 0 {
			most, agree = u, fmt.Sprintf("; their uncertainty is %d ns", u)
		}
		add(a.Earliest > most, "%s before the launch did, by up to %d ns: the clocks of host and GPU disagree%s",
			humanize.Count(a.EarlyStarts, "kernel began", "kernels began"), a.Earliest, agree)
	}
	if a.Ranges > 0 {
		some(a.WithoutRange, false, "kernel was launched outside all ranges", "kernels were launched outside all ranges")
	}
	switch work := a.Kernels + a.Graphs + a.Copies; {
	case work+a.Calls+a.Ranges == 0:
		add(true, "the recording has nothing to make a table of: no work of a GPU, no API calls and no ranges")
	case work == 0 && h.Recorder != RecorderHost:
		add(false, "there is no work of a GPU")
	}
	if a.Kernels > 0 && a.Ranges == 0 {
		add(false, "there are no ranges: kernels belong to no stage; 'infer trace stages' looks for those of a transformer")
	}
	for _, note := range h.Notes {
		add(false, "%s", note)
	}
	for _, what := range h.NotRecorded {
		add(false, "not recorded: %s", what)
	}
	return found
}

// Misleads reports whether one of the findings does.
func Misleads(found []Finding) bool { return Reasons(found) > 0 }

// Reasons is how many of the findings mislead.
func Reasons(found []Finding) (n int) {
	for _, f := range found {
		if f.Misleads {
			n++
		}
	}
	return n
}

// Trust says in one line whether shares of a trace with these findings can be trusted.
func Trust(h *Header, a Attribution, found []Finding) string {
	number := func(n int) string { return humanize.Thousands(int64(n)) }
	work := humanize.Count(a.Kernels, "kernel", "kernels")
	if a.Bounded > 0 {
		work += " (a library product counts as one)"
	}
	switch {
	case a.Kernels+a.Copies+a.Graphs == 0 && a.Steps > 0:
		work = humanize.Count(a.Steps, "step event", "step events")
		if a.StepsUnknown == 0 {
			work += ", all of known steps"
		} else {
			work += ", " + number(a.StepsUnknown) + " of unknown steps"
		}
	case a.Kernels == 0:
	case len(h.Plans) == 0:
		outside := a.WithoutRange + a.WithoutCall + a.WithoutCorrelation + a.BeforeRecording
		work += fmt.Sprintf(", %s of them launched in ranges", number(max(0, a.Kernels-outside)))
	case a.InSteps == a.Kernels:
		work += ", all attributed to steps"
	default:
		work += ", " + number(a.InSteps) + " attributed to steps"
		if a.InPassOnly > 0 {
			work += ", " + number(a.InPassOnly) + " in passes but no step"
		}
		if outside := a.Kernels - a.InSteps - a.InPassOnly; outside > 0 {
			work += ", " + number(outside) + " outside the passes"
		}
	}
	for _, counted := range []struct {
		of   map[string]int64
		what string
	}{{h.Dropped, "dropped"}, {h.Unknown, "not understood"}, {h.Mended, "mended"}} {
		sum := 0
		for _, n := range counted.of {
			sum += int(max(0, n))
		}
		if sum > 0 {
			work += ", " + humanize.Count(sum, "record", "records") + " " + counted.what
		}
	}
	n := Reasons(found)
	if n == 0 {
		return "whole; " + work
	}
	return "shares mislead, for " + humanize.Count(n, "reason", "reasons") + "; " + work
}

package traces

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"gpt2scope/internal/lazyregexp"
)

// opDomain begins the domain of a range that may be a step; the operation follows it. FindSteps replaces it.
const opDomain = Domain + ":"

// passNames are those of gpt2scope's passes.
var passNames = []string{"prefill", "decode step", "draft step", "verify step"}

var layerName = lazyregexp.New(`^h\.(\d+)(?:@(\d+))?(\..*)?$`)

// OwnRange recognises passes and possible steps by the names and NVTX categories that
// gpt2scope gives its ranges. The categories are Pass, Layer and the operations.
func OwnRange(e *Event, category string) {
	m := layerName().FindStringSubmatch(e.Name)
	switch {
	case slices.Contains(passNames, e.Name):
		e.Kind = KindPass
	case m != nil && m[3] == "" || category == "Layer":
	case category != "" && category != "Pass" || m != nil:
		e.Kind, e.Domain = KindStep, opDomain+category
	}
}

// FindSteps makes the plans of a header from the steps that [OwnRange] found within passes, and sorts the events. The
// steps of the first pass of a kind come first, in its order; steps that only later passes have follow.
func FindSteps(h *Header, events []Event) {
	var whats Interner
	named := func(w *What) { w.Domain = Domain } // what is or seemed to be a step
	Sort(events)
	passes := map[Lane]*Event{} // the last of each thread
	for i := range events {
		e := &events[i]
		if e.Lane.Kind != LaneThread {
			continue
		}
		if e.Kind == KindPass {
			e.Plan = int32(slices.IndexFunc(h.Plans, func(p Plan) bool { return p.Phase == e.Name }))
			if e.Plan < 0 {
				e.Plan = int32(len(h.Plans))
				h.Plans = append(h.Plans, Plan{Phase: e.Name})
			}
			passes[e.Lane] = e
		}
		op, isStep := strings.CutPrefix(e.Domain, opDomain)
		if !isStep {
			continue
		}
		whats.Change(e, named)
		pass := passes[e.Lane]
		if pass == nil || !pass.Open && pass.End() < e.End() { // named like a step, but outside all passes
			e.Kind = KindRange
			continue
		}
		steps := &h.Plans[pass.Plan].Steps
		tag := slices.IndexFunc(*steps, func(s Step) bool { return s.Name == e.Name })
		if tag < 0 {
			tag = len(*steps)
			step := Step{Tag: tag, Name: e.Name, Op: op, Layer: -1, Slot: -1}
			if m := layerName().FindStringSubmatch(e.Name); m != nil {
				step.Layer, _ = strconv.Atoi(m[1])
				step.Slot, _ = strconv.Atoi(cmp.Or(m[2], m[1]))
			}
			*steps = append(*steps, step)
		}
		e.Plan, e.Step = pass.Plan, int32(tag)
	}
}

// Held makes counters of memory of events whose values are changes of it: it sorts them, and sums those of each process and
// device.
func Held(changes []Event) []Event {
	slices.SortStableFunc(changes, func(a, b Event) int { return cmp.Compare(a.Time, b.Time) })
	held := map[Lane]float64{}
	for i := range changes {
		e := &changes[i]
		held[e.Lane] = max(0, held[e.Lane]+e.Value) // what was allocated before the recording is not in it
		e.Value = held[e.Lane]
	}
	return changes
}

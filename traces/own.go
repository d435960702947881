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
	m := layerName.FindStringSubmatch(e.Name)
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
	open := map[Lane][]*Event{}
	index := map[string]int{}             // phase to index in Plans
	tags := map[string]map[string]int32{} // phase and name to index in Steps
	for i := range events {
		e := &events[i]
		if !e.Kind.IsRange() || e.Lane.Kind != LaneThread {
			continue
		}
		s := open[e.Lane]
		for len(s) > 0 && !s[len(s)-1].Open && s[len(s)-1].End() < e.End() {
			s = s[:len(s)-1]
		}
		op, isStep := strings.CutPrefix(e.Domain, opDomain)
		var pass *Event
		for j := len(s) - 1; isStep && j >= 0 && pass == nil; j-- {
			if s[j].Kind == KindPass {
				pass = s[j]
			}
		}
		open[e.Lane] = append(s, e)
		switch {
		case e.Kind == KindPass:
			at, ok := index[e.Name]
			if !ok {
				at = len(h.Plans)
				index[e.Name], tags[e.Name] = at, map[string]int32{}
				h.Plans = append(h.Plans, Plan{Phase: e.Name})
			}
			e.Plan = int32(at)
		case isStep && pass == nil: // named like a step, but outside all passes
			e.Kind = KindRange
			whats.Change(e, named)
		case isStep:
			plan, known := &h.Plans[pass.Plan], tags[pass.Name]
			tag, ok := known[e.Name]
			if !ok {
				tag = int32(len(plan.Steps))
				known[e.Name] = tag
				step := Step{Tag: int(tag), Name: e.Name, Op: op, Layer: -1, Slot: -1}
				if m := layerName.FindStringSubmatch(e.Name); m != nil {
					step.Layer, _ = strconv.Atoi(m[1])
					if step.Slot = step.Layer; m[2] != "" {
						step.Slot, _ = strconv.Atoi(m[2])
					}
				}
				plan.Steps = append(plan.Steps, step)
			}
			e.Plan, e.Step = pass.Plan, tag
			whats.Change(e, named)
		}
	}
}

// Held makes counters of memory of events whose values are changes of it: it sorts them, and sums those of each device.
func Held(changes []Event) []Event {
	slices.SortStableFunc(changes, func(a, b Event) int { return cmp.Compare(a.Time, b.Time) })
	held := map[int32]float64{}
	for i := range changes {
		e := &changes[i]
		held[e.Lane.Device] = max(0, held[e.Lane.Device]+e.Value) // what was allocated before the recording is not in it
		e.Value = held[e.Lane.Device]
	}
	return changes
}

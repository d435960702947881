package diff

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"gpt2scope/traces"
)

// fact is something that two traces must have in common to be compared fairly.
type fact struct{ what, is string }

// unfair lists the reasons why two traces cannot be compared fairly.
func unfair(a, b side) []string {
	notes := []string{}
	for i, p := range []side{a, b} {
		for _, f := range traces.Examine(p.Header, p.Attribution) {
			if f.Misleads {
				notes = append(notes, sideNames[i]+": "+f.Text)
			}
		}
		for _, line := range p.GPUNotes() {
			notes = append(notes, sideNames[i]+": "+line)
		}
	}
	others := map[string]string{}
	for _, f := range b.facts() {
		others[f.what] = f.is
	}
	for _, f := range a.facts() {
		if other, ok := others[f.what]; ok && other != f.is {
			notes = append(notes, fmt.Sprintf("%s: %s in A, %s in B", f.what, cmp.Or(f.is, "unknown"), cmp.Or(other, "unknown")))
		}
	}
	build := a.Header.Versions[traces.Domain]
	if strings.HasPrefix(build, "(devel)") && build == b.Header.Versions[traces.Domain] {
		notes = append(notes, "build: A and B both say (devel), which names none: they may be of different code; a program that "+
			"'make build' made names its commit")
	}
	return notes
}

// facts are those of a trace: what ran where, and for each kind of pass its shape.
func (p side) facts() []fact {
	facts := []fact{{"recorder, which has its own overhead", p.Header.Recorder}, {"device", p.deviceName()},
		{"type of matrix products", p.Header.DType}, {"work comes by", p.mode()}}
	seen := map[string]bool{}
	for _, l := range p.Passes {
		phase, i := p.PassName(l.Event), int(l.Event.Plan)
		if seen[phase] || i < 0 || i >= len(p.Header.Plans) {
			continue
		}
		seen[phase] = true
		plan := &p.Header.Plans[i]
		facts = append(facts, fact{phase + ", sequences", number(plan.Batch)}, fact{phase + ", tokens", number(plan.Tokens)},
			fact{phase + ", padded to", cmp.Or(number(plan.Padded), "no more")}, fact{phase + ", layers", number(layers(plan))},
			fact{phase + ", positions", p.positions(phase)})
	}
	for _, what := range slices.Sorted(maps.Keys(p.Header.Versions)) {
		// The schema is that of the exporter, and each trace of Kineto has an id of its own.
		if what != "schema" && what != "trace_id" {
			facts = append(facts, fact{what, p.Header.Versions[what]})
		}
	}
	return facts
}

// number writes a number; 0 is an unknown one.
func number(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// deviceName names the device whose work is compared.
func (p side) deviceName() string {
	if p.Device < 0 {
		return "CPU"
	}
	return p.Header.Device(p.Device).Name
}

// mode says how work came to the device.
func (p side) mode() string {
	switch {
	case p.Device < 0:
		return "CPU"
	case p.GraphLaunches > 0 || slices.ContainsFunc(p.Work, func(e *traces.Event) bool {
		return e.Node != 0 || e.Kind == traces.KindGraph
	}):
		return "CUDA graphs"
	}
	return "single launches"
}

func layers(p *traces.Plan) int {
	slots := map[int]bool{}
	for _, s := range p.Steps {
		if s.Slot >= 0 {
			slots[s.Slot] = true
		}
	}
	return len(slots)
}

// positions returns the least and greatest position of the passes of a kind, in tokens of the cache; "" for other
// tools, whose ranges have other values.
func (p side) positions(phase string) string {
	if !strings.EqualFold(p.Header.Tool, traces.Domain) {
		return ""
	}
	var list []int
	for _, l := range p.Passes {
		if v := l.Event.Value; p.PassName(l.Event) == phase && v >= 0 && v < 1<<31 {
			list = append(list, int(v))
		}
	}
	if len(list) == 0 {
		return ""
	}
	return fmt.Sprintf("%d to %d", slices.Min(list), slices.Max(list))
}

// Package pprof writes where the wall time of a trace went as a profile for go tool pprof.
package pprof

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/pprof/profile"

	"gpt2scope/traces"
	"gpt2scope/traces/tables"
	"gpt2scope/traces/window"
)

// labels are of a sample; an empty one is none.
type labels map[string][]string

// stack is a sample of the profile: its frames from the root to the leaf, and its labels.
type stack struct {
	frames []string
	labels labels
	ns, n  int64
}

// Profile returns where the wall time of a trace went, as a profile for pprof. Its samples
// are the rows of the table by stage, divided by kernel; for a trace without passes they
// are the rows of the table by kernel. A stack is, from root to leaf,
//
//	gpt2scope, kind of pass, layer, stage, kernel
//	gpt2scope, kind of pass, idle, cause, copy
//
// without the layer for steps outside the layers, without the kernel on the CPU, and
// without the copy for idle time in which no copy runs. For a trace of the CPU without passes the rows are those of the
// table by operation.
//
// The values of a sample are nanoseconds and a count. The nanoseconds are exclusive times (see [tables.Row]) and sum to
// the wall time. The count is of kernels, copies and sets; on the CPU, of events of threads; of idle time, of gaps. The
// labels phase, layer, stage, op and kind are for pprof's -tagfocus and -tagroot. device is as in [tables.Summarize].
func Profile(t *traces.Trace, device int32) (*profile.Profile, error) {
	table, err := tables.SummarizeAny(t, device)
	if err != nil {
		return nil, err
	}
	stacks := map[string]*stack{}
	add := func(ns, n int64, labels labels, frames ...string) {
		frames = slices.DeleteFunc(append([]string{traces.Domain}, frames...), func(s string) bool { return s == "" })
		maps.DeleteFunc(labels, func(_ string, v []string) bool { return v[0] == "" })
		key := strings.Join(frames, "\x00")
		s := stacks[key]
		if s == nil {
			s = &stack{frames: frames, labels: labels}
			stacks[key] = s
		}
		s.ns, s.n = s.ns+ns, s.n+n
	}
	left := table.Wall
	used := make([]struct{ ns, n int64 }, len(table.Rows)) // of the idle time of a row by the copies in it
	table.Window.Sweep(table.Time, func(e, _ *traces.Event, _, own window.Interval) {
		i, ns := table.RowOf(e), own.Length()
		if i < 0 { // by operation, whose rows are no work
			return
		}
		r := &table.Rows[i]
		left -= ns
		used[i].ns, used[i].n = used[i].ns+ns, used[i].n+1
		phase, kernel := r.Phase, e.Name
		if e.Kind.IsRange() { // a step of the CPU
			kernel = ""
		}
		switch {
		case table.By == tables.ByKernel:
			add(ns, 1, labels{"kind": {"work"}}, kernel)
		case r.Kind == tables.RowIdle:
			add(ns, 1, labels{"kind": {"idle"}, "phase": {phase}}, phase, "idle", r.Name, kernel)
		default:
			layer := ""
			step, ok := t.Header.Step(e)
			if ok {
				layer = layerFrame(step)
			}
			add(ns, 1, labels{"kind": {"work"}, "phase": {phase}, "layer": {layer}, "stage": {step.Name}, "op": {step.Op}},
				phase, layer, r.Name, kernel)
		}
	})
	for i, r := range table.Rows {
		ns, n := r.Exclusive-used[i].ns, int64(r.Calls)-used[i].n
		switch {
		case table.By == tables.ByOp && r.Kind == tables.RowWork:
			add(ns, n, labels{"kind": {"work"}, "op": {r.Name}}, r.Name)
		case r.Kind != tables.RowIdle || ns == 0:
			continue
		default:
			add(ns, n, labels{"kind": {"idle"}, "phase": {r.Phase}}, r.Phase, "idle", r.Name)
		}
		left -= ns
	}
	if left > 0 { // less if operations of several threads overlap
		add(left, 0, labels{"kind": {"residual"}}, tables.Unaccounted)
	}
	p := assemble(stacks)
	p.TimeNanos, p.DurationNanos = t.Header.Base+table.Time.From, table.Wall
	p.Comments = append(p.Comments, t.Header.Describe())
	if table.Instead != "" {
		p.Comments = append(p.Comments, table.Instead)
	}
	for _, f := range table.Findings {
		if f.Misleads {
			p.Comments = append(p.Comments, "shares mislead: "+f.Text)
		}
	}
	if err := p.CheckValid(); err != nil {
		return nil, fmt.Errorf("the profile is not valid: %w", err)
	}
	return p, nil
}

func layerFrame(s traces.Step) string {
	switch {
	case s.Layer < 0:
		return ""
	case s.Slot >= 0 && s.Slot != s.Layer:
		return fmt.Sprintf("layer %d in slot %d", s.Layer, s.Slot)
	}
	return fmt.Sprintf("layer %d", s.Layer)
}

// assemble makes a profile of stacks, sorted so that it is the same each time.
func assemble(stacks map[string]*stack) *profile.Profile {
	p := &profile.Profile{
		SampleType:        []*profile.ValueType{{Type: "time", Unit: "nanoseconds"}, {Type: "count", Unit: "count"}},
		DefaultSampleType: "time",
		PeriodType:        &profile.ValueType{Type: "time", Unit: "nanoseconds"},
		Period:            1,
		// The mapping has all symbols, so that pprof looks for no binary.
		Mapping: []*profile.Mapping{{ID: 1, File: traces.Domain, HasFunctions: true, HasFilenames: true,
			HasLineNumbers: true, HasInlineFrames: true}},
	}
	locations := map[string]*profile.Location{}
	location := func(name string) *profile.Location {
		if l := locations[name]; l != nil {
			return l
		}
		f := &profile.Function{ID: uint64(len(p.Function) + 1), Name: name, SystemName: name}
		l := &profile.Location{ID: f.ID, Mapping: p.Mapping[0], Line: []profile.Line{{Function: f}}}
		p.Function, p.Location = append(p.Function, f), append(p.Location, l)
		locations[name] = l
		return l
	}
	for _, key := range slices.Sorted(maps.Keys(stacks)) {
		s := stacks[key]
		sample := &profile.Sample{Value: []int64{s.ns, s.n}, Label: s.labels}
		for _, name := range slices.Backward(s.frames) {
			sample.Location = append(sample.Location, location(name))
		}
		p.Sample = append(p.Sample, sample)
	}
	return p
}

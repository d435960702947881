package diff

import (
	"fmt"
	"slices"
	"strings"

	"gpt2scope/traces"
	"gpt2scope/traces/tables"
	"gpt2scope/traces/window"
)

// whyLoose says in a sentence why two traces have no stages to compare, "" if they have.
func whyLoose(a, b side) string {
	for i, p := range []side{a, b} {
		if len(p.Passes) == 0 {
			return fmt.Sprintf("%s has no pass of a model outside its warm-up", sideNames[i])
		}
	}
	phases := b.phases()
	if !slices.ContainsFunc(a.phases(), func(phase string) bool { return slices.Contains(phases, phase) }) {
		return fmt.Sprintf("A and B have no kind of pass in common (A: %s; B: %s)", strings.Join(a.phases(), ", "),
			strings.Join(phases, ", "))
	}
	return ""
}

// phases names the kinds of passes there are.
func (p side) phases() []string {
	var names []string
	for _, l := range p.Passes {
		if name := p.PassName(l.Event); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// loosely makes the rows of a comparison without stages: of the operations of a framework, if both traces have them,
// otherwise of the kernels, and it says which. A sample is the times of the single operations (of the work of the GPU
// that they caused, on the CPU their own), or of the single kernels, copies and sets, over the whole recordings.
func loosely(by tables.By, a, b side) (rows tables.By, inA, inB *samples) {
	if by != tables.ByKernel {
		inA, inB = a.operators(), b.operators()
		isOp := func(k changeKey) bool { return k.kind == ChangeOp }
		if slices.ContainsFunc(inA.keys, isOp) && slices.ContainsFunc(inB.keys, isOp) {
			return tables.ByOp, inA, inB
		}
	}
	return tables.ByKernel, a.kernels(), b.kernels()
}

// whole begins the samples of a trace with the time of all its work, and its idle time.
func (p side) whole() *samples {
	s := &samples{times: map[changeKey][]int64{}}
	if len(p.Work) == 0 {
		return s
	}
	x := p.Whole()
	busy := make([]window.Interval, 0, len(p.Work))
	for _, e := range p.Work {
		busy = append(busy, window.Interval{From: e.Time, To: e.End()})
	}
	s.add(changeKey{ChangePass, "", "whole recording"}, x.Length())
	s.add(changeKey{ChangeIdle, "", "idle"}, x.Length()-window.Length(busy))
	return s
}

// kernels returns the times of the kernels, copies and sets of a trace by name.
func (p side) kernels() *samples {
	s := p.whole()
	for _, e := range p.Work {
		kind := ChangeKernel
		if e.Kind == traces.KindMemcpy || e.Kind == traces.KindMemset {
			kind = ChangeOther
		}
		s.add(changeKey{kind, "", e.Name}, e.Duration)
	}
	return s
}

// operators returns the times of the outermost operators of a framework by name.
func (p side) operators() *samples {
	s := p.whole()
	if p.Device < 0 {
		for i := range p.Events {
			if e := &p.Events[i]; e.Kind == traces.KindOp && p.Operator(e) == e {
				s.add(changeKey{ChangeOp, "", e.Name}, e.Duration)
			}
		}
		return s
	}
	var order []*traces.Event
	sums := map[*traces.Event]int64{}
	for _, e := range p.Work {
		op := p.Operator(e)
		if op == nil {
			continue
		}
		if _, known := sums[op]; !known {
			order = append(order, op)
		}
		sums[op] += e.Duration
	}
	for _, op := range order {
		s.add(changeKey{ChangeOp, "", op.Name}, sums[op])
	}
	return s
}

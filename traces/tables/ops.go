package tables

import (
	"cmp"
	"errors"
	"slices"

	"gpt2scope/traces"
)

// OpRow is a row of the table that PyTorch's profiler is known for: an operation,
// summed over all its calls. Times are ns, of all threads together.
//
// Operations are those of a framework (KindOp), the operations of our steps ("Linear"), passes, other ranges, and API
// calls. They are nested; "self" is what an operation spends itself, without those inside it. An operation inside
// another of its name is part of that one's total.
//
// The GPU's time is that of the work which an operation launched, or whose step was captured
// into a graph. It belongs to the operation, not to the API call.
//
// On the CPU only the threads that run passes count: the steps of the workers run beside the
// pass, not in it, and the parts would sum to more than the whole.
type OpRow struct {
	Name    string `json:"name"`
	SelfCPU int64  `json:"self_cpu"`
	CPU     int64  `json:"cpu"`
	SelfGPU int64  `json:"self_cuda"`
	GPU     int64  `json:"cuda"`
	Calls   int    `json:"calls"`   // a step that several threads run is called once
	Kernels int    `json:"kernels"` // kernels, copies and sets of its own
}

// OutsideOps is the row of the work that was launched outside all rows.
const OutsideOps = "(outside all operations)"

// isOp reports whether an event is a range or call of the host that has ended.
func isOp(e *traces.Event) bool {
	return (e.Kind.IsRange() && e.Lane.Kind == traces.LaneThread || e.Kind.IsCall()) && e.Lane.Device < 0 && !e.Open
}

// isRow reports whether a range or call has a row: functions of Python have a table of their own.
func (s *summary) isRow(e *traces.Event) bool { return e.IsPython() == (s.by == ByPython) }

// opName names the operation that a range or call is.
func (s *summary) opName(e *traces.Event) string {
	switch e.Kind {
	case traces.KindStep:
		if step, ok := s.Header.Step(e); ok {
			return cmp.Or(step.Op, step.Name)
		}
	case traces.KindPass:
		return s.PassName(e)
	}
	return e.Name
}

// openOp is an operation that is open on a thread.
type openOp struct {
	event   *traces.Event
	row     *OpRow
	covered int64 // up to here the time of those inside it is subtracted
}

func (s *summary) ops(t *Table) error {
	rows := map[string]*OpRow{}
	row := func(name string) *OpRow {
		r := at(rows, name)
		r.Name = name
		return r
	}
	threads := map[traces.ThreadID][]openOp{}
	main := s.passThreads(t)
	onHost := map[traces.Run]bool{} // steps that the host has a range of
	for i := range s.Events {
		e := &s.Events[i]
		if !isOp(e) || !s.isRow(e) || !s.Serves(e) {
			continue
		}
		key := s.Header.ThreadOf(e)
		if main != nil && !main[key] {
			continue
		}
		if e.Time < s.from || e.Time >= s.to || len(t.Passes) > 0 && s.InWarmUp(e) {
			continue
		}
		stack := threads[key]
		for len(stack) > 0 && stack[len(stack)-1].event.End() <= e.Time {
			stack = stack[:len(stack)-1]
		}
		r := row(s.opName(e))
		if !slices.ContainsFunc(stack, func(o openOp) bool { return o.row == r }) {
			r.CPU += e.Duration
		}
		r.SelfCPU += e.Duration
		// A step that several threads run is one call.
		pass, isNew := (*traces.Event)(nil), true
		if e.Kind == traces.KindStep {
			pass = s.PassOf(e)
		}
		if pass != nil {
			key := e.Run(pass.ID)
			isNew = !onHost[key]
			onHost[key] = true
		}
		if isNew {
			r.Calls++
		}
		if len(stack) > 0 {
			outer := &stack[len(stack)-1]
			from, to := max(e.Time, outer.covered), min(e.End(), outer.event.End())
			if from < to {
				outer.row.SelfCPU -= to - from
				outer.covered = to
			}
		}
		threads[key] = append(stack, openOp{e, r, e.Time})
	}
	if s.by == ByPython && len(rows) == 0 {
		return errors.New("the recording has no functions of Python: PyTorch's profiler records them with with_stack=True")
	}
	if s.Device >= 0 {
		s.opsOnGPU(row, onHost)
	}
	for _, r := range rows {
		t.Ops = append(t.Ops, *r)
	}
	slices.SortFunc(t.Ops, func(a, b OpRow) int {
		return cmp.Or(cmp.Compare(b.SelfGPU, a.SelfGPU), cmp.Compare(b.SelfCPU, a.SelfCPU), cmp.Compare(a.Name, b.Name))
	})
	return nil
}

// passThreads returns the threads that run passes, or nil if all threads count: there are no passes, or a GPU works.
func (s *summary) passThreads(t *Table) map[traces.ThreadID]bool {
	if s.Device >= 0 || len(t.Passes) == 0 {
		return nil
	}
	main := map[traces.ThreadID]bool{}
	for i := range s.Events {
		if e := &s.Events[i]; e.Kind == traces.KindPass && e.Lane.Kind == traces.LaneThread {
			main[s.Header.ThreadOf(e)] = true
		}
	}
	return main
}

// opsOnGPU gives the work of the GPU to the operations that launched it.
func (s *summary) opsOnGPU(row func(string) *OpRow, onHost map[traces.Run]bool) {
	var chain []*OpRow
	for _, e := range s.Work {
		if e.Time < s.from || e.Time >= s.to {
			continue
		}
		chain = chain[:0]
		at := s.Parent(e)
		// In a graph the launch lies in the pass, and the step is known from the node. The operators
		// of a framework are finer than steps.
		if step, ok := s.Header.Step(e); ok && s.by == ByOp && (at == nil || at.Kind != traces.KindOp &&
			(at.Kind != traces.KindStep || at.Step != e.Step)) {
			r := row(cmp.Or(step.Op, step.Name))
			chain = append(chain, r)
			key := e.Run(e.Correlation)
			if at != nil {
				if pass := s.PassOf(at); pass != nil {
					key.Pass = pass.ID
				}
			}
			if !onHost[key] {
				onHost[key] = true
				r.Calls++
			}
		}
		for around := range s.Around(e) {
			if !s.isRow(around) {
				continue
			}
			if r := row(s.opName(around)); !slices.Contains(chain, r) {
				chain = append(chain, r)
			}
		}
		if len(chain) == 0 {
			r := row(OutsideOps)
			r.Calls++
			chain = append(chain, r)
		}
		chain[0].SelfGPU += e.Duration
		chain[0].Kernels++
		for _, r := range chain {
			r.GPU += e.Duration
		}
	}
}

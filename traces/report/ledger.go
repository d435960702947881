package report

import (
	"cmp"
	"slices"

	"gpt2scope/traces"
	"gpt2scope/traces/tables"
)

// correlation is an id in its process.
type correlation struct {
	process int64
	id      uint64
}

// calls finds API calls by correlation id, the outermost first.
type calls struct {
	h    *traces.Header
	byID map[correlation]*traces.Event
}

func newCalls(t *traces.Trace) *calls {
	c := &calls{h: t.Header, byID: map[correlation]*traces.Event{}}
	for i := range t.Events {
		e := &t.Events[i]
		if key := c.key(e); e.Kind.IsCall() && e.Correlation != 0 && c.byID[key] == nil {
			c.byID[key] = e
		}
	}
	return c
}

func (c *calls) key(e *traces.Event) correlation {
	if e.Lane.Process == 0 {
		return correlation{c.h.Process, e.Correlation}
	}
	return correlation{e.Lane.Process, e.Correlation}
}

// of returns the call that caused work, nil where it is not known.
func (c *calls) of(e *traces.Event) *traces.Event {
	if e.Correlation == 0 {
		return nil
	}
	return c.byID[c.key(e)]
}

// largest returns the n longest gaps, longest first.
func largest(gaps []tables.Gap, n int) []tables.Gap {
	sorted := slices.Clone(gaps)
	slices.SortStableFunc(sorted, func(a, b tables.Gap) int { return cmp.Compare(b.To-b.From, a.To-a.From) })
	return sorted[:min(n, len(sorted))]
}

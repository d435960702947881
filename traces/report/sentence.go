package report

import (
	"fmt"
	"strings"

	"gpt2scope/traces"
	"gpt2scope/traces/tables"
)

// sentence says where the time went: the biggest stage, idle time and its biggest
// cause, and how far the stages are from their floors where those are known.
func sentence(t *tables.Table) string {
	var work, idle, floors, floored int64
	var biggest *tables.Row
	causes := map[string]int64{}
	for i := range t.Rows {
		r := &t.Rows[i]
		switch r.Kind {
		case tables.RowWork, tables.RowOther:
			work += r.Exclusive
			if r.Kind == tables.RowWork && (biggest == nil || r.Exclusive > biggest.Exclusive) {
				biggest = r
			}
			if r.Floor > 0 {
				floors += r.Floor
				floored += r.Exclusive
			}
		case tables.RowIdle:
			idle += r.Exclusive
			causes[r.Name] += r.Exclusive
		}
	}
	part := func(ns int64) string {
		if traces.Misleads(t.Findings) || t.Wall == 0 {
			return duration(ns)
		}
		return fmt.Sprintf("%s"+nbsp+"(%.1f"+nbsp+"%%)", duration(ns), 100*float64(ns)/float64(t.Wall))
	}
	var b strings.Builder
	device := "the GPU"
	if t.Device < 0 {
		device = "the CPU"
	}
	fmt.Fprintf(&b, "Of %s, %s worked for %s", duration(t.Wall), device, part(work))
	if biggest != nil {
		what := "stage"
		if t.By == tables.ByKernel {
			what = "kernel"
		}
		name := biggest.Name
		if biggest.Phase != "" {
			name += " of the " + biggest.Phase
		}
		fmt.Fprintf(&b, ", the longest %s being %s with %s", what, name, part(biggest.Exclusive))
	}
	if idle > 0 {
		cause, most := "", int64(-1)
		for _, r := range t.Rows { // in the order of rows, so that pages repeat
			if r.Kind == tables.RowIdle && causes[r.Name] > most {
				cause, most = r.Name, causes[r.Name]
			}
		}
		fmt.Fprintf(&b, ", and was idle for %s, most of it by %s with %s", part(idle), causeWords(cause), part(most))
	} else {
		b.WriteString(", and was never idle")
	}
	if floors > 0 && floored > 0 {
		fmt.Fprintf(&b, "; stages with a known floor took %.2f times their floor", float64(floored)/float64(floors))
	}
	b.WriteByte('.')
	return b.String()
}

// causeWords puts a cause of idle time into a sentence.
func causeWords(cause string) string {
	switch cause {
	case tables.IdleHost:
		return "a late host"
	case tables.IdleDependency:
		return "dependencies between kernels"
	case tables.IdleUnknown:
		return "unknown causes"
	}
	return cause
}

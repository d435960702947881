package report

import (
	"cmp"
	"fmt"
	"strings"

	"gpt2scope/internal/humanize"
	"gpt2scope/traces"
	"gpt2scope/traces/tables"
)

// sentence says where the time went: the stage that took the most over all layers, idle time with its biggest cause,
// and how far the stages are from their least times.
func sentence(t *tables.Table, rows []stage) string {
	var work, idle, floors, floored, most int64
	var biggest *stage
	names, idleBy := map[string]int64{}, map[string]int64{} // kernels have a row for each launch shape
	for i := range rows {
		r := &rows[i]
		switch {
		case r.IsWork():
			work += r.Exclusive
			if name := r.Phase + " " + r.Title; r.Kind == tables.RowWork {
				names[name] += r.Exclusive
				if biggest == nil || names[name] > most {
					biggest, most = r, names[name]
				}
			}
			if r.Floor > 0 {
				floors, floored = floors+r.Floor, floored+r.Exclusive
			}
		case r.Kind == tables.RowIdle:
			idle += r.Exclusive
			idleBy[r.Name] += r.Exclusive
		}
	}
	part := func(ns int64) string {
		if traces.Misleads(t.Findings) || t.Wall == 0 {
			return duration(ns)
		}
		return duration(ns) + nbsp + "(" + percent(ns, t.Wall, 1) + nbsp + "%)"
	}
	device := "GPU"
	if t.Device < 0 {
		device = "CPU"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "Of %s, the %s worked for %s", duration(t.Wall), device, part(work))
	if idle > 0 {
		cause, longest := "", int64(-1)
		for i := range rows { // in the order of rows, so that pages repeat
			if r := &rows[i]; r.Kind == tables.RowIdle && idleBy[r.Name] > longest {
				cause, longest = r.Name, idleBy[r.Name]
			}
		}
		fmt.Fprintf(&b, " and was idle for %s,", part(idle))
		if longest == idle {
			fmt.Fprintf(&b, " because of %s.", cmp.Or(causes[cause], cause))
		} else {
			fmt.Fprintf(&b, " most of it because of %s: %s.", cmp.Or(causes[cause], cause), part(longest))
		}
	} else {
		b.WriteString(" and was never idle.")
	}
	if biggest != nil {
		fmt.Fprintf(&b, " The %s that took the most is %s", nouns[t.By], biggest.Title)
		if biggest.Phase != "" && biggest.Phase != biggest.Title {
			fmt.Fprintf(&b, " of the %s", biggest.Phase)
		}
		if n := len(biggest.Layers); n > 0 {
			fmt.Fprintf(&b, ", over %s", humanize.Count(n, "layer", "layers"))
		}
		fmt.Fprintf(&b, ": %s.", part(most))
	}
	if _, tooFast := t.BelowFloor(); !tooFast && floors > 0 && floored > 0 {
		fmt.Fprintf(&b, " Stages with a known floor took %.2f times that least time.", float64(floored)/float64(floors))
	}
	return b.String()
}

// nouns say what a row of work is.
var nouns = map[tables.By]string{tables.ByStage: "stage", tables.ByKernel: "kernel", tables.ByOp: "operation"}

// causes puts causes of idle time into a sentence; the others are words of one already.
var causes = map[string]string{tables.IdleHost: "a late host", tables.IdleDependency: "dependencies between kernels",
	tables.IdleNoOp: "time outside all operations", tables.IdleUnknown: "unknown causes"}

package report

import (
	"cmp"
	"fmt"
	"math"
	"strings"

	"gpt2scope/internal/humanize"
	"gpt2scope/traces"
	"gpt2scope/traces/tables"
	"gpt2scope/traces/window"
)

// sentence says where the time went: the stage that took the most over all layers, or the copies if they took more than
// the kernels of any; idle time with its biggest cause; and how far the stages are from their least times.
func sentence(t *tables.Table, rows []stage) string {
	var work, idle, floors, floored, most, kernels int64
	var biggest *stage
	names, idleBy := map[string]int64{}, map[string]int64{} // kernels have a row for each launch shape
	byKernels := map[string]int64{}
	for i := range rows {
		r := &rows[i]
		switch {
		case r.IsWork():
			work += r.Exclusive
			if name := r.Phase + " " + r.Title; r.Kind == tables.RowWork {
				names[name] += r.Exclusive
				byKernels[name] += r.Exclusive - r.Copies
				kernels = max(kernels, byKernels[name])
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
	misleads := traces.Misleads(t.Findings)
	part := func(ns int64) string {
		if misleads || ns > t.Wall || t.Wall == 0 {
			return duration(ns)
		}
		return duration(ns) + nbsp + "(" + percent(ns, t.Wall, 1) + nbsp + "%)"
	}
	device := "the GPU"
	if t.Device < 0 {
		device = "the CPU"
	} else if len(t.Window.GPUNotes()) > 0 {
		device = fmt.Sprintf("GPU %d", t.Device)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "Of %s, %s%s", duration(t.Wall), unless(t.By == tables.ByOp, device+" worked for "), part(work))
	switch {
	case t.By == tables.ByOp:
		fmt.Fprintf(&b, " are inside operations%s, %s outside all.", unless(work+idle <= t.Wall, " of several threads"), part(idle))
	case idle == 0:
		b.WriteString(" and was never idle.")
	default:
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
			share := "most"
			if 2*longest <= idle {
				share = "the largest part"
			}
			fmt.Fprintf(&b, " %s of it because of %s: %s.", share, cmp.Or(causes[cause], cause), part(longest))
		}
	}
	if name, copied, in := copiesOf(t); copied > kernels {
		fmt.Fprintf(&b, " What took the most are copies: %s, %s", name, part(copied))
		if in != "" {
			fmt.Fprintf(&b, ", most of it in %s", in)
		}
		b.WriteString(".")
	} else if biggest != nil {
		fmt.Fprintf(&b, " The %s that took the most is %s", nouns[t.By], biggest.Title)
		if biggest.Phase != "" && biggest.Phase != biggest.Title {
			fmt.Fprintf(&b, " of the %s", biggest.Phase)
		}
		if n := len(biggest.Layers); n > 0 {
			fmt.Fprintf(&b, ", over %s", humanize.Count(n, "layer", "layers"))
		}
		fmt.Fprintf(&b, ": %s", part(most))
		if copies := most - byKernels[biggest.Phase+" "+biggest.Title]; 20*copies > most && !misleads {
			fmt.Fprintf(&b, ", %s%s%% of it copies and sets", percent(copies, most, 0), nbsp)
		}
		b.WriteString(".")
	}
	if says, ok := utilisation(t); ok && t.Wall > 0 && math.Abs(says-100*float64(work)/float64(t.Wall)) > farOff {
		fmt.Fprintf(&b, " The counter of GPU utilisation says %.0f%s%%: it is the driver's, and looks back over up to a second, "+
			"also before these %s.", says, nbsp, duration(t.Wall))
	}
	if _, tooFast := t.BelowFloor(); !tooFast && !misleads && floors > 0 && floored > 0 {
		fmt.Fprintf(&b, " Stages with a known floor took %.2f times that least time.", float64(floored)/float64(floors))
	}
	return b.String()
}

// farOff is how many percent of the time the driver's utilisation must differ from what was recorded to be explained.
const farOff = 20

// utilisation returns the mean of the driver's counter, if it was sampled.
func utilisation(t *tables.Table) (percent float64, ok bool) {
	sum, n := 0.0, 0
	if t.Device < 0 {
		return 0, false
	}
	for i := range t.Window.Events {
		e := &t.Window.Events[i]
		if e.Kind == traces.KindCounter && e.Name == "GPU utilisation" && e.Lane.Device == t.Device {
			sum, n = sum+e.Value, n+1
		}
	}
	return sum / float64(max(1, n)), n > 0
}

// copiesOf returns the copies of a name that own the most time, and the stage that most of that is of.
func copiesOf(t *tables.Table) (name string, ns int64, in string) {
	if t.Device < 0 {
		return "", 0, ""
	}
	type of struct{ name, row string }
	sums := map[of]int64{}
	t.Window.Sweep(t.Time, func(e, _ *traces.Event, _, own window.Interval) {
		if e.Kind == traces.KindMemcpy || e.Kind == traces.KindMemset {
			row := ""
			if i := t.RowOf(e); i >= 0 && t.Rows[i].Kind == tables.RowWork {
				if row = traces.InAnyLayer(t.Rows[i].Name); t.Rows[i].Phase != "" && t.Rows[i].Phase != row {
					row += " of the " + t.Rows[i].Phase
				}
			}
			sums[of{e.Name, ""}] += own.Length()
			if row != "" {
				sums[of{e.Name, row}] += own.Length()
			}
		}
	})
	most := int64(0)
	for k, sum := range sums {
		if k.row == "" && (sum > ns || sum == ns && k.name < name) {
			name, ns = k.name, sum
		}
	}
	for k, sum := range sums {
		if k.name == name && k.row != "" && (sum > most || sum == most && k.row < in) {
			in, most = k.row, sum
		}
	}
	if 2*most <= ns {
		in = ""
	}
	return name, ns, in
}

// nouns say what a row of work is.
var nouns = map[tables.By]string{tables.ByStage: "stage", tables.ByKernel: "kernel", tables.ByOp: "operation"}

// causes puts causes of idle time into a sentence; the others are words of one already.
var causes = map[string]string{tables.IdleHost: "a late host", tables.IdleDependency: "dependencies between kernels",
	tables.IdleEvent: "events of other streams", tables.IdleStart: "what the program does before its first pass",
	tables.IdleUnknown: "unknown causes"}

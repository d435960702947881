package trace

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"gpt2scope/cmd/infer/cli"
	"gpt2scope/internal/humanize"
	"gpt2scope/internal/table"
	"gpt2scope/traces/judge"
	"gpt2scope/traces/window"
)

// newTraceKPI makes "infer trace kpi".
func newTraceKPI() *cobra.Command {
	var gpu int
	var asJSON, define bool
	c := &cobra.Command{
		Use:   "kpi FILE...",
		Short: "Measure a recording: transfers, overlap, utilisation, queueing, counters",
		Long: `kpi reads a recording of a GPU and prints one table of indicators: transfers, overlap,
utilisation, queueing, synchronisation, counters; --define says how each is defined. A
checklist answers with the numbers: are transfers longer than computing? Could a CPU be
faster? Is the GPU poorly used? Does memory limit it? Do threads diverge?

The column 'passes' is of the passes after the warm-up; in a recording that names no
passes they are found by the repetition of kernels. 'before' is of what comes before them:
loading and warm-up. An indicator that the recording does not have says what would record
it. --counters adds the counters of Nsight Compute or nvprof of the same program.`,
		Example: `  infer trace kpi run.sqlite
  infer trace kpi run.sqlite --counters run.ncu.csv --define`,
		Args: someFiles,
		RunE: func(c *cobra.Command, args []string) error {
			t, err := loadTraces(c, args)
			if err != nil {
				return err
			}
			report, err := judge.Measure(t, int32(gpu))
			if err != nil {
				return fmt.Errorf("%s: %w", traceName(args[0]), err)
			}
			return tell(c, asJSON, report, func(w io.Writer) { printKPI(w, report, define) })
		},
	}
	cli.AddFlags(c.Flags(), "Indicators", func(f *pflag.FlagSet) {
		f.BoolVar(&define, "define", false, "say how each indicator is defined")
		f.BoolVar(&asJSON, "json", false, "print one JSON object")
		addGPU(f, &gpu)
	})
	return c
}

// printKPI writes the indicators for people.
func printKPI(w io.Writer, r *judge.Report, define bool) {
	passes, heading := humanize.Count(r.Passes, "pass", "passes"), "indicator\tunit\tpasses"
	switch r.PassesFrom {
	case window.FromRepetition:
		passes += ", which are found by the repetition of kernel names"
	case window.FromNothing:
		passes, heading = "all work: no passes were found", "indicator\tunit\tall work"
	}
	fmt.Fprintf(w, "%s\nwall time %s ms, of %s", r.Source, Milliseconds(r.Wall), passes)
	if r.Before > 0 {
		heading += "\tbefore"
		fmt.Fprintf(w, "; before it %s ms of loading", Milliseconds(r.Before))
		if r.WarmUpPasses > 0 {
			fmt.Fprintf(w, " and warm-up (%s)", humanize.Count(r.WarmUpPasses, "pass", "passes"))
		}
	}
	fmt.Fprintln(w)
	for _, n := range r.Notes {
		fmt.Fprintf(w, "! %s\n", n)
	}
	fmt.Fprintln(w)
	lines := [][]string{strings.Split(heading, "\t")}
	var missing []string // what would record them
	names := map[string][]string{}
	for _, x := range r.Indicators {
		value, unit := "not in this recording", x.Unit
		if x.Value != nil {
			value, unit = kpiNumber(*x.Value, x.Unit)
		} else {
			if names[x.RecordWith] == nil {
				missing = append(missing, x.RecordWith)
			}
			names[x.RecordWith] = append(names[x.RecordWith], x.Name)
		}
		before := ""
		if x.Before != nil {
			before, _ = kpiNumber(*x.Before, x.Unit)
		}
		lines = append(lines, []string{x.Name, unit, value, before}[:len(lines[0])])
	}
	table.Align(w, func(i int) bool { return i < 2 }, lines)
	for _, x := range r.Indicators {
		if len(x.Where) > 0 {
			fmt.Fprintf(w, "\n%s: %s\n", x.Name, strings.Join(x.Where, "; "))
		}
	}
	if len(missing) > 0 {
		fmt.Fprint(w, "\nnot in this recording:\n")
	}
	for _, with := range missing {
		fmt.Fprintf(w, "  %s\n    record with %s\n", strings.Join(names[with], ", "), with)
	}
	fmt.Fprint(w, "\nchecklist:\n")
	for _, check := range r.Checks {
		fmt.Fprintf(w, "  %s %s\n    %s\n", check.Question, strings.ToUpper(string(check.Answer)), check.Evidence)
		if check.Next != "" {
			fmt.Fprintf(w, "    next: %s\n", check.Next)
		}
	}
	if !define {
		return
	}
	fmt.Fprint(w, "\ndefinitions:\n")
	for _, x := range r.Indicators {
		name := x.Name
		if x.Unit == "GB/s" || x.Unit == "bytes" || x.Unit == "copies" {
			name += " (" + x.Unit + ")"
		}
		fmt.Fprintf(w, "  %s: %s\n", name, x.Definition)
	}
}

// kpiNumber writes a value with the unit that fits people.
func kpiNumber(v float64, unit string) (text, shown string) {
	switch unit {
	case "ns":
		return humanize.Separate(fmt.Sprintf("%.3f", v/1e3)), "us"
	case "%", "GB/s":
		return fmt.Sprintf("%.2f", v), unit
	}
	if v == float64(int64(v)) {
		return humanize.Thousands(int64(v)), unit
	}
	return fmt.Sprintf("%.2f", v), unit
}

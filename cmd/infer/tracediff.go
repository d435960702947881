package main

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"io"
	"math"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"gpt2scope/traces/diff"
)

// newTraceDiff makes "infer trace diff".
func newTraceDiff() *cobra.Command {
	var format string
	var alpha float64
	c := &cobra.Command{
		Use:   "diff A B",
		Short: "Compare two recordings stage by stage, with tests for what is noise",
		Long: `diff compares two recordings: for each kind of pass the whole pass, its idle time, and
its stages. Stages are matched by name, so passes of 1 and of 12 layers compare in the
stages that they share. Lines that begin with '!' say what makes the comparison unfair.

A sample is the times of one stage in the passes of one recording without warm-up, as
'infer trace show' divides the wall time. A whole pass lasts from the end of the work of
the previous pass to the end of its own work; it is the sum of its stages, idle time and
other work. The columns, as in benchstat:

  A, B    the medians; ± is how far the confidence interval of the median reaches, in
          percent of the median, on the farther side (order statistics; ∞ if there
          are too few values)
  change  the difference of the medians, in us and in percent of A's
  shift   the interval of the shifts between the samples that the U test would not
          reject (Hodges and Lehmann), in percent of A's median; a shift is a median of
          differences, not a difference of medians, so the change may lie outside
  p, n    of the Mann-Whitney U test, which assumes no distribution; the passes

Many stages are compared at once: of 100 that did not change, 5 would have p < 0.05 by
chance. The verdict therefore uses p after the correction of Benjamini and Hochberg for
the number of rows: at most a share --alpha of the reported changes is expected to be
chance. '~' is a change within the noise. There is no verdict for fewer than 4 passes,
or for so few that no difference could be significant.

Each sample comes from the passes of one run. Differences between runs (clocks,
placement, neighbours) are not in it: confirm a small change with several pairs of
recordings.`,
		Example: `  infer trace diff before.json.gz after.json.gz
  infer trace diff eager.sqlite graph.sqlite --alpha 0.01
  infer trace diff a.json.gz b.json.gz --format csv > diff.csv`,
		Args: twoFiles,
		RunE: func(c *cobra.Command, args []string) error {
			return traceDiff(c, args[0], args[1], format, alpha)
		},
	}
	addFlags(c.Flags(), "Comparison", func(f *pflag.FlagSet) {
		addFormat(f, &format, "table, csv or json")
		f.Float64Var(&alpha, "alpha", 0.05, "accept that a share `P` of the reported changes is chance;\nintervals hold with confidence 1 - P")
	})
	return c
}

// twoFiles are the arguments of a command that compares.
func twoFiles(c *cobra.Command, args []string) error {
	switch {
	case len(args) < 2:
		return usagef("give the two traces to compare: %s A B", c.CommandPath())
	case len(args) > 2:
		return usagef("unexpected word %q; '%s' compares two files", args[2], c.CommandPath())
	}
	return nil
}

// diffJSON is what "infer trace diff --format json" prints.
type diffJSON struct {
	FileA string `json:"file_a"`
	FileB string `json:"file_b"`
	*diff.Comparison
}

func traceDiff(c *cobra.Command, a, b, format string, alpha float64) error {
	switch {
	case format != "table" && format != "csv" && format != "json":
		return usagef("--format %s: it must be table, csv or json", shellQuote(format))
	case a == "-" && b == "-":
		return usagef("standard input can be one of the two traces, not both")
	case !(alpha > 0 && alpha <= 0.5): // also NaN
		return usagef("--alpha %g: it must be above 0 and at most 0.5", alpha)
	}
	stdout := c.OutOrStdout()
	ta, err := loadTrace(c, a)
	if err != nil {
		return err
	}
	tb, err := loadTrace(c, b)
	if err != nil {
		return err
	}
	diff, err := diff.Compare(ta, tb, alpha)
	if err != nil {
		return fmt.Errorf("%s (A) and %s (B): %w", a, b, err)
	}
	switch format {
	case "json":
		return writeJSON(stdout, diffJSON{a, b, diff})
	case "csv":
		return writeDiffCSV(stdout, diff)
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, "A  %s: %s\nB  %s: %s\n", a, diff.A, b, diff.B)
	for _, note := range diff.Notes {
		fmt.Fprintf(&out, "! %s\n", note)
	}
	out.WriteByte('\n')
	printDiff(&out, diff)
	return writeOutput(stdout, out.Bytes())
}

// printDiff writes the comparison for people.
func printDiff(w io.Writer, d *diff.Comparison) {
	heading := fmt.Sprintf("A us\t±\tB us\t±\tchange us\tchange\tshift, %g %%\tp\tn\t", 100*(1-d.Alpha))
	changed, few := 0, 0
	printText(w, nameLast, heading, d.Rows, func(r diff.Change) string {
		shift, change, between, p, n := "", "", "", "", ""
		switch r.Verdict {
		case diff.OnlyInA, diff.OnlyInB:
			change = string(r.Verdict)
		default:
			shift = fmt.Sprintf("%+.3f", r.Shift/1e3)
			n = strconv.Itoa(r.A.N)
			if r.A.N != r.B.N {
				n += "+" + strconv.Itoa(r.B.N)
			}
		}
		if r.PercentLow != nil && r.PercentHigh != nil {
			between = fmt.Sprintf("%+.1f to %+.1f %%", *r.PercentLow, *r.PercentHigh)
		}
		if r.P != nil {
			p = fmt.Sprintf("%.3f", *r.P)
		}
		switch r.Verdict {
		case diff.Longer, diff.Shorter:
			changed++
			change = string(r.Verdict)
			if r.Percent != nil {
				change = fmt.Sprintf("%+.1f %%", *r.Percent)
			}
		case diff.NoChange:
			change = "~"
		case diff.TooFew:
			few++
			change = "too few"
		}
		aMedian, aSpread := sampleText(r.A)
		bMedian, bSpread := sampleText(r.B)
		return fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s  %s", aMedian, aSpread, bMedian, bSpread, shift, change, between, p, n, r.Phase, r.Name)
	})
	fmt.Fprintf(w, "\n%s tested, %d changed", count(d.Tests, "row"), changed)
	if d.Tests > 0 {
		fmt.Fprintf(w, " (p corrected for their number, below %g)", d.Alpha)
	}
	fmt.Fprintln(w, "; ~ is no change beyond the noise")
	if few > 0 {
		fmt.Fprintf(w, "%s too few passes for a verdict: record more of them\n", has(few, "row"))
	}
	fmt.Fprintln(w, "the intervals hold for the passes of these two runs; other runs differ more")
}

// has writes a number of things and the verb.
func has(n int, thing string) string {
	if n == 1 {
		return "1 " + thing + " has"
	}
	return count(n, thing) + " have"
}

// sampleText writes a median and how far its interval reaches.
func sampleText(s *diff.Sample) (median, spread string) {
	if s == nil {
		return "", ""
	}
	median = strconv.FormatFloat(s.Median/1e3, 'f', 3, 64)
	switch {
	case s.Low == nil || s.High == nil:
		return median, "∞"
	case s.Median == 0:
		return median, ""
	}
	return median, fmt.Sprintf("%.0f %%", 100*math.Max(s.Median-*s.Low, *s.High-s.Median)/s.Median)
}

// writeDiffCSV writes all that is known of each row, times in ns. Notes are columns
// of no row: they stand in the table and in JSON.
func writeDiffCSV(w io.Writer, d *diff.Comparison) error {
	var b bytes.Buffer
	c := csv.NewWriter(&b)
	c.Write([]string{"kind", "phase", "name", "verdict", "a_n", "a_median_ns", "a_low_ns", "a_high_ns", "b_n", "b_median_ns", "b_low_ns", "b_high_ns",
		"shift_ns", "shift_low_ns", "shift_high_ns", "change_percent", "change_low_percent", "change_high_percent", "p", "p_adjusted"})
	number := func(v *float64) string {
		if v == nil {
			return ""
		}
		return strconv.FormatFloat(*v, 'g', -1, 64)
	}
	for _, r := range d.Rows {
		row := []string{string(r.Kind), r.Phase, r.Name, string(r.Verdict)}
		for _, s := range []*diff.Sample{r.A, r.B} {
			if s == nil {
				row = append(row, "", "", "", "")
				continue
			}
			row = append(row, strconv.Itoa(s.N), number(&s.Median), number(s.Low), number(s.High))
		}
		shift := ""
		if r.A != nil && r.B != nil {
			shift = number(&r.Shift)
		}
		c.Write(append(row, shift, number(r.Low), number(r.High), number(r.Percent), number(r.PercentLow), number(r.PercentHigh), number(r.P), number(r.Adjusted)))
	}
	c.Flush()
	if err := c.Error(); err != nil {
		return err
	}
	return writeOutput(w, b.Bytes())
}

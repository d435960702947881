package trace

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"gpt2scope/cmd/infer/cli"
	"gpt2scope/internal/humanize"
	"gpt2scope/internal/table"
	"gpt2scope/traces/diff"
	"gpt2scope/traces/tables"
)

// diffOptions say what is compared and how it is shown.
type diffOptions struct {
	by     tables.By
	format string
	alpha  float64
	gate   float64 // percent; negative for none
	gpu    int
}

func newTraceDiff() *cobra.Command {
	o := diffOptions{gate: -1}
	c := &cobra.Command{
		Use:   "diff A B",
		Short: "Compare two recordings stage by stage, with tests for what is noise",
		Long: `diff compares two recordings: for each kind of pass the whole pass, its idle time, and its stages, each over
all layers, matched by name. The largest change comes first. Lines that begin with '!' say what makes the
comparison unfair. If a recording has no stages, or no kind of pass is in both, the rows are operators of
the framework, or else kernels by name, over the whole recordings; a sample is then the times of the single
ones.

A sample is the times of one stage in the passes of one recording without warm-up. As in benchstat, A and B
are medians, ± is how far the confidence interval of the median reaches (∞ if there are too few values), p
is of the Mann-Whitney U test, and '~' is a change within the noise. The verdict uses p after the correction
of Benjamini and Hochberg for the number of rows: at most a share --alpha of the reported changes is
expected to be chance. There is no verdict for fewer than 4 passes. Runs differ more than the passes of one:
confirm a small change with several pairs of recordings.

With --gate 5% the exit status is 3 if a pass or a stage takes longer by more than 5 % and by its verdict, for
checks of changes; it is 1 if no row has enough passes for a verdict. --format markdown is for their summary.`,
		Example: `  infer trace diff before.json.gz after.json.gz
  infer trace diff eager.sqlite graph.sqlite --alpha 0.01 --by layer
  infer trace diff main.json.gz change.json.gz --gate 5% --format markdown >> "$GITHUB_STEP_SUMMARY"`,
		Args: cli.Words(2, 2, "the two traces to compare", "A B"),
		RunE: func(c *cobra.Command, args []string) error { return traceDiff(c, args[0], args[1], &o) },
	}
	cli.AddFlags(c.Flags(), "Comparison", func(f *pflag.FlagSet) {
		f.Var(cli.OneOf(&o.by, tables.ByFolded, diff.Bys...), "by", "rows are `WHAT`: folded (a stage over all layers), "+
			"stage, layer, op or kernel")
		cli.AddFormat(f, &o.format, "table, csv, json or markdown")
		f.Func("gate", "exit with status 3 if a pass or stage takes longer by more\nthan `PERCENT`, and not by chance",
			func(text string) (err error) {
				o.gate, err = strconv.ParseFloat(strings.TrimSuffix(text, "%"), 64)
				if err != nil || !(o.gate >= 0) {
					return errors.New("it must be a percentage, such as 5%")
				}
				return nil
			})
		f.Var(cli.Float(&o.alpha, 0.05, cli.Between(math.SmallestNonzeroFloat64, 0.5)), "alpha", "accept that a share `P` "+
			"of the reported changes is chance;\nintervals hold with confidence 1 - P")
		addGPU(f, &o.gpu)
	})
	return c
}

func traceDiff(c *cobra.Command, a, b string, o *diffOptions) error {
	if a == "-" && b == "-" {
		return cli.Usagef("standard input can be one of the two traces, not both")
	}
	stdout := c.OutOrStdout()
	ta, err := loadTraces(c, []string{a})
	if err != nil {
		return err
	}
	tb, err := loadTraces(c, []string{b})
	if err != nil {
		return err
	}
	d, err := diff.Compare(ta, tb, o.by, o.alpha, int32(o.gpu))
	if err != nil {
		return fmt.Errorf("%s (A) and %s (B): %w", traceName(a), traceName(b), err)
	}
	d.FileA, d.FileB = traceName(a), traceName(b)
	if err := writeDiff(stdout, d, o); err != nil || o.gate < 0 {
		return err
	}
	return gateDiff(d, o.gate)
}

// gateDiff fails if something takes longer by more than so many percent, or if nothing can be said.
func gateDiff(d *diff.Comparison, gate float64) error {
	if d.Tests == 0 {
		return fmt.Errorf("--gate: no row has enough passes for a verdict: record at least 4 of each kind")
	}
	var over []string
	for _, r := range d.Over(gate) {
		over = append(over, strings.TrimSpace(r.Phase+" "+r.Name)+" "+verdictText(&r))
	}
	if len(over) > 0 {
		return cli.Gatef("--gate: %s longer by more than %g %%: %s", humanize.Count(len(over), "row takes", "rows take"), gate,
			strings.Join(humanize.First(over, 5), ", "))
	}
	return nil
}

func writeDiff(stdout io.Writer, d *diff.Comparison, o *diffOptions) error {
	if err := sortDiff(d, o.format); err != nil {
		return err
	}
	switch o.format {
	case "json":
		return cli.WriteJSON(stdout, d)
	case "csv":
		return cli.WriteCSV(stdout, diffColumns, d.Rows)
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, "A  %s: %s\nB  %s: %s\n", d.FileA, d.A, d.FileB, d.B)
	if d.Instead != "" {
		fmt.Fprint(&out, d.Instead)
		if d.By == tables.ByKernel {
			fmt.Fprint(&out, "; --infer finds stages in recordings that name none")
		}
		fmt.Fprintln(&out)
	}
	for _, note := range d.Notes {
		fmt.Fprintf(&out, "! %s\n", note)
	}
	columns, values := slices.Clone(diffColumns), "passes"
	if d.By == tables.ByKernel || d.Instead != "" {
		values = map[tables.By]string{tables.ByKernel: "kernels and copies", tables.ByOp: "operations"}[d.By]
	}
	for i := range columns {
		columns[i].Legend = strings.Replace(columns[i].Legend, "passes", values, 1)
	}
	fmt.Fprintln(&out)
	if o.format == "markdown" {
		table.Markdown(&out, columns, d.Rows)
	} else {
		table.Print(&out, columns, d.Rows)
	}
	table.Legend(&out, columns)
	fmt.Fprintln(&out)
	verdicts := map[diff.Verdict]int{}
	for _, r := range d.Rows {
		if values == "passes" || r.Kind != diff.ChangePass && r.Kind != diff.ChangeIdle { // else the whole recording: one value
			verdicts[r.Verdict]++
		}
	}
	fmt.Fprintf(&out, "%s tested, %d changed", cli.Count(d.Tests, "row"), verdicts[diff.Longer]+verdicts[diff.Shorter])
	if d.Tests > 0 {
		fmt.Fprintf(&out, " (p corrected for their number, below %g)", d.Alpha)
	}
	fmt.Fprintln(&out, "; ~ is no change beyond the noise")
	if few := verdicts[diff.TooFew]; few > 0 {
		fmt.Fprintf(&out, "%s too few %s for a verdict: record more of them\n",
			humanize.Count(few, "row has", "rows have"), values)
	}
	fmt.Fprintf(&out, "the intervals hold for the %s of these two runs; other runs differ more\n", values)
	return cli.WriteText(stdout, out.Bytes())
}

// sortDiff puts the largest changes first, within each kind of pass the whole pass and its idle time.
func sortDiff(d *diff.Comparison, format string) error {
	var phases []string
	for _, r := range d.Rows {
		if !slices.Contains(phases, r.Phase) {
			phases = append(phases, r.Phase)
		}
	}
	return cli.SortRows(d.Rows, diffColumns, "shift", format, func(r *diff.Change) int {
		at := 2 * slices.Index(phases, r.Phase)
		if r.Kind != diff.ChangePass && r.Kind != diff.ChangeIdle {
			at++
		}
		return at
	})
}

// diffColumns are the columns of a comparison. Changes sort by size, whatever their sign.
var diffColumns = slices.Concat([]table.Column[diff.Change]{
	{Key: "kind", Cell: func(r *diff.Change) table.Cell { return table.String(string(r.Kind)) }},
	{Key: "phase", Cell: func(r *diff.Change) table.Cell { return table.String(r.Phase) }},
	{Key: "name", Cell: func(r *diff.Change) table.Cell { return table.String(r.Name) }},
	{Key: "verdict", Cell: func(r *diff.Change) table.Cell { return table.String(string(r.Verdict)) }},
}, sampleColumns("A", "how far its interval reaches", func(r *diff.Change) *diff.Sample { return r.A }),
	sampleColumns("B", "", func(r *diff.Change) *diff.Sample { return r.B }), []table.Column[diff.Change]{
		{Key: "shift", Unit: "ns", Title: "change us", Cell: func(r *diff.Change) table.Cell {
			return table.When(r.A != nil && r.B != nil, bySize(maybeCell(&r.Shift, "%+.3f")))
		}},
		{Key: "change", Unit: "percent", Title: "change", Cell: func(r *diff.Change) table.Cell {
			c := bySize(maybeCell(r.Percent, ""))
			c.Text = verdictText(r)
			return c
		}},
		{Key: "p", Title: "p", Legend: "of the U test", Cell: func(r *diff.Change) table.Cell {
			c := maybeCell(r.P, "")
			if r.P != nil {
				c.Text = fmt.Sprintf("%.3f", *r.P)
			}
			return c
		}},
		{Key: "p_adjusted", Cell: func(r *diff.Change) table.Cell { return maybeCell(r.Adjusted, "") }},
		{Title: "n", Legend: "passes", Cell: func(r *diff.Change) table.Cell {
			switch {
			case r.A == nil || r.B == nil:
				return table.None
			case r.A.N != r.B.N:
				return table.String(fmt.Sprintf("%d+%d", r.A.N, r.B.N))
			}
			return table.String(strconv.Itoa(r.A.N))
		}},
		{Title: " ", Left: true, Cell: func(r *diff.Change) table.Cell {
			return table.String(strings.TrimSpace(r.Phase + "  " + r.Name))
		}},
	})

// sampleColumns are the columns of one of the two samples.
func sampleColumns(name, reaches string, of func(*diff.Change) *diff.Sample) []table.Column[diff.Change] {
	column := func(key, unit, title, legend string, cell func(*diff.Sample) table.Cell) table.Column[diff.Change] {
		return table.Column[diff.Change]{Key: key, Unit: unit, Title: title, Legend: legend,
			Cell: func(r *diff.Change) table.Cell {
				if s := of(r); s != nil {
					return cell(s)
				}
				return table.None
			}}
	}
	key := strings.ToLower(name)
	return []table.Column[diff.Change]{
		column(key+"_n", "", "", "", func(s *diff.Sample) table.Cell { return table.Int(int64(s.N)) }),
		column(key+"_median", "ns", name+" us", "median of "+name+"'s passes",
			func(s *diff.Sample) table.Cell { return maybeCell(&s.Median, "%.3f") }),
		column("", "", "±", reaches, func(s *diff.Sample) table.Cell { return table.String(spreadText(s)) }),
		column(key+"_low", "ns", "", "", func(s *diff.Sample) table.Cell { return maybeCell(s.Low, "") }),
		column(key+"_high", "ns", "", "", func(s *diff.Sample) table.Cell { return maybeCell(s.High, "") }),
	}
}

func bySize(c table.Cell) table.Cell {
	c.Number = math.Abs(c.Number)
	return c
}

// maybeCell is a number that may be unknown: in CSV with all digits, in tables, if it has a
// format there, ns as microseconds.
func maybeCell(v *float64, format string) table.Cell {
	if v == nil {
		return table.None
	}
	c := table.Cell{Number: *v, CSV: strconv.FormatFloat(*v, 'g', -1, 64), Text: ""}
	if format != "" {
		c.Text = fmt.Sprintf(format, *v/1e3)
	}
	return c
}

func verdictText(r *diff.Change) string {
	switch {
	case (r.Verdict == diff.Longer || r.Verdict == diff.Shorter) && r.Percent != nil:
		return fmt.Sprintf("%+.1f %%", *r.Percent)
	case r.Verdict == diff.NoChange:
		return "~"
	}
	return string(r.Verdict)
}

// spreadText says how far the interval of a median reaches, in percent of it.
func spreadText(s *diff.Sample) string {
	switch {
	case s.Low == nil || s.High == nil:
		return "∞"
	case s.Median == 0:
		return ""
	}
	return fmt.Sprintf("%.0f %%", 100*math.Max(s.Median-*s.Low, *s.High-s.Median)/s.Median)
}

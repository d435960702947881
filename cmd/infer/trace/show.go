package trace

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"gpt2scope/cmd/infer/cli"
	"gpt2scope/internal/humanize"
	"gpt2scope/internal/table"
	"gpt2scope/traces"
	"gpt2scope/traces/tables"
)

// ShowOptions say how a table is shown.
type ShowOptions struct {
	By tables.By

	// anyTable shows another table if the trace has no stages.
	anyTable bool

	Format string // "table", "csv" or "json"; "" is "table"

	Columns string // of a table for people: MainColumns or "all"; "" is MainColumns in a terminal, else all
	Rows    cli.RowOptions
	GPU     int // -1 for the first that worked
}

// MainColumns is the value of --columns that shows the columns that matter most.
const MainColumns = "main"

func shown(columns []table.Column[tables.Row], o ShowOptions) []table.Column[tables.Row] {
	if o.Columns != MainColumns || o.By == tables.ByKernel {
		return columns
	}
	return slices.DeleteFunc(slices.Clone(columns), func(c table.Column[tables.Row]) bool {
		return c.Key != "" && !slices.Contains([]string{"layers", "calls", "time", "copies", "share", "gb_per_s", "tflop_per_s",
			"roofline"}, c.Key) && !tables.IsInside(c)
	})
}

func newTraceShow() *cobra.Command {
	var o ShowOptions
	c := &cobra.Command{
		Use:   "show FILE...",
		Short: "Say where the time of a recording went: a table that sums to wall time",
		Long: `show reads a recording and says where the time went. The table --by folded has one row for each stage of the
model over all layers: 'h.N.attn.c_attn'. Others have a row for each stage of each layer; for each operation
as PyTorch's profiler shows them, or function of Python; for each layer, phase (prefill, decode step), or
kernel; for the ranges of a name, on the host and projected onto the GPU; for each process. Several files,
such as those of the ranks of a program, are shown together, with their clocks aligned. Without --by, a
recording that has no passes of a model is shown by kernel, or by operation. The ranges of any program (NVTX,
record_function) make passes and stages: a repeated outermost range is a pass, and the path of an inner one a
stage. Names that differ only by numbers are one kind.

By folded, stage, layer, phase and kernel, the column 'time' sums to the wall time, and the rows that took
the most come first. A step or kernel owns the time in which it runs and no earlier one is still running.
Idle time is divided by cause. Until the API call that launches the next kernel, the host loads code,
allocates, waits for the GPU, a copy or its next input, or it is late. From that call to the start of the
kernel, it is launch latency. If that call had returned before the idle time began, it is a dependency on
the kernel before, or on an event of another stream. On the CPU, threads synchronise between steps.

The floor is the least time that the device could take: bytes divided by the bandwidth ceiling, or FLOPs
divided by the arithmetic ceiling, whichever is more. 'roofline %' is the floor in percent of the time; it
is withheld for a row that is faster.

Tables by folded, stage, layer and phase cover the passes after the warm-up; that by op does too, if the
recording has passes. All others cover the whole recording. Shares are withheld if they would mislead;
'infer trace check' says why.`,
		Example: `  infer trace show run.sqlite
  infer trace show run.json.gz --by stage --limit 20
  infer trace show run.json.gz --by kernel --format csv > run.csv`,
		Args: someFiles,
		RunE: func(c *cobra.Command, args []string) error {
			o.anyTable = !c.Flags().Changed("by")
			t, err := loadTraces(c, args)
			if err != nil {
				return err
			}
			if err := Show(c.OutOrStdout(), t, o); err != nil {
				return fmt.Errorf("%s: %w", traceName(args[0]), err)
			}
			return nil
		},
	}
	cli.AddFlags(c.Flags(), "Table", func(f *pflag.FlagSet) {
		f.Var(cli.OneOf(&o.By, tables.ByFolded, tables.Bys...), "by", "rows are `WHAT`: "+tables.List(tables.Bys))
		o.Rows.Register(f, "time, calls, floor", "time; plan keeps\nthe order of a pass")
		f.Var(cli.OneOf(&o.Columns, "", MainColumns, "all"), "columns", "`COLUMNS` of the table: main (calls, time, its "+
			"share, rates,\nroofline) or all (default: all, or main in a\nterminal)")
		cli.AddFormat(f, &o.Format, "table, csv or json")
		addGPU(f, &o.GPU)
	})
	return c
}

// layout writes a table. Its functions are called after the rows are sorted and cut.
type layout struct {
	Text func(io.Writer) // for people
	csv  func(io.Writer) error
}

// Show writes a table of a recording.
func Show(w io.Writer, t *traces.Trace, o ShowOptions) error {
	if o.Columns == "" && cli.IsTerminal(w) {
		o.Columns = MainColumns
	}
	table, show, err := LayTable(t, &o)
	if err != nil {
		return err
	}
	switch o.Format {
	case "json":
		return cli.WriteJSON(w, table)
	case "csv":
		return show.csv(w)
	}
	if o.GPU < 0 && o.By != tables.ByProcess && len(table.Window.GPUNotes()) > 0 {
		all, err := tables.Summarize(t, tables.ByProcess, -1)
		if err != nil {
			return err
		}
		each, err := layoutProcesses(all, ShowOptions{})
		if err != nil {
			return err
		}
		one := show.Text
		show.Text = func(w io.Writer) {
			each.Text(w)
			fmt.Fprintf(w, "\nGPU %d:\n", table.Device)
			one(w)
		}
	}
	return WriteTable(w, table, show)
}

// LayTable makes a table with its rows in order. It sets o.By to the table that it makes, if any would do.
func LayTable(t *traces.Trace, o *ShowOptions) (*tables.Table, layout, error) {
	var table *tables.Table
	var err error
	switch {
	case o.anyTable:
		if table, err = tables.SummarizeAny(t, int32(o.GPU)); err == nil && table.By != tables.ByStage {
			o.By = table.By
		}
	case o.By == tables.ByStage && o.Format == "json": // which has both
		table, err = tables.Summarize(t, tables.ByFolded, int32(o.GPU))
	default:
		table, err = tables.Summarize(t, o.By, int32(o.GPU))
	}
	if err != nil {
		return nil, layout{}, err
	}
	show, err := lay(table, *o)
	return table, show, err
}

// WriteTable writes a table for people, with what it is of and how far it is to be trusted.
func WriteTable(w io.Writer, table *tables.Table, show layout) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s\nwall time %s ms, which began %s ms after the recording did\ntrust: %s\n",
		table.Source, humanize.InMilliseconds(table.Wall), humanize.InMilliseconds(table.Before), table.Trust)
	for _, f := range table.Findings {
		if f.Misleads {
			fmt.Fprintf(&b, "! %s\n", f.Text)
		}
	}
	if traces.Misleads(table.Findings) {
		fmt.Fprintln(&b, "! shares are withheld: they would mislead")
	}
	fmt.Fprintf(&b, "%s\n", strings.Join(append(slices.Clone(table.Notes), ""), "\n"))
	show.Text(&b)
	return cli.WriteText(w, b.Bytes())
}

// planOrder is the value of --sort that keeps the order of the plan.
const planOrder = "plan"

// layoutRows lays out a table whose rows sum to the wall time.
func layoutRows(t *tables.Table, o ShowOptions) (layout, error) {
	columns, rows := tables.Columns(t, o.By), t.Rows
	columns = append(columns, table.Text("", "  ", func(r *tables.Row) string { return rowName(t, r) }))
	if o.By == tables.ByFolded {
		rows = t.Shown()
	}
	section := func(r *tables.Row) int { return slices.Index(tables.RowKinds, r.Kind) }
	name := o.Rows.Sort
	switch name {
	case planOrder:
		name = ""
	case "":
		name = "time"
		section = func(r *tables.Row) int {
			if r.Kind == tables.RowResidual {
				return 1
			}
			return 0
		}
	}
	if err := cli.SortRows(rows, columns, name, o.Format, section); err != nil {
		return layout{}, err
	}
	rows = tables.TopRows(rows, o.Rows.Limit, name != "")
	if o.By == tables.ByFolded {
		t.Folded = rows
	} else {
		t.Rows = rows
	}
	return layout{
		Text: func(w io.Writer) {
			columns := shown(columns, o)
			table.Print(w, columns, rows, wallRow(rows, columns)...)
			table.Legend(w, columns)
		},
		csv: func(w io.Writer) error { return cli.WriteCSV(w, columns, rows) },
	}, nil
}

// Milliseconds writes ns to the microsecond.
func rowName(t *tables.Table, r *tables.Row) string {
	name := r.Name
	switch {
	case r.Kind == tables.RowIdle:
		name = "idle: " + name
	case r.Kind == tables.RowOther && t.By == tables.ByKernel:
		name = "copy: " + name
	}
	if r.Phase != "" {
		name = r.Phase + "  " + name
	}
	if r.Bounded > 0 {
		name += fmt.Sprintf("  (%d of %s bounded by neighbours)", r.Bounded, cli.Count(r.Kernels, "kernel"))
	}
	return name
}

// wallRow is the last line: the sum of the times.
func wallRow(rows []tables.Row, columns []table.Column[tables.Row]) []table.Cell {
	var sum tables.Row
	for i := range rows {
		sum.Exclusive += rows[i].Exclusive
		if p := rows[i].Inside; p != nil {
			if sum.Inside == nil {
				sum.Inside = new(traces.Parts)
			}
			sum.Inside.Add(*p)
		}
	}
	var cells []table.Cell
	for _, c := range columns {
		cell := table.None
		switch {
		case c.Title == "":
			continue
		case c.Key == "time" || c.Key == "share" || tables.IsInside(c):
			cell = c.Cell(&sum)
		case c.Left:
			cell = table.String("wall time")
		}
		cells = append(cells, cell)
	}
	return cells
}

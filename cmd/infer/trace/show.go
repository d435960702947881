package trace

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
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

// shown returns the columns that --columns asks for.
func shown(columns []table.Column[tables.Row], o ShowOptions) []table.Column[tables.Row] {
	if o.Columns != MainColumns || o.By == tables.ByKernel {
		return columns
	}
	return slices.DeleteFunc(slices.Clone(columns), func(c table.Column[tables.Row]) bool {
		return c.Key != "" && !slices.Contains([]string{"layers", "calls", "time", "copies", "share", "gb_per_s", "tflop_per_s",
			"roofline"}, c.Key) && !insideKey(c)
	})
}

// newTraceShow makes "infer trace show".
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
		table.Source, Milliseconds(table.Wall), Milliseconds(table.Before), table.Trust)
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
	columns, rows := rowColumns(t, o.By), t.Rows
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
		t.Folded = nil
		for _, r := range rows {
			t.Folded = append(t.Folded, tables.Folded{Row: r})
		}
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
func Milliseconds(ns int64) string { return strconv.FormatFloat(float64(ns)/1e6, 'f', 3, 64) }

// rowColumns are the columns of a table whose rows sum to the wall time.
func rowColumns(t *tables.Table, by tables.By) []table.Column[tables.Row] {
	type row = tables.Row
	type cell = func(*row) table.Cell
	byKernel := t.By == tables.ByKernel
	hasWork := func(r *row) bool { return r.Kind == tables.RowWork || r.Kind == tables.RowOther }
	when := func(is func(*row) bool, of cell) cell {
		return func(r *row) table.Cell { return table.When(is(r), of(r)) }
	}
	stage := func(of cell) cell { return when(func(r *row) bool { return r.Kind == tables.RowWork }, of) }
	moved := func(of cell) cell {
		return when(func(r *row) bool { return r.Kind == tables.RowWork || r.Bytes > 0 }, of)
	}
	measured := func(of cell) cell { return when(func(r *row) bool { return r.Max > 0 }, of) }
	shape := func(of func(*tables.Shape) table.Cell) cell {
		return stage(func(r *row) table.Cell {
			return table.When(byKernel, table.Known(r.Shape.Known(), of(cmp.Or(r.Shape, &tables.Shape{}))))
		})
	}
	occupancy := func(of func(*tables.Occupancy) table.Cell) cell {
		return stage(func(r *row) table.Cell {
			return table.When(byKernel, table.Known(r.Occupancy != nil, of(cmp.Or(r.Occupancy, &tables.Occupancy{}))))
		})
	}
	// inside is what SMs did inside a kernel, as a mean over them.
	inside := func(what, legend string, of func(*traces.Parts) int64) table.Column[row] {
		return table.Column[row]{Key: what, Unit: "ns", Title: what + " us", Legend: legend, Cell: func(r *row) table.Cell {
			return table.When(r.Inside != nil, table.Nanoseconds(of(cmp.Or(r.Inside, new(traces.Parts)))))
		}}
	}
	rate := func(n, ns int64, scale float64) table.Cell {
		return table.Known(n > 0 && ns > 0, table.Rate(float64(n)/float64(max(1, ns))*scale))
	}
	blank := func(is bool, c table.Cell) table.Cell { // for people
		if is {
			c.Text = ""
		}
		return c
	}
	hasCopies := slices.ContainsFunc(t.Rows, func(r row) bool { return r.Copies > 0 })
	columns := []table.Column[row]{
		{Key: "kind", Cell: func(r *row) table.Cell { return table.String(string(r.Kind)) }},
		{Key: "phase", Cell: func(r *row) table.Cell { return table.String(r.Phase) }},
		{Key: "name", Cell: func(r *row) table.Cell { return table.String(r.Name) }},
		{Key: "op", Cell: func(r *row) table.Cell { return table.String(r.Op) }},
		{Key: "layers", Title: "layers", Legend: "how many the row sums",
			Cell: func(r *row) table.Cell { return table.Int(int64(r.Layers)) }},
		table.Count("calls", "calls", func(r *row) int { return r.Calls }),
		table.Count("kernels", "kernels", func(r *row) int { return r.Kernels }),
		{Key: "host", Unit: "ns", Title: "host us", Legend: "while the host launches it",
			Cell: func(r *row) table.Cell { return blank(r.Host == 0, table.Nanoseconds(r.Host)) }},
		{Key: "busy", Unit: "ns", Title: "GPU us", Legend: "durations of its kernels, which may overlap",
			Cell: func(r *row) table.Cell { return blank(!hasWork(r) && r.Kernels == 0, table.Nanoseconds(r.Busy)) }},
		table.Time("time", "time us", "its part of the wall time", func(r *row) int64 { return r.Exclusive }),
		{Key: "copies", Unit: "ns", Title: "copies us", Legend: "of the time, that of copies and sets",
			Cell: func(r *row) table.Cell { return table.When(r.Copies > 0, table.Nanoseconds(r.Copies)) }},
		{Key: "share", Unit: "percent", Title: "% of wall", Cell: func(r *row) table.Cell {
			v, ok := t.Share(r)
			return table.Known(ok, table.Cell{Number: v, CSV: strconv.FormatFloat(v, 'f', 4, 64),
				Text: strconv.FormatFloat(v, 'f', 2, 64)})
		}},
		inside("weights", "waiting for weights, or keys and values", func(p *traces.Parts) int64 { return p.Weights }),
		inside("inputs", "waiting for what other SMs compute", func(p *traces.Parts) int64 { return p.Inputs }),
		inside("compute", "from the inputs to the published outputs", func(p *traces.Parts) int64 { return p.Compute }),
		inside("imbalance", "waiting for the last SM", func(p *traces.Parts) int64 { return p.Imbalance }),
		{Key: "min", Unit: "ns", Cell: measured(func(r *row) table.Cell { return table.Nanoseconds(r.Min) })},
		{Key: "median", Unit: "ns",
			Cell: measured(func(r *row) table.Cell { return table.Known(r.Median >= r.Min, table.Nanoseconds(r.Median)) })},
		{Key: "max", Unit: "ns", Cell: measured(func(r *row) table.Cell { return table.Nanoseconds(r.Max) })},
		{Key: "mean", Unit: "ns", Cell: measured(func(r *row) table.Cell { return table.Mean(r.Mean) })},
		{Key: "stddev", Unit: "ns", Legend: "standard deviation of a sample",
			Cell: measured(func(r *row) table.Cell { return table.Mean(r.StdDev) })},
		{Key: "p25", Unit: "ns", Cell: measured(func(r *row) table.Cell { return table.Nanoseconds(r.P25) })},
		{Key: "p75", Unit: "ns", Cell: measured(func(r *row) table.Cell { return table.Nanoseconds(r.P75) })},
		{Key: "p95", Unit: "ns", Legend: "of 100 kernels 95 take no longer",
			Cell: measured(func(r *row) table.Cell { return table.Nanoseconds(r.P95) })},
		{Key: "p99", Unit: "ns", Cell: measured(func(r *row) table.Cell { return table.Nanoseconds(r.P99) })},
		{Key: "queued", Unit: "ns", Legend: "from the end of its call to its start, in the mean",
			Cell: when(hasWork, func(r *row) table.Cell {
				return table.Known(r.Launches > 0, table.Mean(float64(r.Queued)/float64(max(1, r.Kernels))))
			})},
		{Key: "flops", Title: "FLOPs",
			Cell: stage(func(r *row) table.Cell { return table.Known(r.FLOPs > 0, table.SI(r.FLOPs)) })},
		{Key: "bytes", Title: "bytes",
			Cell: moved(func(r *row) table.Cell { return table.Known(r.Bytes > 0, table.SI(r.Bytes)) })},
		{Key: "gb_per_s", Title: "GB/s", Cell: moved(func(r *row) table.Cell { return rate(r.Bytes, r.Exclusive, 1) })},
		{Key: "tflop_per_s", Title: "TFLOP/s",
			Cell: stage(func(r *row) table.Cell { return rate(r.FLOPs, r.Exclusive, 1e-3) })},
		{Key: "floor", Unit: "ns", Title: "floor us", Legend: "least time by the ceilings",
			Cell: stage(func(r *row) table.Cell { return table.Known(r.Floor > 0, table.Nanoseconds(r.Floor)) })},
		{Key: "roofline", Unit: "percent", Title: "roofline %", Legend: "floor / time", Cell: stage(func(r *row) table.Cell {
			v, ok := t.Roofline(r)
			return table.Known(ok, table.Float(v, 1))
		})},
		table.Count("launches", "launches", func(r *row) int { return r.Launches }),
		{Key: "grid", Cell: shape(func(s *tables.Shape) table.Cell { return table.String(tables.Dims(s.Grid)) })},
		{Key: "block", Cell: shape(func(s *tables.Shape) table.Cell { return table.String(tables.Dims(s.Block)) })},
		{Key: "warps", Cell: shape(func(s *tables.Shape) table.Cell { return table.Int((s.Threads() + 31) / 32) })},
		{Key: "registers", Cell: shape(func(s *tables.Shape) table.Cell {
			return table.Known(s.Registers > 0, table.Int(int64(s.Registers)))
		})},
		{Key: "shared", Unit: "bytes", Cell: shape(func(s *tables.Shape) table.Cell {
			n := int64(s.StaticShared) + int64(s.DynamicShared)
			return number(n, humanize.Thousands(n))
		})},
		{Key: "occupancy", Unit: "percent", Legend: "theoretical occupancy of an SM",
			Cell: occupancy(func(o *tables.Occupancy) table.Cell { return table.Float(o.Percent, 1) })},
		{Key: "limit", Legend: "what allows no more warps",
			Cell: occupancy(func(o *tables.Occupancy) table.Cell { return table.String(o.Limit) })},
		{Key: "waves", Legend: "how often the grid fills the GPU",
			Cell: occupancy(func(o *tables.Occupancy) table.Cell { return table.Known(o.Waves > 0, table.Float(o.Waves, 2)) })},
		{Key: "tail", Unit: "percent", Legend: "empty part of the last wave",
			Cell: occupancy(func(o *tables.Occupancy) table.Cell { return table.Known(o.Waves > 0, table.Float(o.Tail, 1)) })},
		{Key: "bounded", Cell: func(r *row) table.Cell { return table.Int(int64(r.Bounded)) }},
		{Key: "imbalance", Legend: "slowest thread / mean",
			Cell: stage(func(r *row) table.Cell { return table.Known(r.Imbalance > 0, table.Float(r.Imbalance, 2)) })},
	}
	columns = append(columns, counterColumns(t)...)
	columns = append(columns, table.Text("", "  ", func(r *row) string { return rowName(t, r) }))
	titles := map[string]string{} // of columns that this table shows in another way; "" hides one
	switch {
	case byKernel:
		titles = kernelTitles
	case t.Device < 0:
		titles = map[string]string{"host": "", "launches": "", "kernels": "events", "busy": "all threads us",
			"imbalance": "imbalance"}
	}
	inKernel := slices.ContainsFunc(t.Rows, func(r row) bool { return r.Inside != nil })
	columns = slices.DeleteFunc(columns, func(c table.Column[row]) bool {
		return c.Key == "queued" && !byKernel || c.Key == "copies" && !hasCopies ||
			c.Key == "layers" && by != tables.ByFolded ||
			// Two columns are called imbalance, and no recording has both.
			insideKey(c) != inKernel && (insideKey(c) || c.Key == "imbalance")
	})
	for i := range columns {
		c := &columns[i]
		if title, ok := titles[c.Key]; ok && c.Key != "" {
			c.Title = title
		}
		switch {
		case c.Key == "median" && t.By == tables.ByStage:
			c.Title = "median us"
		case c.Key == "layers" && !slices.ContainsFunc(t.Folded, func(f tables.Folded) bool { return f.Layers > 1 }):
			c.Title = ""
		case c.Key == "busy" && t.Device < 0 && !byKernel:
			c.Legend = "their times summed"
		}
	}
	return columns
}

// kernelTitles are headings of the table by kernel.
var kernelTitles = map[string]string{"kernels": "", "host": "", "flops": "", "bytes": "", "gb_per_s": "",
	"tflop_per_s": "", "floor": "", "roofline": "", "launches": "", "calls": "count", "median": "median us",
	"min": "min us", "max": "max us", "mean": "mean us", "stddev": "stddev us", "p95": "p95 us", "queued": "queued us",
	"grid": "grid", "block": "block", "warps": "warps", "registers": "regs", "shared": "shared B",
	"occupancy": "occup. %", "limit": "limited by", "waves": "waves", "tail": "tail %"}

func insideKey(c table.Column[tables.Row]) bool {
	return c.Unit == "ns" && slices.Contains([]string{"weights", "inputs", "compute", "imbalance"}, c.Key)
}

// counterTitles are the headings of hardware counters.
var counterTitles = map[string]string{traces.CounterOccupancy: "achieved %", traces.CounterSMThroughput: "SM %",
	traces.CounterDRAMThroughput: "DRAM %", traces.CounterL1Throughput: "L1 %", traces.CounterL2Throughput: "L2 %",
	traces.CounterL1Hits: "L1 hit %", traces.CounterL2Hits: "L2 hit %", traces.CounterWarpEfficiency: "warp eff. %",
	traces.CounterBranches: "branch eff. %", traces.CounterSMActive: "SMs active %"}

// counterColumns are the columns of the counters that the table has.
func counterColumns(t *tables.Table) []table.Column[tables.Row] {
	var columns []table.Column[tables.Row]
	for _, c := range traces.AllCounters {
		if !slices.ContainsFunc(t.Rows, func(r tables.Row) bool { _, ok := r.Counters[c.Key]; return ok }) {
			continue
		}
		name := strings.TrimSuffix(c.Key, "_percent")
		cell := func(r *tables.Row) table.Cell {
			v, ok := r.Counters[c.Key]
			return table.When(r.Kind == tables.RowWork, table.Known(ok, table.Float(v, 1)))
		}
		columns = append(columns, table.Column[tables.Row]{Key: name, Unit: "percent", Title: counterTitles[c.Key],
			Legend: c.Name, Cell: cell})
	}
	return columns
}

// rowName names a row for people.
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
		case c.Key == "time" || c.Key == "share" || insideKey(c):
			cell = c.Cell(&sum)
		case c.Left:
			cell = table.String("wall time")
		}
		cells = append(cells, cell)
	}
	return cells
}

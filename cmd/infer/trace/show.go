package trace

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

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

	// columns of a table for people: mainColumns or "all". "" is all, or mainColumns if lines of
	// width letters, where 0 has no limit, are too short for all.
	Columns string
	Width   int
	Rows    cli.RowOptions
	GPU     int // -1 for the first that worked
}

// MainColumns is the value of --columns that shows the columns that matter most.
const MainColumns = "main"

// RegisterColumns adds --columns.
func (o *ShowOptions) RegisterColumns(f *pflag.FlagSet, usual, table string) {
	text := "`COLUMNS` of " + table + ": main (calls, time, its share, rates,\nroofline) or all"
	if usual == "" {
		text += " (default: all, or main in a\nterminal that is too narrow for all)"
	}
	f.Var(cli.OneOf(&o.Columns, usual, MainColumns, "all"), "columns", text)
}

// shown returns the columns that --columns asks for.
func shown(columns []table.Column[tables.Row], o ShowOptions) []table.Column[tables.Row] {
	if o.Columns != MainColumns || o.By == tables.ByKernel {
		return columns
	}
	return slices.DeleteFunc(slices.Clone(columns), func(c table.Column[tables.Row]) bool {
		return c.Key != "" && !slices.Contains([]string{"layers", "calls", "time", "share", "gb_per_s", "tflop_per_s", "roofline"}, c.Key) && !insideKey(c)
	})
}

// newTraceShow makes "infer trace show".
func newTraceShow() *cobra.Command {
	var o ShowOptions
	c := &cobra.Command{
		Use:   "show FILE...",
		Short: "Say where the time of a recording went: a table that sums to wall time",
		Long: `show reads a recording and says where the time went. The table --by folded has one
row for each stage of the model over all layers: 'h.N.attn.c_attn'. Others have a row
for each stage of each layer; for each operation as PyTorch's profiler shows them; for
each layer, phase (prefill, decode step), kernel, or function that launches kernels; for the ranges of a name, on the host and projected onto the GPU;
for each process. Several files, such as those of the ranks of a program, are shown
together, with their clocks aligned by the time of day.
Without --by, a recording that has no passes of a model is shown by kernel, or by
operation if no GPU worked. The ranges of any program (NVTX, record_function) make passes
and stages: a repeated outermost range is a pass, and the path of an inner one a stage.

By folded, stage, layer, phase and kernel, the column 'time' sums to the wall time:

  A step or kernel owns the time in which it runs and no earlier one is still
  running, so kernels that overlap are not counted twice ('GPU' is the sum of their
  durations). A step that several CPU threads run owns the time in which any of them
  runs it. 'median' is the median duration of its kernels; on the CPU, of its threads.

  Idle time is divided by cause. Until the API call that launches the next kernel,
  the host is late, or waits for the GPU or for a copy. From that call to the start of
  the kernel, in a graph of any of its kernels, it is launch latency. If that call had
  returned before the idle time began, the kernel was queued already, and it is a
  dependency on the kernel before. On the CPU, threads synchronise between steps.

The floor is the least time that the device could take: bytes divided by the
bandwidth ceiling, or FLOPs divided by the arithmetic ceiling, whichever is more.
'roofline %' is the floor in percent of the time: 100 is as fast as the device can
be. It is withheld for a row that is faster than its floor: a ceiling is too low then.

Library products write no stamps; with the recorder stamps they are bounded by their
neighbours: they get the time from the end of the kernel before to the start of the
kernel after.

Tables by folded, stage, layer and phase cover the passes: from the start of the first
pass after the warm-up to the end of the last. Tables by op and launch do too, if the
recording has passes. Tables by kernel, and by launch without passes, cover the whole
recording, from the first to the last work of the GPU; by op without passes, from the
first event to the last. Tables by range and process cover the whole recording.
Shares are withheld if they would mislead; 'infer trace check' says why.`,
		Example: `  infer trace show run.sqlite
  infer trace show run.json.gz --by layer
  infer trace show run.json.gz --by stage --sort time --limit 20
  infer trace show run.json.gz --by kernel --sort occupancy --limit 5
  infer trace show run.json.gz --format csv > run.csv`,
		Args: someFiles,
		RunE: func(c *cobra.Command, args []string) error {
			o.anyTable = !c.Flags().Changed("by")
			t, err := loadTraces(c, args)
			if err != nil {
				return err
			}
			err = Show(c.OutOrStdout(), t, o)
			if err != nil && !errors.As(err, new(cli.UsageError)) {
				err = fmt.Errorf("%s: %w", traceName(args[0]), err)
			}
			return err
		},
	}
	cli.AddFlags(c.Flags(), "Table", func(f *pflag.FlagSet) {
		f.Var(cli.OneOf(&o.By, tables.ByFolded, tables.Bys...), "by", "rows are `WHAT`:\n"+strings.Replace(tables.List(tables.Bys), "launch, ", "launch,\n", 1))
		o.Rows.Register(f, "time, calls, floor", "the order of the plan; kernels by time")
		o.RegisterColumns(f, "", "the table")
		cli.AddFormat(f, &o.Format, "table, csv or json")
		addGPU(f, &o.GPU)
	})
	return c
}

// CheckSort refuses a column to sort by that no table of the kind has, before there is one.
func CheckSort(by tables.By, o cli.RowOptions) error {
	var err error
	for _, device := range []int32{-1, 0} { // headings differ
		t := &tables.Table{By: by, Device: device}
		lay := layouts[by]
		if lay == nil {
			lay = layoutRows
		}
		if _, err = lay(t, ShowOptions{By: by, Rows: o}); err == nil {
			return nil
		}
	}
	return err
}

// layout writes a table. Its functions are called after the rows are sorted and cut.
type layout struct {
	Text func(io.Writer) // for people
	csv  func(io.Writer) error
}

// layouts are the tables that have rows of their own; the others have those of
// [tables.Row].
var layouts = map[tables.By]func(*tables.Table, ShowOptions) (layout, error){
	tables.ByOp:     layoutOps,
	tables.ByLaunch: layoutLaunches,

	tables.ByRange:   layoutRanges,
	tables.ByProcess: layoutProcesses,
}

// TableJSON is a table as JSON has it.
type TableJSON struct {
	Source string `json:"source"`
	*tables.Table
}

// showTrace writes a table of a trace.
// Show writes a table of a recording.
func Show(w io.Writer, t *traces.Trace, o ShowOptions) error {
	o.Width = cli.TerminalWidth(w)
	table, show, err := LayTable(t, &o)
	if err != nil {
		return err
	}
	switch o.Format {
	case "json":
		return cli.WriteJSON(w, TableJSON{t.Header.Describe(), table})
	case "csv":
		return show.csv(w)
	}
	return WriteTable(w, t, table, show)
}

// LayTable makes a table with its rows in order. It sets o.by to the table that it makes, if
// any would do.
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
	lay := layouts[o.By]
	if lay == nil {
		lay = layoutRows
	}
	show, err := lay(table, *o)
	return table, show, err
}

// WriteTable writes a table for people.
func WriteTable(w io.Writer, t *traces.Trace, table *tables.Table, show layout) error {
	var b bytes.Buffer
	printHead(&b, t, table)
	show.Text(&b)
	return writeText(w, b.Bytes())
}

// TableWidth is how many letters the longest line has before the legend.
func TableWidth(text string) (n int) {
	table, _, _ := strings.Cut(text, "\n\n")
	for line := range strings.Lines(table) {
		n = max(n, utf8.RuneCountInString(strings.TrimRight(line, "\n")))
	}
	return n
}

// layoutRows lays out a table whose rows sum to the wall time.
func layoutRows(t *tables.Table, o ShowOptions) (layout, error) {
	columns, rows := RowColumns(t, o.By), t.Rows
	if o.By == tables.ByFolded {
		rows = nil
		for _, f := range t.Folded {
			rows = append(rows, f.Row)
		}
	}
	err := cli.SortRows(rows, columns, o.Rows.Sort, o.Format, func(r *tables.Row) int { return slices.Index(tables.RowKinds, r.Kind) })
	if err != nil {
		return layout{}, err
	}
	rows = tables.TopRows(rows, o.Rows.Limit, o.Rows.Sort != "")
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
			print := func(w io.Writer) {
				columns := shown(columns, o)
				table.Print(w, columns, rows, wallRow(rows, columns)...)
				table.Legend(w, columns)
			}
			var all bytes.Buffer
			print(&all)
			if o.Columns != "" || o.Width == 0 || o.By == tables.ByKernel || TableWidth(all.String()) <= o.Width {
				w.Write(all.Bytes())
				return
			}
			o.Columns = MainColumns
			print(w)
			fmt.Fprintln(w, "the terminal is too narrow for all columns, which --columns all shows")
		},
		csv: func(w io.Writer) error { return cli.WriteCSV(w, columns, rows) },
	}, nil
}

// printHead writes what the table is of, and how far it is to be trusted.
func printHead(w io.Writer, t *traces.Trace, table *tables.Table) {
	fmt.Fprintf(w, "%s\n", t.Header.Describe())
	fmt.Fprintf(w, "wall time %s ms, which began %s ms after the recording did\n", Milliseconds(table.Wall), Milliseconds(table.Before))
	fmt.Fprintf(w, "trust: %s\n", table.Trust)
	printMisleading(w, table)
	for _, n := range table.Notes {
		fmt.Fprintf(w, "%s\n", n)
	}
	fmt.Fprintln(w)
}

// printMisleading says why shares are withheld, if they are.
func printMisleading(w io.Writer, table *tables.Table) {
	for _, f := range table.Findings {
		if f.Misleads {
			fmt.Fprintf(w, "! %s\n", f.Text)
		}
	}
	if traces.Misleads(table.Findings) {
		fmt.Fprintln(w, "! shares are withheld: they would mislead")
	}
}

// Milliseconds writes ns to the microsecond.
func Milliseconds(ns int64) string { return strconv.FormatFloat(float64(ns)/1e6, 'f', 3, 64) }

// RowColumns are the columns of a table whose rows sum to the wall time.
func RowColumns(t *tables.Table, by tables.By) []table.Column[tables.Row] {
	type row = tables.Row
	byKernel := t.By == tables.ByKernel
	isWork := func(r *row) bool { return r.Kind == tables.RowWork || r.Kind == tables.RowOther }
	isStage := func(r *row) bool { return r.Kind == tables.RowWork }
	rate := func(n, ns int64, scale float64) table.Cell {
		return table.Known(n > 0 && ns > 0, table.Rate(float64(n)/float64(max(1, ns))*scale))
	}
	shape := func(key, unit string, of func(*tables.Shape) table.Cell) table.Column[row] {
		return table.Column[row]{Key: key, Unit: unit, Cell: func(r *row) table.Cell {
			return table.When(byKernel && isStage(r), table.Known(r.Shape.Known(), of(cmp.Or(r.Shape, &tables.Shape{}))))
		}}
	}
	occupancy := func(key, unit, legend string, of func(*tables.Occupancy) table.Cell) table.Column[row] {
		return table.Column[row]{Key: key, Unit: unit, Legend: legend, Cell: func(r *row) table.Cell {
			return table.When(byKernel && isStage(r), table.Known(r.Occupancy != nil, of(cmp.Or(r.Occupancy, &tables.Occupancy{}))))
		}}
	}
	duration := func(key, legend string, of func(*row) table.Cell) table.Column[row] {
		return table.Column[row]{Key: key, Unit: "ns", Legend: legend, Cell: func(r *row) table.Cell { return table.When(r.Max > 0, of(r)) }}
	}
	roofline := func(r *row) table.Cell {
		v, ok := t.Roofline(r)
		return table.When(isStage(r), table.Known(ok, table.Float(v, 1)))
	}
	blank := func(is bool, c table.Cell) table.Cell {
		if is {
			c.Text = ""
		}
		return c
	}
	// What SMs did inside a kernel, as means over them.
	inside := func(key, legend string, of func(*traces.Parts) int64) table.Column[row] {
		return table.Column[row]{Key: key, Unit: "ns", Title: key + " us", Legend: legend, Cell: func(r *row) table.Cell {
			return table.When(r.Inside != nil, table.Nanoseconds(of(cmp.Or(r.Inside, new(traces.Parts)))))
		}}
	}
	columns := []table.Column[row]{
		{Key: "kind", Cell: func(r *row) table.Cell { return table.String(string(r.Kind)) }},
		{Key: "phase", Cell: func(r *row) table.Cell { return table.String(r.Phase) }},
		{Key: "name", Cell: func(r *row) table.Cell { return table.String(r.Name) }},
		{Key: "op", Cell: func(r *row) table.Cell { return table.String(r.Op) }},
		{Key: "layers", Title: "layers", Legend: "how many the row sums", Cell: func(r *row) table.Cell { return table.Int(int64(r.Layers)) }},
		{Key: "calls", Title: "calls", Cell: func(r *row) table.Cell { return table.Int(int64(r.Calls)) }},
		{Key: "kernels", Title: "kernels", Cell: func(r *row) table.Cell { return table.Int(int64(r.Kernels)) }},
		{Key: "host", Unit: "ns", Title: "host us", Legend: "while the host launches it", Cell: func(r *row) table.Cell {
			return blank(r.Host == 0, table.Nanoseconds(r.Host))
		}},
		{Key: "busy", Unit: "ns", Title: "GPU us", Legend: "durations of its kernels, which may overlap", Cell: func(r *row) table.Cell {
			return blank(!isWork(r) && r.Kernels == 0, table.Nanoseconds(r.Busy))
		}},
		{Key: "time", Unit: "ns", Title: "time us", Legend: "its part of the wall time", Cell: func(r *row) table.Cell { return table.Nanoseconds(r.Exclusive) }},
		{Key: "share", Unit: "percent", Title: "% of wall", Cell: func(r *row) table.Cell {
			v, ok := t.Share(r)
			return table.Known(ok, table.Cell{Number: v, CSV: strconv.FormatFloat(v, 'f', 4, 64), Text: strconv.FormatFloat(v, 'f', 2, 64)})
		}},
		inside("weights", "waiting for weights, or keys and values", func(p *traces.Parts) int64 { return p.Weights }),
		inside("inputs", "waiting for what other SMs compute", func(p *traces.Parts) int64 { return p.Inputs }),
		inside("compute", "from the inputs to the published outputs", func(p *traces.Parts) int64 { return p.Compute }),
		inside("imbalance", "waiting for the last SM", func(p *traces.Parts) int64 { return p.Imbalance }),
		duration("min", "", func(r *row) table.Cell { return table.Nanoseconds(r.Min) }),
		duration("median", "", func(r *row) table.Cell { return table.Known(r.Median >= r.Min, table.Nanoseconds(r.Median)) }),
		duration("max", "", func(r *row) table.Cell { return table.Nanoseconds(r.Max) }),
		duration("mean", "", func(r *row) table.Cell { return table.Mean(r.Mean) }),
		duration("stddev", "standard deviation of a sample", func(r *row) table.Cell { return table.Mean(r.StdDev) }),
		duration("p25", "", func(r *row) table.Cell { return table.Nanoseconds(r.P25) }),
		duration("p75", "", func(r *row) table.Cell { return table.Nanoseconds(r.P75) }),
		duration("p95", "of 100 kernels 95 take no longer", func(r *row) table.Cell { return table.Nanoseconds(r.P95) }),
		duration("p99", "", func(r *row) table.Cell { return table.Nanoseconds(r.P99) }),
		{Key: "queued", Unit: "ns", Legend: "from the end of its call to its start, in the mean", Cell: func(r *row) table.Cell {
			mean := table.Mean(float64(r.Queued) / float64(max(1, r.Kernels)))
			return table.When(isWork(r), table.Known(r.Launches > 0, mean))
		}},
		{Key: "flops", Title: "FLOPs", Cell: func(r *row) table.Cell { return table.When(isStage(r), table.Known(r.FLOPs > 0, table.SI(r.FLOPs))) }},
		{Key: "bytes", Title: "bytes", Cell: func(r *row) table.Cell {
			return table.When(isStage(r) || r.Bytes > 0, table.Known(r.Bytes > 0, table.SI(r.Bytes)))
		}},
		{Key: "gb_per_s", Title: "GB/s", Cell: func(r *row) table.Cell { return table.When(isStage(r) || r.Bytes > 0, rate(r.Bytes, r.Exclusive, 1)) }},
		{Key: "tflop_per_s", Title: "TFLOP/s", Cell: func(r *row) table.Cell { return table.When(isStage(r), rate(r.FLOPs, r.Exclusive, 1e-3)) }},
		{Key: "floor", Unit: "ns", Title: "floor us", Legend: "least time by the ceilings", Cell: func(r *row) table.Cell {
			return table.When(isStage(r), table.Known(r.Floor > 0, table.Nanoseconds(r.Floor)))
		}},
		{Key: "roofline", Unit: "percent", Title: "roofline %", Legend: "floor / time", Cell: roofline},
		{Key: "launches", Title: "launches", Cell: func(r *row) table.Cell { return table.Int(int64(r.Launches)) }},
		shape("grid", "", func(s *tables.Shape) table.Cell { return table.String(tables.Dims(s.Grid)) }),
		shape("block", "", func(s *tables.Shape) table.Cell { return table.String(tables.Dims(s.Block)) }),
		shape("warps", "", func(s *tables.Shape) table.Cell { return table.Int((s.Threads() + 31) / 32) }),
		shape("registers", "", func(s *tables.Shape) table.Cell { return table.Known(s.Registers > 0, table.Int(int64(s.Registers))) }),
		shape("shared", "bytes", func(s *tables.Shape) table.Cell {
			n := int64(s.StaticShared) + int64(s.DynamicShared)
			return table.Cell{Number: float64(n), CSV: strconv.FormatInt(n, 10), Text: humanize.Thousands(n)}
		}),
		occupancy("occupancy", "percent", "theoretical occupancy of an SM", func(o *tables.Occupancy) table.Cell { return table.Float(o.Percent, 1) }),
		occupancy("limit", "", "what allows no more warps", func(o *tables.Occupancy) table.Cell { return table.String(o.Limit) }),
		occupancy("waves", "", "how often the grid fills the GPU", func(o *tables.Occupancy) table.Cell { return table.Known(o.Waves > 0, table.Float(o.Waves, 2)) }),
		occupancy("tail", "percent", "empty part of the last wave", func(o *tables.Occupancy) table.Cell { return table.Known(o.Waves > 0, table.Float(o.Tail, 1)) }),
		{Key: "bounded", Cell: func(r *row) table.Cell { return table.Int(int64(r.Bounded)) }},
		{Key: "imbalance", Legend: "slowest thread / mean", Cell: func(r *row) table.Cell {
			return table.When(isStage(r), table.Known(r.Imbalance > 0, table.Float(r.Imbalance, 2)))
		}},
	}
	columns = append(columns, counterColumns(t)...)
	columns = append(columns, table.Column[row]{Title: "  ", Left: true, Cell: func(r *row) table.Cell { return table.String(RowName(t, r)) }})
	// Titles of columns that this table shows in another way; "" hides one.
	titles := map[string]string{}
	switch {
	case byKernel:
		titles = map[string]string{"kernels": "", "host": "", "flops": "", "bytes": "", "gb_per_s": "", "tflop_per_s": "", "floor": "", "roofline": "", "launches": "",
			"calls": "count", "median": "median us", "min": "min us", "max": "max us", "mean": "mean us", "stddev": "stddev us", "p95": "p95 us", "queued": "queued us",
			"grid": "grid", "block": "block", "warps": "warps", "registers": "regs", "shared": "shared B", "occupancy": "occup. %", "limit": "limited by",
			"waves": "waves", "tail": "tail %"}
	case t.Device < 0:
		titles = map[string]string{"host": "", "launches": "", "kernels": "events", "busy": "all threads us", "imbalance": "imbalance"}
	}
	if t.By == tables.ByStage {
		titles["median"] = "median us"
	}
	if !slices.ContainsFunc(t.Folded, func(f tables.Folded) bool { return f.Layers > 1 }) {
		titles["layers"] = ""
	}
	inKernel := slices.ContainsFunc(t.Rows, func(r row) bool { return r.Inside != nil })
	columns = slices.DeleteFunc(columns, func(c table.Column[row]) bool {
		return c.Key == "queued" && !byKernel || c.Key == "layers" && by != tables.ByFolded ||
			insideKey(c) != inKernel && (insideKey(c) || c.Key == "imbalance") // both are called imbalance, and no recording has both
	})
	for i := range columns {
		c := &columns[i]
		if title, ok := titles[c.Key]; ok && c.Key != "" {
			c.Title = title
		}
		if c.Key == "busy" && t.Device < 0 && !byKernel {
			c.Legend = "their times summed"
		}
	}
	return columns
}

// insideKeys are the columns of what SMs did inside a kernel.
var insideKeys = []string{"weights", "inputs", "compute", "imbalance"}

func insideKey(c table.Column[tables.Row]) bool {
	return slices.Contains(insideKeys, c.Key) && c.Unit == "ns"
}

// counterTitles are the headings of hardware counters.
var counterTitles = map[traces.Counter]string{traces.CounterOccupancy: "achieved %", traces.CounterSMThroughput: "SM %", traces.CounterDRAMThroughput: "DRAM %", traces.CounterL1Throughput: "L1 %",
	traces.CounterL2Throughput: "L2 %", traces.CounterL1Hits: "L1 hit %", traces.CounterL2Hits: "L2 hit %", traces.CounterWarpEfficiency: "warp eff. %", traces.CounterBranches: "branch eff. %",
	traces.CounterSMActive: "SMs active %"}

// counterColumns are the columns of the counters that the table has.
func counterColumns(t *tables.Table) []table.Column[tables.Row] {
	var columns []table.Column[tables.Row]
	for _, c := range traces.AllCounters {
		if !slices.ContainsFunc(t.Rows, func(r tables.Row) bool { _, ok := r.Counters[c.Key]; return ok }) {
			continue
		}
		name := strings.TrimSuffix(c.Key, "_percent")
		columns = append(columns, table.Column[tables.Row]{Key: name, Unit: "percent", Title: counterTitles[c.Counter], Legend: c.Name, Cell: func(r *tables.Row) table.Cell {
			v, ok := r.Counters[c.Key]
			return table.When(r.Kind == tables.RowWork, table.Known(ok, table.Float(v, 1)))
		}})
	}
	return columns
}

// RowName names a row for people.
func RowName(t *tables.Table, r *tables.Row) string {
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
	switch {
	case r.Bounded == 0:
	case r.Bounded == r.Kernels:
		name += "  (bounded by its neighbours)"
	case r.Bounded == 1:
		name += fmt.Sprintf("  (1 of %d kernels is bounded by its neighbours)", r.Kernels)
	default:
		name += fmt.Sprintf("  (%d of %d kernels are bounded by their neighbours)", r.Bounded, r.Kernels)
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
		switch {
		case c.Title == "":
			continue
		case c.Key == "time" || c.Key == "share" || insideKey(c):
			cells = append(cells, c.Cell(&sum))
		case c.Left:
			cells = append(cells, table.String("wall time"))
		default:
			cells = append(cells, table.None)
		}
	}
	return cells
}

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"gpt2scope/internal/humanize"
	"gpt2scope/traces"
	"gpt2scope/traces/tables"
)

// showOptions say how a table is shown.
type showOptions struct {
	by tables.By

	// anyTable shows another table if the trace has no stages.
	anyTable bool

	format string // "table", "csv" or "json"; "" is "table"

	// columns of a table for people: mainColumns or "all". "" is all, or mainColumns if lines of
	// width letters, where 0 has no limit, are too short for all.
	columns string
	width   int
	rows    rowOptions
	gpu     int // -1 for the first that worked
}

// mainColumns is the value of --columns that shows the columns that matter most.
const mainColumns = "main"

// registerColumns adds --columns.
func (o *showOptions) registerColumns(f *pflag.FlagSet, usual, table string) {
	text := "`COLUMNS` of " + table + ": main (calls, time, its share, rates,\nroofline) or all"
	if usual == "" {
		text += " (default: all, or main in a\nterminal that is too narrow for all)"
	}
	f.StringVar(&o.columns, "columns", usual, text)
}

// checkColumns refuses other values of --columns.
func (o *showOptions) checkColumns() error {
	if o.columns != mainColumns && o.columns != "all" && o.columns != "" {
		return usagef("--columns %s: it must be main or all", shellQuote(o.columns))
	}
	return nil
}

// shown returns the columns that --columns asks for.
func shown(columns []column[tables.Row], o showOptions) []column[tables.Row] {
	if o.columns != mainColumns || o.by == tables.ByKernel {
		return columns
	}
	return slices.DeleteFunc(slices.Clone(columns), func(c column[tables.Row]) bool {
		return c.key != "" && !slices.Contains([]string{"layers", "calls", "time", "share", "gb_per_s", "tflop_per_s", "roofline"}, c.key) && !insideKey(c)
	})
}

// newTraceShow makes "infer trace show".
func newTraceShow() *cobra.Command {
	var o showOptions
	c := &cobra.Command{
		Use:   "show FILE...",
		Short: "Say where the time of a recording went: a table that sums to wall time",
		Long: `show reads a recording and says where the time went. The table --by folded has one
row for each stage of the model over all layers: 'h.N.attn.c_attn'. Others have a row
for each stage of each layer; for each operation as PyTorch's profiler shows them, or for
each shape of its inputs; for each layer, phase (prefill, decode step), kernel, SM (of
mode persistent), or function that launches kernels; for the ranges of a name, on the host
and projected onto the GPU; for the executions of a kernel, with its call and the time
between; for each process; for each sequence of kernels that recurs. Several files, such
as those of the ranks of a program, are shown together, with their clocks aligned by the
time of day.
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
first event to the last. Tables by range, exec and sequence cover the whole recording.
Shares are withheld if they would mislead; 'infer trace check' says why.`,
		Example: `  infer trace show run.sqlite
  infer trace show run.json.gz --by layer
  infer trace show run.json.gz --by stage --sort time --limit 20
  infer trace show run.json.gz --by kernel --sort occupancy --limit 5
  infer trace show persistent.json.gz --by sm --sort imbalance --limit 10
  infer trace show run.json.gz --format csv > run.csv`,
		Args: someFiles,
		RunE: func(c *cobra.Command, args []string) error {
			o.anyTable = !c.Flags().Changed("by")
			if err := o.check(); err != nil {
				return err
			}
			t, err := loadTraces(c, args)
			if err != nil {
				return err
			}
			err = showTrace(c.OutOrStdout(), t, o)
			if err != nil && !errors.As(err, new(usageError)) {
				err = fmt.Errorf("%s: %w", traceName(args[0]), err)
			}
			return err
		},
	}
	addFlags(c.Flags(), "Table", func(f *pflag.FlagSet) {
		f.StringVar((*string)(&o.by), "by", string(tables.ByFolded), "rows are `WHAT`:\n"+strings.Replace(tables.List(tables.Bys), "launch, ", "launch,\n", 1))
		o.rows.register(f, "time, calls, floor", "the order of the plan; kernels by time")
		o.registerColumns(f, "", "the table")
		addFormat(f, &o.format, "table, csv or json")
		addGPU(f, &o.gpu)
	})
	return c
}

func (o *showOptions) check() error {
	if err := o.checkColumns(); err != nil {
		return err
	}
	switch {
	case !slices.Contains(tables.Bys, o.by):
		return usagef("--by %s: it must be %s", shellQuote(string(o.by)), tables.List(tables.Bys))
	case o.format != "table" && o.format != "csv" && o.format != "json":
		return usagef("--format %s: it must be table, csv or json", shellQuote(o.format))
	}
	if err := o.rows.check(); err != nil {
		return err
	}
	return checkGPU(o.gpu)
}

// checkSort refuses a column to sort by that no table of the kind has, before there is one.
func checkSort(by tables.By, o rowOptions) error {
	var err error
	for _, device := range []int32{-1, 0} { // headings differ
		t := &tables.Table{By: by, Device: device}
		lay := layouts[by]
		if lay == nil {
			lay = layoutRows
		}
		if _, err = lay(t, showOptions{by: by, rows: o}); err == nil {
			return nil
		}
	}
	return err
}

// layout writes a table. Its functions are called after the rows are sorted and cut.
type layout struct {
	text func(io.Writer) // for people
	csv  func(io.Writer) error
}

// layouts are the tables that have rows of their own; the others have those of
// [tables.Row].
var layouts = map[tables.By]func(*tables.Table, showOptions) (layout, error){
	tables.ByOp:     layoutOps,
	tables.ByShape:  layoutOps,
	tables.ByLaunch: layoutLaunches,
	tables.BySM:     layoutSMs,

	tables.ByRange:    layoutRanges,
	tables.ByExec:     layoutExecutions,
	tables.ByProcess:  layoutProcesses,
	tables.BySequence: layoutSequences,
}

// tableJSON is a table as JSON has it.
type tableJSON struct {
	Source string `json:"source"`
	*tables.Table
}

// showTrace writes a table of a trace.
func showTrace(w io.Writer, t *traces.Trace, o showOptions) error {
	o.width = terminalWidth(w)
	table, show, err := layTable(t, &o)
	if err != nil {
		return err
	}
	switch o.format {
	case "json":
		return writeJSON(w, tableJSON{t.Header.Describe(), table})
	case "csv":
		return show.csv(w)
	}
	return writeTable(w, t, table, show)
}

// layTable makes a table with its rows in order. It sets o.by to the table that it makes, if
// any would do.
func layTable(t *traces.Trace, o *showOptions) (*tables.Table, layout, error) {
	var table *tables.Table
	var err error
	switch {
	case o.anyTable:
		if table, err = tables.SummarizeAny(t, int32(o.gpu)); err == nil && table.By != tables.ByStage {
			o.by = table.By
		}
	case o.by == tables.ByStage && o.format == "json": // which has both
		table, err = tables.Summarize(t, tables.ByFolded, int32(o.gpu))
	default:
		table, err = tables.Summarize(t, o.by, int32(o.gpu))
	}
	if err != nil {
		return nil, layout{}, err
	}
	lay := layouts[o.by]
	if lay == nil {
		lay = layoutRows
	}
	show, err := lay(table, *o)
	return table, show, err
}

// writeTable writes a table for people.
func writeTable(w io.Writer, t *traces.Trace, table *tables.Table, show layout) error {
	var b bytes.Buffer
	printHead(&b, t, table)
	show.text(&b)
	return writeOutput(w, b.Bytes())
}

// tableWidth is how many letters the longest line has before the legend.
func tableWidth(text string) (n int) {
	table, _, _ := strings.Cut(text, "\n\n")
	for line := range strings.Lines(table) {
		n = max(n, utf8.RuneCountInString(strings.TrimRight(line, "\n")))
	}
	return n
}

// layoutRows lays out a table whose rows sum to the wall time.
func layoutRows(t *tables.Table, o showOptions) (layout, error) {
	columns, rows := rowColumns(t, o.by), t.Rows
	if o.by == tables.ByFolded {
		rows = nil
		for _, f := range t.Folded {
			rows = append(rows, f.Row)
		}
	}
	err := sortRows(rows, columns, o.rows.sort, o.format, func(r *tables.Row) int { return slices.Index(tables.RowKinds, r.Kind) })
	if err != nil {
		return layout{}, err
	}
	rows = tables.TopRows(rows, o.rows.limit, o.rows.sort != "")
	if o.by == tables.ByFolded {
		t.Folded = nil
		for _, r := range rows {
			t.Folded = append(t.Folded, tables.Folded{Row: r})
		}
	} else {
		t.Rows = rows
	}
	return layout{
		text: func(w io.Writer) {
			print := func(w io.Writer) {
				columns := shown(columns, o)
				printCells(w, columns, rows, wallRow(rows, columns))
				printLegend(w, columns)
			}
			var all bytes.Buffer
			print(&all)
			if o.columns != "" || o.width == 0 || o.by == tables.ByKernel || tableWidth(all.String()) <= o.width {
				w.Write(all.Bytes())
				return
			}
			o.columns = mainColumns
			print(w)
			fmt.Fprintln(w, "the terminal is too narrow for all columns, which --columns all shows")
		},
		csv: func(w io.Writer) error { return writeCSV(w, columns, rows) },
	}, nil
}

// printHead writes what the table is of, and how far it is to be trusted.
func printHead(w io.Writer, t *traces.Trace, table *tables.Table) {
	fmt.Fprintf(w, "%s\n", plainText(t.Header.Describe()))
	fmt.Fprintf(w, "wall time %s ms, which began %s ms after the recording did\n", milliseconds(table.Wall), milliseconds(table.Before))
	fmt.Fprintf(w, "trust: %s\n", table.Trust)
	printMisleading(w, table)
	for _, n := range table.Notes {
		fmt.Fprintf(w, "%s\n", plainText(n))
	}
	fmt.Fprintln(w)
}

// printMisleading says why shares are withheld, if they are.
func printMisleading(w io.Writer, table *tables.Table) {
	for _, f := range table.Findings {
		if f.Misleads {
			fmt.Fprintf(w, "! %s\n", plainText(f.Text))
		}
	}
	if traces.Misleads(table.Findings) {
		fmt.Fprintln(w, "! shares are withheld: they would mislead")
	}
}

// milliseconds writes ns to the microsecond.
func milliseconds(ns int64) string { return strconv.FormatFloat(float64(ns)/1e6, 'f', 3, 64) }

// rowColumns are the columns of a table whose rows sum to the wall time.
func rowColumns(t *tables.Table, by tables.By) []column[tables.Row] {
	type row = tables.Row
	byKernel := t.By == tables.ByKernel
	isWork := func(r *row) bool { return r.Kind == tables.RowWork || r.Kind == tables.RowOther }
	isStage := func(r *row) bool { return r.Kind == tables.RowWork }
	rate := func(n, ns int64, scale float64) cell {
		return known(n > 0 && ns > 0, rateCell(float64(n)/float64(max(1, ns))*scale))
	}
	shape := func(r *row, of func(*tables.Shape) cell) cell {
		switch {
		case r.Kind != tables.RowWork || !byKernel:
			return none
		case !r.Shape.Known():
			return missing
		}
		return of(r.Shape)
	}
	occupancy := func(r *row, of func(*tables.Occupancy) cell) cell {
		switch {
		case r.Kind != tables.RowWork || !byKernel:
			return none
		case r.Occupancy == nil:
			return missing
		}
		return of(r.Occupancy)
	}
	roofline := func(r *row) cell {
		v, ok := t.Roofline(r)
		return when(isStage(r), known(ok, floatCell(v, 1)))
	}
	// What SMs did inside a kernel, as means over them.
	inside := func(key, legend string, of func(*traces.Parts) int64) column[row] {
		return column[row]{key: key, unit: "ns", title: key + " us", legend: legend, cell: func(r *row) cell {
			if r.Inside == nil {
				return none
			}
			return nsCell(of(r.Inside))
		}}
	}
	columns := []column[row]{
		{key: "kind", cell: func(r *row) cell { return textCell(string(r.Kind)) }},
		{key: "phase", cell: func(r *row) cell { return textCell(r.Phase) }},
		{key: "name", cell: func(r *row) cell { return textCell(r.Name) }},
		{key: "op", cell: func(r *row) cell { return textCell(r.Op) }},
		{key: "layers", title: "layers", legend: "how many the row sums", cell: func(r *row) cell { return intCell(int64(r.Layers)) }},
		{key: "calls", title: "calls", cell: func(r *row) cell { return intCell(int64(r.Calls)) }},
		{key: "kernels", old: "pieces", title: "kernels", cell: func(r *row) cell { return intCell(int64(r.Kernels)) }},
		{key: "host", unit: "ns", title: "host us", legend: "while the host launches it", cell: func(r *row) cell {
			c := nsCell(r.Host)
			if r.Host == 0 {
				c.text = ""
			}
			return c
		}},
		{key: "busy", unit: "ns", old: "threads us", title: "GPU us", legend: "durations of its kernels, which may overlap", cell: func(r *row) cell {
			c := nsCell(r.Busy)
			if !isWork(r) && r.Kernels == 0 {
				c.text = ""
			}
			return c
		}},
		{key: "time", unit: "ns", title: "time us", legend: "its part of the wall time", cell: func(r *row) cell { return nsCell(r.Exclusive) }},
		{key: "share", unit: "percent", title: "% of wall", cell: func(r *row) cell {
			v, ok := t.Share(r)
			return known(ok, cell{v, strconv.FormatFloat(v, 'f', 4, 64), strconv.FormatFloat(v, 'f', 2, 64)})
		}},
		inside("weights", "waiting for weights, or keys and values", func(p *traces.Parts) int64 { return p.Weights }),
		inside("inputs", "waiting for what other SMs compute", func(p *traces.Parts) int64 { return p.Inputs }),
		inside("compute", "from the inputs to the published outputs", func(p *traces.Parts) int64 { return p.Compute }),
		inside("imbalance", "waiting for the last SM", func(p *traces.Parts) int64 { return p.Imbalance }),
		{key: "min", unit: "ns", cell: func(r *row) cell { return when(r.Max > 0, nsCell(r.Min)) }},
		{key: "median", unit: "ns", cell: func(r *row) cell { return when(r.Max > 0, known(r.Median >= r.Min, nsCell(r.Median))) }},
		{key: "max", unit: "ns", cell: func(r *row) cell { return when(r.Max > 0, nsCell(r.Max)) }},
		{key: "mean", unit: "ns", old: "avg", cell: func(r *row) cell { return when(r.Max > 0, meanCell(r.Mean)) }},
		{key: "stddev", unit: "ns", legend: "standard deviation of a sample", cell: func(r *row) cell { return when(r.Max > 0, meanCell(r.StdDev)) }},
		{key: "p25", unit: "ns", cell: func(r *row) cell { return when(r.Max > 0, nsCell(r.P25)) }},
		{key: "p75", unit: "ns", cell: func(r *row) cell { return when(r.Max > 0, nsCell(r.P75)) }},
		{key: "p95", unit: "ns", legend: "of 100 kernels 95 take no longer", cell: func(r *row) cell { return when(r.Max > 0, nsCell(r.P95)) }},
		{key: "p99", unit: "ns", cell: func(r *row) cell { return when(r.Max > 0, nsCell(r.P99)) }},
		{key: "flops", title: "FLOPs", cell: func(r *row) cell { return when(isStage(r), known(r.FLOPs > 0, siCell(r.FLOPs))) }},
		{key: "bytes", title: "bytes", cell: func(r *row) cell { return when(isStage(r) || r.Bytes > 0, known(r.Bytes > 0, siCell(r.Bytes))) }},
		{key: "gb_per_s", title: "GB/s", cell: func(r *row) cell { return when(isStage(r) || r.Bytes > 0, rate(r.Bytes, r.Exclusive, 1)) }},
		{key: "tflop_per_s", title: "TFLOP/s", cell: func(r *row) cell { return when(isStage(r), rate(r.FLOPs, r.Exclusive, 1e-3)) }},
		{key: "floor", unit: "ns", title: "floor us", legend: "least time by the ceilings", cell: func(r *row) cell { return when(isStage(r), known(r.Floor > 0, nsCell(r.Floor))) }},
		{key: "roofline", unit: "percent", old: "% of floor", title: "roofline %", legend: "floor / time", cell: roofline},
		{key: "of_floor", unit: "percent", cell: roofline}, // its name in earlier versions
		{key: "launches", title: "launches", cell: func(r *row) cell { return intCell(int64(r.Launches)) }},
		{key: "grid", cell: func(r *row) cell {
			return shape(r, func(s *tables.Shape) cell { return textCell(tables.Dims(s.Grid)) })
		}},
		{key: "block", cell: func(r *row) cell {
			return shape(r, func(s *tables.Shape) cell { return textCell(tables.Dims(s.Block)) })
		}},
		{key: "warps", cell: func(r *row) cell {
			return shape(r, func(s *tables.Shape) cell { return intCell((s.Threads() + 31) / 32) })
		}},
		{key: "registers", cell: func(r *row) cell {
			return shape(r, func(s *tables.Shape) cell { return known(s.Registers > 0, intCell(int64(s.Registers))) })
		}},
		{key: "shared", unit: "bytes", cell: func(r *row) cell {
			return shape(r, func(s *tables.Shape) cell {
				n := int64(s.StaticShared) + int64(s.DynamicShared)
				return cell{float64(n), strconv.FormatInt(n, 10), humanize.Thousands(n)}
			})
		}},
		{key: "occupancy", unit: "percent", legend: "theoretical occupancy of an SM", cell: func(r *row) cell {
			return occupancy(r, func(o *tables.Occupancy) cell { return floatCell(o.Percent, 1) })
		}},
		{key: "limit", legend: "what allows no more warps", cell: func(r *row) cell {
			return occupancy(r, func(o *tables.Occupancy) cell { return textCell(o.Limit) })
		}},
		{key: "waves", legend: "how often the grid fills the GPU", cell: func(r *row) cell {
			return occupancy(r, func(o *tables.Occupancy) cell { return known(o.Waves > 0, floatCell(o.Waves, 2)) })
		}},
		{key: "tail", unit: "percent", legend: "empty part of the last wave", cell: func(r *row) cell {
			return occupancy(r, func(o *tables.Occupancy) cell { return known(o.Waves > 0, floatCell(o.Tail, 1)) })
		}},
		{key: "bounded", cell: func(r *row) cell { return intCell(int64(r.Bounded)) }},
		{key: "imbalance", legend: "slowest thread / mean", cell: func(r *row) cell { return when(isStage(r), known(r.Imbalance > 0, floatCell(r.Imbalance, 2))) }},
	}
	columns = append(columns, counterColumns(t)...)
	columns = append(columns, column[row]{title: "  ", left: true, cell: func(r *row) cell { return textCell(rowName(t, r)) }})
	hide := func(keys ...string) {
		for i := range columns {
			if slices.Contains(keys, columns[i].key) {
				columns[i].title = ""
			}
		}
	}
	title := func(key, title string) {
		for i := range columns {
			if columns[i].key == key {
				columns[i].title = title
			}
		}
	}
	legend := func(key, text string) {
		for i := range columns {
			if columns[i].key == key {
				columns[i].legend = text
			}
		}
	}
	columns = slices.DeleteFunc(columns, func(c column[row]) bool { // both are called imbalance, and no recording has both
		return insideKey(c) != hasInside(t) && (insideKey(c) || c.key == "imbalance")
	})
	if !slices.ContainsFunc(t.Folded, func(f tables.Folded) bool { return f.Layers > 1 }) {
		hide("layers")
	}
	if by != tables.ByFolded {
		columns = slices.DeleteFunc(columns, func(c column[row]) bool { return c.key == "layers" })
	}
	if t.By == tables.ByStage {
		title("median", "median us")
	}
	switch {
	case byKernel:
		hide("kernels", "host", "flops", "bytes", "gb_per_s", "tflop_per_s", "floor", "roofline", "launches")
		title("calls", "count")
		title("median", "median us")
		title("min", "min us")
		title("max", "max us")
		title("mean", "mean us")
		title("stddev", "stddev us")
		title("p95", "p95 us")
		title("grid", "grid")
		title("block", "block")
		title("warps", "warps")
		title("registers", "regs")
		title("shared", "shared B")
		title("occupancy", "occup. %")
		title("limit", "limited by")
		title("waves", "waves")
		title("tail", "tail %")
	case t.Device < 0:
		hide("host", "launches")
		title("kernels", "events")
		title("busy", "all threads us")
		legend("busy", "their times summed")
		title("imbalance", "imbalance")
	}
	return columns
}

// insideKeys are the columns of what SMs did inside a kernel.
var insideKeys = []string{"weights", "inputs", "compute", "imbalance"}

func insideKey(c column[tables.Row]) bool {
	return slices.Contains(insideKeys, c.key) && c.unit == "ns"
}

// hasInside reports whether the table says what SMs did inside a kernel.
func hasInside(t *tables.Table) bool {
	return slices.ContainsFunc(t.Rows, func(r tables.Row) bool { return r.Inside != nil })
}

// counterTitles are the headings of hardware counters.
var counterTitles = map[traces.Counter]string{traces.CounterOccupancy: "achieved %", traces.CounterSMThroughput: "SM %", traces.CounterDRAMThroughput: "DRAM %", traces.CounterL1Throughput: "L1 %",
	traces.CounterL2Throughput: "L2 %", traces.CounterL1Hits: "L1 hit %", traces.CounterL2Hits: "L2 hit %", traces.CounterWarpEfficiency: "warp eff. %", traces.CounterBranches: "branch eff. %",
	traces.CounterSMActive: "SMs active %"}

// counterColumns are the columns of the counters that the table has.
func counterColumns(t *tables.Table) []column[tables.Row] {
	var columns []column[tables.Row]
	for _, c := range traces.AllCounters {
		if !slices.ContainsFunc(t.Rows, func(r tables.Row) bool { _, ok := r.Counters[c.Key]; return ok }) {
			continue
		}
		name := strings.TrimSuffix(c.Key, "_percent")
		old := ""
		if len(c.Nvprof) > 0 && c.Nvprof[0] != name {
			old = c.Nvprof[0]
		}
		columns = append(columns, column[tables.Row]{key: name, unit: "percent", old: old, title: counterTitles[c.Counter], legend: c.Name, cell: func(r *tables.Row) cell {
			v, ok := r.Counters[c.Key]
			return when(r.Kind == tables.RowWork, known(ok, floatCell(v, 1)))
		}})
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
func wallRow(rows []tables.Row, columns []column[tables.Row]) []cell {
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
	var cells []cell
	for _, c := range columns {
		switch {
		case c.title == "":
			continue
		case c.key == "time" || c.key == "share" || insideKey(c):
			cells = append(cells, c.cell(&sum))
		case c.left:
			cells = append(cells, textCell("wall time"))
		default:
			cells = append(cells, none)
		}
	}
	return cells
}

package trace

import (
	"fmt"
	"io"
	"slices"
	"strconv"

	"gpt2scope/cmd/infer/cli"
	"gpt2scope/internal/humanize"
	"gpt2scope/internal/table"
	"gpt2scope/traces"
	"gpt2scope/traces/tables"
)

// lay lays out a table: some have rows of their own, the others those of [tables.Row].
func lay(t *tables.Table, o ShowOptions) (layout, error) {
	switch o.By {
	case tables.ByOp, tables.ByPython:
		return layoutOps(t, o)
	case tables.ByRange:
		return layoutRanges(t, o)
	case tables.ByProcess:
		return layoutProcesses(t, o)
	case tables.ByMemory:
		return layoutMemory(t, o)
	}
	return layoutRows(t, o)
}

// layoutList lays out a table of rows of one kind, which are in *rows. below writes what follows it for people, the
// legend if it is nil.
func layoutList[R any](rows *[]R, columns []table.Column[R], o ShowOptions, below func(io.Writer)) (layout, error) {
	if err := cli.SortRows(*rows, columns, o.Rows.Sort, o.Format, table.OneSection); err != nil {
		return layout{}, err
	}
	all := len(*rows)
	if o.Rows.Limit > 0 {
		*rows = (*rows)[:min(o.Rows.Limit, all)]
	}
	if below == nil {
		below = func(w io.Writer) { table.Legend(w, columns) }
	}
	return layout{
		Text: func(w io.Writer) {
			table.Print(w, columns, *rows)
			cli.NotShown(w, all-len(*rows))
			below(w)
		},
		csv: func(w io.Writer) error { return cli.WriteCSV(w, columns, *rows) },
	}, nil
}

// layoutOps lays out the table by operation, with the two totals that PyTorch writes below.
func layoutOps(t *tables.Table, o ShowOptions) (layout, error) {
	cpu, gpu := opSums(t)
	return layoutList(&t.Ops, opColumns(t), o, func(w io.Writer) {
		fmt.Fprintf(w, "\nSelf CPU time total: %s us\n", table.Nanoseconds(cpu).Text)
		if t.Device >= 0 {
			fmt.Fprintf(w, "Self CUDA time total: %s us\n", table.Nanoseconds(gpu).Text)
		}
	})
}

// opSums are what the operations take themselves.
func opSums(t *tables.Table) (cpu, gpu int64) {
	for _, r := range t.Ops {
		cpu, gpu = cpu+r.SelfCPU, gpu+r.SelfGPU
	}
	return cpu, gpu
}

// opColumns are those of PyTorch's table.
func opColumns(t *tables.Table) []table.Column[tables.OpRow] {
	type row = tables.OpRow
	trusted := !traces.Misleads(t.Findings)
	cpu, gpu := opSums(t)
	share := func(part, whole int64) table.Cell {
		return table.Known(trusted && whole > 0, table.Float(100*float64(part)/float64(max(1, whole)), 2))
	}
	columns := []table.Column[row]{
		{Key: "name", Cell: func(r *row) table.Cell { return table.String(r.Name) }},
		table.Time("self_cpu", "Self CPU us", "", func(r *row) int64 { return r.SelfCPU }),
		{Key: "self_cpu_share", Unit: "percent", Title: "Self CPU %",
			Cell: func(r *row) table.Cell { return share(r.SelfCPU, cpu) }},
		table.Time("cpu", "CPU total us", "", func(r *row) int64 { return r.CPU }),
		{Key: "cpu_avg", Unit: "ns", Title: "CPU time avg us",
			Cell: func(r *row) table.Cell { return meanNs(r.CPU, r.Calls) }},
		table.Time("self_cuda", "Self CUDA us", "", func(r *row) int64 { return r.SelfGPU }),
		{Key: "self_cuda_share", Unit: "percent", Title: "Self CUDA %",
			Cell: func(r *row) table.Cell { return share(r.SelfGPU, gpu) }},
		table.Time("cuda", "CUDA total us", "", func(r *row) int64 { return r.GPU }),
		{Key: "cuda_avg", Unit: "ns", Title: "CUDA time avg us",
			Cell: func(r *row) table.Cell { return meanNs(r.GPU, r.Calls) }},
		table.Count("kernels", "kernels", func(r *row) int { return r.Kernels }),
		table.Count("calls", "# of Calls", func(r *row) int { return r.Calls }),
		{Title: "  Name", Left: true, Cell: func(r *row) table.Cell { return table.String(r.Name) }},
	}
	if t.Device < 0 {
		for i, c := range columns {
			if slices.Contains([]string{"self_cuda", "self_cuda_share", "cuda", "cuda_avg", "kernels"}, c.Key) {
				columns[i].Title = ""
			}
		}
	}
	return columns
}

// meanNs is a mean of ns of so many, in tables microseconds.
func meanNs(ns int64, n int) table.Cell {
	mean := float64(ns) / float64(max(1, n))
	c := table.Float(mean, 0)
	c.Text = table.Float(mean/1e3, 3).Text
	return table.Known(n > 0, c)
}

// number is a whole number, for people as the text.
func number(n int64, text string) table.Cell {
	return table.Cell{Number: float64(n), CSV: strconv.FormatInt(n, 10), Text: text}
}

// id is a number that counts nothing.
func id(n int64) table.Cell { return number(n, strconv.FormatInt(n, 10)) }

// process is the id of a process.
func process(id int64) table.Cell { return number(id, traces.ProcessText(id)) }

// spreadColumns are the columns of times; people see some of them, with a word before the title.
func spreadColumns[R any](key, before string, of func(*R) (s *tables.Spread, n int)) []table.Column[R] {
	column := func(name, title string, cell func(*tables.Spread) table.Cell) table.Column[R] {
		return table.Column[R]{Key: key + "_" + name, Unit: "ns", Title: title, Cell: func(r *R) table.Cell {
			s, n := of(r)
			return table.When(n > 0, cell(s))
		}}
	}
	return []table.Column[R]{
		column("mean", before+"mean", func(s *tables.Spread) table.Cell { return table.Mean(s.Mean) }),
		column("median", before+"median", func(s *tables.Spread) table.Cell { return table.Nanoseconds(s.Median) }),
		column("min", "", func(s *tables.Spread) table.Cell { return table.Nanoseconds(s.Min) }),
		column("max", "", func(s *tables.Spread) table.Cell { return table.Nanoseconds(s.Max) }),
		column("stddev", before+"stddev", func(s *tables.Spread) table.Cell { return table.Mean(s.StdDev) }),
		column("p25", "", func(s *tables.Spread) table.Cell { return table.Nanoseconds(s.P25) }),
		column("p75", "", func(s *tables.Spread) table.Cell { return table.Nanoseconds(s.P75) }),
		column("p95", "", func(s *tables.Spread) table.Cell { return table.Nanoseconds(s.P95) }),
		column("p99", "", func(s *tables.Spread) table.Cell { return table.Nanoseconds(s.P99) }),
	}
}

func layoutRanges(t *tables.Table, o ShowOptions) (layout, error) {
	type row = tables.RangeRow
	spread := func(r *row) (*tables.Spread, int) { return &r.Times, r.Calls }
	projected := func(r *row) (*tables.Spread, int) { return &r.Spans, r.Projected }
	columns := slices.Concat([]table.Column[row]{
		table.Count("calls", "calls", func(r *row) int { return r.Calls }),
		table.Time("host", "host us", "sum of the ranges' times", func(r *row) int64 { return r.Host }),
	}, spreadColumns("host", "", spread), []table.Column[row]{
		{Key: "projected", Title: "on GPU", Legend: "ranges that launched work",
			Cell: func(r *row) table.Cell { return table.Int(int64(r.Projected)) }},
		{Key: "gpu", Unit: "ns", Title: "projected us",
			Legend: "from the start of the first work of a range to the end of the last, summed",
			Cell:   func(r *row) table.Cell { return table.When(r.Projected > 0, table.Nanoseconds(r.GPU)) }},
	}, spreadColumns("gpu", "proj. ", projected), []table.Column[row]{
		{Key: "busy", Unit: "ns", Title: "GPU us", Legend: "durations of the work",
			Cell: func(r *row) table.Cell { return table.When(r.Work > 0, table.Nanoseconds(r.Busy)) }},
		{Key: "work", Title: "work", Legend: "kernels, copies and sets",
			Cell: func(r *row) table.Cell { return table.Int(int64(r.Work)) }},
		table.Text("name", "  ", func(r *row) string { return r.Name }),
	})
	return layoutList(&t.Ranges, columns, o, nil)
}

// layoutMemory lays out the table by counter of memory.
func layoutMemory(t *tables.Table, o ShowOptions) (layout, error) {
	type row = tables.MemoryRow
	size := func(key, title string, of func(*row) int64) table.Column[row] {
		return table.Column[row]{Key: key, Unit: "bytes", Title: title, Cell: func(r *row) table.Cell {
			return number(of(r), humanize.Size(of(r)))
		}}
	}
	title := ""
	if slices.ContainsFunc(t.Memory, func(r row) bool { return r.Process != t.Memory[0].Process }) {
		title = "process"
	}
	columns := []table.Column[row]{
		{Key: "device", Title: "GPU", Cell: func(r *row) table.Cell { return id(int64(r.Device)) }},
		{Key: "process", Title: title, Cell: func(r *row) table.Cell { return process(r.Process) }},
		size("peak", "peak", func(r *row) int64 { return r.Peak }),
		{Key: "percent", Unit: "percent", Title: "% of GPU", Legend: "of its memory", Cell: func(r *row) table.Cell {
			return table.Known(r.Percent > 0, table.Float(r.Percent, 1))
		}},
		table.Time("peak_at", "at us", "after the first event", func(r *row) int64 { return r.PeakAt }),
		size("first", "first", func(r *row) int64 { return r.First }),
		size("last", "last", func(r *row) int64 { return r.Last }),
		table.Count("changes", "changes", func(r *row) int { return r.Changes }),
		table.Text("name", "  ", func(r *row) string { return r.Name }),
		table.Text("during", "during its peak", func(r *row) string { return r.During }),
	}
	return layoutList(&t.Memory, columns, o, nil)
}

func layoutProcesses(t *tables.Table, o ShowOptions) (layout, error) {
	type row = tables.ProcessRow
	columns := []table.Column[row]{
		{Key: "rank", Title: "rank", Cell: func(r *row) table.Cell {
			if r.Rank == nil {
				return table.None
			}
			return id(int64(*r.Rank))
		}},
		{Key: "process", Title: "process", Cell: func(r *row) table.Cell { return process(r.Process) }},
		{Key: "device", Title: "GPU", Cell: func(r *row) table.Cell { return id(int64(r.Device)) }},
		table.Count("passes", "passes", func(r *row) int { return r.Passes }),
		table.Time("from", "from us", "its first work, after the first of all processes",
			func(r *row) int64 { return r.From }),
		table.Time("to", "to us", "the end of its last work", func(r *row) int64 { return r.To }),
		table.Count("kernels", "kernels", func(r *row) int { return r.Kernels }),
		table.Time("kernel", "kernel us", "durations of its kernels", func(r *row) int64 { return r.Kernel }),
		table.Time("copies", "copies us", "durations of its copies and sets", func(r *row) int64 { return r.Copies }),
		table.Time("busy", "busy us", "time in which work of it runs", func(r *row) int64 { return r.Busy }),
		table.Time("shared", "shared us", "time of this in which work of another process runs on the GPU too",
			func(r *row) int64 { return r.Shared }),
		table.Count("calls", "API calls", func(r *row) int { return r.Calls }),
		table.Time("waited", "waited us", "in calls that wait for the GPU", func(r *row) int64 { return r.Waited }),
	}
	return layoutList(&t.Processes, columns, o, nil)
}

package trace

import (
	"fmt"
	"io"
	"slices"

	"gpt2scope/cmd/infer/cli"
	"gpt2scope/internal/humanize"
	"gpt2scope/internal/table"
	"gpt2scope/traces"
	"gpt2scope/traces/tables"
)

// layoutOps lays out the table by operation. JSON and CSV have the same rows.
func layoutOps(t *tables.Table, o ShowOptions) (layout, error) {
	all, columns := t.Ops, opColumns(t)
	if err := cli.SortRows(all, columns, o.Rows.Sort, o.Format, table.OneSection); err != nil {
		return layout{}, err
	}
	t.Ops = tables.TopOps(all, o.Rows.Limit)
	return layout{
		Text: func(w io.Writer) {
			table.Print(w, columns, t.Ops)
			opSums(w, all, t.Device)
		},
		csv: func(w io.Writer) error { return cli.WriteCSV(w, columns, t.Ops) },
	}, nil
}

// layoutLaunches lays out the table by launch. The text has a row for each function of
// the API, CSV a row for each launch, JSON both.
func layoutLaunches(t *tables.Table, o ShowOptions) (layout, error) {
	columns, each := LaunchRowColumns(), launchColumns()
	var err error
	if o.Format == "csv" {
		err = cli.SortRows(t.Launches, each, o.Rows.Sort, o.Format, table.OneSection)
		if o.Rows.Limit > 0 {
			t.Launches = t.Launches[:min(o.Rows.Limit, len(t.Launches))]
		}
	} else {
		err = cli.SortRows(t.LaunchRows, columns, o.Rows.Sort, o.Format, table.OneSection)
		t.LaunchRows = tables.TopLaunches(t.LaunchRows, o.Rows.Limit)
	}
	return layout{
		Text: func(w io.Writer) {
			table.Print(w, columns, t.LaunchRows)
			table.Legend(w, columns)
			queueLines(w, t.Queue)
		},
		csv: func(w io.Writer) error { return cli.WriteCSV(w, each, t.Launches) },
	}, err
}

// opColumns are those of PyTorch's table.
func opColumns(t *tables.Table) []table.Column[tables.OpRow] {
	type row = tables.OpRow
	trusted := !traces.Misleads(t.Findings)
	var cpu, gpu int64
	for i := range t.Ops {
		cpu, gpu = cpu+t.Ops[i].SelfCPU, gpu+t.Ops[i].SelfGPU
	}
	share := func(part, whole int64) table.Cell {
		return table.Known(trusted && whole > 0, table.Float(100*float64(part)/float64(max(1, whole)), 2))
	}
	mean := func(ns int64, r *row) table.Cell {
		if r.Calls == 0 {
			return table.Missing
		}
		return floatNs(float64(ns) / float64(r.Calls))
	}
	columns := []table.Column[row]{
		{Key: "name", Cell: func(r *row) table.Cell { return table.String(r.Name) }},
		{Key: "self_cpu", Unit: "ns", Title: "Self CPU us", Cell: func(r *row) table.Cell { return table.Nanoseconds(r.SelfCPU) }},
		{Key: "self_cpu_share", Unit: "percent", Title: "Self CPU %", Cell: func(r *row) table.Cell { return share(r.SelfCPU, cpu) }},
		{Key: "cpu", Unit: "ns", Title: "CPU total us", Cell: func(r *row) table.Cell { return table.Nanoseconds(r.CPU) }},
		{Key: "cpu_avg", Unit: "ns", Title: "CPU time avg us", Cell: func(r *row) table.Cell { return mean(r.CPU, r) }},
		{Key: "self_cuda", Unit: "ns", Title: "Self CUDA us", Cell: func(r *row) table.Cell { return table.Nanoseconds(r.SelfGPU) }},
		{Key: "self_cuda_share", Unit: "percent", Title: "Self CUDA %", Cell: func(r *row) table.Cell { return share(r.SelfGPU, gpu) }},
		{Key: "cuda", Unit: "ns", Title: "CUDA total us", Cell: func(r *row) table.Cell { return table.Nanoseconds(r.GPU) }},
		{Key: "cuda_avg", Unit: "ns", Title: "CUDA time avg us", Cell: func(r *row) table.Cell { return mean(r.GPU, r) }},
		{Key: "kernels", Title: "kernels", Cell: func(r *row) table.Cell { return table.Int(int64(r.Kernels)) }},
		{Key: "calls", Title: "# of Calls", Cell: func(r *row) table.Cell { return table.Int(int64(r.Calls)) }},
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

// floatNs is a mean of ns, in tables microseconds.
func floatNs(ns float64) table.Cell {
	c := table.Float(ns, 0)
	c.Text = table.Float(ns/1e3, 3).Text
	return c
}

// opSums writes the two totals that PyTorch writes below.
func opSums(w io.Writer, ops []tables.OpRow, device int32) {
	var cpu, gpu int64
	for _, r := range ops {
		cpu, gpu = cpu+r.SelfCPU, gpu+r.SelfGPU
	}
	fmt.Fprintf(w, "\nSelf CPU time total: %s us\n", table.Nanoseconds(cpu).Text)
	if device >= 0 {
		fmt.Fprintf(w, "Self CUDA time total: %s us\n", table.Nanoseconds(gpu).Text)
	}
}

// LaunchRowColumns are those of a table by launch for people: a row a function.
func LaunchRowColumns() []table.Column[tables.LaunchRow] {
	type row = tables.LaunchRow
	mean := func(ns int64, n int) table.Cell { return floatNs(float64(ns) / float64(max(1, n))) }
	return []table.Column[row]{
		{Key: "calls", Title: "calls", Cell: func(r *row) table.Cell { return table.Int(int64(r.Calls)) }},
		{Key: "kernels", Title: "kernels", Cell: func(r *row) table.Cell { return table.Int(int64(r.Kernels)) }},
		{Key: "api", Unit: "ns", Title: "API us", Legend: "durations of the calls", Cell: func(r *row) table.Cell { return table.Nanoseconds(r.API) }},
		{Key: "api_mean", Unit: "ns", Title: "API mean", Cell: func(r *row) table.Cell { return mean(r.API, r.Calls) }},
		{Key: "delay", Unit: "ns", Title: "queued us", Legend: "from the end of a call to the start of its work", Cell: func(r *row) table.Cell { return table.Nanoseconds(r.Delay) }},
		{Key: "delay_mean", Unit: "ns", Title: "queued mean", Cell: func(r *row) table.Cell { return mean(r.Delay, r.Calls) }},
		{Key: "delay_max", Unit: "ns", Title: "queued max", Cell: func(r *row) table.Cell { return table.Nanoseconds(r.MaxDelay) }},
		{Key: "busy", Unit: "ns", Title: "GPU us", Legend: "durations of its work", Cell: func(r *row) table.Cell { return table.Nanoseconds(r.Busy) }},
		{Key: "busy_mean", Unit: "ns", Title: "GPU mean", Cell: func(r *row) table.Cell { return mean(r.Busy, r.Calls) }},
		{Key: "depth", Title: "depth", Legend: "unfinished kernels at a launch, mean", Cell: func(r *row) table.Cell { return table.Float(r.Depth, 1) }},
		{Key: "depth_max", Title: "depth max", Cell: func(r *row) table.Cell { return table.Int(int64(r.MaxDepth)) }},
		{Key: "starved", Title: "starved", Legend: "launches that found none", Cell: func(r *row) table.Cell { return table.Int(int64(r.Starved)) }},
		{Key: "name", Title: "  ", Left: true, Cell: func(r *row) table.Cell { return table.String(r.Name) }},
	}
}

// launchColumns are those of a launch: in CSV, a row each.
func launchColumns() []table.Column[tables.Launch] {
	type row = tables.Launch
	return []table.Column[row]{
		{Key: "call", Cell: func(r *row) table.Cell { return table.String(r.Call) }},
		{Key: "correlation", Cell: func(r *row) table.Cell { return table.String(fmt.Sprint(r.Correlation)) }},
		{Key: "phase", Cell: func(r *row) table.Cell { return table.String(r.Phase) }},
		{Key: "step", Cell: func(r *row) table.Cell { return table.String(r.Step) }},
		{Key: "work", Cell: func(r *row) table.Cell { return table.String(r.Work) }},
		{Key: "start", Unit: "ns", Cell: func(r *row) table.Cell { return table.Nanoseconds(r.Time) }},
		{Key: "api", Unit: "ns", Cell: func(r *row) table.Cell { return table.Nanoseconds(r.API) }},
		{Key: "delay", Unit: "ns", Cell: func(r *row) table.Cell { return table.Nanoseconds(r.Delay) }},
		{Key: "busy", Unit: "ns", Cell: func(r *row) table.Cell { return table.Nanoseconds(r.Busy) }},
		{Key: "kernels", Cell: func(r *row) table.Cell { return table.Int(int64(r.Kernels)) }},
		{Key: "depth", Cell: func(r *row) table.Cell { return table.Int(int64(r.Depth)) }},
		{Key: "starved", Unit: "ns", Cell: func(r *row) table.Cell { return table.Nanoseconds(r.Starved) }},
	}
}

// queueLines say who waited for whom.
func queueLines(w io.Writer, q *tables.Queue) {
	us := func(ns int64) string { return table.Nanoseconds(ns).Text }
	fmt.Fprintf(w, "\nthe host ran ahead at %s of %s launches: earlier work was unfinished, and theirs waited %s us in all\n", humanize.Thousands(int64(q.Ahead)), humanize.Thousands(int64(q.Launches)), us(q.AheadTime))
	fmt.Fprintf(w, "the GPU starved before %s of %s launches: nothing was queued and nothing ran for %s us in all\n", humanize.Thousands(int64(q.Starved)), humanize.Thousands(int64(q.Launches)), us(q.StarvedTime))
	if q.WithoutCall > 0 {
		fmt.Fprintf(w, "%s kernels, copies and sets have no recorded API call and are left out\n", humanize.Thousands(int64(q.WithoutCall)))
	}
}

package main

import (
	"fmt"
	"io"
	"slices"

	"gpt2scope/internal/humanize"
	"gpt2scope/traces"
	"gpt2scope/traces/tables"
)

// layoutOps lays out the table by operation. JSON and CSV have the same rows.
func layoutOps(t *tables.Table, o showOptions) (layout, error) {
	all, columns := t.Ops, opColumns(t)
	if err := sortRows(all, columns, o.rows.sort, o.format, oneSection); err != nil {
		return layout{}, err
	}
	t.Ops = tables.TopOps(all, o.rows.limit)
	return layout{
		text: func(w io.Writer) {
			printCells(w, columns, t.Ops, nil)
			opSums(w, all, t.Device)
		},
		csv: func(w io.Writer) error { return writeCSV(w, columns, t.Ops) },
	}, nil
}

// oneSection sorts all rows of a table together.
func oneSection[R any](*R) int { return 0 }

// layoutLaunches lays out the table by launch. The text has a row for each function of
// the API, CSV a row for each launch, JSON both.
func layoutLaunches(t *tables.Table, o showOptions) (layout, error) {
	columns, each := launchRowColumns(), launchColumns()
	var err error
	if o.format == "csv" {
		err = sortRows(t.Launches, each, o.rows.sort, o.format, oneSection)
		if o.rows.limit > 0 {
			t.Launches = t.Launches[:min(o.rows.limit, len(t.Launches))]
		}
	} else {
		err = sortRows(t.LaunchRows, columns, o.rows.sort, o.format, oneSection)
		t.LaunchRows = tables.TopLaunches(t.LaunchRows, o.rows.limit)
	}
	return layout{
		text: func(w io.Writer) {
			printCells(w, columns, t.LaunchRows, nil)
			printLegend(w, columns)
			queueLines(w, t.Queue)
		},
		csv: func(w io.Writer) error { return writeCSV(w, each, t.Launches) },
	}, err
}

// opColumns are those of PyTorch's table.
func opColumns(t *tables.Table) []column[tables.OpRow] {
	type row = tables.OpRow
	trusted := !traces.Misleads(t.Findings)
	var cpu, gpu int64
	for i := range t.Ops {
		cpu, gpu = cpu+t.Ops[i].SelfCPU, gpu+t.Ops[i].SelfGPU
	}
	share := func(part, whole int64) cell {
		return known(trusted && whole > 0, floatCell(100*float64(part)/float64(max(1, whole)), 2))
	}
	mean := func(ns int64, r *row) cell {
		if r.Calls == 0 {
			return missing
		}
		return floatNs(float64(ns) / float64(r.Calls))
	}
	columns := []column[row]{
		{key: "name", cell: func(r *row) cell { return textCell(r.Name) }},
		{key: "self_cpu", unit: "ns", title: "Self CPU us", cell: func(r *row) cell { return nsCell(r.SelfCPU) }},
		{key: "self_cpu_share", unit: "percent", title: "Self CPU %", cell: func(r *row) cell { return share(r.SelfCPU, cpu) }},
		{key: "cpu", unit: "ns", title: "CPU total us", cell: func(r *row) cell { return nsCell(r.CPU) }},
		{key: "cpu_avg", unit: "ns", title: "CPU time avg us", cell: func(r *row) cell { return mean(r.CPU, r) }},
		{key: "self_cuda", unit: "ns", title: "Self CUDA us", cell: func(r *row) cell { return nsCell(r.SelfGPU) }},
		{key: "self_cuda_share", unit: "percent", title: "Self CUDA %", cell: func(r *row) cell { return share(r.SelfGPU, gpu) }},
		{key: "cuda", unit: "ns", title: "CUDA total us", cell: func(r *row) cell { return nsCell(r.GPU) }},
		{key: "cuda_avg", unit: "ns", title: "CUDA time avg us", cell: func(r *row) cell { return mean(r.GPU, r) }},
		{key: "kernels", old: "pieces", title: "kernels", cell: func(r *row) cell { return intCell(int64(r.Kernels)) }},
		{key: "calls", title: "# of Calls", cell: func(r *row) cell { return intCell(int64(r.Calls)) }},
		{title: "  Name", left: true, cell: func(r *row) cell { return textCell(r.Name) }},
	}
	if slices.ContainsFunc(t.Ops, func(r row) bool { return r.Inputs != "" }) {
		columns = append(columns, column[row]{key: "inputs", title: "Input Shapes", left: true, cell: func(r *row) cell { return textCell(r.Inputs) }})
	}
	if t.Device < 0 {
		for i, c := range columns {
			if slices.Contains([]string{"self_cuda", "self_cuda_share", "cuda", "cuda_avg", "kernels"}, c.key) {
				columns[i].title = ""
			}
		}
	}
	return columns
}

// floatNs is a mean of ns, in tables microseconds.
func floatNs(ns float64) cell {
	c := floatCell(ns, 0)
	c.text = floatCell(ns/1e3, 3).text
	return c
}

// opSums writes the two totals that PyTorch writes below.
func opSums(w io.Writer, ops []tables.OpRow, device int32) {
	var cpu, gpu int64
	for _, r := range ops {
		cpu, gpu = cpu+r.SelfCPU, gpu+r.SelfGPU
	}
	fmt.Fprintf(w, "\nSelf CPU time total: %s us\n", nsCell(cpu).text)
	if device >= 0 {
		fmt.Fprintf(w, "Self CUDA time total: %s us\n", nsCell(gpu).text)
	}
}

// launchRowColumns are those of a table by launch for people: a row a function.
func launchRowColumns() []column[tables.LaunchRow] {
	type row = tables.LaunchRow
	mean := func(ns int64, n int) cell { return floatNs(float64(ns) / float64(max(1, n))) }
	return []column[row]{
		{key: "calls", title: "calls", cell: func(r *row) cell { return intCell(int64(r.Calls)) }},
		{key: "kernels", old: "pieces", title: "kernels", cell: func(r *row) cell { return intCell(int64(r.Kernels)) }},
		{key: "api", unit: "ns", title: "API us", legend: "durations of the calls", cell: func(r *row) cell { return nsCell(r.API) }},
		{key: "api_mean", unit: "ns", title: "API mean", cell: func(r *row) cell { return mean(r.API, r.Calls) }},
		{key: "delay", unit: "ns", title: "queued us", legend: "from the end of a call to the start of its work", cell: func(r *row) cell { return nsCell(r.Delay) }},
		{key: "delay_mean", unit: "ns", title: "queued mean", cell: func(r *row) cell { return mean(r.Delay, r.Calls) }},
		{key: "delay_max", unit: "ns", title: "queued max", cell: func(r *row) cell { return nsCell(r.MaxDelay) }},
		{key: "busy", unit: "ns", title: "GPU us", legend: "durations of its work", cell: func(r *row) cell { return nsCell(r.Busy) }},
		{key: "busy_mean", unit: "ns", title: "GPU mean", cell: func(r *row) cell { return mean(r.Busy, r.Calls) }},
		{key: "depth", title: "depth", legend: "unfinished kernels at a launch, mean", cell: func(r *row) cell { return floatCell(r.Depth, 1) }},
		{key: "depth_max", title: "depth max", cell: func(r *row) cell { return intCell(int64(r.MaxDepth)) }},
		{key: "starved", title: "starved", legend: "launches that found none", cell: func(r *row) cell { return intCell(int64(r.Starved)) }},
		{key: "name", title: "  ", left: true, cell: func(r *row) cell { return textCell(r.Name) }},
	}
}

// launchColumns are those of a launch: in CSV, a row each.
func launchColumns() []column[tables.Launch] {
	type row = tables.Launch
	return []column[row]{
		{key: "call", cell: func(r *row) cell { return textCell(r.Call) }},
		{key: "correlation", cell: func(r *row) cell { return textCell(fmt.Sprint(r.Correlation)) }},
		{key: "phase", cell: func(r *row) cell { return textCell(r.Phase) }},
		{key: "step", cell: func(r *row) cell { return textCell(r.Step) }},
		{key: "work", cell: func(r *row) cell { return textCell(r.Work) }},
		{key: "start", unit: "ns", cell: func(r *row) cell { return nsCell(r.Time) }},
		{key: "api", unit: "ns", cell: func(r *row) cell { return nsCell(r.API) }},
		{key: "delay", unit: "ns", cell: func(r *row) cell { return nsCell(r.Delay) }},
		{key: "busy", unit: "ns", cell: func(r *row) cell { return nsCell(r.Busy) }},
		{key: "kernels", old: "pieces", cell: func(r *row) cell { return intCell(int64(r.Kernels)) }},
		{key: "depth", cell: func(r *row) cell { return intCell(int64(r.Depth)) }},
		{key: "starved", unit: "ns", cell: func(r *row) cell { return nsCell(r.Starved) }},
	}
}

// queueLines say who waited for whom.
func queueLines(w io.Writer, q *tables.Queue) {
	us := func(ns int64) string { return nsCell(ns).text }
	fmt.Fprintf(w, "\nthe host ran ahead at %s of %s launches: earlier work was unfinished, and theirs waited %s us in all\n", humanize.Thousands(int64(q.Ahead)), humanize.Thousands(int64(q.Launches)), us(q.AheadTime))
	fmt.Fprintf(w, "the GPU starved before %s of %s launches: nothing was queued and nothing ran for %s us in all\n", humanize.Thousands(int64(q.Starved)), humanize.Thousands(int64(q.Launches)), us(q.StarvedTime))
	if q.WithoutCall > 0 {
		fmt.Fprintf(w, "%s kernels, copies and sets have no recorded API call and are left out\n", humanize.Thousands(int64(q.WithoutCall)))
	}
}

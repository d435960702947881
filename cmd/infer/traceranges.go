package main

import (
	"io"
	"strconv"
	"strings"

	"gpt2scope/traces/tables"
)

// layoutList lays out a table of rows of one kind, which are in *rows.
func layoutList[R any](rows *[]R, columns []column[R], o showOptions) (layout, error) {
	if err := sortRows(*rows, columns, o.rows.sort, o.format, oneSection); err != nil {
		return layout{}, err
	}
	cut := 0
	if o.rows.limit > 0 && len(*rows) > o.rows.limit {
		cut = len(*rows) - o.rows.limit
		*rows = (*rows)[:o.rows.limit]
	}
	return layout{
		text: func(w io.Writer) {
			printCells(w, columns, *rows, nil)
			notShown(w, cut)
			printLegend(w, columns)
		},
		csv: func(w io.Writer) error { return writeCSV(w, columns, *rows) },
	}, nil
}

// spreadColumns are the columns of times; titles are of those that people see.
func spreadColumns[R any](key string, title map[string]string, of func(*R) (s *tables.Spread, n int)) []column[R] {
	var columns []column[R]
	add := func(name string, value func(*tables.Spread) cell) {
		columns = append(columns, column[R]{key: key + "_" + name, unit: "ns", title: title[name], cell: func(r *R) cell {
			s, n := of(r)
			return when(n > 0, value(s))
		}})
	}
	add("mean", func(s *tables.Spread) cell { return meanCell(s.Mean) })
	add("median", func(s *tables.Spread) cell { return nsCell(s.Median) })
	add("min", func(s *tables.Spread) cell { return nsCell(s.Min) })
	add("max", func(s *tables.Spread) cell { return nsCell(s.Max) })
	add("stddev", func(s *tables.Spread) cell { return meanCell(s.StdDev) })
	add("p25", func(s *tables.Spread) cell { return nsCell(s.P25) })
	add("p75", func(s *tables.Spread) cell { return nsCell(s.P75) })
	add("p95", func(s *tables.Spread) cell { return nsCell(s.P95) })
	add("p99", func(s *tables.Spread) cell { return nsCell(s.P99) })
	return columns
}

// layoutRanges lays out the table by range.
func layoutRanges(t *tables.Table, o showOptions) (layout, error) {
	type row = tables.RangeRow
	columns := []column[row]{
		{key: "calls", title: "calls", cell: func(r *row) cell { return intCell(int64(r.Calls)) }},
		{key: "host", unit: "ns", title: "host us", legend: "sum of the ranges' times", cell: func(r *row) cell { return nsCell(r.Host) }},
	}
	columns = append(columns, spreadColumns("host", map[string]string{"mean": "mean", "median": "median", "stddev": "stddev"}, func(r *row) (*tables.Spread, int) { return &r.Times, r.Calls })...)
	columns = append(columns,
		column[row]{key: "projected", title: "on GPU", legend: "ranges that launched work", cell: func(r *row) cell { return intCell(int64(r.Projected)) }},
		column[row]{key: "gpu", unit: "ns", title: "projected us", legend: "from the start of the first work of a range to the end of the last, summed", cell: func(r *row) cell { return when(r.Projected > 0, nsCell(r.GPU)) }})
	columns = append(columns, spreadColumns("gpu", map[string]string{"mean": "proj. mean", "median": "proj. median", "stddev": "proj. stddev"}, func(r *row) (*tables.Spread, int) { return &r.Spans, r.Projected })...)
	columns = append(columns,
		column[row]{key: "busy", unit: "ns", title: "GPU us", legend: "durations of the work", cell: func(r *row) cell { return when(r.Work > 0, nsCell(r.Busy)) }},
		column[row]{key: "work", title: "work", legend: "kernels, copies and sets", cell: func(r *row) cell { return intCell(int64(r.Work)) }},
		column[row]{key: "name", title: "  ", left: true, cell: func(r *row) cell { return textCell(r.Name) }})
	return layoutList(&t.Ranges, columns, o)
}

// layoutExecutions lays out the table by execution.
func layoutExecutions(t *tables.Table, o showOptions) (layout, error) {
	type row = tables.ExecRow
	columns := []column[row]{
		{key: "process", cell: func(r *row) cell { return intCell(r.Process) }},
		{key: "thread", cell: func(r *row) cell { return intCell(r.Thread) }},
		{key: "calls", title: "calls", cell: func(r *row) cell { return intCell(int64(r.Calls)) }},
	}
	some := func(key, mean, median string, of func(*row) (*tables.Spread, int)) {
		columns = append(columns, spreadColumns(key, map[string]string{"mean": mean, "median": median}, of)...)
	}
	some("total", "total mean", "median", func(r *row) (*tables.Spread, int) { return &r.Total, r.Calls })
	some("api", "API mean", "median", func(r *row) (*tables.Spread, int) { return &r.API, r.Calls })
	columns = append(columns, column[row]{key: "waited", title: "queued", legend: "kernels that began after their call returned", cell: func(r *row) cell { return intCell(int64(r.Waited)) }})
	some("queued", "queued mean", "median", func(r *row) (*tables.Spread, int) { return &r.Queued, r.Waited })
	some("kernel", "kernel mean", "median", func(r *row) (*tables.Spread, int) { return &r.Kernel, r.Calls })
	columns = append(columns,
		column[row]{key: "call", title: "  call", left: true, cell: func(r *row) cell { return textCell(r.Call) }},
		column[row]{key: "name", title: "kernel", left: true, cell: func(r *row) cell { return textCell(r.Name) }})
	for i := range columns {
		if columns[i].key == "total_mean" {
			columns[i].legend = "from the begin of the call to the end of the kernel, in us"
		}
	}
	return layoutList(&t.Executions, columns, o)
}

// layoutSequences lays out the table by sequence.
func layoutSequences(t *tables.Table, o showOptions) (layout, error) {
	type row = tables.SequenceRow
	columns := []column[row]{
		{key: "count", title: "count", legend: "without overlap", cell: func(r *row) cell { return intCell(int64(r.Count)) }},
		{key: "length", title: "kernels", cell: func(r *row) cell { return intCell(int64(len(r.Kernels))) }},
		{key: "busy", unit: "ns", title: "GPU us", legend: "durations of the kernels", cell: func(r *row) cell { return nsCell(r.Busy) }},
		{key: "span", unit: "ns", title: "span us", legend: "from the start of the first to the end of the last", cell: func(r *row) cell { return nsCell(r.Span) }},
		{key: "busy_mean", unit: "ns", title: "GPU mean", cell: func(r *row) cell { return meanCell(float64(r.Busy) / float64(max(1, r.Count))) }},
		{key: "kernels", cell: func(r *row) cell { return textCell(strings.Join(r.Kernels, " -> ")) }},
		{title: "  sequence", left: true, cell: func(r *row) cell {
			var names []string
			for _, name := range r.Kernels {
				names = append(names, tables.ShortKernel(name))
			}
			return textCell(strings.Join(names, " -> "))
		}},
	}
	return layoutList(&t.Sequences, columns, o)
}

// layoutProcesses lays out the table by process.
func layoutProcesses(t *tables.Table, o showOptions) (layout, error) {
	type row = tables.ProcessRow
	columns := []column[row]{
		{key: "rank", title: "rank", cell: func(r *row) cell {
			if r.Rank == nil {
				return none
			}
			return cell{float64(*r.Rank), strconv.Itoa(*r.Rank), strconv.Itoa(*r.Rank)}
		}},
		{key: "process", title: "process", cell: func(r *row) cell {
			return cell{float64(r.Process), strconv.FormatInt(r.Process, 10), strconv.FormatInt(r.Process, 10)}
		}},
		{key: "device", title: "GPU", cell: func(r *row) cell {
			return cell{float64(r.Device), strconv.Itoa(int(r.Device)), strconv.Itoa(int(r.Device))}
		}},
		{key: "passes", title: "passes", cell: func(r *row) cell { return intCell(int64(r.Passes)) }},
		{key: "from", unit: "ns", title: "from us", legend: "its first work, after the first of all processes", cell: func(r *row) cell { return nsCell(r.From) }},
		{key: "to", unit: "ns", title: "to us", legend: "the end of its last work", cell: func(r *row) cell { return nsCell(r.To) }},
		{key: "kernels", title: "kernels", cell: func(r *row) cell { return intCell(int64(r.Kernels)) }},
		{key: "kernel", unit: "ns", title: "kernel us", legend: "durations of its kernels", cell: func(r *row) cell { return nsCell(r.Kernel) }},
		{key: "copies", unit: "ns", title: "copies us", legend: "durations of its copies and sets", cell: func(r *row) cell { return nsCell(r.Copies) }},
		{key: "busy", unit: "ns", title: "busy us", legend: "time in which work of it runs", cell: func(r *row) cell { return nsCell(r.Busy) }},
		{key: "shared", unit: "ns", title: "shared us", legend: "time of this in which work of another process runs on the GPU too", cell: func(r *row) cell { return nsCell(r.Shared) }},
		{key: "calls", title: "API calls", cell: func(r *row) cell { return intCell(int64(r.Calls)) }},
		{key: "waited", unit: "ns", title: "waited us", legend: "in calls that wait for the GPU", cell: func(r *row) cell { return nsCell(r.Waited) }},
	}
	return layoutList(&t.Processes, columns, o)
}

package trace

import (
	"io"
	"strconv"

	"gpt2scope/cmd/infer/cli"
	"gpt2scope/internal/table"
	"gpt2scope/traces/tables"
)

// layoutList lays out a table of rows of one kind, which are in *rows.
func layoutList[R any](rows *[]R, columns []table.Column[R], o ShowOptions) (layout, error) {
	if err := cli.SortRows(*rows, columns, o.Rows.Sort, o.Format, table.OneSection); err != nil {
		return layout{}, err
	}
	cut := 0
	if o.Rows.Limit > 0 && len(*rows) > o.Rows.Limit {
		cut = len(*rows) - o.Rows.Limit
		*rows = (*rows)[:o.Rows.Limit]
	}
	return layout{
		Text: func(w io.Writer) {
			table.Print(w, columns, *rows)
			cli.NotShown(w, cut)
			table.Legend(w, columns)
		},
		csv: func(w io.Writer) error { return cli.WriteCSV(w, columns, *rows) },
	}, nil
}

// spreadColumns are the columns of times; titles are of those that people see.
func spreadColumns[R any](key string, title map[string]string, of func(*R) (s *tables.Spread, n int)) []table.Column[R] {
	var columns []table.Column[R]
	add := func(name string, value func(*tables.Spread) table.Cell) {
		columns = append(columns, table.Column[R]{Key: key + "_" + name, Unit: "ns", Title: title[name], Cell: func(r *R) table.Cell {
			s, n := of(r)
			return table.When(n > 0, value(s))
		}})
	}
	add("mean", func(s *tables.Spread) table.Cell { return table.Mean(s.Mean) })
	add("median", func(s *tables.Spread) table.Cell { return table.Nanoseconds(s.Median) })
	add("min", func(s *tables.Spread) table.Cell { return table.Nanoseconds(s.Min) })
	add("max", func(s *tables.Spread) table.Cell { return table.Nanoseconds(s.Max) })
	add("stddev", func(s *tables.Spread) table.Cell { return table.Mean(s.StdDev) })
	add("p25", func(s *tables.Spread) table.Cell { return table.Nanoseconds(s.P25) })
	add("p75", func(s *tables.Spread) table.Cell { return table.Nanoseconds(s.P75) })
	add("p95", func(s *tables.Spread) table.Cell { return table.Nanoseconds(s.P95) })
	add("p99", func(s *tables.Spread) table.Cell { return table.Nanoseconds(s.P99) })
	return columns
}

// layoutRanges lays out the table by range.
func layoutRanges(t *tables.Table, o ShowOptions) (layout, error) {
	type row = tables.RangeRow
	columns := []table.Column[row]{
		{Key: "calls", Title: "calls", Cell: func(r *row) table.Cell { return table.Int(int64(r.Calls)) }},
		{Key: "host", Unit: "ns", Title: "host us", Legend: "sum of the ranges' times", Cell: func(r *row) table.Cell { return table.Nanoseconds(r.Host) }},
	}
	columns = append(columns, spreadColumns("host", map[string]string{"mean": "mean", "median": "median", "stddev": "stddev"}, func(r *row) (*tables.Spread, int) { return &r.Times, r.Calls })...)
	columns = append(columns,
		table.Column[row]{Key: "projected", Title: "on GPU", Legend: "ranges that launched work", Cell: func(r *row) table.Cell { return table.Int(int64(r.Projected)) }},
		table.Column[row]{Key: "gpu", Unit: "ns", Title: "projected us", Legend: "from the start of the first work of a range to the end of the last, summed", Cell: func(r *row) table.Cell { return table.When(r.Projected > 0, table.Nanoseconds(r.GPU)) }})
	columns = append(columns, spreadColumns("gpu", map[string]string{"mean": "proj. mean", "median": "proj. median", "stddev": "proj. stddev"}, func(r *row) (*tables.Spread, int) { return &r.Spans, r.Projected })...)
	columns = append(columns,
		table.Column[row]{Key: "busy", Unit: "ns", Title: "GPU us", Legend: "durations of the work", Cell: func(r *row) table.Cell { return table.When(r.Work > 0, table.Nanoseconds(r.Busy)) }},
		table.Column[row]{Key: "work", Title: "work", Legend: "kernels, copies and sets", Cell: func(r *row) table.Cell { return table.Int(int64(r.Work)) }},
		table.Column[row]{Key: "name", Title: "  ", Left: true, Cell: func(r *row) table.Cell { return table.String(r.Name) }})
	return layoutList(&t.Ranges, columns, o)
}

// layoutProcesses lays out the table by process.
func layoutProcesses(t *tables.Table, o ShowOptions) (layout, error) {
	type row = tables.ProcessRow
	columns := []table.Column[row]{
		{Key: "rank", Title: "rank", Cell: func(r *row) table.Cell {
			if r.Rank == nil {
				return table.None
			}
			return table.Cell{Number: float64(*r.Rank), CSV: strconv.Itoa(*r.Rank), Text: strconv.Itoa(*r.Rank)}
		}},
		{Key: "process", Title: "process", Cell: func(r *row) table.Cell {
			return table.Cell{Number: float64(r.Process), CSV: strconv.FormatInt(r.Process, 10), Text: strconv.FormatInt(r.Process, 10)}
		}},
		{Key: "device", Title: "GPU", Cell: func(r *row) table.Cell {
			return table.Cell{Number: float64(r.Device), CSV: strconv.Itoa(int(r.Device)), Text: strconv.Itoa(int(r.Device))}
		}},
		{Key: "passes", Title: "passes", Cell: func(r *row) table.Cell { return table.Int(int64(r.Passes)) }},
		{Key: "from", Unit: "ns", Title: "from us", Legend: "its first work, after the first of all processes", Cell: func(r *row) table.Cell { return table.Nanoseconds(r.From) }},
		{Key: "to", Unit: "ns", Title: "to us", Legend: "the end of its last work", Cell: func(r *row) table.Cell { return table.Nanoseconds(r.To) }},
		{Key: "kernels", Title: "kernels", Cell: func(r *row) table.Cell { return table.Int(int64(r.Kernels)) }},
		{Key: "kernel", Unit: "ns", Title: "kernel us", Legend: "durations of its kernels", Cell: func(r *row) table.Cell { return table.Nanoseconds(r.Kernel) }},
		{Key: "copies", Unit: "ns", Title: "copies us", Legend: "durations of its copies and sets", Cell: func(r *row) table.Cell { return table.Nanoseconds(r.Copies) }},
		{Key: "busy", Unit: "ns", Title: "busy us", Legend: "time in which work of it runs", Cell: func(r *row) table.Cell { return table.Nanoseconds(r.Busy) }},
		{Key: "shared", Unit: "ns", Title: "shared us", Legend: "time of this in which work of another process runs on the GPU too", Cell: func(r *row) table.Cell { return table.Nanoseconds(r.Shared) }},
		{Key: "calls", Title: "API calls", Cell: func(r *row) table.Cell { return table.Int(int64(r.Calls)) }},
		{Key: "waited", Unit: "ns", Title: "waited us", Legend: "in calls that wait for the GPU", Cell: func(r *row) table.Cell { return table.Nanoseconds(r.Waited) }},
	}
	return layoutList(&t.Processes, columns, o)
}

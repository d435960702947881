package tables

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"gpt2scope/internal/humanize"
	"gpt2scope/internal/table"
	"gpt2scope/traces"
)

// Columns are the columns of a table whose rows sum to the wall time, but for their names. The rows may be those of
// Table.Folded, as by says.
func Columns(t *Table, by By) []table.Column[Row] {
	type row = Row
	type cell = func(*row) table.Cell
	byKernel := t.By == ByKernel
	hasWork := func(r *row) bool { return r.Kind == RowWork || r.Kind == RowOther }
	when := func(is func(*row) bool, of cell) cell {
		return func(r *row) table.Cell { return table.When(is(r), of(r)) }
	}
	stage := func(of cell) cell { return when(func(r *row) bool { return r.Kind == RowWork }, of) }
	moved := func(of cell) cell {
		return when(func(r *row) bool { return r.Kind == RowWork || r.Bytes > 0 }, of)
	}
	measured := func(of cell) cell { return when(func(r *row) bool { return r.Max > 0 }, of) }
	shape := func(of func(*Shape) table.Cell) cell {
		return stage(func(r *row) table.Cell {
			return table.When(byKernel, table.Known(r.Shape.Known(), of(cmp.Or(r.Shape, &Shape{}))))
		})
	}
	occupancy := func(of func(*Occupancy) table.Cell) cell {
		return stage(func(r *row) table.Cell {
			return table.When(byKernel, table.Known(r.Occupancy != nil, of(cmp.Or(r.Occupancy, &Occupancy{}))))
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
		{Key: "grid", Cell: shape(func(s *Shape) table.Cell { return table.String(Dims(s.Grid)) })},
		{Key: "block", Cell: shape(func(s *Shape) table.Cell { return table.String(Dims(s.Block)) })},
		{Key: "warps", Cell: shape(func(s *Shape) table.Cell { return table.Int((s.Threads() + 31) / 32) })},
		{Key: "registers", Cell: shape(func(s *Shape) table.Cell {
			return table.Known(s.Registers > 0, table.Int(int64(s.Registers)))
		})},
		{Key: "shared", Unit: "bytes", Cell: shape(func(s *Shape) table.Cell {
			n := int64(s.StaticShared) + int64(s.DynamicShared)
			return table.Cell{Number: float64(n), CSV: strconv.FormatInt(n, 10), Text: humanize.Thousands(n)}
		})},
		{Key: "occupancy", Unit: "percent", Legend: "theoretical occupancy of an SM",
			Cell: occupancy(func(o *Occupancy) table.Cell { return table.Float(o.Percent, 1) })},
		{Key: "limit", Legend: "what allows no more warps",
			Cell: occupancy(func(o *Occupancy) table.Cell { return table.String(o.Limit) })},
		{Key: "waves", Legend: "how often the grid fills the GPU",
			Cell: occupancy(func(o *Occupancy) table.Cell { return table.Known(o.Waves > 0, table.Float(o.Waves, 2)) })},
		{Key: "tail", Unit: "percent", Legend: "empty part of the last wave",
			Cell: occupancy(func(o *Occupancy) table.Cell { return table.Known(o.Waves > 0, table.Float(o.Tail, 1)) })},
		{Key: "bounded", Cell: func(r *row) table.Cell { return table.Int(int64(r.Bounded)) }},
		{Key: "imbalance", Legend: "slowest thread / mean",
			Cell: stage(func(r *row) table.Cell { return table.Known(r.Imbalance > 0, table.Float(r.Imbalance, 2)) })},
	}
	columns = append(columns, counterColumns(t)...)
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
			c.Key == "layers" && by != ByFolded ||
			// Two columns are called imbalance, and no recording has both.
			IsInside(c) != inKernel && (IsInside(c) || c.Key == "imbalance")
	})
	for i := range columns {
		c := &columns[i]
		if title, ok := titles[c.Key]; ok && c.Key != "" {
			c.Title = title
		}
		switch {
		case c.Key == "median" && t.By == ByStage:
			c.Title = "median us"
		case c.Key == "layers" && !slices.ContainsFunc(t.Folded, func(r row) bool { return r.Layers > 1 }):
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

// IsInside reports whether a column is of what SMs did inside a kernel.
func IsInside(c table.Column[Row]) bool {
	return c.Unit == "ns" && slices.Contains([]string{"weights", "inputs", "compute", "imbalance"}, c.Key)
}

// counterTitles are the headings of hardware counters.
var counterTitles = map[string]string{traces.CounterOccupancy: "achieved %", traces.CounterSMThroughput: "SM %",
	traces.CounterDRAMThroughput: "DRAM %", traces.CounterL1Throughput: "L1 %", traces.CounterL2Throughput: "L2 %",
	traces.CounterL1Hits: "L1 hit %", traces.CounterL2Hits: "L2 hit %", traces.CounterWarpEfficiency: "warp eff. %",
	traces.CounterBranches: "branch eff. %", traces.CounterSMActive: "SMs active %"}

// counterColumns are the columns of the counters that the table has.
func counterColumns(t *Table) []table.Column[Row] {
	var columns []table.Column[Row]
	for _, c := range traces.AllCounters {
		if !slices.ContainsFunc(t.Rows, func(r Row) bool { _, ok := r.Counters[c.Key]; return ok }) {
			continue
		}
		name := strings.TrimSuffix(c.Key, "_percent")
		cell := func(r *Row) table.Cell {
			v, ok := r.Counters[c.Key]
			return table.When(r.Kind == RowWork, table.Known(ok, table.Float(v, 1)))
		}
		columns = append(columns, table.Column[Row]{Key: name, Unit: "percent", Title: counterTitles[c.Key],
			Legend: c.Name, Cell: cell})
	}
	return columns
}

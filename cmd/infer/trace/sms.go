package trace

import (
	"gpt2scope/internal/table"
	"gpt2scope/traces/tables"
)

// layoutSMs lays out the table by SM.
func layoutSMs(t *tables.Table, o ShowOptions) (layout, error) {
	type row = tables.SMRow
	columns := []table.Column[row]{
		{Key: "sm", Title: "SM", Cell: func(r *row) table.Cell { return table.Float(float64(r.SM), 0) }},
		{Key: "steps", Title: "steps", Legend: "of a pass, in which the SM has a part", Cell: func(r *row) table.Cell { return table.Float(r.Steps, 1) }},
	}
	for _, c := range []struct {
		key, title, legend string
		of                 func(*row) float64
	}{
		{"time", "time us", "mean of a pass, which the others sum to", func(r *row) float64 { return r.Time }},
		{"weights", "weights us", "waiting for weights, or keys and values", func(r *row) float64 { return r.Weights }},
		{"inputs", "inputs us", "waiting for what other SMs compute", func(r *row) float64 { return r.Inputs }},
		{"compute", "compute us", "from the inputs to the published outputs", func(r *row) float64 { return r.Compute }},
		{"imbalance", "imbalance us", "waiting for the last SM", func(r *row) float64 { return r.Imbalance }},
		{"no_part", "no part us", "in steps of other SMs", func(r *row) float64 { return r.NoPart }},
		{"idle", "idle us", "before a launch", func(r *row) float64 { return r.Idle }},
	} {
		columns = append(columns, table.Column[row]{Key: c.key, Unit: "ns", Title: c.title, Legend: c.legend, Cell: func(r *row) table.Cell { return table.Mean(c.of(r)) }})
	}
	return layoutList(&t.SMs, columns, o)
}

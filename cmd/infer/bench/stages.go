package bench

import (
	"fmt"
	"io"
	"time"

	"gpt2scope/cmd/infer/cli"
	"gpt2scope/internal/table"
	"gpt2scope/measure"
)

// stageColumns are the columns of the table of stages.
var stageColumns = []table.Column[measure.StageTime]{
	{Key: "calls", Title: "calls", Cell: func(s *measure.StageTime) table.Cell { return table.Int(int64(s.Calls)) }},
	{Key: "time", Title: "time us", Cell: func(s *measure.StageTime) table.Cell { return table.Float(s.Time, 2) }},
	{Key: "share", Title: "% of pass", Cell: func(s *measure.StageTime) table.Cell { return table.Float(s.Share, 1) }},
	{Key: "gb_per_s", Title: "GB/s", Cell: func(s *measure.StageTime) table.Cell { return table.When(s.Calls > 0, table.Rate(s.GBs)) }},
	{Key: "gflop_per_s", Title: "GFLOP/s", Cell: func(s *measure.StageTime) table.Cell { return table.When(s.Calls > 0, table.Rate(s.GFLOPs)) }},
	{Key: "floor", Title: "floor us", Legend: "least time by the ceilings", Cell: func(s *measure.StageTime) table.Cell { return table.When(s.Calls > 0, table.Float(s.Floor, 2)) }},
	{Key: "bound", Title: "of", Legend: "what takes that time", Cell: func(s *measure.StageTime) table.Cell { return table.String(s.Bound) }},
	{Key: "roofline", Title: "roofline %", Legend: "floor / time", Cell: func(s *measure.StageTime) table.Cell {
		return table.When(s.Calls > 0, table.Known(s.Roofline > 0, table.Float(s.Roofline, 0)))
	}},
	{Key: "stage", Title: "  ", Left: true, Cell: func(s *measure.StageTime) table.Cell { return table.String(s.Stage) }},
}

// writeStages writes the table of stages for people, beside the median of the passes that
// were not recorded.
func writeStages(w io.Writer, stages []measure.StageTime, median time.Duration, rows cli.RowOptions) error {
	sum := 0.0
	for _, s := range stages {
		sum += s.Time
	}
	fmt.Fprintf(w, "\nstages over all layers: means of as many recorded passes, which sum to %.4f ms; the median above, %.4f ms, is of passes without recording\n", sum/1e3, cli.Ms(median))
	return cli.WriteRows(w, stageColumns, stages, rows, func(s measure.StageTime) float64 { return s.Time })
}

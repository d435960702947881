package main

import (
	"fmt"
	"io"
	"time"

	"gpt2scope/measure"
)

// stageColumns are the columns of the table of stages.
var stageColumns = []column[measure.StageTime]{
	{title: "calls", cell: func(s *measure.StageTime) cell { return intCell(int64(s.Calls)) }},
	{title: "time us", cell: func(s *measure.StageTime) cell { return floatCell(s.Time, 2) }},
	{title: "% of pass", cell: func(s *measure.StageTime) cell { return floatCell(s.Share, 1) }},
	{title: "GB/s", cell: func(s *measure.StageTime) cell { return when(s.Calls > 0, rateCell(s.GBs)) }},
	{title: "GFLOP/s", cell: func(s *measure.StageTime) cell { return when(s.Calls > 0, rateCell(s.GFLOPs)) }},
	{title: "floor us", legend: "least time by the ceilings", cell: func(s *measure.StageTime) cell { return when(s.Calls > 0, floatCell(s.Floor, 2)) }},
	{title: "of", legend: "what takes that time", cell: func(s *measure.StageTime) cell { return textCell(s.Bound) }},
	{title: "roofline %", legend: "floor / time", cell: func(s *measure.StageTime) cell {
		return when(s.Calls > 0, known(s.Roofline > 0, floatCell(s.Roofline, 0)))
	}},
	{title: "  ", left: true, cell: func(s *measure.StageTime) cell { return textCell(s.Stage) }},
}

// writeStages writes the table of stages for people, beside the median of the passes that
// were not recorded.
func writeStages(w io.Writer, stages []measure.StageTime, median time.Duration) {
	sum := 0.0
	for _, s := range stages {
		sum += s.Time
	}
	fmt.Fprintf(w, "\nstages over all layers: means of as many recorded passes, which sum to %.4f ms; the median above, %.4f ms, is of passes without recording\n", sum/1e3, ms(median))
	printCells(w, stageColumns, stages, nil)
	printLegend(w, stageColumns)
}

package main

import (
	"io"

	"gpt2scope/measure"
)

// stageColumns are the columns of the table of stages.
var stageColumns = []column[measure.StageTime]{
	{title: "calls", cell: func(s *measure.StageTime) cell { return intCell(int64(s.Calls)) }},
	{title: "time us", cell: func(s *measure.StageTime) cell { return floatCell(s.Time, 2) }},
	{title: "% of pass", cell: func(s *measure.StageTime) cell { return floatCell(s.Share, 1) }},
	{title: "GB/s", cell: func(s *measure.StageTime) cell { return when(s.Calls > 0, rateCell(s.GBs)) }},
	{title: "GFLOP/s", cell: func(s *measure.StageTime) cell { return when(s.Calls > 0, rateCell(s.GFLOPs)) }},
	{title: "floor us", cell: func(s *measure.StageTime) cell { return when(s.Calls > 0, floatCell(s.Floor, 2)) }},
	{title: "of", cell: func(s *measure.StageTime) cell { return textCell(s.Bound) }},
	{title: "roofline %", cell: func(s *measure.StageTime) cell { return when(s.Roofline > 0, floatCell(s.Roofline, 0)) }},
	{title: "  ", left: true, cell: func(s *measure.StageTime) cell { return textCell(s.Stage) }},
}

// writeStages writes the table of stages for people.
func writeStages(w io.Writer, stages []measure.StageTime) {
	printCells(w, stageColumns, stages, nil)
}

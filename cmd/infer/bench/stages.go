package bench

import (
	"fmt"
	"io"
	"time"

	"gpt2scope/cmd/infer/cli"
	"gpt2scope/internal/table"
	"gpt2scope/measure"
)

// writeStages writes the table of stages for people, beside the median of the passes that were not recorded.
func writeStages(w io.Writer, stages []measure.StageTime, median time.Duration) {
	sum := 0.0
	for _, s := range stages {
		sum += s.Time
	}
	fmt.Fprintf(w, "\nstages over all layers: means of as many recorded passes, which sum to %.4f ms; "+
		"the median above, %.4f ms, is of passes without recording\n", sum/1e3, cli.Ms(median))
	table.Lines(w, table.Right, "calls\ttime us\t% of pass\tGB/s\tGFLOP/s\tfloor us\tof\troofline %\tstage", stages, func(s measure.StageTime) string {
		if s.Calls == 0 { // the time between stages
			return fmt.Sprintf("\t%.2f\t%.1f\t\t\t\t\t\t%s", s.Time, s.Share, s.Stage)
		}
		roofline := "-"
		if s.Roofline > 0 {
			roofline = fmt.Sprintf("%.0f", s.Roofline)
		}
		return fmt.Sprintf("%d\t%.2f\t%.1f\t%s\t%s\t%.2f\t%s\t%s\t%s", s.Calls, s.Time, s.Share, table.Rate(s.GBs).Text, table.Rate(s.GFLOPs).Text,
			s.Floor, s.Bound, roofline, s.Stage)
	})
	fmt.Fprint(w, "\nfloor: least time by the ceilings; of: what takes that time; roofline %: floor / time\n")
}

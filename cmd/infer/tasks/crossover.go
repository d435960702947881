package tasks

import (
	"fmt"
	"io"
	"math"
	"strings"

	"gpt2scope/cmd/infer/cli"
	"gpt2scope/internal/humanize"
	"gpt2scope/internal/table"
	"gpt2scope/tasks"
)

// writeCrossovers writes where the GPU becomes faster, as a table.
func writeCrossovers(w io.Writer, all []tasks.Crossover) {
	if len(all) == 0 {
		fmt.Fprintln(w, "no crossover: it takes samples of a CPU and of a GPU at three sizes at least")
		return
	}
	table.Lines(w, table.Left, "task\ttype\tshape\tdevice\tmemory\tGPU faster from *\t95% interval\totherwise at", all, func(c tasks.Crossover) string {
		from, interval, otherwise := "", "", ""
		if c.Exceptions > 0 {
			otherwise = fmt.Sprintf("%d of %s", c.Exceptions, cli.Count(c.Sizes, "size"))
		}
		switch {
		case c.Faster == tasks.CPU:
			from = "no size"
		case c.Size == nil:
			from = "all sizes"
		default:
			from, interval = size(*c.Size), size(*c.Low)+" - "+size(*c.High)
		}
		return strings.Join([]string{c.Task, c.DType, c.Line, c.Device, c.Memory.String(), from, interval, otherwise}, "\t")
	})
}

// size writes a size with three digits.
func size(v float64) string {
	if v < 1000 {
		return fmt.Sprintf("%.3g", v)
	}
	unit := math.Pow(10, math.Floor(math.Log10(v))-2)
	return humanize.Thousands(int64(math.Round(v/unit) * unit))
}

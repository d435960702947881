package trace

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"gpt2scope/cmd/infer/cli"
	"gpt2scope/internal/table"
	"gpt2scope/traces"
	"gpt2scope/traces/stages"
)

// newTraceStages makes "infer trace stages".
func newTraceStages() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "stages FILE",
		Short: "Find the stages of a decoder in a recording without ranges, and say how sure",
		Long: `stages names the layer and the stage of each kernel in a recording of a GPT-2-like
decoder, whatever framework ran it: eager, compiled, or in a CUDA graph. It uses the
names of the kernels, their grids and their order, and no ranges. The names of the
stages that one kernel does are joined by '+'. The confidence is the probability that the
name is right by a model of the order of stages (a hidden Markov model).

Costs follow from the sizes of the model: those of --model, else from the shapes of
PyTorch's operators, or from grids. Other commands take these stages with --infer.`,
		Example: `  infer trace stages run.sqlite
  infer trace show run.json.gz --infer`,
		Args: oneFile,
		RunE: func(c *cobra.Command, args []string) error { return traceStages(c, args[0], asJSON) },
	}
	cli.AddFlags(c.Flags(), "Output", func(f *pflag.FlagSet) {
		f.BoolVar(&asJSON, "json", false, "print one JSON object")
	})
	return c
}

func traceStages(c *cobra.Command, path string, asJSON bool) error {
	t, err := readTrace(c, path)
	if err != nil {
		return err
	}
	model, err := sizedModel(c)
	if err != nil {
		return err
	}
	found, err := stages.Infer(t, model)
	if err != nil {
		return fmt.Errorf("%s: %w", traceName(path), err)
	}
	return tell(c, asJSON, found, func(w io.Writer) { printStages(w, t, found) })
}

// printStages writes the stages with their kernels for people.
func printStages(w io.Writer, t *traces.Trace, found *stages.Inference) {
	all := int64(0)
	rows := found.Stages()
	for _, r := range rows {
		all += r.Time
	}
	columns := []table.Column[stages.Stage]{
		table.Count("kernels", "kernels", func(r *stages.Stage) int { return r.Kernels }),
		{Title: "GPU us", Legend: "sum of the kernels' durations", Cell: func(r *stages.Stage) table.Cell { return table.Nanoseconds(r.Time) }},
		{Title: "%", Legend: "of the sum of all kernels", Cell: func(r *stages.Stage) table.Cell {
			return table.Known(all > 0, table.Float(100*float64(r.Time)/float64(max(1, all)), 2))
		}},
		{Title: "confidence", Legend: "mean of the kernels', weighted by their time", Cell: func(r *stages.Stage) table.Cell { return table.Float(r.Confidence, 3) }},
		table.Text("stage", " ", func(r *stages.Stage) string { return cmp.Or(r.Name, "of no stage") }),
	}
	fmt.Fprintf(w, "%s\n%s", t.Header.Describe(), found.Describe())
	if len(found.Passes) > 0 {
		fmt.Fprintf(w, ", inferred, confidence %.2f", found.Confidence)
	}
	fmt.Fprintf(w, "\n%s\n", strings.Join(append(found.Geometry.From, ""), "\n"))
	table.Print(w, columns, rows)
	table.Legend(w, columns)
}

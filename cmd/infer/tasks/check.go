package tasks

import (
	"bytes"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"gpt2scope/cmd/infer/cli"
	"gpt2scope/internal/table"
	"gpt2scope/predict/grade"
)

// newTasksCheck makes "infer tasks check".
func newTasksCheck() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "check [SAMPLES...]",
		Short: "Grade the cost model and simpler ways on what they have not seen",
		Long: `check fits four ways to choose between CPU and GPU to a part of the measurements, and grades
them on the others: sizes, tasks and CPUs that were held out.

  floor        the device with the lesser floor, copies included
  threshold    the GPU from so many FLOPs on, the best number for each task
  tree         a small decision tree on what is known of the work
  model        the cost model of 'infer tasks fit'

  median, P90  of the error of predicted times, in percent of the measured time
  within %     times in the interval that is predicted for 90 %
  over oracle  geometric mean of the time on the chosen device, CPU or GPU, over the
               time on the better one; 1 is a perfect choice
  worst        the worst choice, as a ratio
  wrong %      choices of the slower device

Choices are graded where both devices of a machine were measured, with the transfers
of the data: times on data in the GPU's memory count only for tasks that have no others.
SAMPLES are as in 'infer tasks fit'.`,
		Example: `  infer tasks check out
  infer tasks check epyc/samples.csv h200/samples.csv.gz`,
		Annotations: map[string]string{cli.UsesKey: ""},
		Args:        cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			rows, err := ReadRows(c.ErrOrStderr(), args)
			if err != nil {
				return err
			}
			result, err := grade.Check(c.Context(), rows)
			if err != nil {
				return err
			}
			if asJSON {
				return cli.WriteJSON(c.OutOrStdout(), result)
			}
			var b bytes.Buffer
			writeCheck(&b, result)
			return cli.WriteOutput(c.OutOrStdout(), b.Bytes())
		},
	}
	cli.AddFlags(c.Flags(), "Output", func(f *pflag.FlagSet) {
		f.BoolVar(&asJSON, "json", false, "print one JSON object for the table")
	})
	return c
}

// writeCheck writes the table, and what each split holds out.
func writeCheck(w io.Writer, r *grade.Result) {
	fmt.Fprintf(w, "%s of %s on their devices; the median of other repeats is %.1f %% off (median)\n\n",
		cli.Count(r.Rows, "measurement"), cli.Count(r.Shapes, "shape"), 100*r.Noise)
	const head = "held out\tway\tmedian %\tP90 %\twithin %\ttimes\tover oracle\tworst\twrong %\tchoices"
	table.Lines(w, table.Left, head, r.Scores, func(s grade.Score) string {
		times, choices := "-\t-\t-\t-", "-\t-\t-\t-"
		if s.Times > 0 {
			times = fmt.Sprintf("%.1f\t%.1f\t%.0f\t%d", 100*s.Median, 100*s.P90, 100*s.Within, s.Times)
		}
		if s.Choices > 0 {
			choices = fmt.Sprintf("%.3f\t%.3f\t%.1f\t%d", s.OverOracle, s.Worst, 100*s.Wrong, s.Choices)
		}
		return fmt.Sprintf("%s\t%s\t%s\t%s", s.Split, s.Way, times, choices)
	})
	fmt.Fprintln(w)
	for _, s := range grade.Splits(nil) {
		if slices.ContainsFunc(r.Scores, func(r grade.Score) bool { return r.Split == s.Name && r.Times > 0 }) {
			fmt.Fprintf(w, "%s: %s\n", s.Name, s.About)
		} else {
			fmt.Fprintf(w, "%s: not graded, since it takes two of them\n", s.Name)
		}
	}
}

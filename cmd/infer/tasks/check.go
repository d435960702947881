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

  median, P90  of the error of predicted times, in percent of the measured time; with
               the interval of 95 % by bootstrap over shapes
  within %     times in the interval that is predicted for 90 %
  over oracle  geometric mean of the time on the chosen device, CPU or GPU, over the
               time on the better one; 1 is a perfect choice
  close        the same where the two times are within 3 x
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
	const head = "held out\tway\tmedian %\tP90 %\twithin %\ttimes\tover oracle\tclose\tworst\twrong %\tchoices"
	table.Lines(w, table.Left, head, r.Scores, func(s grade.Score) string {
		line := fmt.Sprintf("%s\t%s\t", s.Split, s.Way)
		if s.Times > 0 {
			line += fmt.Sprintf("%s\t%s\t%.0f\t%d\t", interval(s.Median, percent), interval(s.P90, percent), 100**s.Within, s.Times)
		} else {
			line += "-\t-\t-\t-\t"
		}
		if s.Choices == 0 {
			return line + "-\t-\t-\t-\t-"
		}
		nearby := "-"
		if s.Close != nil {
			nearby = ratio(*s.Close)
		}
		return line + fmt.Sprintf("%s\t%s\t%s\t%s\t%d", interval(s.OverOracle, ratio), nearby, ratio(s.Worst), percent(s.Wrong), s.Choices)
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

func percent(v float64) string { return fmt.Sprintf("%.1f", 100*v) }

func ratio(v float64) string { return fmt.Sprintf("%.3f", v) }

func interval(i *grade.Interval, show func(float64) string) string {
	return fmt.Sprintf("%s (%s - %s)", show(i.Value), show(i.Low), show(i.High))
}

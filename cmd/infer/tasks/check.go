package tasks

import (
	"bytes"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"gpt2scope/cmd/infer/cli"
	"gpt2scope/predict/grade"
)

// newTasksCheck makes "infer tasks check".
func newTasksCheck() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "check [SAMPLES...]",
		Short: "Grade the cost model and others on what they have not seen",
		Long: `check fits ways to predict how long tasks take to a part of the measurements, and grades
them on the others: sizes, tasks and processors that were left out.

  median, P90  of the error of predicted times, in percent of the measured time; with
               the interval of 95 % by bootstrap over shapes
  noise        how far repeats of one measurement differ, median and P90: the error of
               the median of the other repeats as a prediction of each
  turns        the same of turns ('infer tasks bench --rounds'), which lie apart: the
               error of the median of the other turns as a prediction of that of each
  over oracle  geometric mean of the time on the device that was chosen, CPU or GPU,
               over the time on the better one; 1 is a perfect choice
  close        the same where the two times are within 3 x
  total        sum of the times over the sum of the better ones
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
			result, err := grade.Check(c.Context(), rows, grade.Families())
			if err != nil {
				return err
			}
			if asJSON {
				return cli.WriteJSON(c.OutOrStdout(), result)
			}
			var b bytes.Buffer
			WriteCheck(&b, result)
			return cli.WriteOutput(c.OutOrStdout(), b.Bytes())
		},
	}
	cli.AddFlags(c.Flags(), "Output", func(f *pflag.FlagSet) {
		f.BoolVar(&asJSON, "json", false, "print one JSON object for the tables")
	})
	return c
}

// WriteCheck writes a table for each split.
func WriteCheck(w io.Writer, r *grade.Result) {
	fmt.Fprintf(w, "%s of %s on their devices; errors and the mean over the oracle with intervals of 95 %%\n", cli.Count(r.Rows, "measurement"), cli.Count(r.Shapes, "shape"))
	for scores := range bySplit(r.Scores) {
		fmt.Fprintf(w, "\n%s: %s\n", scores[0].Split, grade.About(scores[0].Split))
		if scores[0].Folds == 0 {
			fmt.Fprintln(w, "  not graded: it takes two tasks, two processors, or one processor with two numbers of cores")
			continue
		}
		cli.PrintText(w, cli.ToRight, "way\tmedian %\tP90 %\tnoise %\tturns %\ttimes\tover oracle\tclose\ttotal\tworst\twrong %\tchoices", scores, func(s grade.Score) string {
			return fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s", s.Family, ofInterval(s.Median, percent), ofInterval(s.P90, percent), ofNoise(s.Noise), ofNoise(s.Turns), countOrDash(s.N),
				ofInterval(s.Geometric, ratio), ofPointer(s.NearMean, ratio), ofPointer(s.Total, ratio), ofPointer(s.Worst, ratio), ofPointer(s.Wrong, percent), countOrDash(s.Choices))
		})
		for _, s := range scores {
			if s.Family == grade.Ours && s.Within != nil {
				fmt.Fprintf(w, "  %.0f %% of the times lie in the interval that %s predicts for 90 %%\n", 100**s.Within, s.Family)
			}
			if s.Family == grade.Ours && s.WorstOf != "" {
				fmt.Fprintf(w, "  its worst choice: %s\n", s.WorstOf)
			}
			if s.Family == grade.Ours && s.Split == grade.Between {
				fmt.Fprintf(w, "\n  where the errors of %s are\n", s.Family)
				cli.PrintText(w, cli.ToLeft, "machine\tdevice\ttask\ttype\tmemory\ttimes\tmedian %\tP90 %\tnoise %\tturns %\tpredicted / measured", s.Parts, func(p grade.Part) string {
					return fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%d\t%s\t%s\t%s\t%s\t%.2f", p.Machine, p.Device, p.Task, p.DType, p.Memory, p.N, percent(p.Median), percent(p.P90), ofNoise(p.Noise), ofNoise(p.Turns), p.Bias)
				})
			}
		}
	}
	if len(r.Decisions) > 0 {
		fmt.Fprintln(w, "\na choice between two devices")
		cli.PrintText(w, cli.ToRight, "way\tns\tallocations\tchoices", r.Decisions, func(d grade.Decision) string {
			return fmt.Sprintf("%s\t%.0f\t%.0f\t%d", d.Family, d.Ns, d.Allocations, d.N)
		})
	}
}

// bySplit groups scores, which stand in the order of splits.
func bySplit(scores []grade.Score) func(func([]grade.Score) bool) {
	return func(yield func([]grade.Score) bool) {
		for len(scores) > 0 {
			n := slices.IndexFunc(scores, func(s grade.Score) bool { return s.Split != scores[0].Split })
			if n < 0 {
				n = len(scores)
			}
			if !yield(scores[:n]) {
				return
			}
			scores = scores[n:]
		}
	}
}

func percent(v float64) string {
	if v > 9.995 {
		return fmt.Sprintf("%.2g", 100*v)
	}
	return fmt.Sprintf("%.1f", 100*v)
}

func ratio(v float64) string { return fmt.Sprintf("%.3f", v) }

func ofInterval(i *grade.Interval, show func(float64) string) string {
	if i == nil {
		return "-"
	}
	return fmt.Sprintf("%s (%s - %s)", show(i.Value), show(i.Low), show(i.High))
}

// ofNoise writes the median and P90 of noise.
func ofNoise(n *grade.Noise) string {
	if n == nil {
		return "-"
	}
	return percent(n.Median) + ", " + percent(n.P90)
}

func ofPointer(v *float64, show func(float64) string) string {
	if v == nil {
		return "-"
	}
	return show(*v)
}

func countOrDash(n int) string {
	if n == 0 {
		return "-"
	}
	return fmt.Sprint(n)
}

package tasks

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"gpt2scope/cmd/infer/cli"
	"gpt2scope/internal/files"
	"gpt2scope/internal/humanize"
	"gpt2scope/internal/table"
	"gpt2scope/predict"
	"gpt2scope/predict/grade"
	"gpt2scope/tasks"
	storedsamples "gpt2scope/tasks/samples"
)

func newTasksFit() *cobra.Command {
	var out string
	var asJSON bool
	c := &cobra.Command{
		Use:   "fit [SAMPLES...]",
		Short: "Fit the cost model to measured tasks",
		Long: `fit fits the model that predicts how long a task takes on a device before it runs there:

  time = efficiency x floor + step us x steps + transfers + base us

with no coefficient below 0, times a factor: what similar work of the task took on the device over that.
SAMPLES are files that 'infer tasks bench' wrote, or its directories; those of several machines go together.
Without any, the samples are those stored in this program. "other tasks" is for tasks that were not
measured.

  efficiency  how many times the floor the work takes
  step us     for each launch, or each step of a pass
  interval    nine of ten times lie within this part of the prediction, on a device where
              the task was measured, and elsewhere`,
		Example: `  infer tasks fit out -o model.json
  infer tasks fit epyc/samples.csv h200/samples.csv.gz -o model.json`,
		Annotations: map[string]string{cli.UsesKey: ""},
		Args:        cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			return tasksFit(c.Context(), c.OutOrStdout(), c.ErrOrStderr(), args, out, asJSON)
		},
	}
	cli.AddFlags(c.Flags(), "Output", func(f *pflag.FlagSet) {
		f.StringVarP(&out, "out", "o", "", "`FILE` for the model, as JSON")
		f.BoolVar(&asJSON, "json", false, "print the model, which is what FILE holds, for the table")
	})
	return c
}

// ReadRows reads samples for the model, the stored ones if none are named, and says what it leaves out.
func ReadRows(ctx context.Context, stderr io.Writer, paths []string) ([]predict.Row, error) {
	all, err := files.Await(ctx, func() ([]tasks.Sample, error) { return tasks.ReadFiles(paths...) })
	if len(paths) == 0 {
		all, err = storedsamples.Read()
		fmt.Fprintln(stderr, "infer: the samples are those stored in this program; give files of 'infer tasks bench' for "+
			"others")
	}
	if err != nil {
		return nil, err
	}
	rows, disturbed, noFloor := tasks.Rows(all)
	var left []string
	for _, out := range []struct {
		n   int
		why string
	}{{disturbed, "that other programs may have slowed, of work that was measured without them too"}, {noFloor, "without a floor"},
		{len(all) - len(rows) - disturbed - noFloor, "of plain ways, which a scheduler does not choose"}} {
		if out.n > 0 {
			left = append(left, humanize.Thousands(int64(out.n))+" "+out.why)
		}
	}
	if left != nil {
		fmt.Fprintf(stderr, "of %s, %s used; left out: %s\n", cli.Count(len(all), "sample"), humanize.Count(len(rows), "is", "are"),
			strings.Join(left, "; "))
	}
	if len(rows) == 0 {
		return nil, fmt.Errorf("none of the %s is of a tuned variant with a floor: there is nothing to fit",
			cli.Count(len(all), "sample"))
	}
	return rows, nil
}

func tasksFit(ctx context.Context, stdout, stderr io.Writer, paths []string, out string, asJSON bool) error {
	if out != "" {
		if err := cli.CheckSame("--out", out, paths...); err != nil {
			return err
		}
	}
	rows, err := ReadRows(ctx, stderr, paths)
	if err != nil {
		return err
	}
	m, err := predict.Fit(ctx, rows)
	if err != nil {
		return err
	}
	if out != "" {
		if err := cli.WriteFile(ctx, out, m.Write); err != nil {
			return err
		}
		if out != "-" {
			fmt.Fprintf(stderr, "infer: the model is in %s; 'infer tasks simulate --model-file %s' uses it\n", out,
				cli.ShellQuote(out))
		}
	}
	var b bytes.Buffer
	if !asJSON {
		writeModel(&b, m)
	} else if err := m.Write(&b); err != nil {
		return err
	}
	return cli.WriteOutput(stdout, b.Bytes())
}

func writeModel(w io.Writer, m *predict.Model) {
	fmt.Fprintf(w, "fitted to %s of %s\n\n", cli.Count(m.Rows, "measurement"), cli.Count(len(m.Measured), "shape"))
	shapes := map[[3]string]int{}
	for _, r := range m.Measured {
		shapes[[3]string{predict.Kind(r.Device), r.Task, r.DType}]++
	}
	const head = "device\ttask\ttype\tshapes\tefficiency\tstep us\tbase us\tpageable us/MiB in, out\tpinned\t" +
		"interval\telsewhere"
	table.Lines(w, table.Left, head, m.Laws, func(l predict.TaskLaw) string {
		return fmt.Sprintf("%s\t%s\t%s\t%d\t%.2f\t%s\t%s\t%s\t%s\t%s\t%s", l.Device, cmp.Or(l.Task, "other tasks"), l.DType,
			shapes[[3]string{l.Device, l.Task, l.DType}], l.Floor, orDash(l.StepUs), orDash(l.BaseUs),
			slopes(m, &l, predict.Pageable, l.PageableIn, l.PageableOut), slopes(m, &l, predict.Pinned, l.PinnedIn, l.PinnedOut),
			factor(l.Spread), factor(l.Elsewhere))
	})
}

func orDash(v float64) string {
	if v == 0 {
		return "-"
	}
	return cli.Digits(v)
}

// slopes writes what a MiB takes to the device and back, where the law is of copies of several sizes: one has no slope.
func slopes(m *predict.Model, l *predict.TaskLaw, memory predict.Memory, in, out predict.Transfer) string {
	sizes := [2]map[float64]bool{{}, {}}
	for _, r := range m.Measured {
		if predict.Kind(r.Device) == l.Device && r.Memory == memory && (l.Task == "" || l.Task == r.Task && l.DType == r.DType) {
			sizes[0][r.BytesIn], sizes[1][r.BytesOut] = true, true
		}
	}
	text := [2]string{"-", "-"}
	for i, t := range [2]predict.Transfer{in, out} {
		if len(sizes[i]) > 1 {
			text[i] = cli.Digits(t.UsPerMiB)
		}
	}
	if text[0] == "-" && text[1] == "-" {
		return "-"
	}
	return text[0] + ", " + text[1]
}

// factor writes half the width of an interval of logarithms.
func factor(half float64) string {
	if f := math.Exp(half); f < 2 {
		return fmt.Sprintf("%.0f%%", 100*(f-1))
	} else {
		return fmt.Sprintf("x %.1f", f)
	}
}

func newTasksCheck() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "check [SAMPLES...]",
		Short: "Grade the cost model and simpler ways on what they have not seen",
		Long: `check fits four ways to choose between CPU and GPU to a part of the measurements, and grades them on the
others: sizes, tasks and CPUs that were held out.

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

Choices are graded where both devices of a machine were measured, with the transfers of the data: times on
data in the GPU's memory count only for tasks that have no others. SAMPLES are as in 'infer tasks fit'.`,
		Example: `  infer tasks check out
  infer tasks check epyc/samples.csv h200/samples.csv.gz`,
		Annotations: map[string]string{cli.UsesKey: ""},
		Args:        cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			rows, err := ReadRows(c.Context(), c.ErrOrStderr(), args)
			if err != nil {
				return err
			}
			result, err := grade.Check(c.Context(), rows)
			if err != nil {
				return err
			}
			return cli.Print(c, asJSON, result, func(w io.Writer) { writeCheck(w, result) })
		},
	}
	cli.AddJSON(c, &asJSON)
	return c
}

// writeCheck writes the table, and what each split holds out.
func writeCheck(w io.Writer, r *grade.Result) {
	fmt.Fprintf(w, "%s of %s on their devices; the median of other repeats is %.1f %% off in the median\n\n",
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

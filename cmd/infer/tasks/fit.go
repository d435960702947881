package tasks

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"math"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"gpt2scope/cmd/infer/cli"
	"gpt2scope/internal/table"
	"gpt2scope/predict"
	"gpt2scope/tasks"
	storedsamples "gpt2scope/tasks/samples"
)

// newTasksFit makes "infer tasks fit".
func newTasksFit() *cobra.Command {
	var out string
	var asJSON bool
	c := &cobra.Command{
		Use:   "fit [SAMPLES...]",
		Short: "Fit the cost model to measured tasks",
		Long: `fit fits the model that predicts how long a task takes on a device before it runs there:

  time = efficiency x floor + step us x steps + transfers + base us

with no coefficient below 0, times a factor: what similar work of the task took on the
device over that. SAMPLES are files that 'infer tasks bench' wrote, or its directories;
those of several machines go together. Without any, the samples are those stored in this
program. "other tasks" is for tasks that were not measured.

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
func ReadRows(stderr io.Writer, paths []string) ([]predict.Row, error) {
	all, err := tasks.ReadFiles(paths...)
	if len(paths) == 0 {
		all, err = storedsamples.Read()
		fmt.Fprintln(stderr, "infer: the samples are those stored in this program; give files of 'infer tasks bench' for others")
	}
	if err != nil {
		return nil, err
	}
	rows, disturbed, noFloor := tasks.Rows(all)
	if noFloor > 0 {
		fmt.Fprintf(stderr, "left out: %s without a floor, since the ceilings of the device were not measured\n", cli.Count(noFloor, "sample"))
	}
	if disturbed > 0 {
		fmt.Fprintf(stderr, "left out: %s\n", cli.Count(disturbed, "disturbed sample"))
	}
	if len(rows) == 0 {
		return nil, fmt.Errorf("none of the %s is of a tuned variant with a floor: there is nothing to fit", cli.Count(len(all), "sample"))
	}
	return rows, nil
}

func tasksFit(ctx context.Context, stdout, stderr io.Writer, paths []string, out string, asJSON bool) error {
	if out != "" {
		if err := cli.CheckSame("--out", out, paths...); err != nil {
			return err
		}
	}
	rows, err := ReadRows(stderr, paths)
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
			fmt.Fprintf(stderr, "infer: the model is in %s; 'infer tasks simulate --model-file %s' uses it\n", out, cli.ShellQuote(out))
		}
	}
	var b bytes.Buffer
	if asJSON {
		if err := m.Write(&b); err != nil {
			return err
		}
		return cli.WriteOutput(stdout, b.Bytes())
	}
	writeModel(&b, m)
	return cli.WriteOutput(stdout, b.Bytes())
}

func writeModel(w io.Writer, m *predict.Model) {
	fmt.Fprintf(w, "fitted to %s of %s\n\n", cli.Count(m.Rows, "measurement"), cli.Count(len(m.Measured), "shape"))
	shapes := map[[3]string]int{}
	for _, r := range m.Measured {
		shapes[[3]string{predict.Kind(r.Device), r.Task, r.DType}]++
	}
	const head = "device\ttask\ttype\tshapes\tefficiency\tstep us\tbase us\tpageable us/MiB in, out\tpinned\tinterval\telsewhere"
	table.Lines(w, table.Left, head, m.Laws, func(l predict.TaskLaw) string {
		return fmt.Sprintf("%s\t%s\t%s\t%d\t%.2f\t%s\t%s\t%s\t%s\t%s\t%s", l.Device, cmp.Or(l.Task, "other tasks"), l.DType,
			shapes[[3]string{l.Device, l.Task, l.DType}], l.Floor, orDash(l.StepUs), orDash(l.BaseUs),
			transfers(l.PageableIn, l.PageableOut), transfers(l.PinnedIn, l.PinnedOut), factor(l.Spread), factor(l.Elsewhere))
	})
}

// orDash writes a number, and none for 0.
func orDash(v float64) string {
	if v == 0 {
		return "-"
	}
	return cli.Digits(v)
}

func transfers(in, out predict.Transfer) string {
	if in == (predict.Transfer{}) && out == (predict.Transfer{}) {
		return "-"
	}
	return cli.Digits(in.UsPerMiB) + ", " + cli.Digits(out.UsPerMiB)
}

// factor writes half the width of an interval of logarithms.
func factor(half float64) string {
	if f := math.Exp(half); f < 2 {
		return fmt.Sprintf("%.0f%%", 100*(f-1))
	} else {
		return fmt.Sprintf("x %.1f", f)
	}
}

package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"gpt2scope/cmd/infer/cli"
	"gpt2scope/gpt2"
	"gpt2scope/internal/humanize"
	"gpt2scope/internal/table"
	"gpt2scope/measure"
)

// insideFlags are the flags of "infer bench inside".
type insideFlags struct {
	past, launches int
	by, picture    string
	shown          cli.RowOptions
	json           bool
}

// newBenchInside makes "infer bench inside".
func newBenchInside(m *cli.ModelFlags) *cobra.Command {
	var i insideFlags
	c := &cobra.Command{
		Use:   "inside",
		Short: "Show what each SM does inside the kernel of mode persistent",
		Long: `inside runs decode steps in mode persistent, whose kernel then notes for each SM and
step when it had its weights, when it had its inputs, and when it had published its outputs
for the other SMs. Profilers see that kernel as one piece.

A step takes from when the last SM published the outputs of the step before to when the last
one published its own. The table divides that time, as means over the SMs that have a part
in the step, and over 7 of the 8 decode steps of each launch.`,
		Example: `  infer bench inside --device cuda -m random:gpt2 --past 512
  infer bench inside --device cuda -m random:gpt2 --by sm --sort imbalance --limit 10
  infer bench inside --device cuda -m random:gpt2 --picture sms.svg`,
		RunE: func(c *cobra.Command, _ []string) error {
			return i.run(c.Context(), m, c.Flags(), c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	cli.AddFlags(c.Flags(), "Measurement", func(f *pflag.FlagSet) {
		f.IntVar(&i.past, "past", 0, "the cache holds `N` tokens before the decode step (default: 128,\nor half the context if that is shorter)")
		f.IntVar(&i.launches, "launches", 20, "sum up `N` launches")
	})
	cli.AddFlags(c.Flags(), "Output", func(f *pflag.FlagSet) {
		f.StringVar(&i.by, "by", "stage", "a row for each `WHAT`: stage or sm")
		f.StringVar(&i.picture, "picture", "", "draw what each SM did in one decode step to an SVG `FILE`")
		i.shown.Register(f, "time or imbalance", "that of the plan")
		f.BoolVar(&i.json, "json", false, "print one JSON object")
	})
	return c
}

// insideColumns are the columns of what SMs did.
var insideColumns = []table.Column[measure.InsideTime]{
	{Key: "calls", Title: "steps", Legend: "of the kernel in a decode step", Cell: func(t *measure.InsideTime) table.Cell { return table.Int(int64(t.Calls)) }},
	{Key: "time", Title: "time us", Cell: func(t *measure.InsideTime) table.Cell { return table.Float(t.Time, 2) }},
	{Key: "share", Title: "% of step", Cell: func(t *measure.InsideTime) table.Cell { return table.Float(t.Share, 1) }},
	{Key: "weights", Title: "weights us", Legend: "waiting for weights, keys and values from memory", Cell: func(t *measure.InsideTime) table.Cell { return table.Float(t.Weights, 2) }},
	{Key: "inputs", Title: "inputs us", Legend: "waiting for outputs of other SMs", Cell: func(t *measure.InsideTime) table.Cell { return table.Float(t.Inputs, 2) }},
	{Key: "compute", Title: "compute us", Legend: "from the inputs to the published outputs", Cell: func(t *measure.InsideTime) table.Cell { return table.Float(t.Compute, 2) }},
	{Key: "imbalance", Title: "imbalance us", Legend: "until the last SM had published", Cell: func(t *measure.InsideTime) table.Cell { return table.Float(t.Imbalance, 2) }},
	{Key: "no_part", Title: "no part us", Legend: "in steps of other SMs", Cell: func(t *measure.InsideTime) table.Cell { return table.When(t.Idle > 0, table.Float(t.Idle, 2)) }},
	{Key: "name", Title: "  ", Left: true, Cell: func(t *measure.InsideTime) table.Cell { return table.String(t.Name) }},
}

func (i *insideFlags) run(ctx context.Context, m *cli.ModelFlags, flags *pflag.FlagSet, stdout, stderr io.Writer) error {
	switch {
	case i.by != "stage" && i.by != "sm":
		return cli.Usagef("--by %s: it must be stage or sm", cli.ShellQuote(i.by))
	case i.launches < 1 || i.launches > cli.MaxRepeat:
		return cli.Usagef("--launches %d: it must be from 1 to %d", i.launches, cli.MaxRepeat)
	case i.past < 0:
		return cli.Usagef("--past %d: it must be at least 0", i.past)
	}
	if err := cli.SortRows([]measure.InsideTime{}, insideColumns, i.shown.Sort, "text", table.OneSection); err != nil {
		return err
	}
	if err := i.shown.Check(); err != nil {
		return err
	}
	if !flags.Changed("mode") {
		m.Mode = "persistent"
	}
	o, err := m.Open()
	if err != nil {
		return err
	}
	defer o.Leave()
	if i.picture != "" {
		if err := cli.CheckSame("--picture", i.picture, o.Model.Source); err != nil {
			return err
		}
	}
	if !o.Backend.Describe().GPU {
		return errors.New("'infer bench inside' measures a kernel of a GPU, and the device is the CPU; use --device cuda, which says what is missing")
	}
	past := i.past
	if !flags.Changed("past") {
		past = min(128, o.Options.Context/2)
	}
	if past >= o.Options.Context {
		return cli.PastTooLong(past, o.Options.Context)
	}
	s, err := o.Load(ctx, stderr, 1)
	if err != nil {
		return err
	}
	stop := m.Spin(stderr, "measuring")
	inside, raw, err := measure.InspectDecode(ctx, s, past, i.launches)
	stop()
	if err != nil {
		return err
	}
	if i.picture != "" {
		if err := i.draw(ctx, o.Model.Name, raw, stderr); err != nil {
			return err
		}
	}
	if i.json {
		return cli.WriteJSON(stdout, InsideJSON{Past: past, Launches: i.launches, Step: inside.Step, Stages: inside.Stages, SMs: inside.SMs, Configuration: o.Setting()})
	}
	var text bytes.Buffer
	fmt.Fprintf(&text, "%s, decode step, %s in the cache: %.2f us, mean of %s inside %s | %s\n\n",
		o.Model.Name, cli.Count(past, "token"), inside.Step, cli.Count(inside.Steps, "step"), humanize.Count(i.launches, "launch", "launches"), o.Setting())
	rows := inside.Stages
	if i.by == "sm" {
		rows = inside.SMs
	}
	if err := WriteInside(&text, rows, i.shown); err != nil {
		return err
	}
	return cli.WriteOutput(stdout, text.Bytes())
}

func WriteInside(w io.Writer, rows []measure.InsideTime, shown cli.RowOptions) error {
	return cli.WriteRows(w, insideColumns, rows, shown, func(t measure.InsideTime) float64 { return t.Time })
}

func (i *insideFlags) draw(ctx context.Context, model string, d *gpt2.InsideDecode, stderr io.Writer) error {
	if err := cli.WriteFile(ctx, i.picture, func(w io.Writer) error { return measure.DrawInside(w, model, d) }); err != nil {
		return err
	}
	fmt.Fprintf(stderr, "%s: what each SM did in one decode step\n", i.picture)
	return nil
}

// InsideJSON is what bench inside --json prints.
type InsideJSON struct {
	Past          int                  `json:"past"`
	Launches      int                  `json:"launches"`
	Step          float64              `json:"step_us"` // of a decode step
	Stages        []measure.InsideTime `json:"stages"`
	SMs           []measure.InsideTime `json:"sms"`
	Configuration cli.Setting          `json:"configuration"`
}

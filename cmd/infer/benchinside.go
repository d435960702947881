package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"gpt2scope/gpt2"
	"gpt2scope/internal/humanize"
	"gpt2scope/measure"
)

// insideFlags are the flags of "infer bench inside".
type insideFlags struct {
	past, launches int
	by, picture    string
	shown          rowOptions
	json           bool
}

// newBenchInside makes "infer bench inside".
func newBenchInside(m *modelFlags) *cobra.Command {
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
	addFlags(c.Flags(), "Measurement", func(f *pflag.FlagSet) {
		f.IntVar(&i.past, "past", 0, "the cache holds `N` tokens before the decode step (default: 128,\nor half the context if that is shorter)")
		f.IntVar(&i.launches, "launches", 20, "sum up `N` launches")
	})
	addFlags(c.Flags(), "Output", func(f *pflag.FlagSet) {
		f.StringVar(&i.by, "by", "stage", "a row for each `WHAT`: stage or sm")
		f.StringVar(&i.picture, "picture", "", "draw what each SM did in one decode step to an SVG `FILE`")
		i.shown.register(f, "time or imbalance", "that of the plan")
		f.BoolVar(&i.json, "json", false, "print one JSON object")
	})
	return c
}

// insideColumns are the columns of what SMs did.
var insideColumns = []column[measure.InsideTime]{
	{key: "calls", title: "steps", legend: "of the kernel in a decode step", cell: func(t *measure.InsideTime) cell { return intCell(int64(t.Calls)) }},
	{key: "time", title: "time us", cell: func(t *measure.InsideTime) cell { return floatCell(t.Time, 2) }},
	{key: "share", title: "% of step", cell: func(t *measure.InsideTime) cell { return floatCell(t.Share, 1) }},
	{key: "weights", title: "weights us", legend: "waiting for weights, keys and values from memory", cell: func(t *measure.InsideTime) cell { return floatCell(t.Weights, 2) }},
	{key: "inputs", title: "inputs us", legend: "waiting for outputs of other SMs", cell: func(t *measure.InsideTime) cell { return floatCell(t.Inputs, 2) }},
	{key: "compute", title: "compute us", legend: "from the inputs to the published outputs", cell: func(t *measure.InsideTime) cell { return floatCell(t.Compute, 2) }},
	{key: "imbalance", title: "imbalance us", legend: "until the last SM had published", cell: func(t *measure.InsideTime) cell { return floatCell(t.Imbalance, 2) }},
	{key: "no_part", title: "no part us", legend: "in steps of other SMs", cell: func(t *measure.InsideTime) cell { return when(t.Idle > 0, floatCell(t.Idle, 2)) }},
	{key: "name", title: "  ", left: true, cell: func(t *measure.InsideTime) cell { return textCell(t.Name) }},
}

func (i *insideFlags) run(ctx context.Context, m *modelFlags, flags *pflag.FlagSet, stdout, stderr io.Writer) error {
	switch {
	case i.by != "stage" && i.by != "sm":
		return usagef("--by %s: it must be stage or sm", shellQuote(i.by))
	case i.launches < 1 || i.launches > maxRepeat:
		return usagef("--launches %d: it must be from 1 to %d", i.launches, maxRepeat)
	case i.past < 0:
		return usagef("--past %d: it must be at least 0", i.past)
	}
	if err := sortRows([]measure.InsideTime{}, insideColumns, i.shown.sort, "text", oneSection); err != nil {
		return err
	}
	if err := i.shown.check(); err != nil {
		return err
	}
	if !flags.Changed("mode") {
		m.mode = "persistent"
	}
	o, err := m.open()
	if err != nil {
		return err
	}
	defer o.leave()
	if i.picture != "" {
		if err := checkSame("--picture", i.picture, o.model.Source); err != nil {
			return err
		}
	}
	if !o.backend.Describe().GPU {
		return errors.New("'infer bench inside' measures a kernel of a GPU, and the device is the CPU; use --device cuda, which says what is missing")
	}
	past := i.past
	if !flags.Changed("past") {
		past = min(128, o.options.Context/2)
	}
	if past >= o.options.Context {
		return pastTooLong(past, o.options.Context)
	}
	s, err := o.load(ctx, stderr, 1)
	if err != nil {
		return err
	}
	stop := m.spin(stderr, "measuring")
	inside, raw, err := measure.InspectDecode(ctx, s, past, i.launches)
	stop()
	if err != nil {
		return err
	}
	if i.picture != "" {
		if err := i.draw(ctx, o.model.Name, raw, stderr); err != nil {
			return err
		}
	}
	if i.json {
		return writeJSON(stdout, insideJSON{Past: past, Launches: i.launches, Step: inside.Step, Stages: inside.Stages, SMs: inside.SMs, Configuration: o.setting()})
	}
	var text bytes.Buffer
	fmt.Fprintf(&text, "%s, decode step, %s in the cache: %.2f us, mean of %s inside %s | %s\n\n",
		o.model.Name, count(past, "token"), inside.Step, count(inside.Steps, "step"), humanize.Count(i.launches, "launch", "launches"), o.setting())
	rows := inside.Stages
	if i.by == "sm" {
		rows = inside.SMs
	}
	if err := writeInside(&text, rows, i.shown); err != nil {
		return err
	}
	return writeOutput(stdout, text.Bytes())
}

func writeInside(w io.Writer, rows []measure.InsideTime, shown rowOptions) error {
	return writeRows(w, insideColumns, rows, shown, func(t measure.InsideTime) float64 { return t.Time })
}

func (i *insideFlags) draw(ctx context.Context, model string, d *gpt2.InsideDecode, stderr io.Writer) error {
	if err := writeFile(ctx, i.picture, func(w io.Writer) error { return measure.DrawInside(w, model, d) }); err != nil {
		return err
	}
	fmt.Fprintf(stderr, "%s: what each SM did in one decode step\n", i.picture)
	return nil
}

// insideJSON is what bench inside --json prints.
type insideJSON struct {
	Past          int                  `json:"past"`
	Launches      int                  `json:"launches"`
	Step          float64              `json:"step_us"` // of a decode step
	Stages        []measure.InsideTime `json:"stages"`
	SMs           []measure.InsideTime `json:"sms"`
	Configuration setting              `json:"configuration"`
}

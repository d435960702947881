package bench

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"gpt2scope/cmd/infer/cli"
	"gpt2scope/cuda/exec"
	"gpt2scope/gpt2"
	"gpt2scope/internal/humanize"
	"gpt2scope/internal/table"
	"gpt2scope/measure"
)

// overheadFlags are the flags of "infer bench overhead".
type overheadFlags struct {
	benchFlags
	recorders []string
	rounds    int
}

// newBenchOverhead makes "infer bench overhead".
func newBenchOverhead(m *cli.ModelFlags) *cobra.Command {
	var o overheadFlags
	c := &cobra.Command{
		Use:   "overhead",
		Short: "Measure what recording costs, for each recorder",
		Long: `overhead measures a decode step and a prefill in separate processes: without a recorder,
and with each recorder. Each round runs one process of each kind, and the median over the
rounds counts. The process without a recorder runs twice a round: the row "none" is the
difference of the two. It is noise, and smaller overheads cannot be measured. On a GPU all
modes are measured in which passes can run, unless --mode names one.`,
		Example: `  infer bench overhead --layers all
  infer bench overhead -m random:gpt2 --device cuda --prompt-len 1024 --past 512`,
		RunE: func(c *cobra.Command, _ []string) error {
			return o.run(c.Context(), m, c.Flags(), c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	cli.AddFlags(c.Flags(), "Measurement", func(f *pflag.FlagSet) {
		f.StringSliceVar(&o.recorders, "recorder", nil, "measure these `RECORDERS`, such as stamps,cupti (default: host on\nthe CPU; stamps and cupti on a GPU)")
		f.IntVar(&o.rounds, "rounds", 5, "run `N` processes of each kind")
		f.IntVar(&o.promptLen, "prompt-len", 0, "the prefill has `N` tokens (default: 256, or the whole\ncontext if that is shorter)")
		f.IntVar(&o.past, "past", 0, "the cache holds `N` tokens before the decode step (default: 128,\nor half the context if that is shorter)")
		f.IntVar(&o.repeat, "repeat", 20, "measure `N` passes in each process")
	})
	cli.AddFlags(c.Flags(), "Output", func(f *pflag.FlagSet) {
		f.BoolVar(&o.json, "json", false, "print one JSON object")
	})
	return c
}

// OverheadRow is what one recorder costs in one mode and phase.
type OverheadRow struct {
	Phase    string    `json:"phase"`
	Mode     string    `json:"mode,omitempty"`
	Recorder string    `json:"recorder"`
	Baseline float64   `json:"baseline_ms"`
	Recorded float64   `json:"recorded_ms"`
	Longer   float64   `json:"longer_percent"`
	Waited   float64   `json:"waited_share"` // the most of the processes of its phase and mode; see [auto.Waited]
	Times    []float64 `json:"times_ms"`
	Failure  string    `json:"failure,omitempty"`
}

// Line returns the cells of a row. A percentage that other programs may have changed is withheld.
func (r OverheadRow) Line() string {
	recorded, longer := "-", "-"
	if r.Failure == "" {
		recorded = fmt.Sprintf("%.4f", r.Recorded)
		if cli.WaitedWords(r.Waited) == "" {
			longer = fmt.Sprintf("%+.1f", r.Longer)
		}
	}
	return fmt.Sprintf("%s\t%s\t%s\t%.4f\t%s\t%s", r.Phase, r.Mode, r.Recorder, r.Baseline, recorded, longer)
}

func (o *overheadFlags) run(ctx context.Context, m *cli.ModelFlags, flags *pflag.FlagSet, stdout, stderr io.Writer) error {
	o.phase, o.logits, o.batch = "decode", "last", 1
	if err := o.check(flags); err != nil {
		return err
	}
	if o.rounds < 1 || o.rounds > cli.MaxRepeat {
		return cli.Usagef("--rounds %d: it must be from 1 to %d", o.rounds, cli.MaxRepeat)
	}
	opened, err := m.Open()
	if err != nil {
		return err
	}
	setting := opened.Setting()
	together, err := inOneKernel(opened)
	opened.Close()
	if err != nil {
		return err
	}
	modes, recorders := []string{""}, []string{"host"}
	if setting.Device == "cuda" {
		modes, recorders = []string{"eager", "graph"}, []string{"stamps", "cupti"}
		switch {
		case m.Mode != "auto":
			modes = []string{m.Mode}
		case together:
			modes = append(modes, persistentMode)
		}
	}
	if len(o.recorders) > 0 {
		recorders = o.recorders
	}
	plan, total := overheadPlan(modes, recorders), 0
	if len(plan) == 0 {
		return fmt.Errorf("mode %s has no steps in a recording by %s; --recorder stamps has them", strings.Join(modes, ", "), strings.Join(recorders, ", "))
	}
	for _, p := range plan {
		total += (2 + len(p.recorders)) * o.rounds
	}
	var rows []OverheadRow
	bar := m.Progress(stderr, "measuring", false)
	defer bar.Done()
	done := 0
	for _, p := range plan {
		waited := 0.0
		series, err := measure.Rounds(ctx, slices.Concat([]string{"", "none"}, p.recorders), o.rounds, func(kind string) (float64, error) {
			ms, share, err := o.one(ctx, flags, p.phase, p.mode, kind)
			waited = max(waited, share)
			done++
			bar.Set(int64(done), int64(total))
			return ms, err
		})
		if err != nil {
			return err
		}
		baseline := series[0].Median()
		for _, s := range series[1:] {
			row := OverheadRow{Phase: p.phase, Mode: p.mode, Recorder: s.Kind, Baseline: baseline, Waited: waited, Times: s.Times}
			if s.Err != nil {
				row.Failure = s.Err.Error()
			} else {
				row.Recorded = s.Median()
				row.Longer = 100 * (row.Recorded/row.Baseline - 1)
			}
			rows = append(rows, row)
		}
	}
	bar.Done()
	if o.json {
		return cli.WriteJSON(stdout, OverheadJSON{setting, o.rounds, o.repeat, rows})
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s, %s; medians over %s of %s each\n\n", setting.Model, setting, humanize.Count(o.rounds, "process", "processes"), humanize.Count(o.repeat, "pass", "passes"))
	table.Lines(&b, table.Right, "phase\tmode\trecorder\tbaseline ms\trecorded ms\tlonger %", rows, OverheadRow.Line)
	for _, r := range rows {
		if r.Failure != "" {
			fmt.Fprintf(&b, "%s %s %s: %s\n", r.Phase, r.Mode, r.Recorder, r.Failure)
		}
	}
	most := slices.MaxFunc(rows, func(a, b OverheadRow) int { return cmp.Compare(a.Waited, b.Waited) })
	if words := cli.WaitedWords(most.Waited); words != "" {
		fmt.Fprintf(&b, "\n%s, in one of the processes; percentages that this may change are withheld\n", words)
	}
	return cli.WriteOutput(stdout, b.Bytes())
}

// overheadOf is a kind of pass in a mode, and the recorders with which it is measured.
type overheadOf struct {
	phase, mode string
	recorders   []string
}

// overheadPlan lists what is measured. Prefills of mode persistent are those of mode graph, but for the shortest, and
// CUPTI has no steps of its decode steps.
func overheadPlan(modes, recorders []string) (plan []overheadOf) {
	for _, phase := range []string{"decode", "prefill"} {
		for _, mode := range modes {
			own := recorders
			if mode == persistentMode {
				if phase != "decode" && len(modes) > 1 {
					continue
				}
				own = slices.DeleteFunc(slices.Clone(recorders), func(r string) bool { return r == exec.RecorderCUPTI })
			}
			if len(own) > 0 {
				plan = append(plan, overheadOf{phase, mode, own})
			}
		}
	}
	return plan
}

// persistentMode is the mode whose decode steps are one kernel.
var persistentMode = exec.Persistent.String()

// inOneKernel tells whether mode auto runs decode steps in one kernel.
func inOneKernel(o *cli.Opened) (bool, error) {
	options := o.Options
	options.Batch = 1
	_, err := gpt2.SurveyOf(o.Backend, o.Model, options, gpt2.Pass{Batch: 1, Tokens: 1, Logits: gpt2.LogitsLast, Sample: true})
	if errors.Is(err, errors.ErrUnsupported) { // a CPU
		return false, nil
	}
	return o.Backend.Describe().Mode == persistentMode, err
}

// one measures a pass in its own process. It returns the median in ms, and which share of the
// time the process waited for a processor. The recorders "" and "none" record nothing.
func (o *overheadFlags) one(ctx context.Context, flags *pflag.FlagSet, phase, mode, recorder string) (median, waited float64, err error) {
	args := []string{"bench", "--json", "--quiet", "--no-floor", "--phase=" + phase, "--repeat=" + strconv.Itoa(o.repeat)}
	switch phase {
	case "decode":
		if flags.Changed("past") {
			args = append(args, "--past="+strconv.Itoa(o.past))
		}
	case "prefill":
		if flags.Changed("prompt-len") {
			args = append(args, "--prompt-len="+strconv.Itoa(o.promptLen))
		}
	}
	if mode != "" {
		args = append(args, "--mode="+mode)
	}
	if recorder != "" && recorder != "none" {
		args = append(args, "--recorder="+recorder)
	}
	args = append(args, cli.GivenFlags(flags, "recorder", "rounds", "prompt-len", "past", "repeat", "json", "mode", "quiet")...)
	var r struct {
		Median float64 `json:"median_ms"`
		Waited float64 `json:"waited_share"`
	}
	if err := cli.RunSelf(ctx, args, &r); err != nil {
		return 0, 0, err
	}
	return r.Median, r.Waited, nil
}

// OverheadJSON is what bench overhead --json prints.
type OverheadJSON struct {
	Configuration cli.Setting   `json:"configuration"`
	Rounds        int           `json:"rounds"` // processes of each kind
	Repeat        int           `json:"repeat"` // passes of each process
	Rows          []OverheadRow `json:"rows"`
}

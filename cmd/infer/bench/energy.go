package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"gpt2scope/cmd/infer/cli"
	"gpt2scope/gpt2"
	"gpt2scope/internal/humanize"
	"gpt2scope/internal/table"
	"gpt2scope/measure"
)

type energyFlags struct {
	benchFlags
	seconds float64
}

type openMeter = func(gpt2.Backend) (*measure.Meter, error)

func NewBenchEnergy(m *cli.ModelFlags, open openMeter) *cobra.Command {
	var e energyFlags
	c := &cobra.Command{
		Use:   "energy",
		Short: "Measure the energy of tokens",
		Long: `energy repeats decode steps and prefills for seconds, and meanwhile reads the device's energy counter: NVML's
of the whole board, or samples of its power; on the CPU RAPL's, of the processor package. It prints the mean
power, and the energy of a call and of a token. Power is computed from the first update of the counter to
the last; the column "within W" gives its error. Idle power is measured before, with the model loaded.`,
		Example: `  infer bench energy --device cuda -m random:gpt2
  infer bench energy --device cuda -m random:gpt2 --phase prefill --seconds 10`,
		RunE: func(c *cobra.Command, _ []string) error {
			return e.run(c, m, open)
		},
	}
	cli.AddFlags(c.Flags(), "Measurement", func(f *pflag.FlagSet) {
		e.register(f)
		f.Lookup("phase").Usage = "`PHASE` to measure: prefill or decode (default: both)"
		f.Lookup("phase").DefValue = ""
		f.Var(cli.Float(&e.seconds, 5, cli.Between(0.1, 3600)), "seconds",
			"repeat each for `S` seconds, after a second of warm-up")
	})
	cli.AddJSON(c, &e.json)
	return c
}

// EnergyResult is the measured time and energy of a workload, a row of the table.
type EnergyResult struct {
	Work        string   `json:"work"`
	Calls       int      `json:"calls"` // passes
	Microsecond float64  `json:"us_per_call"`
	Watts       float64  `json:"watts"`             // mean power
	Uncertainty float64  `json:"uncertainty_watts"` // possible error of the mean power
	AboveIdle   *float64 `json:"above_idle_watts,omitempty"`
	PerCall     float64  `json:"mj_per_call"`
	PerToken    float64  `json:"mj_per_token"`
	OverIdle    *float64 `json:"mj_per_token_above_idle,omitempty"`
	Steps       int      `json:"counter_steps"`     // updates of the counter that were seen
	Resolution  float64  `json:"counter_step_mj"`   // by which the counter stepped, median
	Period      float64  `json:"counter_period_ms"` // from one update to the next, median
}

func (e *energyFlags) run(cmd *cobra.Command, m *cli.ModelFlags, open openMeter) (err error) {
	ctx := cmd.Context()
	if e.batch, err = e.batches.One("batch"); err != nil {
		return err
	}
	o, err := m.Open()
	if err != nil {
		return err
	}
	defer o.Close()
	c, err := open(o.Backend)
	if err != nil {
		return err
	}
	defer c.Close()
	s, err := o.Load(ctx, e.batch)
	if err != nil {
		return err
	}
	loads, err := e.workloads(cmd.Flags(), s, o.Options.Context)
	if err != nil {
		return err
	}
	defer m.Spin("measuring energy")()
	idle, idleErr := c.Idle(ctx, e.duration())
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	out := EnergyObject{Source: c.Source(), Covers: c.Covers, Seconds: e.seconds, Batch: e.batch,
		Configuration: o.Setting()}
	if idleErr == nil {
		out.Idle = &idle
	} else {
		out.IdleUnknown = idleErr.Error()
	}
	for _, w := range loads {
		used, err := c.Energy(ctx, w.Work, e.duration())
		switch {
		case errors.As(err, new(*measure.CounterError)):
			return fmt.Errorf("%s: %w (--seconds)", w.what, err)
		case err != nil:
			return err
		}
		calls := used.Rounds
		seconds := used.Elapsed.Seconds() / float64(calls)
		r := EnergyResult{Work: w.what, Calls: calls, Microsecond: seconds * 1e6, Watts: used.Power.Watts,
			Uncertainty: used.Power.Uncertainty, PerCall: used.Power.Watts * seconds * 1e3,
			PerToken: used.OfToken(w.Work, used.Power.Watts),
			Steps:    used.Power.Steps, Resolution: used.Resolution, Period: cli.Ms(used.Period)}
		if idleErr == nil {
			above := r.Watts - idle.Watts
			over := used.OfToken(w.Work, above)
			r.AboveIdle, r.OverIdle = &above, &over
		}
		out.Results = append(out.Results, r)
	}
	return cli.Print(cmd, e.json, out, func(w io.Writer) {
		fmt.Fprintf(w, "%s, %s\n", o.Model.Name, out.Configuration)
		fmt.Fprintf(w, "%s, of %s; updated by %s mJ every %s ms (medians)\n", out.Source, out.Covers,
			cli.Digits(out.Results[0].Resolution), cli.Digits(out.Results[0].Period))
		if idleErr == nil {
			fmt.Fprintf(w, "idle, with the model loaded: %s W, to within %s W\n\n", cli.Digits(idle.Watts),
				cli.Digits(idle.Uncertainty))
		} else {
			fmt.Fprintf(w, "idle power is not known: %v\n\n", idleErr)
		}
		writeEnergy(w, out.Results)
	})
}

func writeEnergy(w io.Writer, results []EnergyResult) {
	optional := func(n *float64) string {
		if n == nil {
			return ""
		}
		return cli.Digits(*n)
	}
	const heading = "work\tcalls\tus/call\tW\twithin W\tabove idle W\tmJ/call\tmJ/token\tabove idle mJ/token"
	table.Lines(w, table.Right, heading, results, func(r EnergyResult) string {
		return strings.Join([]string{r.Work, humanize.Thousands(int64(r.Calls)), cli.Digits(r.Microsecond),
			cli.Digits(r.Watts), cli.Digits(r.Uncertainty),
			optional(r.AboveIdle), cli.Digits(r.PerCall), cli.Digits(r.PerToken), optional(r.OverIdle)}, "\t")
	})
}

func (e *energyFlags) duration() time.Duration {
	return time.Duration(e.seconds * float64(time.Second))
}

// workload is work with its description in the table.
type workload struct {
	measure.Work
	what string
}

func (e *energyFlags) workloads(flags *pflag.FlagSet, s *gpt2.Session, capacity int) ([]workload, error) {
	phases := []string{e.phase}
	if !flags.Changed("phase") {
		phases = []string{"prefill", "decode"}
	}
	var out []workload
	for _, name := range phases {
		one := e.benchFlags
		one.phase = name
		phase, past, err := one.pass(flags, capacity)
		if err != nil {
			return nil, err
		}
		w := workload{measure.Prefilling(s, phase, past), describe(phase, past)}
		if name == "decode" {
			w.Work = measure.Decoding(s, past)
		}
		out = append(out, w)
	}
	return out, nil
}

func describe(phase gpt2.Pass, past int) string {
	if phase.Sample {
		return fmt.Sprintf("decode step, B=%d, %s in the cache", phase.Batch, cli.Count(past, "token"))
	}
	text := fmt.Sprintf("prefill, B=%d T=%d, %s of logits", phase.Batch, phase.Tokens,
		map[gpt2.Logits]string{gpt2.LogitsAll: "all rows", gpt2.LogitsLast: "last row"}[phase.Logits])
	if past > 0 {
		text += fmt.Sprintf(", %s in the cache", cli.Count(past, "token"))
	}
	return text
}

type EnergyObject struct {
	Source        string         `json:"source"`                 // what counts, in words
	Covers        string         `json:"covers"`                 // what of the machine it counts
	Seconds       float64        `json:"seconds"`                // --seconds
	Batch         int            `json:"batch"`                  // --batch
	Idle          *measure.Power `json:"idle,omitempty"`         // with the model loaded
	IdleUnknown   string         `json:"idle_unknown,omitempty"` // why there is no Idle
	Results       []EnergyResult `json:"results"`
	Configuration cli.Setting    `json:"configuration"`
}

package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"gpt2scope/cmd/infer/cli"
	"gpt2scope/gpt2"
	"gpt2scope/internal/humanize"
	"gpt2scope/internal/table"
	"gpt2scope/measure"
)

// energyFlags are the flags of "infer bench energy".
type energyFlags struct {
	benchFlags
	seconds float64
}

// NewBenchEnergy makes "infer bench energy".
func NewBenchEnergy(m *cli.ModelFlags, open func(gpt2.Backend) (*measure.Meter, error)) *cobra.Command {
	var e energyFlags
	c := &cobra.Command{
		Use:   "energy",
		Short: "Measure the energy of tokens",
		Long: `energy repeats decode steps and prefills for seconds, and meanwhile reads the device's
energy counter. It prints the mean power, and the energy of a call and of a
token. On a GPU the counter is NVML's, of the whole board; if the GPU counts no energy,
samples of its power are summed. On the CPU it is RAPL's, of the processor package, if the
system gives access to it.

A counter is updated a few to a thousand times a second. Power is computed from the first
update to the last, while the same work goes on, so its error is much smaller than one
update; the column "within W" gives it. Idle power is measured before, with the model loaded and
nothing running.`,
		Example: `  infer bench energy --device cuda -m random:gpt2
  infer bench energy --device cuda --phase prefill --seconds 10`,
		RunE: func(c *cobra.Command, _ []string) error {
			return e.run(c.Context(), m, c.Flags(), open, c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	cli.AddFlags(c.Flags(), "Measurement", func(f *pflag.FlagSet) {
		e.register(f)
		f.Lookup("phase").Usage = "`PHASE` to measure: prefill or decode (default: both)"
		f.Lookup("phase").DefValue = ""
		f.Var(cli.Float(&e.seconds, 5, cli.Between(0.1, 3600)), "seconds", "repeat each for `S` seconds, after a second of warm-up")
	})
	cli.AddFlags(c.Flags(), "Output", func(f *pflag.FlagSet) {
		f.BoolVar(&e.json, "json", false, "print one JSON object")
	})
	return c
}

// EnergyResult is the measured time and energy of a workload, a row of the table.
type EnergyResult struct {
	Work        string      `json:"work"`
	Calls       int         `json:"calls"` // passes
	Microsecond float64     `json:"us_per_call"`
	Watts       float64     `json:"watts"`             // mean power
	Uncertainty float64     `json:"uncertainty_watts"` // mean power
	AboveIdle   *cli.Number `json:"above_idle_watts,omitempty"`
	PerCall     float64     `json:"mj_per_call"`
	PerToken    float64     `json:"mj_per_token"`
	OverIdle    *cli.Number `json:"mj_per_token_above_idle,omitempty"`
	Steps       int         `json:"counter_steps"`     // updates of the counter that were seen; medians of their size and distance
	Resolution  float64     `json:"counter_step_mj"`   // updates of the counter that were seen; medians of their size and distance
	Period      float64     `json:"counter_period_ms"` // updates of the counter that were seen; medians of their size and distance
}

func (e *energyFlags) run(ctx context.Context, m *cli.ModelFlags, flags *pflag.FlagSet, open func(gpt2.Backend) (*measure.Meter, error), stdout, stderr io.Writer) error {
	e.repeat = 1
	if err := e.check(); err != nil {
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
	s, err := o.Load(ctx, stderr, e.batch)
	if err != nil {
		return err
	}
	loads, err := e.workloads(flags, s, o.Options.Context)
	if err != nil {
		return err
	}
	defer m.Spin(stderr, "measuring energy")()
	idle, idleErr := c.Idle(ctx, e.duration())
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var results []EnergyResult
	for _, w := range loads {
		used, err := c.Energy(ctx, w.Work, e.duration())
		switch {
		case errors.As(err, new(*measure.CounterError)):
			return fmt.Errorf("%s: %w (--seconds)", w.what, err)
		case err != nil:
			return err
		}
		r := newEnergyResult(w, used)
		if idleErr == nil {
			above := cli.Number(r.Watts - idle.Watts)
			over := cli.Number(used.OfToken(w.Work, float64(above)))
			r.AboveIdle, r.OverIdle = &above, &over
		}
		results = append(results, r)
	}
	if e.json {
		out := EnergyObject{Source: c.Source(), Covers: c.Covers, Seconds: e.seconds, Batch: e.batch, Results: results, Configuration: o.Setting()}
		if idleErr == nil {
			out.Idle = &idle
		} else {
			out.IdleUnknown = idleErr.Error()
		}
		return cli.WriteJSON(stdout, out)
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s, %s\n", o.Model.Name, o.Setting())
	fmt.Fprintf(&b, "%s, of %s; updated by %s mJ every %s ms (medians)\n", c.Source(), c.Covers, cli.Digits(results[0].Resolution), cli.Digits(results[0].Period))
	if idleErr == nil {
		fmt.Fprintf(&b, "idle, with the model loaded: %s W, to within %s W\n\n", cli.Digits(idle.Watts), cli.Digits(idle.Uncertainty))
	} else {
		fmt.Fprintf(&b, "idle power is not known: %v\n\n", idleErr)
	}
	writeEnergy(&b, results)
	return cli.WriteOutput(stdout, b.Bytes())
}

// writeEnergy writes results as a table.
func writeEnergy(w io.Writer, results []EnergyResult) {
	optional := func(n *cli.Number) string {
		if n == nil {
			return ""
		}
		return cli.Digits(float64(*n))
	}
	table.Lines(w, table.Left, "work\tcalls\tus/call\tW\twithin W\tabove idle W\tmJ/call\tmJ/token\tabove idle mJ/token", results, func(r EnergyResult) string {
		return fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s", r.Work, humanize.Thousands(int64(r.Calls)), cli.Digits(r.Microsecond), cli.Digits(r.Watts), cli.Digits(r.Uncertainty),
			optional(r.AboveIdle), cli.Digits(r.PerCall), cli.Digits(r.PerToken), optional(r.OverIdle))
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

// newEnergyResult makes the row of a workload.
func newEnergyResult(w workload, e measure.Energy) EnergyResult {
	seconds := e.Elapsed.Seconds() / float64(e.Rounds)
	return EnergyResult{Work: w.what, Calls: e.Rounds, Microsecond: seconds * 1e6, Watts: e.Power.Watts, Uncertainty: e.Power.Uncertainty,
		PerCall: e.Power.Watts * seconds * 1e3, PerToken: e.OfToken(w.Work, e.Power.Watts), Steps: e.Power.Steps, Resolution: e.Resolution, Period: cli.Ms(e.Period)}
}

// workloads returns the workloads that the flags ask for.
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
		if name == "decode" {
			out = append(out, workload{measure.Decoding(s, past), fmt.Sprintf("decode step, B=%d, from %s in the cache",
				phase.Batch, cli.Count(past, "token"))})
		} else {
			out = append(out, workload{measure.Prefilling(s, phase, past), fmt.Sprintf("prefill, B=%d T=%d", phase.Batch,
				phase.Tokens) + inCache(past)})
		}
	}
	return out, nil
}

// inCache tells of tokens before a prefill, "" if there are none.
func inCache(past int) string {
	if past == 0 {
		return ""
	}
	return fmt.Sprintf(", %s in the cache", cli.Count(past, "token"))
}

// EnergyObject is what bench energy --json prints.
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

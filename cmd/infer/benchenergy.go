package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"gpt2scope/cuda/nvml"
	"gpt2scope/energy"
	"gpt2scope/gpt2"
	"gpt2scope/measure"
)

// energyFlags are the flags of "infer bench energy".
type energyFlags struct {
	benchFlags
	stage   string
	seconds float64
}

// newBenchEnergy makes "infer bench energy".
func newBenchEnergy(m *modelFlags, open func(gpt2.Backend) (*counted, error)) *cobra.Command {
	var e energyFlags
	c := &cobra.Command{
		Use:   "energy",
		Short: "Measure the energy of tokens, or of a stage",
		Long: `energy repeats decode steps and prefills, or one stage, for seconds, and reads the
device's energy counter meanwhile: mean power, and energy of a call and of a token. On a
GPU the counter is NVML's, of the whole board; where there is no total, samples of power
are summed. On the CPU it is RAPL's, of the processor package, where the system shows it.

A counter steps a few to a thousand times a second. The power is taken from its first
step to its last, of work that stays the same, so that it is known far better than by a
step; the table says to within what. Idle power is that of the device with the model
loaded and nothing running, measured before.

--stage NAME repeats the steps that contain a stage, those of all layers in turn where
NAME is one within a layer (attn.c_attn), or that of one layer (h.0.attn.c_attn). A pass
is run before, so that steps read what they read in a pass; one that works in place, such
as a residual add, meets its own output. What is repeated may stay in a cache that a
whole pass does not fit in; then a line says so.`,
		Example: `  infer bench energy --device cuda -m random:gpt2
  infer bench energy --device cuda -m random:gpt2 --stage attn.sdpa --past 512
  infer bench energy --device cuda --stage mlp.c_fc --phase prefill --seconds 10`,
		RunE: func(c *cobra.Command, _ []string) error {
			return e.run(c.Context(), m, c.Flags(), open, c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	addFlags(c.Flags(), "Measurement", func(f *pflag.FlagSet) {
		e.register(f)
		f.Lookup("phase").Usage = "`PHASE` to measure: prefill or decode (default: both; of a stage,\ndecode)"
		f.Lookup("phase").DefValue = ""
		f.StringVar(&e.stage, "stage", "", "measure the steps of the stage `NAME`, such as attn.sdpa")
		f.Float64Var(&e.seconds, "seconds", 5, "repeat each for `S` seconds, after a second of warm-up")
	})
	addFlags(c.Flags(), "Output", func(f *pflag.FlagSet) {
		f.BoolVar(&e.json, "json", false, "print one JSON object")
	})
	return c
}

// counted is an energy counter, and what its energy is of.
type counted struct {
	energy.Counter
	covers string
	close  func()
}

// openCounter opens the counter of a backend's device. An error says what is missing.
func openCounter(backend gpt2.Backend) (*counted, error) {
	switch d := backend.Describe(); {
	case d.GPU:
		n, err := nvml.Open()
		if err != nil {
			return nil, fmt.Errorf("the GPU's energy cannot be measured: %w", err)
		}
		c, err := n.Counter(d.PCI)
		if err != nil {
			n.Close()
			return nil, err
		}
		return &counted{c, "the whole GPU with its memory, whoever uses it", n.Close}, nil
	case d.Name == "cpu":
		r, err := energy.OpenRAPL()
		if err != nil {
			return nil, fmt.Errorf("the CPU's energy cannot be measured: %w; a GPU has a counter of its own: --device cuda", err)
		}
		return &counted{r, r.Covers(), func() {}}, nil
	}
	return nil, fmt.Errorf("energy is measured of the fast executors; use --device cuda or --device cpu")
}

// workload is something that is repeated.
type workload struct {
	what   string
	steps  int // of the plan in a round: its calls; 1 for a whole pass
	tokens int // that a round, or pass, makes or takes
	note   string
	run    func(ctx context.Context, d time.Duration) (rounds int, elapsed time.Duration, err error)
}

// energyResult is what was measured of a workload.
type energyResult struct {
	Work        string  `json:"work"`
	Calls       int     `json:"calls"`
	Microsecond float64 `json:"us_per_call"`
	Watts       float64 `json:"watts"`
	Uncertainty float64 `json:"uncertainty_watts"`
	AboveIdle   *number `json:"above_idle_watts,omitempty"`
	PerCall     float64 `json:"mj_per_call"`
	PerToken    float64 `json:"mj_per_token"`
	OverIdle    *number `json:"mj_per_token_above_idle,omitempty"`
	Steps       int     `json:"counter_steps"`
	Resolution  float64 `json:"counter_step_mj"`
	Period      float64 `json:"counter_period_ms"`
	Note        string  `json:"note,omitempty"`
}

func (e *energyFlags) run(ctx context.Context, m *modelFlags, flags *pflag.FlagSet, open func(gpt2.Backend) (*counted, error), stdout, stderr io.Writer) error {
	e.repeat = 1
	if err := e.check(flags); err != nil {
		return err
	}
	if !(e.seconds >= 0.1 && e.seconds <= 3600) {
		return usagef("--seconds %g: it must be from 0.1 to 3600", e.seconds)
	}
	o, err := m.open()
	if err != nil {
		return err
	}
	defer o.close()
	c, err := open(o.backend)
	if err != nil {
		return err
	}
	defer c.close()
	s, err := o.load(ctx, stderr, e.batch)
	if err != nil {
		return err
	}
	loads, err := e.workloads(flags, s, o.options.Context)
	if err != nil {
		return err
	}
	defer m.spin(stderr, "measuring energy")()
	idle, idleErr := e.idle(ctx, c)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var results []energyResult
	for _, w := range loads {
		r, err := e.measure(ctx, c, w, idle, idleErr == nil)
		if err != nil {
			return err
		}
		results = append(results, r)
	}
	if e.json {
		out := map[string]any{"source": c.Source(), "covers": c.covers, "seconds": e.seconds, "batch": e.batch, "results": results, "configuration": o.setting()}
		if idleErr == nil {
			out["idle"] = idle
		}
		return writeJSON(stdout, out)
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s, %s\n", o.model.Name, o.setting())
	fmt.Fprintf(&b, "%s, of %s; it stepped by %s mJ every %s ms (medians)\n", c.Source(), c.covers, digits(results[0].Resolution), digits(results[0].Period))
	if idleErr == nil {
		fmt.Fprintf(&b, "idle, with the model loaded: %s W, to within %s W\n\n", digits(idle.Watts), digits(idle.Uncertainty))
	} else {
		fmt.Fprintf(&b, "idle power is not known: %v\n\n", idleErr)
	}
	writeEnergy(&b, results)
	return writeOutput(stdout, b.Bytes())
}

// writeEnergy writes results as a table, and notes below.
func writeEnergy(w io.Writer, results []energyResult) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "work\tcalls\tus/call\tW\twithin W\tabove idle W\tmJ/call\tmJ/token\tabove idle mJ/token\t")
	optional := func(n *number) string {
		if n == nil {
			return ""
		}
		return digits(float64(*n))
	}
	for _, r := range results {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n", r.Work, thousands(int64(r.Calls)), digits(r.Microsecond), digits(r.Watts), digits(r.Uncertainty),
			optional(r.AboveIdle), digits(r.PerCall), digits(r.PerToken), optional(r.OverIdle))
	}
	t.Flush()
	for _, r := range results {
		if r.Note != "" {
			fmt.Fprintf(w, "%s: %s\n", r.Work, r.Note)
		}
	}
}

// warmUp is how long power may take to settle, and samples of it to forget.
func (e *energyFlags) warmUp(c *counted) time.Duration {
	d := time.Second
	if c.Source() == nvml.AveragedPower {
		d *= 2
	}
	return min(d, e.duration())
}

func (e *energyFlags) duration() time.Duration {
	return time.Duration(e.seconds * float64(time.Second))
}

// idle measures the power while nothing runs, for at most two seconds.
func (e *energyFlags) idle(ctx context.Context, c *counted) (energy.Power, error) {
	wait := func(d time.Duration) {
		select {
		case <-ctx.Done():
		case <-time.After(d):
		}
	}
	wait(e.warmUp(c))
	m := energy.Start(c)
	from := time.Now()
	wait(min(2*time.Second, e.duration()))
	log, err := m.Stop()
	if err != nil {
		return energy.Power{}, err
	}
	return log.Power(from, log.Ended)
}

// measure repeats a workload.
func (e *energyFlags) measure(ctx context.Context, c *counted, w workload, idle energy.Power, idleKnown bool) (r energyResult, err error) {
	if _, _, err := w.run(ctx, e.warmUp(c)); err != nil {
		return r, err
	}
	m := energy.Start(c)
	rounds, elapsed, err := w.run(ctx, e.duration())
	to := time.Now()
	log, counterErr := m.Stop()
	if err := cmp.Or(err, counterErr); err != nil {
		return r, err
	}
	p, err := log.Power(to.Add(-elapsed), to)
	if err != nil {
		return r, fmt.Errorf("%s: %w (--seconds)", w.what, err)
	}
	r = energyResult{Work: w.what, Calls: rounds * w.steps, Watts: p.Watts, Uncertainty: p.Uncertainty, Steps: p.Steps, Note: w.note}
	seconds := elapsed.Seconds() / float64(r.Calls)
	perToken := elapsed.Seconds() / float64(rounds) / float64(w.tokens)
	r.Microsecond, r.PerCall, r.PerToken = seconds*1e6, p.Watts*seconds*1e3, p.Watts*perToken*1e3
	if idleKnown {
		above, over := number(p.Watts-idle.Watts), number((p.Watts-idle.Watts)*perToken*1e3)
		r.AboveIdle, r.OverIdle = &above, &over
	}
	mJ, period := log.Resolution()
	r.Resolution, r.Period = mJ, ms(period)
	return r, nil
}

// workloads returns what the flags ask for.
func (e *energyFlags) workloads(flags *pflag.FlagSet, s *gpt2.Session, capacity int) ([]workload, error) {
	phases := []string{e.phase}
	if !flags.Changed("phase") && e.stage == "" {
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
		title := fmt.Sprintf("prefill, B=%d T=%d", phase.Batch, phase.Tokens)
		if name == "decode" {
			title = fmt.Sprintf("decode step, B=%d, from %s in the cache", phase.Batch, count(past, "token"))
		}
		w := workload{what: title, steps: 1, tokens: phase.Batch * phase.Tokens}
		switch {
		case e.stage != "":
			w, err = stageLoad(s, e.stage, phase, past)
		case name == "decode":
			w.run = func(ctx context.Context, d time.Duration) (int, time.Duration, error) {
				return decodeFor(ctx, s, phase, past, capacity, d)
			}
		default:
			w.run = func(ctx context.Context, d time.Duration) (int, time.Duration, error) {
				return prefillFor(ctx, s, phase, d)
			}
		}
		if err != nil {
			return nil, err
		}
		out = append(out, w)
	}
	return out, nil
}

// stageLoad repeats the steps that contain a stage.
func stageLoad(s *gpt2.Session, name string, phase gpt2.Phase, past int) (w workload, err error) {
	if _, ok := s.Runner().(gpt2.Repeater); !ok {
		return w, errors.New("--stage: this device cannot repeat a stage; use --device cpu or --device cuda")
	}
	plan, err := s.Plan(phase)
	if err != nil {
		return w, err
	}
	pick := func(step gpt2.Step) bool {
		return slices.ContainsFunc(step.Ops, func(o gpt2.Operation) bool { return o.Stage.Info().Name == name || o.StageAt.String() == name })
	}
	var cost gpt2.Cost
	var steps []string
	for _, step := range plan.Steps {
		if pick(step) {
			cost = cost.Add(step.Cost(past))
			steps = append(steps, step.Name())
		}
	}
	if len(steps) == 0 {
		return w, usagef("--stage %s: the pass has no such stage; it has those within a layer, such as %s, and %s", shellQuote(name), stageNames(true), stageNames(false))
	}
	title := steps[0]
	if len(steps) > 1 {
		title += fmt.Sprintf(" to %s, %s", steps[len(steps)-1], count(len(steps), "step"))
	}
	if phase.Tokens == 1 {
		title += fmt.Sprintf(", decode B=%d, %s in the cache", phase.Batch, count(past, "token"))
	} else {
		title += fmt.Sprintf(", prefill B=%d T=%d", phase.Batch, phase.Tokens)
	}
	w = workload{what: title, steps: len(steps), tokens: phase.Batch * phase.Tokens}
	if l2 := s.Backend().Describe().L2Bytes; l2 > 0 {
		sizes := s.Backend().Sizes()
		if data := (gpt2.Cost{Weights: cost.Weights, KV: cost.KV}).Bytes(sizes); data <= l2 && plan.Cost(past).Bytes(sizes) > l2 {
			w.note = fmt.Sprintf("repeated, its %s of weights and cache stay in the L2 cache of %s, which a whole pass does not fit in: in a pass it also pays for reading memory", size(data), size(l2))
		}
	}
	w.run = func(ctx context.Context, d time.Duration) (int, time.Duration, error) {
		return measure.Steps(ctx, s, phase, past, pick, d)
	}
	return w, nil
}

// stageNames joins the names of the stages of layers, or of those outside.
func stageNames(inLayer bool) string {
	var names []string
	for s := range gpt2.NumStages {
		if info := s.Info(); info.InLayer == inLayer {
			names = append(names, info.Name)
		}
	}
	return strings.Join(names, ", ")
}

// stretch is how many decode steps follow one another before the cache is rewound.
const stretch = 64

// decodeFor generates greedily, from past tokens on and a stretch further, again and
// again for at least d. It returns how many steps there were, and their time.
func decodeFor(ctx context.Context, s *gpt2.Session, phase gpt2.Phase, past, capacity int, d time.Duration) (steps int, elapsed time.Duration, err error) {
	r, n := s.Runner(), min(stretch, capacity-past)
	defer func() { err = cmp.Or(err, s.Reset()) }()
	if err := measure.Fill(ctx, s, past); err != nil {
		return 0, 0, err
	}
	ids := measure.IDs(s.Model(), phase.Batch)
	for began := time.Now(); elapsed < d; elapsed = time.Since(began) {
		if _, err := r.Prefill(ctx, ids, phase); err != nil { // a step whose tokens are given
			return steps, elapsed, err
		}
		if err := r.Decode(ctx, n-1, func([]gpt2.Token) bool { return true }); err != nil {
			return steps, elapsed, err
		}
		if err := r.Rewind(past); err != nil {
			return steps, elapsed, err
		}
		steps += n
	}
	return steps, elapsed, nil
}

// prefillFor evaluates a prompt again and again for at least d.
func prefillFor(ctx context.Context, s *gpt2.Session, phase gpt2.Phase, d time.Duration) (passes int, elapsed time.Duration, err error) {
	r, ids := s.Runner(), measure.IDs(s.Model(), phase.Batch*phase.Tokens)
	defer func() { err = cmp.Or(err, s.Reset()) }()
	if err := s.Reset(); err != nil {
		return 0, 0, err
	}
	for began := time.Now(); elapsed < d; elapsed = time.Since(began) {
		if _, err := r.Prefill(ctx, ids, phase); err != nil {
			return passes, elapsed, err
		}
		if err := r.Rewind(0); err != nil {
			return passes, elapsed, err
		}
		passes++
	}
	return passes, elapsed, nil
}

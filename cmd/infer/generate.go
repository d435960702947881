//go:build cgo

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"gpt2scope/auto"
	"gpt2scope/cmd/infer/cli"
	"gpt2scope/gpt2"
	"gpt2scope/internal/humanize"
	"gpt2scope/internal/stats"
	"gpt2scope/measure"
	"gpt2scope/traces/tables"
)

// newGenerate makes the root command, which writes text.
func newGenerate(m *cli.ModelFlags) *cobra.Command {
	var in cli.InputFlags
	g := generateFlags{ModelFlags: m, in: &in}
	c := &cobra.Command{
		Use:   "infer",
		Short: "Run GPT-2, and see where the time goes",
		Long: `infer runs GPT-2 and shows what it does. Without a command it writes text: the text to standard output as it
is made, everything else to standard error. A full context goes on from the last half of the text.`,
		Example: `  infer -p "ROMEO:" --layers all           all six layers of the built-in model
  infer -p "ROMEO:" --temp 0 -n 100        greedy
  printf 'ROMEO:' | infer                  a prompt from a pipe
  infer -i --layers all                    goes on from what you type
  infer -m DIR -p "Once" --json            another model; one JSON object
  infer -p "ROMEO:" --device cuda          on an NVIDIA GPU ('make cuda' builds what that needs)`,
		RunE: func(c *cobra.Command, _ []string) error {
			g.flags = c.Flags()
			if !c.Flags().Changed("seed") {
				g.sampling.Seed = uint64(rand.Uint32())
			}
			g.stdout = c.OutOrStdout()
			return g.run(c.Context(), c.InOrStdin())
		},
	}
	cli.AddFlags(c.Flags(), "Text to begin with", func(f *pflag.FlagSet) {
		in.Register(f)
		f.StringVar(&g.prompts, "prompts", "", "with --json: a text for each line of `FILE`, and a line of JSON for each; a "+
			`line is a text in quotes, {"prompt": TEXT} or {"ids": [1,2,3]}; - is standard input`)
	})
	cli.AddFlags(c.Flags(), "Generation", g.register)
	cli.AddFlags(c.Flags(), "Where the time goes", g.profile.register)
	cli.AddFlags(c.Flags(), "Output", func(f *pflag.FlagSet) {
		f.Var(cli.Int(&g.top, -1, cli.AtLeast(0)), "logprobs",
			"with --json: the log-probability of each token, and the `N` likeliest in its place with theirs")
		f.Lookup("logprobs").NoOptDefVal, f.Lookup("logprobs").DefValue = "0", ""
		m.AutoFlags.Register(f)
		f.BoolVar(&g.echo, "echo", false, "begin the text with the prompt")
		f.BoolVar(&g.json, "json", false, "print one JSON object: text, ids, timings, configuration")
	})
	return c
}

// generateFlags are the flags of text generation.
type generateFlags struct {
	*cli.ModelFlags
	in        *cli.InputFlags
	flags     *pflag.FlagSet // all of the command
	tokens    int
	sampling  gpt2.Sampling
	top       int // --logprobs; -1 for none
	stopFlags []string
	stop      []string // stopFlags as --escape says
	ignoreEOS bool
	defaults  bool   // --generation-config
	prompts   string // --prompts
	speculate gpt2.Speculation
	echo      bool
	json      bool

	stdout      io.Writer
	interactive bool
	profile     profileFlags
}

func (g *generateFlags) register(f *pflag.FlagSet) {
	f.VarP(cli.Int(&g.tokens, 256, cli.AtLeast(0).Or(-1, "until the end of text")), "tokens", "n",
		"make at most `N` new tokens; -1 goes on until the end of text, 0 only evaluates the prompt")
	f.BoolVarP(&g.interactive, "interactive", "i", false, "read texts from the terminal and go on from each: "+
		"Ctrl-C stops the model, Ctrl-D ends; --tokens counts anew for each")
	f.Uint64VarP(&g.sampling.Seed, "seed", "s", 0, "`SEED` of the random numbers (default: a random one, printed)")
	f.Var(cli.Float(&g.sampling.Temperature, 0.8, cli.Positive().Or(0, "greedy")), "temp",
		"temperature `T`, by which the logits are divided; 0 is greedy")
	f.Var(cli.Int(&g.sampling.TopK, 40, cli.AtLeast(0)), "top-k", "sample from the `K` likeliest tokens; 0 is all")
	f.Var(cli.Float(&g.sampling.TopP, 0, cli.Between(0.0, 1)), "top-p",
		"sample from the fewest tokens whose probabilities sum to `P`; 0 is all")
	f.Var(cli.Float(&g.sampling.MinP, 0, cli.Between(0.0, 1)), "min-p",
		"sample from the tokens at least `P` times as probable as the likeliest; 0 is all")
	f.Var(cli.Float(&g.sampling.RepeatPenalty, 1, cli.Positive()), "repeat-penalty",
		"`X` by which logits of tokens in the text are divided if positive, else multiplied; 1 is none")
	f.Var(cli.Int(&g.sampling.RepeatLast, 64, cli.AtLeast(0).Or(-1, "all in the context")), "repeat-last-n",
		"the penalty is for the last `N` tokens; -1 is all in the context, 0 none")
	f.StringArrayVar(&g.stopFlags, "stop", nil, "end before `TEXT`; may be repeated")
	f.BoolVar(&g.ignoreEOS, "ignore-eos", false, "go on after the end-of-text token")
	f.BoolVar(&g.defaults, "generation-config", false, "of flags that are not given, take the values of the model's "+
		"generation_config.json, as transformers does ('infer info' shows them)")
	f.Var(cli.Parsed(&g.speculate, gpt2.DefaultSpeculation(gpt2.DraftAuto), gpt2.ParseSpeculation), "speculate",
		"`HOW` to draft tokens that one pass verifies, for the same text in less time: off, exits[=K,N] (the first K layers "+
			"draft up to N), lookup[=N] (what followed the last tokens before), auto (what is measured to be faster, if "+
			"anything; not given, it is as off with --profile, with --trace, for --prompts that are made together, and if "+
			"--device auto chooses)")
}

// check finds values that are wrong for every model.
func (g *generateFlags) check() error {
	if g.flags.Changed("repeat-last-n") && g.sampling.RepeatPenalty == 1 && !g.defaults {
		return cli.Usagef("--repeat-last-n is for a repetition penalty; add --repeat-penalty X, such as 1.1")
	}
	if g.sampling.LogProbs, g.sampling.TopLogProbs = g.top >= 0, max(0, g.top); g.top >= 0 && !g.json {
		return cli.Usagef("--logprobs is for --json: add that")
	}
	if err := g.profile.check(g.flags); err != nil {
		return err
	}
	if g.flags.Changed("prompts") {
		switch {
		case g.prompts == "":
			return cli.Usagef("--prompts needs the name of a file; - is standard input")
		case !g.json || g.interactive || g.profile.on() || g.profile.warmUp || g.in.Given() > 0:
			return cli.Usagef("--prompts prints a line of JSON for each line of a file: add --json, and leave out --prompt, " +
				"--file, --ids, --interactive, --profile, --trace and --warm-up")
		}
	}
	if g.interactive {
		switch {
		case g.json, g.profile.on(), g.profile.warmUp:
			return cli.Usagef("--interactive writes text only; leave out --json, --profile, --trace and --warm-up")
		case g.in.File == "-":
			return cli.Usagef("--interactive reads standard input itself; leave out --file -")
		case g.tokens == 0:
			return cli.Usagef("--interactive makes texts; leave out --tokens 0")
		}
	}
	for _, flag := range g.stopFlags {
		stop, err := g.in.Text("--stop", flag)
		if err != nil {
			return err
		}
		g.stop = append(g.stop, stop)
	}
	if slices.Contains(g.stop, "") {
		return cli.Usagef("--stop needs a text that is not empty")
	}
	return g.in.Check()
}

// result is what --json prints.
type result struct {
	Prompt   []int32      `json:"prompt_ids"`             // tokens of the prompt
	Text     *string      `json:"text"`                   // null if the model has no tokenizer
	IDs      []int32      `json:"ids"`                    // its tokens
	LogProbs []cli.Number `json:"logprobs,omitempty"`     // with --logprobs: log-probability of each token, before sampling
	Top      [][]top      `json:"top_logprobs,omitempty"` // of each token those that were likeliest in its place
	Finish   string       `json:"finish"`                 // why it ended: length, end_of_text, stop, interrupted
	Seed     uint64       `json:"seed"`                   // --seed, or the random one
	Sampling sampling     `json:"sampling"`               // the flags that chose the tokens
	Timings  timings      `json:"timings"`

	Drafts *draftsJSON `json:"speculation,omitempty"` // of passes that verified drafts

	Loading       []loadJSON `json:"loading,omitempty"`         // by the first passes that need them: part of the times
	WarmUpLoading []loadJSON `json:"warm_up_loading,omitempty"` // not part of them

	Profile *tables.Table `json:"profile,omitempty"` // the table of --profile
	Auto    *cli.AutoJSON `json:"auto,omitempty"`    // how --device auto chose
	Setting cli.Setting   `json:"configuration"`
	Shifts  int           `json:"context_shifts"` // how often the context was full

	first time.Time // when the first token came
	made  int
	laps  []time.Duration
}

// top is one of the likeliest tokens.
type top struct {
	ID      int32      `json:"id"`
	Text    *string    `json:"text"` // null if the model has no tokenizer
	LogProb cli.Number `json:"logprob"`
}

// sampling repeats the flags that chose the tokens.
type sampling struct {
	gpt2.Sampling
	Stop      []string `json:"stop,omitempty"` // --stop
	IgnoreEOS bool     `json:"ignore_eos"`     // --ignore-eos
}

// timings are in milliseconds.
type timings struct {
	FirstToken       float64 `json:"first_token_ms"`       // from the start of the process
	Prefills         int     `json:"prefill_passes"`       // evaluating the prompt, and again after each context shift
	PrefillTokens    int     `json:"prefill_tokens"`       // evaluating the prompt, and again after each context shift
	Prefill          float64 `json:"prefill_ms"`           // evaluating the prompt, and again after each context shift
	PrefillPerSecond float64 `json:"prefill_tokens_per_s"` // evaluating the prompt, and again after each context shift
	DecodeTokens     int     `json:"decode_tokens"`        // the tokens that were made one by one: the mean
	DecodePerToken   float64 `json:"decode_ms_per_token"`  // the tokens that were made one by one: the mean
	DecodePerSecond  float64 `json:"decode_tokens_per_s"`  // the tokens that were made one by one: the mean
	DecodeMedian     float64 `json:"decode_median_ms"`     // from one token to the next
	Waited           float64 `json:"waited_share"`         // share of the time that threads wanted to run in which they waited for a core
}

// draftsJSON is what --speculate brought.
type draftsJSON struct {
	How           string  `json:"how"`             // --speculate
	Passes        int     `json:"passes"`          // that verified drafts
	Drafted       int     `json:"drafted"`         // tokens
	Accepted      int     `json:"accepted"`        // drafts that were right
	Dropped       int     `json:"dropped"`         // the others
	TokensPerPass float64 `json:"tokens_per_pass"` // of decode steps and passes that verified
	Draft         float64 `json:"draft_ms"`        // of passes that drafted
	Verify        float64 `json:"verify_ms"`       // of passes that verified
}

// sameAs tells whether two runs had as many passes, drafts, and right drafts.
func (d *draftsJSON) sameAs(other *draftsJSON) bool {
	return other != nil && d.Passes == other.Passes && d.Drafted == other.Drafted && d.Accepted == other.Accepted
}

// newDrafts returns what a session measured of its drafts, nil if none were asked for or chosen.
func newDrafts(how gpt2.Speculation, s gpt2.Stats) *draftsJSON {
	d := s.Speculated
	if how.Off() || how.By == gpt2.DraftAuto && d.Passes == 0 {
		return nil
	}
	return &draftsJSON{How: how.String(), Passes: d.Passes, Drafted: d.Drafted, Accepted: d.Accepted,
		Dropped: d.Drafted - d.Accepted, TokensPerPass: float64(s.DecodeTokens) / float64(max(1, s.DecodeSteps)),
		Draft: cli.Ms(d.DraftTime), Verify: cli.Ms(d.VerifyTime)}
}

// loadJSON is a library or the kernels, loaded by the first passes that need them.
type loadJSON struct {
	What string  `json:"what"` // such as cuBLASLt, kernels
	Time float64 `json:"ms"`
}

func newLoading(loads []gpt2.Load) (out []loadJSON) {
	for _, l := range loads {
		out = append(out, loadJSON{l.What, cli.Ms(l.Time)})
	}
	return out
}

// measured fills in what a session measured.
func (r *result) measured(s *gpt2.Session) {
	of := s.Stats()
	slices.Sort(r.laps)
	r.Shifts, r.Loading = of.Shifts, newLoading(s.Loads())
	r.Timings = timings{
		Prefills: of.Prefills, PrefillTokens: of.PrefillTokens, Prefill: cli.Ms(of.PrefillTime),
		PrefillPerSecond: cli.PerSecond(float64(of.PrefillTokens), of.PrefillTime),
		DecodeTokens:     of.DecodeTokens, DecodePerSecond: cli.PerSecond(float64(of.DecodeTokens), of.DecodeTime),
		DecodePerToken: cli.Ms(of.DecodeTime) / float64(max(1, of.DecodeTokens)),
		DecodeMedian:   cli.Ms(stats.Median(r.laps)),
	}
	if of.DecodeTokens > 0 {
		r.Timings.Waited = auto.Waited()
	}
	if !r.first.IsZero() {
		r.Timings.FirstToken = cli.Ms(r.first.Sub(started))
	}
}

func (g *generateFlags) run(ctx context.Context, stdin io.Reader) error {
	if err := g.check(); err != nil {
		return err
	}
	if g.profile.on() {
		g.Record = g.profile.recorder
	}
	g.Soonest = !g.profile.on() && !g.profile.warmUp
	o, err := g.Open()
	if err != nil {
		return err
	}
	defer o.Leave()
	var ids []int32
	var prompts [][]int32
	switch {
	case g.prompts != "":
		if prompts, err = g.readPrompts(ctx, o, stdin); err == nil {
			ids = slices.MaxFunc(prompts, func(a, b []int32) int { return cmp.Compare(len(a), len(b)) })
		}
	case g.interactive && o.Model.Tokenizer == nil:
		err = fmt.Errorf("--interactive: %w", cli.NeedText(o.Model, ", or token ids (--ids) without --interactive"))
	case !g.interactive || g.in.Given() > 0:
		ids, err = g.in.Tokens(ctx, g.ModelFlags, o.Model, stdin)
	}
	if err == nil {
		err = o.Fits(len(ids))
	}
	if err == nil && len(g.stop) > 0 && o.Model.Tokenizer == nil {
		err = fmt.Errorf("--stop: %w", cli.NeedText(o.Model, ", or leave out --stop"))
	}
	if err == nil && g.defaults {
		err = g.takeDefaults(o.Model)
	}
	if err == nil && g.profile.trace != "" {
		err = cli.CheckWritable("--trace", g.profile.trace, append(g.in.Files(), o.Model.Source)...)
	}
	if err != nil {
		return err
	}
	if err := o.Place(g.expected(o, len(ids))); err != nil {
		return err
	}
	if !g.flags.Changed("speculate") && (g.profile.on() || o.Choice != nil) {
		g.speculate = gpt2.Speculation{} // passes that are looked at, or from which later choices follow, are the plain ones
	}
	if o.Options.Prompt = len(ids); prompts != nil {
		return g.runPrompts(ctx, o, prompts)
	}
	s, err := o.Load(ctx, 1)
	if err != nil {
		return err
	}
	if g.interactive {
		o.Remember(nil, gpt2.Stats{})
		return g.interact(ctx, s, o, ids, stdin)
	}
	var recording *profiling
	if g.profile.on() {
		if recording, err = g.profile.start(o, s); err != nil {
			return err
		}
		recording.counters = measure.StartCounters(o.Backend.Describe())
		defer recording.counters.Stop()
	}
	var warmUp []gpt2.Load
	if recording != nil || g.profile.warmUp {
		if warmUp, err = recording.warmUp(ctx, s, ids, g.generation()); err != nil {
			return err
		}
	}
	if recording != nil {
		recording.counters.Begin()
	}
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, syscall.SIGCONT)
	r, out, runErr := g.goOn(ctx, s, o, ids)
	signal.Stop(continued)
	r.WarmUpLoading = newLoading(warmUp)
	interrupted := r.Finish == interruptedText
	whole := runErr == nil || interrupted // else the text was lost
	if g.json {
		r.Text = out.text()
	} else {
		out.endLine(g.Stderr)
		if whole {
			g.summary(r)
		}
	}
	if whole && recording != nil {
		err = recording.finish(ctx, g, o, &r)
	}
	if whole && g.json {
		err = cmp.Or(cli.WriteJSON(g.stdout, r), err)
	}
	if err != nil && !(interrupted && errors.As(err, new(cli.Interruption))) {
		return err
	}
	// The times of a process that was stopped are not those of its passes.
	if made := r.made; made > 0 && len(continued) == 0 && whole {
		done, took := *o.Run, s.Stats()
		done.New = made
		if r.Drafts != nil {
			took.DecodeTime = 0 // it is not of the steps that --device auto plans
		}
		o.Remember(&done, took)
	}
	if interrupted {
		return reportedError{runErr}
	}
	return runErr
}

// interruptedText is the Finish of a text that a signal ended.
const interruptedText = "interrupted"

// goOn writes the text that follows a prompt, and returns what was measured. The error of a text that a signal ended is
// a [cli.Interruption].
func (g *generateFlags) goOn(ctx context.Context, s *gpt2.Session, o *cli.Opened, ids []int32) (
	r result, out *output, err error) {
	r = result{Prompt: ids, IDs: []int32{}, Seed: g.sampling.Seed, Auto: o.Choice,
		Sampling: sampling{g.sampling, g.stop, g.ignoreEOS}}
	out = newOutput(o.Model, g)
	if g.echo {
		err = out.echo(ids)
	}
	if err == nil {
		err = g.generate(ctx, s, &r, out)
	}
	// After a hangup the terminal takes no text either: the signal counts.
	if stop := context.Cause(ctx); err != nil && errors.As(stop, new(cli.Interruption)) {
		err = stop
	}
	r.Setting = o.Setting() // mode persistent knows now what it could not run
	r.measured(s)
	r.Drafts = newDrafts(g.speculate, s.Stats())
	switch {
	case errors.As(err, new(cli.Interruption)):
		r.Finish = interruptedText
	case out.stopped():
		r.Finish = "stop"
	case r.made < g.most():
		r.Finish = "end_of_text"
	default:
		r.Finish = "length"
	}
	return r, out, err
}

// takeDefaults takes from the model's generation_config.json what no flag says.
func (g *generateFlags) takeDefaults(m *gpt2.Model) error {
	d, err := m.Defaults()
	if err != nil {
		return fmt.Errorf("--generation-config: %w; leave it out, and give the flags of sampling", err)
	}
	d.Tokens = cmp.Or(d.Tokens, g.tokens)
	for name, take := range map[string]func(){
		"tokens": func() { g.tokens = d.Tokens }, "temp": func() { g.sampling.Temperature = d.Temperature },
		"top-k": func() { g.sampling.TopK = d.TopK }, "top-p": func() { g.sampling.TopP = d.TopP },
		"min-p": func() { g.sampling.MinP = d.MinP },
		"repeat-penalty": func() {
			if g.sampling.RepeatPenalty = d.RepeatPenalty; !g.flags.Changed("repeat-last-n") {
				g.sampling.RepeatLast = -1 // all of the text
			}
		},
	} {
		if !g.flags.Changed(name) {
			take()
		}
	}
	return nil
}

// What a conversation with -i is expected to be: nothing tells before it.
const (
	expectedTurns = 4
	expectedTyped = 32 // tokens of each turn
)

// expected returns the run that a prompt of so many tokens is expected to be.
func (g *generateFlags) expected(o *cli.Opened, prompt int) auto.Run {
	run := auto.Run{Prompt: prompt, New: auto.Tokens(g.most(), prompt, o.Options.Context),
		OnHost: !g.generation().Sampling.Basic()}
	if g.interactive {
		run.Prompt, run.New = max(prompt, expectedTyped), expectedTurns*run.New
	}
	return run
}

func (g *generateFlags) generate(ctx context.Context, s *gpt2.Session, r *result, out *output) error {
	stopSpinning := g.Spin(fmt.Sprintf("evaluating %s of the prompt", cli.Count(len(r.Prompt), "token")))
	defer stopSpinning()
	if g.tokens == 0 {
		_, err := s.Logits(ctx, r.Prompt, gpt2.LogitsLast)
		return cmp.Or(err, out.finish())
	}
	var bar *cli.Progress
	if g.json { // else the text shows how far it is
		bar = g.Progress("generating tokens", false)
		defer bar.Done()
	}
	keep := g.json || g.profile.on() // a long run of text alone keeps nothing of each token
	var last time.Time
	for token, err := range s.Generate(ctx, r.Prompt, g.generation()) {
		if err != nil {
			stopSpinning()
			_ = out.finish() // the first error counts
			return err
		}
		now := time.Now()
		if r.made == 0 {
			r.first = now
			stopSpinning()
		} else if keep {
			r.laps = append(r.laps, now.Sub(last))
		}
		last = now
		if r.made++; keep {
			r.IDs = append(r.IDs, token.ID)
		}
		if g.sampling.LogProbs {
			r.LogProbs = append(r.LogProbs, cli.Number(token.LogProb))
		}
		if g.sampling.TopLogProbs > 0 {
			r.Top = append(r.Top, likeliest(s.Model(), token.Top))
		}
		if bar != nil {
			bar.Set(int64(r.made), int64(g.tokens))
		}
		if err := out.push(token.ID); err != nil {
			return err
		}
		if out.stopped() {
			break
		}
	}
	return out.finish()
}

// most returns how many tokens to make at most.
func (g *generateFlags) most() int {
	if g.tokens == -1 {
		return math.MaxInt
	}
	return g.tokens
}

func (g *generateFlags) generation() gpt2.Generation {
	sampling := g.sampling
	switch sampling.RepeatLast {
	case 0:
		sampling.RepeatPenalty = 1
	case -1:
		sampling.RepeatLast = 0
	}
	return gpt2.Generation{Tokens: max(1, g.most()), Sampling: sampling, IgnoreEOS: g.ignoreEOS, Stop: g.stop,
		Speculate: g.speculate}
}

// likeliest returns tokens with their texts.
func likeliest(m *gpt2.Model, tokens []gpt2.Likelihood) []top {
	all := make([]top, len(tokens))
	for i, t := range tokens {
		all[i] = top{ID: t.ID, LogProb: cli.Number(t.LogProb)}
		if m.Tokenizer != nil {
			text := string(m.Tokenizer.AppendPiece(nil, t.ID))
			all[i].Text = &text
		}
	}
	return all
}

// summary writes, after the text, what was measured.
func (g *generateFlags) summary(r result) {
	if g.Quiet {
		return
	}
	if r.Shifts > 0 {
		fmt.Fprintf(g.Stderr, "infer: the context of %s was full (%s); the text went on from the last half of it\n",
			cli.Count(r.Setting.Context, "token"), cli.Count(r.Shifts, "time"))
	}
	t := r.Timings
	line := fmt.Sprintf("%s, seed %d | prefill %s, %s, %.0f tokens/s | decode %s", r.Setting, r.Seed,
		cli.Count(t.PrefillTokens, "token"), humanize.Milliseconds(t.Prefill), t.PrefillPerSecond,
		cli.Count(t.DecodeTokens, "token"))
	if t.DecodeTokens > 0 {
		line += fmt.Sprintf(", %.3f ms/token, %.0f tokens/s", t.DecodePerToken, t.DecodePerSecond)
	}
	if d := r.Drafts; d != nil && g.flags.Changed("speculate") {
		line += fmt.Sprintf(" | %d of %s accepted, %.2f tokens a pass", d.Accepted, cli.Count(d.Drafted, "draft"), d.TokensPerPass)
	}
	line += loadingWords(" | of that loading ", r.Loading) + loadingWords(" | in the warm-up loading ", r.WarmUpLoading)
	switch {
	case g.interactive: // it waited for a person
	case r.first.IsZero():
		line += " | no token yet"
	default:
		line += fmt.Sprintf(" | first token after %.0f ms", t.FirstToken)
	}
	if words := cli.WaitedWords(t.Waited); words != "" && float64(t.DecodeTokens)*t.DecodePerToken >= cli.BriefMs {
		line += " | " + words
	}
	if r.Finish == interruptedText {
		line += " | interrupted"
	}
	fmt.Fprintln(g.Stderr, line)
}

// loadingWords names what was loaded, after a title; "" for nothing.
func loadingWords(title string, loads []loadJSON) string {
	var parts []string
	for _, l := range loads {
		parts = append(parts, l.What+" "+humanize.Milliseconds(l.Time))
	}
	if len(parts) == 0 {
		return ""
	}
	return title + strings.Join(parts, ", ")
}

// output shows tokens: as text if the model has a tokenizer, else as ids.
type output struct {
	model *gpt2.Model
	w     io.Writer        // nil: only collect
	shown []byte           // all if w is nil, else what was written last
	tw    *gpt2.TextWriter // nil: there is no tokenizer
}

func newOutput(m *gpt2.Model, g *generateFlags) *output {
	o := &output{model: m, w: g.stdout}
	if g.json {
		o.w = nil
	}
	if m.Tokenizer != nil {
		o.tw = gpt2.NewTextWriter(m, g.generation())
	}
	return o
}

// text returns what was shown, nil if there is no tokenizer.
func (o *output) text() *string {
	if o.tw == nil {
		return nil
	}
	s := string(o.shown)
	return &s
}

func (o *output) stopped() bool { return o.tw != nil && o.tw.Stopped() }

func (o *output) push(id int32) error {
	switch {
	case o.tw != nil:
		return o.show(o.tw.Push(id))
	case len(o.shown) > 0:
		return o.show(fmt.Sprintf(",%d", id))
	default:
		return o.show(fmt.Sprint(id))
	}
}

// echo shows a prompt; an end of text has no text.
func (o *output) echo(ids []int32) (err error) {
	prompt := &output{model: o.model, w: o.w}
	if o.tw != nil {
		prompt.tw = gpt2.NewTextWriter(o.model, gpt2.Generation{})
	}
	for _, id := range ids {
		err = cmp.Or(err, prompt.push(id))
	}
	err = cmp.Or(err, prompt.finish())
	o.shown = prompt.shown
	return err
}

func (o *output) show(s string) error {
	if s == "" {
		return nil
	}
	if o.w == nil {
		o.shown = append(o.shown, s...)
		return nil
	}
	o.shown = append(o.shown[:0], s...)
	return cli.WriteOutput(o.w, []byte(s))
}

// finish shows what was held back.
func (o *output) finish() error {
	if o.tw == nil {
		return nil
	}
	return o.show(o.tw.Flush())
}

// endLine ends the last line of the text, since more output follows. A file keeps the text alone.
func (o *output) endLine(stderr io.Writer) {
	if n := len(o.shown); n == 0 || o.shown[n-1] == '\n' {
		return
	}
	text, _ := o.w.(*os.File)
	notes, _ := stderr.(*os.File)
	a, _ := text.Stat()
	b, _ := notes.Stat()
	switch {
	case cli.IsTerminal(o.w):
		fmt.Fprintln(o.w)
	case cli.IsTerminal(stderr) || os.SameFile(a, b): // as after 2>&1; what is no file is not the same
		fmt.Fprintln(stderr)
	}
}

//go:build cgo

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"gpt2scope/cmd/infer/cli"
	tracecmd "gpt2scope/cmd/infer/trace"
	"gpt2scope/cuda/exec"
	"gpt2scope/gpt2"
	"gpt2scope/measure"
	"gpt2scope/record"
	"gpt2scope/traces"
	"gpt2scope/traces/tables"
)

type profileFlags struct {
	by         tables.By // of the table to show, "" for none
	trace      string
	recorder   string
	noBaseline bool
	warmUp     bool
}

func (p *profileFlags) register(f *pflag.FlagSet) {
	f.Var(cli.OneOf(&p.by, "", tables.Bys...), "profile",
		"print where the time went after the text, by stages of the model; "+
			"--profile=`WHAT` has rows as 'infer trace show --by WHAT'")
	f.Lookup("profile").NoOptDefVal = string(tables.ByFolded)
	f.StringVar(&p.trace, "trace", "", "write what was recorded to `FILE` (.json or .json.gz): for 'infer trace', "+
		"https://ui.perfetto.dev and chrome://tracing")
	f.Var(cli.OneOf(&p.recorder, exec.RecorderAuto, exec.RecorderAuto, exec.RecorderStamps, exec.RecorderCUPTI),
		"recorder",
		"`RECORDER` on a GPU: stamps (kernels note their times; light), cupti (CUDA's activity records; detailed), "+
			"auto (cupti in mode eager, else stamps); with cupti, mode persistent is graph")
	f.BoolVar(&p.noBaseline, "no-baseline", false,
		"do not run the text again in a process that records nothing, which measures the recording overhead")
	f.BoolVar(&p.warmUp, "warm-up", false,
		"begin the text twice before, so that what happens only once is not in the times (always with --profile and --trace)")
}

// on tells whether anything is recorded.
func (p *profileFlags) on() bool { return p.by != "" || p.trace != "" }

// check finds values that no model could make right.
func (p *profileFlags) check(flags *pflag.FlagSet) error {
	switch {
	case flags.Changed("trace") && (p.trace == "" || p.trace == "-"):
		return cli.Usagef("--trace needs the name of a file to write; the text goes to standard output")
	case !p.on() && (flags.Changed("recorder") || p.noBaseline):
		return cli.Usagef("--recorder and --no-baseline are for recording; add --profile or --trace FILE")
	}
	return nil
}

// profiling is a recording under way.
type profiling struct {
	flags    *profileFlags
	recorder *record.Recorder
	session  *gpt2.Session
	counters *measure.Counters // of the run after the warm-up
}

func (p *profileFlags) start(o *cli.Opened, s *gpt2.Session) (*profiling, error) {
	d := o.Backend.Describe()
	if d.Recorder == "" {
		return nil, cli.Usagef("--device %s does not record its passes; --profile and --trace need the CPU or a GPU "+
			"(--device cpu, cuda)", d.Name)
	}
	if !d.GPU && p.recorder != exec.RecorderAuto {
		return nil, cli.Usagef("--recorder %s is for a GPU; the CPU's threads are recorded by the program itself", p.recorder)
	}
	if !d.GPU && p.by != "" {
		if err := tables.OfCPU(p.by); err != nil {
			return nil, cli.Usagef("--profile=%s: %w", p.by, err)
		}
	}
	run := &profiling{flags: p, recorder: record.New("gpt2scope", cli.Version()), session: s}
	if err := s.Record(run.recorder); err != nil {
		return nil, err
	}
	return run, nil
}

// warmUpRuns is how often a text is begun before it is recorded: the first pass of a kind loads its kernels, and a GPU
// records a graph at the second.
const warmUpRuns, warmUpTokens = 2, 4

// warmUp begins the text, drops it and returns what it loaded. The recording, if there is one, has a range around it.
func (r *profiling) warmUp(ctx context.Context, s *gpt2.Session, ids []int32, g gpt2.Generation) (
	loads []gpt2.Load, err error) {
	if r != nil {
		defer r.recorder.WarmUp()()
	}
	g.Tokens, g.IgnoreEOS = min(g.Tokens, warmUpTokens), true
	for range warmUpRuns {
		for _, err := range s.Generate(ctx, ids, g) {
			if err != nil {
				return nil, err
			}
		}
		loads = append(loads, s.Loads()...)
		if err := s.Reset(); err != nil {
			return nil, err
		}
	}
	if device, ok := s.Runner().(gpt2.OnDevice); ok {
		return loads, device.Synchronize()
	}
	return loads, nil
}

// finish ends the recording, and writes and shows it.
//
// After Ctrl-C what was recorded until then is kept, without the baseline; it returns the interruption, also if that
// came during the baseline.
func (r *profiling) finish(ctx context.Context, g *generateFlags, o *cli.Opened, res *result) error {
	r.counters.Finish(r.recorder, res.Timings.PrefillTokens+res.Timings.DecodeTokens)
	if err := r.session.StopRecording(); err != nil {
		return err
	}
	var failed error // the baseline; the recording is written and shown without it
	if !r.flags.noBaseline && ctx.Err() == nil {
		if err := r.baseline(ctx, g, res); err != nil && ctx.Err() == nil {
			failed = err
		}
	}
	describeDevice(r.recorder, o)
	if d := res.Drafts; d != nil {
		r.recorder.Header(func(h *traces.Header) { h.Drafts = traces.Drafts{Accepted: d.Accepted, Dropped: d.Dropped} })
	}
	t := r.recorder.Trace()
	if err := r.write(context.WithoutCancel(ctx), g, res, t); err != nil {
		return err
	}
	if failed != nil {
		return failed
	}
	return context.Cause(ctx)
}

func (r *profiling) write(ctx context.Context, g *generateFlags, res *result, t *traces.Trace) error {
	if r.flags.trace != "" {
		if err := cli.WriteTrace(ctx, t, r.flags.trace); err != nil {
			return err
		}
		if !g.Quiet {
			fmt.Fprintf(g.Stderr, "infer: %s has %s; 'infer trace show %s' reads it\n", r.flags.trace,
				cli.Count(int(t.Header.Events), "event"), cli.ShellQuote(r.flags.trace))
		}
	}
	if r.flags.by == "" {
		return nil
	}
	o := tracecmd.ShowOptions{By: r.flags.by, Columns: tracecmd.MainColumns, GPU: -1}
	if g.json {
		o.Format = "json"
	}
	table, show, err := tracecmd.LayTable(t, &o)
	if err != nil {
		return err
	}
	if g.json {
		res.Profile = table
	}
	fmt.Fprintln(g.Stderr)
	return tracecmd.WriteTable(g.Stderr, table, show)
}

// baseline makes the same text in a process that records nothing, and notes how much longer its passes took here.
func (r *profiling) baseline(ctx context.Context, g *generateFlags, res *result) error {
	const what = "making the text again without recording, to measure the recording overhead"
	if !g.Quiet {
		fmt.Fprintf(g.Stderr, "infer: %s (--no-baseline leaves that out)\n", what)
	}
	defer g.Spin(what)()
	var base result
	text, err := cli.RunSelf(ctx, g.baselineArgs(res))
	if err == nil {
		err = json.Unmarshal(text, &base)
	}
	if ctx.Err() != nil {
		return err
	}
	if err != nil {
		return fmt.Errorf("the baseline of the recording failed: %w; --no-baseline leaves it out", err)
	}
	if !slices.Equal(base.IDs, res.IDs[:min(len(base.IDs), len(res.IDs))]) {
		return errors.New("the baseline of the recording made other tokens than the recorded run")
	}
	r.recorder.Header(func(h *traces.Header) {
		add := func(phase string, baseline, recorded float64, passes int) {
			if baseline > 0 && recorded > 0 {
				h.Overhead = append(h.Overhead, traces.Overhead{Phase: phase, Baseline: 1e6 * baseline, Recorded: 1e6 * recorded,
					Passes: passes})
			}
		}
		// Both made the same prefills: of the prompt, and of what is kept after each shift.
		if n := res.Timings.Prefills; n > 0 && n == base.Timings.Prefills {
			add("prefill", base.Timings.Prefill/float64(n), res.Timings.Prefill/float64(n), n)
		}
		if n := base.Timings.DecodeTokens; n >= fewPasses {
			switch {
			case res.Drafts != nil && !res.Drafts.sameAs(base.Drafts): // auto chooses by times, which recording changes
			case res.Drafts != nil:
				add(traces.OverheadToken, base.Timings.DecodePerToken, res.Timings.DecodePerToken, n)
			case res.Setting.GPU != "": // tokens come in bursts there, as steps run ahead
				add("decode step", base.Timings.DecodePerToken, res.Timings.DecodePerToken, n)
			default:
				add("decode step", base.Timings.DecodeMedian, res.Timings.DecodeMedian, n)
			}
		}
	})
	return nil
}

// fewPasses is how many decode steps make a median. A GPU runs ahead of the tokens that are read, so that the times of
// fewer tokens are not those of its steps.
const fewPasses = 24

// baselineArgs are the arguments of the same run without a recorder: the flags that were given, the prompt as ids.
func (g *generateFlags) baselineArgs(res *result) []string {
	but := []string{"mode", "json", "quiet", "prompt", "file", "ids", "seed", "logprobs", "echo", "speculate"}
	recording := pflag.NewFlagSet("", pflag.ContinueOnError)
	new(profileFlags).register(recording)
	recording.VisitAll(func(f *pflag.Flag) { but = append(but, f.Name) })
	args := cli.GivenFlags(g.flags, but...)
	ids := make([]string, len(res.Prompt))
	for i, id := range res.Prompt {
		ids[i] = strconv.Itoa(int(id))
	}
	if res.Setting.Mode != "" { // that in which the recorded passes ran
		args = append(args, "--mode="+res.Setting.Mode)
	}
	return append(args, "--warm-up", "--json", "--quiet", "--speculate="+g.speculate.String(),
		"--seed="+strconv.FormatUint(g.sampling.Seed, 10),
		"--ids="+strings.Join(ids, ","))
}

// describeDevice fills in what the header says of ceilings and versions.
func describeDevice(r *record.Recorder, o *cli.Opened) {
	set, found, err := cli.StoredCeilings(o.Backend)
	device := -1
	r.Header(func(h *traces.Header) {
		if h.Versions == nil {
			h.Versions = map[string]string{}
		}
		h.Versions["gpt2scope"] = cli.Version()
		h.Versions["model"] = fmt.Sprintf("%s, layers %d of %d", o.Model.Name, len(o.Options.Layers), o.Model.Config.Layers)
		d := o.Backend.Describe()
		maps.Copy(h.Versions, d.Versions)
		if d.GPU {
			device, h.Versions["mode"] = d.Index, d.Mode
		} else {
			h.Versions["threads"] = fmt.Sprint(d.Threads)
		}
	})
	if found && err == nil {
		r.Ceilings(device, set)
	}
}

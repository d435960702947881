// Package bench is 'infer bench': it measures passes, kernels, energy and this machine's ceilings.
package bench

import (
	"bytes"
	"cmp"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"gpt2scope/auto"
	"gpt2scope/ceilings"
	"gpt2scope/cmd/infer/cli"
	"gpt2scope/cmd/infer/trace"
	"gpt2scope/cuda/exec"
	"gpt2scope/gpt2"
	"gpt2scope/internal/humanize"
	"gpt2scope/measure"
	"gpt2scope/record"
	"gpt2scope/traces"
	"gpt2scope/traces/tables"
)

type benchFlags struct {
	phase, logits                  string
	promptLen, past, batch, repeat int
	batches                        cli.IntList
	json, noFloor                  bool
	record                         string
	lists                          listFlags
}

func New(m *cli.ModelFlags) *cobra.Command {
	var b benchFlags
	c := &cobra.Command{
		Use:   "bench",
		Short: "Measure the time of a prefill or a decode step",
		Long: `bench measures the time of a pass on random tokens, after a warm-up: the median over repetitions and the
range of the middle 80%. A decode step is measured always with the same number of tokens in the cache. The
rates count the FLOPs and the least bytes of the plan, which 'infer info' shows.

The time is compared with its floor: the sum, over the steps of the plan, of the least time that each needs
by what the device can do at most ('infer bench ceilings'). On the CPU the passes then run again while they
are recorded, and a table as that of --profile compares each stage with its own floor.

With -p, -n, -d or -o, or with several values of --threads, --dtype, --layers, --device, --mode or --batch,
bench runs the tests of llama.cpp's llama-bench for every combination, a row for each: pp512 is the prefill
of 512 tokens, tg128 the generation of 128 tokens, "@ d64" that with 64 tokens in the cache before.`,
		Example: `  infer bench --layers all                                 a decode step
  infer bench -m random:gpt2 --phase prefill --prompt-len 1024
  infer bench -m random:gpt2 -p 256,512 -n 32 -t 1,2 --dtype f32,bf16,q8`,
		Annotations: map[string]string{cli.ListsKey: "device mode dtype layers threads"},
		RunE: func(c *cobra.Command, _ []string) error {
			if b.lists.wanted(c.Flags()) {
				return b.runLists(c, m)
			}
			return b.run(c, m)
		},
	}
	cli.AddFlags(c.Flags(), "Measurement", func(f *pflag.FlagSet) {
		b.register(f)
		f.Lookup("batch").Usage = "the pass has `N` sequences; a list for -p and -n"
		f.VarP(cli.Int(&b.repeat, 20, cli.Repeats), "repeat", "r", "measure `N` passes; 5 of each test of -p and -n")
		f.Var(cli.OneOf(&b.record, "", traces.RecorderHost, exec.RecorderStamps, exec.RecorderCUPTI), "recorder",
			"record the passes by `RECORDER` and drop the recording: host on the CPU, stamps or cupti on a GPU")
		f.BoolVar(&b.noFloor, "no-floor", false, "do not measure the device for floors")
	})
	cli.AddFlags(c.Flags(), "Lists, as llama-bench has them", b.lists.register)
	cli.AddFlags(c.Flags(), "Output", func(f *pflag.FlagSet) {
		f.BoolVar(&b.json, "json", false, "print one JSON object, of lists an array of one for each result")
	})
	c.AddCommand(newBenchKernel(m), newBenchCeilings(m), NewBenchEnergy(m, measure.OpenMeter))
	return c
}

func (b *benchFlags) register(f *pflag.FlagSet) {
	f.Var(cli.OneOf(&b.phase, "decode", "decode", "prefill"), "phase", "`PHASE` to measure: prefill or decode")
	f.Var(cli.Int(&b.promptLen, 0, cli.AtLeast(1)), "prompt-len",
		"the prefill has `N` tokens (default: 256, or a shorter context)")
	f.Var(cli.OneOf(&b.logits, "last", "all", "last"), "logits", "`ROWS` of logits that the prefill computes: all or last")
	f.Var(cli.Int(&b.past, 0, cli.AtLeast(0)), "past",
		"the cache holds `N` tokens before the pass (default: before a decode step 128, or half a shorter context; before "+
			"a prefill none)")
	f.Var(cli.Ints(&b.batches, cli.IntList{1}, cli.Batches), "batch", "the pass has `N` sequences")
}

func (b *benchFlags) run(c *cobra.Command, m *cli.ModelFlags) (err error) {
	ctx := c.Context()
	if b.batch, err = b.batches.One("batch"); err != nil {
		return err
	}
	if m.Record = b.record; b.record == traces.RecorderHost {
		m.Record = ""
	}
	o, err := m.Open()
	if err != nil {
		return err
	}
	defer o.Leave()
	phase, past, err := b.pass(c.Flags(), o.Options.Context)
	if err != nil {
		return err
	}
	var set *ceilings.Set
	if !b.noFloor { // before the model takes memory
		if set, err = measureDevice(ctx, o.Backend, m); err != nil {
			return err
		}
	}
	s, err := o.Load(ctx, b.batch)
	if err != nil {
		return err
	}
	isGPU := o.Backend.Describe().GPU
	if b.record != "" {
		if d := o.Backend.Describe(); b.record != d.Recorder {
			return cli.Usagef("--recorder %s: it cannot be used here, and %s would be in its place", b.record, d.Recorder)
		}
		if err := s.Record(record.New("gpt2scope", "")); err != nil {
			return fmt.Errorf("--recorder %s: %w", b.record, err)
		}
	}
	stop := m.Spin("measuring")
	result, err := measure.Pass(ctx, s, phase, past, b.repeat)
	stop()
	if err != nil {
		return err
	}
	plan := s.Runner().Plan(phase)
	sizes := o.Backend.Sizes(o.Model)
	var stages bytes.Buffer
	cost, work := plan.Cost(past), plan.Work(past, sizes)
	out := BenchJSON{
		Phase: b.phase, Batch: b.batch, Tokens: phase.Tokens, Past: past, Logits: b.logits, Repeat: b.repeat,
		Median: cli.Ms(result.Median), P10: cli.Ms(result.P10), P90: cli.Ms(result.P90),
		GFLOPs: cli.PerSecond(float64(cost.FLOPs), result.Median) / 1e9,
		GBs:    cli.PerSecond(float64(cost.Bytes(sizes)), result.Median) / 1e9,
		Waited: auto.Waited(), Configuration: o.Setting(), Device: set,
	}
	if set != nil {
		floor := set.PassFloor(work)
		out.Floor, out.Share = cli.Ms(floor), float64(floor)/float64(max(result.Median, 1))
		if percent, ok := ceilings.Roofline(float64(floor), float64(result.Median)); ok {
			out.Roofline = &percent
		}
		if !isGPU && b.record == "" {
			stop := m.Spin("measuring stages")
			r := record.New("gpt2scope", cli.Version())
			r.Ceilings(-1, *set)
			recorded, err := measure.Stages(ctx, s, phase, past, b.repeat, r)
			stop()
			if err != nil {
				return err
			}
			r.Header(func(h *traces.Header) {
				h.Overhead = []traces.Overhead{{Phase: plan.PassName(past), Baseline: float64(result.Median),
					Recorded: float64(recorded.Median), Passes: b.repeat}}
			})
			o := trace.ShowOptions{By: tables.ByFolded, Columns: trace.MainColumns, GPU: -1}
			table, show, err := trace.LayTable(r.Trace(), &o)
			if err != nil {
				return err
			}
			out.Profile = table
			if err := trace.WriteTable(&stages, table, show); err != nil {
				return err
			}
		}
	}
	return cli.Print(c, b.json, out, func(w io.Writer) {
		fmt.Fprintf(w, "%s, %s\nmedian %.4f ms (80%% within %.4f to %.4f ms, %s)",
			o.Model.Name, describe(phase, past), out.Median, out.P10, out.P90, humanize.Count(len(result.All), "pass", "passes"))
		fmt.Fprintf(w, " | %.0f tokens/s | %.1f GFLOP/s, %.2f GB/s of the least bytes | %s\n",
			cli.PerSecond(float64(b.batch*phase.Tokens), result.Median), out.GFLOPs, out.GBs, o.Setting())
		if words := cli.WaitedWords(out.Waited); words != "" {
			fmt.Fprintln(w, words)
		}
		if set != nil {
			data := ceilings.Traffic(work)
			fmt.Fprintf(w, "floor %.4f ms; %s\n%s\n", out.Floor, RooflineSays(out.Floor, out.Median), device(set))
			fmt.Fprintf(w, "the pass is over data of %s, read at %.1f GB/s\n", humanize.Size(data),
				set.Bandwidth(data)/1e9)
		}
		if out.Profile != nil {
			fmt.Fprintf(w, "\nthe same passes while they are recorded:\n%s", &stages)
		}
	})
}

// pass returns the pass that the flags choose, and the number of tokens that the cache holds before it.
func (b *benchFlags) pass(flags *pflag.FlagSet, capacity int) (gpt2.Pass, int, error) {
	phase, past := gpt2.Pass{Batch: b.batch, Tokens: 1, Logits: gpt2.LogitsLast, Sample: true}, b.past
	switch {
	case b.phase == "decode" && !flags.Changed("past"):
		past = min(128, capacity/2)
	case b.phase == "prefill":
		if !flags.Changed("phase") { // one of the two that are measured
			past = 0
		}
		phase.Tokens, phase.Sample = cmp.Or(b.promptLen, min(256, max(1, capacity-past))), false
		if b.logits == "all" {
			phase.Logits = gpt2.LogitsAll
		}
	}
	switch {
	case past >= capacity:
		return phase, past, cli.PastTooLong(past, capacity)
	case phase.Tokens > capacity && past == 0:
		return phase, past, cli.Usagef("--prompt-len %d: the context holds %s; give at most that", phase.Tokens,
			cli.Count(capacity, "token"))
	case phase.Tokens > capacity-past:
		return phase, past, cli.Usagef("--prompt-len %d after --past %d: the context holds %s; give at most %d",
			phase.Tokens, past, cli.Count(capacity, "token"), capacity-past)
	}
	return phase, past, nil
}

type BenchJSON struct {
	Phase         string        `json:"phase"`                      // prefill or decode
	Batch         int           `json:"batch"`                      // sequences
	Tokens        int           `json:"tokens"`                     // new tokens of each
	Past          int           `json:"past"`                       // tokens in the cache
	Logits        string        `json:"logits"`                     // rows of logits: all or last
	Repeat        int           `json:"repeat"`                     // passes measured
	Median        float64       `json:"median_ms"`                  // of a pass
	P10           float64       `json:"p10_ms"`                     // of a pass
	P90           float64       `json:"p90_ms"`                     // of a pass
	GFLOPs        float64       `json:"gflop_per_s"`                // of the least FLOPs of the plan
	GBs           float64       `json:"gb_per_s"`                   // of the least bytes of the plan
	Floor         float64       `json:"floor_ms,omitempty"`         // by the ceilings of the device; as the next two
	Share         float64       `json:"share_of_floor,omitempty"`   // floor / median
	Roofline      *float64      `json:"roofline_percent,omitempty"` // the same in percent; absent if the pass is faster than its floor
	Waited        float64       `json:"waited_share"`               // share of the time that threads wanted to run in which they waited for a core
	Configuration cli.Setting   `json:"configuration"`
	Device        *ceilings.Set `json:"device,omitempty"`  // what it can do
	Profile       *tables.Table `json:"profile,omitempty"` // on a CPU: the table of --profile
}

package trace

import (
	"bytes"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"gpt2scope/cmd/infer/cli"
	"gpt2scope/traces/advise"
)

// WorthPercent is the share of the wall time that a finding must be able to gain to
// be shown without --all.
const WorthPercent = 1

// adviseFlags are the flags of "infer trace advise".
type adviseFlags struct {
	format string
	all    bool
	gpu    int
}

// newTraceAdvise makes "infer trace advise".
func newTraceAdvise() *cobra.Command {
	var s adviseFlags
	c := &cobra.Command{
		Use:   "advise FILE...",
		Short: "Look for bottlenecks by rules, each with its evidence and the most it could gain",
		Long: `advise reads a recording and looks for bottlenecks by rules. Each finding has its
rule, a sentence with the numbers, the rows where it occurs, what to try, and the most
of the wall time that removing it could gain: a bound, not a forecast. Gains overlap and
do not add up.

On a GPU:
  copies          copies take longer than kernels
  pageable        copies of memory that is not page-locked
  host-late       the GPU is idle because the host has not launched the next work
  launch-latency  the GPU is idle between a launch and the start of its work
  sync            the GPU repeatedly runs dry while the host waits for it
  dependency      the GPU is idle between kernels that are queued
  sm-waits        SMs wait for each other inside a kernel, as in mode persistent
  small-grid      kernels have fewer blocks than the GPU has SMs; bound: their time
                  times the share of SMs that are empty
  occupancy       theoretical occupancy is below 50 %; bound: the time of the kernels
                  times the share of warps that are missing; not where the memory
                  works at 70 % of its peak and more
  floor           stages take more than twice their floor; bound: the time above it
  unaligned       products read fewer than 16 bytes at once: a dimension, such as that of
                  a vocabulary, is not padded; bound: their time
  float32         products do not use tensor cores; bound: their time
  elementwise     elementwise kernels follow each other where one would do
  small-copies    there are many copies of few bytes
  framework       the host is late in operators of a framework, or between them
  divergence      few threads of a warp are active, by --counters
  warm-up         first passes and module loading are counted in
On the CPU:
  imbalance       threads of a step wait for the slowest
  few-threads     only some threads run a step
  barriers        threads synchronise between steps
  between-passes  no step runs
  floor, warm-up  as above

Notes at the end say which rules lacked data. Findings that could gain less than 1 % are
shown only with --all.`,
		Example: `  infer trace advise run.json.gz
  infer trace advise run.sqlite --all --json`,
		Args: someFiles,
		RunE: func(c *cobra.Command, args []string) error {
			return s.run(c, args)
		},
	}
	cli.AddFlags(c.Flags(), "Findings", func(f *pflag.FlagSet) {
		cli.AddFormat(f, &s.format, "table or json")
		f.BoolVar(&s.all, "all", false, "also show findings that could gain less than 1 %")
		addGPU(f, &s.gpu)
	})
	return c
}

// AdviseJSON is what "infer trace advise --format json" prints.
type AdviseJSON struct {
	Source string `json:"source"`
	*advise.Advice
}

func (s *adviseFlags) run(c *cobra.Command, paths []string) error {
	if s.format != "table" && s.format != "json" {
		return cli.Usagef("--format %s: it must be table or json", cli.ShellQuote(s.format))
	}
	if err := checkGPU(s.gpu); err != nil {
		return err
	}
	t, err := loadTraces(c, paths)
	if err != nil {
		return err
	}
	advice, err := advise.Find(t, int32(s.gpu))
	if err != nil {
		return fmt.Errorf("%s: %w", traceName(paths[0]), err)
	}
	all := len(advice.Hints)
	if !s.all {
		advice.Hints = advice.Above(WorthPercent)
	}
	if s.format == "json" {
		advice.Hints = append([]advise.Hint{}, advice.Hints...) // [], not null
		advice.Notes = append([]string{}, advice.Notes...)
		return cli.WriteJSON(c.OutOrStdout(), AdviseJSON{t.Header.Describe(), advice})
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s\nwall time %s ms; gains are upper bounds and overlap\n", t.Header.Describe(), Milliseconds(advice.Wall))
	for i, h := range advice.Hints {
		share := "share withheld"
		if h.Percent != nil {
			share = fmt.Sprintf("%.1f %% of wall", *h.Percent)
		}
		fmt.Fprintf(&b, "\n%d. %s: at most %s ms, %s\n   %s\n", i+1, h.Rule, Milliseconds(h.Gain), share, h.Text)
		for _, r := range h.Rows {
			fmt.Fprintf(&b, "     %s\n", r)
		}
		fmt.Fprintf(&b, "   Try: %s.\n", h.Try)
	}
	switch {
	case all == 0:
		fmt.Fprintln(&b, "\nNo rule found a bottleneck.")
	case len(advice.Hints) == 0:
		fmt.Fprintf(&b, "\nNo finding could gain %d %% of the wall time; --all shows %s.\n", WorthPercent, cli.Count(all, "smaller one"))
	case len(advice.Hints) < all:
		fmt.Fprintf(&b, "\n%s could gain less than %d %%; --all shows them.\n", cli.Count(all-len(advice.Hints), "finding"), WorthPercent)
	}
	if len(advice.Notes) > 0 {
		b.WriteByte('\n')
	}
	for _, note := range advice.Notes {
		fmt.Fprintf(&b, "! %s\n", note)
	}
	return cli.WriteOutput(c.OutOrStdout(), b.Bytes())
}

package trace

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"gpt2scope/cmd/infer/cli"
	"gpt2scope/traces/judge"
)

// WorthPercent is the share of the wall time that a finding must be able to gain to be shown without --all.
const WorthPercent = 1

// newTraceAdvise makes "infer trace advise".
func newTraceAdvise() *cobra.Command {
	var format string
	var isAll bool
	gpu := -1
	c := &cobra.Command{
		Use:   "advise FILE...",
		Short: "Look for bottlenecks by rules, each with its evidence and the most it could gain",
		Long: `advise reads a recording and looks for bottlenecks by rules. Each finding has the most of
the wall time that removing it could gain: a bound, not a forecast. Gains overlap.

On a GPU:
` + ruleHelp(judge.GPU) + `On the CPU:
` + ruleHelp(judge.CPU) + `
The bound of work of a stage is at most what the stage takes above its floor. Notes at
the end say which rules lacked data. Findings that could gain less than 1 % are shown
only with --all.`,
		Example: `  infer trace advise run.json.gz`,
		Args:    someFiles,
		RunE: func(c *cobra.Command, args []string) error {
			return traceAdvise(c, args, format == "json", isAll, int32(gpu))
		},
	}
	cli.AddFlags(c.Flags(), "Findings", func(f *pflag.FlagSet) {
		cli.AddFormat(f, &format, "table or json")
		f.BoolVar(&isAll, "all", false, "also show findings that could gain less than 1 %")
		addGPU(f, &gpu)
	})
	return c
}

// ruleHelp lists the rules of a processor: what each finds, and the bound of its gain.
func ruleHelp(of judge.Processor) string {
	var b strings.Builder
	for _, r := range judge.Rules {
		if r.Of&of != 0 {
			fmt.Fprintf(&b, "  %-15s %s;\n%18sbound: %s\n", r.ID, r.Says, "", r.Bound)
		}
	}
	return b.String()
}

func traceAdvise(c *cobra.Command, paths []string, asJSON, isAll bool, gpu int32) error {
	t, err := loadTraces(c, paths)
	if err != nil {
		return err
	}
	advice, err := judge.Advise(t, gpu)
	if err != nil {
		return fmt.Errorf("%s: %w", traceName(paths[0]), err)
	}
	all := len(advice.Hints)
	if !isAll {
		advice.Hints = advice.Above(WorthPercent)
	}
	return tell(c, asJSON, advice, func(w io.Writer) { printAdvice(w, advice, all) })
}

// printAdvice writes the hints for people; all is how many there are with those that are not shown.
func printAdvice(b io.Writer, advice *judge.Advice, all int) {
	fmt.Fprintf(b, "%s\nwall time %s ms; gains are upper bounds and overlap\n", advice.Source, Milliseconds(advice.Wall))
	for i, h := range advice.Hints {
		share := "share withheld"
		if h.Percent != nil {
			share = fmt.Sprintf("%.1f %% of wall", *h.Percent)
		}
		fmt.Fprintf(b, "\n%d. %s: at most %s ms, %s\n   %s\n", i+1, h.Rule, Milliseconds(h.Gain), share, h.Text)
		for _, r := range h.Rows {
			fmt.Fprintf(b, "     %s\n", r)
		}
		fmt.Fprintf(b, "   Try: %s.\n", h.Try)
	}
	switch {
	case all == 0:
		fmt.Fprintln(b, "\nNo rule found a bottleneck.")
	case len(advice.Hints) == 0:
		fmt.Fprintf(b, "\nNo finding could gain %d %% of the wall time; --all shows %s.\n", WorthPercent, cli.Count(all, "smaller one"))
	case len(advice.Hints) < all:
		fmt.Fprintf(b, "\n%s could gain less than %d %%; --all shows them.\n", cli.Count(all-len(advice.Hints), "finding"), WorthPercent)
	}
	if len(advice.Notes) > 0 {
		fmt.Fprintln(b)
	}
	for _, note := range advice.Notes {
		fmt.Fprintf(b, "! %s\n", note)
	}
}

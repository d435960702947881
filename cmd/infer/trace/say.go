package trace

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"gpt2scope/cmd/infer/cli"
	"gpt2scope/internal/humanize"
	"gpt2scope/internal/table"
	"gpt2scope/traces"
	"gpt2scope/traces/judge"
	"gpt2scope/traces/stages"
	"gpt2scope/traces/window"
)

func newTraceCheck() *cobra.Command {
	var asJSON bool
	var plan planned
	c := &cobra.Command{
		Use:   "check FILE",
		Short: "Say what a recording lacks, and whether its shares can be trusted",
		Long: `check reads a recording and says what it holds and what it lacks. A line that begins with '!' is a reason
why shares of time would mislead: then the exit status is 1.`,
		Example: `  infer trace check run.sqlite
  infer trace check run.sqlite --plan plan.json --tokens 8`,
		Args: oneFile,
		RunE: func(c *cobra.Command, args []string) error { return traceCheck(c, args, plan, asJSON) },
	}
	cli.AddFlags(c.Flags(), "Plan", plan.register)
	cli.AddJSON(c, &asJSON)
	return c
}

func traceCheck(c *cobra.Command, args []string, plan planned, asJSON bool) error {
	if plan.tokens > 0 && plan.path == "" {
		return cli.Usagef("--tokens is for a comparison with a plan; add --plan FILE")
	}
	t, err := loadTraces(c, args)
	if err != nil {
		return err
	}
	trust := judge.TrustOf(t)
	if plan.path != "" {
		differences, err := plan.differences(t)
		if err != nil {
			return err
		}
		for _, text := range differences {
			trust.Findings = append(trust.Findings, traces.Finding{Text: text, Misleads: true})
		}
		trust.Trusted = trust.Reasons() == 0
	}
	err = cli.Print(c, asJSON, trust, func(w io.Writer) { printCheck(w, t, trust) })
	if n := trust.Reasons(); err == nil && n > 0 {
		err = fmt.Errorf("%s: shares of time would mislead, for %s", traceName(args[0]), cli.Count(n, "reason"))
	}
	return err
}

// printCheck writes what a recording has and lacks for people.
func printCheck(w io.Writer, t *traces.Trace, check judge.Trust) {
	a := t.Attribution
	fmt.Fprintf(w, "source      %s\nclock       %s", check.Source, cmp.Or(t.Header.Clock.Domain, "unknown"))
	if u := t.Header.Clock.Uncertainty; u >= 0 && t.Header.Clock.Domain != "" && !t.HostOnly() {
		fmt.Fprintf(w, ", host and device agree to %d ns", u)
	}
	fmt.Fprintf(w, "\nevents      %s\n", humanize.Thousands(int64(len(t.Events))))
	fmt.Fprintf(w, "host        %s in %s, %s, %s\n", cli.Count(a.Steps, "step"),
		humanize.Count(a.Passes, "pass", "passes"), cli.Count(a.Ranges, "range"), cli.Count(a.Calls, "API call"))
	if !t.HostOnly() {
		fmt.Fprintf(w, "GPU         %s, %s of them in steps; %s; %s\n",
			cli.Count(a.Kernels, "kernel"), humanize.Thousands(int64(a.InSteps)),
			humanize.Count(a.Copies, "copy or set", "copies and sets"),
			humanize.Count(a.GraphLaunches, "graph launch", "graph launches"))
	}
	for _, f := range check.Findings {
		mark := " "
		if f.Misleads {
			mark = "!"
		}
		fmt.Fprintf(w, "%s %s\n", mark, f.Text)
	}
	if check.Trusted {
		fmt.Fprintln(w, "shares of time can be trusted")
	}
}

func newTraceAdvise() *cobra.Command {
	var format string
	var isAll bool
	var gpu int
	c := &cobra.Command{
		Use:   "advise FILE...",
		Short: "Look for bottlenecks by rules, each with its evidence and the most it could gain",
		Long: `advise reads a recording and looks for bottlenecks by rules. Each finding has the most of the wall time that
removing it could gain: a bound, not a forecast. Each nanosecond counts in one finding, that of the cause
which is known best.

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
		advice.Hints = advice.Above(judge.WorthPercent)
	}
	return cli.Print(c, asJSON, advice, func(w io.Writer) { printAdvice(w, advice, all) })
}

// printAdvice writes the hints for people; all is how many there are with those that are not shown.
func printAdvice(b io.Writer, advice *judge.Advice, all int) {
	fmt.Fprintf(b, "%s\nwall time %s ms; gains are upper bounds, and each nanosecond counts in one\n", advice.Source, humanize.InMilliseconds(advice.Wall))
	for i, h := range advice.Hints {
		share := "share withheld"
		if h.Percent != nil {
			share = fmt.Sprintf("%.1f %% of wall", *h.Percent)
		}
		fmt.Fprintf(b, "\n%d. %s: at most %s ms, %s\n   %s\n", i+1, h.Rule, humanize.InMilliseconds(h.Gain), share, h.Text)
		for _, r := range h.Rows {
			fmt.Fprintf(b, "     %s\n", r)
		}
		fmt.Fprintf(b, "   Try: %s.\n", h.Try)
	}
	switch {
	case all == 0:
		fmt.Fprintln(b, "\nNo rule found a bottleneck.")
	case len(advice.Hints) == 0:
		fmt.Fprintf(b, "\nNo finding could gain %d %% of the wall time; --all shows %s.\n",
			judge.WorthPercent, cli.Count(all, "smaller one"))
	case len(advice.Hints) < all:
		fmt.Fprintf(b, "\n--all shows %s that could gain less than %d %%.\n",
			cli.Count(all-len(advice.Hints), "finding"), judge.WorthPercent)
	}
	if len(advice.Notes) > 0 {
		fmt.Fprintln(b)
	}
	for _, note := range advice.Notes {
		fmt.Fprintf(b, "! %s\n", note)
	}
}

func newTraceKPI() *cobra.Command {
	var gpu int
	var asJSON, define bool
	c := &cobra.Command{
		Use:   "kpi FILE...",
		Short: "Measure a recording: transfers, overlap, utilisation, queueing, counters",
		Long: `kpi reads a recording of a GPU and prints one table of indicators: transfers, overlap, utilisation,
queueing, synchronisation, counters; --define says how each is defined. A checklist answers with the
numbers: are transfers longer than computing? Could a CPU be faster? Is the GPU poorly used? Does memory
bandwidth limit it? Is memory usage high? Do threads diverge?

The column 'passes' is of the passes after the warm-up; in a recording that names no
passes they are found by the repetition of kernels. 'before' is of what comes before them:
loading and warm-up. An indicator that the recording does not have says what would record
it. --counters adds the counters of Nsight Compute of the same program.`,
		Example: `  infer trace kpi run.sqlite
  infer trace kpi run.sqlite --counters run.ncu.csv --define`,
		Args: someFiles,
		RunE: func(c *cobra.Command, args []string) error {
			t, err := loadTraces(c, args)
			if err != nil {
				return err
			}
			report, err := judge.Measure(t, int32(gpu))
			if err != nil {
				return fmt.Errorf("%s: %w", traceName(args[0]), err)
			}
			return cli.Print(c, asJSON, report, func(w io.Writer) { printKPI(w, report, define) })
		},
	}
	cli.AddFlags(c.Flags(), "Indicators", func(f *pflag.FlagSet) {
		f.BoolVar(&define, "define", false, "say how each indicator is defined")
		f.BoolVar(&asJSON, "json", false, "print one JSON object")
		addGPU(f, &gpu)
	})
	return c
}

func printKPI(w io.Writer, r *judge.Report, define bool) {
	passes, heading := humanize.Count(r.Passes, "pass", "passes"), "indicator\tunit\tpasses"
	switch r.PassesFrom {
	case window.FromRepetition:
		passes += ", which are found by the repetition of kernel names"
	case window.FromNothing:
		passes, heading = "all work: no passes were found", "indicator\tunit\tall work"
	}
	fmt.Fprintf(w, "%s\nwall time %s ms, of %s", r.Source, humanize.InMilliseconds(r.Wall), passes)
	if r.Before > 0 {
		heading += "\tbefore"
		fmt.Fprintf(w, "; before it %s ms of loading", humanize.InMilliseconds(r.Before))
		if r.WarmUpPasses > 0 {
			fmt.Fprintf(w, " and warm-up (%s)", humanize.Count(r.WarmUpPasses, "pass", "passes"))
		}
	}
	fmt.Fprintln(w)
	for _, n := range r.Notes {
		fmt.Fprintf(w, "! %s\n", n)
	}
	fmt.Fprintln(w)
	lines := [][]string{strings.Split(heading, "\t")}
	var missing []string // what would record them
	names := map[string][]string{}
	for _, x := range r.Indicators {
		value, unit := "not in this recording", x.Shown()
		if x.Value != nil {
			value = judge.Number(*x.Value, x.Unit)
		} else {
			how := x.How()
			if names[how] == nil {
				missing = append(missing, how)
			}
			names[how] = append(names[how], x.Name)
		}
		before := ""
		if x.Before != nil {
			before = judge.Number(*x.Before, x.Unit)
		}
		lines = append(lines, []string{x.Name, unit, value, before}[:len(lines[0])])
	}
	table.Align(w, func(i int) bool { return i < 2 }, lines)
	for _, x := range r.Indicators {
		if len(x.Where) > 0 {
			fmt.Fprintf(w, "\n%s: %s\n", x.Name, strings.Join(x.Where, "; "))
		}
	}
	if len(missing) > 0 {
		fmt.Fprint(w, "\nnot in this recording:\n")
	}
	for _, how := range missing {
		fmt.Fprintf(w, "  %s\n    %s\n", strings.Join(names[how], ", "), how)
	}
	fmt.Fprint(w, "\nchecklist:\n")
	for _, check := range r.Checks {
		fmt.Fprintf(w, "  %s %s\n    %s\n", check.Question, strings.ToUpper(string(check.Answer)), check.Evidence)
		if check.Next != "" {
			fmt.Fprintf(w, "    next: %s\n", check.Next)
		}
	}
	if !define {
		return
	}
	fmt.Fprint(w, "\ndefinitions:\n")
	for _, x := range r.Indicators {
		name := x.Name
		if x.Unit == "GB/s" || x.Unit == "bytes" || x.Unit == "copies" {
			name += " (" + x.Unit + ")"
		}
		fmt.Fprintf(w, "  %s: %s\n", name, x.Definition)
	}
}

func newTraceStages() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "stages FILE",
		Short: "Find the stages of a transformer in a recording without ranges, and say how sure",
		Long: `stages names the layer and the stage of each kernel in a recording of a transformer, whatever framework
ran it: eager, compiled, or in a CUDA graph. It uses the names of the kernels, their grids and their order,
and no ranges. It knows the layers of GPT-2, those with a product each for queries, keys and values (OPT,
BERT, ViT), and those of Llama and its like; layers that are not what repeats in the recording, and other
models, get no stages. The names of the stages that one kernel does are joined by '+'. The confidence is the
probability that the name is right by a model of the order of stages (a hidden Markov model); what argues
against it is listed. Other commands take these stages with --infer, and with --model what the steps of a
GPT-2 cost.`,
		Example: `  infer trace stages run.sqlite`,
		Args:    oneFile,
		RunE:    func(c *cobra.Command, args []string) error { return traceStages(c, args[0], asJSON) },
	}
	cli.AddJSON(c, &asJSON)
	return c
}

func traceStages(c *cobra.Command, path string, asJSON bool) error {
	t, err := readTrace(c, path)
	if err != nil {
		return err
	}
	model, err := sizedModel(c)
	if err != nil {
		return err
	}
	found, err := stages.Infer(t, model)
	if err != nil {
		return fmt.Errorf("%s: %w", traceName(path), err)
	}
	return cli.Print(c, asJSON, found, func(w io.Writer) { printStages(w, t, found) })
}

// printStages writes the stages with their kernels for people.
func printStages(w io.Writer, t *traces.Trace, found *stages.Inference) {
	all := int64(0)
	rows := found.Stages()
	for _, r := range rows {
		all += r.Time
	}
	columns := []table.Column[stages.Stage]{
		table.Count("kernels", "kernels", func(r *stages.Stage) int { return r.Kernels }),
		{Title: "GPU us", Legend: "sum of the kernels' durations",
			Cell: func(r *stages.Stage) table.Cell { return table.Nanoseconds(r.Time) }},
		{Title: "%", Legend: "of the sum of all kernels", Cell: func(r *stages.Stage) table.Cell {
			return table.Known(all > 0, table.Float(100*float64(r.Time)/float64(max(1, all)), 2))
		}},
		{Title: "confidence", Legend: "mean of the kernels', weighted by their time",
			Cell: func(r *stages.Stage) table.Cell { return table.Float(r.Confidence, 3) }},
		table.Text("stage", " ", func(r *stages.Stage) string { return cmp.Or(r.Name, "of no stage") }),
	}
	fmt.Fprintf(w, "%s\n%s", t.Header.Describe(), found.Describe())
	if len(found.Passes) > 0 {
		fmt.Fprintf(w, ", inferred, confidence %.2f", found.Confidence)
	}
	fmt.Fprintf(w, "\n%s\n", strings.Join(append(found.CostsFrom, ""), "\n"))
	for _, text := range found.Against {
		fmt.Fprintf(w, "against: %s\n", text)
	}
	table.Print(w, columns, rows)
	table.Legend(w, columns)
}

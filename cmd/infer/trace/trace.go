// Package trace is 'infer trace': it reads recordings of where time went.
package trace

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"gpt2scope/ceilings"
	"gpt2scope/cmd/infer/cli"
	"gpt2scope/gpt2"
	"gpt2scope/internal/humanize"
	"gpt2scope/record"
	"gpt2scope/traces"
	"gpt2scope/traces/counters"
	"gpt2scope/traces/load"
	"gpt2scope/traces/stages"
)

// New makes "infer trace" and its commands.
func New() *cobra.Command {
	c := &cobra.Command{
		Use:   "trace COMMAND",
		Short: "Make and read recordings of where time went: record, show, report, diff, advise, kpi, check, convert",
		Long: `trace reads recordings of runs: gpt2scope's own (JSON, also .gz), sqlite exports of Nsight Systems, and JSON
of PyTorch's profiler. The content of a file decides its format, not its name; - is standard input, and
sample:NAME a recording that is in the program: 'infer trace samples' lists them.`,
		Example: `  infer trace show run.json.gz
  infer trace advise sample:bad
  infer trace report run.sqlite --out run.html`,
	}
	help := map[string]string{cli.UsesKey: "model quiet",
		cli.HelpKey + modelFlag: "the recording is of `MODEL`, for the costs of inferred stages: gpt2,\ngpt2-medium, " +
			"gpt2-large, gpt2-xl, random:..., a directory or GGUF\nfile"}
	c.Annotations = help
	c.AddCommand(newTraceAdvise(), newTraceCheck(), newTraceDiff(), newTraceKPI(), newTraceShow(), newTraceStages())
	for _, e := range exports {
		c.AddCommand(e.command())
	}
	for _, sub := range c.Commands() {
		sub.Annotations = help
		if slices.Contains(countersCommands, sub.Name()) {
			cli.AddFlags(sub.Flags(), "Counters", addCounters)
		}
		if sub.Name() != "stages" {
			cli.AddFlags(sub.Flags(), "Stages", addNaming)
			sub.PreRunE = checkNaming
		}
	}
	c.AddCommand(newTraceSamples(), newTraceRecord()) // which read none
	return c
}

// oneFile takes the one file that a command reads, someFiles also those of several processes.
var (
	oneFile   = cli.Words(1, 1, "the trace to read", "FILE")
	someFiles = cli.Words(1, 0, "the trace to read", "FILE")
)

// loadTraces reads a trace, or those of several processes as one.
func loadTraces(c *cobra.Command, paths []string) (*traces.Trace, error) {
	var list []*traces.Trace
	var names []string
	for _, path := range paths {
		t, err := readTrace(c, path)
		if err != nil {
			return nil, err
		}
		if err := nameStages(c, path, t); err != nil {
			return nil, err
		}
		list, names = append(list, t), append(names, traceName(path))
	}
	t, err := traces.Merge(list, names)
	if err != nil {
		return nil, err
	}
	return t, joinCounters(c, paths[0], t)
}

// readTrace reads a trace without naming stages in it; - is standard input. A trace that is cut off is read as far as
// it goes, and its header says so.
func readTrace(c *cobra.Command, path string) (*traces.Trace, error) {
	debug.SetGCPercent(25) // what is read stays: a recording of 1 GB would take 2 GB
	bar := cli.NewProgress(c.ErrOrStderr(), "reading "+traceName(path), true, cli.IsQuiet(c))
	defer bar.Done()
	from := load.Source{Path: traceName(path), Context: c.Context(), Progress: bar.Set}
	if path == "-" {
		from.Stream = c.InOrStdin()
	}
	t, err := from.Load()
	if t == nil || err != nil && !errors.As(err, new(*traces.TruncatedError)) {
		return nil, err
	}
	return t, nil
}

// Flags that say where the stages of other programs' recordings come from, and of which model they are.
const rangesFlag, inferFlag, modelFlag = "ranges", "infer", "model"

func addNaming(f *pflag.FlagSet) {
	f.String(rangesFlag, "", "in recordings of other programs, only ranges whose names match\n`REGEX` are passes and "+
		"stages (default: all that the program\nmade)")
	f.Bool(inferFlag, false, "find passes and stages by the names and the order of the\nkernels, not by ranges, as "+
		"'infer trace stages' does")
}

// sizedModel returns the model that --model names, nil for none.
func sizedModel(c *cobra.Command) (*stages.Model, error) {
	name, _ := c.Flags().GetString(modelFlag)
	if name == "" {
		return nil, nil
	}
	if _, err := os.Stat(filepath.Join(name, "config.json")); err != nil {
		for _, m := range gpt2.Published {
			if strings.TrimPrefix(name, "openai-community/") == m.Name {
				return &stages.Model{Name: name, Config: m.Config}, nil
			}
		}
	}
	m, err := (&cli.ModelFlags{Model: name}).OpenModel()
	if err != nil {
		return nil, err
	}
	defer m.Close()
	return &stages.Model{Name: name, Config: m.Config}, nil
}

// checkNaming refuses flags of addNaming that cannot be used.
func checkNaming(c *cobra.Command, _ []string) error {
	text, _ := c.Flags().GetString(rangesFlag)
	model, _ := c.Flags().GetString(modelFlag)
	isInferred, _ := c.Flags().GetBool(inferFlag)
	_, err := regexp.Compile(text)
	switch {
	case isInferred && text != "":
		return cli.Usagef("--ranges and --infer exclude each other: --infer takes no stages from ranges")
	case err != nil:
		return cli.Usagef("--ranges %s: it is no regular expression: %w", cli.ShellQuote(text), err)
	case model != "" && !isInferred:
		return cli.Usagef("--model is for the costs of inferred stages; give --infer too")
	}
	return nil
}

// nameStages gives the recording of another program passes and stages.
func nameStages(c *cobra.Command, path string, t *traces.Trace) error {
	if isInferred, _ := c.Flags().GetBool(inferFlag); isInferred {
		if c.Name() == "diff" && stages.Has(t) { // the other recording may have none
			return nil
		}
		model, err := sizedModel(c)
		if err != nil {
			return err
		}
		found, err := stages.Infer(t, model)
		if err == nil {
			err = found.Apply(t)
		}
		if err != nil {
			return fmt.Errorf("%s: --infer: %w", traceName(path), err)
		}
		addCeilings(t.Header)
		return nil
	}
	text, _ := c.Flags().GetString(rangesFlag)
	if text == "" {
		stages.OfRanges(t, nil)
		return nil
	}
	if stages.OfRanges(t, regexp.MustCompile(text)) {
		return nil
	}
	if t.Passes > 0 {
		return fmt.Errorf("%s: --ranges is for recordings of other programs; this one has its passes and stages",
			traceName(path))
	}
	return fmt.Errorf("%s: no work of a GPU was launched in a range whose name matches %s; 'infer trace show %s --by "+
		"op' lists the ranges",
		traceName(path), cli.ShellQuote(text), cli.ShellQuote(path))
}

// addCeilings adds what was measured on this machine of the GPUs of a recording that has no ceilings:
// two GPUs of one name can do the same.
func addCeilings(h *traces.Header) {
	if len(h.Ceilings) > 0 {
		return
	}
	for _, d := range h.Devices {
		set, ok := ceilings.Newest(d.Name)
		if !ok {
			continue
		}
		record.SetCeilings(h, d.ID, set)
		h.CostsFrom = append(h.CostsFrom, fmt.Sprintf("the ceilings are those of %s, as measured on this machine at %s",
			d.Name, set.Time.Format(time.DateOnly)))
	}
}

func traceName(path string) string {
	if path == "-" {
		return "standard input"
	}
	return path
}

// addGPU adds the flag --gpu of a command that reads a recording.
func addGPU(f *pflag.FlagSet, gpu *int) {
	f.Var(cli.Parsed(gpu, -1, func(text string) (int, error) {
		n, err := strconv.ParseUint(text, 10, 31)
		switch {
		case text == "all":
			return -1, nil
		case err != nil:
			return 0, cli.NotAllowed("a whole number, at least 0, or all")
		}
		return int(n), nil
	}), "gpu", "GPU `N` of a recording of several; all has a line for each,\nand the rest of the first that worked "+
		"(default: all)")
	f.Lookup("gpu").DefValue = ""
}

// countersFlag names the flag that adds hardware counters to a recording, and countersCommands
// are the commands that use them.
const countersFlag = "counters"

var countersCommands = []string{"advise", "convert", "kpi", "report", "show"}

// addCounters adds the flag --counters of a command that reads a recording.
func addCounters(f *pflag.FlagSet) {
	f.String(countersFlag, "", "`FILE` with hardware counters of the kernels of the same\nprogram: the output of ncu "+
		"--csv --page details (or raw)")
}

// joinCounters gives the kernels of a recording the counters of the file that the flag names.
func joinCounters(c *cobra.Command, path string, t *traces.Trace) error {
	name, _ := c.Flags().GetString(countersFlag)
	if name == "" {
		return nil
	}
	f, err := load.Open(c.Context(), name)
	if err != nil {
		return fmt.Errorf("--counters: %w", err)
	}
	defer f.Close()
	counted, err := counters.Read(f)
	if err != nil {
		return fmt.Errorf("--counters: %s %w", name, err)
	}
	joined := counters.Join(t, counted)
	if joined.ByOrder+joined.ByName == 0 {
		return fmt.Errorf("--counters: none of the %s of %s has the name and grid of a kernel in %s: count the program "+
			"that was recorded", cli.Count(len(counted), "kernel"), name, traceName(path))
	}
	t.Header.NotRecorded = slices.DeleteFunc(t.Header.NotRecorded, func(s string) bool { return s == "counters" })
	if !cli.IsQuiet(c) {
		fmt.Fprintf(c.ErrOrStderr(), "counters of Nsight Compute, measured in another run: %s of %s have them, %s by their place and "+
			"%s as the mean of their name and grid\n",
			humanize.Thousands(int64(joined.ByOrder+joined.ByName)), cli.Count(joined.Kernels, "kernel"),
			humanize.Thousands(int64(joined.ByOrder)), humanize.Thousands(int64(joined.ByName)))
	}
	return nil
}

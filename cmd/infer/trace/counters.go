package trace

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"gpt2scope/cmd/infer/cli"
	"gpt2scope/internal/files"
	"gpt2scope/internal/humanize"
	"gpt2scope/traces"
	"gpt2scope/traces/counters"
)

// countersFlag names the flag that adds hardware counters to a recording, and countersCommands
// are the commands that use them.
const countersFlag = "counters"

var countersCommands = []string{"advise", "convert", "kpi", "report", "show"}

// addCounters adds the flag --counters of a command that reads a recording.
func addCounters(f *pflag.FlagSet) {
	f.String(countersFlag, "", "`FILE` with hardware counters of the kernels of the same\nprogram: the output of ncu --csv --page details (or raw), or\nof nvprof --csv --metrics")
}

// joinCounters gives the kernels of a recording the counters of the file that the flag names.
func joinCounters(c *cobra.Command, path string, t *traces.Trace) error {
	counted, _ := c.Flags().GetString(countersFlag)
	if counted == "" {
		return nil
	}
	f, err := files.Open(c.Context(), counted)
	if err != nil {
		return fmt.Errorf("--counters: cannot read %s: %w", counted, humanize.Cause(err))
	}
	defer f.Close()
	set, err := counters.Read(f)
	if err != nil {
		return fmt.Errorf("--counters: %s %w", counted, err)
	}
	joined := set.Join(t)
	if joined.ByOrder+joined.ByName == 0 {
		return fmt.Errorf("--counters: none of the %s of %s has the name and grid of a kernel in %s: count the program that was recorded", cli.Count(len(set.Kernels), "kernel"), counted, traceName(path))
	}
	t.Header.NotRecorded = slices.DeleteFunc(t.Header.NotRecorded, func(s string) bool { return s == "counters" })
	if !cli.IsQuiet(c) {
		fmt.Fprintf(c.ErrOrStderr(), "counters of %s, measured in another run: %s of %s have them, %s by their place and %s as the mean of their name and grid\n", set.Tool,
			humanize.Thousands(int64(joined.ByOrder+joined.ByName)), cli.Count(joined.Kernels, "kernel"), humanize.Thousands(int64(joined.ByOrder)), humanize.Thousands(int64(joined.ByName)))
	}
	return nil
}

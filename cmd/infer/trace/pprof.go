package trace

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"gpt2scope/cmd/infer/cli"
	"gpt2scope/traces/pprof"
)

// newTracePprof makes "infer trace pprof".
func newTracePprof() *cobra.Command {
	var out string
	var gpu int
	c := &cobra.Command{
		Use:   "pprof FILE --out PROFILE",
		Short: "Write a recording as a profile for go tool pprof: stages as a flame graph",
		Long: `pprof reads a recording and writes the wall time of its stage table ('infer trace
show') as a profile for 'go tool pprof'. A stack is, from root to leaf,

  gpt2scope, kind of pass, layer, stage, kernel
  gpt2scope, kind of pass, idle, cause, copy

Its values are nanoseconds ('time', the default) and the number of kernels, copies or
idle gaps ('count', -sample_index=count). The times of all stacks sum to the wall time.
Stages on the CPU have no kernels below them. A recording without passes has only its
kernels or, if no GPU worked, the operations that contain each other. Labels are phase,
layer, stage, op and kind: -tagroot=op groups the flame graph by operation,
-tagfocus=kind=work hides idle time.`,
		Example: `  infer trace pprof run.json.gz --out run.pb.gz
  go tool pprof -http=: run.pb.gz
  go tool pprof -top -cum run.pb.gz`,
		Args: oneFile,
		RunE: func(c *cobra.Command, args []string) error {
			if err := cli.CheckOut(out, ".pb.gz", args[0]); err != nil {
				return err
			}
			return tracePprof(c, args[0], out, gpu)
		},
	}
	cli.AddFlags(c.Flags(), "Output", func(f *pflag.FlagSet) {
		f.StringVarP(&out, "out", "o", "", "`FILE` to write, compressed by gzip; - is standard output")
		addGPU(f, &gpu)
	})
	return c
}

func tracePprof(c *cobra.Command, in, out string, gpu int) error {
	t, err := loadTrace(c, in)
	if err != nil {
		return err
	}
	p, err := pprof.Profile(t, int32(gpu))
	if err != nil {
		return fmt.Errorf("%s: %w", traceName(in), err)
	}
	if err := cli.WriteFile(c.Context(), out, p.Write); err != nil {
		return err
	}
	stderr := c.ErrOrStderr()
	if !cli.IsQuiet(c) {
		fmt.Fprintf(stderr, "%s: %s, %.3f ms of wall time; see it with: go tool pprof -http=: %s\n", out, cli.Count(len(p.Sample), "stack"), cli.Ms(time.Duration(p.DurationNanos)), cli.ShellQuote(out))
	}
	for _, comment := range p.Comments[1:] {
		if !strings.HasPrefix(comment, "shares mislead") {
			fmt.Fprintln(stderr, comment)
		}
	}
	warnMisleading(stderr, in, t)
	return nil
}

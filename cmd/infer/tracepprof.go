package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"gpt2scope/traces"
	"gpt2scope/traces/pprof"
	"gpt2scope/weights"
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
  gpt2scope, kind of pass, idle, cause of it, copy

and its values are nanoseconds ('time', the default) and how many kernels, copies, or
idle gaps there were ('count', -sample_index=count). The time of all stacks is the wall time.
Stages on the CPU have no kernels below them, and a recording without passes has its
kernels alone. Labels are phase, layer, stage, op and kind: with -tagroot=op the flame
graph is by operation, with -tagfocus=kind=work it is without idle time.`,
		Example: `  infer trace pprof run.json.gz --out run.pb.gz
  go tool pprof -http=: run.pb.gz
  go tool pprof -top -cum run.pb.gz`,
		Args: oneFile,
		RunE: func(c *cobra.Command, args []string) error {
			switch {
			case out == "":
				return usagef("give the file to write: --out FILE.pb.gz")
			case gpu < -1 || gpu > 1<<16:
				return usagef("--gpu %d: there is no such GPU", gpu)
			}
			if err := checkOut(args[0], out); err != nil {
				return err
			}
			quiet, _ := c.Flags().GetBool("quiet")
			return tracePprof(c.Context(), args[0], out, gpu, quiet, c.ErrOrStderr())
		},
	}
	addFlags(c.Flags(), "Output", func(f *pflag.FlagSet) {
		f.StringVarP(&out, "out", "o", "", "`FILE` to write, compressed by gzip; - is standard output")
		f.IntVar(&gpu, "gpu", -1, "GPU `N` of a recording of several (default: the first that\nworked)")
	})
	return c
}

func tracePprof(ctx context.Context, in, out string, gpu int, quiet bool, stderr io.Writer) error {
	t, err := loadTrace(in)
	if err != nil {
		return err
	}
	p, err := pprof.Profile(t, int32(gpu))
	if err != nil {
		return fmt.Errorf("%s: %w", in, err)
	}
	path := out
	if path == "-" {
		path = "/dev/stdout"
	}
	if err := weights.WriteFile(ctx, path, p.Write); err != nil {
		return err
	}
	if !quiet {
		fmt.Fprintf(stderr, "%s: %s, %.3f ms of wall time; see it with: go tool pprof -http=: %s\n", out, count(len(p.Sample), "stack"), ms(time.Duration(p.DurationNanos)), shellQuote(out))
	}
	for _, f := range traces.Examine(t.Header, t.Attribution) {
		if f.Misleads {
			fmt.Fprintf(stderr, "shares would mislead: 'infer trace check %s' says why\n", shellQuote(in))
			break
		}
	}
	return nil
}

package trace

import (
	"bytes"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"gpt2scope/cmd/infer/cli"
	"gpt2scope/internal/humanize"
	"gpt2scope/traces"
	"gpt2scope/traces/pprof"
	"gpt2scope/traces/report"
)

// export is a command that writes a recording as a file of another kind.
type export struct {
	use, short, long, example string
	extension                 string
	args                      cobra.PositionalArgs
	gpu                       bool // it is of one GPU

	// write writes the recording of a name to a file, and says what it wrote.
	write func(c *cobra.Command, t *traces.Trace, name, out string, gpu int32) (says string, err error)
}

var exports = []export{
	{use: "convert FILE... --out FILE",
		short: "Write a recording in gpt2scope's format, which Perfetto opens",
		long: `convert gives each kernel its step and writes everything in gpt2scope's format: Chrome trace JSON for
https://ui.perfetto.dev, with steps above their kernels. The output is compressed if its name ends in .gz.`,
		example:   `  infer trace convert run.sqlite --out run.json.gz`,
		extension: ".json.gz", args: someFiles, write: writeRecording},
	{use: "report FILE... --out FILE.html",
		short: "Write a recording as one HTML page: timeline, tables, advice",
		long: `report writes one HTML page that needs no network: a sentence that says where the time went, what the
recording lacks, what 'infer trace advise' and 'infer trace kpi' say, a timeline to zoom and search, the table
of 'infer trace show', the longest gaps, and facts about the device and the recorder.`,
		example: `  infer trace report run.json.gz --out run.html
  infer trace report run.sqlite -o - > run.html`,
		extension: ".html", args: someFiles, gpu: true, write: writePage},
	{use: "pprof FILE --out PROFILE",
		short: "Write a recording as a profile for go tool pprof: stages as a flame graph",
		long: `pprof writes the wall time of the table of 'infer trace show' as a profile for 'go tool pprof'. A stack is,
from root to leaf,

  gpt2scope, kind of pass, layer, stage, kernel
  gpt2scope, kind of pass, idle, cause, copy

Its values are nanoseconds ('time', the default) and the number of kernels, copies or idle gaps ('count',
-sample_index=count). The times of all stacks sum to the wall time. A recording without passes has only its
kernels or, if no GPU worked, its operations. Labels are phase, layer, stage, op and kind: -tagroot=op
groups by operation.`,
		example: `  infer trace pprof run.json.gz --out run.pb.gz
  go tool pprof -http=: run.pb.gz`,
		extension: ".pb.gz", args: oneFile, gpu: true, write: writeProfile},
}

func (e export) command() *cobra.Command {
	out, gpu := "", -1
	c := &cobra.Command{Use: e.use, Short: e.short, Long: e.long, Example: e.example, Args: e.args}
	c.RunE = func(c *cobra.Command, args []string) error {
		counters, _ := c.Flags().GetString(countersFlag)
		if err := cli.CheckOut(out, e.extension, append(args[:len(args):len(args)], counters)...); err != nil {
			return err
		}
		t, err := loadTraces(c, args)
		if err != nil {
			return err
		}
		says, err := e.write(c, t, traceName(args[0]), out, int32(gpu))
		if err != nil {
			return err
		}
		if !cli.IsQuiet(c) {
			fmt.Fprintf(c.ErrOrStderr(), "%s: %s\n", out, says)
		}
		if traces.Misleads(traces.Examine(t.Header, t.Attribution)) {
			fmt.Fprintf(c.ErrOrStderr(), "%s: shares of time would mislead; 'infer trace check %s' says why\n",
				traceName(args[0]), cli.ShellQuote(args[0]))
		}
		return nil
	}
	cli.AddFlags(c.Flags(), "Output", func(f *pflag.FlagSet) {
		f.StringVarP(&out, "out", "o", "", "`FILE` to write; - is standard output")
		if e.gpu {
			addGPU(f, &gpu)
		}
	})
	return c
}

func writeRecording(c *cobra.Command, t *traces.Trace, _, out string, _ int32) (string, error) {
	t.Rebase()
	work := fmt.Sprintf("%s, %s in steps", cli.Count(t.Kernels, "kernel"), humanize.Thousands(int64(t.InSteps)))
	if t.Kernels == 0 {
		work = cli.Count(t.Steps, "step")
	}
	err := cli.WriteTrace(c.Context(), t, out)
	return fmt.Sprintf("%s, %s", cli.Count(int(t.Header.Events), "event"), work), err
}

func writePage(c *cobra.Command, t *traces.Trace, name, out string, gpu int32) (string, error) {
	var page bytes.Buffer
	if err := report.Write(&page, t, report.Options{Name: filepath.Base(name), Device: gpu}); err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	return fmt.Sprintf("%s, %s; open it in a browser",
		cli.Count(len(t.Events), "event"), humanize.Size(int64(page.Len()))), writeData(c, out, page.Bytes())
}

func writeProfile(c *cobra.Command, t *traces.Trace, name, out string, gpu int32) (string, error) {
	p, err := pprof.Profile(t, gpu)
	if err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	var data bytes.Buffer
	if err := p.Write(&data); err != nil {
		return "", err
	}
	says := fmt.Sprintf("%s, %.3f ms of wall time; see it with: go tool pprof -http=: %s",
		cli.Count(len(p.Sample), "stack"), cli.Ms(time.Duration(p.DurationNanos)), cli.ShellQuote(out))
	for _, comment := range p.Comments[1:] {
		if !strings.HasPrefix(comment, "shares mislead") {
			says += "\n" + comment
		}
	}
	return says, writeData(c, out, data.Bytes())
}

// writeData replaces a file; - is standard output.
func writeData(c *cobra.Command, out string, data []byte) error {
	if out == "-" {
		return cli.WriteOutput(c.OutOrStdout(), data)
	}
	return cli.WriteFile(c.Context(), out, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
}

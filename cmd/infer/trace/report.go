package trace

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"gpt2scope/cmd/infer/cli"
	"gpt2scope/internal/humanize"
	"gpt2scope/traces/report"
)

// newTraceReport makes "infer trace report".
func newTraceReport() *cobra.Command {
	var out string
	var gpu int
	c := &cobra.Command{
		Use:   "report FILE... --out FILE.html",
		Short: "Write a recording as one HTML page: timeline, tables, roofline",
		Long: `report reads a recording and writes one HTML page that needs no network: a
sentence that says where the time went, what the recording lacks, a timeline to zoom and
search, the table of 'infer trace show', a roofline, the launch queue, idle time by cause
with the longest gaps, and facts about the device and the recorder.

The page of a recording without passes of a model has a table by kernel, or by
operation if no GPU worked.`,
		Example: `  infer trace report run.json.gz --out run.html
  infer trace report run.sqlite -o - > run.html`,
		Args: someFiles,
		RunE: func(c *cobra.Command, args []string) error {
			if err := cli.CheckOut(out, ".html", recordingFiles(c, args)...); err != nil {
				return err
			}
			return traceReport(c, args, out, int32(gpu))
		},
	}
	cli.AddFlags(c.Flags(), "Output", func(f *pflag.FlagSet) {
		f.StringVarP(&out, "out", "o", "", "`FILE` to write; - is standard output")
		addGPU(f, &gpu)
	})
	return c
}

func traceReport(c *cobra.Command, files []string, out string, gpu int32) error {
	in := files[0]
	t, err := loadTraces(c, files)
	if err != nil {
		return err
	}
	write := func(w io.Writer) error {
		if err := report.Write(w, t, report.Options{Name: filepath.Base(traceName(in)), Device: gpu}); err != nil {
			return fmt.Errorf("%s: %w", traceName(in), err)
		}
		return nil
	}
	if out == "-" {
		var b strings.Builder
		if err := write(&b); err != nil {
			return err
		}
		return cli.WriteOutput(c.OutOrStdout(), []byte(b.String()))
	}
	if err := cli.WriteFile(c.Context(), out, write); err != nil {
		return err
	}
	stderr := c.ErrOrStderr()
	if !cli.IsQuiet(c) {
		info, err := os.Stat(out)
		if err != nil {
			return err
		}
		fmt.Fprintf(stderr, "%s: %s, %s; open it in a browser\n", out, cli.Count(len(t.Events), "event"), humanize.Size(info.Size()))
	}
	warnMisleading(stderr, in, t)
	return nil
}

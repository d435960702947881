package main

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"gpt2scope/traces"
)

// showFlags are the flags of "infer trace show".
type showFlags struct {
	by, format string
	gpu, top   int
}

// newTraceShow makes "infer trace show".
func newTraceShow() *cobra.Command {
	var s showFlags
	c := &cobra.Command{
		Use:   "show FILE",
		Short: "Say where the time of a recording went: a table that sums to wall time",
		Long: `show reads a recording and says where the time went, by stages of the model or by
kernels. The column 'time' sums to the wall time:

  a step or kernel has the time in which it runs and nothing that began before it
  still does, so that kernels that overlap are not counted twice ('busy' is the sum
  of their durations);
  idle time has its cause: before the call that launches the next kernel the host is
  late, or sits in a synchronising call; from there on it is launch latency; where
  the next kernel was queued already, it depends on the one before.

By stage the wall time is that from the first pass to the end of the last, without a
warm-up; by kernel it is that from the first to the last work of the GPU. Shares are
withheld where the recording is incomplete: 'infer trace check' says why.`,
		Example: `  infer trace show run.sqlite
  infer trace show run.json.gz --by kernel --top 5
  infer trace show run.json.gz --format csv > run.csv`,
		Args: oneFile,
		RunE: func(c *cobra.Command, args []string) error {
			return s.run(args[0], c.OutOrStdout())
		},
	}
	addFlags(c.Flags(), "Table", func(f *pflag.FlagSet) {
		f.StringVar(&s.by, "by", "stage", "rows are `WHAT`: stage or kernel")
		f.StringVar(&s.format, "format", "table", "`FORMAT`: table, csv or json")
		f.IntVar(&s.top, "top", 0, "show the `N` rows that took the most time, and sum the rest of\ntheir kind (default: all; tables only)")
		f.IntVar(&s.gpu, "gpu", -1, "GPU `N` of a recording of several (default: the first that\nworked)")
	})
	return c
}

func (s *showFlags) run(path string, stdout io.Writer) error {
	switch {
	case s.by != string(traces.ByStage) && s.by != string(traces.ByKernel):
		return usagef("--by %s: it must be stage or kernel", shellQuote(s.by))
	case s.format != "table" && s.format != "csv" && s.format != "json":
		return usagef("--format %s: it must be table, csv or json", shellQuote(s.format))
	case s.top < 0:
		return usagef("--top %d: it must be at least 1, or 0 for all", s.top)
	case s.gpu < -1 || s.gpu > 1<<16:
		return usagef("--gpu %d: there is no such GPU", s.gpu)
	}
	t, err := loadTrace(path)
	if err != nil {
		return err
	}
	table, err := traces.Summarize(t, traces.By(s.by), int32(s.gpu))
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	switch s.format {
	case "json":
		return writeJSON(stdout, struct {
			Source string `json:"source"`
			*traces.Table
		}{t.Header.Describe(), table})
	case "csv":
		return writeCSV(stdout, table)
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s\n", t.Header.Describe())
	fmt.Fprintf(&b, "wall time %s ms, after %s ms of other work\n\n", milliseconds(table.Wall), milliseconds(table.Before))
	printTable(&b, topRows(table, s.top))
	for _, f := range table.Findings {
		if f.Misleads {
			fmt.Fprintf(&b, "! %s\n", f.Text)
		}
	}
	if traces.Misleads(table.Findings) {
		fmt.Fprintln(&b, "! shares are withheld: the recording is incomplete")
	}
	return writeOutput(stdout, b.Bytes())
}

// milliseconds writes ns to the ns.
func milliseconds(ns int64) string { return strconv.FormatFloat(float64(ns)/1e6, 'f', 6, 64) }

// topRows joins, of each kind of row, all but the n that took the most time; the
// table still sums to the wall time.
func topRows(t *traces.Table, n int) *traces.Table {
	if n == 0 {
		return t
	}
	out := *t
	out.Rows = nil
	for _, kind := range []traces.RowKind{traces.RowWork, traces.RowOther, traces.RowIdle, traces.RowResidual} {
		rest := traces.Row{Kind: kind}
		joined := 0
		for i, r := range t.Rows {
			if r.Kind != kind {
				continue
			}
			longer := 0
			for j, other := range t.Rows {
				if other.Kind == kind && (other.Exclusive > r.Exclusive || other.Exclusive == r.Exclusive && j < i) {
					longer++
				}
			}
			if longer < n {
				out.Rows = append(out.Rows, r)
				continue
			}
			joined++
			rest.Calls, rest.Pieces, rest.Host, rest.Busy, rest.Exclusive = rest.Calls+r.Calls, rest.Pieces+r.Pieces, rest.Host+r.Host, rest.Busy+r.Busy, rest.Exclusive+r.Exclusive
			rest.FLOPs, rest.Bytes = rest.FLOPs+r.FLOPs, rest.Bytes+r.Bytes
		}
		if joined > 0 {
			rest.Name = fmt.Sprintf("%d more", joined)
			out.Rows = append(out.Rows, rest)
		}
	}
	return &out
}

// printTable writes the table for people.
func printTable(w io.Writer, t *traces.Table) {
	byStage := t.By == traces.ByStage
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	pieces := "kernels"
	if t.Device < 0 {
		pieces = "events"
	}
	if byStage {
		fmt.Fprintf(tw, "calls\t%s\thost us\tbusy us\ttime us\t%% of wall\tGB/s\tTFLOP/s\t  \n", pieces)
	} else {
		fmt.Fprint(tw, "count\tbusy us\tmedian us\tmin us\tmax us\ttime us\t% of wall\t  \n")
	}
	var sum traces.Row
	share := func(r *traces.Row) string {
		if v, ok := t.Share(r); ok {
			return strconv.FormatFloat(v, 'f', 2, 64)
		}
		return "-"
	}
	for i := range t.Rows {
		r := &t.Rows[i]
		sum.Exclusive += r.Exclusive
		name := r.Name
		switch {
		case r.Kind == traces.RowIdle:
			name = "idle: " + name
		case r.Kind == traces.RowOther && !byStage:
			name = "copy: " + name
		}
		if r.Phase != "" {
			name = r.Phase + "  " + name
		}
		isWork := r.Kind == traces.RowWork || r.Kind == traces.RowOther
		if byStage {
			fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t  %s\n", someOf(r.Calls), someOf(r.Pieces), micros(r.Host, r.Host > 0), micros(r.Busy, isWork), micros(r.Exclusive, true), share(r),
				rate(r.Bytes, r.Exclusive, 1), rate(r.FLOPs, r.Exclusive, 1e-3), name)
		} else {
			fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t  %s\n", someOf(r.Calls), micros(r.Busy, isWork), micros(r.Median, r.Max > 0), micros(r.Min, r.Max > 0), micros(r.Max, r.Max > 0), micros(r.Exclusive, true), share(r), name)
		}
	}
	if byStage {
		fmt.Fprintf(tw, "\t\t\t\t%s\t%s\t\t\t  wall time\n", micros(sum.Exclusive, true), share(&sum))
	} else {
		fmt.Fprintf(tw, "\t\t\t\t\t%s\t%s\t  wall time\n", micros(sum.Exclusive, true), share(&sum))
	}
	tw.Flush()
}

// someOf writes a count, nothing for none.
func someOf(n int) string {
	if n == 0 {
		return ""
	}
	return thousands(int64(n))
}

// micros writes ns as microseconds, where there are any to show.
func micros(ns int64, show bool) string {
	if !show {
		return ""
	}
	return strconv.FormatFloat(float64(ns)/float64(time.Microsecond), 'f', 3, 64)
}

// rate writes n per ns, scaled: bytes/ns are GB/s, FLOPs/ns are GFLOP/s. It is
// nothing where n is not known.
func rate(n, ns int64, scale float64) string {
	if n == 0 || ns == 0 {
		return ""
	}
	return strconv.FormatFloat(float64(n)/float64(ns)*scale, 'f', 1, 64)
}

// writeCSV writes all that is known of each row, times in ns.
func writeCSV(w io.Writer, t *traces.Table) error {
	var b bytes.Buffer
	c := csv.NewWriter(&b)
	c.Write([]string{"kind", "phase", "name", "op", "calls", "pieces", "host_ns", "busy_ns", "time_ns", "share_percent", "min_ns", "median_ns", "max_ns", "flops", "bytes"})
	for i := range t.Rows {
		r := &t.Rows[i]
		share := ""
		if v, ok := t.Share(r); ok {
			share = strconv.FormatFloat(v, 'f', 4, 64)
		}
		row := []string{string(r.Kind), r.Phase, r.Name, r.Op, strconv.Itoa(r.Calls), strconv.Itoa(r.Pieces)}
		for _, v := range []int64{r.Host, r.Busy, r.Exclusive} {
			row = append(row, strconv.FormatInt(v, 10))
		}
		row = append(row, share)
		for _, v := range []int64{r.Min, r.Median, r.Max, r.FLOPs, r.Bytes} {
			row = append(row, strconv.FormatInt(v, 10))
		}
		c.Write(row)
	}
	c.Flush()
	if err := c.Error(); err != nil {
		return err
	}
	return writeOutput(w, b.Bytes())
}

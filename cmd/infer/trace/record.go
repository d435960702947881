package trace

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net"
	"net/http"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"gpt2scope/cmd/infer/cli"
	"gpt2scope/cuda/inject"
	"gpt2scope/internal/humanize"
	"gpt2scope/internal/table"
	"gpt2scope/traces"
	"gpt2scope/traces/stages"
	"gpt2scope/traces/tables"
)

// recordFlags are the flags of "infer trace record".
type recordFlags struct {
	inject.Options
	out, metrics, toggle string
	live, baseline, show bool
}

func newTraceRecord() *cobra.Command {
	var f recordFlags
	c := &cobra.Command{
		Use:   "record [flags] -- COMMAND",
		Short: "Record a command: any program that uses CUDA, and the processes that it starts",
		Long: `record runs a command, and records what it and the processes that it starts do on NVIDIA GPUs: kernels,
copies, API calls, synchronisation, memory, graphs, and the ranges of NVTX. The program is not changed: CUDA
and NVTX load libgpt2scope_cupti.so into it. Its input, output and exit status are its own; Ctrl-C goes to it,
and what was recorded until its end is written. All of 'infer trace' reads the recording.

A graph is recorded as a whole; --graph-nodes records its kernels, which costs more, and so do windows. The
window of recording is the whole run, or --delay and --duration say it, or the signal --toggle, sent to infer,
opens and closes it.
--live shows each second what the GPUs do; without --out nothing is then kept, for as long as the command runs.`,
		Example: `  infer trace record -o run.json.gz -- python task.py
  infer trace record -o run.json.gz --delay 20s --duration 5s -- python -m vllm ...
  infer trace record --live -- ./a.out`,
		Args:        cli.Words(1, 0, "a command to record, after --", "[flags] -- COMMAND"),
		Annotations: map[string]string{cli.UsesKey: "quiet"},
		RunE: func(c *cobra.Command, args []string) error {
			f.Command, f.Release = args, cli.Version()
			return f.run(c)
		},
	}
	c.Flags().SetInterspersed(false) // the command's flags are its own
	cli.AddFlags(c.Flags(), "Recording", func(fs *pflag.FlagSet) {
		fs.StringVarP(&f.out, "out", "o", "", "`FILE` to write, .json or .json.gz")
		fs.BoolVar(&f.GraphNodes, "graph-nodes", false, "record each kernel of a CUDA graph, not the graph as a whole")
		fs.BoolVar(&f.AllCalls, "all-calls", false, "record also API calls that only ask, such as cudaGetDevice and\n"+
			"cuKernelGetName")
		fs.DurationVar(&f.Delay, "delay", 0, "begin to record after `TIME`, such as 20s (default: at once)")
		fs.DurationVar(&f.Duration, "duration", 0, "record for `TIME` (default: to the end)")
		fs.Var(cli.OneOf(&f.toggle, "", "USR1", "USR2"), "toggle", "begin with recording off, and switch it by `SIGNAL` USR1 "+
			"or\nUSR2, sent to this process")
		fs.Var(cli.Parsed(&f.Limit, 512<<20, parseSize), "spool", "keep at most `SIZE` until the end; what does not fit is "+
			"counted\n(a kernel or call takes 144 bytes)")
		fs.Lookup("spool").DefValue = "512MiB"
		fs.BoolVar(&f.show, "show", false, "print the table of 'infer trace show' at the end, on standard\nerror")
		fs.BoolVar(&f.baseline, "baseline", false, "run the command once more, without recording, and say how much\nlonger "+
			"recording made it")
	})
	cli.AddFlags(c.Flags(), "Watching", func(fs *pflag.FlagSet) {
		fs.BoolVar(&f.live, "live", false, "show each second what GPUs do, on standard error")
		fs.StringVar(&f.metrics, "metrics", "", "serve sums as text for Prometheus at `ADDRESS`, such as\n127.0.0.1:9400; a "+
			"bare port is one of this machine's loopback")
	})
	return c
}

func parseSize(text string) (int64, error) {
	var n int64
	var unit string
	fmt.Sscanf(text, "%d%s", &n, &unit)
	size := map[string]int64{"MiB": 1 << 20, "GiB": 1 << 30}[unit]
	if n <= 0 || size == 0 || n > 1<<50/size {
		return 0, cli.NotAllowed("a whole number of MiB or GiB, such as 512MiB")
	}
	return n * size, nil
}

func (f *recordFlags) run(c *cobra.Command) error {
	watched := f.live || f.metrics != ""
	switch {
	case f.out == "" && !watched:
		return cli.Usagef("--out FILE says where the recording goes; --live and --metrics need none")
	case f.out == "" && (f.show || f.baseline):
		return cli.Usagef("--show and --baseline are of a recording; --out FILE says where it goes")
	case f.out == "-":
		return cli.Usagef("--out - would mix the recording with the command's output; name a file")
	case f.Delay < 0:
		return cli.Usagef("--delay %s: it must be a time such as 20s, and not negative", f.Delay)
	case f.Duration < 0 || f.Duration == 0 && c.Flags().Changed("duration"):
		return cli.Usagef("--duration %s: it must be a time above 0, such as 5s", f.Duration)
	case f.toggle != "" && f.Delay > 0:
		return cli.Usagef("--toggle and --delay exclude each other: both say when recording begins")
	case f.out != "":
		if err := cli.CheckWritable("--out", f.out); err != nil {
			return err
		}
	}
	f.Forget = f.out == ""
	f.Toggle = map[string]syscall.Signal{"USR1": syscall.SIGUSR1, "USR2": syscall.SIGUSR2}[f.toggle]
	if watched {
		var sums inject.Metrics
		if f.metrics != "" {
			stop, err := serve(f.metrics, sums.Write)
			if err != nil {
				return err
			}
			defer stop()
		}
		screen := cli.IsTerminal(c.ErrOrStderr())
		f.Live = func(s *inject.Second) {
			if sums.Add(s); f.live {
				if screen {
					io.WriteString(c.ErrOrStderr(), "\x1b[H\x1b[2J") // it takes the place of the second before
				}
				cli.WriteText(c.ErrOrStderr(), liveText(s))
			}
		}
	}
	run, err := inject.Record(f.Options)
	if err != nil {
		return err
	}
	defer run.Close()
	if err := f.finish(c, run); err != nil || run.Status == 0 {
		return err
	}
	return cli.CommandStatus(run.Status)
}

// finish writes the recording, and says what became of it.
func (f *recordFlags) finish(c *cobra.Command, run *inject.Run) error {
	say := func(format string, args ...any) {
		if !cli.IsQuiet(c) {
			fmt.Fprintf(c.ErrOrStderr(), "infer: %s\n", table.Plain(fmt.Sprintf(format, args...)))
		}
	}
	for _, text := range run.Says() {
		say("%s", text)
	}
	if !run.StartedCUDA() {
		say("no process of the command started CUDA (called cuInit), so there is no work of a GPU")
	}
	if f.out == "" {
		return nil
	}
	t, err := run.Trace()
	if err != nil {
		return err
	}
	if t == nil {
		say("nothing was recorded, and %s was not written", f.out)
		return nil
	}
	if f.baseline {
		begun := time.Now()
		err := inject.Command(f.Command).Run()
		alone := time.Since(begun)
		if err != nil && !errors.As(err, new(*exec.ExitError)) {
			return fmt.Errorf("--baseline: %w", err)
		}
		text := fmt.Sprintf("the command took %.2f s recorded and %.2f s without, once each: %+.1f %%",
			run.Took.Seconds(), alone.Seconds(), 100*(run.Took.Seconds()/alone.Seconds()-1))
		t.Header.Notes = append(t.Header.Notes, text)
		say("%s", text)
	}
	if f.show { // before it is written, which takes longer; stages are not written
		header := *t.Header
		shown := traces.NewTrace(&header, slices.Clone(t.Events))
		stages.OfRanges(shown, nil)
		err := Show(c.ErrOrStderr(), shown, ShowOptions{By: tables.ByFolded, anyTable: true, GPU: -1, Columns: MainColumns})
		if err != nil {
			return err
		}
	}
	ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := cli.WriteTrace(ctx, t, f.out); ctx.Err() != nil {
		return cli.Interruption{Signal: syscall.SIGINT}
	} else if err != nil {
		return err
	}
	for _, what := range slices.Sorted(maps.Keys(t.Header.Dropped)) {
		say("lost: %s %s", humanize.Thousands(t.Header.Dropped[what]), what)
	}
	say("%s has %s of %s, %s; 'infer trace show %s' reads it", f.out, cli.Count(t.Kernels, "kernel"),
		humanize.Count(run.Processes, "process", "processes"), cli.Count(int(t.Header.Events), "event"), cli.ShellQuote(f.out))
	return nil
}

// serve answers requests with a text, until stop is called.
func serve(address string, write func(io.Writer)) (stop func(), err error) {
	if _, err := strconv.Atoi(address); err == nil { // which ports there are, Listen says
		address = "127.0.0.1:" + address
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("--metrics %s: %w", address, humanize.Cause(err))
	}
	s := &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		write(w)
	})}
	go s.Serve(l)
	return func() { s.Close() }, nil
}

// liveRows are shown of a second.
const liveRows = 10

func liveText(s *inject.Second) []byte {
	var w bytes.Buffer
	fmt.Fprintf(&w, "%s  %s with CUDA  GPU busy %.1f %%  %s  copies %s in %.3f ms", s.Since.Round(time.Second),
		humanize.Count(s.Processes, "process", "processes"), 100*s.Busy, cli.Count(s.Kernels, "kernel"),
		humanize.Size(s.Copied), cli.Ms(s.Copies))
	if !math.IsNaN(s.Queue) {
		fmt.Fprintf(&w, "  queue %.1f", s.Queue)
	}
	for _, g := range s.GPUs {
		fmt.Fprintf(&w, "  %d MHz %.0f W", g.SMClock, g.Power)
	}
	fmt.Fprintln(&w)
	what := "kernel"
	if s.Stages {
		what = "stage"
	}
	rows := s.Rows[:min(len(s.Rows), liveRows)]
	if len(rows) > 0 {
		table.Print(&w, []table.Column[tables.Row]{
			table.Text("", what, func(r *tables.Row) string { return shorten(r.Name) }),
			table.Count("", "calls", func(r *tables.Row) int { return r.Calls }),
			table.Time("", "time us", "", func(r *tables.Row) int64 { return r.Exclusive }),
		}, rows)
	}
	return w.Bytes()
}

// shorten cuts a name to what a line has room for.
func shorten(name string) string {
	const most = 70
	if r := []rune(name); len(r) > most {
		return string(r[:most-3]) + "..."
	}
	return name
}

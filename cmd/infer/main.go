//go:build cgo

// Command infer runs GPT-2 and shows what it does: 'infer --help' lists its commands. Each is a function here or a
// package below: flags in, tables out. What it computes or measures is in other packages.
//
// Text goes to standard output, everything else to standard error. The exit status is 0; 1 if something failed; 2 if
// the command line is wrong, for this model too; 3 if a gate (trace diff --gate) found a regression; 130 after Ctrl-C;
// that of the command of trace record.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"gpt2scope/cmd/infer/bench"
	"gpt2scope/cmd/infer/cli"
	"gpt2scope/cmd/infer/layers"
	"gpt2scope/cmd/infer/learn"
	"gpt2scope/cmd/infer/tasks"
	"gpt2scope/cmd/infer/trace"
	"gpt2scope/nvtx"
	"gpt2scope/weights"
)

// started is as near to the start of the process as Go code comes.
var started = time.Now()

// The exit statuses. A signal that ends the program adds its number to exitSignal, as shells do: 130 after Ctrl-C.
const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
	exitGate    = 3
	exitSignal  = 128
)

// reportedError is an error that is on standard error already.
type reportedError struct{ error }

func (e reportedError) Unwrap() error { return e.error }

// The main goroutine stays on the process's first OS thread, on which ranges are then opened and closed: a timeline has
// them all in one row.
func init() { runtime.LockOSThread() }

func main() {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // as under nohup
		signal.Notify(signals, syscall.SIGHUP)
	}
	go func() {
		first := waitForSecond(signals, func(s syscall.Signal) { cancel(cli.Interruption{Signal: s}) })
		os.Exit(exitSignal + int(first))
	}()
	m := cli.ModelFlags{Ends: nvtx.Tool() == ""}
	nvtx.Exit(run(ctx, &m, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// sameSignal is how long after a signal another one counts as the same: timeout(1) and job managers send it to a
// process and to its group.
const sameSignal = 250 * time.Millisecond

// waitForSecond tells of the first signal, and returns it once a second one says not to wait for the end.
func waitForSecond(signals <-chan os.Signal, first func(syscall.Signal)) syscall.Signal {
	s := (<-signals).(syscall.Signal)
	since := time.Now()
	first(s)
	for {
		<-signals
		if time.Since(since) > sameSignal {
			return s
		}
	}
}

// run executes the command line and returns the exit status.
func run(ctx context.Context, m *cli.ModelFlags, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	root := newRoot(m, args...)
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	var command *cobra.Command
	err := cli.CheckDashes(root, args)
	if err == nil {
		command, err = root.ExecuteContextC(ctx)
	}
	if errors.Is(err, context.Canceled) { // the cause says more
		err = fmt.Errorf("%w", context.Cause(ctx))
	}
	if errors.Is(err, weights.ErrNotEmpty) && command.Flags().Lookup("force") != nil {
		err = fmt.Errorf("%w, or --force to write into this one", err)
	}

	var stop cli.Interruption
	var usage cli.UsageError
	var ended cli.CommandStatus
	status := exitFailure
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, syscall.EPIPE): // nobody reads on, which is no failure to talk about
		return exitSignal + int(syscall.SIGPIPE)
	case errors.As(err, &stop):
		status = exitSignal + int(stop.Signal)
	case errors.As(err, &usage), errors.Is(err, weights.ErrSamePlace):
		status = exitUsage
	case errors.As(err, new(cli.GateError)):
		status = exitGate
	case errors.As(err, &ended):
		return int(ended)
	}
	if !errors.As(err, new(reportedError)) {
		fmt.Fprintf(stderr, "infer: %v\n", err)
	}
	return status
}

// newRoot builds the command tree for a command line: where that only has flags, without the commands below the root,
// which take a twentieth of a start.
func newRoot(m *cli.ModelFlags, args ...string) *cobra.Command {
	root := newGenerate(m)
	root.PersistentPreRunE = func(c *cobra.Command, _ []string) error { return cmp.Or(cli.CheckUsed(c), m.Check(c)) }
	cli.AddFlags(root.PersistentFlags(), "Model and device", m.Register)
	root.Version = cli.Version()
	root.SetVersionTemplate("infer {{.Version}}\n")
	if !cli.OnlyFlags(root, args) {
		root.AddCommand(newInfo(m), newEval(m), newDump(m), newTokenize(m), newExport(m), bench.New(m), newDevices(), newExplain(),
			layers.New(m), learn.New(m), newMan(), tasks.New(m), trace.New(), newTour(), newVersion())
	}
	cli.SetUsage(root)
	return root
}

// Command infer runs GPT-2 and shows what it does.
//
//	infer -p "ROMEO:"            writes text
//	infer info                   shows the model and the plan of a pass
//	infer eval --text FILE       measures how well the model predicts a text
//	infer dump --stage S -o F    writes a stage's activations
//	infer bench                  measures passes
//	infer tokenize, infer export
//
// Text goes to standard output, everything else to standard error. The exit
// status is 0, 1 for a failure, 2 for wrong usage, 130 after Ctrl-C.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// started is as near to the start of the process as Go code comes.
var started = time.Now()

// The exit statuses.
const (
	exitOK          = 0
	exitFailure     = 1
	exitUsage       = 2
	exitInterrupted = 130
)

// errInterrupted is the cause of a context that Ctrl-C cancelled.
var errInterrupted = errors.New("interrupted")

// usageError is a mistake in how the program was called.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func main() {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		cancel(errInterrupted)
		<-signals // the second one does not wait
		os.Exit(exitInterrupted)
	}()
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run executes the command line and returns the exit status.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	root := newRoot()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := checkDashes(root, args)
	if err == nil {
		err = root.ExecuteContext(ctx)
	}
	var usage usageError
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errInterrupted):
		return exitInterrupted
	case errors.As(err, &usage):
		fmt.Fprintf(stderr, "infer: %v\n", err)
		return exitUsage
	default:
		fmt.Fprintf(stderr, "infer: %v\n", err)
		return exitFailure
	}
}

// newRoot builds the command tree.
func newRoot() *cobra.Command {
	var m modelFlags
	root := newGenerate(&m)
	root.SilenceErrors = true
	root.SilenceUsage = true
	root.CompletionOptions.HiddenDefaultCmd = true
	root.Version = version()
	root.SetVersionTemplate("infer {{.Version}}\n")
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return usageError{fmt.Errorf("%w; see '%s --help'", err, c.CommandPath())}
	})
	m.register(root.PersistentFlags())
	root.AddCommand(newInfo(&m), newEval(&m), newDump(&m), newTokenize(&m), newExport(&m), newBench(&m))
	root.Args = func(c *cobra.Command, args []string) error { return noArgs(c, args) }
	for _, c := range root.Commands() {
		c.Args = noArgs
	}
	return root
}

// noArgs refuses words that are neither flags nor subcommands, with a hint.
func noArgs(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	root := c.Root()
	if c == root {
		if near := root.SuggestionsFor(args[0]); len(near) > 0 {
			return usageError{fmt.Errorf("unknown command %q; did you mean %q?", args[0], near[0])}
		}
		var names []string
		for _, sub := range root.Commands() {
			if !sub.Hidden && sub.Name() != "help" {
				names = append(names, sub.Name())
			}
		}
		return usageError{fmt.Errorf("unknown command %q; commands are %s; a prompt is given with -p %q", args[0], strings.Join(names, ", "), strings.Join(args, " "))}
	}
	return usageError{fmt.Errorf("unexpected argument %q; see '%s --help'", args[0], c.CommandPath())}
}

// checkDashes finds long flags written with one dash, which would otherwise be
// taken for a short flag with a value: -prompt for -p with the value "rompt".
func checkDashes(root *cobra.Command, args []string) error {
	long, takesValue := map[string]bool{}, map[string]bool{}
	note := func(f *pflag.Flag) {
		long[f.Name] = true
		if f.NoOptDefVal == "" {
			takesValue["--"+f.Name] = true
			takesValue["-"+f.Shorthand] = true
		}
	}
	for _, c := range append(root.Commands(), root) {
		c.Flags().VisitAll(note)
		c.PersistentFlags().VisitAll(note)
	}
	for i, arg := range args {
		if arg == "--" {
			break
		}
		if i > 0 && takesValue[args[i-1]] { // the value of a flag
			continue
		}
		name, isSingle := strings.CutPrefix(arg, "-")
		name, _, _ = strings.Cut(name, "=")
		if isSingle && len(name) > 1 && long[name] {
			return usageError{fmt.Errorf("%q has one dash; write --%s", arg, name)}
		}
	}
	return nil
}

//go:build cgo

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"gpt2scope/cmd/infer/cli"
	"gpt2scope/internal/console"
)

// screens are those of 'infer tour': a command that runs, in how many lines, and what to see in it.
var screens = []struct{ title, command, says string }{
	{"text", "-p ROMEO: -n 60 -s 1", "A GPT-2 that learned Shakespeare goes on from the prompt: one token after another, each by a pass through the " +
		"model. The last line has the two numbers of every such program: how fast the prompt was read, and how fast tokens came."},
	{"where the time went", "-p ROMEO: -n 16 -s 1 --profile --no-baseline", "Each row is a stage of the model, or idle time. With the rows that this screen " +
		"leaves out they sum to the wall time: no time is counted twice. This was measured now, on your CPU; --trace FILE keeps it as a recording."},
	{"a floor", "trace show sample:gpt2-after --columns main --sort time --limit 5", "This recording of a GPU is in the program. The floor is the least time that " +
		"the bytes and FLOPs of a stage need, and roofline % is the floor in percent of the time that it took: lm_head is near what the GPU can do, attention is far from it."},
	{"a recording of another program", "trace advise sample:bad", "Nsight Systems recorded a PyTorch program with faults. Each finding has its evidence and the " +
		"most that removing it could gain, the largest first: here the copies."},
	{"a kernel and its launch", "trace kpi sample:eager", "A kernel is launched by a call that returns at once, and starts later: the launch latency; a correlation id pairs the " +
		"two. While the queue is filled the GPU never waits for the host; starved is the share of the time in which it did."},
	{"a graph", "trace diff sample:eager sample:graph", "A CUDA graph launches all kernels of a step by one call. Each recording has one prefill, too few to compare, and seven " +
		"decode steps, which are tested: ~ marks a difference that may be noise; where p is small, chance seldom makes such a one."},
	{"inside one kernel", "trace show sample:persistent --columns main --limit 4", "Here one kernel makes whole tokens, and profilers see one bar. It records itself: its SMs wait for " +
		"weights, for inputs of other SMs, compute, and wait for the last one."},
	{"CPU or GPU", "tasks simulate", "A thousand tasks on a CPU and a GPU whose times were measured: each policy decides where they run. A threshold on the size loses " +
		"against a prediction of both times, and always taking the GPU loses against both."},
	{"layers", "-p ROMEO: -n 60 -s 1 --layers all", "The same prompt with all six layers of the model, where the first screen had one: better text for more time. " +
		"'infer layers' measures what each layer costs and gains."},
	{"your own capture", "explain nsys", "Record your program with nsys profile -t cuda,nvtx -o run python3 mine.py and export it with nsys export --type sqlite run.nsys-rep. " +
		"Then infer trace advise run.sqlite reads it, and infer trace report run.sqlite -o run.html makes a page of it."},
}

// How many lines of a command a screen shows, and how many letters of each.
const screenLines, screenWidth = 22, 150

func newTour() *cobra.Command {
	return &cobra.Command{
		Use:   "tour",
		Short: "Show in ten screens what the program does: each a command that runs, and what to see in it",
		Long: `tour runs ten commands, one after the other, and says of each what to see in its output. Enter goes on; without
a terminal all follow each other. It needs no GPU and no file: recordings of one are in the program.`,
		Example:     `  infer tour`,
		Annotations: map[string]string{cli.UsesKey: ""},
		RunE: func(c *cobra.Command, _ []string) error {
			return tour(c.Context(), c.InOrStdin(), c.OutOrStdout())
		},
	}
}

func tour(ctx context.Context, stdin io.Reader, stdout io.Writer) error {
	lines := console.NewLines(stdin, stdout, "Enter for the next, q to end: ")
	asks := lines.Terminal() && cli.IsTerminal(stdout)
	for i, s := range screens {
		if _, err := fmt.Fprintf(stdout, "%d of %d: %s\n\n$ infer %s\n", i+1, len(screens), s.title, s.command); err != nil {
			return err
		}
		var out bytes.Buffer
		run(ctx, new(cli.ModelFlags), strings.Fields(s.command), strings.NewReader(""), &out, aside{&out}) // which says why it failed
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		show(stdout, out.String())
		fmt.Fprintf(stdout, "\n%s\n", cli.Wrapped("", s.says))
		if asks && i+1 < len(screens) {
			switch line, err := lines.Next(ctx); {
			case errors.Is(err, io.EOF), err == nil && strings.HasPrefix(line, "q"):
				return nil
			case errors.Is(err, console.ErrInterrupted):
				return cli.Interruption{Signal: syscall.SIGINT}
			case err != nil:
				return err
			}
			fmt.Fprintln(stdout)
		}
	}
	return nil
}

// show writes the first lines of an output, and the beginning of those that are long.
func show(w io.Writer, output string) {
	lines := strings.Split(strings.TrimSuffix(output, "\n"), "\n")
	for _, line := range lines[:min(len(lines), screenLines)] {
		if letters := []rune(line); len(letters) > screenWidth {
			line = string(letters[:screenWidth]) + " …"
		}
		fmt.Fprintln(w, line)
	}
	if more := len(lines) - screenLines; more > 0 {
		fmt.Fprintf(w, "... and %s\n", cli.Count(more, "more line"))
	}
}

// aside writes what is no result, on lines of its own.
type aside struct{ *bytes.Buffer }

func (a aside) Write(p []byte) (int, error) {
	if text := a.Bytes(); len(text) > 0 && text[len(text)-1] != '\n' {
		a.WriteByte('\n')
	}
	return a.Buffer.Write(p)
}

package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	osexec "os/exec"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// GivenFlags returns the flags on the command line as arguments, except those named in but.
func GivenFlags(flags *pflag.FlagSet, but ...string) []string {
	var args []string
	flags.VisitAll(func(f *pflag.Flag) {
		if !f.Changed || slices.Contains(but, f.Name) {
			return
		}
		if many, ok := f.Value.(pflag.SliceValue); ok {
			for _, v := range many.GetSlice() {
				args = append(args, "--"+f.Name+"="+v)
			}
			return
		}
		args = append(args, "--"+f.Name+"="+f.Value.String())
	})
	return args
}

// RunSelf runs this program once more, and decodes the JSON that it prints.
func RunSelf(ctx context.Context, args []string, out any) error {
	path, err := os.Executable()
	if err != nil {
		return fmt.Errorf("no process can be started: %w", err)
	}
	var stdout, stderr bytes.Buffer
	c := osexec.CommandContext(ctx, path, args...)
	c.Stdout, c.Stderr = &stdout, &stderr
	c.Cancel = func() error { return c.Process.Signal(os.Interrupt) }
	c.WaitDelay = 5 * time.Second
	if err := c.Run(); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		words := strings.TrimSpace(stderr.String())
		return fmt.Errorf("%w: %s", err, words[strings.LastIndex(words, "\n")+1:])
	}
	if err := json.Unmarshal(stdout.Bytes(), out); err != nil {
		return fmt.Errorf("it printed no timings: %w", err)
	}
	return nil
}

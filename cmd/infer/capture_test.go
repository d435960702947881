package main

import (
	"context"
	"strings"
	"testing"

	"gpt2scope/cmd/infer/cli"
)

func TestCaptureRangeFlag(t *testing.T) {
	args := []string{"-m", tiny, "-p", "ROMEO:", "--ignore-eos", "--device", "cpu", "-s", "1", "--quiet"}
	plain := mustInfer(t, with(args, "-n", "20")...)
	if captured := mustInfer(t, with(args, "-n", "20", "--capture-range", "5")...); captured.stdout != plain.stdout {
		t.Error("a capture changes the text")
	}
	mustInfer(t, with(args, "-n", "9", "--capture-range", "5")...)
	checkFailure(t, infer(t, with(args, "-n", "8", "--capture-range", "5")...), exitUsage, "--capture-range 5", "--tokens 8")
	// 6 tokens of the prompt, and all but the last of those made, fill the context of 64.
	mustInfer(t, with(args, "-n", "80", "--capture-range", "55")...)
	checkFailure(t, infer(t, with(args, "-n", "80", "--capture-range", "56")...), exitUsage, "--capture-range 56", "context of 64")
	if e := infer(t, with(args, "-n", "20", "--capture-range", "12", "--stop", plain.stdout[12:14])...); e.status != exitFailure || !strings.Contains(e.stderr, "the text ended after") {
		t.Errorf("a text that ends in a capture: status %d, %q", e.status, e.stderr)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(cli.Interruption{Signal: 2})
	if e := inferWith(t, ctx, "", with(args, "-n", "20", "--capture-range", "5")...); e.status != exitSignal+2 {
		t.Errorf("an interrupted capture: status %d, %q", e.status, e.stderr)
	}
}

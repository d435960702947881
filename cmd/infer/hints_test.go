package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"gpt2scope/cmd/infer/cli"
)

// TestHints: what users of other programs type is answered with what does the same here.
func TestHints(t *testing.T) {
	recording := ownTrace(t, false)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"report", "x"}, "did you mean 'infer trace report'?"},
		{[]string{"kernel"}, "did you mean 'infer bench kernel'?"},
		{[]string{"inf"}, "did you mean 'infer info'?"},
		{[]string{"bench", "ceiling"}, "did you mean 'infer bench ceilings'?"},
		{[]string{"bench", "trace"}, "did you mean 'infer trace'?"},
		{[]string{"trace", "chek"}, "did you mean 'infer trace check'?"},
		{[]string{"trace", recording}, "did you mean 'infer trace show " + recording + "'?"},
		{[]string{"--n-predict", "3"}, "'infer' has no flag --n-predict; did you mean --tokens?"},
		{[]string{"--max_new_tokens", "3"}, "did you mean --tokens?"},
		{[]string{"-ngl", "3"}, "there is no flag -ngl; did you mean --device?"},
		{[]string{"trace", "report", "x", "--output", "y"}, "did you mean --out?"},
		{[]string{"bench", "--repetitions", "3"}, "did you mean --repeat?"},
		{[]string{"version", "--temperature", "3"}, "has no flag --temperature; see"},
		{[]string{"--topk", "3"}, "did you mean --top-k?"},
		{[]string{"bench", "help"}, "did you mean 'infer bench --help'?"},
		{[]string{"trace", "help", "show"}, "did you mean 'infer trace --help'?"},
		{[]string{"bench", "foo"}, "commands of 'infer bench' are ceilings, energy, inside, kernel, overhead"},
		{[]string{"bench", "-pg", "512,128"}, "there is no flag -pg; -p measures a prefill and -n"},
		{[]string{"eval", "-f", "play.txt"}, "'infer eval' has no flag -f; did you mean --text?"},
		{[]string{"eval", "--file", "play.txt"}, "'infer eval' has no flag --file; did you mean --text?"},
		{[]string{"learn", "1", "--recorder", "x"}, "'infer learn' has no flag --recorder"},
		{[]string{"dump", "--stage", "h.3.ln_1", "--out", "x.npy", "--device", "cpu"}, "this layer does not run, as 1 of 6 do; --layers all"},
	} {
		checkFailure(t, infer(t, c.args...), exitUsage, c.want)
	}
	checkFailure(t, infer(t, "bench", "inside", "--device", "cpu"), exitFailure, "use --device cuda, which says what is missing")
	checkFailure(t, infer(t, "frobnicate"), exitUsage, "there is no command", "commands are")
	checkFailure(t, infer(t, "trace", "none.json"), exitUsage, "there is no command", "commands are advise")
}

// TestFlagsElsewhere: each of these flags is had by some command, under no other name.
func TestFlagsElsewhere(t *testing.T) {
	root := newRoot(new(cli.ModelFlags))
	has := func(name string) bool {
		return slices.ContainsFunc(cli.AllCommands(root), func(c *cobra.Command) bool { return c.Flags().Lookup(name) != nil })
	}
	for other, here := range cli.FlagsElsewhere {
		if !has(here) || other != "output" && other != "file" && has(other) {
			t.Errorf("--%s stands for --%s: %v, %v", other, here, has(other), has(here))
		}
	}
}

// TestHelpOfACommand: the help of a flag that all commands share says what it does in this one.
func TestHelpOfACommand(t *testing.T) {
	for command, want := range map[string][]string{
		"completion": {"flags and the values of\nflags", "'infer completion bash --help'"},
		"export":     {"write a model of the first N layers, or 'all' (default: all, of the built-in", "TYPE of the weights in the file: f32 or bf16 (default: f32)"},
		"info":       {"run the first N layers, or 'all' (default: all; of the built-in"},
		"tokenize":   {"TEXT to show the tokens of", "token IDS to show the tokens of"},
		"dump":       {"TEXT to evaluate", "token IDS to evaluate"},
		"learn":      {"--record FILE "},
		"layers":     {"measure these PHASES: prefill, decode or both (default: both)\n"},
	} {
		help := mustInfer(t, command, "--help").stdout
		for _, part := range want {
			if !strings.Contains(help, part) {
				t.Errorf("the help of %s lacks %q:\n%s", command, part, help)
			}
		}
	}
}

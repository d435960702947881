package cli

import (
	"os"
	"strings"

	"github.com/spf13/cobra"
)

// meantCommand returns the command line that a word, which is no command of c, was probably
// meant to be, or "": a mistyped command, a command of another command (infer report), the help
// of this one (infer trace help), or a recording ('infer trace run.json.gz').
func meantCommand(c *cobra.Command, word string) string {
	if word == "help" && c.HasParent() {
		return c.CommandPath() + " --help"
	}
	for _, other := range AllCommands(c.Root()) {
		if other.HasParent() && other.IsAvailableCommand() && other.Name() == word {
			return other.CommandPath()
		}
	}
	if c.SuggestionsMinimumDistance == 0 {
		c.SuggestionsMinimumDistance = 2
	}
	if near := c.SuggestionsFor(word); len(near) > 0 {
		return c.CommandPath() + " " + near[0]
	}
	if c.Name() == "trace" {
		if info, err := os.Stat(word); word == "-" || err == nil && info.Mode().IsRegular() {
			return c.CommandPath() + " show " + ShellQuote(word)
		}
	}
	return ""
}

// FlagsElsewhere are names of flags in llama.cpp, transformers and other programs, and the
// flags here that do the same.
var FlagsElsewhere = map[string]string{
	"n-predict": "tokens", "max-tokens": "tokens", "max-new-tokens": "tokens",
	"ctx-size": "context", "max-length": "context", "temperature": "temp", "repetition-penalty": "repeat-penalty",
	"n-probs": "logprobs", "top-logprobs": "logprobs", "reverse-prompt": "stop", "verbose-prompt": "echo",
	"conversation": "interactive", "torch-dtype": "dtype", "num-threads": "threads", "repetitions": "repeat",
	"gpu-layers": "device", "n-gpu-layers": "device", "ngl": "device", "output": "out", "output-file": "out",
	"batch-size": "batch", "model-path": "model", "sort-by": "sort", "row-limit": "limit", "file": "text",
}

// shorthandsElsewhere are flags of one letter of other programs, and the flags here that do the same.
var shorthandsElsewhere = map[string]string{"f": "text"}

// wordsElsewhere are flags of one dash of other programs for which there is none here, with
// what to give instead.
var wordsElsewhere = map[string]string{
	"pg": "-p measures a prefill and -n the generation of tokens, with -d tokens in the cache before it",
}

// flagHere returns the flag of a command that does what a flag of another program does, or "".
func flagHere(c *cobra.Command, name string) string {
	if here := FlagsElsewhere[strings.ReplaceAll(name, "_", "-")]; here != "" && c.Flags().Lookup(here) != nil {
		return here
	}
	return ""
}

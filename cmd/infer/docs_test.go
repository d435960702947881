package main

import (
	"slices"
	"strings"
	"testing"

	"gpt2scope/cmd/infer/cli"
)

// isQuoteOf tells whether a line of output has all words of a quoted line, in order. Columns may be left out of a quote, and parts of
// long names.
func isQuoteOf(quote, line string) bool {
	rest := strings.Fields(line)
	for _, word := range strings.Fields(quote) {
		i := slices.IndexFunc(rest, func(w string) bool { return strings.Contains(w, word) })
		if i < 0 {
			return false
		}
		rest = rest[i+1:]
	}
	return true
}

// What the pages quote of 'infer info' and of 'infer trace' on the samples is what they print.
func TestDocsQuotes(t *testing.T) {
	t.Chdir("../..")
	commands, quoted := 0, 0
	for _, path := range []string{"README.md", "docs/usage.md", "docs/reading-a-trace.md"} {
		page := readFile(t, path)
		var output []string // of the command above, nil if there is none
		for line := range strings.Lines(string(page)) {
			quote, ok := strings.CutPrefix(strings.TrimRight(line, "\n"), "    ")
			command, isCommand := strings.CutPrefix(quote, "$ infer ")
			switch {
			case ok && strings.HasPrefix(quote, "$ "):
				output = nil
				if isCommand && (command == "info" || strings.HasPrefix(command, "trace ")) {
					commands++
					output = strings.Split(mustInfer(t, strings.Fields(command)...).stdout, "\n")
				}
			case !ok && strings.TrimSpace(line) != "":
				output = nil
			case ok && output != nil:
				quoted++
				if !slices.ContainsFunc(output, func(line string) bool { return isQuoteOf(quote, line) }) {
					t.Errorf("%s quotes a line that its command does not print: %s", path, quote)
				}
			}
		}
	}
	if commands < 10 || quoted < 50 {
		t.Errorf("the pages quote %d lines of %d commands, expected 50 of 10 at least", quoted, commands)
	}
}

// docs/usage.md names each command that runs.
func TestDocsNameCommands(t *testing.T) {
	page := readFile(t, "../../docs/usage.md")
	named := 0
	for _, c := range cli.AllCommands(newRoot(&cli.ModelFlags{})) {
		if !c.Runnable() || !c.IsAvailableCommand() || c.HasParent() && c.Parent().Name() == "completion" {
			continue
		}
		if named++; !strings.Contains(string(page), "`"+c.CommandPath()) {
			t.Errorf("docs/usage.md does not name '%s'", c.CommandPath())
		}
	}
	if named < 30 {
		t.Errorf("%d commands, expected more than 30", named)
	}
}

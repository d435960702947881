// Package cli is what the commands of infer share: flags of model and device with their help and checks, flag types
// that say what they allow, usage errors, progress, and JSON on standard output.
package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Annotations of commands and flags.
const (
	groupKey = "group" // of a flag: its heading in the help
	UsesKey  = "uses"  // of a command: the root's flags that it and its own commands use (default: all)
	HelpKey  = "help " // of a command, before the name of a flag of the root: what it does there, for the help
)

// AddFlags registers flags under one heading of the help, in the order in which they are registered.
func AddFlags(f *pflag.FlagSet, heading string, register func(*pflag.FlagSet)) {
	f.SortFlags = false
	register(f)
	group := map[string][]string{groupKey: {heading}}
	f.VisitAll(func(flag *pflag.Flag) {
		if flag.Annotations == nil {
			flag.Annotations = group
		}
	})
}

// SetUsage gives the commands their help, completions and errors.
func SetUsage(root *cobra.Command) {
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetHelpFunc(func(c *cobra.Command, _ []string) { writeHelp(c.OutOrStdout(), c) })
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		if invalid := new(pflag.InvalidValueError); errors.As(err, &invalid) {
			allowed := map[string]string{"bool": "true or false", "uint64": "a whole number, at least 0",
				"intSlice": "whole numbers, such as 1,2", "duration": "a time such as 500ms, 20s or 5m"}[invalid.GetFlag().Value.Type()]
			if allowed != "" {
				return Usagef("--%s %s: it must be %s", invalid.GetFlag().Name, ShellQuote(invalid.GetValue()), allowed)
			}
			return Usagef("--%s %s: %w", invalid.GetFlag().Name, ShellQuote(invalid.GetValue()), errors.Unwrap(invalid))
		}
		return Usagef("%w; see '%s --help'", err, c.CommandPath())
	})
	if !root.HasSubCommands() {
		return
	}
	root.InitDefaultHelpCmd()
	help, _, _ := root.Find([]string{"help"})
	help.Args, help.Run, help.RunE = cobra.ArbitraryArgs, nil, func(_ *cobra.Command, args []string) error {
		c, rest, _ := root.Find(args)
		if len(rest) > 0 {
			return Usagef("there is no command '%s %s'; see '%[1]s --help'", c.CommandPath(), rest[0])
		}
		return c.Help()
	}
	root.InitDefaultCompletionCmd()
	completion, _, _ := root.Find([]string{"completion"})
	completion.Annotations, completion.Args = map[string]string{UsesKey: ""}, noWords
	for _, c := range AllCommands(root) {
		c.SuggestionsMinimumDistance = 2
		if c.Args == nil {
			c.Args = noWords
		}
		if !c.Runnable() {
			c.RunE = func(c *cobra.Command, _ []string) error {
				return Usagef("give a command; see '%s --help'", c.CommandPath())
			}
		}
	}
}

// OnlyFlags tells whether a command line gives a command flags and nothing else.
func OnlyFlags(c *cobra.Command, args []string) bool {
	c.InheritedFlags() // lists them with its own
	err := c.Flags().ParseAll(args, func(*pflag.Flag, string) error { return nil })
	return err == nil && len(args) > 0 && c.Flags().NArg() == 0
}

// CheckDashes refuses a long flag with one dash, which would be a short one and its value: -profile is -p rofile.
func CheckDashes(root *cobra.Command, args []string) error {
	c, args, _ := root.Find(args)
	c.InheritedFlags() // lists them with its own
	takesNext := func(f *pflag.Flag) bool { return f != nil && f.NoOptDefVal == "" }
	for isValue := false; len(args) > 0 && args[0] != "--"; args = args[1:] {
		word, long := strings.CutPrefix(args[0], "--")
		word, short := strings.CutPrefix(word, "-")
		name, _, hasValue := strings.Cut(word, "=")
		switch {
		case isValue:
			isValue = false
		case long:
			isValue = !hasValue && takesNext(c.Flags().Lookup(name))
		case short && len(word) == 1:
			isValue = takesNext(c.Flags().ShorthandLookup(word))
		case short && c.Flags().Lookup(name) != nil:
			return Usagef("-%s: a long flag has two dashes; did you mean --%[1]s?", name)
		}
	}
	return nil
}

// AllCommands returns a command and all below it.
func AllCommands(c *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{c}
	for _, sub := range c.Commands() {
		all = append(all, AllCommands(sub)...)
	}
	return all
}

// Uses tells whether a flag of the root, of model or device, does something in a command.
func Uses(c *cobra.Command, flag string) bool {
	for ; c != nil; c = c.Parent() {
		if names, ok := c.Annotations[UsesKey]; ok {
			return slices.Contains(strings.Fields(names), flag)
		}
	}
	return true
}

// CheckUsed refuses flags that do nothing in a command: who gives one expects something of it.
func CheckUsed(c *cobra.Command) (err error) {
	c.Root().PersistentFlags().VisitAll(func(f *pflag.Flag) {
		if err == nil && f.Changed && !Uses(c, f.Name) {
			err = Usagef("--%s does nothing in '%s'; leave it out", f.Name, c.CommandPath())
		}
	})
	return err
}

func writeHelp(w io.Writer, c *cobra.Command) {
	fmt.Fprintf(w, "%s\n\nUsage:\n  %s\n", cmp.Or(c.Long, c.Short), c.UseLine())
	if c.HasAvailableSubCommands() {
		fmt.Fprint(w, "\nCommands:\n")
		for _, sub := range c.Commands() {
			if sub.IsAvailableCommand() {
				fmt.Fprintf(w, "  %-10s %s\n", sub.Name(), sub.Short)
			}
		}
	}
	if c.HasExample() {
		fmt.Fprintf(w, "\nExamples:\n%s\n", c.Example)
	}
	var headings []string
	groups := map[string]*pflag.FlagSet{}
	add := func(f *pflag.Flag) {
		heading := "Other"
		if group := f.Annotations[groupKey]; group != nil {
			heading = group[0]
		}
		if groups[heading] == nil {
			groups[heading] = pflag.NewFlagSet("", pflag.ContinueOnError)
			groups[heading].SortFlags = false
			headings = append(headings, heading)
		}
		groups[heading].AddFlag(f)
	}
	local := c.LocalNonPersistentFlags()
	local.SortFlags = false
	local.VisitAll(add)
	c.Root().PersistentFlags().VisitAll(func(f *pflag.Flag) {
		if !Uses(c, f.Name) {
			return
		}
		if help := c.Annotations[HelpKey+f.Name]; help != "" {
			plain := *f
			plain.Usage, plain.DefValue = help, "" // it says the default
			f = &plain
		}
		add(f)
	})
	for _, heading := range headings {
		fmt.Fprintf(w, "\n%s:\n%s", heading, groups[heading].FlagUsagesWrapped(100))
	}
}

// noWords refuses words that are neither flags nor commands, with a hint.
func noWords(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := fmt.Sprintf("see '%s --help'", c.CommandPath())
	if near := c.SuggestionsFor(args[0]); len(near) > 0 {
		hint = fmt.Sprintf("did you mean '%s %s'?", c.CommandPath(), near[0])
	} else if !c.HasParent() {
		hint = "a prompt is given with -p " + ShellQuote(strings.Join(args, " "))
	}
	c.Flags().Visit(func(f *pflag.Flag) {
		if f.NoOptDefVal != "" && f.Value.Type() != "bool" {
			hint = fmt.Sprintf("a value of --%s stands after =: --%[1]s=%s", f.Name, ShellQuote(args[0]))
		}
	})
	return Usagef("unexpected word %q; %s", args[0], hint)
}

// Words says how many words a command takes, and what they are; most 0 is any number.
func Words(least, most int, what, usage string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		switch {
		case len(args) < least:
			return Usagef("give %s: %s %s", what, c.CommandPath(), usage)
		case most > 0 && len(args) > most:
			return Usagef("unexpected word %q; give %s only: %s %s", args[most], what, c.CommandPath(), usage)
		}
		return nil
	}
}

// ShellQuote quotes a text so that it can be pasted into a shell.
func ShellQuote(s string) string {
	plain := func(r rune) bool {
		return r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' || strings.ContainsRune("_-./:=,@%+", r)
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// IsQuiet reports whether --quiet was given.
func IsQuiet(c *cobra.Command) bool {
	quiet, _ := c.Flags().GetBool("quiet")
	return quiet
}

// Interruption is why a context was cancelled: a signal came.
type Interruption struct{ Signal syscall.Signal }

func (i Interruption) Error() string {
	if i.Signal == syscall.SIGINT {
		return "interrupted"
	}
	return i.Signal.String()
}

// UsageError is a mistake in the command line: an unknown word or flag, or a value that is wrong whatever the files
// hold and the machine has, or wrong for the model.
type UsageError struct{ error }

func (e UsageError) Unwrap() error { return e.error }

// GateError is a gate that found what it was to stop.
type GateError struct{ error }

// CommandStatus is the exit status of a command that was run for the user: the program's own, without a word.
type CommandStatus int

func (s CommandStatus) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

// Gatef makes a GateError.
func Gatef(format string, args ...any) error { return GateError{fmt.Errorf(format, args...)} }

// Usagef makes a UsageError.
func Usagef(format string, args ...any) error { return UsageError{fmt.Errorf(format, args...)} }

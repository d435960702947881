// Package cli is what the commands of infer share: flags of model and device with their help and checks, flag types that
// say what they allow, usage errors, progress, and JSON on standard output.
package cli

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Annotations of commands and flags.
const (
	groupKey    = "group"    // of a flag: its heading in the help
	ArgumentKey = "argument" // of a command: the flag that a bare word was probably meant for
	UsesKey     = "uses"     // of a command: the root's flags that it and its own commands use (default: all)
	HelpKey     = "help "    // of a command, before the name of a flag of the root: what it does there, for the help
)

// AddFlags registers flags under one heading of the help, in the order in which they are registered.
func AddFlags(f *pflag.FlagSet, heading string, register func(*pflag.FlagSet)) {
	group := pflag.NewFlagSet("", pflag.ContinueOnError)
	group.SortFlags, f.SortFlags = false, false
	register(group)
	group.VisitAll(func(flag *pflag.Flag) { flag.Annotations = map[string][]string{groupKey: {heading}} })
	f.AddFlagSet(group)
}

// SetUsage gives the commands their help, completions and errors.
func SetUsage(root *cobra.Command) {
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetHelpCommand(&cobra.Command{
		Use:         "help [COMMAND | flags]",
		Short:       "Show help, of the program, of a command, or of all flags",
		Annotations: map[string]string{UsesKey: ""},
		RunE: func(c *cobra.Command, args []string) error {
			if slices.Equal(args, []string{"flags"}) {
				return WriteOutput(root.OutOrStdout(), []byte(strings.TrimPrefix(flagHelp(root), "\n")))
			}
			of, rest, err := root.Find(args)
			if err != nil || len(rest) > 0 {
				return noArgs(root, args)
			}
			return of.Help()
		},
	})
	root.InitDefaultHelpCmd()
	root.SetHelpFunc(func(c *cobra.Command, _ []string) { writeHelp(c.OutOrStdout(), c) })
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error { return UsageError{flagError(c, err)} })
	root.InitDefaultCompletionCmd()
	completion, _, _ := root.Find([]string{"completion"})
	completion.Annotations = map[string]string{UsesKey: ""}
	completion.Args, completion.RunE = NeedsCommand, Refused
	root.Flags().BoolP("version", "v", false, "print the version")
	for _, c := range AllCommands(root) {
		c.SuggestionsMinimumDistance = 2
		if c.Flags().Lookup("help") == nil {
			c.Flags().BoolP("help", "h", false, "print this help")
		}
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if v, ok := f.Value.(interface{ Words() []string }); ok && len(v.Words()) > 0 {
				directive := cobra.ShellCompDirectiveNoFileComp
				if f.Name == "model" { // files complete it too
					directive = cobra.ShellCompDirectiveDefault
				}
				_ = c.RegisterFlagCompletionFunc(f.Name, cobra.FixedCompletions(v.Words(), directive))
			}
		})
		if c.Args == nil && c.Name() != "help" {
			c.Args = noArgs
		}
	}
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

// commonFlags are those that the help of the program shows; 'infer help flags' shows all.
var commonFlags = []string{"prompt", "file", "tokens", "interactive", "temp", "seed", "model", "layers", "device", "profile", "json", "help"}

// writeHelp writes the help of a command.
func writeHelp(w io.Writer, c *cobra.Command) {
	var b strings.Builder
	text := c.Long
	if text == "" {
		text = c.Short + "."
	}
	fmt.Fprintf(&b, "%s\n\nUsage:\n  %s\n", text, c.UseLine())
	if c.HasAvailableSubCommands() {
		fmt.Fprint(&b, "\nCommands:\n")
		for _, sub := range c.Commands() {
			if sub.IsAvailableCommand() || sub.Name() == "help" {
				fmt.Fprintf(&b, "  %-10s %s\n", sub.Name(), sub.Short)
			}
		}
	}
	if c.HasExample() {
		fmt.Fprintf(&b, "\nExamples:\n%s\n", c.Example)
	}
	if c == c.Root() {
		common := pflag.NewFlagSet("", pflag.ContinueOnError)
		common.SortFlags = false
		for _, name := range commonFlags {
			common.AddFlag(c.Flag(name))
		}
		fmt.Fprintf(&b, "\nFlags used most ('infer help flags' lists all: sampling, profiles, devices and more):\n%s", common.FlagUsages())
	} else {
		b.WriteString(flagHelp(c))
	}
	if c.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "\nExit status: 0, 1 if something failed, 2 if a flag, its value or a word is wrong, 130 after Ctrl-C.\n'%s COMMAND --help' explains a command.\n", c.CommandPath())
	}
	io.WriteString(w, b.String())
}

// flagHelp describes all flags of a command, under their headings.
func flagHelp(c *cobra.Command) string {
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
	c.LocalFlags().VisitAll(add)
	if c != c.Root() {
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
	}
	if i := slices.Index(headings, "Other"); i >= 0 {
		headings = append(slices.Delete(headings, i, i+1), "Other")
	}
	var b strings.Builder
	for _, heading := range headings {
		fmt.Fprintf(&b, "\n%s:\n%s", heading, groups[heading].FlagUsages())
	}
	return b.String()
}

// CheckDashes refuses a long flag with one dash, which would be taken as short flags: -prompt=x as -p rompt=x.
func CheckDashes(root *cobra.Command, args []string) error {
	for _, arg := range args {
		name, _, _ := strings.Cut(strings.TrimPrefix(arg, "-"), "=")
		if arg == "--" {
			break
		}
		if len(name) < 2 || arg[0] != '-' {
			continue
		}
		for _, c := range AllCommands(root) {
			if c.Flags().Lookup(name) != nil || c.PersistentFlags().Lookup(name) != nil {
				return Usagef("-%s: a flag of more than one letter has two dashes: --%s", name, name)
			}
		}
	}
	return nil
}

// noArgs refuses words that are neither flags nor commands, with a hint.
func noArgs(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	word, hint := args[0], ""
	c.Flags().Visit(func(f *pflag.Flag) {
		if f.NoOptDefVal != "" && !strings.HasPrefix(f.Value.Type(), "bool") {
			hint = fmt.Sprintf("; a value of --%s stands after =: --%s=%s", f.Name, f.Name, ShellQuote(word))
		}
	})
	switch near := c.SuggestionsFor(word); {
	case hint != "":
	case len(near) > 0:
		hint = fmt.Sprintf("; did you mean '%s %s'?", c.CommandPath(), near[0])
	case c.Annotations[ArgumentKey] != "":
		hint = fmt.Sprintf("; did you mean %s %s?", c.Annotations[ArgumentKey], ShellQuote(word))
	case c.HasAvailableSubCommands():
		hint = fmt.Sprintf("; commands of '%s' are %s", c.CommandPath(), strings.Join(namesOf(c), ", "))
	default:
		hint = fmt.Sprintf("; see '%s --help'", c.CommandPath())
	}
	if !c.HasParent() && !strings.Contains(hint, "=") {
		hint += fmt.Sprintf("; a prompt is given with -p %s", ShellQuote(strings.Join(args, " ")))
	}
	return Usagef("unexpected word %q%s", word, hint)
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

// NeedsCommand refuses all arguments of a command that does nothing by itself: cobra takes the names of its own commands
// before.
func NeedsCommand(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return Usagef("give a command: %s; see '%s --help'", strings.Join(namesOf(c), ", "), c.CommandPath())
	}
	return noArgs(c, args)
}

// Refused is the RunE of a command whose Args refuses all: cobra calls Args only of commands that run.
func Refused(*cobra.Command, []string) error { return nil }

// namesOf returns the names of a command's own commands.
func namesOf(c *cobra.Command) (names []string) {
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			names = append(names, sub.Name())
		}
	}
	return names
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

// flagError says in our words what was wrong with a flag: its name, its value, and what is allowed.
func flagError(c *cobra.Command, err error) error {
	see := fmt.Sprintf("see '%s --help'", c.CommandPath())
	if !c.HasParent() {
		see = "see 'infer help flags'"
	}
	var invalid *pflag.InvalidValueError
	var unknown *pflag.NotExistError
	switch {
	case errors.As(err, &invalid):
		allowed := map[string]string{"uint64": "a whole number, 0 or more, of at most 20 digits", "bool": "true or false", "int": "a whole number", "intSlice": "whole numbers, such as 1,2"}[invalid.GetFlag().Value.Type()]
		if of := NotAllowed(""); errors.As(err, &of) {
			allowed = string(of)
		}
		if allowed == "" {
			return fmt.Errorf("--%s %s: %w", invalid.GetFlag().Name, ShellQuote(invalid.GetValue()), errors.Unwrap(invalid))
		}
		return fmt.Errorf("--%s %s: it must be %s", invalid.GetFlag().Name, ShellQuote(invalid.GetValue()), allowed)
	case errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() == "":
		others := AllCommands(c.Root())
		if c.HasParent() { // the nearest first
			others = append(AllCommands(c.Parent()), others...)
		}
		for _, other := range others {
			if name := unknown.GetSpecifiedName(); other != c && other.Flags().Lookup(name) != nil {
				return fmt.Errorf("'%s' has no flag --%s; '%s' has it", c.CommandPath(), name, other.CommandPath())
			}
		}
	}
	return fmt.Errorf("%w; %s", err, see)
}

// IsQuiet reports whether --quiet was given.
func IsQuiet(c *cobra.Command) bool {
	quiet, _ := c.Flags().GetBool("quiet")
	return quiet
}

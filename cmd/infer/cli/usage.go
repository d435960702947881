// Package cli is what the commands of infer share: flags of model and device with their help and checks, usage errors, progress,
// tables and JSON on standard output.
package cli

import (
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"gpt2scope/traces/tables"
)

// Annotations of commands and flags.
const (
	groupKey    = "group"    // of a flag: its heading in the help
	ArgumentKey = "argument" // of a command: the flag that a bare word was probably meant for
	UsesKey     = "uses"     // of a command: the root's flags that it and its own commands use (default: all)
	HelpKey     = "help "    // of a command, before the name of a flag of the root: what it does there, for the help
)

// oldNames are names that flags had, which commands with the flag of today still take.
var oldNames = map[string]string{"record": "recorder", "recorders": "recorder"}

// newName returns the present name of a flag.
func newName(_ *pflag.FlagSet, name string) pflag.NormalizedName {
	if now, ok := oldNames[name]; ok {
		name = now
	}
	return pflag.NormalizedName(name)
}

// AddFlags registers flags under one heading of the help, in the
// order in which they are registered.
func AddFlags(f *pflag.FlagSet, heading string, register func(*pflag.FlagSet)) {
	group := pflag.NewFlagSet("", pflag.ContinueOnError)
	group.SortFlags, f.SortFlags = false, false
	register(group)
	group.VisitAll(func(flag *pflag.Flag) { flag.Annotations = map[string][]string{groupKey: {heading}} })
	f.AddFlagSet(group)
}

// SetUsage gives the commands their help and the words for wrong usage.
func SetUsage(root *cobra.Command) {
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SuggestionsMinimumDistance = 2
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
				return unknownCommand(root, rest)
			}
			return of.Help()
		},
	})
	root.InitDefaultHelpCmd()
	root.SetHelpFunc(func(c *cobra.Command, _ []string) { writeHelp(c.OutOrStdout(), c) })
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error { return UsageError{flagError(c, err)} })
	root.InitDefaultCompletionCmd()
	completion, _, _ := root.Find([]string{"completion"})
	completion.Short = "Write a script for a shell to complete commands and flags"
	completion.Annotations = map[string]string{UsesKey: ""}
	completion.Long = `completion writes a script with which a shell completes commands, flags and the values of
flags. 'infer completion bash --help' (zsh, fish, powershell) says how to load it.`
	completion.Args, completion.RunE, completion.SuggestionsMinimumDistance = NeedsCommand, Refused, 1
	for _, shell := range completion.Commands() {
		shell.Short = "Write the script for " + shell.Name()
	}
	root.Args = noArgs
	root.Flags().BoolP("version", "v", false, "print the version")
	for _, c := range AllCommands(root) {
		if c.Flags().Lookup(oldNames["record"]) != nil { // of others, such as learn, --record is a flag of its own
			c.Flags().SetNormalizeFunc(newName)
		}
		if c.Flags().Lookup("help") == nil {
			c.Flags().BoolP("help", "h", false, "print this help")
		}
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			_, of := flagValues[f.Name]
			_, here := flagValues[strings.TrimPrefix(c.CommandPath(), root.Name()+" ")+" --"+f.Name]
			if of || here { // an error would be that it has completions of its own
				_ = c.RegisterFlagCompletionFunc(f.Name, completeFlag(f.Name))
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
		if !strings.Contains(c.Use, "COMMAND") { // it does something by itself too
			fmt.Fprintf(&b, "  %s COMMAND [flags]\n", c.CommandPath())
		}
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
			common.AddFlag(withoutDefault(c.Flag(name)))
		}
		fmt.Fprintf(&b, "\nFlags used most ('infer help flags' lists all: sampling, profiles, devices and more):\n%s", optionalValues(common.FlagUsages()))
	} else {
		b.WriteString(flagHelp(c))
	}
	if c.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "\nExit status: 0, 1 if something failed, 2 if a flag, its value or a word is wrong, 130 after Ctrl-C.\n'%s COMMAND --help' explains a command.\n", c.CommandPath())
		if c == c.Root() {
			fmt.Fprint(&b, "'infer completion bash --help' says how a shell completes commands and flags.\n")
		}
	}
	io.WriteString(w, b.String())
}

// withoutDefault returns a flag for the help: without the default that pflag would append, if the
// description states it.
func withoutDefault(f *pflag.Flag) *pflag.Flag {
	if !strings.Contains(f.Usage, "(default") {
		return f
	}
	plain := *f
	switch f.Value.Type() { // the values that pflag shows as none
	case "string":
		plain.DefValue = ""
	case "stringSlice", "stringArray", "intSlice":
		plain.DefValue = "[]"
	default:
		plain.DefValue = "0"
	}
	return &plain
}

// flagHelp describes all flags of a command, under their headings.
func flagHelp(c *cobra.Command) string {
	var b strings.Builder
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
		groups[heading].AddFlag(withoutDefault(f))
	}
	c.LocalFlags().VisitAll(add)
	if c != c.Root() {
		c.Root().PersistentFlags().VisitAll(func(f *pflag.Flag) {
			if !Uses(c, f.Name) {
				return
			}
			if f.Name == "quiet" && !Uses(c, "model") && !Uses(c, "device") { // its heading is of these
				plain := *f
				plain.Annotations = nil
				f = &plain
			}
			if help := c.Annotations[HelpKey+f.Name]; help != "" {
				plain := *f
				plain.Usage = help
				f = &plain
			}
			add(f)
		})
	}
	if i := slices.Index(headings, "Other"); i >= 0 {
		headings = append(slices.Delete(headings, i, i+1), "Other")
	}
	for _, heading := range headings {
		fmt.Fprintf(&b, "\n%s:\n%s", heading, optionalValues(groups[heading].FlagUsages()))
	}
	return b.String()
}

var optionalValue = regexp.MustCompile(`(--\S+) (\w+)(\[=[^\]]*\])`)

// optionalValues writes --profile[=WHAT] in the help for --profile WHAT[="folded"], as pflag has
// it, and moves the descriptions to the left by what that saves.
func optionalValues(usages string) string {
	if !optionalValue.MatchString(usages) {
		return usages
	}
	var lines []string
	widest, column := 0, 0 // of the flags; of the descriptions
	for line := range strings.Lines(usages) {
		if m := optionalValue.FindStringSubmatch(line); m != nil {
			line = strings.Replace(line, m[0], fmt.Sprintf("%-*s", len(m[0]), m[1]+"[="+m[2]+"]"), 1)
		}
		lines = append(lines, line)
		if at := len(line) - len(strings.TrimLeft(line, " ")); at > 8 { // the description goes on
			column = at
		}
	}
	for _, line := range lines {
		widest = max(widest, len(strings.TrimRight(line[:min(column, len(line))], " ")))
	}
	for i, line := range lines {
		if at := widest + 3; at < column {
			lines[i] = line[:at] + line[column:]
		}
	}
	return strings.Join(lines, "")
}

// noArgs refuses words that are neither flags nor commands, with a hint.
func noArgs(c *cobra.Command, args []string) error {
	switch {
	case len(args) == 0:
		return nil
	case c == c.Root():
		return unknownCommand(c, args)
	case c.Annotations[ArgumentKey] != "":
		return Usagef("unexpected word %q; did you mean %s %s?", args[0], c.Annotations[ArgumentKey], ShellQuote(args[0]))
	}
	if meant := meantCommand(c, args[0]); meant != "" && c.HasAvailableSubCommands() {
		return Usagef("unexpected word %q; did you mean '%s'?", args[0], meant)
	}
	if c.HasAvailableSubCommands() {
		return Usagef("unexpected word %q; commands of '%s' are %s", args[0], c.CommandPath(), strings.Join(namesOf(c), ", "))
	}
	return Usagef("unexpected word %q; see '%s --help'", args[0], c.CommandPath())
}

// unknownCommand suggests the command that a word was probably meant to be.
func unknownCommand(root *cobra.Command, words []string) error {
	if meant := meantCommand(root, words[0]); meant != "" {
		return Usagef("there is no command %q; did you mean '%s'?", words[0], meant)
	}
	return Usagef("there is no command %q; commands are %s; a prompt is given with -p %s",
		words[0], strings.Join(namesOf(root), ", "), ShellQuote(strings.Join(words, " ")))
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

// CheckWords finds mistakes that cobra would report as something else: a
// mistyped command, whose flags it would take for the root's; and a long flag
// with one dash, which it would take for a short flag with a value, such as
// -prompt for -p with the value "rompt".
func CheckWords(root *cobra.Command, args []string) error {
	if len(args) > 0 && args[0] != "" && args[0][0] != '-' && !isCommand(root, args[0]) {
		words := args
		if i := slices.IndexFunc(args, func(s string) bool { return strings.HasPrefix(s, "-") }); i > 0 {
			words = args[:i]
		}
		return unknownCommand(root, words)
	}
	long, takesValue, isBool := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, c := range AllCommands(root) {
		for _, flags := range []*pflag.FlagSet{c.Flags(), c.PersistentFlags()} {
			flags.VisitAll(func(f *pflag.Flag) {
				long[f.Name] = true
				isBool["--"+f.Name] = strings.HasPrefix(f.Value.Type(), "bool")
				if f.NoOptDefVal == "" {
					takesValue["--"+f.Name] = true
					takesValue["-"+f.Shorthand] = f.Shorthand != ""
				}
			})
		}
	}
	for i, arg := range args {
		if arg == "--" {
			break
		}
		if i > 0 && takesValue[args[i-1]] { // the value of a flag
			continue
		}
		if i > 0 && isBool[args[i-1]] && (arg == "true" || arg == "false") {
			return Usagef("%s %s: this flag takes a value only after =; write %s=%s", args[i-1], arg, args[i-1], ShellQuote(arg))
		}
		name, isSingle := strings.CutPrefix(arg, "-")
		name, _, _ = strings.Cut(name, "=")
		if isSingle && len(name) > 1 && long[name] {
			return Usagef("%s has one dash; write --%s", arg, name)
		}
		if here := FlagsElsewhere[name]; isSingle && len(name) > 1 && here != "" {
			return Usagef("there is no flag -%s; did you mean --%s?", name, here)
		}
		if instead := wordsElsewhere[name]; isSingle && instead != "" {
			return Usagef("there is no flag -%s; %s", name, instead)
		}
	}
	return nil
}

// optionalWords are the flags whose value may be left out, with what a value is.
var optionalWords = map[string]func(string) bool{
	"--logprobs": func(s string) bool { _, err := strconv.ParseUint(s, 10, 64); return err == nil },
	"--profile":  func(s string) bool { return slices.Contains(tables.Bys, tables.By(s)) },
}

// JoinValues writes "--logprobs 5" as "--logprobs=5": a flag whose value may be left out
// takes none that stands apart.
func JoinValues(args []string) []string {
	var joined []string
	for i := 0; i < len(args); i++ {
		arg := args[i]
		if arg == "--" {
			return append(joined, args[i:]...)
		}
		if fits := optionalWords[arg]; fits != nil && i+1 < len(args) && fits(args[i+1]) {
			i++
			arg += "=" + args[i]
		}
		joined = append(joined, arg)
	}
	return joined
}

// isCommand tells whether cobra knows a command of this name; some it adds
// only when it runs.
func isCommand(root *cobra.Command, name string) bool {
	known := []string{cobra.ShellCompRequestCmd, cobra.ShellCompNoDescRequestCmd}
	for _, c := range root.Commands() {
		known = append(known, c.Name())
	}
	return slices.Contains(known, name)
}

// flagError says in our words what was wrong with a flag.
func flagError(c *cobra.Command, err error) error {
	see := fmt.Sprintf("see '%s --help'", c.CommandPath())
	if !c.HasParent() {
		see = "see 'infer help flags'"
	}
	var invalid *pflag.InvalidValueError
	var missing *pflag.ValueRequiredError
	var unknown *pflag.NotExistError
	switch {
	case errors.As(err, &invalid):
		kind := map[string]string{"int": "a whole number", "uint64": "a whole number, 0 or more", "float64": "a number", "bool": "true or false"}[invalid.GetFlag().Value.Type()]
		if errors.Is(err, strconv.ErrRange) {
			kind = map[string]string{"int": fmt.Sprintf("a whole number from %d to %d", math.MinInt, math.MaxInt), "uint64": fmt.Sprintf("a whole number from 0 to %d", uint64(math.MaxUint64)),
				"float64": fmt.Sprintf("a number from %.1e to %.1e", -math.MaxFloat64, math.MaxFloat64)}[invalid.GetFlag().Value.Type()]
		}
		return fmt.Errorf("--%s %s: it must be %s", invalid.GetFlag().Name, ShellQuote(invalid.GetValue()), kind)
	case errors.As(err, &missing) && missing.GetSpecifiedShortnames() != "":
		return fmt.Errorf("-%s needs a value; %s", missing.GetSpecifiedName(), see)
	case errors.As(err, &missing):
		return fmt.Errorf("--%s needs a value; %s", missing.GetSpecifiedName(), see)
	case errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() != "":
		if here := shorthandsElsewhere[unknown.GetSpecifiedName()]; here != "" && c.Flags().Lookup(here) != nil {
			return fmt.Errorf("'%s' has no flag -%s; did you mean --%s?", c.CommandPath(), unknown.GetSpecifiedName(), here)
		}
		return fmt.Errorf("'%s' has no flag -%s; %s", c.CommandPath(), unknown.GetSpecifiedName(), see)
	case errors.As(err, &unknown):
		name := unknown.GetSpecifiedName()
		if meant := flagHere(c, name); meant != "" {
			return fmt.Errorf("'%s' has no flag --%s; did you mean --%s?", c.CommandPath(), name, meant)
		}
		others := AllCommands(c.Root())
		if c.HasParent() {
			others = append(AllCommands(c.Parent()), others...) // the nearest first
		}
		for _, other := range others {
			if other != c && other.Flags().Lookup(name) != nil {
				return fmt.Errorf("'%s' has no flag --%s; '%s' has it", c.CommandPath(), name, other.CommandPath())
			}
		}
		if near := nearestFlag(c, name); near != "" {
			return fmt.Errorf("'%s' has no flag --%s; did you mean --%s?", c.CommandPath(), name, near)
		}
		return fmt.Errorf("'%s' has no flag --%s; %s", c.CommandPath(), name, see)
	}
	return fmt.Errorf("%w; %s", err, see)
}

// nearestFlag returns the flag of a command that begins with the same letter and
// is at most two letters off, or "".
func nearestFlag(c *cobra.Command, name string) string {
	best, least := "", 3
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if d := Distance(name, f.Name); d < least && f.Name[0] == name[0] {
			best, least = f.Name, d
		}
	})
	return best
}

// Distance is the Levenshtein distance: how many letters to insert, remove or
// replace to make a into b.
func Distance(a, b string) int {
	row := make([]int, len(b)+1) // of the prefix of a read so far, to each prefix of b
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replace := diagonal
			if a[i] != b[j] {
				replace++
			}
			diagonal = row[j+1]
			row[j+1] = min(replace, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// NeedsCommand refuses all arguments of a command that does nothing by itself: cobra takes the
// names of its own commands before.
func NeedsCommand(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return Usagef("give a command: %s; see '%s --help'", strings.Join(namesOf(c), ", "), c.CommandPath())
	}
	if meant := meantCommand(c, args[0]); meant != "" {
		return Usagef("there is no command '%s %s'; did you mean '%s'?", c.CommandPath(), args[0], meant)
	}
	return Usagef("there is no command '%s %s'; commands are %s", c.CommandPath(), args[0], strings.Join(namesOf(c), ", "))
}

// Refused is the RunE of a command whose Args refuses all: cobra calls Args only of commands
// that run.
func Refused(*cobra.Command, []string) error { return nil }

// namesOf returns the names of a command's own commands.
func namesOf(c *cobra.Command) []string {
	var names []string
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			names = append(names, sub.Name())
		}
	}
	return names
}

// IsQuiet reports whether --quiet was given.
func IsQuiet(c *cobra.Command) bool {
	quiet, _ := c.Flags().GetBool("quiet")
	return quiet
}

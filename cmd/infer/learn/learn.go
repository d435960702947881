// Package learn is 'infer learn': it tests claims about GPU profiling on this machine.
package learn

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"gpt2scope/cmd/infer/cli"
	"gpt2scope/cuda"
	"gpt2scope/internal/humanize"
	"gpt2scope/internal/table"
	"gpt2scope/learn"
	"gpt2scope/learn/page"
)

// learnFlags are those of "infer learn".
type learnFlags struct {
	all, source, json bool
	record, from, out string
}

// New makes "infer learn".
func New(m *cli.ModelFlags) *cobra.Command {
	var l learnFlags
	c := &cobra.Command{
		Use:   "learn [NUMBER ...]",
		Short: "Show what people believe about GPU profiling true or false on this machine",
		Long: `learn has lessons: claims about CPUs, GPUs and profilers as lecture notes have them, some
true, some misleading, some wrong. Each is an experiment of seconds, whose data give a
verdict: shown, refuted, or cannot be shown here. 'infer learn' lists the claims;
'infer learn 6' tests one and explains what is found.

--out writes a page with pictures, learn.html, and all that was measured, learn.json.

Without a GPU, the experiments of the CPU run, and those of a GPU are judged from a
recording that ships; its machine and date stand with the result. --record writes such a
recording of this machine, --from judges one.`,
		Example: `  infer learn
  infer learn 6
  infer learn 6 --source
  infer learn --all -o lessons
  infer learn --all --record lessons.json.gz`,
		Annotations: map[string]string{cli.UsesKey: "device quiet", cli.HelpKey + "device": "`DEVICE`: auto (the CPU, and the GPU if it can be used), cpu, or\na GPU: cuda or cuda:N"},
		Args:        cobra.ArbitraryArgs,
		ValidArgsFunction: func(*cobra.Command, []string, string) (numbers []cobra.Completion, _ cobra.ShellCompDirective) {
			for _, l := range learn.All() {
				numbers = append(numbers, cobra.CompletionWithDesc(strconv.Itoa(l.Number), l.Claim))
			}
			return numbers, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(c *cobra.Command, args []string) error {
			lessons, err := l.choose(args)
			if err != nil {
				return err
			}
			switch {
			case m.Device == "reference":
				return cli.Usagef("--device reference: lessons run on the CPU and on a GPU; use auto, cpu or cuda")
			case l.source && (l.json || l.record != "" || l.from != "" || l.out != ""):
				return cli.Usagef("--source prints CUDA C++ and runs nothing; leave out --json, --record, --from and --out")
			case l.source:
				return l.showSource(c, lessons)
			case len(lessons) == 0:
				return l.list(c)
			}
			return l.run(c, m, lessons)
		},
	}
	cli.AddFlags(c.Flags(), "Lessons", func(f *pflag.FlagSet) {
		f.BoolVar(&l.all, "all", false, "run all lessons")
		f.StringVar(&l.from, "from", "", "judge the recording `FILE` and measure nothing")
	})
	cli.AddFlags(c.Flags(), "Output", func(f *pflag.FlagSet) {
		f.StringVarP(&l.out, "out", "o", "", "write a page with pictures into the directory `DIR`")
		f.StringVar(&l.record, "record", "", "write what was measured to `FILE`")
		f.BoolVar(&l.source, "source", false, "print the CUDA C++ of the lessons and run nothing")
		f.BoolVar(&l.json, "json", false, "print one JSON object, with the measured data")
	})
	c.AddCommand(newLearnProgram())
	return c
}

// newLearnProgram makes the command that lessons run in processes of their own.
func newLearnProgram() *cobra.Command {
	return &cobra.Command{
		Use: "program NAME [WORD ...]", Hidden: true,
		Short:       "Run a part of a lesson that needs a process of its own",
		Example:     "  infer learn program NAME",
		Annotations: map[string]string{cli.UsesKey: ""},
		Args:        cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cli.Usagef("name a program of a lesson")
			}
			program := learn.FindProgram(args[0])
			if program == nil {
				return cli.Usagef("no lesson has a program %q", args[0])
			}
			return program(c.Context(), args[1:], c.OutOrStdout())
		},
	}
}

// choose returns the lessons that were named, none for the list.
func (l *learnFlags) choose(args []string) ([]*learn.Lesson, error) {
	if l.all || l.source && len(args) == 0 {
		if len(args) > 0 {
			return nil, cli.Usagef("--all takes no numbers of lessons; leave out %s", strings.Join(args, " "))
		}
		return learn.All(), nil
	}
	if len(args) == 0 && (l.record != "" || l.from != "" || l.out != "") {
		return nil, cli.Usagef("name a lesson, such as '6', or give --all")
	}
	var lessons []*learn.Lesson
	for _, arg := range args {
		n, err := strconv.Atoi(arg)
		lesson := learn.Find(n)
		if err != nil || lesson == nil {
			return nil, cli.Usagef("there is no lesson %s; 'infer learn' lists all", cli.ShellQuote(arg))
		}
		if !slices.Contains(lessons, lesson) {
			lessons = append(lessons, lesson)
		}
	}
	return lessons, nil
}

// LearnJSON is what --json prints.
type LearnJSON struct {
	Lessons []learn.Result `json:"lessons"`
}

func (l *learnFlags) list(c *cobra.Command) error {
	var b bytes.Buffer
	out := LearnJSON{[]learn.Result{}}
	for _, lesson := range learn.All() {
		out.Lessons = append(out.Lessons, learn.Result{Number: lesson.Number, Claim: lesson.Claim})
		var claim bytes.Buffer
		wrap(&claim, "     ", lesson.Claim)
		fmt.Fprintf(&b, "%3d%s", lesson.Number, claim.Bytes()[3:])
	}
	if l.json {
		return cli.WriteJSON(c.OutOrStdout(), out)
	}
	fmt.Fprintf(&b, "\nTrue or false? 'infer learn %d' finds out.\n", learn.All()[0].Number)
	return cli.WriteOutput(c.OutOrStdout(), b.Bytes())
}

func (l *learnFlags) showSource(c *cobra.Command, lessons []*learn.Lesson) error {
	var b bytes.Buffer
	for _, lesson := range lessons {
		if lesson.GPU == nil || len(lesson.GPU.Sources) == 0 {
			continue
		}
		for _, s := range lesson.GPU.Sources {
			fmt.Fprintf(&b, "// Lesson %d: %s\n// %s\n\n%s\n", lesson.Number, lesson.Claim, s.Name, s.Text)
		}
	}
	if b.Len() == 0 {
		return errors.New("there is no CUDA C++ to show: the lesson records runs of this program, or asks other tools")
	}
	return cli.WriteOutput(c.OutOrStdout(), b.Bytes())
}

// environment is what lessons may use on this machine.
func (l *learnFlags) environment(m *cli.ModelFlags) (*learn.Env, error) {
	e := &learn.Env{NoGPU: "--device cpu was given"}
	if self, err := os.Executable(); err == nil {
		e.Self, e.Infer = []string{self, "learn", "program"}, []string{self}
	}
	if m.Device == "cpu" {
		return e, nil
	}
	err := func() error {
		lib, err := cuda.Open()
		if err != nil {
			return err
		}
		e.Device, err = lib.Device(m.GPUIndex())
		return err
	}()
	if err != nil && m.Device != "auto" {
		return nil, fmt.Errorf("--device %s: %w", m.Device, err)
	}
	if err != nil {
		e.NoGPU = err.Error()
	}
	return e, nil
}

func (l *learnFlags) run(c *cobra.Command, m *cli.ModelFlags, lessons []*learn.Lesson) error {
	if l.record != "" {
		if l.from != "" {
			return cli.Usagef("--from measures nothing, so that --record has nothing to write; leave out one of them")
		}
		if err := cli.CheckWritable("--record", l.record); err != nil {
			return err
		}
	}
	if l.out != "" {
		if err := os.MkdirAll(l.out, 0o777); err != nil {
			return fmt.Errorf("--out %s: %w", cli.ShellQuote(l.out), humanize.Cause(err))
		}
		if err := cli.CheckWritable("--out", filepath.Join(l.out, "learn.html")); err != nil {
			return err
		}
	}
	result, err := l.recorded(c.Context())
	if err != nil {
		return err
	}
	if l.from == "" {
		if result, err = l.measured(c.Context(), m, c.ErrOrStderr()); err != nil {
			return err
		}
	}
	var results []learn.Result
	recording := learn.Recording{}
	reasons := map[string]bool{}
	for i, lesson := range lessons {
		r, err := result(lesson)
		if err != nil {
			return err
		}
		results = append(results, r)
		recording.Add(r)
		if !l.json {
			text := lessonText(r, reasons)
			if i > 0 {
				text = append([]byte{'\n'}, text...)
			}
			if err := cli.WriteOutput(c.OutOrStdout(), text); err != nil {
				return err
			}
		}
	}
	if l.json {
		if err := cli.WriteJSON(c.OutOrStdout(), LearnJSON{results}); err != nil {
			return err
		}
	}
	return cmp.Or(l.write(c, m, &recording), l.writePage(c, results), failures(results))
}

// recorded judges lessons from the file of --from.
func (l *learnFlags) recorded(ctx context.Context) (func(*learn.Lesson) (learn.Result, error), error) {
	if l.from == "" {
		return nil, nil
	}
	r, err := learn.ReadFile(ctx, l.from)
	if err != nil {
		return nil, fmt.Errorf("--from %s: %w", cli.ShellQuote(l.from), humanize.Cause(err))
	}
	return func(lesson *learn.Lesson) (learn.Result, error) { return learn.Judge(ctx, lesson, r) }, nil
}

// measured runs lessons.
func (l *learnFlags) measured(ctx context.Context, m *cli.ModelFlags, stderr io.Writer) (func(*learn.Lesson) (learn.Result, error), error) {
	e, err := l.environment(m)
	if err != nil {
		return nil, err
	}
	shipped, err := learn.Shipped()
	if err != nil {
		return nil, err
	}
	machine := learn.FindMachine(e.Device)
	return func(lesson *learn.Lesson) (learn.Result, error) {
		defer m.Spin(stderr, fmt.Sprintf("lesson %d", lesson.Number))()
		return learn.Run(ctx, e, lesson, machine, shipped)
	}, nil
}

// write writes the file of --record.
func (l *learnFlags) write(c *cobra.Command, m *cli.ModelFlags, r *learn.Recording) error {
	if l.record == "" {
		return nil
	}
	if r.Lessons == nil {
		return fmt.Errorf("--record %s: nothing was measured", cli.ShellQuote(l.record))
	}
	var dev *cuda.Device
	if e, err := l.environment(m); err == nil {
		dev = e.Device
	}
	r.Created, r.Machine = time.Now().UTC().Truncate(time.Second), learn.FindMachine(dev)
	return cli.WriteFile(c.Context(), l.record, r.Write)
}

// writePage writes the files of --out.
func (l *learnFlags) writePage(c *cobra.Command, results []learn.Result) error {
	if l.out == "" {
		return nil
	}
	file := filepath.Join(l.out, "learn.html")
	err := cmp.Or(
		cli.WriteFile(c.Context(), filepath.Join(l.out, "learn.json"), func(w io.Writer) error { return cli.WriteJSON(w, LearnJSON{results}) }),
		cli.WriteFile(c.Context(), file, func(w io.Writer) error { return page.Write(w, results) }))
	if err == nil && !cli.IsQuiet(c) {
		fmt.Fprintf(c.ErrOrStderr(), "%s: %s; open it in a browser\n", file, cli.Count(len(results), "lesson"))
	}
	return err
}

// failures is an error that names the experiments that failed.
func failures(results []learn.Result) error {
	var errs []string
	for _, r := range results {
		for _, p := range r.Parts {
			if p.Failed != nil {
				errs = append(errs, fmt.Sprintf("lesson %d on the %s: %v", r.Number, p.Name(), p.Failed))
			}
		}
	}
	if len(errs) == 0 {
		return nil
	}
	return errors.New(strings.Join(errs, "; "))
}

// lessonText writes a result for people. A reason why something was not measured is written the first time only.
func lessonText(r learn.Result, reasons map[string]bool) []byte {
	var b bytes.Buffer
	wrap(&b, "", fmt.Sprintf("Lesson %d: %s", r.Number, r.Claim))
	fmt.Fprintf(&b, "%s\n", strings.ToUpper(string(r.Verdict)))
	for _, p := range r.Parts {
		b.WriteByte('\n')
		wrap(&b, "", fmt.Sprintf("%s: %s", p.Heading(), p.Verdict))
		writeFigures(&b, p.Figures)
		wrap(&b, "  ", p.Text)
		if len(p.Lines) > 0 {
			fmt.Fprintf(&b, "\n  %s\n", strings.Join(p.Lines, "\n  "))
		}
		if p.Reason != "" && !reasons[p.Reason] {
			reasons[p.Reason] = true
			wrap(&b, "  ", "Not measured now: "+p.Reason+".")
		}
	}
	b.WriteString("\nWhy\n")
	wrap(&b, "  ", r.Why)
	fmt.Fprintf(&b, "\nGo on: %s\n", r.GoOn)
	return b.Bytes()
}

// writeFigures writes a row for each figure, and an empty line.
func writeFigures(b *bytes.Buffer, figures []learn.Figure) {
	if len(figures) == 0 {
		return
	}
	var lines [][]string
	for _, f := range figures {
		value, unit := f.Parts()
		lines = append(lines, []string{"  " + f.Name, value + unit, f.Interval()})
	}
	table.Align(b, func(column int) bool { return column != 1 }, lines)
	b.WriteByte('\n')
}

// wrap writes a text in lines of at most 80 letters, each with an indent. Control characters, as a recording may have them
// in a name, go.
func wrap(b *bytes.Buffer, indent, text string) {
	const width = 80
	text = table.Plain(text)
	length := 0
	for word := range strings.FieldsSeq(text) {
		n := len([]rune(word))
		switch {
		case length == 0:
			b.WriteString(indent)
			length = len(indent)
		case length+1+n > width:
			b.WriteString("\n" + indent)
			length = len(indent)
		default:
			b.WriteByte(' ')
			length++
		}
		b.WriteString(word)
		length += n
	}
	b.WriteByte('\n')
}

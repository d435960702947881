// Package learn is 'infer learn': it tests claims about GPU profiling on this machine.
package learn

import (
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

	"gpt2scope/ceilings"
	"gpt2scope/cmd/infer/cli"
	"gpt2scope/cuda"
	"gpt2scope/gpt2"
	"gpt2scope/internal/files"
	"gpt2scope/internal/humanize"
	"gpt2scope/internal/table"
	"gpt2scope/learn"
	"gpt2scope/learn/page"
	"gpt2scope/tasks"
)

type learnFlags struct {
	all, json         bool
	record, from, out string
	size, block       int
	managed           bool
	task              string // of --new
}

func New(m *cli.ModelFlags) *cobra.Command {
	var l learnFlags
	c := &cobra.Command{
		Use:   "learn [NUMBER ... | FILE.cu]",
		Short: "Show what people believe about GPU profiling true or false on this machine",
		Long: `learn has lessons: claims about CPUs, GPUs and profilers, some true, some misleading, some wrong. Each is an
experiment of seconds, whose data give a verdict: shown, half true, refuted, or cannot be shown here.
'infer learn' lists the claims; 'infer learn 6' tests one. Without a GPU, its experiments are judged from a
recording that ships. --record writes such a recording of this machine, --from judges one.

'infer learn FILE.cu' tests a kernel of your own: it compiles it at run time, checks it against float64, times it
beside the floor, the plain and the tuned way of the task, and explains its launch. Without a GPU a C++ compiler
runs it on an emulator, untimed. --new TASK writes a FILE.cu to begin with.`,
		Example: `  infer learn
  infer learn 6
  infer learn --all -o lessons
  infer learn mine.cu --new vector.add
  infer learn mine.cu --size 1000000 --block 128
  infer learn --all --record lessons.json.gz`,
		Annotations: map[string]string{cli.UsesKey: "device quiet",
			cli.HelpKey + "device": "`DEVICE`: auto (the CPU, and the GPU if it can be used), cpu, or a GPU: cuda or cuda:N"},
		Args: cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			return l.run(c, m, args)
		},
	}
	cli.AddFlags(c.Flags(), "Lessons", func(f *pflag.FlagSet) {
		f.BoolVar(&l.all, "all", false, "run all lessons")
		f.StringVar(&l.from, "from", "", "judge the recording `FILE` and measure nothing")
		f.Var(cli.Int(&l.size, 0, cli.AtLeast(1)), "size", "lesson 21 lays out a launch for `N` elements (default:\n10,000,000), FILE.cu is launched for them")
		f.Var(cli.Int(&l.block, 0, cli.Between(1, 1024)), "block", "in blocks of `N` threads (default: 256)")
		f.StringVar(&l.task, "new", "", "write FILE.cu, a kernel for `TASK`: vector.add, vector.square,\nreduce.sum or matmul")
		f.BoolVar(&l.managed, "managed", false, "lesson 14 tries unified memory too (cudaMallocManaged,\n64 MiB), if ten times as much is free")
		f.Lookup("size").DefValue, f.Lookup("block").DefValue = "", ""
	})
	cli.AddFlags(c.Flags(), "Output", func(f *pflag.FlagSet) {
		f.StringVarP(&l.out, "out", "o", "", "write a page with pictures into the directory `DIR`, new,\nempty or of earlier lessons")
		f.StringVar(&l.record, "record", "", "write what was measured to `FILE`")
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
		Args:        cli.Words(1, 0, "a program of a lesson", "NAME"),
		RunE: func(c *cobra.Command, args []string) error {
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
	if l.all {
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
	out := LearnJSON{[]learn.Result{}}
	for _, lesson := range learn.All() {
		out.Lessons = append(out.Lessons, learn.Result{Number: lesson.Number, Claim: lesson.Claim})
	}
	return cli.Print(c, l.json, out, func(w io.Writer) {
		for _, lesson := range out.Lessons {
			fmt.Fprintf(w, "%3d  %s", lesson.Number, strings.TrimLeft(cli.Wrapped("     ", lesson.Claim), " "))
		}
		fmt.Fprintf(w, "\nTrue or false? 'infer learn %d' finds out.\n", out.Lessons[0].Number)
	})
}

func (l *learnFlags) run(c *cobra.Command, m *cli.ModelFlags, args []string) error {
	var lessons []*learn.Lesson
	var err error
	own := slices.ContainsFunc(args, func(arg string) bool { return strings.HasSuffix(arg, ".cu") })
	switch {
	case own && len(args) > 1:
		return cli.Usagef("%s: give a FILE.cu alone", strings.Join(args, " "))
	case l.task != "" && own:
		return l.write(c, args[0])
	case l.task != "":
		return cli.Usagef("--new %s: name one file to write, such as mine.cu", cli.ShellQuote(l.task))
	case !own:
		lessons, err = l.choose(args)
	case l.from != "" || l.record != "" || l.all:
		return cli.Usagef("%s: --from, --record and --all are for lessons", args[0])
	}
	switch {
	case err != nil:
		return err
	case m.Device == "reference":
		return cli.Usagef("--device reference: lessons run on the CPU and on a GPU; use auto, cpu or cuda")
	case l.record != "" && l.from != "":
		return cli.Usagef("--from measures nothing, so that --record has nothing to write; leave out one of them")
	case len(lessons) == 0 && !own:
		return l.list(c)
	}
	if l.record != "" {
		if err := cli.CheckWritable("--record", l.record); err != nil {
			return err
		}
	}
	if l.out != "" {
		if err := cli.CheckFolder(l.out, "learn.json", false); err != nil {
			return err
		}
		if err := os.MkdirAll(l.out, 0o777); err != nil {
			return fmt.Errorf("--out %s: %w", cli.ShellQuote(l.out), humanize.Cause(err))
		}
	}
	var judge func(*learn.Lesson) (learn.Result, error)
	recording := new(learn.Recording) // for --record
	if l.from != "" {
		from, err := learn.ReadFile(c.Context(), l.from)
		if err != nil {
			return fmt.Errorf("--from %s: %w", cli.ShellQuote(l.from), humanize.Cause(err))
		}
		judge = func(lesson *learn.Lesson) (learn.Result, error) {
			return files.Await(c.Context(), func() (learn.Result, error) { return learn.Judge(c.Context(), lesson, from) })
		}
	} else {
		e, err := l.open(m)
		if err != nil {
			return err
		}
		if own {
			lesson, err := mine(c.Context(), m, e.Device != nil, args[0])
			if err != nil {
				return err
			}
			lessons = append(lessons, lesson)
		}
		shipped, err := learn.Shipped()
		if err != nil {
			return err
		}
		recording.Machine = learn.FindMachine(e.Device)
		judge = func(lesson *learn.Lesson) (learn.Result, error) {
			title := fmt.Sprintf("lesson %d", lesson.Number)
			if own {
				title = args[0]
			}
			defer m.Spin(title)()
			return learn.Run(c.Context(), e, lesson, recording.Machine, shipped)
		}
	}
	var results []learn.Result
	var failed []string
	reasons := map[string]bool{}
	for _, lesson := range lessons {
		r, err := judge(lesson)
		if own && err == nil && r.Parts[0].Failed != nil {
			err = r.Parts[0].Failed
		}
		if err != nil {
			return err
		}
		if !l.json {
			text := lessonText(r, reasons)
			if len(results) > 0 {
				text = "\n" + text
			}
			if err := cli.WriteOutput(c.OutOrStdout(), []byte(text)); err != nil {
				return err
			}
		}
		results = append(results, r)
		recording.Add(r)
		for _, p := range r.Parts {
			if p.Failed != nil {
				failed = append(failed, fmt.Sprintf("lesson %d on the %s: %v", r.Number, p.Name(), p.Failed))
			}
		}
	}
	if l.json {
		if err := cli.WriteJSON(c.OutOrStdout(), LearnJSON{results}); err != nil {
			return err
		}
	}
	if l.record != "" && recording.Lessons == nil {
		err = fmt.Errorf("--record %s: nothing was measured", cli.ShellQuote(l.record))
	} else if l.record != "" {
		recording.Created = time.Now().UTC().Truncate(time.Second)
		err = cli.WriteFile(c.Context(), l.record, recording.Write)
	}
	err = cmp.Or(err, l.writePage(c, results))
	if err == nil && failed != nil {
		err = errors.New(strings.Join(failed, "; "))
	}
	return err
}

func (l *learnFlags) write(c *cobra.Command, file string) error {
	t, err := tasks.OverArrays(l.task)
	if err != nil {
		return cli.Usagef("--new %w", err)
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return fmt.Errorf("%s cannot be written: %w", file, humanize.Cause(err))
	}
	_, err = f.WriteString(t.Template())
	if err = cmp.Or(err, f.Close()); err == nil && !cli.IsQuiet(c) {
		fmt.Fprintf(c.ErrOrStderr(), "infer: %s has a kernel that is right; change it, and 'infer learn %s' tests it\n", file, cli.ShellQuote(file))
	}
	return err
}

// mine makes the lesson about a reader's kernel.
func mine(ctx context.Context, m *cli.ModelFlags, gpu bool, file string) (*learn.Lesson, error) {
	source, err := files.Read(file, 1<<20)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, humanize.Cause(err))
	}
	return learn.Mine(file, string(source), gpu, func(b gpt2.Backend) (ceilings.Set, error) {
		set, _, err := cli.CeilingsOf(ctx, b, m, false)
		return set, err
	})
}

// open returns what experiments may use, with the GPU of --device.
func (l *learnFlags) open(m *cli.ModelFlags) (*learn.Env, error) {
	e := &learn.Env{NoGPU: "--device cpu was given", Size: l.size, Block: l.block, Managed: l.managed, Infer: cli.RunSelf}
	if m.Device == "cpu" {
		return e, nil
	}
	lib, err := cuda.Open()
	if err == nil {
		e.Device, err = lib.Device(m.GPUIndex())
	}
	switch {
	case err != nil && m.Device != "auto":
		return nil, fmt.Errorf("--device %s: %w", m.Device, err)
	case err != nil:
		e.NoGPU = err.Error()
		if missing := new(cuda.UnavailableError); errors.As(err, &missing) && missing.NoGPU {
			e.NoGPU += "; what a GPU does is shown from a recording"
		}
	}
	return e, nil
}

func (l *learnFlags) writePage(c *cobra.Command, results []learn.Result) error {
	if l.out == "" {
		return nil
	}
	file := filepath.Join(l.out, "learn.html")
	err := cmp.Or(
		cli.WriteFile(c.Context(), filepath.Join(l.out, "learn.json"),
			func(w io.Writer) error { return cli.WriteJSON(w, LearnJSON{results}) }),
		cli.WriteFile(c.Context(), file, func(w io.Writer) error { return page.Write(w, results) }))
	if err == nil && !cli.IsQuiet(c) {
		fmt.Fprintf(c.ErrOrStderr(), "%s: %s; open it in a browser\n", file, cli.Count(len(results), "lesson"))
	}
	return err
}

// lessonText writes a result for people. A reason why something was not measured is written the first time only.
func lessonText(r learn.Result, reasons map[string]bool) string {
	var b strings.Builder
	head := fmt.Sprintf("Lesson %d: ", r.Number)
	if r.Number == 0 {
		head = "The claim to test: "
	}
	verdict := strings.ToUpper(string(r.Verdict))
	judged := slices.DeleteFunc(slices.Clone(r.Parts), func(p learn.Part) bool { return p.Verdict == learn.Unknown })
	if len(judged) == 1 && len(r.Parts) > 1 {
		verdict += ", by the part of the " + judged[0].Name() + " alone"
	}
	fmt.Fprintf(&b, "%s%s\n", cli.Wrapped("", head+r.Claim), verdict)
	for _, p := range r.Parts {
		b.WriteString("\n" + cli.Wrapped("", fmt.Sprintf("%s: %s", p.Heading(), p.Verdict)))
		var lines [][]string
		for _, f := range p.Figures {
			value, unit := f.Parts()
			lines = append(lines, []string{"  " + f.Name, value + unit, f.Interval()})
		}
		if lines != nil {
			table.Align(&b, func(column int) bool { return column != 1 }, lines)
			b.WriteByte('\n')
		}
		b.WriteString(cli.Wrapped("  ", p.Text))
		if len(p.Lines) > 0 {
			fmt.Fprintf(&b, "\n  %s\n", strings.Join(p.Lines, "\n  "))
		}
		if p.Reason != "" && !reasons[p.Reason] {
			reasons[p.Reason] = true
			b.WriteString(cli.Wrapped("  ", "Not measured now: "+p.Reason+"."))
		}
	}
	fmt.Fprintf(&b, "\nWhy\n%s\nGo on: %s\n", cli.Wrapped("  ", r.Why), r.GoOn)
	return b.String()
}

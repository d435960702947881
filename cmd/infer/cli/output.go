package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	osexec "os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"gpt2scope/internal/console"
	"gpt2scope/internal/humanize"
	"gpt2scope/internal/table"
	"gpt2scope/traces"
	"gpt2scope/traces/window"
	"gpt2scope/weights"
)

// CheckOut refuses a missing --out, and the name of a file that is read.
func CheckOut(out, extension string, reads ...string) error {
	if out == "" {
		return Usagef("give the file to write: --out FILE%s", extension)
	}
	return CheckSame("--out", out, reads...)
}

// CheckFolder refuses a missing --out, and one that holds files but not the file `own`, unless it is forced.
func CheckFolder(dir, own string, force bool) error {
	if dir == "" {
		return Usagef("give the directory to write: --out DIR")
	}
	if err := (weights.Folder{Path: dir, Own: own, Force: force}).Check(); err != nil {
		return fmt.Errorf("--out %w", err)
	}
	return nil
}

// CheckSame refuses a file to write that is one of those that are read, or in one of the directories that are read, or
// that is a directory itself.
func CheckSame(flag, path string, reads ...string) error {
	if err := weights.CheckOutput(path, reads...); err != nil {
		return fmt.Errorf("%s %w", flag, err)
	}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return fmt.Errorf("%s %s: it is a directory; give the name of a file", flag, ShellQuote(path))
	}
	return nil
}

// CheckWritable says, before a long run, that a file could not be written, or would replace something that is read.
func CheckWritable(flag, path string, reads ...string) error {
	if err := CheckSame(flag, path, reads...); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".gpt2scope-*")
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s %s: cannot be written: there is no directory %s", flag, ShellQuote(path),
			ShellQuote(filepath.Dir(path)))
	case err != nil:
		return fmt.Errorf("%s %s: cannot be written: %w", flag, ShellQuote(path), humanize.Cause(err))
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// WriteFile replaces a file as a whole or not at all; - is standard output.
func WriteFile(ctx context.Context, path string, write func(io.Writer) error) error {
	if path == "-" {
		if console.OutputClosed() {
			return errClosed
		}
		path = "/dev/stdout"
	}
	return weights.WriteFile(ctx, path, write)
}

// AddFormat adds the flags of a command that prints in one of several formats; --json is short for --format json, as
// all commands have it.
func AddFormat(f *pflag.FlagSet, format *string, formats string) {
	f.Var(OneOf(format, "table", strings.FieldsFunc(strings.ReplaceAll(formats, " or ", ","),
		func(r rune) bool { return r == ',' || r == ' ' })...), "format", "`FORMAT`: "+formats)
	f.BoolFunc("json", "print one JSON object: the same as --format json", func(value string) error {
		if on, err := strconv.ParseBool(value); err != nil {
			return err
		} else if on {
			*format = "json"
		}
		return nil
	})
}

var errClosed = errors.New("cannot write to standard output: it is closed")

// WriteOutput writes to standard output; its error names that.
func WriteOutput(w io.Writer, data []byte) error {
	if _, err := w.Write(data); errors.Is(err, syscall.EBADF) {
		return errClosed
	} else if err != nil {
		return fmt.Errorf("cannot write to standard output: %w", humanize.Cause(err))
	}
	return nil
}

// Print writes a value as JSON, or text for people.
func Print(c *cobra.Command, asJSON bool, value any, text func(io.Writer)) error {
	if asJSON {
		return WriteJSON(c.OutOrStdout(), value)
	}
	var b bytes.Buffer
	text(&b)
	return WriteText(c.OutOrStdout(), b.Bytes())
}

// WriteText writes text for people. Names in a file, such as a recording, cannot move the cursor or colour the terminal.
func WriteText(w io.Writer, text []byte) error {
	return WriteOutput(w, bytes.Map(func(r rune) rune {
		switch {
		case r == '\n' || !unicode.IsControl(r):
			return r
		case r == '\t':
			return ' '
		}
		return -1
	}, text))
}

// AddJSON adds --json to a command that prints one object.
func AddJSON(c *cobra.Command, asJSON *bool) {
	AddFlags(c.Flags(), "Output", func(f *pflag.FlagSet) {
		f.BoolVar(asJSON, "json", false, "print one JSON object")
	})
}

// WriteJSON writes one value as indented JSON, WriteJSONLine as a line.
func WriteJSON(w io.Writer, v any) error     { return writeJSON(w, v, "  ") }
func WriteJSONLine(w io.Writer, v any) error { return writeJSON(w, v, "") }

func writeJSON(w io.Writer, v any, indent string) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", indent)
	if err := e.Encode(v); err != nil {
		return err
	}
	return WriteOutput(w, b.Bytes())
}

// Number is a float64 that JSON writes as null if it is not finite.
type Number float64

func (n Number) MarshalJSON() ([]byte, error) {
	if math.IsNaN(float64(n)) || math.IsInf(float64(n), 0) {
		return []byte("null"), nil
	}
	return json.Marshal(float64(n))
}

// Ms returns a duration in milliseconds.
func Ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// PerSecond returns a rate, 0 if no time passed.
func PerSecond(n float64, d time.Duration) float64 {
	if d <= 0 {
		return 0
	}
	return n / d.Seconds()
}

// Count writes a number of things: "1 token", "2 tokens".
func Count(n int, thing string) string { return humanize.Count(n, thing, humanize.Plural(thing)) }

// mostDepths bounds the kernels of a recording whose file has the depth of the queue as a counter: in large ones it is a
// fifth of the bytes, and readers compute it.
const mostDepths = 1 << 12

// WriteTrace writes a trace with the steps over its kernels, and with how many launches were under way.
func WriteTrace(ctx context.Context, t *traces.Trace, path string) error {
	events := slices.Concat(traces.Project(t.Header, t.Events), t.Events)
	if t.Kernels <= mostDepths {
		window.QueueDepth(t, func(e traces.Event) { events = append(events, e) })
	}
	return WriteFile(ctx, path, func(f io.Writer) error { return traces.Write(f, path, t.Header, events) })
}

// RowOptions say which rows of a table are shown, and in which order.
type RowOptions struct {
	Sort  string // a column; "" for the table's own order
	Limit int    // at most so many rows; 0 for all
}

// Register adds their flags; columns are examples for --sort, order is that of the table without it.
func (o *RowOptions) Register(f *pflag.FlagSet, columns, order string) {
	f.StringVar(&o.Sort, "sort", "", "sort by `COLUMN`, such as "+columns+" or another heading\nof the table "+
		"(default: "+order+")")
	f.Var(Int(&o.Limit, 0, AtLeast(0)), "limit", "show the `N` rows that took the most time, or are first by --sort; "+
		"where rows sum to the wall time, those left out are one row (default: all)")
}

// NotShown says how many rows --limit left out, if it did.
func NotShown(w io.Writer, cut int) {
	if cut > 0 {
		fmt.Fprintf(w, "%s not shown; --limit 0 shows all\n", humanize.Count(cut, "more row is", "more rows are"))
	}
}

// SortRows is [table.Sort], whose error is a usage error.
func SortRows[R any](rows []R, columns []table.Column[R], name, format string, section func(*R) int) error {
	if err := table.Sort(rows, columns, name, format, section); err != nil {
		return Usagef("--sort %s: %w", ShellQuote(name), err)
	}
	return nil
}

// WriteCSV writes [table.CSV] to standard output.
func WriteCSV[R any](w io.Writer, columns []table.Column[R], rows []R) error {
	var b bytes.Buffer
	if err := table.CSV(&b, columns, rows); err != nil {
		return err
	}
	return WriteOutput(w, b.Bytes())
}

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

// RunSelf runs this program once more, and returns what it writes.
func RunSelf(ctx context.Context, args []string) ([]byte, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("no process can be started: %w", err)
	}
	var stdout, stderr bytes.Buffer
	c := osexec.CommandContext(ctx, path, args...)
	c.Stdout, c.Stderr = &stdout, &stderr
	c.Cancel = func() error { return c.Process.Signal(os.Interrupt) }
	c.WaitDelay = 5 * time.Second
	if err := c.Run(); ctx.Err() != nil {
		return nil, context.Cause(ctx)
	} else if err != nil {
		words := strings.TrimSpace(stderr.String())
		return nil, fmt.Errorf("%w: %s", err, words[strings.LastIndex(words, "\n")+1:])
	}
	return stdout.Bytes(), nil
}

// Wrapped writes a text in lines of at most 80 letters, each with an indent. Control characters, as a recording may
// have them in a name, go.
func Wrapped(indent, text string) string {
	lines := []string{indent}
	for word := range strings.FieldsSeq(table.Plain(text)) {
		last := &lines[len(lines)-1]
		switch {
		case *last == indent:
			*last += word
		case utf8.RuneCountInString(*last+" "+word) > 80:
			lines = append(lines, indent+word)
		default:
			*last += " " + word
		}
	}
	return strings.TrimRight(strings.Join(lines, "\n"), " ") + "\n"
}

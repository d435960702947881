package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"gpt2scope/gpt2"
	"gpt2scope/internal/console"
	"gpt2scope/internal/humanize"
)

// maxText bounds how much is read of a file: one without end, such as /dev/zero,
// would fill the memory.
const maxText = 256 << 20

// inputFlags say what a pass is fed: text, a file, or token ids.
type inputFlags struct {
	prompt, file, ids string
	use               string // of the text, for the help; "" is "begin with"
	flags             *pflag.FlagSet
	emptyIsNone       bool         // an empty text has no tokens, rather than the end-of-text token to begin with
	notice            func(string) // writes a line for the user
}

// pipeWait is how long a pipe on standard input may be silent, if no flag says that the
// text is there.
const pipeWait = time.Second

func (in *inputFlags) register(f *pflag.FlagSet) {
	in.flags = f
	use := cmp.Or(in.use, "begin with")
	f.StringVarP(&in.prompt, "prompt", "p", "", "`TEXT` to "+use+" (default: what a pipe or file on standard input\nholds, else the end-of-text token)")
	f.StringVarP(&in.file, "file", "f", "", "`FILE` with the text to "+use+", without the newline that ends\nit; - is standard input")
	f.StringVar(&in.ids, "ids", "", "token `IDS` to "+use+", such as 1,2,3; @FILE reads them from a file")
}

// given counts the flags that say what to begin with.
func (in *inputFlags) given() (n int) {
	for _, name := range []string{"prompt", "file", "ids"} {
		if in.flags.Changed(name) {
			n++
		}
	}
	return n
}

// check finds flags that exclude each other.
func (in *inputFlags) check() error {
	if in.given() > 1 {
		return usagef("--prompt, --file and --ids exclude each other; give one of them")
	}
	if in.flags.Changed("file") && in.file == "" {
		return usagef("--file needs the name of a file; - is standard input")
	}
	return nil
}

// files returns the files that are read.
func (in *inputFlags) files() []string {
	ids, _ := strings.CutPrefix(in.ids, "@")
	return []string{in.file, ids}
}

// tokens returns the ids to evaluate, each in the vocabulary. There is at least one, unless
// emptyIsNone is set.
func (in *inputFlags) tokens(ctx context.Context, m *gpt2.Model, stdin io.Reader) ([]int32, error) {
	ids, err := in.read(ctx, m, stdin)
	if err != nil {
		return nil, err
	}
	for i, id := range ids {
		if id < 0 || int(id) >= m.Config.Vocab {
			return nil, idsProblem(in.ids, "token %d (number %d of %d) is outside the vocabulary of model %s; ids are 0 to %d", id, i+1, len(ids), m.Name, m.Config.Vocab-1)
		}
	}
	return ids, nil
}

func (in *inputFlags) read(ctx context.Context, m *gpt2.Model, stdin io.Reader) ([]int32, error) {
	if err := in.check(); err != nil {
		return nil, err
	}
	if in.flags.Changed("ids") {
		return parseIDs(ctx, in.ids)
	}
	if m.Tokenizer == nil {
		return nil, fmt.Errorf("model %s has no tokenizer; give token ids: --ids 1,2,3", m.Name)
	}
	text, file := in.prompt, in.file
	if in.given() == 0 {
		piped, err := console.Piped(ctx, stdin, pipeWait)
		switch {
		case err == nil:
			file, stdin = "-", piped
		case errors.Is(err, io.EOF):
		case errors.Is(err, console.ErrSilent):
			in.notice(fmt.Sprintf("standard input is a pipe that sent nothing for %g s, so there is no prompt; -f - waits for one, -p '' for none", pipeWait.Seconds()))
		case ctx.Err() != nil:
			return nil, err
		default:
			return nil, fmt.Errorf("cannot read standard input: %w", humanize.Cause(err))
		}
	}
	if file != "" {
		var err error
		if text, err = readText(ctx, file, stdin); err != nil {
			return nil, err
		}
		text = withoutLastNewline(text)
	}
	if text == "" && in.emptyIsNone && (in.given() > 0 || file != "") {
		return []int32{}, nil
	}
	return await(ctx, func() ([]int32, error) { return m.Encode(text) })
}

// withoutLastNewline removes the newline that ends the last line of a file: editors put it there,
// and a model would begin a new line after it. llama.cpp does the same with its -f.
func withoutLastNewline(text string) string {
	if before, ok := strings.CutSuffix(text, "\r\n"); ok {
		return before
	}
	return strings.TrimSuffix(text, "\n")
}

// await returns what f does, or earlier when ctx is cancelled; then f goes on by
// itself, and what it returns is lost.
func await[T any](ctx context.Context, f func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		v, err := f()
		done <- result{v, err}
	}()
	select {
	case <-ctx.Done():
		var none T
		return none, context.Cause(ctx)
	case r := <-done:
		return r.value, r.err
	}
}

// idsProblem says what is wrong with the value of --ids, or with the file that it names.
func idsProblem(list, format string, args ...any) error {
	if path, fromFile := strings.CutPrefix(list, "@"); fromFile {
		return fmt.Errorf("--ids @%s: %w", path, fmt.Errorf(format, args...))
	}
	return usagef("--ids: %w", fmt.Errorf(format, args...))
}

// parseIDs reads ids separated by commas or white space; @FILE reads a file.
func parseIDs(ctx context.Context, list string) ([]int32, error) {
	text := list
	if path, fromFile := strings.CutPrefix(list, "@"); fromFile {
		var err error
		if text, err = readText(ctx, path, nil); err != nil {
			return nil, err
		}
	}
	var ids []int32
	for _, field := range strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(", \t\r\n", r) }) {
		id, err := strconv.ParseInt(field, 10, 32)
		if err != nil {
			const most = 40
			if len(field) > most {
				field = field[:most] + "..."
			}
			return nil, idsProblem(list, "%q, number %d, is not a token id; give whole numbers such as 1,2,3", field, len(ids)+1)
		}
		ids = append(ids, int32(id))
	}
	if len(ids) == 0 {
		return nil, idsProblem(list, "there are no token ids; give whole numbers such as 1,2,3")
	}
	return ids, nil
}

// readText reads a file, or stdin for "-" if it is not nil.
func readText(ctx context.Context, path string, stdin io.Reader) (string, error) {
	name := path
	if path == "-" && stdin != nil {
		name = "standard input"
	} else {
		stdin = nil
	}
	text, err := await(ctx, func() (string, error) { // it may wait without end, for a person or a pipe
		from := stdin
		if from == nil {
			f, err := os.Open(path)
			if err != nil {
				return "", err
			}
			defer f.Close()
			from = f
		}
		var text strings.Builder
		_, err := io.Copy(&text, io.LimitReader(from, maxText+1))
		return text.String(), err
	})
	if ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	if err != nil {
		return "", fmt.Errorf("cannot read %s: %w", name, humanize.Cause(err))
	}
	if len(text) > maxText {
		return "", fmt.Errorf("cannot read %s: it is larger than %s; give a part of it", name, humanize.Size(maxText))
	}
	return text, nil
}

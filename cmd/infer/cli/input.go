package cli

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
	"unicode/utf8"

	"github.com/spf13/pflag"
	"golang.org/x/text/encoding/unicode"

	"gpt2scope/gpt2"
	"gpt2scope/internal/console"
	"gpt2scope/internal/files"
	"gpt2scope/internal/humanize"
)

// maxText bounds how much is read of a file: one without end, such as /dev/zero, would fill the memory.
const maxText = 256 << 20

// InputFlags say what a pass is fed: text, a file, or token ids.
type InputFlags struct {
	prompt, File, ids string
	Use               string // of the text, for the help; "" is "begin with"
	flags             *pflag.FlagSet
	escape            bool
	Whole             bool // all tokens of a text: those that end it, and none of an empty one
}

// pipeWait is how long a pipe on standard input may be silent, if no flag says that the text is there.
const pipeWait = time.Second

func (in *InputFlags) Register(f *pflag.FlagSet) {
	in.flags = f
	use := cmp.Or(in.Use, "begin with")
	f.StringVarP(&in.prompt, "prompt", "p", "",
		"`TEXT` to "+use+" (default: what a pipe or file on standard input holds, else the end-of-text token)")
	f.StringVarP(&in.File, "file", "f", "",
		"`FILE` with the text to "+use+", without the newline that ends it; - is standard input")
	f.StringVar(&in.ids, "ids", "", "token `IDS` to "+use+", such as 1,2,3; @FILE reads them from a file")
	f.BoolVar(&in.escape, "escape", false, `in texts on the command line \n is a newline, \t a tab, \\ a backslash, \xHH a `+
		`byte, \uHHHH a character (default: they are as they stand)`)
}

// Text returns a text from the command line as --escape says.
func (in *InputFlags) Text(flag, text string) (string, error) {
	if !in.escape {
		return text, nil
	}
	var b []byte
	for {
		plain, rest, found := strings.Cut(text, `\`)
		b = append(b, plain...)
		if !found {
			return string(b), nil
		}
		r, character, rest, err := strconv.UnquoteChar(`\`+rest, 0)
		switch {
		case err != nil:
			return "", Usagef(`%s: --escape knows no %s; \\ is a backslash`, flag, ShellQuote(fmt.Sprintf("%.10s", text[len(plain):])))
		case character:
			b = utf8.AppendRune(b, r)
		default:
			b = append(b, byte(r))
		}
		text = rest
	}
}

// Given counts the flags that say what to begin with.
func (in *InputFlags) Given() (n int) {
	for _, name := range []string{"prompt", "file", "ids"} {
		if in.flags.Changed(name) {
			n++
		}
	}
	return n
}

// Check finds flags that exclude each other.
func (in *InputFlags) Check() error {
	if in.Given() > 1 {
		return Usagef("--prompt, --file and --ids exclude each other; give one of them")
	}
	if in.flags.Changed("file") && in.File == "" {
		return Usagef("--file needs the name of a file; - is standard input")
	}
	return nil
}

// Files returns the files that are read.
func (in *InputFlags) Files() []string {
	ids, _ := strings.CutPrefix(in.ids, "@")
	return []string{in.File, ids}
}

// NeedText returns an error if the model takes no text: it says why, how to name a tokenizer, and what else to do.
func NeedText(m *gpt2.Model, orElse string) error {
	if err := m.NeedTokenizer(); err != nil {
		return fmt.Errorf("%w; give one that you know to be right (--tokenizer PATH, gpt2 or bytes)%s", err, orElse)
	}
	return nil
}

// Tokens returns the ids to evaluate, each in the vocabulary. There is at least one, unless Whole is set.
func (in *InputFlags) Tokens(ctx context.Context, flags *ModelFlags, m *gpt2.Model, stdin io.Reader) ([]int32, error) {
	ids, err := in.read(ctx, flags, m, stdin)
	if err != nil {
		return nil, err
	}
	for i, id := range ids {
		if id < 0 || int(id) >= m.Config.Vocab {
			if !in.flags.Changed("ids") {
				return nil, fmt.Errorf("the prompt has token %d (%q), which is outside the vocabulary of model %s; ids are "+
					"0 to %d: the tokenizer (%s) is of another model, or its embedding was not resized", id, m.Tokenizer.AppendPiece(nil, id),
					m.Name, m.Config.Vocab-1, m.TokenizerFrom)
			}
			return nil, Usagef("--ids: token %d (number %d of %d) is outside the vocabulary of model %s; ids are 0 to %d",
				id, i+1, len(ids), m.Name, m.Config.Vocab-1)
		}
	}
	return ids, nil
}

func (in *InputFlags) read(ctx context.Context, flags *ModelFlags, m *gpt2.Model, stdin io.Reader) ([]int32, error) {
	if err := in.Check(); err != nil {
		return nil, err
	}
	if in.flags.Changed("ids") {
		return parseIDs(ctx, in.ids)
	}
	if err := NeedText(m, ", or token ids (--ids 1,2,3)"); err != nil {
		return nil, err
	}
	text, err := in.Text("--prompt", in.prompt)
	if err != nil {
		return nil, err
	}
	file := in.File
	if in.Given() == 0 {
		piped, err := console.Piped(ctx, stdin, pipeWait)
		switch {
		case err == nil:
			file, stdin = "-", piped
		case errors.Is(err, io.EOF):
		case errors.Is(err, console.ErrSilent):
			flags.Notice(fmt.Sprintf("standard input is a pipe that sent nothing for %g s, so there is no prompt; "+
				"-f - waits for one, -p '' for none", pipeWait.Seconds()))
		case ctx.Err() != nil:
			return nil, err
		default:
			return nil, fmt.Errorf("cannot read standard input: %w", humanize.Cause(err))
		}
	}
	if file != "" {
		var err error
		if text, err = ReadText(ctx, file, stdin); err != nil {
			return nil, err
		}
		// Editors put a newline at the end, and a model would begin a new line after it. llama.cpp does the same with its -f.
		if before, ok := strings.CutSuffix(text, "\n"); ok {
			text = strings.TrimSuffix(before, "\r")
		}
	}
	return files.Await(ctx, func() ([]int32, error) {
		if in.Whole && (in.Given() > 0 || file != "") {
			ids := append([]int32{}, m.Tokenizer.Encode(text)...)
			return ids, m.Tokenizer.Unknown(text, ids)
		}
		return m.Encode(text)
	})
}

// parseIDs reads ids separated by commas or white space; @FILE reads a file.
func parseIDs(ctx context.Context, text string) ([]int32, error) {
	if path, fromFile := strings.CutPrefix(text, "@"); fromFile {
		var err error
		if text, err = ReadText(ctx, path, nil); err != nil {
			return nil, err
		}
	}
	var ids []int32
	for _, field := range strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(", \t\r\n", r) }) {
		id, err := strconv.ParseInt(field, 10, 32)
		if err != nil {
			return nil, Usagef("--ids: %.40q, number %d, is not a token id; give whole numbers such as 1,2,3", field, len(ids)+1)
		}
		ids = append(ids, int32(id))
	}
	if len(ids) == 0 {
		return nil, Usagef("--ids: there are no token ids; give whole numbers such as 1,2,3")
	}
	return ids, nil
}

// ReadText reads a file, or stdin for "-" if it is not nil.
func ReadText(ctx context.Context, path string, stdin io.Reader) (string, error) {
	name := path
	if path == "-" && stdin != nil {
		name = "standard input"
	} else {
		stdin = nil
	}
	text, err := files.Await(ctx, func() (string, error) { // it may wait without end, for a person or a pipe
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
	if !strings.HasPrefix(text, "\xff\xfe") && !strings.HasPrefix(text, "\xfe\xff") { // with which no UTF-8 begins
		return text, nil
	}
	text, err = unicode.UTF16(unicode.LittleEndian, unicode.ExpectBOM).NewDecoder().String(text)
	if err != nil || strings.ContainsAny(text, "\x00\ufffd") { // UTF-32, or parts of characters
		return "", fmt.Errorf("cannot read %s: it is not UTF-16, although its byte order mark says so; save it as UTF-8", name)
	}
	return text, nil
}

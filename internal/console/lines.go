package console

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"strings"

	"golang.org/x/term"

	"gpt2scope/internal/files"
)

// ErrInterrupted says that Ctrl-C was typed in place of a line.
var ErrInterrupted = errors.New("interrupted")

// Lines reads lines: those of a terminal with a prompt, keys to edit them and a history, others as they come.
type Lines struct {
	from   *bufio.Reader  // nil for a terminal
	tty    *os.File       // nil for others
	editor *term.Terminal // of tty
	out    io.Writer
	prompt string
	ctrlC  bool // typed since the last line
}

// NewLines reads from in. If that is a terminal, out is where its lines show.
func NewLines(in io.Reader, out io.Writer, prompt string) *Lines {
	l := &Lines{out: out, prompt: prompt}
	if f, ok := in.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		l.tty = f
		l.edit()
	} else {
		l.from = bufio.NewReader(in)
	}
	return l
}

// Terminal tells whether a person types the lines.
func (l *Lines) Terminal() bool { return l.tty != nil }

// edit makes an editor of an empty line. It keeps the history.
func (l *Lines) edit() {
	old := l.editor
	l.editor = term.NewTerminal(l, l.prompt)
	if old != nil {
		l.editor.History = old.History
	}
}

// Read is for the editor: it notes Ctrl-C, which the editor does not tell from Ctrl-D.
func (l *Lines) Read(p []byte) (int, error) {
	n, err := l.tty.Read(p)
	l.ctrlC = l.ctrlC || bytes.IndexByte(p[:n], 3) >= 0
	return n, err
}

// Write is for the editor.
func (l *Lines) Write(p []byte) (int, error) { return l.out.Write(p) }

// Next returns the next line, without its end. The error is io.EOF at the end of the input and after Ctrl-D,
// [ErrInterrupted] after Ctrl-C. If ctx is cancelled it returns at once; Next must not be called again then.
func (l *Lines) Next(ctx context.Context) (string, error) {
	if l.tty != nil {
		before, err := term.MakeRaw(int(l.tty.Fd()))
		if err != nil {
			return "", err
		}
		defer term.Restore(int(l.tty.Fd()), before)
		if width, height, err := term.GetSize(int(l.tty.Fd())); err == nil && width > 0 {
			l.editor.SetSize(width, height)
		}
	}
	return files.Await(ctx, l.next)
}

func (l *Lines) next() (string, error) {
	if l.tty == nil {
		line, err := l.from.ReadString('\n')
		if err == io.EOF && line != "" {
			err = nil
		}
		return strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r"), err
	}
	l.ctrlC = false
	line, err := l.editor.ReadLine()
	switch {
	case err == term.ErrPasteIndicator:
		err = nil
	case err == io.EOF && l.ctrlC:
		l.edit()
		io.WriteString(l.out, "^C\r\n")
		return "", ErrInterrupted
	case err == io.EOF:
		io.WriteString(l.out, "\r\n")
	}
	return line, err
}

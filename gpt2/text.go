package gpt2

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"slices"
	"unicode/utf8"

	"gpt2scope/gpt2/tokenizer"
)

// Encode turns a text that is to go on into token ids. An empty text is the end-of-text token, from which GPT-2 starts
// when it is given nothing, unless the tokenizer begins texts with another.
func (m *Model) Encode(text string) ([]int32, error) {
	if err := m.NeedTokenizer(); err != nil {
		return nil, fmt.Errorf("%w; give token ids instead of text", err)
	}
	ids := m.Tokenizer.EncodePrompt(text)
	if len(ids) == 0 && text == "" {
		id, ok := m.Tokenizer.EOT()
		if !ok || int(id) >= m.Config.Vocab {
			return nil, fmt.Errorf("model %s has no end-of-text token to start from; give a prompt", m.Name)
		}
		return []int32{id}, nil
	}
	return ids, m.Tokenizer.Unknown(text, ids)
}

// Text generates text after a prompt and yields it as it is made, in whole UTF-8 characters. It is [Session.Generate]
// with the model's tokenizer around it, for a batch of one; the end-of-text token is not part of the text.
func (s *Session) Text(ctx context.Context, prompt string, g Generation) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		ids, err := s.model.Encode(prompt)
		if err == nil && s.options.Batch != 1 {
			err = fmt.Errorf("text is generated for one sequence, and the session has %d; use Generate", s.options.Batch)
		}
		if err != nil {
			yield("", err)
			return
		}
		w := NewTextWriter(s.model, g)
		var failed error
		for token, err := range s.Generate(ctx, ids, g) {
			if failed = err; err != nil {
				break
			}
			if piece := w.Push(token.ID); piece != "" && !yield(piece, nil) || w.Stopped() {
				return
			}
		}
		if rest := w.Flush(); (rest == "" || yield(rest, nil)) && failed != nil {
			yield("", failed)
		}
	}
}

// TextWriter turns tokens into text that can be shown at once: whole UTF-8 characters, and nothing that may yet turn out
// to be a stop string. Bytes that cannot become a character pass through as they are.
type TextWriter struct {
	ends    func(id int32) bool
	tokens  *tokenizer.Tokenizer
	stop    []string
	held    []byte // may be the start of a character or of a stop string
	stopped bool
}

// NewTextWriter makes one for the tokens of a generation. The model must have a tokenizer.
func NewTextWriter(m *Model, g Generation) *TextWriter {
	w := &TextWriter{tokens: m.Tokenizer, ends: m.EndsText,
		stop: slices.DeleteFunc(slices.Clone(g.Stop), func(stop string) bool { return stop == "" })}
	if g.IgnoreEOS {
		w.ends = func(int32) bool { return false }
	}
	return w
}

// Stopped tells whether a stop string was met; no text follows.
func (w *TextWriter) Stopped() bool { return w.stopped }

// Push takes a token and returns the text that is certain by now.
func (w *TextWriter) Push(id int32) string {
	if w.stopped || w.ends(id) {
		return ""
	}
	w.held = w.tokens.AppendPiece(w.held, id)
	end := len(w.held)
	for _, stop := range w.stop {
		if i := bytes.Index(w.held, []byte(stop)); i >= 0 && i < end {
			end, w.stopped = i, true
		}
	}
	if !w.stopped {
		end -= max(w.longestStart(), w.unfinished())
	}
	out := string(w.held[:end])
	w.held = slices.Delete(w.held, 0, end)
	return out
}

// Flush returns what was held back, at the end, but for the start of a character whose other bytes did not come.
func (w *TextWriter) Flush() string {
	if w.stopped {
		return ""
	}
	out := string(w.held[:len(w.held)-w.unfinished()])
	w.held = w.held[:0]
	return out
}

// longestStart returns the length of the longest end of the held text that is the start of a stop string.
func (w *TextWriter) longestStart() int {
	longest := 0
	for _, stop := range w.stop {
		for n := min(len(stop)-1, len(w.held)); n > longest; n-- {
			if bytes.HasSuffix(w.held, []byte(stop[:n])) {
				longest = n
				break
			}
		}
	}
	return longest
}

// unfinished returns how many bytes at the end of the held text are the start of a character: at most three.
func (w *TextWriter) unfinished() int {
	for n := 1; n < utf8.UTFMax && n <= len(w.held); n++ {
		if tail := w.held[len(w.held)-n:]; utf8.RuneStart(tail[0]) {
			if utf8.FullRune(tail) {
				return 0
			}
			return n
		}
	}
	return 0
}

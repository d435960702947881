package gpt2

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"time"
)

// Evaluation is how well a model predicts a text.
type Evaluation struct {
	Tokens int           // scored, each once
	Nats   float64       // sum of -log p over them
	Time   time.Duration // of all of it
	Passed int           // tokens evaluated, overlaps included
}

// Loss returns the mean negative log-likelihood, in nats per token.
func (e Evaluation) Loss() float64 { return e.Nats / float64(e.Tokens) }

// Perplexity returns exp(Loss).
func (e Evaluation) Perplexity() float64 { return math.Exp(e.Loss()) }

// BitsPerByte returns the compression that the model would reach on a text of so many bytes.
func (e Evaluation) BitsPerByte(bytes int) float64 { return e.Nats / math.Ln2 / float64(bytes) }

// Evaluate scores the tokens of a text, each once, in windows of so many tokens at a stride: the first window scores
// all of its tokens, each later one its last stride tokens, so that those have at least window - stride tokens before
// them. The first token is predicted from the end-of-text token. If the model has none, it is not scored. As many
// windows are evaluated at once as the session has sequences; it is empty before and after. progress, if not nil, is
// called with the tokens scored and their total.
func (s *Session) Evaluate(ctx context.Context, ids []int32, window, stride int,
	progress func(done, total int)) (Evaluation, error) {
	V, B := s.model.Config.Vocab, s.options.Batch
	switch {
	case window < 1 || window > s.options.Context:
		return Evaluation{}, fmt.Errorf("the window is %d tokens; it must be from 1 to the context of %d", window,
			s.options.Context)
	case stride < 1 || stride > window:
		return Evaluation{}, fmt.Errorf("the stride is %d tokens; it must be from 1 to the window of %d", stride, window)
	}
	if eos := s.model.Config.EOS; eos >= 0 && eos < V {
		ids = append([]int32{int32(eos)}, ids...)
	}
	if len(ids) < 2 {
		return Evaluation{}, errors.New("the text is too short to evaluate; give at least two tokens")
	}
	var e Evaluation
	var rows, before scoring // those being read, and those being scored meanwhile
	score := func() error {
		rows.start()
		rows, before = before, rows
		return rows.add(&e)
	}
	start, scored := time.Now(), 0
	total := len(ids) - 1
	T := min(window, total)
	inputs := make([]int32, B*T)
	for from := 0; scored < total; from += B * stride {
		passed := 0
		for b := range B { // the last windows may be short, or none: nothing that counts sees what follows in them
			in := inputs[b*T:][:T]
			n := copy(in, ids[min(from+b*stride, total):total])
			clear(in[n:])
			if from+(b-1)*stride+T < total || b == 0 {
				passed += n
			}
		}
		if err := s.Reset(); err != nil {
			return e, err
		}
		if _, err := s.admit(inputs); err != nil {
			return e, err
		}
		from, first := from, scored
		_, err := s.prefill(ctx, inputs, Pass{Logits: LogitsAll}, func(part Pass, done int) error {
			next := first
			for b := range B {
				at := from + b*stride // of the window
				end := min(part.Tokens, min(T, total-at)-done)
				for r := max(0, next-at-done); r < end; {
					n := min(max(1, evaluateLogits/V-len(rows.tokens)), end-r)
					if err := s.runner.Read(BufLogits, b*part.Tokens+r, rows.grow(ids[at+done+r+1:][:n], V)); err != nil {
						return s.fail(ctx, err)
					}
					scored, r = scored+n, r+n
					if len(rows.logits)+V > evaluateLogits {
						if err := score(); err != nil {
							return err
						}
					}
				}
				next = max(next, at+min(T, total-at))
			}
			return nil
		})
		if err == nil {
			err = score()
		}
		if err != nil {
			return e, err
		}
		if e.Passed += passed; progress != nil {
			progress(scored, total)
		}
	}
	if err := before.add(&e); err != nil {
		return e, err
	}
	e.Time = time.Since(start)
	return e, s.Reset()
}

// evaluateLogits is how many logits are read before they are scored: 32 MiB of them, and 32 more are being scored.
const evaluateLogits = 8 << 20

// scoring is rows of logits and the tokens that follow them, scored beside what goes on.
type scoring struct {
	logits []float32
	tokens []int32
	nats   chan []float64 // nil if they are not being scored
}

// grow makes room for the logits before some tokens, and returns it.
func (s *scoring) grow(tokens []int32, vocab int) []float32 {
	n := len(s.logits)
	s.tokens = append(s.tokens, tokens...)
	s.logits = slices.Grow(s.logits, len(tokens)*vocab)[:n+len(tokens)*vocab]
	return s.logits[n:]
}

func (s *scoring) start() {
	if len(s.tokens) == 0 {
		return
	}
	nats, logits, tokens := make(chan []float64, 1), s.logits, s.tokens
	s.nats = nats
	go func() { nats <- Surprisals(logits, tokens) }()
}

// add waits for the scores, adds them, and drops the rows.
func (s *scoring) add(e *Evaluation) error {
	if s.nats == nil {
		return nil
	}
	for _, nats := range <-s.nats {
		if math.IsNaN(nats) {
			return ErrNotFinite
		}
		e.Nats += nats
		e.Tokens++
	}
	s.logits, s.tokens, s.nats = s.logits[:0], s.tokens[:0], nil
	return nil
}

// Surprisals returns -log p, in nats, of tokens (T), at least one, each by its row of logits (T, V); NaN where a row is
// not finite. The rows are divided among all processors.
func Surprisals(logits []float32, tokens []int32) []float64 {
	nats := make([]float64, len(tokens))
	V, workers := len(logits)/len(tokens), min(len(tokens), runtime.GOMAXPROCS(0))
	var wait sync.WaitGroup
	for w := range workers {
		wait.Go(func() {
			var sampler Sampler
			for r := w * len(tokens) / workers; r < (w+1)*len(tokens)/workers; r++ {
				row := logits[r*V : (r+1)*V]
				best, ok := sampler.largest(row)
				if nats[r] = math.NaN(); ok {
					nats[r] = logSumExp(row, row[best]) - float64(row[tokens[r]])
				}
			}
		})
	}
	wait.Wait()
	return nats
}

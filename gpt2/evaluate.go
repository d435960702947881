package gpt2

import (
	"context"
	"errors"
	"fmt"
	"math"
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
// them. The first token is predicted from the end-of-text token. If the model has none, it is not scored. The session
// must have a batch of 1; it is empty before and after. progress, if not nil, is called with the tokens scored and
// their total.
func (s *Session) Evaluate(ctx context.Context, ids []int32, window, stride int,
	progress func(done, total int)) (Evaluation, error) {
	V := s.model.Config.Vocab
	switch {
	case s.options.Batch != 1:
		return Evaluation{}, fmt.Errorf("evaluation takes one sequence, and the session has %d", s.options.Batch)
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
	var sampler Sampler
	start := time.Now()
	row := make([]float32, V)
	total := len(ids) - 1
	for from := 0; e.Tokens < total; from += stride {
		inputs := ids[from:min(from+window, total)]
		if err := s.Reset(); err != nil {
			return e, err
		}
		if _, err := s.admit(inputs); err != nil {
			return e, err
		}
		first := e.Tokens - from // row of the first token not yet scored
		_, err := s.prefill(ctx, inputs, Pass{Logits: LogitsAll}, func(ph Pass, done int) error {
			for r := range ph.Tokens {
				if done+r < first {
					continue
				}
				if err := s.runner.Read(BufLogits, r, row); err != nil {
					return s.fail(ctx, err)
				}
				best, ok := sampler.largest(row)
				if !ok {
					return ErrNotFinite
				}
				e.Nats += logSumExp(row, row[best]) - float64(row[ids[from+done+r+1]])
				e.Tokens++
			}
			return nil
		})
		if err != nil {
			return e, err
		}
		if e.Passed += len(inputs); progress != nil {
			progress(e.Tokens, total)
		}
	}
	e.Time = time.Since(start)
	return e, s.Reset()
}

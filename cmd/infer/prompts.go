package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"

	"gpt2scope/cmd/infer/cli"
	"gpt2scope/gpt2"
)

// promptLine is a line of the file of --prompts: a text as a JSON string, or an object with one of these.
type promptLine struct {
	Prompt *string `json:"prompt"`
	IDs    []int32 `json:"ids"`
}

// readPrompts reads the tokens of each prompt. Empty lines are none.
func (g *generateFlags) readPrompts(ctx context.Context, o *cli.Opened, stdin io.Reader) ([][]int32, error) {
	text, err := cli.ReadText(ctx, g.prompts, stdin)
	if err != nil {
		return nil, err
	}
	var prompts [][]int32
	n := 0
	for line := range strings.Lines(text) {
		n++
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		ids, err := promptIDs(o.Model, line)
		if err == nil {
			err = o.Fits(len(ids))
		}
		if err != nil {
			return nil, fmt.Errorf("--prompts %s: line %d: %w", g.prompts, n, err)
		}
		prompts = append(prompts, ids)
	}
	if len(prompts) == 0 {
		return nil, fmt.Errorf("--prompts %s: it has no prompts", g.prompts)
	}
	return prompts, nil
}

func promptIDs(m *gpt2.Model, line string) ([]int32, error) {
	var p promptLine
	d := json.NewDecoder(strings.NewReader(line))
	d.DisallowUnknownFields()
	var err error
	if line[0] == '"' {
		err = d.Decode(&p.Prompt)
	} else {
		err = d.Decode(&p)
	}
	if err != nil || (p.Prompt == nil) == (len(p.IDs) == 0) || !json.Valid([]byte(line)) {
		return nil, errors.New(`it must be a text in quotes, {"prompt": TEXT} or {"ids": [1,2,3]}`)
	}
	ids := p.IDs
	if p.Prompt != nil {
		if err := cli.NeedText(m, ", or ids"); err != nil {
			return nil, err
		}
		if ids, err = m.Encode(*p.Prompt); err != nil {
			return nil, err
		}
	}
	for _, id := range ids {
		if id < 0 || int(id) >= m.Config.Vocab {
			return nil, fmt.Errorf("token %d is outside the vocabulary of model %s; ids are 0 to %d", id, m.Name,
				m.Config.Vocab-1)
		}
	}
	return ids, nil
}

// made is what was made after a prompt.
type made struct {
	result
	err error
}

// runPrompts goes on from each prompt as a run with it alone would, and prints a line of JSON for each. Where the backend
// can join sessions, several texts are made at a time.
func (g *generateFlags) runPrompts(ctx context.Context, o *cli.Opened, prompts [][]int32) error {
	alone, most := o.Backend, 1
	if j, ok := alone.(gpt2.Joiner); ok && len(prompts) > 1 && (g.speculate.Off() || !g.flags.Changed("speculate")) {
		if together, n := j.Join(o.Model); n > 1 {
			o.Backend, most, g.speculate = together, n, gpt2.Speculation{}
		}
	}
	var sessions []*gpt2.Session
	for len(sessions) < min(most, len(prompts)) {
		s, err := o.Load(ctx, 1)
		if err != nil && len(sessions) == 0 {
			return err
		} else if err != nil { // memory for fewer will do
			break
		}
		sessions = append(sessions, s)
	}
	o.Backend = alone
	o.Remember(nil, gpt2.Stats{})
	goOn := func(g *generateFlags, ctx context.Context, s *gpt2.Session, prompt int) made {
		if err := s.Reset(); err != nil {
			return made{err: err}
		}
		r, out, err := g.goOn(ctx, s, o, prompts[prompt])
		r.Text = out.text()
		return made{r, err}
	}
	next := func(prompt int) made { return goOn(g, ctx, sessions[0], prompt) }
	if len(sessions) > 1 {
		quiet := *g
		quiet.ModelFlags = &cli.ModelFlags{Quiet: true}
		var stop func()
		next, stop = inTurn(ctx, sessions, len(prompts), func(ctx context.Context, s *gpt2.Session, prompt int) made {
			return goOn(&quiet, ctx, s, prompt)
		})
		defer stop()
	}
	var interrupted error
	for prompt := range prompts {
		m := next(prompt)
		if m.Finish == interruptedText {
			interrupted = reportedError{m.err}
		} else if m.err != nil {
			return m.err
		}
		if interrupted == nil || len(m.IDs) > 0 {
			if err := cli.WriteJSONLine(g.stdout, m.result); err != nil {
				return err
			}
		}
	}
	return interrupted
}

// inTurn goes on from n prompts, each session from the next that none has begun. It returns a function that waits for
// the text after one, and one that ends all.
func inTurn(ctx context.Context, sessions []*gpt2.Session, n int,
	goOn func(ctx context.Context, s *gpt2.Session, prompt int) made) (text func(prompt int) made, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	texts := make([]chan made, n)
	for i := range texts {
		texts[i] = make(chan made, 1)
	}
	var begun atomic.Int64
	for _, s := range sessions {
		running.Go(func() {
			defer s.Close() // the others no longer wait for it
			for i := int(begun.Add(1)) - 1; i < n; i = int(begun.Add(1)) - 1 {
				texts[i] <- goOn(ctx, s, i)
			}
		})
	}
	return func(prompt int) made { return <-texts[prompt] }, func() { cancel(); running.Wait() }
}

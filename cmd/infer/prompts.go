package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

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

// runPrompts goes on from each prompt as a run with it alone would, and prints a line of JSON for each.
func (g *generateFlags) runPrompts(ctx context.Context, s *gpt2.Session, o *cli.Opened, prompts [][]int32) error {
	for _, ids := range prompts {
		if err := s.Reset(); err != nil {
			return err
		}
		r, out, runErr := g.goOn(ctx, s, o, ids)
		interrupted := r.Finish == interruptedText
		if runErr != nil && !interrupted {
			return runErr
		}
		r.Text = out.text()
		if err := cli.WriteJSONLine(g.stdout, r); err != nil {
			return err
		}
		if interrupted {
			return reportedError{runErr}
		}
	}
	return nil
}

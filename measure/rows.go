package measure

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"os/exec"
	"time"

	"gpt2scope/gpt2"
)

// Row is a pass of a model of random weights, with Past tokens in the cache before it.
type Row struct {
	Name  string // unique among the rows
	Model string // for gpt2.Random
	Pass  gpt2.Pass
	Past  int
}

// Rows is the list of passes that bench/gpu_peers.py measures in other engines too.
func Rows() []Row {
	decode := gpt2.Pass{Batch: 1, Tokens: 1, Logits: gpt2.LogitsLast, Sample: true}
	prefill := func(batch int) gpt2.Pass { return gpt2.Pass{Batch: batch, Tokens: 1024, Logits: gpt2.LogitsAll} }
	const oneLayer, small = "random:L=1,C=768,NH=12,V=50257,T=1024", ",C=384,NH=6,V=257,T=1024"
	return []Row{
		{"decode, gpt2 with 1 layer", oneLayer, decode, 512},
		{"decode, gpt2", "random:gpt2", decode, 512},
		{"decode, gpt2-xl", "random:gpt2-xl", decode, 512},
		{"decode, 6 x 384, V=257", "random:L=6" + small, decode, 512},
		{"decode, 1 x 384, V=257", "random:L=1" + small, decode, 512},
		{"prefill 1024, gpt2 with 1 layer", oneLayer, prefill(1), 0},
		{"prefill 1024, gpt2", "random:gpt2", prefill(1), 0},
		{"forward 8 x 1024, gpt2", "random:gpt2", prefill(8), 0},
		{"forward 24 x 1024, gpt2 with 1 layer", oneLayer, prefill(24), 0},
		{"prefill 1024, gpt2-xl", "random:gpt2-xl", prefill(1), 0},
	}
}

// Sessions keeps the models of rows open, each with a session of one sequence. Making a
// model's random weights and copying them to the device takes seconds, and rows share models.
type Sessions struct {
	backend gpt2.Backend
	open    map[string]*gpt2.Session // by the name of the model
}

// NewSessions returns an empty set for a backend.
func NewSessions(backend gpt2.Backend) *Sessions {
	return &Sessions{backend, map[string]*gpt2.Session{}}
}

// Close closes the sessions and their models.
func (o *Sessions) Close() {
	for _, s := range o.open {
		s.Close()
		s.Model().Close()
	}
	clear(o.open)
}

// session returns a session for a row, and a function that closes it if no other row uses it.
func (o *Sessions) session(ctx context.Context, row Row) (*gpt2.Session, func() error, error) {
	s := o.open[row.Model]
	if s == nil {
		model, err := gpt2.Random(row.Model)
		if err != nil {
			return nil, nil, err
		}
		if s, err = gpt2.NewSession(ctx, model, o.backend, gpt2.Options{Batch: 1}); err != nil {
			return nil, nil, cmp.Or(err, model.Close())
		}
		o.open[row.Model] = s
	}
	if row.Pass.Batch == 1 {
		return s, func() error { return nil }, nil
	}
	s, err := gpt2.NewSession(ctx, s.Model(), o.backend, gpt2.Options{Batch: row.Pass.Batch})
	if err != nil {
		return nil, nil, err
	}
	return s, s.Close, nil
}

// Row times a row's pass as [Pass] does, and returns its plan too.
func (o *Sessions) Row(ctx context.Context, row Row, repeat int) (times Times, plan *gpt2.Plan, err error) {
	s, done, err := o.session(ctx, row)
	if err != nil {
		return times, nil, err
	}
	defer func() { err = cmp.Or(err, done()) }()
	if times, err = Pass(ctx, s, row.Pass, row.Past, repeat); err != nil {
		return times, nil, err
	}
	plan, err = s.Plan(row.Pass)
	return times, plan, err
}

// FirstOutput runs a program repeat times, and times each run from before the process starts
// until the first byte of its standard output can be read. If a run fails, the error ends with
// what the program wrote to standard error.
func FirstOutput(ctx context.Context, program string, args []string, repeat int) (Times, error) {
	if repeat < 1 {
		return Times{}, fmt.Errorf("%d repetitions; there must be at least one", repeat)
	}
	times := make([]time.Duration, repeat)
	for i := range times {
		var stderr bytes.Buffer
		c := exec.CommandContext(ctx, program, args...)
		c.Stderr = &stderr
		out, err := c.StdoutPipe()
		if err != nil {
			return Times{}, err
		}
		start := time.Now()
		if err := c.Start(); err != nil {
			return Times{}, err
		}
		_, readErr := bufio.NewReader(out).ReadByte()
		times[i] = time.Since(start)
		_, copyErr := io.Copy(io.Discard, out)
		if err := c.Wait(); err != nil {
			return Times{}, fmt.Errorf("%w: %s", err, bytes.TrimSpace(stderr.Bytes()))
		}
		if readErr == io.EOF {
			return Times{}, fmt.Errorf("%s wrote nothing to standard output", program)
		}
		if err := cmp.Or(readErr, copyErr); err != nil {
			return Times{}, err
		}
	}
	return newTimes(times), nil
}

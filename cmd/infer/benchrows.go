package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"time"

	"gpt2scope/gpt2"
	"gpt2scope/internal/stats"
	"gpt2scope/measure"
)

// benchRow is a row of the list of work.
type benchRow struct {
	name  string
	model string
	phase gpt2.Pass
	past  int
}

// benchRows is the list: what bench/gpu_peers.py measures of others.
func benchRows() []benchRow {
	decode := gpt2.Pass{Batch: 1, Tokens: 1, Logits: gpt2.LogitsLast, Sample: true}
	prefill := func(batch int) gpt2.Pass { return gpt2.Pass{Batch: batch, Tokens: 1024, Logits: gpt2.LogitsAll} }
	const oneLayer, small = "random:L=1,C=768,NH=12,V=50257,T=1024", ",C=384,NH=6,V=257,T=1024"
	return []benchRow{
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

// benchResult is what was measured of a row.
type benchResult struct {
	Work         string  `json:"work"`
	Model        string  `json:"model,omitempty"`
	Batch        int     `json:"batch,omitempty"`
	Tokens       int     `json:"tokens,omitempty"`
	Past         int     `json:"past"`
	Median       float64 `json:"median_ms"`
	P10          float64 `json:"p10_ms"`
	P90          float64 `json:"p90_ms"`
	Floor        float64 `json:"floor_ms,omitempty"`
	WithBarriers float64 `json:"floor_with_barriers_ms,omitempty"`
	Share        float64 `json:"share_of_floor,omitempty"`
	GFLOPS       float64 `json:"gflop_per_s,omitempty"`
	GBS          float64 `json:"gb_per_s,omitempty"`
	Passes       int     `json:"passes"`
	Error        string  `json:"error,omitempty"`
}

// runRows measures the list on a GPU, and prints it as a table. If a row fails, the
// others are measured all the same, the error names it, and the exit status is 1.
func (b *benchFlags) runRows(ctx context.Context, m *modelFlags, stdout, stderr io.Writer) error {
	backend, err := m.backend()
	if err != nil {
		return err
	}
	defer backend.Close()
	if !backend.Describe().GPU {
		return errors.New("--rows measures a GPU, and this is the CPU; use --device cuda, which says what is missing")
	}
	device, err := measureDevice(ctx, backend, 0, m, stderr)
	if err != nil {
		return err
	}
	var results []benchResult
	var failed error
	open := openRows{}
	defer open.close()
	for _, row := range benchRows() {
		r, err := row.measure(ctx, open, backend, device, b.repeat)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s: %w", row.name, err))
			r.Error = err.Error()
		}
		results = append(results, r)
	}
	start, err := firstToken(ctx, m, 5)
	if err != nil {
		failed = errors.Join(failed, fmt.Errorf("%s: %w", start.Work, err))
		start.Error = err.Error()
	}
	results = append(results, start)
	mode := backend.Describe().Mode
	if b.json {
		err = writeJSON(stdout, map[string]any{
			"date": time.Now().UTC().Format(time.RFC3339), "device": device, "dtype": backend.Describe().WeightType, "mode": mode,
			"version": version(), "rows": results,
		})
	} else {
		var out bytes.Buffer
		fmt.Fprintf(&out, "%s\n%s, mode %s, greedy, %s; infer %s\n\n", device, backend.Describe().WeightType, mode, time.Now().UTC().Format(time.RFC3339), version())
		printRows(&out, results)
		err = writeOutput(stdout, out.Bytes())
	}
	if failed != nil {
		return oneLine(failed)
	}
	return err
}

// openRows are the models that rows have used, each with a session of one sequence,
// which keeps the weights on the device: those of a random model take a while.
type openRows map[string]*gpt2.Session

func (o openRows) close() {
	for _, s := range o {
		s.Close()
		s.Model().Close()
	}
}

// session returns a session for a row, and what closes it.
func (o openRows) session(ctx context.Context, row benchRow, backend gpt2.Backend) (*gpt2.Session, func() error, error) {
	s := o[row.model]
	if s == nil {
		model, err := gpt2.Random(row.model)
		if err != nil {
			return nil, nil, err
		}
		if s, err = gpt2.NewSession(ctx, model, backend, gpt2.Options{Batch: 1}); err != nil {
			return nil, nil, cmp.Or(err, model.Close())
		}
		o[row.model] = s
	}
	if row.phase.Batch == 1 {
		return s, func() error { return nil }, nil
	}
	s, err := gpt2.NewSession(ctx, s.Model(), backend, gpt2.Options{Batch: row.phase.Batch})
	if err != nil {
		return nil, nil, err
	}
	return s, s.Close, nil
}

// measure measures a row.
func (row benchRow) measure(ctx context.Context, open openRows, backend gpt2.Backend, device *benchDevice, repeat int) (r benchResult, err error) {
	r = benchResult{Work: row.name, Model: row.model, Batch: row.phase.Batch, Tokens: row.phase.Tokens, Past: row.past}
	s, done, err := open.session(ctx, row, backend)
	if err != nil {
		return r, err
	}
	defer func() { err = cmp.Or(err, done()) }()
	m, err := measure.Pass(ctx, s, row.phase, row.past, repeat)
	if err != nil {
		return r, err
	}
	plan, err := s.Plan(row.phase)
	if err != nil {
		return r, err
	}
	cost, sizes := plan.Cost(row.past), backend.Sizes()
	floor, barriers := device.set.PassFloor(plan.Work(row.past, sizes)), device.set.Barriers(len(plan.Steps))
	r.Median, r.P10, r.P90, r.Passes = ms(m.Median), ms(m.P10), ms(m.P90), len(m.All)
	r.Floor, r.WithBarriers, r.Share = ms(floor), ms(floor+barriers), share(floor, m.Median)
	r.GFLOPS, r.GBS = perSecond(float64(cost.FLOPs), m.Median)/1e9, perSecond(float64(cost.Bytes(sizes)), m.Median)/1e9
	return r, nil
}

// firstToken runs this program on the built-in model and times it from before the
// process starts until its first token can be read.
func firstToken(ctx context.Context, m *modelFlags, repeat int) (benchResult, error) {
	r := benchResult{Work: "process start to first token, built-in model", Batch: 1}
	program, err := os.Executable()
	if err != nil {
		return r, err
	}
	args := []string{"-p", "ROMEO:", "-n", "1", "--temp", "0", "--ignore-eos", "--quiet", "--mode", m.mode, "--device", "cuda"}
	if m.device != "auto" {
		args[len(args)-1] = m.device
	}
	if m.dtype != "" {
		args = append(args, "--dtype", m.dtype)
	}
	var times []time.Duration
	for range repeat {
		var stderr bytes.Buffer
		c := exec.CommandContext(ctx, program, args...)
		c.Stderr = &stderr
		out, err := c.StdoutPipe()
		if err != nil {
			return r, err
		}
		start := time.Now()
		if err := c.Start(); err != nil {
			return r, err
		}
		_, readErr := bufio.NewReader(out).ReadByte()
		elapsed := time.Since(start)
		_, copyErr := io.Copy(io.Discard, out)
		if err := c.Wait(); err != nil {
			return r, fmt.Errorf("%w: %s", err, bytes.TrimSpace(stderr.Bytes()))
		}
		if err := cmp.Or(readErr, copyErr); err != nil {
			return r, err
		}
		times = append(times, elapsed)
	}
	slices.Sort(times)
	r.Median, r.P10, r.P90, r.Passes = ms(stats.Median(times)), ms(times[0]), ms(times[len(times)-1]), repeat
	return r, nil
}

// printRows writes the table.
func printRows(w io.Writer, results []benchResult) {
	printText(w, toLeft, "work\tfloor ms\twith barriers\tmedian ms\tp10 - p90\t% of floor\tTFLOP/s\tGB/s", results, func(r benchResult) string {
		switch {
		case r.Error != "":
			return r.Work + "\t\t\tfailed"
		case r.Floor == 0:
			return fmt.Sprintf("%s\t\t\t%.1f\t%.1f - %.1f", r.Work, r.Median, r.P10, r.P90)
		}
		return fmt.Sprintf("%s\t%.4f\t%.4f\t%.4f\t%.4f - %.4f\t%.0f\t%.1f\t%.0f", r.Work, r.Floor, r.WithBarriers, r.Median, r.P10, r.P90,
			100*r.Share, r.GFLOPS/1e3, r.GBS)
	})
}

// oneLine joins the lines of an error by semicolons.
func oneLine(err error) error {
	return errors.New(string(bytes.ReplaceAll([]byte(err.Error()), []byte("\n"), []byte("; "))))
}

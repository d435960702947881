package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"gpt2scope/ceilings"
	"gpt2scope/gpt2"
	"gpt2scope/measure"
)

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
	Roofline     float64 `json:"roofline_percent,omitempty"` // none if it is faster than its floor
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
	sessions := measure.NewSessions(backend)
	defer sessions.Close()
	for _, row := range measure.Rows() {
		r, err := measureRow(ctx, sessions, row, backend.Sizes(), device, b.repeat)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s: %w", row.Name, err))
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
	d := backend.Describe()
	if b.json {
		err = writeJSON(stdout, rowsJSON{time.Now().UTC().Format(time.RFC3339), version(), device, d.WeightType, d.Mode, d.Fallback, results})
	} else {
		var out bytes.Buffer
		fmt.Fprintf(&out, "%s\n%s, mode %s, greedy, %s; infer %s\n\n", device, d.WeightType, d.Mode, time.Now().UTC().Format(time.RFC3339), version())
		printRows(&out, results)
		err = writeOutput(stdout, out.Bytes())
	}
	if failed != nil {
		return oneLine(failed)
	}
	return err
}

// measureRow measures a row on a device.
func measureRow(ctx context.Context, sessions *measure.Sessions, row measure.Row, sizes gpt2.Sizes, device *benchDevice, repeat int) (benchResult, error) {
	r := benchResult{Work: row.Name, Model: row.Model, Batch: row.Pass.Batch, Tokens: row.Pass.Tokens, Past: row.Past}
	m, plan, err := sessions.Row(ctx, row, repeat)
	if err != nil {
		return r, err
	}
	cost := plan.Cost(row.Past)
	floor, barriers := device.set.PassFloor(plan.Work(row.Past, sizes)), device.set.Barriers(len(plan.Steps))
	r.setTimes(m)
	r.Floor, r.WithBarriers, r.Share = ms(floor), ms(floor+barriers), share(floor, m.Median)
	r.Roofline, _ = ceilings.Roofline(float64(floor), float64(m.Median))
	r.GFLOPS, r.GBS = perSecond(float64(cost.FLOPs), m.Median)/1e9, perSecond(float64(cost.Bytes(sizes)), m.Median)/1e9
	return r, nil
}

func (r *benchResult) setTimes(t measure.Times) {
	r.Median, r.P10, r.P90, r.Passes = ms(t.Median), ms(t.P10), ms(t.P90), len(t.All)
}

// firstToken runs this program on the built-in model, and times it from before the process
// starts until its first token can be read.
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
	times, err := measure.FirstOutput(ctx, program, args, repeat)
	if err == nil {
		r.setTimes(times)
	}
	return r, err
}

// printRows writes the table.
func printRows(w io.Writer, results []benchResult) {
	printText(w, toLeft, "work\tfloor ms\twith barriers\tmedian ms\tp10 - p90\troofline %\tTFLOP/s\tGB/s", results, func(r benchResult) string {
		switch {
		case r.Error != "":
			return r.Work + "\t\t\tfailed"
		case r.Floor == 0:
			return fmt.Sprintf("%s\t\t\t%.1f\t%.1f - %.1f", r.Work, r.Median, r.P10, r.P90)
		}
		return fmt.Sprintf("%s\t%.4f\t%.4f\t%.4f\t%.4f - %.4f\t%s\t%.1f\t%.0f", r.Work, r.Floor, r.WithBarriers, r.Median, r.P10, r.P90,
			rooflineText(r.Floor, r.Median), r.GFLOPS/1e3, r.GBS)
	})
}

// oneLine joins the lines of an error by semicolons.
func oneLine(err error) error {
	return errors.New(string(bytes.ReplaceAll([]byte(err.Error()), []byte("\n"), []byte("; "))))
}

// rowsJSON is what bench --rows --json prints.
type rowsJSON struct {
	Date     string        `json:"date"`
	Version  string        `json:"version"`
	Device   *benchDevice  `json:"device"`
	DType    string        `json:"dtype"`
	Mode     string        `json:"mode"`
	Fallback string        `json:"mode_fallback,omitempty"`
	Rows     []benchResult `json:"rows"`
}

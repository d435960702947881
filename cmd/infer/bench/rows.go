package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"gpt2scope/ceilings"
	"gpt2scope/cmd/infer/cli"
	"gpt2scope/gpt2"
	"gpt2scope/internal/table"
	"gpt2scope/measure"
)

// BenchResult is what was measured of a row.
type BenchResult struct {
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
func (b *benchFlags) runRows(ctx context.Context, m *cli.ModelFlags, stdout, stderr io.Writer) error {
	backend, err := m.Backend()
	if err != nil {
		return err
	}
	defer backend.Close()
	if !backend.Describe().GPU {
		return errors.New("--rows measures a GPU, and this is the CPU; use --device cuda, which says what is missing")
	}
	device, err := measureDevice(ctx, backend, m, stderr)
	if err != nil {
		return err
	}
	var results []BenchResult
	var failed error
	sessions := measure.NewSessions(backend)
	defer sessions.Close()
	for _, row := range measure.Rows() {
		r, err := MeasureRow(ctx, sessions, row, backend.Sizes(), device, b.repeat)
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
		err = cli.WriteJSON(stdout, RowsJSON{time.Now().UTC().Format(time.RFC3339), cli.Version(), device, d.WeightType, d.Mode, d.Fallback, results})
	} else {
		var out bytes.Buffer
		fmt.Fprintf(&out, "%s\n%s, mode %s, greedy, %s; infer %s\n\n", device, d.WeightType, d.Mode, time.Now().UTC().Format(time.RFC3339), cli.Version())
		PrintRows(&out, results)
		err = cli.WriteOutput(stdout, out.Bytes())
	}
	if failed != nil {
		return oneLine(failed)
	}
	return err
}

// MeasureRow measures a row on a device.
func MeasureRow(ctx context.Context, sessions *measure.Sessions, row measure.Row, sizes gpt2.Sizes, device *BenchDevice, repeat int) (BenchResult, error) {
	r := BenchResult{Work: row.Name, Model: row.Model, Batch: row.Pass.Batch, Tokens: row.Pass.Tokens, Past: row.Past}
	m, plan, err := sessions.Row(ctx, row, repeat)
	if err != nil {
		return r, err
	}
	cost := plan.Cost(row.Past)
	floor, barriers := device.Set.PassFloor(plan.Work(row.Past, sizes)), device.Set.Barriers(len(plan.Steps))
	r.setTimes(m)
	r.Floor, r.WithBarriers, r.Share = cli.Ms(floor), cli.Ms(floor+barriers), share(floor, m.Median)
	r.Roofline, _ = ceilings.Roofline(float64(floor), float64(m.Median))
	r.GFLOPS, r.GBS = cli.PerSecond(float64(cost.FLOPs), m.Median)/1e9, cli.PerSecond(float64(cost.Bytes(sizes)), m.Median)/1e9
	return r, nil
}

func (r *BenchResult) setTimes(t measure.Times) {
	r.Median, r.P10, r.P90, r.Passes = cli.Ms(t.Median), cli.Ms(t.P10), cli.Ms(t.P90), len(t.All)
}

// firstToken runs this program on the built-in model, and times it from before the process
// starts until its first token can be read.
func firstToken(ctx context.Context, m *cli.ModelFlags, repeat int) (BenchResult, error) {
	r := BenchResult{Work: "process start to first token, built-in model", Batch: 1}
	program, err := os.Executable()
	if err != nil {
		return r, err
	}
	args := []string{"-p", "ROMEO:", "-n", "1", "--temp", "0", "--ignore-eos", "--quiet", "--mode", m.Mode, "--device", "cuda"}
	if m.Device != "auto" {
		args[len(args)-1] = m.Device
	}
	if m.Dtype != "" {
		args = append(args, "--dtype", m.Dtype)
	}
	times, err := measure.FirstOutput(ctx, program, args, repeat)
	if err == nil {
		r.setTimes(times)
	}
	return r, err
}

// PrintRows writes the table.
func PrintRows(w io.Writer, results []BenchResult) {
	table.Lines(w, table.Left, "work\tfloor ms\twith barriers\tmedian ms\tp10 - p90\troofline %\tTFLOP/s\tGB/s", results, func(r BenchResult) string {
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

// RowsJSON is what bench --rows --json prints.
type RowsJSON struct {
	Date     string        `json:"date"`
	Version  string        `json:"version"`
	Device   *BenchDevice  `json:"device"`
	DType    string        `json:"dtype"`
	Mode     string        `json:"mode"`
	Fallback string        `json:"mode_fallback,omitempty"`
	Rows     []BenchResult `json:"rows"`
}

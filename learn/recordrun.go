package learn

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"gpt2scope/traces"
	"gpt2scope/traces/load"
)

// recordRun generates tokens with a model of random weights in a process of its own, records that with CUPTI, and reads
// the recording. words are flags of the command infer.
func (e *Env) recordRun(ctx context.Context, mode string, words ...string) (t *traces.Trace, err error) {
	if len(e.Infer) == 0 {
		return nil, fmt.Errorf("%w: no command is given that records a run", errNotHere)
	}
	if e.Device == nil {
		return nil, fmt.Errorf("%w: %s", errNotHere, e.NoGPU)
	}
	dir, err := os.MkdirTemp("", "learn")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "run.json.gz")
	ids := strings.TrimSuffix(strings.Repeat("464,", 64), ",") // 64 tokens: products of many rows, which cuBLASLt computes
	command := append(e.Infer[:len(e.Infer):len(e.Infer)], "-m", "random:gpt2", "--ids", ids, "-s", "1", "--ignore-eos", "--device", fmt.Sprintf("cuda:%d", e.Device.Info().Index),
		"--mode", mode, "--recorder", "cupti", "--no-baseline", "--quiet", "--trace", file)
	if _, err := e.command(ctx, append(command, words...)); err != nil {
		return nil, err
	}
	return load.Source{Path: file}.Load()
}

// ofEagerRun makes a Run of an experiment whose data are of a recorded run in eager mode.
func ofEagerRun(data func(t *traces.Trace) Data) func(ctx context.Context, e *Env) (Data, error) {
	return func(ctx context.Context, e *Env) (Data, error) {
		t, err := e.recordRun(ctx, "eager", "-n", "12")
		if err != nil {
			return nil, err
		}
		return data(t), nil
	}
}

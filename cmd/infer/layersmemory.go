package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"gpt2scope/gpt2"
	"gpt2scope/layers"
	"gpt2scope/measure"
)

// layersMemory is what a process that measures its own memory prints, in bytes.
type layersMemory struct {
	Host   int64 `json:"host_peak"` // 0 where the system does not tell
	Device int64 `json:"device"`    // 0 of the CPU
}

// newLayersMemory makes the command that "infer layers" runs in processes of their own.
func newLayersMemory(m *modelFlags) *cobra.Command {
	var order string
	var batch, promptLen, past int
	c := &cobra.Command{
		Use: "memory", Hidden: true,
		Short:   "Load a list of layers, run a few passes and print how much memory that took",
		Example: `  infer layers memory --order 0,2,1 --prompt-len 64`,
		RunE: func(c *cobra.Command, _ []string) error {
			return runLayersMemory(c.Context(), m, order, batch, promptLen, past, c.OutOrStdout())
		},
	}
	addFlags(c.Flags(), "Measurement", func(f *pflag.FlagSet) {
		f.StringVar(&order, "order", "0", "run these `LAYERS`, such as 0,2,1")
		f.IntVar(&batch, "batch", 1, "passes have `N` sequences")
		f.IntVar(&promptLen, "prompt-len", 1, "the prefill has `N` tokens")
		f.IntVar(&past, "past", 0, "the cache holds `N` tokens before the decode step")
	})
	return c
}

// memoryRuns is how often the passes run: a GPU makes a graph at the second run.
const memoryRuns = 3

func runLayersMemory(ctx context.Context, m *modelFlags, order string, batch, promptLen, past int, stdout io.Writer) error {
	m.layers, m.quiet = "all", true
	o, err := m.open()
	if err != nil {
		return err
	}
	defer o.close()
	capacity := o.options.Context
	v, err := layers.InOrder(order, o.model.Config.Layers)
	switch {
	case err != nil:
		return usagef("--order %s: %w", shellQuote(order), err)
	case batch < 1 || batch > maxBatch:
		return usagef("--batch %d: it must be from 1 to %d", batch, maxBatch)
	case promptLen < 1 || promptLen > capacity || past < 0 || past >= capacity:
		return usagef("--prompt-len %d, --past %d: the context holds %s", promptLen, past, count(capacity, "token"))
	}
	o.options.Layers = v.Order
	before, _, err := gpt2.MemoryOf(o.backend)
	ofDevice := err == nil
	if err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	s, err := o.load(ctx, io.Discard, batch)
	if err != nil {
		return err
	}
	for range memoryRuns {
		for _, n := range []int{promptLen, max(1, past)} {
			g := gpt2.Generation{Tokens: 1 + min(memoryRuns, capacity-n), IgnoreEOS: true}
			for _, err := range s.Generate(ctx, measure.IDs(s.Model(), batch*n), g) {
				if err != nil {
					return err
				}
			}
			if err := s.Reset(); err != nil {
				return err
			}
		}
	}
	if !ofDevice { // of a host's memory only what was written to counts
		if err := fillContext(ctx, s, batch, promptLen, capacity); err != nil {
			return err
		}
	}
	var out layersMemory
	if ofDevice {
		after, _, err := gpt2.MemoryOf(o.backend)
		if err != nil {
			return err
		}
		out.Device = int64(before) - int64(after)
	}
	out.Host = peakMemory()
	return writeJSON(stdout, out)
}

// fillContext evaluates tokens until the KV cache is full, as many at once as a prefill
// has, so that activations take no more than they did.
func fillContext(ctx context.Context, s *gpt2.Session, batch, atOnce, capacity int) error {
	for s.Position() < capacity {
		n := min(atOnce, capacity-s.Position())
		if _, err := s.Logits(ctx, measure.IDs(s.Model(), batch*n), gpt2.LogitsNone); err != nil {
			return err
		}
	}
	return nil
}

// peakMemory is the most memory that this process had at once, in bytes: VmHWM of
// proc(5). It is 0 where the system does not tell.
func peakMemory() int64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for lines := bufio.NewScanner(bytes.NewReader(status)); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), "VmHWM:"); ok {
			kb, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
			if err == nil {
				return kb << 10
			}
		}
	}
	return 0
}

// childMemory measures a variant in a process of its own: what other variants left
// behind does not count there.
func (r *layersRun) childMemory(ctx context.Context, v layers.Variant) ([]layers.Value, error) {
	order := make([]string, len(v.Order))
	for i, n := range v.Order {
		order[i] = strconv.Itoa(n)
	}
	args := append([]string{"layers", "memory", "--quiet", "--order=" + strings.Join(order, ","), "--batch=" + strconv.Itoa(r.batch),
		"--prompt-len=" + strconv.Itoa(r.promptLen), "--past=" + strconv.Itoa(r.past)}, givenFlags(r.persistent, "quiet", "layers")...)
	var m layersMemory
	if err := runSelf(ctx, args, &m); err != nil {
		return nil, err
	}
	var values []layers.Value
	if m.Host > 0 {
		values = append(values, layers.Value{Metric: "host memory", Unit: "bytes", Value: float64(m.Host)})
	}
	if m.Device > 0 {
		values = append(values, layers.Value{Metric: "device memory", Unit: "bytes", Value: float64(m.Device)})
	}
	return values, nil
}

package layers

import (
	"context"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"gpt2scope/cmd/infer/cli"
	"gpt2scope/layers"
)

// newLayersMemory makes the command that "infer layers" runs in processes of their own.
func newLayersMemory(m *cli.ModelFlags) *cobra.Command {
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
	cli.AddFlags(c.Flags(), "Measurement", func(f *pflag.FlagSet) {
		f.StringVar(&order, "order", "0", "run these `LAYERS`, such as 0,2,1")
		f.Var(cli.Int(&batch, 1, cli.Batches), "batch", "passes have `N` sequences")
		f.Var(cli.Int(&promptLen, 1, cli.AtLeast(1)), "prompt-len", "the prefill has `N` tokens")
		f.Var(cli.Int(&past, 0, cli.AtLeast(0)), "past", "the cache holds `N` tokens before the decode step")
	})
	return c
}

func runLayersMemory(ctx context.Context, m *cli.ModelFlags, order string, batch, promptLen, past int, stdout io.Writer) error {
	m.Layers, m.Quiet = "all", true
	o, err := m.Open()
	if err != nil {
		return err
	}
	defer o.Close()
	capacity := o.Options.Context
	v, err := layers.InOrder(order, o.Model.Config.Layers)
	switch {
	case err != nil:
		return cli.Usagef("--order %s: %w", cli.ShellQuote(order), err)
	case promptLen > capacity || past >= capacity:
		return cli.Usagef("--prompt-len %d, --past %d: the context holds %s", promptLen, past, cli.Count(capacity, "token"))
	}
	options := o.Options
	options.Batch = batch
	e := layers.Experiment{Model: o.Model, Backend: o.Backend, Options: options, PromptLen: promptLen, Past: past}
	use, err := e.MeasureMemory(ctx, v.Order)
	if err != nil {
		return err
	}
	return cli.WriteJSON(stdout, use)
}

// childMemory measures a variant in a process of its own: what other variants left
// behind does not count there.
func (r *layersRun) childMemory(ctx context.Context, v layers.Variant) ([]layers.Value, error) {
	order := make([]string, len(v.Order))
	for i, n := range v.Order {
		order[i] = strconv.Itoa(n)
	}
	args := append([]string{"layers", "memory", "--quiet", "--order=" + strings.Join(order, ","), "--batch=" + strconv.Itoa(r.batch),
		"--prompt-len=" + strconv.Itoa(r.promptLen), "--past=" + strconv.Itoa(r.past)}, cli.GivenFlags(r.persistent, "quiet", "layers")...)
	var m layers.MemoryUse
	if err := cli.RunSelf(ctx, args, &m); err != nil {
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

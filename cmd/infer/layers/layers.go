// Package layers is 'infer layers': it measures what each layer costs, and what it buys.
package layers

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"gpt2scope/cmd/infer/cli"
	"gpt2scope/gpt2"
	"gpt2scope/internal/files"
	"gpt2scope/internal/journal"
	"gpt2scope/layers"
	"gpt2scope/layers/plot"
	"gpt2scope/record"
	"gpt2scope/weights"
)

type layersFlags struct {
	depths, predicted              []int
	phase                          string
	phases                         []string
	promptLen, past, batch, window int
	text                           string
	repeat, passes                 int
	seed                           uint64
	verify                         bool
	drop, again                    []int
	orders                         []string
	energy, warmUp                 float64
	noFloor                        bool
	output
	part journal.Shard
}

// output says where the results of an experiment go.
type output struct {
	dir                  string
	force, json, noPlots bool
}

func New(m *cli.ModelFlags) *cobra.Command {
	var l layersFlags
	c := &cobra.Command{
		Use:   "layers -o DIR",
		Short: "Measure what each layer costs in time, memory and energy, and what it buys",
		Long: `layers measures a model at several depths, its first layer, its first two and so on: the time of a prefill
and of a decode step, energy per token if the device counts it, and how good the predictions are. A line
through the times gives the cost of a layer and of everything else; if they lie on no line, the cost of a
layer is given from depth to depth.

Depths are measured in turns, in rounds of random order. DIR holds layers.csv, layers.json and layers.state,
from which the same command goes on after Ctrl-C. --shard divides the measurements among several machines.

With --text the quality is that of 'infer eval'; without, each depth is compared with the whole model on a
text that the whole model writes. Beyond its last layer a model of random weights begins again with its
first. --drop, --repeat-layer and --order measure other lists of layers, which count from 0.`,
		Example: `  infer layers --range 1-6 --text play.txt --repeat 20 -o out
  infer layers -m random:gpt2 --range 1-12 --predict 24,48 --verify -o out
  infer layers --drop 0 --drop 5 --repeat-layer 2 --order 0,2,1,3,4,5 -o out
  infer layers --range 1-6 --shard 2/8 -o part2`,
		RunE: func(c *cobra.Command, _ []string) error {
			return l.run(c.Context(), m, c, c.InOrStdin(), c.OutOrStdout())
		},
	}
	cli.AddFlags(c.Flags(), "Layers", func(f *pflag.FlagSet) {
		f.Func("range", "measure these `DEPTHS`, such as 1-6 or 1,2,4,12 (default: all of the model, or only the whole one "+
			"beside --drop, --repeat-layer, --order)", parsed(&l.depths, layers.ParseDepths))
		f.IntSliceVar(&l.drop, "drop", nil, "measure the model without layer `N`; may be repeated")
		f.IntSliceVar(&l.again, "repeat-layer", nil, "measure the model with layer `N` twice in a row; may be repeated")
		f.StringArrayVar(&l.orders, "order", nil, "measure the model with these `LAYERS`, such as 0,2,1; may be repeated")
		f.Func("predict", "predict times at these `DEPTHS`, such as 24,48", parsed(&l.predicted, layers.ParseDepths))
		f.BoolVar(&l.verify, "verify", false, "measure the predicted depths too, and print the error")
	})
	cli.AddFlags(c.Flags(), "Measurement", func(f *pflag.FlagSet) {
		f.Var(cli.OneOf(&l.phase, "prefill,decode", "prefill", "decode", "prefill,decode"), "phase", "measure these `PHASES`")
		f.Var(cli.Int(&l.promptLen, 0, cli.AtLeast(1)), "prompt-len",
			"the prefill has `N` tokens (default: 256, or a shorter context)")
		f.Var(cli.Int(&l.past, 0, cli.AtLeast(0)), "past",
			"the cache holds `N` tokens before the decode step (default: 128, or half a shorter context)")
		f.Var(cli.Int(&l.batch, 1, cli.Batches), "batch", "passes have `N` sequences")
		f.Var(cli.Int(&l.repeat, 10, cli.Between(1, maxLayersRepeat)), "repeat", "measure each phase of each depth `N` times")
		f.Var(cli.Int(&l.passes, 5, cli.Between(1, maxLayersRepeat)), "passes", "each time, take the median of `N` passes")
		f.Var(cli.Float(&l.warmUp, 1, cli.Between(0.0, 3600)), "warm-up",
			"run passes for `S` seconds before the first measurement")
		f.Func("shard", "do part `I/N` of the measurements, such as 2/8", parsed(&l.part, journal.ParseShard))
		f.Uint64Var(&l.seed, "seed", 1, "`SEED` of the order and of the text that the model writes")
		f.Var(cli.Float(&l.energy, 2, cli.Between(0.1, 3600).Or(0, "none")), "energy-seconds",
			"decode each depth for `S` seconds to measure its energy; 0 skips that")
		f.BoolVar(&l.noFloor, "no-floor", false, "do not measure the device for floors")
	})
	cli.AddFlags(c.Flags(), "Quality", func(f *pflag.FlagSet) {
		f.StringVar(&l.text, "text", "", "`FILE` with a text to predict; - is standard input")
		f.Var(cli.Int(&l.window, 0, cli.AtLeast(1)), "window",
			"`N` tokens are evaluated at once (default: 512 of a text, 256 of the model's own, or a shorter context)")
	})
	cli.AddFlags(c.Flags(), "Output", func(f *pflag.FlagSet) {
		l.register(f, "write into a DIR that holds other files than those of an experiment")
	})
	c.AddCommand(newLayersMerge())
	return c
}

func (o *output) register(f *pflag.FlagSet, force string) {
	f.StringVarP(&o.dir, "out", "o", "", "`DIR` for the results; it is made if it does not exist")
	f.BoolVar(&o.json, "json", false, "print one JSON object, which is that of layers.json, for the tables")
	f.BoolVar(&o.noPlots, "no-plots", false, "draw no pictures and no page")
	f.BoolVar(&o.force, "force", false, force)
}

// parsed sets a value from the text of a flag.
func parsed[T any](to *T, parse func(string) (T, error)) func(string) error {
	return func(text string) (err error) {
		*to, err = parse(text)
		return err
	}
}

// check finds values that no model could make right.
func (l *layersFlags) check(flags *pflag.FlagSet) error {
	l.phases = strings.Split(l.phase, ",")
	switch {
	case flags.Changed("layers"):
		return cli.Usagef("--layers: this command chooses the layers by --range, --drop, --repeat-layer and --order")
	case l.dir == "":
		return cli.Usagef("give the directory to write: --out DIR")
	case l.verify && l.predicted == nil:
		return cli.Usagef("--verify is for predicted depths; add --predict, such as --predict 24")
	}
	return nil
}

// maxLayersRepeat bounds how often a depth is measured: the order of all is made beforehand.
const maxLayersRepeat = 1000

func (l *layersFlags) variants(model *gpt2.Model) ([]layers.Variant, error) {
	L := model.Config.Layers
	whatIf := len(l.drop)+len(l.again)+len(l.orders) > 0
	depths := l.depths
	switch {
	case len(depths) > 0:
		if most := depths[len(depths)-1]; most > L && !strings.HasPrefix(model.Name, gpt2.RandomPrefix) {
			return nil, cli.Usagef("--range: depth %d: model %s has %s; measure a deeper one of random weights: -m random:gpt2",
				most, model.Name, cli.Count(L, "layer"))
		}
	case whatIf:
		depths = []int{L}
	default:
		depths = gpt2.FirstLayers(L + 1)[1:]
	}
	var out []layers.Variant
	for _, n := range depths {
		out = append(out, layers.Depth(n, L))
	}
	if whatIf && !slices.Contains(depths, L) { // to compare with
		out = append(out, layers.Depth(L, L))
	}
	var failed error
	add := func(flag, value string, v layers.Variant, err error) {
		if slices.ContainsFunc(out, func(o layers.Variant) bool { return o.Label == v.Label }) {
			err = errors.New("it is given twice")
		}
		if err != nil && failed == nil {
			failed = cli.Usagef("--%s %s: %w", flag, cli.ShellQuote(value), err)
		}
		out = append(out, v)
	}
	for _, n := range l.drop {
		v, err := layers.Drop(n, L)
		add("drop", fmt.Sprint(n), v, err)
	}
	for _, n := range l.again {
		v, err := layers.RepeatLayer(n, L)
		add("repeat-layer", fmt.Sprint(n), v, err)
	}
	for _, list := range l.orders {
		v, err := layers.InOrder(list, L)
		add("order", list, v, err)
	}
	return out, failed
}

// fill fills in the lengths that were not given, and checks them against the context.
func (l *layersFlags) fill(flags *pflag.FlagSet, capacity int) error {
	l.promptLen = cmp.Or(l.promptLen, min(256, capacity))
	if !flags.Changed("past") {
		l.past = min(128, capacity/2)
	}
	if l.window == 0 {
		if l.window = min(256, capacity); l.text != "" {
			l.window = min(512, capacity)
		}
	}
	switch {
	case l.promptLen > capacity:
		return cli.Usagef("--prompt-len %d: the context holds %s; give at most that", l.promptLen,
			cli.Count(capacity, "token"))
	case l.past >= capacity:
		return cli.PastTooLong(l.past, capacity)
	case l.window > capacity:
		return cli.Usagef("--window %d: the context holds %s; give at most that", l.window, cli.Count(capacity, "token"))
	}
	return nil
}

func (l *layersFlags) readQuality(ctx context.Context, m *gpt2.Model, stdin io.Reader) (
	ids []int32, bytes int, sum string, err error) {
	if l.text == "" {
		return nil, 0, "", nil
	}
	if err := cli.NeedText(m, ", or leave out --text"); err != nil {
		return nil, 0, "", err
	}
	text, err := cli.ReadText(ctx, l.text, stdin)
	if err != nil {
		return nil, 0, "", err
	}
	if ids, err = files.Await(ctx, func() ([]int32, error) { return m.Tokenizer.EncodeOrdinary(text), nil }); err != nil {
		return nil, 0, "", err
	}
	if len(ids) < l.window || len(ids) < 2 {
		return nil, 0, "", fmt.Errorf("--text %s: it has %s, which is shorter than the window of %d; give a longer text, "+
			"or a smaller --window",
			l.text, cli.Count(len(ids), "token"), l.window)
	}
	return ids, len(text), fmt.Sprintf("%x", sha256.Sum256([]byte(text))), nil
}

func (l *layersFlags) run(ctx context.Context, m *cli.ModelFlags, c *cobra.Command, stdin io.Reader,
	stdout io.Writer) error {
	flags := c.Flags()
	if err := l.check(flags); err != nil {
		return err
	}
	m.Layers = "all"
	o, err := m.Open()
	if err != nil {
		return err
	}
	defer o.Close()
	if err := l.fill(flags, o.Options.Context); err != nil {
		return err
	}
	variants, err := l.variants(o.Model)
	if err != nil {
		return err
	}
	for _, v := range append(slices.Clone(variants), l.verified(o)...) {
		phase := gpt2.Pass{Batch: l.batch, Tokens: o.Options.Context}
		if err := phase.Check(o.Model.Config, v.Order, o.Options.Context); err != nil {
			return err
		}
	}
	ids, bytes, sum, err := l.readQuality(ctx, o.Model, stdin)
	if err != nil {
		return err
	}
	configuration := l.configuration(o, variants, sum, len(ids))
	folder := weights.Folder{Path: l.dir, Reads: []string{o.Model.Source}, Own: layers.State.File, Force: l.force}
	if err := folder.Check(); err != nil {
		return fmt.Errorf("--out %w", err)
	}
	for _, name := range []string{"layers.csv", layers.ResultFile, layers.State.File} {
		if err := cli.CheckSame("--out", filepath.Join(l.dir, name), l.text); err != nil {
			return err
		}
	}
	journal, err := layers.State.Open(l.dir, configuration)
	if err != nil {
		return fmt.Errorf("--out %s: %w", cli.ShellQuote(l.dir), err)
	}
	defer journal.Close()
	run := &layersRun{layersFlags: l, opened: o, journal: journal}
	options := o.Options
	options.Batch = l.batch
	run.Experiment = &layers.Experiment{
		Model: o.Model, Backend: o.Backend, Options: options, PromptLen: l.promptLen, Past: l.past, Passes: l.passes,
		Seed: l.seed, Window: l.window, Text: ids, Bytes: bytes, Shard: l.part,
	}
	result, err := run.all(ctx, variants, configuration)
	if err = errors.Join(err, run.Close()); err != nil {
		return err
	}
	return l.show(ctx, stdout, result)
}

func (o *output) show(ctx context.Context, stdout io.Writer, result *layers.Result) error {
	var b bytes.Buffer
	writeLayers(&b, result)
	if !o.noPlots {
		var words []string
		for _, w := range result.Command {
			words = append(words, cli.ShellQuote(w))
		}
		if err := plot.Write(ctx, o.dir, result, strings.Join(words, " ")+"\n\n"+b.String()); err != nil {
			return err
		}
	}
	if o.json {
		return cli.WriteJSON(stdout, result)
	}
	fmt.Fprintf(&b, "\nresults are in %s\n", o.dir)
	return cli.WriteOutput(stdout, b.Bytes())
}

// verified returns the predicted depths that are measured too.
func (l *layersFlags) verified(o *cli.Opened) []layers.Variant {
	var out []layers.Variant
	for _, n := range l.predicted {
		if l.verify {
			v := layers.Depth(n, o.Model.Config.Layers)
			v.Kind = layers.KindVerify
			out = append(out, v)
		}
	}
	return out
}

func newLayersMerge() *cobra.Command {
	var o output
	c := &cobra.Command{
		Use:   "merge DIR... -o DIR",
		Short: "Put an experiment together that was measured in several parts",
		Long: `merge puts the parts of an experiment together that 'infer layers --shard' measured, each in a DIR of its own,
and prints the tables that one run prints. All parts must be of the same model, the same kind of device and
the same flags. The same command without --shard measures in the new DIR what is missing.`,
		Example:     `  infer layers merge part1 part2 -o all`,
		Annotations: map[string]string{cli.UsesKey: ""},
		Args:        cli.Words(1, 0, "the directories to put together", "DIR... -o DIR"),
		RunE: func(c *cobra.Command, args []string) error {
			return o.merge(c.Context(), args, c.OutOrStdout())
		},
	}
	cli.AddFlags(c.Flags(), "Output", func(f *pflag.FlagSet) { o.register(f, "write into a DIR that holds files") })
	return c
}

func (o *output) merge(ctx context.Context, from []string, stdout io.Writer) error {
	if err := cli.CheckFolder(o.dir, "", o.force); err != nil {
		return err
	}
	for _, dir := range from {
		if err := cli.CheckSame("--out", filepath.Join(o.dir, layers.State.File),
			filepath.Join(dir, layers.State.File)); err != nil {
			return err
		}
	}
	result, rows, err := layers.Merge(from, o.dir)
	if err != nil {
		return err
	}
	result.Command = record.CommandLine()
	if err := layers.Write(ctx, o.dir, rows, result); err != nil {
		return err
	}
	return o.show(ctx, stdout, result)
}

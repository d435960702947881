// Package layers is 'infer layers': it measures what each layer costs, and what it buys.
package layers

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"gpt2scope/cmd/infer/cli"
	"gpt2scope/gpt2"
	"gpt2scope/internal/journal"
	"gpt2scope/layers"
	"gpt2scope/measure"
	"gpt2scope/weights"
)

// layersFlags are the flags of "infer layers".
type layersFlags struct {
	depths                               string
	phases                               []string
	promptLen, past                      int
	batch                                int
	text                                 string
	window                               int
	repeat, passes                       int
	seed                                 uint64
	predict                              string
	verify                               bool
	drop, again                          []int
	orders                               []string
	energy                               float64
	noFloor, noMemory, noStages, noPlots bool
	force, json                          bool
	warmUp                               float64
	dir                                  string
	persistent                           *pflag.FlagSet // the model's
	open                                 func(gpt2.Backend) (*measure.Meter, error)
	shard                                string
	predicted                            []int         // parsed
	part                                 journal.Shard // parsed
}

// New makes "infer layers".
func New(m *cli.ModelFlags, open func(gpt2.Backend) (*measure.Meter, error)) *cobra.Command {
	l := layersFlags{open: open}
	c := &cobra.Command{
		Use:   "layers -o DIR",
		Short: "Measure what each layer costs in time, memory and energy, and what it buys",
		Long: `layers measures a model at several depths, its first layer, its first two and so on:
the time of a prefill and of a decode step, memory, energy
per token if the device counts it, and how good the predictions are. A line through the
times gives the cost of a layer and of everything else; a recording by stages gives both
again, to compare. If the times do not lie on a line, as when more and more layers fit a
cache no longer, the cost of a layer is given from depth to depth, with the reason.

All depths are measured in turns, in rounds of random order, after a warm-up.
Each is the median of a few passes on random tokens. DIR holds layers.csv, a row for
each, in the order in which they were made; layers.json, the result; and layers.state.
After Ctrl-C the same command continues from there. --shard divides the measurements among
several processes or machines; 'infer layers merge' puts them together.

With --text the quality is that of 'infer eval' on the text. Without, each depth is
compared with the whole model on a text that the whole model writes: how often its most
probable token is the same, and the KL divergence of its distribution.

Beyond its last layer a model of random weights begins again with its first. --drop,
--repeat-layer and --order measure the model with another list of layers, beside the
whole model; layers count from 0, as in the names of stages. They may be repeated.`,
		Example: `  infer layers -o out
  infer layers --range 1-6 --text play.txt --repeat 20 -o out
  infer layers -m random:gpt2 --range 1-12 --predict 24,48 --verify -o out
  infer layers --drop 0 --drop 5 --repeat-layer 2 --order 0,2,1,3,4,5 -o out
  infer layers -m random:gpt2 --range 1-48 --device cuda --mode eager -o out
  infer layers --range 1-6 --shard 2/8 -o part2`,
		Annotations: map[string]string{cli.ArgumentKey: "-o"},
		RunE: func(c *cobra.Command, _ []string) error {
			return l.run(c.Context(), m, c, c.InOrStdin(), c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	cli.AddFlags(c.Flags(), "Layers", func(f *pflag.FlagSet) {
		f.StringVar(&l.depths, "range", "", "measure these `DEPTHS`, such as 1-6 or 1,2,4,12 (default: all of the\nmodel, or only the whole one beside --drop, --repeat-layer, --order)")
		f.IntSliceVar(&l.drop, "drop", nil, "measure the model without layer `N`; may be repeated")
		f.IntSliceVar(&l.again, "repeat-layer", nil, "measure the model with layer `N` twice in a row; may be repeated")
		f.StringArrayVar(&l.orders, "order", nil, "measure the model with these `LAYERS`, such as 0,2,1; may be repeated")
		f.StringVar(&l.predict, "predict", "", "predict time and memory at these `DEPTHS`, such as 24,48")
		f.BoolVar(&l.verify, "verify", false, "measure the predicted depths too, and print the error")
	})
	cli.AddFlags(c.Flags(), "Measurement", func(f *pflag.FlagSet) {
		f.StringSliceVar(&l.phases, "phase", []string{"prefill", "decode"}, "measure these `PHASES`: prefill, decode or both")
		f.Var(cli.Int(&l.promptLen, 0, cli.AtLeast(1)), "prompt-len", "the prefill has `N` tokens (default: 256, or the context if it\nis shorter)")
		f.Var(cli.Int(&l.past, 0, cli.AtLeast(0)), "past", "the cache holds `N` tokens before the decode step (default: 128,\nor half the context if that is shorter)")
		f.Var(cli.Int(&l.batch, 1, cli.Batches), "batch", "passes have `N` sequences")
		f.Var(cli.Int(&l.repeat, 10, cli.Between(1, maxLayersRepeat)), "repeat", "measure each phase of each depth `N` times")
		f.Var(cli.Int(&l.passes, 5, cli.Between(1, maxLayersRepeat)), "passes", "each time, take the median of `N` passes")
		f.Var(cli.Float(&l.warmUp, 1, cli.Between(0.0, 3600)), "warm-up", "run passes for `S` seconds before the first measurement")
		f.StringVar(&l.shard, "shard", "", "do part `I/N` of the measurements, such as 2/8")
		f.Uint64Var(&l.seed, "seed", 1, "`SEED` of the order and of the text that the model writes")
		f.Var(cli.Float(&l.energy, 2, cli.Between(0.1, 3600).Or(0, "none")), "energy-seconds", "decode each depth for `S` seconds to measure its energy; 0 skips\nthat")
		f.BoolVar(&l.noFloor, "no-floor", false, "do not measure the device for floors")
		f.BoolVar(&l.noMemory, "no-memory", false, "do not measure memory, which takes a process for each depth")
		f.BoolVar(&l.noStages, "no-stages", false, "do not record the deepest by stages")
	})
	cli.AddFlags(c.Flags(), "Quality", func(f *pflag.FlagSet) {
		f.StringVar(&l.text, "text", "", "`FILE` with a text to predict; - is standard input")
		f.Var(cli.Int(&l.window, 0, cli.AtLeast(1)), "window", "`N` tokens are evaluated at once (default: 512 of a text, 256 of\nthe model's own, or the context if it is shorter)")
	})
	cli.AddFlags(c.Flags(), "Output", func(f *pflag.FlagSet) {
		f.StringVarP(&l.dir, "out", "o", "", "`DIR` for the results; it is made if it does not exist")
		f.BoolVar(&l.force, "force", false, "write into a DIR that holds other files than those of an experiment")
		f.BoolVar(&l.json, "json", false, "print one JSON object, which is that of layers.json, for the tables")
		f.BoolVar(&l.noPlots, "no-plots", false, "draw no pictures and no page")
	})
	c.AddCommand(newLayersMemory(m), newLayersMerge())
	return c
}

// check finds values that no model could make right.
func (l *layersFlags) check(flags *pflag.FlagSet) (err error) {
	switch {
	case flags.Changed("layers"):
		return cli.Usagef("--layers: this command chooses the layers by --range, --drop, --repeat-layer and --order")
	case l.dir == "":
		return cli.Usagef("give the directory to write: --out DIR")
	case flags.Changed("text") && l.text == "":
		return cli.Usagef("--text needs the name of a file; - is standard input")
	case l.verify && !flags.Changed("predict"):
		return cli.Usagef("--verify is for predicted depths; add --predict, such as --predict 24")
	case len(l.phases) == 0:
		return cli.Usagef("--phase: it is empty; give prefill, decode, or both")
	}
	for _, p := range l.phases {
		if p != layers.TaskPrefill && p != layers.TaskDecode {
			return cli.Usagef("--phase %s: it must be prefill or decode, or both: prefill,decode", cli.ShellQuote(p))
		}
	}
	slices.Sort(l.phases)
	slices.Reverse(l.phases) // prefill first
	l.phases = slices.Compact(l.phases)
	if flags.Changed("shard") {
		if l.part, err = journal.ParseShard(l.shard); err != nil {
			return cli.Usagef("--shard: %w", err)
		}
	}
	if flags.Changed("range") {
		if _, err := layers.ParseDepths(l.depths); err != nil {
			return cli.Usagef("--range %s: %w", cli.ShellQuote(l.depths), err)
		}
	}
	if flags.Changed("predict") {
		if l.predicted, err = layers.ParseDepths(l.predict); err != nil {
			return cli.Usagef("--predict %s: %w", cli.ShellQuote(l.predict), err)
		}
	}
	return nil
}

// maxLayersRepeat bounds how often a depth is measured: the order of all is made
// beforehand.
const maxLayersRepeat = 1000

// variants returns what the flags ask for.
func (l *layersFlags) variants(flags *pflag.FlagSet, model *gpt2.Model) ([]layers.Variant, error) {
	L := model.Config.Layers
	whatIf := len(l.drop)+len(l.again)+len(l.orders) > 0
	depths := gpt2.FirstLayers(L + 1)[1:]
	switch {
	case flags.Changed("range"):
		var err error
		if depths, err = layers.ParseDepths(l.depths); err != nil {
			return nil, err
		}
		random := strings.HasPrefix(model.Name, gpt2.RandomPrefix)
		if most := depths[len(depths)-1]; most > L && !random {
			return nil, cli.Usagef("--range %s: depth %d: model %s has %s; give at most %d, or measure a deeper one of random weights: -m random:gpt2",
				cli.ShellQuote(l.depths), most, model.Name, cli.Count(L, "layer"), L)
		}
	case whatIf:
		depths = []int{L}
	}
	var out []layers.Variant
	for _, n := range depths {
		out = append(out, layers.Depth(n, L))
	}
	add := func(flag, value string, v layers.Variant, err error) error {
		if err != nil {
			return cli.Usagef("--%s %s: %w", flag, cli.ShellQuote(value), err)
		}
		if slices.ContainsFunc(out, func(o layers.Variant) bool { return o.Label == v.Label }) {
			return cli.Usagef("--%s %s: it is given twice", flag, cli.ShellQuote(value))
		}
		out = append(out, v)
		return nil
	}
	if whatIf && !slices.Contains(depths, L) { // to compare with
		out = append(out, layers.Depth(L, L))
	}
	for _, n := range l.drop {
		v, err := layers.Drop(n, L)
		if err := add("drop", fmt.Sprint(n), v, err); err != nil {
			return nil, err
		}
	}
	for _, n := range l.again {
		v, err := layers.RepeatLayer(n, L)
		if err := add("repeat-layer", fmt.Sprint(n), v, err); err != nil {
			return nil, err
		}
	}
	for _, list := range l.orders {
		v, err := layers.InOrder(list, L)
		if err := add("order", list, v, err); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// fill fills in the lengths that were not given, and checks them against the context.
func (l *layersFlags) fill(flags *pflag.FlagSet, capacity int) error {
	if l.promptLen == 0 {
		l.promptLen = min(256, capacity)
	}
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
		return cli.Usagef("--prompt-len %d: the context holds %s; give at most that", l.promptLen, cli.Count(capacity, "token"))
	case l.past >= capacity:
		return cli.PastTooLong(l.past, capacity)
	case l.window > capacity:
		return cli.Usagef("--window %d: the context holds %s; give at most that", l.window, cli.Count(capacity, "token"))
	}
	return nil
}

// readQuality reads the text to predict.
func (l *layersFlags) readQuality(ctx context.Context, m *gpt2.Model, stdin io.Reader) (ids []int32, bytes int, sum string, err error) {
	if l.text == "" {
		return nil, 0, "", nil
	}
	if m.Tokenizer == nil {
		return nil, 0, "", fmt.Errorf("model %s has no tokenizer; a text cannot be evaluated; leave out --text", m.Name)
	}
	text, err := cli.ReadText(ctx, l.text, stdin)
	if err != nil {
		return nil, 0, "", err
	}
	if ids, err = cli.Await(ctx, func() ([]int32, error) { return m.Tokenizer.EncodeOrdinary(text), nil }); err != nil {
		return nil, 0, "", err
	}
	if len(ids) < l.window || len(ids) < 2 {
		return nil, 0, "", fmt.Errorf("--text %s: it has %s, which is shorter than the window of %d; give a longer text, or a smaller --window", l.text, cli.Count(len(ids), "token"), l.window)
	}
	return ids, len(text), fmt.Sprintf("%x", sha256.Sum256([]byte(text))), nil
}

// run does the experiment.
func (l *layersFlags) run(ctx context.Context, m *cli.ModelFlags, c *cobra.Command, stdin io.Reader, stdout, stderr io.Writer) error {
	flags := c.Flags()
	if err := l.check(flags); err != nil {
		return err
	}
	l.persistent = c.Root().PersistentFlags()
	m.Layers = "all"
	o, err := m.Open()
	if err != nil {
		return err
	}
	defer o.Close()
	if err := l.fill(flags, o.Options.Context); err != nil {
		return err
	}
	variants, err := l.variants(flags, o.Model)
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
	folder := weights.Folder{Path: l.dir, Reads: []string{o.Model.Source}}
	_, absent := os.Stat(filepath.Join(l.dir, layers.StateFile))
	folder.Force = l.force || absent == nil
	if err := folder.Check(); err != nil {
		return fmt.Errorf("--out %w", err)
	}
	for _, name := range []string{"layers.csv", layers.ResultFile, layers.StateFile} {
		if err := cli.CheckSame("--out", filepath.Join(l.dir, name), l.text); err != nil {
			return err
		}
	}
	journal, err := layers.OpenJournal(l.dir, configuration)
	if err != nil {
		return fmt.Errorf("--out %s: %w", cli.ShellQuote(l.dir), err)
	}
	defer journal.Close()
	run := &layersRun{layersFlags: l, opened: o, journal: journal, stderr: stderr}
	options := o.Options
	options.Batch = l.batch
	run.Experiment = &layers.Experiment{
		Model: o.Model, Backend: o.Backend, Options: options, PromptLen: l.promptLen, Past: l.past, Passes: l.passes,
		Phases: l.phases, Seed: l.seed, Window: l.window, Text: ids, Bytes: bytes, Shard: l.part,
	}
	result, err := run.all(ctx, variants, configuration)
	if err = errors.Join(err, run.Close()); err != nil {
		return err
	}
	return showLayers(stdout, result, l.dir, l.json)
}

// showLayers writes the result of an experiment whose files are in a directory.
func showLayers(stdout io.Writer, result *layers.Result, dir string, asJSON bool) error {
	if asJSON {
		return cli.WriteJSON(stdout, result)
	}
	var b strings.Builder
	writeLayers(&b, result)
	fmt.Fprintf(&b, "\nresults are in %s\n", dir)
	return cli.WriteOutput(stdout, []byte(b.String()))
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

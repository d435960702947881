package bench

import (
	"bytes"
	"context"
	"encoding/csv"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"gpt2scope/auto"
	"gpt2scope/cmd/infer/cli"
	"gpt2scope/internal/humanize"
	"gpt2scope/measure"
)

// listFlags are the flags of "infer bench" that measure the tests of llama-bench.
type listFlags struct {
	prompts, gens, depths cli.IntList
	format                string
}

func (l *listFlags) register(f *pflag.FlagSet) {
	l.prompts.Values, l.gens.Values, l.depths.Values = []int{512}, []int{128}, []int{0}
	f.VarP(&l.prompts, "n-prompt", "p", "measure the prefill of `N,...` tokens, 0 for none (default: 512, or\nas many as fit in the context)")
	f.VarP(&l.gens, "n-gen", "n", "measure the generation of `N,...` tokens one after another, 0 for\nnone (default: 128, or as many as fit in the context)")
	f.VarP(&l.depths, "n-depth", "d", "do so with `N,...` tokens in the cache before (default: 0)")
	f.StringVarP(&l.format, "output", "o", "md", "print the results of lists as `FORMAT`: md, csv or json")
}

// listNames are the flags that measure lists; ofLists are those that take a list.
var (
	listNames = []string{"n-prompt", "n-gen", "n-depth", "output"}
	ofLists   = []string{"batch", "device", "dtype", "layers", "mode", "threads"}
)

// ListRepeat is how often a test is repeated by default, as llama-bench does.
const ListRepeat = 5

// wanted tells whether the flags ask for lists: by a flag of lists, or by several values of another.
func (l *listFlags) wanted(flags *pflag.FlagSet) bool {
	return slices.ContainsFunc(listNames, flags.Changed) ||
		slices.ContainsFunc(ofLists, func(name string) bool { return strings.Contains(flags.Lookup(name).Value.String(), ",") })
}

// check refuses values that are wrong for every model, and flags that have no meaning for lists.
func (l *listFlags) check(b *benchFlags, flags *pflag.FlagSet) error {
	for _, name := range []string{"phase", "prompt-len", "logits", "past", "recorder", "no-floor", "rows"} {
		if flags.Changed(name) {
			return cli.Usagef("--%s cannot be combined with lists (-p, -n, -d, -o, several values of --threads and others): leave one of them out", name)
		}
	}
	for _, list := range []struct {
		name   string
		values []int
	}{{"n-prompt", l.prompts.Values}, {"n-gen", l.gens.Values}, {"n-depth", l.depths.Values}} {
		for _, v := range list.values {
			if v < 0 {
				return cli.Usagef("--%s %d: it must be at least 0", list.name, v)
			}
		}
	}
	for _, batch := range b.batches.Values {
		if batch < 1 || batch > cli.MaxBatch {
			return cli.Usagef("--batch %d: it must be from 1 to %d", batch, cli.MaxBatch)
		}
	}
	if !flags.Changed("repeat") {
		b.repeat = ListRepeat
	}
	if b.repeat < 1 || b.repeat > cli.MaxRepeat {
		return cli.Usagef("--repeat %d: it must be from 1 to %d", b.repeat, cli.MaxRepeat)
	}
	if l.format != "md" && l.format != "csv" && l.format != "json" {
		return cli.Usagef("--output %s: it must be md, csv or json", cli.ShellQuote(l.format))
	}
	return nil
}

// tests returns the tests for a context. Defaults that do not fit are cut; what was asked for must fit.
func (l *listFlags) tests(context int) ([]measure.Test, error) {
	var out []measure.Test
	for _, depth := range l.depths.Values {
		add := func(list cli.IntList, make func(n int) measure.Test) error {
			for _, n := range list.Values {
				if room := context - depth; n > room && !list.Changed {
					n = max(room, 0)
				}
				t := make(n)
				if depth+n > context {
					return cli.Usagef("--n-prompt, --n-gen, --n-depth: %s takes %s, and the context holds %s; give less", t, cli.Count(depth+n, "token"), cli.Count(context, "token"))
				}
				if n > 0 {
					out = append(out, t)
				}
			}
			return nil
		}
		if err := add(l.prompts, func(n int) measure.Test { return measure.Test{Prompt: n, Depth: depth} }); err != nil {
			return nil, err
		}
		if err := add(l.gens, func(n int) measure.Test { return measure.Test{Gen: n, Depth: depth} }); err != nil {
			return nil, err
		}
	}
	if len(out) == 0 {
		return nil, cli.Usagef("-p 0 -n 0 leaves nothing to measure")
	}
	return out, nil
}

// ListRow is a result. The JSON names are those of llama-bench for what it has too.
type ListRow struct {
	Commit   string  `json:"build_commit"`
	CPU      string  `json:"cpu_info"`
	GPU      string  `json:"gpu_info"`
	Backend  string  `json:"backends"`
	Model    string  `json:"model_filename"`
	Type     string  `json:"model_type"`
	Size     int64   `json:"model_size"` // bytes of the weights of the layers that run, as they are held
	Params   int64   `json:"model_n_params"`
	DType    string  `json:"dtype"`
	Mode     string  `json:"mode"`
	Layers   int     `json:"layers"`
	OfLayers int     `json:"of_layers"`
	Threads  int     `json:"n_threads"`
	Batch    int     `json:"n_sequences"`
	Prompt   int     `json:"n_prompt"`
	Gen      int     `json:"n_gen"`
	Depth    int     `json:"n_depth"`
	Time     string  `json:"test_time"`
	AvgNS    int64   `json:"avg_ns"`
	StddevNS int64   `json:"stddev_ns"`
	AvgTS    float64 `json:"avg_ts"`
	StddevTS float64 `json:"stddev_ts"`

	SamplesNS []int64   `json:"samples_ns"`
	SamplesTS []float64 `json:"samples_ts"`

	test measure.Test
}

// perPass returns the mean time of a pass in ms: of the prefill, or of one of the decode steps.
func (r *ListRow) perPass() float64 {
	return float64(r.AvgNS) / 1e6 / float64(max(1, r.test.Gen))
}

// runLists measures the product of the lists.
func (b *benchFlags) runLists(ctx context.Context, m *cli.ModelFlags, stdout, stderr io.Writer) error {
	var rows []ListRow
	combinations := m.Each()
	for i, one := range combinations {
		for j, batch := range b.batches.Values {
			note := fmt.Sprintf("measuring, %d of %d", i*len(b.batches.Values)+j+1, len(combinations)*len(b.batches.Values))
			more, err := b.runCombination(ctx, one, batch, note, stderr)
			rows = append(rows, more...)
			if err != nil && len(rows) > 0 { // a Ctrl-C, perhaps: what was measured is not lost
				_ = b.writeLists(stdout, rows)
			}
			if err != nil {
				return err
			}
		}
	}
	return b.writeLists(stdout, rows)
}

// writeLists writes results in the format that the flags ask for.
func (b *benchFlags) writeLists(stdout io.Writer, rows []ListRow) error {
	switch {
	case b.json || b.lists.format == "json":
		return cli.WriteJSON(stdout, rows)
	case b.lists.format == "csv":
		return writeListsCSV(stdout, rows)
	}
	return writeListsMarkdown(stdout, rows)
}

// runCombination measures all tests of one choice of device, type, layers, threads and sequences. With an
// error it returns the results that it has.
func (b *benchFlags) runCombination(ctx context.Context, m *cli.ModelFlags, batch int, note string, stderr io.Writer) ([]ListRow, error) {
	o, err := m.Open()
	if err != nil {
		return nil, err
	}
	defer o.Close()
	tests, err := b.lists.tests(o.Options.Context)
	if err != nil {
		return nil, err
	}
	s, err := o.Load(ctx, stderr, batch)
	if err != nil {
		return nil, err
	}
	defer m.Spin(stderr, note)()
	d, set := o.Backend.Describe(), o.Setting()
	run := o.Model.Config
	run.Layers = len(o.Options.Layers)
	row := ListRow{Commit: cli.Version(), Backend: map[bool]string{false: "CPU", true: "CUDA"}[d.GPU], Model: o.Model.Name, Type: "gpt2",
		Params: int64(run.Parameters()), Size: int64(float64(run.Parameters()) * o.Backend.Sizes().Weight),
		DType: d.WeightType, Mode: d.Mode, Layers: set.Layers, OfLayers: set.OfTotal, Threads: d.Threads, Batch: batch}
	if o.Model.Stored != "" {
		row.Type += " " + o.Model.Stored
	}
	if d.GPU {
		row.GPU = d.Processor
	} else {
		row.CPU = d.Processor
	}
	var rows []ListRow
	for _, t := range tests {
		row := row
		row.test, row.Prompt, row.Gen, row.Depth, row.Time = t, t.Prompt, t.Gen, t.Depth, time.Now().UTC().Format(time.RFC3339)
		result, err := measure.Run(ctx, s, t, b.repeat)
		if err != nil {
			return rows, err
		}
		row.AvgTS, row.StddevTS = result.PerSecond()
		mean, deviation := result.Nanoseconds()
		row.AvgNS, row.StddevNS = int64(mean), int64(deviation)
		for _, sample := range result.Samples {
			row.SamplesNS, row.SamplesTS = append(row.SamplesNS, int64(sample)), append(row.SamplesTS, result.Rate(sample))
		}
		rows = append(rows, row)
	}
	for i := range rows { // mode auto is known to be another one once decode steps have run
		rows[i].Mode = o.Backend.Describe().Mode
	}
	return rows, nil
}

// writeListsMarkdown writes a table like llama-bench's. The columns of modes, layers and batches are there
// only if some row has a mode, a part of the layers or several sequences.
func writeListsMarkdown(w io.Writer, rows []ListRow) error {
	batches := slices.ContainsFunc(rows, func(r ListRow) bool { return r.Batch != 1 })
	modes := slices.ContainsFunc(rows, func(r ListRow) bool { return r.Mode != "" })
	parts := slices.ContainsFunc(rows, func(r ListRow) bool { return r.Layers != r.OfLayers })
	lines := [][]string{{"model", "size", "params", "backend", "threads", "dtype"}}
	right := []bool{false, true, true, false, true, false}
	column := func(title string) {
		lines[0], right = append(lines[0], title), append(right, true)
	}
	if modes {
		column("mode")
	}
	if parts {
		column("layers")
	}
	if batches {
		column("batch")
	}
	column("test")
	column("t/s")
	column("ms/pass")
	for _, r := range rows {
		threads := ""
		if r.Threads > 0 {
			threads = strconv.Itoa(r.Threads)
		}
		line := []string{r.Model, humanize.Size(r.Size), fmt.Sprintf("%.2f M", float64(r.Params)/1e6), r.Backend, threads, r.DType}
		if modes {
			line = append(line, r.Mode)
		}
		if parts {
			line = append(line, fmt.Sprintf("%d of %d", r.Layers, r.OfLayers))
		}
		if batches {
			line = append(line, strconv.Itoa(r.Batch))
		}
		lines = append(lines, append(line, r.test.String(), fmt.Sprintf("%.2f ± %.2f", r.AvgTS, r.StddevTS), fmt.Sprintf("%.3f", r.perPass())))
	}
	widths := make([]int, len(right))
	for _, line := range lines {
		for i, text := range line {
			widths[i] = max(widths[i], len([]rune(text)), 2)
		}
	}
	var b bytes.Buffer
	for i, line := range lines {
		for j, text := range line {
			pad := strings.Repeat(" ", widths[j]-len([]rune(text)))
			if right[j] {
				text = pad + text
			} else {
				text += pad
			}
			fmt.Fprintf(&b, "| %s ", text)
		}
		b.WriteString("|\n")
		if i > 0 {
			continue
		}
		for j, n := range widths {
			end := "-"
			if right[j] {
				end = ":"
			}
			fmt.Fprintf(&b, "| %s%s ", strings.Repeat("-", n-1), end)
		}
		b.WriteString("|\n")
	}
	fmt.Fprintf(&b, "\n%s\n", rows[0].build())
	if words := cli.WaitedWords(auto.Waited()); words != "" {
		fmt.Fprintln(&b, words)
	}
	return cli.WriteOutput(w, b.Bytes())
}

// build says which build and which processors.
func (r *ListRow) build() string {
	words := []string{"build: " + r.Commit}
	for _, p := range []string{r.CPU, r.GPU} {
		if p != "" {
			words = append(words, p)
		}
	}
	return strings.Join(words, "; ")
}

// writeListsCSV writes all fields but the samples, with a heading of the JSON names.
func writeListsCSV(w io.Writer, rows []ListRow) error {
	var b bytes.Buffer
	c := csv.NewWriter(&b)
	lines := make([][]string, 1+len(rows))
	for _, f := range reflect.VisibleFields(reflect.TypeFor[ListRow]()) {
		name := f.Tag.Get("json")
		if name == "" || f.Type.Kind() == reflect.Slice {
			continue
		}
		lines[0] = append(lines[0], name)
		for i := range rows {
			lines[1+i] = append(lines[1+i], fmt.Sprint(reflect.ValueOf(rows[i]).FieldByIndex(f.Index)))
		}
	}
	if err := c.WriteAll(lines); err != nil {
		return err
	}
	return cli.WriteOutput(w, b.Bytes())
}

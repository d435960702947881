package bench

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"gpt2scope/auto"
	"gpt2scope/cmd/infer/cli"
	"gpt2scope/internal/humanize"
	"gpt2scope/internal/table"
	"gpt2scope/measure"
)

type listFlags struct {
	prompts, gens, depths cli.IntList
	format                string
}

func (l *listFlags) register(f *pflag.FlagSet) {
	any := cli.AtLeast(0)
	f.VarP(cli.Ints(&l.prompts, cli.IntList{512}, any), "n-prompt", "p", "measure the prefill of `N,...` tokens, 0 for none; by default at\nmost as many "+
		"as fit in the context")
	f.VarP(cli.Ints(&l.gens, cli.IntList{128}, any), "n-gen", "n", "measure the generation of `N,...` tokens one after another, 0 for\nnone; by default "+
		"at most as many as fit in the context")
	f.VarP(cli.Ints(&l.depths, cli.IntList{0}, any), "n-depth", "d", "do so with `N,...` tokens in the cache before")
	f.VarP(cli.OneOf(&l.format, "md", "md", "csv", "json"), "output", "o",
		"print the results of lists as `FORMAT`: md, csv or json")
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
		slices.ContainsFunc(ofLists, func(name string) bool {
			return strings.Contains(flags.Lookup(name).Value.String(), ",")
		})
}

// tests returns the tests for a context. Defaults that do not fit are cut; what was asked for must fit.
func (l *listFlags) tests(flags *pflag.FlagSet, context int) (out []measure.Test, err error) {
	for _, depth := range l.depths {
		add := func(flag string, list cli.IntList, test func(n int) measure.Test) {
			for _, n := range list {
				if !flags.Changed(flag) {
					n = min(n, max(context-depth, 0))
				}
				t := test(n)
				if depth+n > context {
					err = cli.Usagef("--n-prompt, --n-gen, --n-depth: %s takes %s, and the context holds %s; give less",
						t, cli.Count(depth+n, "token"), cli.Count(context, "token"))
				}
				if n > 0 {
					out = append(out, t)
				}
			}
		}
		add("n-prompt", l.prompts, func(n int) measure.Test { return measure.Test{Prompt: n, Depth: depth} })
		add("n-gen", l.gens, func(n int) measure.Test { return measure.Test{Gen: n, Depth: depth} })
	}
	if len(out) == 0 && err == nil {
		err = cli.Usagef("-p 0 -n 0 leaves nothing to measure")
	}
	return out, err
}

// ListRow is a result. The JSON names are those of llama-bench for what it has too.
type ListRow struct {
	Commit   string  `json:"build_commit"`   // the first line of infer version
	CPU      string  `json:"cpu_info"`       // the processor
	GPU      string  `json:"gpu_info"`       // "" if the other one computes
	Backend  string  `json:"backends"`       // CPU or CUDA
	Model    string  `json:"model_filename"` // --model
	Type     string  `json:"model_type"`     // gpt2, and the type of most weights in a GGUF file
	Size     int64   `json:"model_size"`     // bytes of the weights of the layers that run, as they are held
	Params   int64   `json:"model_n_params"` // parameters of the layers that run, with embeddings and head
	DType    string  `json:"dtype"`          // as in Configuration
	Mode     string  `json:"mode"`           // mode is "" on the CPU
	Layers   int     `json:"layers"`         // layers that run
	OfLayers int     `json:"of_layers"`      // and those of the model
	Threads  int     `json:"n_threads"`      // 0 on a GPU
	Batch    int     `json:"n_sequences"`    // --batch
	Prompt   int     `json:"n_prompt"`       // tokens of the prefill
	Gen      int     `json:"n_gen"`          // decode steps (one of the two is 0)
	Depth    int     `json:"n_depth"`        // tokens in the cache before
	Time     string  `json:"test_time"`      // when the test began, RFC 3339
	AvgNS    int64   `json:"avg_ns"`         // time of the test: mean over the repetitions
	StddevNS int64   `json:"stddev_ns"`      // standard deviation
	AvgTS    float64 `json:"avg_ts"`         // tokens per second of all sequences: mean over the repetitions
	StddevTS float64 `json:"stddev_ts"`      // standard deviation

	SamplesNS []int64   `json:"samples_ns"` // of each repetition
	SamplesTS []float64 `json:"samples_ts"` // of each repetition

	test measure.Test
}

func (b *benchFlags) runLists(c *cobra.Command, m *cli.ModelFlags) error {
	for _, name := range []string{"phase", "prompt-len", "logits", "past", "recorder", "no-floor"} {
		if c.Flags().Changed(name) {
			return cli.Usagef("--%s cannot be combined with lists (-p, -n, -d, -o, several values of --threads and others)",
				name)
		}
	}
	if !c.Flags().Changed("repeat") {
		b.repeat = ListRepeat
	}
	var rows []ListRow
	var err error
	all := m.Each()
	for i, one := range all {
		for j, batch := range b.batches {
			if err == nil {
				note := fmt.Sprintf("measuring, %d of %d", i*len(b.batches)+j+1, len(all)*len(b.batches))
				var more []ListRow
				more, err = b.runCombination(c, one, batch, note)
				rows = append(rows, more...)
			}
		}
	}
	if len(rows) == 0 {
		return err
	}
	var text bytes.Buffer // also after a Ctrl-C: what was measured is not lost
	if b.lists.format == "csv" {
		writeListsCSV(&text, rows)
	} else {
		writeListsMarkdown(&text, rows)
	}
	return cmp.Or(err, cli.Print(c, b.json || b.lists.format == "json", rows, func(w io.Writer) { w.Write(text.Bytes()) }))
}

// runCombination measures all tests of one choice of device, type, layers, threads and sequences. With an error it
// returns the results that it has.
func (b *benchFlags) runCombination(c *cobra.Command, m *cli.ModelFlags, batch int, note string) ([]ListRow, error) {
	ctx := c.Context()
	o, err := m.Open()
	if err != nil {
		return nil, err
	}
	defer o.Close()
	tests, err := b.lists.tests(c.Flags(), o.Options.Context)
	if err != nil {
		return nil, err
	}
	s, err := o.Load(ctx, batch)
	if err != nil {
		return nil, err
	}
	defer m.Spin(note)()
	d, set := o.Backend.Describe(), o.Setting()
	run := o.Model.Config
	run.Layers = len(o.Options.Layers)
	row := ListRow{Commit: cli.Version(), Backend: map[bool]string{false: "CPU", true: "CUDA"}[d.GPU],
		Model: o.Model.Name, Type: "gpt2",
		Params: int64(run.Parameters()), Size: int64(float64(run.Parameters()) * o.Backend.Sizes(o.Model).Weight),
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
		row.test, row.Prompt, row.Gen, row.Depth, row.Time = t, t.Prompt, t.Gen, t.Depth,
			time.Now().UTC().Format(time.RFC3339)
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

// writeListsMarkdown writes a table like llama-bench's.
func writeListsMarkdown(w io.Writer, rows []ListRow) {
	columns := []table.Column[ListRow]{
		table.Text("model", "model", func(r *ListRow) string { return r.Model }),
		table.Word("size", func(r *ListRow) string { return humanize.Size(r.Size) }),
		table.Word("params", func(r *ListRow) string { return fmt.Sprintf("%.2f M", float64(r.Params)/1e6) }),
		table.Text("backend", "backend", func(r *ListRow) string { return r.Backend }),
		table.Count("threads", "threads", func(r *ListRow) int { return r.Threads }),
		table.Text("dtype", "dtype", func(r *ListRow) string { return r.DType }),
		table.Word("mode", func(r *ListRow) string { return r.Mode }),
		table.Word("layers", func(r *ListRow) string { return fmt.Sprintf("%d of %d", r.Layers, r.OfLayers) }),
		table.Count("batch", "batch", func(r *ListRow) int { return r.Batch }),
		table.Word("test", func(r *ListRow) string { return r.test.String() }),
		table.Word("t/s", func(r *ListRow) string { return fmt.Sprintf("%.2f ± %.2f", r.AvgTS, r.StddevTS) }),
		table.Word("ms/pass", func(r *ListRow) string {
			return fmt.Sprintf("%.3f", float64(r.AvgNS)/1e6/float64(max(1, r.test.Gen)))
		}),
	}
	table.Markdown(w, columns, rows)
	r := rows[0]
	words := slices.DeleteFunc([]string{"build: " + r.Commit, r.CPU, r.GPU}, func(word string) bool { return word == "" })
	fmt.Fprintf(w, "\n%s\n", strings.Join(words, "; "))
	if words := cli.WaitedWords(auto.Waited()); words != "" {
		fmt.Fprintln(w, words)
	}
}

// writeListsCSV writes all fields but the samples, with a heading of the JSON names.
func writeListsCSV(w io.Writer, rows []ListRow) {
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
	csv.NewWriter(w).WriteAll(lines)
}

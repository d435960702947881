package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"gpt2scope/cpu"
	"gpt2scope/cuda"
	"gpt2scope/cuda/exec"
	"gpt2scope/dispatch/auto"
	"gpt2scope/gpt2"
	"gpt2scope/nvtx"
	"gpt2scope/nvtx/annotate"
	"gpt2scope/weights"
)

// modelFlags are the flags that every command has: which model, which layers of
// it, where and how it runs.
type modelFlags struct {
	autoFlags
	model   string
	layers  string
	device  string
	dtype   string
	mode    string
	variant []string
	tune    bool
	threads int // after check
	context int
	chunk   int
	quiet   bool

	threadList intList
	said       map[string]bool // notices that were given

	forGPU []string  // flags given that only a GPU understands
	record string    // the recorder of passes on a GPU, "" for none
	stderr io.Writer // of the command that runs
	ends   bool      // the process ends after the command, and no profiler needs to see what it frees
}

func (m *modelFlags) register(f *pflag.FlagSet) {
	f.StringVarP(&m.model, "model", "m", "", "`MODEL`: a Hugging Face GPT-2 directory; a GGUF file with F32, F16,\nBF16 or Q8_0 weights, as llama.cpp has them; the name of a model that\n'hf download' got, such as openai-community/gpt2; or random weights:\nrandom:gpt2 (gpt2-medium, gpt2-large, gpt2-xl), or\nrandom:L=1,C=768,NH=12,V=50257,T=1024"+defaultModelHelp)
	f.StringVar(&m.layers, "layers", "", "run the first `N` layers, or 'all' (default: all; of the built-in\nmodel 1, as one profiles a layer)")
	f.StringVar(&m.device, "device", "auto", "`DEVICE`: auto (the one that finishes first; to measure, the GPU if\nall it needs is there), cpu, reference (plain and slow, in\nfloat64), or a GPU: cuda or cuda:N")
	f.StringVar(&m.dtype, "dtype", "", "`TYPE` in which weights are held: f32, bf16, or on the CPU q8, 8-bit\nintegers with a scale for 32 (default: bf16 on a GPU, f32\nelsewhere); a GPU computes in TYPE, the CPU in float32 except where\n'infer devices' says so")
	f.StringVar(&m.mode, "mode", "auto", "`MODE` of a GPU: eager (step after step), graph (recorded once,\nthen replayed), persistent (as graph, and decode steps in one\nkernel), auto (persistent where that is faster, else graph; eager\nwhen a profiler is attached)")
	f.StringArrayVar(&m.variant, "variant", nil, "`STAGE=NAME`: run a stage on a GPU with another of its kernels, such\nas attn.sdpa=naive ('infer bench kernel' lists them); decode=steps\nruns each step of mode persistent as a kernel; may be repeated")
	f.BoolVar(&m.tune, "tune", false, "time the algorithms of a GPU's matrix products once, and store the\nfastest for later runs")
	m.threadList.values = []int{0}
	f.VarP(&m.threadList, "threads", "t", "`N` CPU threads (default: one for each physical core)")
	f.IntVarP(&m.context, "context", "c", 0, "the context holds `N` tokens (default: as many as the model can)")
	f.IntVar(&m.chunk, "chunk", 0, "evaluate prompts in chunks of `N` tokens (default: whole)")
	f.BoolVar(&m.quiet, "quiet", false, "no progress bar, no closing line")
}

// modeNames are the values of --mode, in the order of exec's modes.
var modeNames = []string{exec.Auto.String(), exec.Eager.String(), exec.Graph.String(), exec.Persistent.String()}

// listsKey marks a command that takes lists, of these flags: several values of --device, --mode, --dtype,
// --layers and --threads.
const listsKey = "lists"

// allDevicesKey marks a command whose --device may be all.
const allDevicesKey = "all devices"

// each returns the flags with one value each, for every combination of values: 'infer bench' takes lists.
func (m *modelFlags) each() []*modelFlags {
	var all []*modelFlags
	for device := range strings.SplitSeq(m.device, ",") {
		for mode := range strings.SplitSeq(m.mode, ",") {
			for dtype := range strings.SplitSeq(m.dtype, ",") {
				for layers := range strings.SplitSeq(m.layers, ",") {
					for _, threads := range m.threadList.values {
						one := *m
						one.device, one.mode, one.dtype, one.layers, one.threads = device, mode, dtype, layers, threads
						all = append(all, &one)
					}
				}
			}
		}
	}
	return all
}

// typeNames are what PyTorch and llama.cpp call the values of --dtype.
var typeNames = map[string]string{"float32": "f32", "fp32": "f32", "bfloat16": "bf16", "q8_0": "q8"}

// shortTypes returns a list of values of --dtype in the names that --help has, whatever the case
// of their letters; others stay as they are.
func shortTypes(list string) string {
	types := strings.Split(list, ",")
	for i, name := range types {
		lower := strings.ToLower(name)
		if short := typeNames[lower]; short != "" {
			types[i] = short
		} else if slices.Contains(flagValues["dtype"], lower) {
			types[i] = lower
		}
	}
	return strings.Join(types, ",")
}

// pastTooLong refuses a --past that leaves a pass no place in the context.
func pastTooLong(past, capacity int) error {
	return usagef("--past %d: the context holds %d tokens, and the pass needs room for one at least; give at most %d", past, capacity, capacity-1)
}

// check finds values that are wrong for every model.
func (m *modelFlags) check(c *cobra.Command) error {
	m.stderr, m.forGPU, m.said = c.ErrOrStderr(), nil, map[string]bool{}
	m.dtype = shortTypes(m.dtype)
	all := m.each()
	if len(all) > 1 {
		lists := strings.Fields(c.Annotations[listsKey])
		for _, name := range []string{"device", "mode", "dtype", "layers", "threads"} {
			if v := c.Flags().Lookup(name).Value.String(); strings.Contains(v, ",") && !slices.Contains(lists, name) {
				return usagef("--%s %s: give one value; only 'infer bench' takes a list", name, shellQuote(v))
			}
		}
	}
	for _, one := range all {
		if err := one.checkOne(c); err != nil {
			return err
		}
	}
	m.threads, m.forGPU = all[0].threads, all[0].forGPU
	if err := nvtx.Status(); err != nil {
		m.notice(err.Error())
	}
	return nil
}

// checkOne is check of flags with one value each.
func (m *modelFlags) checkOne(c *cobra.Command) error {
	for _, name := range []string{"mode", "variant", "tune"} {
		if c.Flags().Changed(name) {
			m.forGPU = append(m.forGPU, "--"+name)
		}
	}
	if m.model == "" && c.Flags().Changed("model") {
		return usagef("--model needs a directory, or a name such as random:gpt2")
	}
	if n, err := strconv.Atoi(m.layers); m.layers != "" && m.layers != "all" && (err != nil || n < 1) {
		return usagef("--layers %s: it must be a number of layers, 1 or more, or 'all'", shellQuote(m.layers))
	}
	name, index, indexed := strings.Cut(m.device, ":")
	n, err := strconv.Atoi(index)
	switch {
	case indexed && name == "cuda" && err == nil && n >= 0:
	case !indexed && (name == "auto" || name == "cpu" || name == "reference" || name == "cuda" || name == "all" && c.Annotations[allDevicesKey] != ""):
	default:
		return usagef("--device %s: it must be auto, cpu, reference, cuda or cuda:N", shellQuote(m.device))
	}
	switch {
	case m.dtype != "f32" && m.dtype != "bf16" && m.dtype != "q8" && (m.dtype != "" || c.Flags().Changed("dtype")):
		return usagef("--dtype %s: it must be f32, bf16 or q8", shellQuote(m.dtype))
	case m.dtype == "q8" && c.Name() == "export":
		return usagef("--dtype q8: checkpoints are written as f32 or bf16; the CPU makes 8-bit weights of either when it loads them")
	case (m.dtype == "bf16" || m.dtype == "q8") && m.device == "reference" && c.Name() != "export":
		return usagef("--dtype %s: the reference device holds weights in float64 only; leave out --dtype, or use --device cpu", m.dtype)
	case m.dtype == "q8" && name == "cuda":
		return usagef("--dtype q8 is for the CPU, and a GPU has no 8-bit kernels here; use --device cpu, or --dtype bf16")
	case m.dtype == "q8" && len(m.forGPU) > 0:
		return usagef("%s is for a GPU, which has no 8-bit kernels here: leave it out, or use --dtype bf16", m.forGPU[0])
	case !slices.Contains(modeNames, m.mode):
		return usagef("--mode %s: it must be auto, eager, graph or persistent", shellQuote(m.mode))
	case len(m.forGPU) > 0 && (m.device == "cpu" || m.device == "reference"):
		return usagef("%s is for a GPU; leave it out, or use --device cuda", m.forGPU[0])
	case m.threads < 0 || m.threads > cpu.MaxThreads:
		return usagef("--threads %d: it must be from 1 to %d, or 0 for one for each physical core", m.threads, cpu.MaxThreads)
	case m.context < 0 || m.context == 0 && c.Flags().Changed("context"):
		return usagef("--context %d: it must be at least 1", m.context)
	case m.chunk < 0:
		return usagef("--chunk %d: it must be positive, or 0 for whole prompts", m.chunk)
	}
	for _, v := range m.variant {
		if stage, name, ok := strings.Cut(v, "="); !ok || stage == "" || name == "" {
			return usagef("--variant %s: it must be STAGE=NAME, such as attn.sdpa=naive", shellQuote(v))
		}
	}
	return nil
}

// openModel opens the model that the flags name.
func (m *modelFlags) openModel() (*gpt2.Model, error) {
	defer annotate.Range("open model", nvtx.Blue)()
	switch {
	case m.model == "":
		return defaultModel()
	case strings.HasPrefix(m.model, gpt2.RandomPrefix):
		model, err := gpt2.Random(m.model)
		if err != nil {
			return nil, usagef("--model: %w", err)
		}
		return model, nil
	default:
		return gpt2.Open(m.model)
	}
}

// runOrder returns the layers to run: the built-in model runs one by default,
// others all of theirs.
func (m *modelFlags) runOrder(c gpt2.Config) ([]int, error) {
	n := c.Layers
	switch m.layers {
	case "":
		if m.model == "" {
			n = 1
		}
	case "all":
	default:
		if n, _ = strconv.Atoi(m.layers); n > c.Layers {
			return nil, usagef("--layers %d: the model has %s; give at most %d, or 'all'", n, count(c.Layers, "layer"), c.Layers)
		}
	}
	return gpt2.FirstLayers(n), nil
}

// layersReason says why not all layers run, if no flag asked for that.
func (m *modelFlags) layersReason() string {
	if m.model == "" && m.layers == "" {
		return "one layer is the default of the built-in model, to profile a layer; --layers all runs all"
	}
	return ""
}

// weightType returns the type in which the CPU holds weights, and in which they
// are exported.
func (m *modelFlags) weightType() weights.DType {
	if m.dtype == "bf16" {
		return weights.BF16
	}
	return weights.F32
}

// backend makes the executor that the flags name. --device auto takes the GPU if it can be
// used; if there is a driver, so that there was a choice, a line on standard error says what it
// took and why. [opened.place] chooses for commands that want their result soonest.
func (m *modelFlags) backend() (gpt2.Backend, error) {
	name, _, _ := strings.Cut(m.device, ":")
	switch name {
	case "reference":
		return cpu.NewReference(), nil
	case "cpu":
		return m.cpu()
	case "cuda":
		b, err := m.gpu()
		if err != nil {
			return nil, fmt.Errorf("--device %s: %w", m.device, err)
		}
		return b, nil
	}
	if m.dtype == "q8" {
		if m.findDriver().Present {
			m.notice("--device auto took the CPU, since --dtype q8 is for the CPU only")
		}
		return m.cpu()
	}
	b, err := m.gpuWithBLAS()
	switch {
	case err == nil:
		mode, _ := b.Mode()
		m.notice(fmt.Sprintf("--device auto took the GPU, %s, mode %s; --device cpu runs on the CPU", b.Device().Info().Name, mode))
		return b, nil
	case len(m.forGPU) > 0 && !errors.As(err, new(*cuda.UnavailableError)):
		return nil, err
	case len(m.forGPU) > 0:
		return nil, fmt.Errorf("%s is for a GPU, and none can be used: %w", m.forGPU[0], err)
	case m.findDriver().Present:
		m.notice(fmt.Sprintf("--device auto took the CPU, since the GPU cannot be used: %v", err))
	}
	return m.cpu()
}

func (m *modelFlags) cpu() (gpt2.Backend, error) {
	return cpu.New(cpu.Options{Threads: m.threads, DType: m.weightType(), Q8: m.dtype == "q8"})
}

// gpu makes the CUDA executor. The error says what is missing.
func (m *modelFlags) gpu() (*exec.Backend, error) {
	defer annotate.Range("open GPU", nvtx.Blue)()
	options := exec.Options{
		Device: m.gpuIndex(), DType: m.gpuType(), Tune: m.tune, Notice: m.notice, Recorder: m.record,
		Mode: exec.Mode(slices.Index(modeNames, m.mode)),
	}
	for _, v := range m.variant {
		if options.Variants == nil {
			options.Variants = map[string]string{}
		}
		stage, name, _ := strings.Cut(v, "=")
		options.Variants[stage] = name
	}
	return exec.New(options)
}

// gpuIndex returns the N of --device cuda:N, 0 for all others.
func (m *modelFlags) gpuIndex() int {
	_, index, _ := strings.Cut(m.device, ":")
	i, _ := strconv.Atoi(index) // checked with the flag
	return i
}

// gpuType returns the type in which a GPU holds weights.
func (m *modelFlags) gpuType() weights.DType {
	if m.dtype == "f32" {
		return weights.F32
	}
	return weights.BF16
}

// notice writes a line for the user to standard error, once.
func (m *modelFlags) notice(text string) {
	if !m.quiet && m.stderr != nil && !m.said[text] {
		fmt.Fprintln(m.stderr, "infer: "+text)
		m.said[text] = true
	}
}

// opened is a model and what will run it. Its weights are not loaded yet, so that other
// errors are reported before that.
type opened struct {
	flags   *modelFlags
	model   *gpt2.Model
	backend gpt2.Backend // after place, if --device auto chooses by prediction
	options gpt2.Options
	session *gpt2.Session // after load

	choice           *autoJSON     // after place, nil if there was none
	history          *auto.History // after place
	run              *auto.Run     // that was predicted, after place
	opening, loading time.Duration // of the device and of the weights
}

// open opens the model, and checks what the flags ask of it.
func (m *modelFlags) open() (*opened, error) {
	o := &opened{flags: m}
	var err error
	if !m.predicts() {
		began := time.Now()
		if o.backend, err = m.backend(); err != nil {
			return nil, err
		}
		o.opening = time.Since(began)
	}
	if o.model, err = m.openModel(); err == nil {
		o.options, err = m.options(o.model.Config)
	}
	if err != nil {
		o.close()
		return nil, err
	}
	return o, nil
}

// options returns the session's options.
func (m *modelFlags) options(c gpt2.Config) (gpt2.Options, error) {
	layers, err := m.runOrder(c)
	if err != nil {
		return gpt2.Options{}, err
	}
	capacity := c.Positions
	if m.context > 0 {
		capacity = m.context
	}
	if capacity > c.Positions {
		return gpt2.Options{}, usagef("--context %d: the model's context is %s; give at most that", m.context, count(c.Positions, "token"))
	}
	return gpt2.Options{Layers: layers, Context: capacity, Chunk: m.chunk}, nil
}

// fits checks that a text of so many tokens fits in the context.
func (o *opened) fits(tokens int) error {
	capacity, most := o.options.Context, o.model.Config.Positions
	switch {
	case tokens <= capacity:
		return nil
	case tokens <= most:
		return fmt.Errorf("the prompt has %s and the context holds %d; shorten it, or raise --context (the model can hold %d)", count(tokens, "token"), capacity, most)
	}
	return fmt.Errorf("the prompt has %s and the context of model %s holds %d; shorten it", count(tokens, "token"), o.model.Name, most)
}

// load makes the weights ready, with a progress bar if that takes long, and
// returns a session for a batch of sequences.
func (o *opened) load(ctx context.Context, stderr io.Writer, batch int) (*gpt2.Session, error) {
	defer annotate.Range("make session", nvtx.Blue)()
	if d := o.backend.Describe(); o.model.Stored == "Q8_0" && o.flags.dtype == "" && !d.GPU {
		o.flags.notice(fmt.Sprintf("the 8-bit weights (Q8_0) of %s are held as %s; --dtype q8 holds 8-bit weights: less memory, faster tokens", o.model.Name, d.WeightType))
	}
	bar := o.flags.progress(stderr, "loading weights", true)
	options := o.options
	options.Progress, options.Batch = bar.set, batch
	began := time.Now()
	s, err := gpt2.NewSession(ctx, o.model, o.backend, options)
	o.loading = time.Since(began)
	bar.done()
	var stop interruption
	if errors.As(err, &stop) {
		return nil, fmt.Errorf("%w while loading the weights of %s", stop, o.model.Name)
	}
	o.session = s
	return s, err
}

// leave is close at the end of a command. A process that ends need not free memory, and
// leaves sooner if it does not: on a GPU by 100 ms.
func (o *opened) leave() {
	if !o.flags.ends {
		o.close()
	}
}

// close closes all that is open.
func (o *opened) close() {
	if o.session != nil {
		o.session.Close()
	}
	if o.model != nil {
		o.model.Close()
	}
	if o.backend != nil {
		o.backend.Close()
	}
}

// setting describes on what a session runs, and how.
type setting struct {
	Model   string `json:"model"`
	Device  string `json:"device"`
	GPU     string `json:"gpu,omitempty"`
	Mode    string `json:"mode,omitempty"`
	Instead string `json:"mode_fallback,omitempty"` // what ran in another mode, and why
	DType   string `json:"dtype"`
	Layers  int    `json:"layers"`
	OfTotal int    `json:"of_layers"`
	Threads int    `json:"threads,omitempty"`
	Context int    `json:"context"`
	Version string `json:"version"`
}

func (o *opened) setting() setting {
	d := o.backend.Describe()
	out := setting{
		Model: o.model.Name, Device: d.Name, DType: d.WeightType, Threads: d.Threads, Mode: d.Mode, Instead: d.Fallback,
		Layers: len(o.options.Layers), OfTotal: o.model.Config.Layers,
		Context: o.options.Context, Version: version(),
	}
	if d.GPU {
		out.GPU = d.Processor
	}
	return out
}

// String is how closing lines begin.
func (s setting) String() string {
	device := s.Device
	if s.Threads > 0 {
		device += " (" + count(s.Threads, "thread") + ")"
	}
	if s.GPU != "" {
		device += " (" + s.GPU + "), mode " + s.Mode
		if s.Instead != "" {
			device += " (" + s.Instead + ")"
		}
	}
	return fmt.Sprintf("%s, %s, layers %d of %d", device, s.DType, s.Layers, s.OfTotal)
}

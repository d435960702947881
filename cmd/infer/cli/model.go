package cli

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

	"gpt2scope/auto"
	"gpt2scope/cpu"
	"gpt2scope/cuda"
	"gpt2scope/cuda/exec"
	"gpt2scope/gpt2"
	"gpt2scope/gpt2/tokenizer"
	"gpt2scope/internal/humanize"
	"gpt2scope/nvtx"
	"gpt2scope/nvtx/annotate"
	"gpt2scope/reference/executor"
	"gpt2scope/weights"
)

// ModelFlags are the flags that every command has: which model, which layers of it, where and how it runs.
type ModelFlags struct {
	AutoFlags
	Model    string
	Text     string // --tokenizer
	Layers   string
	Device   string
	Dtype    string
	KV       string
	Mode     string
	variants []string
	Threads  int // after Check
	context  int
	Chunk    int
	Quiet    bool

	activation string // over the files', if not ""
	lora       string // the directory of an adapter
	threadList IntList
	Said       map[string]bool // notices that were given

	forGPU []string  // flags given that only a GPU understands
	Record string    // the recorder of passes on a GPU, "" for none
	Stderr io.Writer // of the command that runs
	Ends   bool      // the process ends after the command, and no profiler needs to see what it frees
}

func (m *ModelFlags) Register(f *pflag.FlagSet) {
	f.StringVarP(&m.Model, "model", "m", "",
		"`MODEL`: a Hugging Face GPT-2 directory; a GGUF file; a checkpoint of nanoGPT, minGPT (ckpt.pt) or llm.c "+
			"(gpt2_124M.bin); the name of a model that "+
			"'hf download' got, such as openai-community/gpt2; or random weights: random:gpt2 (gpt2-medium, gpt2-large, "+
			"gpt2-xl), or random:L=1,C=768,NH=12,V=50257,T=1024"+defaultModelHelp)
	f.StringVar(&m.Text, "tokenizer", "", "`WHICH` tokenizer, if not that of MODEL: a directory or tokenizer.json, gpt2 "+
		"(that of the published models), bytes (ids are the bytes), or none (token ids only)")
	f.StringVar(&m.lora, "lora", "", "`DIR` of a LoRA adapter, as peft writes it, which is merged into the model")
	f.StringVar(&m.activation, "activation", "",
		"`NAME` of the MLP's activation, such as gelu or gelu_new, where the files say none or a wrong one")
	f.Var(words(&m.Layers, "", checkLayers), "layers",
		"run the first `N` layers, or 'all' (default: all; of the built-in model 1, as one profiles a layer)")
	f.StringVar(&m.Device, "device", "auto",
		"`DEVICE`: auto (the one that finishes first; to measure, the GPU if all it needs is there), cpu, reference (plain "+
			"and slow, in float64), or a GPU: cuda or cuda:N")
	f.Var(words(&m.Dtype, "", oneOf(dtypeNames)), "dtype",
		"`TYPE` in which weights are held: f32, bf16 or q8, 8-bit integers with a scale for 32 (default: bf16 "+
			"on a GPU, f32 elsewhere); a GPU computes in TYPE, the CPU in float32 except where 'infer devices' says so")
	f.Var(OneOf(&m.KV, "same", "same", "q8"), "kv",
		"`TYPE` in which a GPU holds keys and values: same as activations, or q8, 8-bit integers with a scale for each of a "+
			"head; decode steps run as graphs then")
	f.Var(words(&m.Mode, "auto", oneOf(modeNames)), "mode",
		"`MODE` of a GPU: eager (step after step), graph (recorded once, then replayed), persistent (as graph, and decode "+
			"steps in one kernel), auto (persistent where that is faster, else graph; eager when a profiler is attached)")
	f.StringArrayVar(&m.variants, "variant", nil, "`STAGE=NAME`: run a stage on a GPU with another of its kernels, such "+
		"as attn.sdpa=naive ('infer bench kernel' lists them); decode=steps runs each step of mode persistent as a kernel; "+
		"may be repeated")
	f.VarP(Ints(&m.threadList, IntList{0}, Between(1, cpu.MaxThreads).Or(0, "one for each physical core")), "threads", "t",
		"`N` CPU threads (default: one for each physical core)")
	f.VarP(Int(&m.context, 0, AtLeast(1)), "context", "c",
		"the context holds `N` tokens (default: as many as the model can)")
	f.Var(Int(&m.Chunk, 0, AtLeast(0)), "chunk", "evaluate prompts in chunks of `N` tokens (default: whole)")
	f.BoolVar(&m.Quiet, "quiet", false, "no progress bar, no closing line")
}

// dtypeNames and modeNames are the values of --dtype, and of --mode in the order of exec's modes.
var (
	dtypeNames = []string{"f32", "bf16", "q8"}
	modeNames  = []string{exec.Auto.String(), exec.Eager.String(), exec.Graph.String(), exec.Persistent.String()}
)

func checkLayers(text string) error {
	if n, err := strconv.Atoi(text); text != "all" && (err != nil || n < 1) {
		return NotAllowed("a number of layers, 1 or more, or 'all'")
	}
	return nil
}

// ListsKey marks a command that takes lists, of these flags: several values of --device, --mode, --dtype, --layers and
// --threads.
const ListsKey = "lists"

// AllDevicesKey marks a command whose --device may be all.
const AllDevicesKey = "all devices"

// Each returns the flags with one value each, for every combination of values: 'infer bench' takes lists.
func (m *ModelFlags) Each() []*ModelFlags {
	var all []*ModelFlags
	for device := range strings.SplitSeq(m.Device, ",") {
		for mode := range strings.SplitSeq(m.Mode, ",") {
			for dtype := range strings.SplitSeq(m.Dtype, ",") {
				for layers := range strings.SplitSeq(m.Layers, ",") {
					for _, threads := range m.threadList {
						one := *m
						one.Device, one.Mode, one.Dtype, one.Layers, one.Threads = device, mode, dtype, layers, threads
						all = append(all, &one)
					}
				}
			}
		}
	}
	return all
}

// PastTooLong refuses a --past that leaves a pass no place in the context.
func PastTooLong(past, capacity int) error {
	return Usagef("--past %d: the context holds %d tokens, and the pass needs room for one at least; give at most %d",
		past, capacity, capacity-1)
}

// Check finds values that are wrong for every model.
func (m *ModelFlags) Check(c *cobra.Command) error {
	m.Stderr, m.forGPU, m.Said = c.ErrOrStderr(), nil, map[string]bool{}
	if m.Model == "" && c.Flags().Changed("model") {
		return Usagef("--model needs a directory, or a name such as random:gpt2")
	}
	for _, name := range []string{"mode", "variant", "kv"} {
		if c.Flags().Changed(name) {
			m.forGPU = append(m.forGPU, "--"+name)
		}
	}
	lists := strings.Fields(c.Annotations[ListsKey])
	for _, name := range []string{"device", "mode", "dtype", "layers", "threads"} {
		if v := c.Flags().Lookup(name).Value.String(); strings.Contains(v, ",") && !slices.Contains(lists, name) {
			return Usagef("--%s %s: give one value; only 'infer bench' takes a list", name, ShellQuote(v))
		}
	}
	for _, one := range m.Each() {
		if err := one.checkOne(c.Annotations[AllDevicesKey] != ""); err != nil {
			return err
		}
	}
	m.Threads = m.threadList[0]
	if err := nvtx.Status(); err != nil {
		m.Notice(err.Error())
	}
	return nil
}

// checkOne is Check of flags with one value each.
func (m *ModelFlags) checkOne(allDevices bool) error {
	name, index, indexed := strings.Cut(m.Device, ":")
	n, err := strconv.Atoi(index)
	known := slices.Contains([]string{"auto", "cpu", "reference", "cuda"}, m.Device) || m.Device == "all" && allDevices
	switch {
	case !known && !(indexed && name == "cuda" && err == nil && n >= 0):
		return Usagef("--device %s: it must be auto, cpu, reference, cuda or cuda:N", ShellQuote(m.Device))
	case m.Dtype != "" && m.Dtype != "f32" && m.Device == "reference":
		return Usagef("--dtype %s: the reference device holds weights in float64 only; leave out --dtype, "+
			"or use --device cpu", m.Dtype)
	case len(m.forGPU) > 0 && (m.Device == "cpu" || m.Device == "reference"):
		return Usagef("%s is for a GPU; leave it out, or use --device cuda", m.forGPU[0])
	}
	return nil
}

// OpenModel opens the model that the flags name, with the tokenizer that they name, and says what its files left open.
func (m *ModelFlags) OpenModel() (*gpt2.Model, error) {
	defer annotate.Range("open model", nvtx.Blue)()
	model, err := m.openNamed()
	if err != nil {
		return nil, err
	}
	if err := m.change(model); err != nil {
		model.Close()
		return nil, err
	}
	for _, note := range model.Notes {
		m.Notice(note)
	}
	return model, nil
}

// change gives the model what flags name in place of what its files have.
func (m *ModelFlags) change(model *gpt2.Model) error {
	if m.activation != "" {
		if err := model.SetActivation(m.activation); err != nil {
			return Usagef("--activation: %w", err)
		}
	}
	if m.lora != "" {
		if err := model.Adapt(m.lora); err != nil {
			return err
		}
	}
	switch from := "--tokenizer " + m.Text; m.Text {
	case "":
	case "none":
		model.SetTokenizer(nil, from)
	case "gpt2":
		model.SetTokenizer(tokenizer.GPT2(), from)
	case "bytes":
		model.SetTokenizer(tokenizer.PlainBytes(), from)
	default:
		t, err := tokenizer.Open(m.Text)
		if err != nil {
			return fmt.Errorf("--tokenizer %s: %w; give a directory with a tokenizer, its tokenizer.json, gpt2, bytes or none",
				ShellQuote(m.Text), humanize.Cause(err))
		}
		model.SetTokenizer(t, from)
	}
	return nil
}

func (m *ModelFlags) openNamed() (*gpt2.Model, error) {
	switch {
	case m.Model == "":
		return DefaultModel()
	case strings.HasPrefix(m.Model, gpt2.RandomPrefix):
		model, err := gpt2.Random(m.Model)
		if err != nil {
			return nil, Usagef("--model: %w", err)
		}
		return model, nil
	default:
		return gpt2.Open(m.Model)
	}
}

// RunOrder returns the layers to run: the built-in model runs one by default, others all of theirs.
func (m *ModelFlags) RunOrder(c gpt2.Config) ([]int, error) {
	n := c.Layers
	switch m.Layers {
	case "":
		if m.Model == "" {
			n = 1
		}
	case "all":
	default:
		if n, _ = strconv.Atoi(m.Layers); n > c.Layers {
			return nil, Usagef("--layers %d: the model has %s; give at most %d, or 'all'", n, Count(c.Layers, "layer"), c.Layers)
		}
	}
	return gpt2.FirstLayers(n), nil
}

// LayersReason says why not all layers run, if no flag asked for that.
func (m *ModelFlags) LayersReason() string {
	if m.Model == "" && m.Layers == "" {
		return "one layer is the default of the built-in model, to profile a layer; --layers all runs all"
	}
	return ""
}

// WeightType returns the type in which the CPU holds weights, and in which they are exported.
func (m *ModelFlags) WeightType() weights.DType {
	if m.Dtype == "bf16" {
		return weights.BF16
	}
	return weights.F32
}

// Backend makes the executor that the flags name. --device auto takes the GPU if it can be used; if there is a driver,
// so that there was a choice, a line on standard error says what it took and why. [Opened.Place] chooses for commands
// that want their result soonest.
func (m *ModelFlags) Backend() (gpt2.Backend, error) {
	name, _, _ := strings.Cut(m.Device, ":")
	switch name {
	case "reference":
		return executor.New(), nil
	case "cpu":
		return m.cpu()
	case "cuda":
		b, err := m.gpu()
		if err != nil {
			return nil, fmt.Errorf("--device %s: %w", m.Device, err)
		}
		return b, nil
	}
	b, err := m.gpuWithBLAS(true)
	switch {
	case err == nil:
		mode, _ := b.Mode()
		m.Notice(fmt.Sprintf("--device auto took the GPU, %s, mode %s; --device cpu runs on the CPU",
			b.Device().Info().Name, mode))
		return b, nil
	case len(m.forGPU) > 0 && !errors.As(err, new(*cuda.UnavailableError)):
		return nil, err
	case len(m.forGPU) > 0:
		return nil, fmt.Errorf("%s is for a GPU, and none can be used: %w; leave it out", m.forGPU[0], err)
	case m.FindDriver().Present:
		m.Notice(fmt.Sprintf("--device auto took the CPU, since the GPU cannot be used: %v", err))
	}
	return m.cpu()
}

func (m *ModelFlags) cpu() (gpt2.Backend, error) {
	return cpu.New(cpu.Options{Threads: m.Threads, DType: m.WeightType(), Q8: m.Dtype == "q8"})
}

// gpu makes the CUDA executor. The error says what is missing.
func (m *ModelFlags) gpu() (*exec.Backend, error) {
	defer annotate.Range("open GPU", nvtx.Blue)()
	variants := map[string]string{}
	for _, v := range m.variants {
		stage, name, ok := strings.Cut(v, "=")
		if !ok {
			return nil, Usagef("--variant %s: it must be STAGE=NAME, such as attn.sdpa=naive", ShellQuote(v))
		}
		variants[stage] = name
	}
	return exec.New(exec.Options{
		Device: m.GPUIndex(), DType: m.gpuType(), Q8: m.Dtype == "q8", KVQ8: m.KV == "q8", Notice: m.Notice,
		Recorder: m.Record, Variants: variants,
		Mode: exec.Mode(slices.Index(modeNames, m.Mode)),
	})
}

// GPUIndex returns the N of --device cuda:N, 0 for all others.
func (m *ModelFlags) GPUIndex() int {
	_, index, _ := strings.Cut(m.Device, ":")
	i, _ := strconv.Atoi(index) // checked with the flag
	return i
}

// gpuType returns the type in which a GPU holds weights.
func (m *ModelFlags) gpuType() weights.DType {
	if m.Dtype == "f32" {
		return weights.F32
	}
	return weights.BF16
}

// Notice writes a line for the user to standard error, once.
func (m *ModelFlags) Notice(text string) {
	if !m.Quiet && m.Stderr != nil && !m.Said[text] {
		fmt.Fprintln(m.Stderr, "infer: "+text)
		m.Said[text] = true
	}
}

// Opened is a model and what will run it. Its weights are not loaded yet, so that other errors are reported before
// that.
type Opened struct {
	Flags   *ModelFlags
	Model   *gpt2.Model
	Backend gpt2.Backend // after Place, if --device auto chooses by prediction
	Options gpt2.Options
	session *gpt2.Session // after Load

	Choice           *AutoJSON     // after Place, nil if there was none
	history          *auto.History // after Place
	Run              *auto.Run     // that was predicted, after Place
	opening, loading time.Duration // of the device and of the weights
}

// Open opens the model, and checks what the flags ask of it.
func (m *ModelFlags) Open() (*Opened, error) {
	o := &Opened{Flags: m}
	var err error
	if !m.predicts() {
		began := time.Now()
		if o.Backend, err = m.Backend(); err != nil {
			return nil, err
		}
		o.opening = time.Since(began)
	}
	if o.Model, err = m.OpenModel(); err == nil {
		o.Options, err = m.options(o.Model.Config)
	}
	if err != nil {
		o.Close()
		return nil, err
	}
	return o, nil
}

func (m *ModelFlags) options(c gpt2.Config) (gpt2.Options, error) {
	layers, err := m.RunOrder(c)
	if err != nil {
		return gpt2.Options{}, err
	}
	capacity := c.Positions
	if m.context > 0 {
		capacity = m.context
	}
	if capacity > c.Positions {
		return gpt2.Options{}, Usagef("--context %d: the model's context is %s; give at most that", m.context,
			Count(c.Positions, "token"))
	}
	return gpt2.Options{Layers: layers, Context: capacity, Chunk: m.Chunk}, nil
}

// Fits checks that a text of so many tokens fits in the context.
func (o *Opened) Fits(tokens int) error {
	if tokens <= o.Options.Context {
		return nil
	}
	return fmt.Errorf("the prompt has %s and the context holds %d; shorten it, or raise --context (model %s can hold %d)",
		Count(tokens, "token"), o.Options.Context, o.Model.Name, o.Model.Config.Positions)
}

// Load makes the weights ready, with a progress bar if that takes long, and returns a session for a batch of sequences.
func (o *Opened) Load(ctx context.Context, batch int) (*gpt2.Session, error) {
	defer annotate.Range("make session", nvtx.Blue)()
	if o.Model.Stored == "Q8_0" && o.Flags.Dtype == "" {
		o.Flags.Notice(fmt.Sprintf("the 8-bit weights (Q8_0) of %s are held as %s; --dtype q8 takes less memory",
			o.Model.Name, o.Backend.Describe().WeightType))
	}
	bar := o.Flags.Progress("loading weights", true)
	options := o.Options
	options.Progress, options.Batch = bar.Set, batch
	if gpu, ok := o.Backend.(*exec.Backend); ok && o.Run != nil && o.Run.Prompt*batch > cuda.GEMVRows {
		gpu.OpenBLASAhead(o.Run.Prompt * batch)
	}
	began := time.Now()
	s, err := gpt2.NewSession(ctx, o.Model, o.Backend, options)
	o.loading = time.Since(began)
	bar.Done()
	o.session = s
	return s, err
}

// Leave is Close at the end of a command. A process that ends need not free memory, and leaves sooner if it does not:
// on a GPU by 100 ms.
func (o *Opened) Leave() {
	if !o.Flags.Ends {
		o.Close()
	}
}

// Close closes all that is open.
func (o *Opened) Close() {
	if o.session != nil {
		o.session.Close()
	}
	if o.Model != nil {
		o.Model.Close()
	}
	if o.Backend != nil {
		o.Backend.Close()
	}
}

// Setting describes on what a session runs, and how.
type Setting struct {
	Model   string `json:"model"`
	Device  string `json:"device"`                  // cpu, reference, cuda
	GPU     string `json:"gpu,omitempty"`           // of a GPU: its name
	Mode    string `json:"mode,omitempty"`          // eager, graph or persistent: what decode steps ran as, or auto if none ran
	Instead string `json:"mode_fallback,omitempty"` // what ran in another mode, and why
	DType   string `json:"dtype"`                   // of the weights on the device: f32, bf16, q8, f64
	Layers  int    `json:"layers"`                  // how many run
	OfTotal int    `json:"of_layers"`               // of how many
	Threads int    `json:"threads,omitempty"`       // of a CPU
	Context int    `json:"context"`                 // tokens that the KV cache holds
	Version string `json:"version"`                 // the program's, as infer --version prints it
}

func (o *Opened) Setting() Setting {
	d := o.Backend.Describe()
	out := Setting{
		Model: o.Model.Name, Device: d.Name, DType: d.WeightType, Threads: d.Threads, Mode: d.Mode, Instead: d.Fallback,
		Layers: len(o.Options.Layers), OfTotal: o.Model.Config.Layers,
		Context: o.Options.Context, Version: Version(),
	}
	if d.GPU {
		out.GPU = d.Processor
	}
	return out
}

// Place names the device.
func (s Setting) Place() string {
	device := s.Device
	if s.Threads > 0 {
		device += " (" + Count(s.Threads, "thread") + ")"
	}
	if s.GPU != "" {
		device += " (" + s.GPU + "), mode " + s.Mode
	}
	if s.Instead != "" {
		device += " (" + s.Instead + ")"
	}
	return device
}

// String is how closing lines begin.
func (s Setting) String() string {
	return fmt.Sprintf("%s, %s, layers %d of %d", s.Place(), s.DType, s.Layers, s.OfTotal)
}

// Batches and Repeats are what flags of sequences and of repetitions allow, so that sizes computed from them do not
// overflow.
var Batches, Repeats = Between(1, 1<<20), Between(1, 1<<20)

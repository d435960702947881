package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"gpt2scope/cpu"
	"gpt2scope/gpt2"
	"gpt2scope/weights"
)

// modelFlags are the flags that every command has: which model, which layers of
// it, where and how it runs.
type modelFlags struct {
	model   string
	layers  string
	device  string
	dtype   string
	threads int
	context int
	chunk   int
	quiet   bool
}

func (m *modelFlags) register(f *pflag.FlagSet) {
	f.StringVarP(&m.model, "model", "m", "", "Hugging Face GPT-2 directory, or random:gpt2 (gpt2-medium, gpt2-large, gpt2-xl, L=1,C=768,...)"+defaultModelHelp)
	f.StringVar(&m.layers, "layers", "", "run the first N layers, or 'all' (default 1 for the built-in model, all for others)")
	f.StringVar(&m.device, "device", "auto", "auto, cpu, reference, cuda or cuda:N")
	f.StringVar(&m.dtype, "dtype", "f32", "how weights are held: f32 or bf16; arithmetic is float32 on the CPU")
	f.IntVarP(&m.threads, "threads", "t", 0, "CPU threads (default: physical cores)")
	f.IntVarP(&m.context, "context", "c", 0, "tokens that the context holds (default: the model's)")
	f.IntVar(&m.chunk, "chunk", 0, "evaluate prompts in chunks of so many tokens (default: whole)")
	f.BoolVar(&m.quiet, "quiet", false, "no progress and no closing line")
}

// open opens the model that the flags name.
func (m *modelFlags) open() (*gpt2.Model, error) {
	switch {
	case m.model == "":
		return defaultModel()
	case strings.HasPrefix(m.model, gpt2.RandomPrefix):
		return gpt2.Random(m.model)
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
		var err error
		if n, err = strconv.Atoi(m.layers); err != nil {
			return nil, usageError{fmt.Errorf("--layers %s: it must be a number or 'all'", m.layers)}
		}
		if n < 1 || n > c.Layers {
			return nil, fmt.Errorf("--layers %d: the model has %d layers; give 1 to %d, or 'all'", n, c.Layers, c.Layers)
		}
	}
	return gpt2.FirstLayers(n), nil
}

// weightType returns the type in which weights are held.
func (m *modelFlags) weightType() (weights.DType, error) {
	switch m.dtype {
	case "f32":
		return weights.F32, nil
	case "bf16":
		return weights.BF16, nil
	}
	return 0, usageError{fmt.Errorf("--dtype %s: it must be f32 or bf16", m.dtype)}
}

// backend returns the executor that the flags name.
func (m *modelFlags) backend() (gpt2.Backend, error) {
	dtype, err := m.weightType()
	if err != nil {
		return nil, err
	}
	if m.threads < 0 {
		return nil, usageError{fmt.Errorf("--threads %d: it must be positive, or 0 for the physical cores", m.threads)}
	}
	name, index, indexed := strings.Cut(m.device, ":")
	if indexed {
		if n, err := strconv.Atoi(index); name != "cuda" || err != nil || n < 0 {
			return nil, usageError{fmt.Errorf("--device %s: it must be auto, cpu, reference, cuda or cuda:N", m.device)}
		}
	}
	switch name {
	case "auto", "cpu":
		return cpu.New(cpu.Options{Threads: m.threads, DType: dtype})
	case "reference":
		return cpu.NewReference(), nil
	case "cuda":
		return nil, errors.New("--device cuda: this version has no CUDA executor yet; use --device cpu")
	}
	return nil, usageError{fmt.Errorf("--device %s: it must be auto, cpu, reference, cuda or cuda:N", m.device)}
}

// options returns the session's options.
func (m *modelFlags) options(c gpt2.Config) (gpt2.Options, error) {
	layers, err := m.runOrder(c)
	if err != nil {
		return gpt2.Options{}, err
	}
	if m.context < 0 {
		return gpt2.Options{}, usageError{fmt.Errorf("--context %d: it must be positive", m.context)}
	}
	if m.chunk < 0 {
		return gpt2.Options{}, usageError{fmt.Errorf("--chunk %d: it must be positive, or 0 for whole prompts", m.chunk)}
	}
	return gpt2.Options{Layers: layers, Context: m.context, Chunk: m.chunk}, nil
}

// session opens the model and prepares a session for one sequence.
func (m *modelFlags) session(ctx context.Context, stderr io.Writer) (s *gpt2.Session, close func(), err error) {
	return m.sessionOf(ctx, stderr, 1)
}

// sessionOf opens the model and prepares a session for a batch, with a progress
// bar where it takes long. close closes both.
func (m *modelFlags) sessionOf(ctx context.Context, stderr io.Writer, batch int) (s *gpt2.Session, close func(), err error) {
	backend, err := m.backend() // before the model: wrong usage needs no file
	if err != nil {
		return nil, nil, err
	}
	model, err := m.open()
	if err != nil {
		return nil, nil, err
	}
	options, err := m.options(model.Config)
	if err == nil {
		bar := m.progress(stderr, "loading weights", true)
		options.Progress, options.Batch = bar.set, batch
		s, err = gpt2.NewSession(ctx, model, backend, options)
		bar.done()
	}
	if err != nil {
		model.Close()
		return nil, nil, err
	}
	return s, func() { s.Close(); model.Close() }, nil
}

// setting describes where and how a session runs.
type setting struct {
	Model   string `json:"model"`
	Device  string `json:"device"`
	DType   string `json:"dtype"`
	Layers  int    `json:"layers"`
	OfTotal int    `json:"of_layers"`
	Threads int    `json:"threads,omitempty"`
	Context int    `json:"context"`
	Version string `json:"version"`
}

func (m *modelFlags) setting(s *gpt2.Session) setting {
	out := setting{
		Model: s.Model().Name, Device: m.device, DType: m.dtype,
		Layers: len(s.Options().Layers), OfTotal: s.Model().Config.Layers,
		Context: s.Options().Context, Version: version(),
	}
	switch m.device {
	case "auto":
		out.Device = "cpu"
	case "reference":
		out.DType = "f64"
	}
	if out.Device == "cpu" {
		out.Threads = cpu.Threads(m.threads)
	}
	return out
}

// version tells which build this is, from what the Go tool recorded.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	v := info.Main.Version
	if v == "" {
		v = "(devel)"
	}
	return fmt.Sprintf("%s %s %s/%s", v, info.GoVersion, runtime.GOOS, runtime.GOARCH)
}

// readText reads a file, or standard input for "-".
func readText(path string, stdin io.Reader) (string, error) {
	if path == "-" {
		data, err := io.ReadAll(stdin)
		if err != nil {
			return "", fmt.Errorf("cannot read standard input: %w", err)
		}
		return string(data), nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("cannot read the text: %w", err)
	}
	return string(data), nil
}

// inputFlags say what a pass is fed: text, a file, or token ids.
type inputFlags struct {
	prompt, file, ids string
}

func (in *inputFlags) register(f *pflag.FlagSet) {
	f.StringVarP(&in.prompt, "prompt", "p", "", "text to begin with (default: the end-of-text token)")
	f.StringVarP(&in.file, "file", "f", "", "file with the text to begin with; - is standard input")
	f.StringVar(&in.ids, "ids", "", "token ids to begin with, such as 1,2,3; @FILE reads them from a file")
}

// tokens returns the ids to evaluate.
func (in *inputFlags) tokens(m *gpt2.Model, stdin io.Reader) ([]int32, error) {
	given := 0
	for _, v := range []string{in.prompt, in.file, in.ids} {
		if v != "" {
			given++
		}
	}
	if given > 1 {
		return nil, usageError{errors.New("give one of --prompt, --file and --ids")}
	}
	if in.ids != "" {
		return parseIDs(in.ids)
	}
	text := in.prompt
	if in.file != "" {
		var err error
		if text, err = readText(in.file, stdin); err != nil {
			return nil, err
		}
	}
	return m.Encode(text)
}

// parseIDs reads ids separated by commas or white space; @FILE reads a file.
func parseIDs(list string) ([]int32, error) {
	if path, ok := strings.CutPrefix(list, "@"); ok {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("cannot read token ids: %w", err)
		}
		list = string(data)
	}
	var ids []int32
	for _, field := range strings.FieldsFunc(list, func(r rune) bool { return strings.ContainsRune(", \t\r\n", r) }) {
		id, err := strconv.ParseInt(field, 10, 32)
		if err != nil {
			return nil, usageError{fmt.Errorf("--ids: %q is not a token id", field)}
		}
		ids = append(ids, int32(id))
	}
	if len(ids) == 0 {
		return nil, usageError{errors.New("--ids: there is no token id in it")}
	}
	return ids, nil
}

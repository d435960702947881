package cli

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"gpt2scope/auto"
	"gpt2scope/cuda/exec"
	"gpt2scope/gpt2"
	"gpt2scope/internal/humanize"
	"gpt2scope/nvtx"
)

// HistoryVariable is the environment variable that turns the history of runs off if it is "off".
const HistoryVariable = "GPT2SCOPE_HISTORY"

// AutoFlags are for commands that want their result soonest, and so choose a device by prediction.
type AutoFlags struct {
	Soonest   bool // --device auto takes the device that finishes first; else the GPU if there is one
	noHistory bool

	Root string // where files of the driver are; "" is the machine's
}

func (a *AutoFlags) Register(f *pflag.FlagSet) {
	f.BoolVar(&a.noHistory, "no-history", false, "neither read nor keep how long runs took, from which "+
		"--device auto\npredicts; so does "+HistoryVariable+"=off")
}

// AutoJSON is how --device auto chose, where there was a choice.
type AutoJSON struct {
	Device string         `json:"device"`                // "cpu" or "cuda"
	Lacks  string         `json:"unavailable,omitempty"` // why not the GPU, although it would have finished first
	CPU    PredictionJSON `json:"cpu"`                   // how long the run was expected to take there
	GPU    PredictionJSON `json:"gpu"`                   // how long the run was expected to take there
}

// PredictionJSON is how long a run was expected to take on a device.
type PredictionJSON struct {
	Total float64 `json:"total_ms"` // the sum of the parts
	auto.Times
	Runs int `json:"runs"` // earlier ones here from which it was predicted
}

func newPrediction(p auto.Prediction) PredictionJSON {
	return PredictionJSON{p.Total(), p.Times, p.Runs}
}

// predicts tells whether --device auto decides by prediction: if no flag asks for a device, and no profiler is
// attached, whose user expects the GPU to be used.
func (m *ModelFlags) predicts() bool {
	return m.Device == "auto" && m.Soonest && len(m.forGPU) == 0 && m.Dtype != "q8" && nvtx.Tool() == ""
}

// history returns the earlier runs, and where to add this one.
func (m *ModelFlags) history() *auto.History {
	path, err := auto.Path()
	if err != nil || m.noHistory || os.Getenv(HistoryVariable) == "off" || nvtx.Tool() != "" {
		return auto.New("")
	}
	h, err := auto.Read(path, time.Now())
	if err != nil {
		m.Notice(err.Error())
	}
	return h
}

// FindDriver looks for the driver of a GPU, which opens nothing.
func (m *ModelFlags) FindDriver() auto.Driver {
	visible, ok := os.LookupEnv("CUDA_VISIBLE_DEVICES")
	return auto.FindDriver("/"+m.Root, visible, ok)
}

// Place makes the executor for a run of a prompt, new tokens or windows if --device auto has to choose one, and says
// what it chose and why.
func (o *Opened) Place(run auto.Run) error {
	run.Config, run.Layers, run.Context = o.Model.Config, o.Options.Layers, o.Options.Context
	m, driver := o.Flags, o.Flags.FindDriver()
	o.Run = &run
	if driver.Present { // else there is no choice, and runs tell nothing
		o.history = m.history()
	}
	if o.Backend != nil {
		return nil
	}
	began := time.Now()
	host, err := m.cpu()
	if err != nil {
		return err
	}
	o.Backend, o.opening = host, time.Since(began)
	if !driver.Present {
		return nil
	}
	if err := exec.Takes(o.Model); err != nil {
		m.Notice(fmt.Sprintf("--device auto took the CPU: %v", err))
		o.Choice = &AutoJSON{Device: "cpu", Lacks: err.Error()}
		return nil
	}
	onCPU, err := auto.CPU(host, o.Model)
	if err != nil {
		return err
	}
	onGPU := auto.GPU(driver.GPU, m.gpuType())
	c := o.history.Choose(run, &onCPU, &onGPU, time.Now())
	o.Choice = &AutoJSON{Device: "cpu", CPU: newPrediction(c.OnCPU), GPU: newPrediction(c.OnGPU)}
	here := fmt.Sprintf("(predicted by %s here on the CPU and %d on the GPU)", Count(c.OnCPU.Runs, "run"), c.OnGPU.Runs)
	if !c.GPU {
		m.Notice(fmt.Sprintf("--device auto took the CPU: about %s; the GPU would take %s, %s of them to start %s; "+
			"--device cuda runs there",
			humanize.Milliseconds(c.OnCPU.Total()), humanize.Milliseconds(c.OnGPU.Total()),
			humanize.Milliseconds(c.OnGPU.Open+c.OnGPU.Load), here))
		return nil
	}
	began = time.Now()
	gpu, err := m.gpuWithBLAS(onGPU.Work(run).BLAS)
	if err != nil {
		m.Notice(fmt.Sprintf("--device auto took the CPU, since the GPU cannot be used: %v", err))
		o.Choice.Lacks = err.Error()
		return nil
	}
	o.Backend, o.opening, o.Choice.Device = gpu, time.Since(began), "cuda"
	mode, _ := gpu.Mode()
	m.Notice(fmt.Sprintf("--device auto took the GPU, %s, mode %s: about %s; the CPU would take %s %s; "+
		"--device cpu runs there",
		gpu.Device().Info().Name, mode, humanize.Milliseconds(c.OnGPU.Total()), humanize.Milliseconds(c.OnCPU.Total()), here))
	return host.Close()
}

// gpuWithBLAS is gpu with the library that long prompts may need: what is missing is then known before the weights are
// loaded.
func (m *ModelFlags) gpuWithBLAS(long bool) (*exec.Backend, error) {
	b, err := m.gpu()
	if err != nil || !long {
		return b, err
	}
	blas, err := b.NeedsBLAS(64)
	if blas && err == nil {
		err = b.Library().OpenBLAS()
	}
	if err != nil {
		b.Close()
		return nil, err
	}
	return b, nil
}

// Remember adds what this run took to the history. Without statistics it adds only what the start took. A run that
// recorded its passes or warmed up tells nothing.
func (o *Opened) Remember(run *auto.Run, stats gpt2.Stats) {
	if o.history == nil || !o.Flags.Soonest {
		return
	}
	d, ok := auto.Of(o.Backend, o.Model)
	if !ok {
		return
	}
	var w auto.Work
	t := auto.Times{Open: Ms(o.opening)}
	if run != nil {
		w = d.Work(*run)
		t.Prefill, t.Decode = Ms(stats.PrefillTime), Ms(stats.DecodeTime)
	}
	if !strings.HasPrefix(o.Flags.Model, gpt2.RandomPrefix) { // to make random weights takes longer than to read a file
		t.Load = Ms(o.loading)
	}
	if err := o.history.Add(&d, w, t, auto.Waited(), time.Now()); err != nil {
		o.Flags.Notice(err.Error())
	}
}

// mostWaited is the share of the time that threads wait for a processor from which on a measured time is not that of
// the work. On a quiet machine it is near 0.
const mostWaited = 0.25

// BriefMs is for how long a text is decoded at least before it is said that threads waited: on a quiet machine, too,
// threads share a core for some milliseconds until the system has spread them.
const BriefMs = 50

// WaitedWords say that the threads of a process had no processor for much of the time, of which share; they are "" if
// they had.
func WaitedWords(share float64) string {
	if share < mostWaited {
		return ""
	}
	return fmt.Sprintf("threads waited for a core %.0f%% of the time: other programs ran, or there are more threads "+
		"than cores; fewer --threads may be faster", 100*share)
}

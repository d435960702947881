package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"gpt2scope/cuda/exec"
	"gpt2scope/dispatch/auto"
	"gpt2scope/gpt2"
	"gpt2scope/nvtx"
)

// historyVariable is the environment variable that turns the history of runs off if it is "off".
const historyVariable = "GPT2SCOPE_HISTORY"

// autoFlags are for commands that want their result soonest, and so choose a device by prediction.
type autoFlags struct {
	soonest   bool // --device auto takes the device that finishes first; else the GPU if there is one
	noHistory bool

	now  func() time.Time // nil is the clock
	root string           // where files of the driver are; "" is the machine's
}

func (a *autoFlags) register(f *pflag.FlagSet) {
	f.BoolVar(&a.noHistory, "no-history", false, "neither read nor keep how long runs took, from which --device auto\npredicts; so does "+historyVariable+"=off")
}

// autoJSON is how --device auto chose, where there was a choice.
type autoJSON struct {
	Device string         `json:"device"`                // "cpu" or "cuda"
	Lacks  string         `json:"unavailable,omitempty"` // why not the GPU, although it would have finished first
	CPU    predictionJSON `json:"cpu"`
	GPU    predictionJSON `json:"gpu"`
}

// predictionJSON is how long a run was expected to take on a device.
type predictionJSON struct {
	Total float64 `json:"total_ms"`
	auto.Times
	Runs int `json:"runs"` // earlier ones here from which it was predicted
}

func newPrediction(p auto.Prediction) predictionJSON {
	return predictionJSON{p.Total(), p.Times, p.Runs}
}

// predicts tells whether --device auto decides by prediction: if no flag asks for a device, and no
// profiler is attached, whose user expects the GPU to be used.
func (m *modelFlags) predicts() bool {
	return m.device == "auto" && m.soonest && len(m.forGPU) == 0 && m.dtype != "q8" && nvtx.Tool() == ""
}

// time returns the time of day.
func (m *modelFlags) time() time.Time {
	if m.now != nil {
		return m.now()
	}
	return time.Now()
}

// history returns the earlier runs, and where to add this one. They are read only if there is a
// driver: else there is no choice.
func (m *modelFlags) history(d auto.Driver) *auto.History {
	if m.noHistory || os.Getenv(historyVariable) == "off" || nvtx.Tool() != "" {
		return auto.New("")
	}
	path, err := auto.Path()
	if err != nil || !d.Present {
		return auto.New(path)
	}
	h, err := auto.Read(path, m.time())
	if err != nil {
		m.notice(err.Error())
	}
	return h
}

// findDriver looks for the driver of a GPU, which opens nothing.
func (m *modelFlags) findDriver() auto.Driver {
	visible, ok := os.LookupEnv("CUDA_VISIBLE_DEVICES")
	return auto.FindDriver("/"+m.root, visible, ok)
}

// place makes the executor for a run if --device auto has to choose one, and says what it chose
// and why.
func (o *opened) place(run auto.Run) error {
	m, driver := o.flags, o.flags.findDriver()
	o.run, o.history = &run, m.history(driver)
	if o.backend != nil {
		return nil
	}
	began := time.Now()
	host, err := m.cpu()
	if err != nil {
		return err
	}
	o.backend, o.opening = host, time.Since(began)
	if !driver.Present {
		return nil
	}
	onCPU, err := auto.CPU(host)
	if err != nil {
		return err
	}
	onGPU := auto.GPU(driver.GPU, m.gpuType())
	c := o.history.Choose(run, &onCPU, &onGPU, m.time())
	o.choice = &autoJSON{Device: "cpu", CPU: newPrediction(c.OnCPU), GPU: newPrediction(c.OnGPU)}
	here := fmt.Sprintf("(predicted by %s here on the CPU and %d on the GPU)", count(c.OnCPU.Runs, "run"), c.OnGPU.Runs)
	if !c.GPU {
		m.notice(fmt.Sprintf("--device auto took the CPU: about %s; the GPU would take %s, %s of them to start %s; --device cuda runs there",
			roughly(c.OnCPU.Total()), roughly(c.OnGPU.Total()), roughly(c.OnGPU.Open+c.OnGPU.Load), here))
		return nil
	}
	began = time.Now()
	gpu, err := m.gpuWithBLAS()
	if err != nil {
		m.notice(fmt.Sprintf("--device auto took the CPU, since the GPU cannot be used: %v", err))
		o.choice.Lacks = err.Error()
		return nil
	}
	o.backend, o.opening, o.choice.Device = gpu, time.Since(began), "cuda"
	mode, _ := gpu.Mode()
	m.notice(fmt.Sprintf("--device auto took the GPU, %s, mode %s: about %s; the CPU would take %s %s; --device cpu runs there",
		gpu.Device().Info().Name, mode, roughly(c.OnGPU.Total()), roughly(c.OnCPU.Total()), here))
	return host.Close()
}

// roughly writes milliseconds of a prediction.
func roughly(ms float64) string {
	switch {
	case ms < 9.95:
		return fmt.Sprintf("%.1f ms", ms)
	case ms < 999.5:
		return fmt.Sprintf("%.0f ms", ms)
	}
	return fmt.Sprintf("%.1f s", ms/1e3)
}

// gpuWithBLAS is gpu with the library that prefills need: what is missing is then known before the
// weights are loaded.
func (m *modelFlags) gpuWithBLAS() (*exec.Backend, error) {
	b, err := m.gpu()
	if err != nil {
		return nil, err
	}
	if err := b.Library().OpenBLAS(); err != nil {
		b.Close()
		return nil, err
	}
	return b, nil
}

// remember adds what this run took to the history. Without statistics it adds only what the start
// took. A run that recorded its passes or warmed up tells nothing.
func (o *opened) remember(run *auto.Run, stats gpt2.Stats) {
	if o.history == nil || !o.flags.soonest {
		return
	}
	d, ok := auto.Of(o.backend)
	if !ok {
		return
	}
	var w auto.Work
	t := auto.Times{Open: ms(o.opening)}
	if run != nil {
		w = d.Work(*run)
		t.Prefill, t.Decode = ms(stats.PrefillTime), ms(stats.DecodeTime)
	}
	if !strings.HasPrefix(o.flags.model, gpt2.RandomPrefix) { // to make random weights takes longer than to read a file
		t.Load = ms(o.loading)
	}
	r := auto.NewRecord(&d, w, t, o.flags.time())
	r.Waited = auto.Waited()
	if err := o.history.Add(r); err != nil {
		o.flags.notice(err.Error())
	}
}

// mostWaited is the share of the time that threads wait for a processor from which on a
// measured time is not that of the work. On a quiet machine it is near 0.
const mostWaited = 0.25

// briefMs is for how long a text is decoded at least before it is said that threads waited: on a quiet
// machine, too, threads share a core for some milliseconds until the system has spread them.
const briefMs = 50

// waitedWords say that the threads of a process had no processor for much of the time, of
// which share; they are "" if they had.
func waitedWords(share float64) string {
	if share < mostWaited {
		return ""
	}
	return fmt.Sprintf("threads waited for a core %.0f%% of the time: other programs ran, or there are more threads than cores; fewer --threads may be faster", 100*share)
}

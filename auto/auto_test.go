package auto

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"gpt2scope/cpu"
	"gpt2scope/gpt2"
	"gpt2scope/internal/require"
	"gpt2scope/weights"
)

var today = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

var must = require.NoError

// shipped is the geometry of the built-in model.
func shipped(layers int) Run {
	c := gpt2.Config{Layers: 6, Heads: 6, Channels: 384, Positions: 1024, Vocab: 257, Inner: 1536, Epsilon: 1e-5,
		Activation: gpt2.GELUNew, Tied: true}
	return Run{Config: c, Layers: gpt2.FirstLayers(layers), Context: 1024}
}

// host describes a CPU without opening one.
func host() Device {
	return Device{Name: "a CPU, 16 threads, kernels amx", DType: "f32",
		Sizes: gpt2.Sizes{Weight: 4, Activation: 4, KV: 4, Multiply: "f32"},
		Fuse:  func(p *gpt2.Plan) *gpt2.Plan { return p }, Ceilings: CPUCeilings("a CPU", 16, "amx")}
}

func h200() Device { return GPU("NVIDIA H200", weights.BF16) }

// A library of products is counted where a prompt needs one.
func TestBLAS(t *testing.T) {
	run := shipped(1)
	for _, c := range []struct {
		name    string
		dtype   weights.DType
		prompt  int
		windows int
		want    bool
	}{
		{"NVIDIA H200", weights.BF16, 500, 0, false}, {"NVIDIA GH200 480GB", weights.BF16, 500, 3, false},
		{"NVIDIA H200", weights.BF16, 2049, 0, true}, {"NVIDIA H200", weights.F32, 9, 0, true},
		{"NVIDIA A100", weights.BF16, 9, 0, true}, {"NVIDIA A100", weights.BF16, 8, 0, false}, {"", weights.BF16, 9, 0, true},
	} {
		d := GPU(c.name, c.dtype)
		run.Prompt, run.Windows, run.New, run.Context = c.prompt, c.windows, 1, 4096
		if got := d.Work(run).BLAS; got != c.want {
			t.Errorf("%s, %v, prompt of %d: cuBLASLt is needed: %t", c.name, c.dtype, c.prompt, got)
		}
	}
}

// The passes that are predicted are those that a session runs.
func TestWorkIsWhatSessionsDo(t *testing.T) {
	model := require.Value(gpt2.Random("random:L=1,C=16,NH=2,V=40,T=64"))(t)
	defer model.Close()
	b := require.Value(cpu.New(cpu.Options{Threads: 1}))(t)
	defer b.Close()
	d := require.Value(CPU(b, model))(t)
	r := rand.New(rand.NewPCG(1, 2))
	for range 60 {
		run := Run{Config: model.Config, Layers: []int{0}, Context: 1 + r.IntN(64), New: 1 + r.IntN(200)}
		run.Prompt = 1 + r.IntN(run.Context)
		o := gpt2.Options{Layers: run.Layers, Context: run.Context}
		s := require.Value(gpt2.NewSession(t.Context(), model, b, o))(t)
		g := gpt2.Generation{Tokens: run.New, IgnoreEOS: true}
		for _, err := range s.Generate(t.Context(), make([]int32, run.Prompt), g) {
			must(t, err)
		}
		w, stats := d.Work(run), s.Stats()
		if w.Prefill.Passes != stats.Prefills || w.Decode.Passes != stats.DecodeSteps {
			t.Errorf("prompt %d, %d new, context %d: expected %d prefills and %d decode steps, found %d and %d",
				run.Prompt, run.New, run.Context, w.Prefill.Passes, w.Decode.Passes, stats.Prefills, stats.DecodeSteps)
		}
		if w.Prefill.Steps < w.Prefill.Passes || !(w.Prefill.FloorUs > 0) || w.Weights < 4*40*16 {
			t.Errorf("work %+v", w)
		}
		s.Close()
	}
	if Tokens(math.MaxInt, 10, 64) != 55 || Tokens(7, 10, 64) != 7 {
		t.Error("tokens of a run without a limit")
	}
}

// An absurd number of tokens takes no time to predict, and no wrong sign.
func TestWorkOfManyTokens(t *testing.T) {
	run := shipped(1)
	run.Prompt, run.New, run.Context = 1, 1<<40, 2
	d := h200()
	if w := d.Work(run); w.Decode.Passes <= 0 || w.Prefill.Passes <= 0 || !(w.Decode.FloorUs > 0) {
		t.Errorf("%+v", w)
	}
}

// took returns the table's times of a run, times a factor each.
func took(d Device, run Run, open, rest float64) Times {
	t := d.table().time(d.Work(run))
	return Times{Open: t.Open * open, Load: t.Load * rest, Prefill: t.Prefill * rest, Decode: t.Decode * rest}
}

// add adds that run to a history.
func add(h *History, d Device, run Run, at time.Time) error {
	return h.Add(&d, d.Work(run), took(d, run, 1, 1), 0, at)
}

// ran makes the record of a run whose parts took the table's time times a factor each.
func ran(d Device, run Run, at time.Time, open, rest float64) Record {
	r := newRecord(&d, d.Work(run), took(d, run, open, rest), at)
	return r
}

// near tells whether two numbers agree to a thousandth.
func near(a, b float64) bool { return math.Abs(a-b) <= 1e-3*math.Abs(b) }

// Without a history the table counts; a run on the machine counts more, the alike and recent ones most.
func TestPredict(t *testing.T) {
	cpu, gpu := host(), h200()
	run := shipped(2)
	run.Prompt, run.New = 100, 300
	table := cpu.table().time(cpu.Work(run))
	h := &History{}
	if p := h.Predict(&cpu, cpu.Work(run), today); p.Times != table || p.Runs != 0 {
		t.Errorf("without history: %+v, want %+v", p, table)
	}

	h.Records = []Record{ran(cpu, run, today, 1, 3)}
	p := h.Predict(&cpu, cpu.Work(run), today)
	if !near(p.Decode, 3*table.Decode) || !near(p.Open, table.Open) || p.Runs != 1 {
		t.Errorf("one run that took 3 times as long: %+v, table %+v", p, table)
	}
	long := run
	long.New = 100000
	floors, disturbed := ran(cpu, run, today, 1, 3), ran(cpu, run, today, 1, 3)
	floors.Ceilings, disturbed.Waited = "2026-11-01T00:00:00Z", 0.6
	for what, others := range map[string][]Record{
		"other runs":               {ran(cpu, long, today, 1, 3), ran(cpu, long, today, 1, 3)},
		"old runs":                 {ran(cpu, run, today.Add(-3*365*24*time.Hour), 1, 3)},
		"floors by other ceilings": {floors, floors},
		"runs on a busy machine":   {disturbed, disturbed, disturbed},
	} {
		h.Records = append(others, ran(cpu, run, today, 1, 0.5))
		if p := h.Predict(&cpu, cpu.Work(run), today); !near(p.Decode, table.Decode/2) {
			t.Errorf("beside %s: decode %g, want %g", what, p.Decode, table.Decode/2)
		}
	}
	other := ran(cpu, run, today, 1, 3)
	other.Device = "another CPU"
	h.Records = []Record{other, ran(gpu, run, today, 1, 3)}
	if p := h.Predict(&cpu, cpu.Work(run), today); p.Times != table || p.Runs != 0 {
		t.Errorf("runs of other devices count: %+v", p)
	}
	unnamed := GPU("", weights.BF16) // a driver that tells no name
	if p := h.Predict(&unnamed, gpu.Work(run), today); p.Runs != 1 {
		t.Errorf("a GPU without a name: %+v", p)
	}
}

// A part of a run in which the process was stopped for 20 s, or waited for whoever reads its output, tells nothing of
// the device: neither a first such run nor one beside others changes what is predicted. The other parts of the run
// count.
func TestStoppedProcess(t *testing.T) {
	cpu := host()
	run := shipped(2)
	run.Prompt, run.New = 100, 300
	table := cpu.table().time(cpu.Work(run))
	stopped := ran(cpu, run, today, 1, 2)
	stopped.Measured.Decode += 20e3
	for _, h := range []*History{
		{Records: []Record{stopped}},
		{Records: []Record{stopped, stopped, ran(cpu, run, today, 1, 1)}},
	} {
		p := h.Predict(&cpu, cpu.Work(run), today)
		if !near(p.Decode, table.Decode) || !near(p.Prefill, 2*table.Prefill) {
			t.Errorf("%d runs: %+v; expected decode in %g ms, prefill in %g", len(h.Records), p, table.Decode, 2*table.Prefill)
		}
	}
}

// on is a backend of a GPU that runs in a mode.
type on struct {
	gpt2.Backend
	mode string
}

func (b on) Describe() gpt2.Description {
	return gpt2.Description{GPU: true, Name: "cuda", Processor: "NVIDIA H200", WeightType: "bf16", Mode: b.mode}
}

// Runs in the modes that --device auto takes tell of its choices: decode steps as graphs, in one kernel, and before
// that is known. Eager ones do not.
func TestModesThatCount(t *testing.T) {
	for mode, counts := range map[string]bool{"auto": true, "graph": true, "persistent": true, "eager": false} {
		if d, ok := Of(on{mode: mode}, nil); ok != counts || !d.GPU {
			t.Errorf("mode %s: %v, %+v", mode, ok, d.Name)
		}
	}
}

// Short runs stay on the CPU, long ones go to the GPU, and a history of a slow CPU or GPU moves the border.
func TestChoose(t *testing.T) {
	cpu, gpu := host(), h200()
	choose := func(h *History, layers, tokens int) Choice {
		run := shipped(layers)
		run.Prompt, run.New = 6, tokens
		return h.Choose(run, &cpu, &gpu, today)
	}
	none := &History{}
	if c := choose(none, 1, 256); c.GPU || !(c.OnGPU.Open > c.OnCPU.Total()) {
		t.Errorf("256 tokens of one layer: %+v", c)
	}
	if c := choose(none, 6, 100000); !c.GPU || !(c.OnGPU.Total() < c.OnCPU.Total()) {
		t.Errorf("100,000 tokens of six layers: %+v", c)
	}
	run := shipped(6)
	run.Prompt, run.New = 6, 3000
	slowCPU := &History{Records: []Record{ran(cpu, run, today, 1, 10), ran(gpu, run, today, 1, 1)}}
	if c := choose(slowCPU, 6, 1000); !c.GPU {
		t.Errorf("a slow CPU: %+v", c)
	}
	slowGPU := &History{Records: []Record{ran(gpu, run, today, 15, 15)}}
	if c := choose(slowGPU, 6, 10000); c.GPU {
		t.Errorf("a slow GPU: %+v", c)
	}
}

// write makes a file of lines.
func write(t *testing.T, lines ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "cache", "history.jsonl")
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(t, os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o666))
	return path
}

// line is a record as the file has it.
func line(t *testing.T, r Record) string {
	t.Helper()
	data := require.Value(json.Marshal(r))(t)
	return string(data)
}

// What is added is read again; the file stays bounded, with the newest runs.
func TestHistory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "history.jsonl")
	d, run := h200(), shipped(1)
	for i := range maxRecords + 20 {
		must(t, add(New(path), d, run, today.Add(time.Duration(i)*time.Second)))
	}
	h, err := Read(path, today)
	if n := len(h.Records); err != nil || n != maxRecords || h.Records[0].Time != today.Unix()+20 {
		t.Fatalf("%d records, %v", n, err)
	}
	if info, err := os.Stat(path); err != nil || info.Size() > maxBytes/2 {
		t.Errorf("the file has %d bytes, %v", info.Size(), err)
	}
	want := newRecord(&d, d.Work(run), took(d, run, 1, 1), today.Add((maxRecords+19)*time.Second))
	if h.Records[maxRecords-1] != want {
		t.Errorf("%+v, want %+v", h.Records[maxRecords-1], want)
	}
	if err := add(New(""), d, run, today); err != nil {
		t.Errorf("without a path: %v", err)
	}
	if h, err := Read(filepath.Join(t.TempDir(), "none"), today); err != nil || len(h.Records) > 0 {
		t.Errorf("no file: %+v, %v", h, err)
	}
	err = New(path).Add(&d, d.Work(run), Times{Decode: math.NaN()}, 0, today)
	if err == nil || !strings.Contains(err.Error(), "cannot be right") {
		t.Errorf("a time that is no number: %v", err)
	}
}

// Lines that cannot be right do not count, cost one warning, and are gone after the next run.
func TestHostileHistory(t *testing.T) {
	good := ran(host(), shipped(1), today, 1, 1)
	wrong := func(change func(*Record)) string {
		r := good
		change(&r)
		return line(t, r)
	}
	future := strings.Replace(line(t, good), `"v":4`, `"v":5`, 1)
	for name, bad := range map[string]string{
		"garbage":           "\x00\xff{{{",
		"cut off":           line(t, good)[:40],
		"no version":        `{}`,
		"a number too big":  strings.Replace(line(t, good), `"load_ms":`, `"load_ms":1e999,"x":`, 1),
		"negative time":     wrong(func(r *Record) { r.Measured.Load = -1 }),
		"no device":         wrong(func(r *Record) { r.Device = "" }),
		"a device too long": wrong(func(r *Record) { r.Device = strings.Repeat("x", 1000) }),
		"waited too long":   wrong(func(r *Record) { r.Waited = 1.5 }),
		"of tomorrow":       wrong(func(r *Record) { r.Time = today.Add(100 * 24 * time.Hour).Unix() }),
	} {
		t.Run(name, func(t *testing.T) {
			path := write(t, line(t, good), bad, future, line(t, good))
			h, err := Read(path, today)
			if err == nil || !strings.Contains(err.Error(), "lines of "+path+" cannot be right") || strings.Contains(err.Error(), "\n") {
				t.Errorf("the warning is %v", err)
			}
			if len(h.Records) != 2 {
				t.Errorf("%d runs count", len(h.Records))
			}
			must(t, add(h, host(), shipped(1), today))
			if h, err = Read(path, today); err != nil || len(h.Records) != 3 {
				t.Errorf("after the next run: %d runs, %v", len(h.Records), err)
			}
		})
	}

	t.Run("huge", func(t *testing.T) {
		path := write(t, strings.Repeat(line(t, good)+"\n", 2*maxBytes/len(line(t, good))))
		h, err := Read(path, today)
		if err == nil || !strings.Contains(err.Error(), "larger than") || len(h.Records) > 0 {
			t.Errorf("%d runs, %v", len(h.Records), err)
		}
		must(t, add(h, host(), shipped(1), today))
		if h, err := Read(path, today); err != nil || len(h.Records) == 0 || len(h.Records) > maxRecords {
			t.Errorf("after the next run: %d runs, %v", len(h.Records), err)
		}
	})
	for name, path := range map[string]string{
		"a folder": t.TempDir(), "no folder": "/dev/null/x/history.jsonl", "a pipe": filepath.Join(t.TempDir(), "pipe"),
	} {
		t.Run(name, func(t *testing.T) {
			if name == "a pipe" {
				if err := syscall.Mkfifo(path, 0o666); err != nil {
					t.Skip(err)
				}
			}
			h, err := Read(path, today)
			if err == nil || len(h.Records) > 0 {
				t.Errorf("reading: %v", err)
			}
			if err := add(h, host(), shipped(1), today); err == nil || !strings.Contains(err.Error(), "--no-history") {
				t.Errorf("adding: %v", err)
			}
		})
	}
}

// Whatever the file holds, reading and predicting end without a panic and with times that are numbers.
func FuzzHistory(f *testing.F) {
	good, _ := json.Marshal(ran(host(), shipped(1), today, 1, 1))
	f.Add(good)
	f.Add([]byte(`{"v":4,"time":1,"device":"x"}`))
	f.Add([]byte("\n\n{"))
	run, d := shipped(1), host()
	run.Prompt, run.New = 5, 9
	w := d.Work(run)
	f.Fuzz(func(t *testing.T, data []byte) {
		records, _ := parse(data, today)
		h := History{Records: records}
		for i := range h.Records {
			h.Records[i].Device, h.Records[i].GPU = d.Name, false
		}
		if p := h.Predict(&d, w, today); !(p.Total() > 0) || math.IsInf(p.Total(), 0) {
			t.Errorf("%+v", p)
		}
	})
}

// The driver is found by its files, and its GPUs have a name if all have the same.
func TestFindDriver(t *testing.T) {
	root := t.TempDir()
	for _, step := range []struct {
		file, text string // that is added
		want       Driver
	}{
		{"", "", Driver{}},
		{"dev/nvidiactl", "", Driver{Present: true}},
		{"proc/driver/nvidia/gpus/0000:18:00.0/information", "Model: \t\t NVIDIA H200\nIRQ:   \t\t 17\n",
			Driver{true, "NVIDIA H200"}},
		{"proc/driver/nvidia/gpus/0000:3b:00.0/information", "Model: NVIDIA L4\n", Driver{Present: true}},
	} {
		if step.file != "" {
			path := filepath.Join(root, step.file)
			must(t, os.MkdirAll(filepath.Dir(path), 0o777))
			must(t, os.WriteFile(path, []byte(step.text), 0o666))
		}
		for visible, hidden := range map[string]bool{"unset": false, "0": false, "": true, "-1": true} {
			want := step.want
			if hidden {
				want = Driver{}
			}
			if d := FindDriver(root, visible, visible != "unset"); d != want {
				t.Errorf("%s, visible %q: %+v, want %+v", step.file, visible, d, want)
			}
		}
	}
}

// The time that threads waited for a processor is summed over them; what cannot be read counts for nothing.
func TestWaited(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"1": "3000 1000 5\n", "2": "3000 2000 9\n", "3": "?\n", "4": "-5 7 1\n"} {
		must(t, os.MkdirAll(filepath.Join(dir, name), 0o777))
		must(t, os.WriteFile(filepath.Join(dir, name, "schedstat"), []byte(text), 0o666))
	}
	if got := waited(dir); !near(got, 1./3) {
		t.Errorf("%g, want 1/3", got)
	}
	if got := waited(filepath.Join(dir, "none")); got != 0 {
		t.Errorf("without files: %g", got)
	}
}

package load

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"gpt2scope/internal/require"
	"gpt2scope/traces"
	"gpt2scope/traces/judge"
	"gpt2scope/traces/stages"
	"gpt2scope/traces/tables"
	"gpt2scope/traces/window"
)

// cases are small inputs made in the shape of real recordings; the .note beside each says where from, and what is right.
// A fact is "key=value" of factsOf, "says TEXT" or "silent TEXT" of all that is said of the recording, or "error TEXT".
var cases = []struct {
	files string // joined by '+'
	want  []string
}{
	{"begin-end.json", []string{"op aten::add=10 of 80 us", "silent range never ended"}},
	{"bom.json", []string{"kernels=5 of 50 us", "trusted=true"}},
	{"dataloader-bound.json.gz", []string{"says idle for 1,050.000 ms in 7 gaps because of data loading", "says more workers",
		"silent torch.compile", "silent CUDA graph", "silent repetition of kernel names"}},
	{"float32-on-v100.json.gz", []string{"silent bfloat16", "silent TF32", "says multiply in float16"}},
	{"jax-trace.json.gz", []string{"kernels=20 of 200 us", "paired=20", "tool=XLA", "trusted=true"}},
	{"kineto-1.8-categories.json.gz", []string{"kernels=20 of 200 us", "copies=20 of 81920 B", "wall=391.5 us", "paired=20",
		"op aten::mm=20 of 40 us", "trusted=true"}},
	{"kineto-2.0-rank0.json.gz+kineto-2.0-rank1.json.gz", []string{"rank 0 began=0 us", "rank 1 began=30 us"}},
	{"kineto-began-while-gpu-busy.json.gz", []string{"kernel gemm_a=30 of 300 us, 41.8 %", "kernel gemm_b=30 of 300 us, 41.8 %",
		"wall=718 us", "trusted=true", "says 20 kernels were launched before the recording began"}},
	{"kineto-ts-zero.json.gz", []string{"kernels=20 of 200 us", "wall=238 us", "trusted=false",
		"says 3 records were dropped: work of a GPU with the impossible time 0"}},
	{"nccl-small-grid.json.gz", []string{"silent small-grid", "silent more blocks"}},
	{"nsys-autograd-nvtx.sqlite", []string{"kernels=120 of 4800 us", "op aten::linear=60 of 420 us",
		"op aten::relu=60 of 3300 us", "passes="}},
	{"nsys-collect-false.sqlite", []string{"kernels=20 of 200 us", "silent not recorded: kernels",
		"says not recorded: ranges"}},
	{"nsys-iteration-n-flat.sqlite", []string{"kernels=240 of 7200 us", "passes=12 iteration",
		"stage iteration=240 of 7200 us"}},
	{"nsys-two-processes.sqlite", []string{"kernel k_rank0=20 of 200 us, 20.8 %", "kernels=40 of 800 us", "paired=40",
		"process 100=20 of 200 us on GPU 0", "process 200=20 of 600 us on GPU 1"}},
	{"nvprof-summary.csv", []string{"error is a table of nvprof, not a trace"}},
	{"onnxruntime-profile.json.gz", []string{"kernels=20 of 600 us", "op Conv=20 of 800 us", "tool=ONNX Runtime", "trusted=true"}},
	{"optimizer-annotations-only.json.gz", []string{"kernels=536 of 63520 us", "passes=",
		"kernel conv=480 of 62400 us, 79.0 %", "kernel multi_tensor_apply=56 of 1120 us, 1.4 %"}},
	{"profilersteps-only.json.gz", []string{"passes=8 ProfilerStep", "phase ProfilerStep=160 of 4800 us"}},
	{"proton-hatchet.json", []string{"error is a profile of Triton's Proton"}},
	{"qwen3-qk-norm-decode.json.gz", []string{"inferred=2 passes of 36 layers, lm_head 2 of 380 us"}},
	{"rocm-device-id.json.gz", []string{"SMs=304", "trusted=true"}},
	{"rocm-nccl-corr-zero.json.gz", []string{"kernel Cijk_gemm=20 of 200 us, 34.0 %", "trusted=true", "kernels=40 of 360 us",
		"says 20 kernels have no correlation id"}},
	{"rocm-overflow-dur.json.gz", []string{"kernels=40 of 400 us", "says 3 records mended: durations that reached over"}},
	{"trace.json.zst", []string{"error zstd"}},
	{"training-backward-thread.json.gz", []string{"stage backward=240 of 13200 us", "stage forward=120 of 4800 us",
		"stage Optimizer.step#SGD.step=30 of 1200 us", "passes=6 ProfilerStep"}},
	{"windows-backslashes.json", []string{"kernels=5 of 50 us", "says backslashes in texts"}},
	{"with-stack-by-op.json.gz", []string{"op aten::addmm=10 of 350 us", "op aten::linear=10 of 100 us",
		"op threading.py(359): wait=", "python threading.py(359): wait=1 of 2000 us", "python nn.Module: Linear_0=1 of 60 us"}},
	{"xpu-kineto.json.gz", []string{"kernels=20 of 200 us", "wall=390 us", "paired=20", "trusted=true"}},
}

const casesFolder = "../testdata/cases"

func TestCases(t *testing.T) {
	listed := map[string]bool{}
	for _, c := range cases {
		for _, name := range strings.Split(c.files, "+") {
			listed[name], listed[name+".note"] = true, true
		}
		t.Run(c.files, func(t *testing.T) {
			facts, said, err := read(c.files)
			holds := func(fact string) (ok bool, is string) {
				if text, isError := strings.CutPrefix(fact, "error "); isError {
					return err != nil && strings.Contains(err.Error(), text), fmt.Sprint(err)
				}
				if err != nil {
					return false, err.Error()
				}
				if text, ok := strings.CutPrefix(fact, "says "); ok {
					return strings.Contains(said, text), said
				}
				if text, ok := strings.CutPrefix(fact, "silent "); ok {
					return !strings.Contains(said, text), said
				}
				key, value, _ := strings.Cut(fact, "=")
				return facts[key] == value, facts[key]
			}
			for _, fact := range c.want {
				if ok, is := holds(fact); !ok {
					t.Errorf("not %s, but %s", fact, is)
				}
			}
		})
	}
	files := require.Value(os.ReadDir(casesFolder))(t)
	for _, f := range files {
		if !listed[f.Name()] {
			t.Errorf("%s is in no case", f.Name())
		}
		delete(listed, f.Name())
	}
	if len(listed) > 0 {
		t.Errorf("not there: %v", listed)
	}
}

// read reads recordings as the commands do: their facts, and what is said of them.
func read(files string) (facts map[string]string, said string, err error) {
	var list []*traces.Trace
	names := strings.Split(files, "+")
	for _, name := range names {
		tr, err := Load(filepath.Join(casesFolder, name))
		if err != nil {
			return nil, "", err
		}
		stages.OfRanges(tr, nil)
		list = append(list, tr)
	}
	tr, err := traces.Merge(list, names)
	if err != nil {
		return nil, "", err
	}
	facts, said = factsOf(tr)
	if fresh, err := Load(filepath.Join(casesFolder, names[0])); err == nil {
		facts["inferred"] = inferred(fresh)
	}
	return facts, said, nil
}

// us writes ns as microseconds.
func us(ns int64) string { return strconv.FormatFloat(float64(ns)/1e3, 'f', -1, 64) + " us" }

// factsOf are the values of a recording that notes give.
func factsOf(t *traces.Trace) (facts map[string]string, said string) {
	trust := judge.TrustOf(t)
	f := map[string]string{"trusted": fmt.Sprint(trust.Trusted), "tool": t.Header.Tool}
	var texts []string
	for _, finding := range trust.Findings {
		texts = append(texts, finding.Text)
	}
	index := t.Index()
	count, ns, paired, copies, bytes := 0, int64(0), 0, 0, int64(0)
	for i := range t.Events {
		e := &t.Events[i]
		if rank, ok := t.Header.RankOf(t.Header.ProcessOf(e)); ok {
			if key := fmt.Sprintf("rank %d began", rank); f[key] == "" {
				f[key] = us(e.Time - t.Events[0].Time)
			}
		}
		switch {
		case e.Kind == traces.KindKernel:
			count, ns = count+1, ns+e.Duration
			if index.CallOf(e) != nil {
				paired++
			}
		case e.Kind.IsGPU():
			copies, bytes = copies+1, bytes+e.Bytes
		}
	}
	f["kernels"], f["paired"] = fmt.Sprintf("%d of %s", count, us(ns)), fmt.Sprint(paired)
	f["copies"] = fmt.Sprintf("%d of %d B", copies, bytes)
	rows := func(prefix string, by tables.By) {
		table, err := tables.Summarize(t, by, -1)
		if err != nil {
			return
		}
		if by == tables.ByKernel {
			f["wall"], f["SMs"] = us(table.Wall), fmt.Sprint(t.Header.Device(table.Device).SMs)
		}
		texts = append(texts, table.Notes...)
		for _, r := range table.Rows {
			f[prefix+r.Name] = fmt.Sprintf("%d of %s", r.Kernels, us(r.Busy))
			if percent, ok := table.Share(&r); ok && by == tables.ByKernel {
				f[prefix+r.Name] += fmt.Sprintf(", %.1f %%", percent)
			}
		}
		for _, r := range table.Processes {
			f[fmt.Sprint(prefix, r.Process)] = fmt.Sprintf("%d of %s on GPU %d", r.Kernels, us(r.Kernel), r.Device)
		}
		for _, r := range table.Ops {
			f[prefix+r.Name] = fmt.Sprintf("%d of %s", r.Calls, us(r.SelfCPU))
		}
	}
	rows("kernel ", tables.ByKernel)
	rows("phase ", tables.ByPhase)
	rows("stage ", tables.ByStage)
	rows("op ", tables.ByOp)
	rows("process ", tables.ByProcess)
	rows("python ", tables.ByPython)
	passes := map[string]int{}
	w := window.New(t, -1)
	for _, p := range w.Passes {
		passes[w.PassName(p.Event)]++
	}
	var kinds []string
	for name, n := range passes {
		kinds = append(kinds, fmt.Sprintf("%d %s", n, name))
	}
	slices.Sort(kinds)
	f["passes"] = strings.Join(kinds, ", ")
	if advice, err := judge.Advise(t, -1); err == nil {
		texts = append(texts, advice.Notes...)
		for _, h := range advice.Above(1) { // as advise shows
			texts = append(texts, h.Rule, h.Text, h.Try)
		}
	}
	return f, strings.Join(texts, "\n")
}

// inferred is what the names and the order of the kernels tell.
func inferred(t *traces.Trace) string {
	found, err := stages.Infer(t, nil)
	if err == nil {
		err = found.Apply(t)
	}
	if err != nil {
		return err.Error()
	}
	layers := map[int]bool{}
	for _, p := range t.Header.Plans {
		for _, s := range p.Steps {
			layers[s.Layer] = s.Layer >= 0 || layers[s.Layer]
		}
	}
	delete(layers, -1)
	heads, ns := 0, int64(0)
	for i := range t.Events {
		if s, ok := t.Header.Step(&t.Events[i]); ok && s.Name == "lm_head" && t.Events[i].Kind == traces.KindKernel {
			heads, ns = heads+1, ns+t.Events[i].Duration
		}
	}
	return fmt.Sprintf("%d passes of %d layers, lm_head %d of %s", t.Passes, len(layers), heads, us(ns))
}

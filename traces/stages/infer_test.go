package stages

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"gpt2scope/internal/require"
	"gpt2scope/traces"
	"gpt2scope/traces/internal/fixtures"
	"gpt2scope/traces/load"
	"gpt2scope/traces/tables"
)

// truth is a kernel and its stage, "" for none. Of others than GPT-2 it has the layer, -1 for none, and the path of the
// module that launched it.
type truth struct {
	event  traces.Event
	stage  string
	layer  int
	module string
}

// labelled reads a sample of another program, whose kernels have their stages in arguments that no reader of traces takes
// notice of. traces/testdata/others/README.md says how those of others than GPT-2 are made.
func labelled(t testing.TB, path string) []truth {
	t.Helper()
	f := require.Value(os.Open(path))(t)
	defer f.Close()
	z := require.Value(gzip.NewReader(f))(t)
	var file struct {
		Events []struct {
			Phase     string  `json:"ph"`
			Category  string  `json:"cat"`
			Name      string  `json:"name"`
			Time      float64 `json:"ts"`
			Duration  float64 `json:"dur"`
			Arguments struct {
				Grid          [3]int32
				Stage, Module string
				Layer         int
			} `json:"args"`
		} `json:"traceEvents"`
	}
	require.NoError(t, json.NewDecoder(z).Decode(&file))
	var list []truth
	for _, e := range file.Events {
		if e.Phase != "" && e.Category != "kernel" { // those of others than GPT-2 are kernels alone
			continue
		}
		a := e.Arguments
		k := truth{traces.Plain(traces.KindKernel, traces.Stream(1, 0, 1, 7), e.Name, int64(e.Time*1000+0.5), int64(e.Duration*1000+0.5)),
			a.Stage, a.Layer, a.Module}
		k.event.Grid = a.Grid
		list = append(list, k)
	}
	return list
}

// own reads a sample of this program, whose kernels have their steps by correlation, and removes everything else.
func own(t testing.TB, path string) []truth {
	t.Helper()
	tr := require.Value(load.Load(path))(t)
	var list []truth
	for _, e := range tr.Events {
		if e.Kind != traces.KindKernel {
			continue
		}
		k := truth{event: traces.Plain(traces.KindKernel, e.Lane, e.Name, e.Time, e.Duration)}
		k.event.Grid = e.Grid
		if s, ok := tr.Header.Step(&e); ok {
			k.stage = s.Name
		}
		list = append(list, k)
	}
	return list
}

func inferred(t testing.TB, list []truth) *Inference {
	t.Helper()
	events := make([]traces.Event, len(list))
	for i, k := range list {
		events[i] = k.event
	}
	r := require.Value(Infer(traces.NewTrace(&traces.Header{Version: traces.Version, Recorder: traces.RecorderChrome}, events), nil))(t)
	if len(r.Kernels) != len(list) {
		t.Fatalf("%d kernels of %d", len(r.Kernels), len(list))
	}
	return r
}

// grade returns the percent of the GPU's time that has the right stage, and how many of the kernels of no stage got
// one. wrong has the time in ns of what was taken for what.
func grade(list []truth, r *Inference) (percent float64, given, outside int, wrong map[string]int64) {
	right, all := int64(0), int64(0)
	wrong = map[string]int64{}
	for i, k := range list {
		got := ""
		if s := r.Kernels[i].Stage; s != nil {
			got = *s
		}
		all += k.event.Duration
		if got == k.stage {
			right += k.event.Duration
		} else {
			wrong[fmt.Sprintf("%q as %q", traces.InAnyLayer(k.stage), traces.InAnyLayer(got))] += k.event.Duration
		}
		if k.stage == "" {
			outside++
			if got != "" {
				given++
			}
		}
	}
	return 100 * float64(right) / float64(max(1, all)), given, outside, wrong
}

var (
	layerNormName = regexp.MustCompile(`(?i)layer_?norm`)
	nextNorm      = regexp.MustCompile(`^h\.\d+\.residual_2\+h\.\d+\.ln_1$`)
	attentionName = regexp.MustCompile(`(?i)flash|fmha|sdpa|softmax|attention_`)
)

// damages are what may have happened to a recording.
var damages = map[string]func([]truth) []truth{
	"whole":                          func(l []truth) []truth { return l },
	"without its first 70 kernels":   func(l []truth) []truth { return l[min(70, len(l)):] },
	"without 1 % of its kernels":     func(l []truth) []truth { return lose(l, 1) },
	"with LayerNorm renamed":         func(l []truth) []truth { return renamed(l, layerNormName, "kernel_17") },
	"with a name for each LayerNorm": func(l []truth) []truth { return renamed(l, layerNormName, "kernel_%d") },
	"with attention renamed":         func(l []truth) []truth { return renamed(l, attentionName, "kernel_18") },
	"with both renamed": func(l []truth) []truth {
		return renamed(renamed(l, layerNormName, "kernel_17"), attentionName, "kernel_18")
	},
}

// damaged are samples of each kind, which are also read as if something had happened to them.
var damaged = []string{"hf-sdpa-bf16-L12-generate", "hf-math-bf16-L6-b2-prefill", "plain-sdpa-f16-L12-b4-prefill", "plain-manual-f16-L2-generate",
	"compile-hf-bf16-prefill", "compile-hf-f16-static-decode", "gpt2-L1-graph-cupti"}

// renamed replaces names; %d in the new name is a number for each kernel.
func renamed(l []truth, old *regexp.Regexp, name string) []truth {
	out := slices.Clone(l)
	for i := range out {
		if old.MatchString(out[i].event.Name) {
			other := *out[i].event.What
			other.Name = strings.ReplaceAll(name, "%d", strconv.Itoa(i))
			out[i].event.What = &other
		}
	}
	return out
}

func lose(l []truth, seed uint64) []truth {
	r := rand.New(rand.NewPCG(seed, 7))
	return slices.DeleteFunc(slices.Clone(l), func(truth) bool { return r.IntN(100) == 0 })
}

// TestInfer grades the stages found in recordings of other programs, and of this one, without their ranges: whole ones
// and damaged ones.
func TestInfer(t *testing.T) {
	files, err := filepath.Glob("../samples/stages/*.json.gz")
	if err != nil || len(files) < 15 {
		t.Fatalf("%d samples, %v", len(files), err)
	}
	samples := map[string][]truth{}
	for _, path := range files {
		samples[filepath.Base(path)] = labelled(t, path)
	}
	for _, name := range []string{"gpt2-L12-eager-cupti.json.gz", "gpt2-L12-graph-cupti.json.gz", "gpt2-L1-graph-cupti.json.gz", "shipped-eager-cupti.json.gz"} {
		samples[name] = own(t, "../samples/"+name)
	}
	given, outside, joined := 0, 0, 0
	for _, name := range slices.Sorted(maps.Keys(samples)) {
		floor := 98.0
		if strings.Contains(name, "graph") || strings.Contains(name, "generate") || strings.Contains(name, "compile") || strings.Contains(name, "decode") {
			floor = 95
		}
		for how, damage := range damages {
			if how != "whole" && !slices.Contains(damaged, strings.TrimSuffix(name, ".json.gz")) {
				continue
			}
			list, floor := damage(samples[name]), floor
			switch how {
			case "whole":
			case "with LayerNorm renamed", "with a name for each LayerNorm":
				floor = 95
			case "with both renamed":
				// Of a few layers, or where LayerNorm is fused with what else is there, nothing says that they are
				// those of a decoder.
				if !strings.HasPrefix(name, "hf-") && !strings.HasPrefix(name, "plain-") || strings.Contains(name, "-L1-") {
					continue
				}
				floor = 90
			case "with attention renamed":
				// Of the kernels of this program's decode steps no other name says anything.
				if strings.HasPrefix(name, "gpt2-") || strings.HasPrefix(name, "shipped-") {
					continue
				}
				floor = 90
			case "without its first 70 kernels":
				// Nothing says how many layers there are unless a whole pass is left.
				if !hasWholePass(list) {
					continue
				}
				floor = 90
			default:
				floor = 90
			}
			found := inferred(t, list)
			percent, wrongly, none, wrong := grade(list, found)
			if how == "whole" {
				given, outside = given+wrongly, outside+none
				for i, k := range list { // a residual that the next layer's LayerNorm adds is of the layer before
					if got := found.Kernels[i].Stage; got != nil && nextNorm.MatchString(*got) {
						joined++
						if *got != k.stage {
							t.Errorf("%s: kernel %d is %s, not %s", name, i, *got, k.stage)
						}
					}
				}
			}
			t.Logf("%s %s: %.2f %% of the time is right", name, how, percent)
			if percent < floor {
				t.Errorf("%s %s: %.2f %% of the time is right, want %.0f %%; wrong, in ns: %v", name, how, percent, floor, wrong)
			}
		}
	}
	if joined < 20 {
		t.Errorf("%d kernels add a residual and normalise", joined)
	}
	if outside < 400 || 100*given > outside {
		t.Errorf("%d of %d kernels outside the model have a stage", given, outside)
	}
}

func hasWholePass(list []truth) bool {
	begun := false
	for _, k := range list {
		begun = begun || strings.HasPrefix(k.stage, "wte+wpe")
		if begun && strings.HasSuffix(k.stage, "lm_head") {
			return true
		}
	}
	return false
}

// TestApply: a recording with inferred stages has every table of our own ones, also after it was written and read
// again, and it says that they are inferred.
func TestApply(t *testing.T) {
	for _, name := range []string{"hf-sdpa-f32-L1-prefill", "hf-sdpa-f16-L12-graph-static-decode", "hf-sdpa-bf16-L6-other-work", "compile-hf-f16-static-decode"} {
		t.Run(name, func(t *testing.T) {
			tr, found := inferSample(t, name, nil)
			stages := map[int64]string{}
			for _, k := range found.Kernels {
				if k.Stage != nil {
					stages[k.Start] = *k.Stage
				}
			}
			require.NoError(t, found.Apply(tr))
			file := bytes.NewReader(fixtures.Write(t, tr.Header, tr.Events))
			again := require.Value(load.Source{Path: name, Stream: file}.Load())(t)
			for _, tr := range []*traces.Trace{tr, again} {
				if !strings.Contains(tr.Header.Describe(), "stages inferred, confidence 1.00") {
					t.Errorf("%s", tr.Header.Describe())
				}
				if tr.Passes != len(found.Passes) || traces.Misleads(traces.Examine(tr.Header, tr.Attribution)) {
					t.Errorf("%d passes of %d; %+v", tr.Passes, len(found.Passes), traces.Examine(tr.Header, tr.Attribution))
				}
				for i := range tr.Events {
					e := &tr.Events[i]
					s, ok := tr.Header.Step(e)
					if e.Kind != traces.KindKernel || ok && s.Name == NoStage {
						continue
					}
					if s.Name != stages[e.Time] {
						t.Fatalf("the kernel at %d has the step %q, not %q", e.Time, s.Name, stages[e.Time])
					}
				}
				for _, by := range tables.Bys {
					if by == tables.ByPython || by == tables.ByMemory {
						continue
					}
					if _, err := tables.Summarize(tr, by, -1); err != nil {
						t.Errorf("by %s: %v", by, err)
					}
				}
			}
			if err := found.Apply(tr); err == nil {
				t.Error("stages were inferred twice")
			}
		})
	}
}

// TestPlanOrder: the steps of an inferred plan are in the order of the model.
func TestPlanOrder(t *testing.T) {
	tr, found := inferSample(t, "compile-plain-f32-prefill", nil)
	require.NoError(t, found.Apply(tr))
	var names []string
	for _, s := range tr.Header.Plans[0].Steps {
		names = append(names, s.Name)
	}
	layer := func(n string) string {
		return strings.ReplaceAll("h.N.attn.c_attn h.N.attn.sdpa h.N.attn.c_proj h.N.residual_1+h.N.ln_2 h.N.mlp.c_fc h.N.mlp.gelu h.N.mlp.c_proj", "N", n)
	}
	want := "wte+wpe+h.0.ln_1 " + layer("0") + " h.0.residual_2+h.1.ln_1 " + layer("1") + " h.1.residual_2+h.2.ln_1 " + layer("2") + " h.2.residual_2+h.3.ln_1 " + layer("3") + " h.3.residual_2+ln_f lm_head"
	if got := strings.Join(names, " "); got != want {
		t.Errorf("the plan is\n%s, want\n%s", got, want)
	}
}

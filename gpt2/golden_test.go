package gpt2_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gpt2scope/cpu"
	"gpt2scope/gpt2"
	"gpt2scope/internal/require"
	"gpt2scope/reference/executor"
	"gpt2scope/weights"
)

// These tests compare with what Hugging Face transformers computes in float32:
// the files in testdata, made by parity/golden.py and described in its README.md.

// tolerance is the largest difference of logits, as a share of the largest logit.
const tolerance = 1e-4

// golden is a file of expected tensors.
type golden struct {
	*weights.Checkpoint
	t testing.TB
}

var must = require.NoError

func openGolden(t testing.TB, path string) golden {
	t.Helper()
	c := require.Value(weights.OpenFile(path))(t)
	t.Cleanup(func() { c.Close() })
	return golden{c, t}
}

func (g golden) tensor(name string) weights.Tensor {
	g.t.Helper()
	t, ok := g.Tensor(name)
	if !ok {
		g.t.Fatalf("the golden file has no %s", name)
	}
	return t
}

func (g golden) floats(name string) []float32 {
	g.t.Helper()
	t := g.tensor(name)
	x := make([]float32, t.Elements())
	if err := t.ReadFloat32(x, 0); err != nil {
		g.t.Fatal(err)
	}
	return x
}

func (g golden) ints(name string) []int32 {
	g.t.Helper()
	t := g.tensor(name)
	raw := make([]byte, t.Bytes())
	if err := t.ReadBytes(raw, 0); err != nil {
		g.t.Fatal(err)
	}
	x := make([]int32, t.Elements())
	for i := range x {
		x[i] = int32(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	return x
}

// backends are the executors under test.
func backends(t testing.TB) map[string]gpt2.Backend {
	t.Helper()
	fast := require.Value(cpu.New(cpu.Options{}))(t)
	t.Cleanup(func() { fast.Close() })
	return map[string]gpt2.Backend{"cpu": fast, "reference": executor.New()}
}

func newSession(t testing.TB, m *gpt2.Model, b gpt2.Backend, o gpt2.Options) *gpt2.Session {
	t.Helper()
	s := require.Value(gpt2.NewSession(t.Context(), m, b, o))(t)
	t.Cleanup(func() { s.Close() })
	return s
}

var openModel = gpt2.OpenModel

// mustBeClose fails if a value differs by more than share x the largest expected one, or is NaN.
func mustBeClose(t testing.TB, what string, got, want []float32, share float64) {
	t.Helper()
	largest := 0.0
	for _, v := range want {
		largest = math.Max(largest, math.Abs(float64(v)))
	}
	mustBeWithin(t, what, got, want, share*largest)
}

func mustBeWithin(t testing.TB, what string, got, want []float32, bound float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d values, want %d", what, len(got), len(want))
	}
	worst, at := 0.0, -1
	for i := range got {
		if d := math.Abs(float64(got[i]) - float64(want[i])); !(d <= worst) {
			worst, at = d, i
		}
	}
	if !(worst <= bound) {
		t.Errorf("%s: value %d is %g, want %g within %g", what, at, got[at], want[at], bound)
	}
}

// TestGoldenModels loads one tiny checkpoint per feature of the format and compares every stage that transformers gave.
func TestGoldenModels(t *testing.T) {
	dirs, err := filepath.Glob("testdata/models/*/expected.safetensors")
	if err != nil || len(dirs) < 25 {
		t.Fatalf("%d golden models (%v)", len(dirs), err)
	}
	for name, backend := range backends(t) {
		for _, expected := range dirs {
			dir := filepath.Dir(expected)
			t.Run(name+"/"+filepath.Base(dir), func(t *testing.T) {
				s := newSession(t, openModel(t, dir), backend, gpt2.Options{})
				g := openGolden(t, expected)
				stages := 0
				for _, stage := range g.Names() {
					if stage == "ids" {
						continue
					}
					got, shape, err := s.Activations(t.Context(), g.ints("ids"), stage)
					must(t, err)
					if want := g.tensor(stage).Shape; shape.Rows != want[0] || shape.Width != want[1] {
						t.Fatalf("%s: shape %+v, want %v", stage, shape, want)
					}
					mustBeClose(t, stage, got, g.floats(stage), 1e-5)
					stages++
				}
				if stages == 0 {
					t.Error("no stage was compared")
				}
			})
		}
	}
}

// greedy continues a prompt and returns the ids.
func greedy(t testing.TB, s *gpt2.Session, prompt []int32, n int) []int32 {
	t.Helper()
	must(t, s.Reset())
	var ids []int32
	for token, err := range s.Generate(t.Context(), prompt, gpt2.Generation{Tokens: n, IgnoreEOS: true}) {
		must(t, err)
		ids = append(ids, token.ID)
	}
	return ids
}

// mustContinueAs compares a greedy continuation up to the first step whose two
// best logits are closer than the tolerance.
func mustContinueAs(t testing.TB, g golden, prefix string, got []int32) {
	t.Helper()
	want, gaps, peaks := g.ints(prefix+"greedy.ids"), g.floats(prefix+"greedy.gaps"), g.floats(prefix+"greedy.peaks")
	if len(got) != len(want) {
		t.Fatalf("%sgreedy: %d tokens, want %d", prefix, len(got), len(want))
	}
	for i := range want {
		if float64(gaps[i]) < tolerance*float64(peaks[i]) {
			t.Logf("%sgreedy: compared %d of %d tokens; there the two best are equal within the tolerance", prefix, i, len(want))
			return
		}
		if got[i] != want[i] {
			t.Fatalf("%sgreedy: token %d is %d, want %d", prefix, i, got[i], want[i])
		}
	}
}

// TestGoldenShakespeare compares the shipped weights at every depth: logits at the kept positions of a short prompt and
// of one that fills the context, and 200 greedy tokens.
func TestGoldenShakespeare(t *testing.T) {
	m := openModel(t, "../weights/shakespeare")
	g := openGolden(t, "testdata/shakespeare.safetensors")
	backend := backends(t)["cpu"]
	V := m.Config.Vocab
	for depth := 1; depth <= m.Config.Layers; depth++ {
		t.Run(fmt.Sprint(depth), func(t *testing.T) {
			s := newSession(t, m, backend, gpt2.Options{Layers: gpt2.FirstLayers(depth)})
			for _, prompt := range []string{"short.", "long."} {
				must(t, s.Reset())
				logits := require.Value(s.Logits(t.Context(), g.ints(prompt+"ids"), gpt2.LogitsAll))(t)
				prefix := fmt.Sprintf("L%d.%s", depth, prompt)
				var got []float32
				for _, p := range g.ints(prompt + "positions") {
					got = append(got, logits[int(p)*V:(int(p)+1)*V]...)
				}
				mustBeWithin(t, prefix+"logits", got, g.floats(prefix+"logits"), tolerance*float64(g.floats(prefix + "peak")[0]))
			}
			mustContinueAs(t, g, fmt.Sprintf("L%d.", depth), greedy(t, s, g.ints("short.ids"), 200))
		})
	}
}

// TestGoldenRandomGPT2 compares random weights in GPT-2's geometry, made by
// [gpt2.Random], exported, and loaded by transformers, at 1 and 12 layers.
func TestGoldenRandomGPT2(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	for _, layers := range []int{1, 12} {
		t.Run(fmt.Sprint(layers), func(t *testing.T) {
			m := openModel(t, fmt.Sprintf("random:L=%d,C=768,NH=12,V=50257,T=1024", layers))
			g := openGolden(t, fmt.Sprintf("testdata/gpt2.L%d.safetensors", layers))
			for name, want := range map[string]string{"wte.weight": "wte.first",
				fmt.Sprintf("h.%d.mlp.c_proj.weight", layers-1): "c_proj.last"} {
				got := make([]float32, 16)
				must(t, m.Read(name, got, 0))
				mustBeWithin(t, name+": the generator of random weights changed", got, g.floats(want), 0)
			}
			s := newSession(t, m, backends(t)["cpu"], gpt2.Options{})
			ids, positions, columns := g.ints("ids"), g.ints("positions"), g.ints("columns")
			logits, peaks, best, gaps := g.floats("logits"), g.floats("peaks"), g.ints("argmax"), g.floats("gaps")
			done := 0
			for i, p := range positions { // ascending: each pass goes on from the last
				row := require.Value(s.Logits(t.Context(), ids[done:p+1], gpt2.LogitsLast))(t)
				done = int(p) + 1
				var got []float32
				top := 0
				for _, c := range columns {
					got = append(got, row[c])
				}
				for id, v := range row {
					if v > row[top] {
						top = id
					}
				}
				bound := tolerance * float64(peaks[i])
				mustBeWithin(t, fmt.Sprintf("logits at position %d", p), got, logits[i*len(columns):(i+1)*len(columns)], bound)
				if float64(gaps[i]) >= bound && int32(top) != best[i] {
					t.Errorf("position %d: the best token is %d, want %d", p, top, best[i])
				}
			}
			mustContinueAs(t, g, "", greedy(t, s, ids[:64], 200))
		})
	}
}

// TestExportRoundTrip: a model written and opened again is the same.
func TestExportRoundTrip(t *testing.T) {
	for _, name := range []string{"testdata/models/everything", "testdata/models/plain",
		"random:L=2,C=24,NH=3,V=257,T=32"} {
		m := openModel(t, name)
		dir := filepath.Join(t.TempDir(), "model")
		must(t, m.Export(t.Context(), dir, gpt2.ExportOptions{DType: weights.F32}))
		again := openModel(t, dir)
		if again.Config != m.Config {
			t.Errorf("%s: configuration %+v, exported %+v", name, m.Config, again.Config)
		}
		for _, p := range m.Config.Params() {
			a, b := make([]float32, p.Elements()), make([]float32, p.Elements())
			must(t, m.Read(p.Name, a, 0))
			must(t, again.Read(p.Name, b, 0))
			mustBeWithin(t, name+" "+p.Name, b, a, 0)
		}
		if (m.Tokenizer == nil) != (again.Tokenizer == nil) {
			t.Errorf("%s: the tokenizer did not survive", name)
		}
		if err := m.Export(t.Context(), dir, gpt2.ExportOptions{DType: weights.BF16}); !errors.Is(err, weights.ErrNotEmpty) {
			t.Errorf("%s: exporting over a model: %v", name, err)
		}
		for _, force := range []bool{false, true} {
			if err := again.Export(t.Context(), dir+"/.", gpt2.ExportOptions{DType: weights.BF16, Force: force}); !errors.Is(err,
				weights.ErrSamePlace) {
				t.Errorf("%s: exporting onto itself: %v", name, err)
			}
		}
		if err := m.Export(t.Context(), dir, gpt2.ExportOptions{DType: weights.BF16, Force: true}); err != nil {
			t.Errorf("%s: exporting again: %v", name, err)
		}
		w, err := openModel(t, dir).Tensor("wte.weight")
		if err != nil || w.DType != weights.BF16 {
			t.Errorf("%s: the weights are %v, %v", name, w.DType, err)
		}
		bare := openModel(t, "random:L=1,C=8,NH=1,V=300,T=8") // has no tokenizer
		if err := bare.Export(t.Context(), dir, gpt2.ExportOptions{DType: weights.F32,
			Force: true}); (err == nil) != (m.Tokenizer == nil) {
			t.Errorf("%s: exporting a model without tokenizer over it gave %v", name, err)
		}
	}
}

// TestModelFileThatShrinks: a checkpoint cut short while it is open gives an error, not a crash.
func TestModelFileThatShrinks(t *testing.T) {
	m := openModel(t, "random:L=2,C=256,NH=4,V=257,T=64")
	dir := t.TempDir()
	must(t, m.Export(t.Context(), dir, gpt2.ExportOptions{DType: weights.F32}))
	opened := openModel(t, dir)
	must(t, os.Truncate(filepath.Join(dir, weights.SingleFile), 100_000))
	for name, b := range backends(t) {
		if _, err := gpt2.NewSession(t.Context(), opened, b, gpt2.Options{}); err == nil ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: packing a file that shrank gave %v", name, err)
		}
	}
}

// TestQualityByDepth evaluates the shipped model on the last tenth of tiny Shakespeare, whose path GPT2SCOPE_TEXT gives
// (make test TEXT=FILE): one layer reaches 2.36 bits per byte, six 2.12, and no depth is worse than the one before it
// by more than 0.005.
func TestQualityByDepth(t *testing.T) {
	path := os.Getenv("GPT2SCOPE_TEXT")
	if path == "" {
		t.Skip("no text: make test TEXT=tinyshakespeare.txt")
	}
	text := require.Value(os.ReadFile(path))(t)
	text = text[len(text)*9/10:]
	m := openModel(t, "../weights/shakespeare")
	ids := m.Tokenizer.EncodeOrdinary(string(text))
	backend := backends(t)["cpu"]
	last := math.Inf(1)
	for depth := 1; depth <= m.Config.Layers; depth++ {
		s := newSession(t, m, backend, gpt2.Options{Layers: gpt2.FirstLayers(depth)})
		e := require.Value(s.Evaluate(t.Context(), ids, 512, 256, nil))(t)
		bits := e.BitsPerByte(len(text))
		t.Logf("%d layers: %.4f bits per byte", depth, bits)
		most := last + 0.005
		switch depth {
		case 1:
			most = 2.36
		case m.Config.Layers:
			most = min(most, 2.12)
		}
		if !(bits <= most) {
			t.Errorf("%d layers: %.4f bits per byte, want at most %.4f", depth, bits, most)
		}
		last = bits
	}
}

// TestSamplingGolden: the sampler draws from the probabilities from which transformers' generate draws, with each way to
// cut and penalize, in its order.
func TestSamplingGolden(t *testing.T) {
	g := openGolden(t, "testdata/sampling.safetensors")
	const ways, draws = 11, 20000
	for i := range ways {
		name := func(tensor string) string { return fmt.Sprintf("%d.%s", i, tensor) }
		way, text, logits, p := g.floats(name("way")), g.ints(name("ids")), g.floats(name("logits")), g.floats(name("probabilities"))
		round := func(v float32) float64 { return math.Round(1e4*float64(v)) / 1e4 } // 0.7 is not a float32
		temperature, topK, topP, minP, penalty := round(way[0]), int(way[1]), round(way[2]), round(way[3]), round(way[4])
		kept := 0
		for id := range p {
			if p[id] > 0 {
				kept++
			}
		}
		if i > 0 && kept == 0 || topK+int(1-topP) > 0 && kept == len(p) {
			t.Fatalf("%v: %d of %d tokens are kept", way, kept, len(p))
		}
		var s gpt2.Sampler
		counts := make([]float64, len(p))
		for position := range draws {
			token, err := s.Sample(gpt2.Sampling{Temperature: temperature, TopK: topK, TopP: topP, MinP: minP,
				RepeatPenalty: penalty,
				Seed:          uint64(i), History: func(int) []int32 { return text }}, logits, 0, position)
			must(t, err)
			counts[token.ID]++
		}
		for id, n := range counts {
			mean := float64(p[id]) * draws
			if math.Abs(n-mean) > 5*math.Sqrt(mean)+5 || p[id] == 0 && n > 0 {
				t.Errorf("%v: token %d is drawn %g times of %d, and transformers gives it a probability of %g", way, id, n, draws,
					p[id])
			}
		}
	}
}

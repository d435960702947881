package gpt2

import (
	"math"
	"strings"
	"testing"

	"gpt2scope/internal/require"
)

const plainConfig = `{"model_type":"gpt2","n_layer":2,"n_embd":12,"n_head":3,"n_positions":64,"vocab_size":100}`

var must = require.NoError

// with returns plainConfig with a field set.
func with(field, value string) string {
	return strings.TrimSuffix(plainConfig, "}") + `,"` + field + `":` + value + "}"
}

func TestParseConfigDefaults(t *testing.T) {
	c := require.Value(ParseConfig([]byte(plainConfig)))(t)
	want := Config{Layers: 2, Channels: 12, Heads: 3, Positions: 64, Vocab: 100, Inner: 48, Epsilon: 1e-5,
		Activation: GELUNew, Tied: true, ScaleWeights: true, BOS: -1, EOS: -1}
	if c != want {
		t.Errorf("got %+v, want %+v", c, want)
	}
}

func TestParseConfigFields(t *testing.T) {
	for _, v := range []struct {
		field, value string
		check        func(Config) bool
	}{
		{"n_inner", "20", func(c Config) bool { return c.Inner == 20 }},
		{"n_inner", "null", func(c Config) bool { return c.Inner == 48 }},
		{"layer_norm_epsilon", "0.001", func(c Config) bool { return c.Epsilon == 0.001 }},
		{"activation_function", `"gelu"`, func(c Config) bool { return c.Activation == GELUErf }},
		{"activation_function", `"gelu_pytorch_tanh"`, func(c Config) bool { return c.Activation == GELUNew }},
		{"activation_function", `"relu"`, func(c Config) bool { return c.Activation == ReLU }},
		{"activation_function", `"gelu_accurate"`, func(c Config) bool { return c.Activation == GELUNew }},
		{"activation_function", `"gelu_fast"`, func(c Config) bool { return c.Activation == GELUNew }},
		{"activation_function", `"gelu_python"`, func(c Config) bool { return c.Activation == GELUErf }},
		{"activation_function", `"swish"`, func(c Config) bool { return c.Activation == SiLU }},
		{"activation_function", `"quick_gelu"`, func(c Config) bool { return c.Activation == QuickGELU }},
		{"tie_word_embeddings", "false", func(c Config) bool { return !c.Tied }},
		{"scale_attn_weights", "false", func(c Config) bool { return !c.ScaleWeights && c.AttentionScale(1) == 1 }},
		{"scale_attn_by_inverse_layer_idx", "true", func(c Config) bool { return math.Abs(c.AttentionScale(1)-0.25) < 1e-12 }}, // 1/sqrt(4)/2
		{"eos_token_id", "7", func(c Config) bool { return c.EOS == 7 }},
		{"reorder_and_upcast_attn", "true", func(c Config) bool { return true }}, // rounding only
		{"resid_pdrop", "0.1", func(c Config) bool { return true }},
		{"add_cross_attention", "false", func(c Config) bool { return true }},
		{"pruned_heads", "{ }", func(c Config) bool { return true }},
	} {
		c, err := ParseConfig([]byte(with(v.field, v.value)))
		if err != nil || !v.check(c) {
			t.Errorf("%s = %s gave %+v, %v", v.field, v.value, c, err)
		}
	}
}

// TestParseConfigRefuses: each sentence names the field.
func TestParseConfigRefuses(t *testing.T) {
	for _, v := range []struct{ config, names string }{
		{``, "config.json"}, {`[]`, "config.json"}, {`{`, "config.json"}, {`null`, "config.json"},
		{with("model_type", `"llama"`), "model_type"},
		{with("n_layer", "0"), "n_layer"}, {with("n_layer", "-3"), "n_layer"}, {with("n_layer", "1.5"), "n_layer"}, {with("n_layer", `"2"`), "n_layer"},
		{with("n_layer", "1e300"), "n_layer"}, {with("n_layer", "99999999999999999999"), "n_layer"}, {with("n_layer", "1000000"), "n_layer"},
		{with("n_head", "5"), "n_head"}, {`{"n_embd": 64}`, "12 heads"}, {with("n_embd", "9223372036854775807"), "n_embd"}, {with("vocab_size", "0"), "vocab_size"},
		{with("n_inner", "0"), "n_inner"}, {with("n_inner", "-1"), "n_inner"},
		{with("layer_norm_epsilon", "0"), "layer_norm_epsilon"}, {with("layer_norm_epsilon", "-1"), "layer_norm_epsilon"}, {with("layer_norm_epsilon", "2"), "layer_norm_epsilon"},
		{with("activation_function", `"tanh"`), "activation_function"}, {with("activation_function", "3"), "activation_function"},
		{with("add_cross_attention", "true"), "add_cross_attention"}, {with("pruned_heads", `{"0":[1]}`), "pruned_heads"},
		{with("quantization_config", `{"bits":4}`), "quantization_config"}, {with("is_encoder_decoder", "true"), "is_encoder_decoder"},
		{with("scale_attn_weights", `"no"`), "scale_attn_weights"},
	} {
		c, err := ParseConfig([]byte(v.config))
		if err == nil {
			t.Errorf("%s gave %+v", v.config, c)
		} else if !strings.Contains(err.Error(), v.names) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: the sentence does not name %s: %v", v.config, v.names, err)
		}
	}
}

func FuzzParseConfig(f *testing.F) {
	f.Add([]byte(plainConfig))
	f.Add([]byte(with("n_inner", "null")))
	f.Add([]byte(with("activation_function", `"gelu"`)))
	f.Add([]byte(with("pruned_heads", `{"0":[1]}`)))
	f.Add([]byte(with("eos_token_id", "[1,2]")))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := ParseConfig(data)
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("more than a sentence: %q", err)
			}
			return
		}
		if err := c.Check(); err != nil {
			t.Errorf("accepted %+v: %v", c, err)
		}
		written := require.Value(c.JSON("float32"))(t)
		if again, err := ParseConfig(written); err != nil || again != c {
			t.Errorf("%+v was written and read as %+v, %v", c, again, err)
		}
		if c.Layers < 64 {
			if c.Parameters() <= 0 {
				t.Errorf("%+v has %d parameters", c, c.Parameters())
			}
			Forward(c, FirstLayers(c.Layers), Pass{Batch: 1, Tokens: 1, Logits: LogitsLast, Sample: true}).Cost(1)
		}
	})
}

func TestParametersOfPublishedSizes(t *testing.T) {
	for name, want := range map[string]int{"gpt2": 124439808, "gpt2-medium": 354823168, "gpt2-large": 774030080,
		"gpt2-xl": 1557611200} {
		m := require.Value(Random(RandomPrefix + name))(t)
		sum := 0
		for _, p := range m.Config.Params() {
			sum += p.Elements()
		}
		if got := m.Config.Parameters(); got != want || sum != want {
			t.Errorf("%s has %d parameters, want %d", name, got, want)
		}
	}
}

func TestRandomRefuses(t *testing.T) {
	for _, name := range []string{"gpt2", "random:", "random:gpt3", "random:L=0", "random:L=", "random:L=1,L",
		"random:C=10,NH=3", "random:C=1000000000", "random:V=0", "random:,", "random:L=99999999999999999999", "random:C=1024,NH=1", "random:C=1048576,NH=4096,F=1048576,L=4096"} {
		if m, err := Random(name); err == nil {
			t.Errorf("%s gave %+v", name, m.Config)
		}
	}
}

// TestRandomWeights: the same whichever part is read, of the stated deviation, different by name and seed.
func TestRandomWeights(t *testing.T) {
	m := require.Value(Random("random:L=2,C=96,NH=3,V=500,T=64"))(t)
	for _, p := range m.Config.Params() {
		whole := make([]float32, p.Elements())
		must(t, m.Read(p.Name, whole, 0))
		for _, off := range []int{0, 1, len(whole) / 2, len(whole) - 1} {
			part := make([]float32, min(100, len(whole)-off))
			must(t, m.Read(p.Name, part, off))
			for i := range part {
				if part[i] != whole[off+i] {
					t.Fatalf("%s element %d read from %d on is %g, and %g in the whole", p.Name, off+i, off, part[i], whole[off+i])
				}
			}
		}
		sum, squares := 0.0, 0.0
		for _, v := range whole {
			sum += float64(v)
			squares += float64(v) * float64(v)
		}
		n := float64(len(whole))
		mean, deviation := sum/n, math.Sqrt(squares/n)
		want := 0.02
		switch {
		case strings.HasSuffix(p.Name, "bias"):
			want = 0
		case len(p.Shape) == 1:
			want = 1
		case p.Name == "wpe.weight":
			want = 0.01
		case strings.HasSuffix(p.Name, "c_proj.weight"):
			want = 0.02 / math.Sqrt(4)
		}
		if !(math.Abs(deviation-want) <= 5*want/math.Sqrt(2*n)) {
			t.Errorf("%s has root mean square %g, want %g", p.Name, deviation, want)
		}
		if len(p.Shape) == 2 && !(math.Abs(mean) <= 5*want/math.Sqrt(n)) {
			t.Errorf("%s has mean %g", p.Name, mean)
		}
	}
}

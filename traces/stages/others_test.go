package stages

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"gpt2scope/traces"
)

// projection is the product of a Llama-like model in the path of its module.
var projection = regexp.MustCompile(`\b(self_attn|mlp)\.\w+_proj$`)

// TestOthers: of models that are no GPT-2, layers and stages are found or nothing is said, and what is said with a
// confidence of 0.9 and more is right, whatever was lost. The last four were kept back while the rules were made.
func TestOthers(t *testing.T) {
	var said, right float64
	for _, test := range []struct{ file, want, against string }{
		{"bert4", "3 passes of 4 layers (3 forward passes)", "6 matrix products"},
		{"din", "no pass of a model that is known was found", "looked like passes"},
		{"llama5-generate-gqa", "5 passes of 5 layers (1 prefill, 4 decode steps)", "440 kernels are RMSNorm"},
		{"mixtral3", "no pass of a model that is known was found", "RMSNorm"},
		{"opt7-generate", "5 passes of 7 layers (1 prefill, 4 decode steps)", "6 matrix products"},
		{"qwen3-5-prefill", "3 passes of 5 layers (3 prefills)", "7 matrix products"},
		{"t5enc6", "3 passes of 6 layers (3 prefills)", "RMSNorm"},
		{"vit6", "3 passes of 6 layers (3 forward passes)", "6 matrix products"},

		{"albert4", "2 passes of 4 layers (2 forward passes)", "6 matrix products"},
		{"bart3", "no pass of a model that is known was found", "attentions are in what looked like layers"},
		{"persimmon4", "no pass of a model that is known was found", "attentions are in what looked like layers"},
		{"starcoder2-4", "4 passes of 4 layers (1 prefill, 3 decode steps)", "6 matrix products"},
	} {
		list := labelled(t, filepath.Join("../testdata/others", test.file+".json.gz"))
		for how, damage := range map[string]func(int) bool{"whole": func(int) bool { return false },
			"without 1 % of its kernels":   func(i int) bool { return i*7919%101 == 0 },
			"without its first 70 kernels": func(i int) bool { return i < 70 }} {
			var kept []truth
			for i, k := range list {
				if !damage(i) {
					kept = append(kept, k)
				}
			}
			r := inferred(t, kept)
			if against := strings.Join(r.Against, "; "); how == "whole" && (r.Describe() != test.want || !strings.Contains(against, test.against)) {
				t.Errorf("%s: %s, want %s; against it: %s", test.file, r.Describe(), test.want, against)
			}
			for i, k := range r.Kernels {
				if k.Stage == nil || k.Confidence < 0.9 {
					continue
				}
				said += float64(k.event.Duration)
				is := traces.LayerOf(*k.Stage) == kept[i].layer
				if word := projection.FindString(kept[i].module); word != "" && strings.HasPrefix(*k.Stage, "layers.") {
					is = is && strings.HasSuffix(*k.Stage, "."+word)
				}
				if is {
					right += float64(k.event.Duration)
				} else if how == "whole" {
					t.Logf("%s: %s as %s", test.file, kept[i].module, *k.Stage)
				}
			}
		}
	}
	t.Logf("%.2f %% of what is said is right", 100*right/said)
	if right < 0.95*said {
		t.Errorf("of what is said with a confidence of 0.9 and more %.1f %% is right", 100*right/said)
	}
}

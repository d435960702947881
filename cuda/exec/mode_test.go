package exec

import (
	"strings"
	"testing"

	"gpt2scope/cuda"
	"gpt2scope/gpt2"
)

// TestChooseMode: the mode of a backend and of a pass by each fact that decides about it, and the words that say why.
func TestChooseMode(t *testing.T) {
	config := func(width int) gpt2.Config { return gpt2.Config{Channels: width, Vocab: 50257} }
	last := func(batch, tokens int) gpt2.Pass {
		return gpt2.Pass{Batch: batch, Tokens: tokens, Logits: gpt2.LogitsLast, Sample: true}
	}
	decode := func(width, layers, batch int, s gpt2.Sampling) *passFacts {
		return &passFacts{config: config(width), layers: layers, pass: last(batch, 1), sampling: s}
	}
	prompt := func(width, layers int, pass gpt2.Pass) *passFacts {
		return &passFacts{config: config(width), layers: layers, pass: pass, prompt: true}
	}
	steps, naive := map[string]string{variantDecode: variantSteps}, map[string]string{"attn.sdpa": "naive"}
	drawn, from40 := gpt2.Sampling{Temperature: 1}, gpt2.Sampling{Temperature: 1, TopK: 40}
	const tool = "CUDA_INJECTION64_PATH"
	for name, f := range map[string]struct {
		options Options
		dtype   cuda.DType
		tool    string
		pass    *passFacts // nil: of the backend
		mode    Mode
		single  bool
		notice  bool
		words   string
	}{
		"auto":                     {mode: Persistent, words: "least time"},
		"auto, profiler":           {tool: tool, mode: Eager, notice: true, words: tool + " is set); --mode graph"},
		"auto, f32":                {dtype: cuda.F32, mode: Graph, words: "weights are f32"},
		"auto, cupti":              {options: Options{Recorder: RecorderCUPTI}, mode: Graph, words: "--recorder stamps"},
		"auto, variant":            {options: Options{Variants: naive}, mode: Graph, words: "--variant"},
		"auto, steps":              {options: Options{Variants: steps}, mode: Eager, single: true, words: "decode=steps"},
		"eager, profiler":          {options: Options{Mode: Eager}, tool: tool, mode: Eager, words: "as requested"},
		"graph, f32":               {options: Options{Mode: Graph}, dtype: cuda.F32, mode: Graph, words: "as requested"},
		"graph, profiler":          {options: Options{Mode: Graph}, tool: tool, mode: Graph, words: "as requested"},
		"persistent":               {options: Options{Mode: Persistent}, mode: Persistent, words: "as requested"},
		"persistent, profiler":     {options: Options{Mode: Persistent}, tool: tool, mode: Eager, single: true, notice: true, words: ProfileEnv},
		"persistent, cupti":        {options: Options{Mode: Persistent, Recorder: RecorderCUPTI}, mode: Graph, notice: true, words: "--recorder stamps"},
		"persistent, variant":      {options: Options{Mode: Persistent, Variants: naive}, mode: Graph, notice: true, words: "--variant"},
		"persistent, f32":          {options: Options{Mode: Persistent}, dtype: cuda.F32, words: "error: bf16 only"},
		"steps, f32":               {options: Options{Variants: steps}, dtype: cuda.F32, words: "error: bf16 only"},
		"steps, graph":             {options: Options{Mode: Graph, Variants: steps}, words: "error: use mode eager"},
		"steps, persistent":        {options: Options{Mode: Persistent, Variants: steps}, words: "error: use mode eager"},
		"decode":                   {pass: decode(384, 2, 8, gpt2.Sampling{}), mode: Persistent},
		"decode in eager":          {options: Options{Mode: Eager}, pass: decode(384, 2, 1, gpt2.Sampling{}), mode: Eager, words: "as requested"},
		"not measured":             {pass: decode(64, 2, 1, gpt2.Sampling{}), mode: Graph, notice: true, words: "at a width of 64"},
		"not measured, asked":      {options: Options{Mode: Persistent}, pass: decode(64, 2, 9, gpt2.Sampling{}), mode: Persistent},
		"not measured, steps":      {options: Options{Variants: steps}, pass: decode(64, 2, 9, drawn), mode: Eager, single: true},
		"nine":                     {pass: decode(384, 2, 9, gpt2.Sampling{}), mode: Graph, notice: true, words: "of 9 sequences"},
		"five of 1600":             {pass: decode(1600, 9, 5, gpt2.Sampling{}), mode: Graph, notice: true, words: "of 5 sequences at a width of 1600"},
		"sampled apart":            {pass: decode(384, 2, 1, drawn), mode: Graph, notice: true, words: "--top-k 40 needs no launch"},
		"sampled apart, of 768":    {pass: decode(768, 1, 1, drawn), mode: Persistent},
		"sampled of 40":            {pass: decode(384, 2, 2, from40), mode: Persistent},
		"many candidates":          {pass: decode(384, 1, 5, gpt2.Sampling{Temperature: 1, TopK: 65}), mode: Graph, notice: true, words: "from many candidates"},
		"refused":                  {pass: &passFacts{config: config(384), layers: 2, pass: last(1, 1), refused: "no kernel"}, mode: Graph, notice: true, words: "no kernel"},
		"refused, steps":           {options: Options{Variants: steps}, pass: &passFacts{config: config(384), layers: 2, pass: last(1, 1), refused: "no kernel"}, mode: Eager, notice: true, words: "no kernel"},
		"prompt of eight":          {pass: prompt(768, 1, last(1, 8)), mode: Persistent},
		"prompt of one":            {pass: prompt(768, 1, last(1, 1)), mode: Persistent},
		"prompt of nine":           {pass: prompt(768, 1, last(1, 9)), mode: Graph},
		"prompt of two texts":      {pass: prompt(768, 1, last(2, 4)), mode: Graph},
		"prompt, all logits":       {pass: prompt(768, 1, gpt2.Pass{Batch: 1, Tokens: 4, Logits: gpt2.LogitsAll}), mode: Graph},
		"prompt until a stage":     {pass: prompt(768, 1, gpt2.Pass{Batch: 1, Tokens: 4, Logits: gpt2.LogitsLast, Until: "h.0.attn.sdpa"}), mode: Graph},
		"prompt of a small model":  {pass: prompt(384, 2, last(1, 4)), mode: Graph},
		"the same, asked":          {options: Options{Mode: Persistent}, pass: prompt(384, 2, last(1, 4)), mode: Persistent},
		"prompt of five of 1600":   {pass: prompt(1600, 9, last(1, 5)), mode: Graph},
		"prompt, the host samples": {pass: &passFacts{config: config(768), layers: 1, pass: last(1, 4), prompt: true, sampling: gpt2.Sampling{RepeatPenalty: 2}}, mode: Graph},
	} {
		if f.dtype == 0 && !strings.Contains(name, "f32") {
			f.dtype = cuda.BF16
		}
		b := &Backend{options: f.options, dtype: f.dtype, tool: f.tool}
		c, err := b.chooseMode(f.pass)
		if words, fails := strings.CutPrefix(f.words, "error: "); fails {
			if err == nil || !strings.Contains(err.Error(), words) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err != nil || c.mode != f.mode || c.singleSteps != f.single || c.instead != f.notice || !strings.Contains(c.why, f.words) {
			t.Errorf("%s: %+v, %v; want %s and %q", name, c, err, f.mode, f.words)
		}
	}
}

package report

import (
	"regexp"
	"strings"

	"gpt2scope/traces"
)

var (
	qualifier = regexp.MustCompile(`(?:\b[A-Za-z_]\w*|\(anonymous namespace\)|<unnamed>)::`)
	layer     = regexp.MustCompile(`\bh\.(\(N\+1\)|[^.+]+)\.`)
)

// shortName leaves out of a kernel's name what does not distinguish it from others: return type, namespaces and the
// list of its arguments. Other names stay as they are.
func shortName(name string) string {
	short := strings.TrimPrefix(name, "void ")
	if strings.HasSuffix(short, ")") && (short != name || strings.Contains(short, "::")) {
		depth := 0
		for i := len(short) - 1; i > 0; i-- {
			switch short[i] {
			case ')':
				depth++
			case '(':
				depth--
			}
			if depth == 0 {
				short = short[:i]
				break
			}
		}
	}
	short = strings.ReplaceAll(qualifier.ReplaceAllString(short, ""), "> >", ">>")
	if short = strings.TrimSpace(short); short == "" {
		return name
	}
	// Where there is little room the page shows the beginning of a name, which is the same for all elementwise kernels.
	if applies := traces.Applies(name); applies != "" {
		short = applies + ": " + short
	}
	return short
}

// stageHelp says what a step computes, for people who learn; "" for an unknown one.
func stageHelp(step string) string {
	var parts []string
	for _, name := range strings.Split(layer.ReplaceAllString(step, ""), "+") {
		if help := helps[name]; help != "" {
			parts = append(parts, help)
		}
	}
	return strings.Join(parts, "; then ")
}

// helps say what the stages of GPT-2 compute, by their name within a layer.
var helps = map[string]string{
	"wte":         "looks up the embedding of each token and adds that of its position",
	"ln_1":        "normalises the residual stream before the attention",
	"attn.c_attn": "computes queries, keys and values: a matrix product",
	"attn.sdpa":   "attends to all earlier tokens: softmax of queries times keys, times values",
	"attn.c_proj": "projects the output of the attention: a matrix product",
	"residual_1":  "adds it to the residual stream",
	"ln_2":        "normalises the residual stream before the MLP",
	"mlp.c_fc":    "widens each token to the size of the MLP: a matrix product",
	"mlp.gelu":    "applies the activation GELU",
	"mlp.c_proj":  "narrows it to the width of the model: a matrix product",
	"residual_2":  "adds it to the residual stream",
	"ln_f":        "normalises the residual stream a last time",
	"lm_head":     "computes a logit for each token of the vocabulary: a matrix product",
	"sample":      "picks the next token from the logits",
}

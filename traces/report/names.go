package report

import (
	"strings"

	"gpt2scope/glossary"
	"gpt2scope/internal/lazyregexp"
	"gpt2scope/traces"
)

var (
	qualifier = lazyregexp.New(`(?:\b[A-Za-z_]\w*|\(anonymous namespace\)|<unnamed>)::`)
	layer     = lazyregexp.New(`\bh\.(\(N\+1\)|[^.+]+)\.`)
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
	short = strings.ReplaceAll(qualifier().ReplaceAllString(short, ""), "> >", ">>")
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
	for _, name := range strings.Split(layer().ReplaceAllString(step, ""), "+") {
		if help := glossary.Says(name, glossary.Stage); help != "" {
			parts = append(parts, help)
		}
	}
	return strings.Join(parts, "; then ")
}

// nameHelp says what a kernel, a call, a copy or an operator of PyTorch does; "" for an unknown one.
func nameHelp(name string) string {
	return glossary.Says(name, glossary.Kernel, glossary.Call, glossary.Operator)
}

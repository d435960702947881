package trace

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/spf13/pflag"

	"gpt2scope/cmd/infer/cli"
	"gpt2scope/gpt2"
	"gpt2scope/internal/files"
	"gpt2scope/internal/humanize"
	"gpt2scope/internal/lazyregexp"
	"gpt2scope/traces"
)

// planned says what a capture of gpt2scope by Nsight Systems is compared with.
type planned struct {
	path   string
	tokens int
}

func (p *planned) register(f *pflag.FlagSet) {
	f.StringVar(&p.path, "plan", "", "of a capture of infer by nsys: the passes must have the steps of\nthe plans in `FILE`, "+
		"which 'infer info --json' wrote")
	f.Var(cli.Int(&p.tokens, 0, cli.AtLeast(1)), "tokens", "with --plan: the run made `N` tokens, in one prefill and N - 1\n"+
		"decode steps")
	f.Lookup("tokens").DefValue = ""
}

// stepRange is the range of a step, with the name of the range of its layer, which is "" outside the layers.
type stepRange struct{ name, layer string }

var layerRange = lazyregexp.New(`^h\.\d+(@\d+)?$`)

// differences says in sentences where the passes of a capture do not have the steps of their plans, by name, order and
// layer. A pass that launches a graph may have none.
func (p *planned) differences(t *traces.Trace) (found []string, err error) {
	var plans struct{ Prefill, Decode traces.Plan }
	text, err := files.Read(p.path, 1<<26)
	switch {
	case err != nil:
		return nil, fmt.Errorf("--plan %s: %w", cli.ShellQuote(p.path), humanize.Cause(err))
	case json.Unmarshal(text, &plans) != nil || plans.Prefill.Steps == nil || plans.Decode.Steps == nil:
		return nil, fmt.Errorf("--plan %s: it has no plans; 'infer info --json' writes them", cli.ShellQuote(p.path))
	}
	add := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
	index := t.Index()
	var passes []*traces.Event
	steps, replayed, alone := map[uint64][]stepRange{}, map[uint64]bool{}, map[string]int{}
	for i := range t.Events {
		e := &t.Events[i]
		parent := index.Parent(e)
		isRange := e.Kind.IsRange() && e.Lane.Kind == traces.LaneThread && e.Domain == traces.Domain
		switch {
		case isRange && e.Kind == traces.KindPass:
			passes = append(passes, e)
			if parent == nil { // else it is a warm-up
				alone[e.Name]++
			}
		case parent == nil:
		case e.Kind == traces.KindKernel && e.Node != 0:
			replayed[parent.ID] = true
		case !isRange || layerRange().MatchString(e.Name):
		case parent.Kind == traces.KindPass:
			steps[parent.ID] = append(steps[parent.ID], stepRange{e.Name, ""})
		case layerRange().MatchString(parent.Name):
			steps[parent.Parent] = append(steps[parent.Parent], stepRange{e.Name, parent.Name})
		}
	}
	if len(passes) == 0 {
		add("there is no pass in the domain %s: was libgpt2scope_nvtx found, and nvtx traced?", traces.Domain)
	}
	if t.WithoutRange > 0 {
		add("%s launched outside all ranges", humanize.Count(t.WithoutRange, "kernel was", "kernels were"))
	}
	for _, kind := range []struct {
		name  string
		plan  traces.Plan
		count int
	}{{gpt2.PrefillPass, plans.Prefill, 1}, {gpt2.DecodePass, plans.Decode, p.tokens - 1}} {
		want := rangesOf(kind.plan)
		for _, pass := range passes {
			got := steps[pass.ID]
			if pass.Name == kind.name && !slices.Equal(got, want) && (len(got) > 0 || !replayed[pass.ID]) {
				add("a %s at position %.0f has %d steps, the plan %d; %s", pass.Name, pass.Value, len(got), len(want),
					firstDifference(got, want))
				break // the next ones differ in the same way
			}
		}
		if n := alone[kind.name]; p.tokens > 0 && n != kind.count {
			add("%q was run %d times; %d tokens take %d", kind.name, n, p.tokens, kind.count)
		}
	}
	return found, nil
}

// rangesOf are the ranges of the steps of a plan.
func rangesOf(plan traces.Plan) (all []stepRange) {
	for _, s := range plan.Steps {
		r := stepRange{name: s.Name}
		if s.Slot >= 0 {
			r.layer = gpt2.LayerName(s.Slot, s.Layer)
		}
		all = append(all, r)
	}
	return all
}

// firstDifference names the first step that is not the one of the plan.
func firstDifference(got, want []stepRange) string {
	at := 0
	for at < min(len(got), len(want)) && got[at] == want[at] {
		at++
	}
	name := func(steps []stepRange) string {
		if at >= len(steps) {
			return "nothing"
		}
		return fmt.Sprintf("%s in %s", steps[at].name, cmp.Or(steps[at].layer, "no layer"))
	}
	return fmt.Sprintf("step %d is %s, expected %s", at, name(got), name(want))
}

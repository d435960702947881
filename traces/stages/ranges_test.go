package stages

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gpt2scope/internal/require"
	"gpt2scope/traces"
	"gpt2scope/traces/tables"
)

// program writes the recording of a program: nested ranges, and in them launches of kernels that start long after the
// ranges ended.
type program struct {
	events []traces.Event
	now    int64
	late   int64 // how long after its launch a kernel starts
	id     uint64
	worker int64    // what runs is on the thread of this number more
	graph  []string // names of the kernels of the nodes that were captured
}

func (p *program) in(name string, do ...func()) func() {
	return func() {
		e := traces.Plain(traces.KindRange, traces.Thread(1, 1+p.worker), name, p.now, 0)
		p.now++
		for _, f := range do {
			f()
		}
		p.now++
		e.Duration = p.now - e.Time
		e.SetFactsOfName()
		p.events = append(p.events, e)
		p.now++
	}
}

// beside runs on another thread, while the first waits.
func (p *program) beside(do ...func()) func() {
	return func() {
		p.worker = 6
		for _, f := range do {
			f()
		}
		p.worker = 0
	}
}

// k launches a kernel of 10 ns.
func (p *program) k(name string) func() {
	return func() {
		p.id++
		call := traces.Plain(traces.KindRuntime, traces.API(1, 1+p.worker), "cudaLaunchKernel", p.now, 5)
		kernel := traces.Plain(traces.KindKernel, traces.Stream(1, 0, 1, 7), name, p.now+p.late, 10)
		call.Correlation, kernel.Correlation = p.id, p.id
		p.events = append(p.events, call, kernel)
		p.now += 12
	}
}

// node captures a kernel as a node of a graph that is instantiated later.
func (p *program) node(name string) func() {
	return func() {
		e := traces.Plain(traces.KindNode, traces.Thread(1, 1), "node", p.now, 0)
		e.Node = uint64(len(p.graph) + 1)
		p.events, p.graph = append(p.events, e), append(p.graph, name)
		p.now++
	}
}

// clone is the number of the clone of a node.
const clone = 1000

// instantiate clones the nodes of the graph.
func (p *program) instantiate() {
	for i := range p.graph {
		e := traces.Plain(traces.KindNode, traces.Thread(1, 1), "node cloned", p.now, 0)
		e.Node, e.Origin = uint64(clone+i+1), uint64(i+1)
		p.events = append(p.events, e)
		p.now++
	}
}

// launch replays the graph.
func (p *program) launch() {
	p.id++
	call := traces.Plain(traces.KindRuntime, traces.API(1, 1), "cudaGraphLaunch", p.now, 5)
	call.Correlation = p.id
	p.events = append(p.events, call)
	for i, name := range p.graph {
		kernel := traces.Plain(traces.KindKernel, traces.Stream(1, 0, 1, 7), name, p.now+p.late+int64(11*i), 10)
		kernel.Correlation, kernel.Node = p.id, uint64(clone+i+1)
		p.events = append(p.events, kernel)
	}
	p.now += int64(11*len(p.graph)) + 12
}

func (p *program) trace() *traces.Trace {
	return traces.NewTrace(&traces.Header{Version: traces.Version, Tool: "x", Recorder: traces.RecorderNsys, Clock: traces.Clock{Uncertainty: -1}}, p.events)
}

// stagesOf lists the steps of the kernels as "phase: step", without repetition.
func stagesOf(t *traces.Trace) []string {
	var names []string
	for i := range t.Events {
		e := &t.Events[i]
		if e.Kind != traces.KindKernel {
			continue
		}
		name := "none"
		if s, ok := t.Header.Step(e); ok {
			name = t.Header.PhaseOf(e) + ": " + s.Name
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

func passesOf(t *traces.Trace) int {
	n := 0
	for i := range t.Events {
		if t.Events[i].Kind == traces.KindPass {
			n++
		}
	}
	return n
}

// TestOfRanges: what passes and steps the ranges of programs make.
func TestOfRanges(t *testing.T) {
	for _, test := range []struct {
		name   string
		match  string
		write  func(p *program)
		passes int
		stages []string
	}{
		{"modules of PyTorch by their whole paths", "", func(p *program) {
			for range 2 {
				p.in("forward", p.in("transformer", p.k("mask"), p.in("transformer.wte", p.k("gather")),
					p.in("transformer.h.0", p.in("transformer.h.0.ln_1", p.k("ln")), p.in("transformer.h.0.attn", p.in("transformer.h.0.attn.c_attn", p.k("gemm")), p.k("softmax")), p.k("add"))),
					p.in("lm_head", p.k("gemm")))()
			}
		}, 2, []string{"forward: transformer.self", "forward: wte", "forward: h.0.ln_1", "forward: h.0.attn.c_attn", "forward: h.0.attn.self", "forward: h.0.self", "forward: lm_head"}},
		{"layers by number", "", func(p *program) {
			for range 3 {
				p.in("gpt2_forward", p.k("encoder"), p.in("Layer 0", p.k("a")), p.in("Layer 1", p.k("a")), p.k("head"))()
			}
		}, 3, []string{"gpt2_forward: self", "gpt2_forward: Layer 0", "gpt2_forward: Layer 1"}},
		{"ranges without one around them", "", func(p *program) {
			for range 3 {
				p.in("h.0.ln_1", p.k("a"))()
				p.in("h.0.attn", p.k("b"), p.k("c"))()
			}
		}, 3, []string{"pass: h.0.ln_1", "pass: h.0.attn"}},
		{"passes in a loop that has a range", "", func(p *program) {
			p.in("generate", p.in("forward", p.in("h.0", p.k("a"))), p.in("forward", p.in("h.0", p.k("a"))), p.k("argmax"))()
		}, 2, []string{"forward: h.0", "none"}},
		{"numbered passes", "", func(p *program) {
			p.in("ProfilerStep#3", p.in("attn", p.k("a")))()
			p.in("ProfilerStep#4", p.in("attn", p.k("a")))()
		}, 2, []string{"ProfilerStep: attn"}},
		{"numbers in the middle of names, that count on in passes", "", func(p *program) {
			for i := range 3 {
				p.in(fmt.Sprintf("execute_%d_128(sq%dsk%d)_ahead", 7+i, i, 9*i), p.in(fmt.Sprintf("batch: %d loss", i), p.k("a")),
					p.in("part 0", p.k("b")), p.in("part 1", p.k("b")))()
			}
		}, 3, []string{"execute_N_N(sqNskN)_ahead: batch: N loss", "execute_N_N(sqNskN)_ahead: part 0", "execute_N_N(sqNskN)_ahead: part 1"}},
		{"numbered ranges side by side", "", func(p *program) {
			for i := range 3 {
				p.in(fmt.Sprintf("fwd %d", i), p.k("a"))()
				p.in(fmt.Sprintf("bwd %d", i), p.k("b"))()
			}
		}, 3, []string{"pass: fwd", "pass: bwd"}},
		{"a framework's own ranges alone", "", func(p *program) {
			for range 2 {
				p.in("Optimizer.step#SGD.step", p.k("a"))()
			}
		}, 0, []string{"none"}},
		{"operators of emit_nvtx", "", func(p *program) {
			for i := range 2 {
				p.in("step", p.in(fmt.Sprintf("aten::mul, seq = %d, op_id = %d", i, 9+i), p.k("a")))()
			}
		}, 2, []string{"step: step"}},
		{"a backward pass of another thread", "", func(p *program) {
			for range 2 {
				p.in("step", p.in("forward", p.k("a")), p.in("backward", p.beside(p.in("autograd::engine::evaluate_function: X, op_id = 1", p.k("b")))),
					p.in("Optimizer.step#SGD.step", p.k("c")))()
			}
		}, 2, []string{"step: forward", "step: backward", "step: Optimizer.step#SGD.step"}},
		{"a backward pass of a thread that nothing names", "", func(p *program) {
			for range 2 {
				p.in("step", p.in("forward", p.k("a")), p.in("loss.backward()", p.beside(p.k("b"))), p.in("other", p.beside(p.k("c"))))()
			}
		}, 2, []string{"step: forward", "step: loss.backward()", "none"}},
		{"names that are chosen", "^h\\.", func(p *program) {
			for range 2 {
				p.in("all", p.in("h.0.attn", p.k("a")), p.in("other", p.k("b")), p.in("h.1.attn", p.k("a")))()
			}
		}, 2, []string{"pass: h.0.attn", "pass: self", "pass: h.1.attn"}},
		{"ranges of the framework", "", func(p *program) {
			p.in("Torch-Compiled Region: 0/0", p.in("## Call CompiledFxGraph fabc ##", p.k("a")))()
		}, 0, []string{"none"}},
		{"passes without ranges inside", "", func(p *program) {
			p.in("replay", p.k("a"), p.k("b"))()
			p.in("replay", p.k("a"), p.k("b"))()
		}, 2, []string{"replay: replay"}},
		{"one range alone that was asked for", "^m", func(p *program) { p.in("main", p.k("a"), p.k("b"))() }, 1, []string{"main: main"}},
		{"one range alone", "", func(p *program) { p.in("main", p.k("a"), p.k("b"))() }, 0, []string{"none"}},
		{"a graph that was captured in ranges, launched in none", "", func(p *program) {
			p.in("forward", p.in("h.0", p.in("h.0.attn", p.node("a")), p.node("add")), p.in("h.1", p.in("h.1.attn", p.node("a"))))()
			p.instantiate()
			p.launch()
			p.launch()
		}, 2, []string{"forward: h.0.attn", "forward: h.0.self", "forward: h.1.attn"}},
		{"a graph that was captured in ranges, launched in others", "", func(p *program) {
			p.in("decode", p.in("forward", p.in("h.0.attn", p.node("a")), p.in("h.0.mlp", p.node("b"))))()
			p.instantiate()
			p.in("prefill", p.in("forward", p.in("h.0.attn", p.k("a")), p.in("h.0.mlp", p.k("b"))))()
			p.in("decode", p.launch)()
			p.in("decode", p.launch)()
		}, 3, []string{"prefill: forward.h.0.attn", "prefill: forward.h.0.mlp", "decode: forward.h.0.attn", "decode: forward.h.0.mlp"}},
		{"a loop of launches", "", func(p *program) {
			p.in("forward", p.in("h.0.attn", p.node("a")), p.in("h.0.mlp", p.node("b")))()
			p.instantiate()
			p.in("generate", p.launch, p.launch, p.k("argmax"), p.launch)()
		}, 3, []string{"forward: h.0.attn", "forward: h.0.mlp", "none"}},
		{"a graph without ranges around its capture", "", func(p *program) {
			p.node("a")()
			p.instantiate()
			p.in("replay", p.launch)()
			p.in("replay", p.launch)()
		}, 2, []string{"replay: replay"}},
		{"names that are no modules", "", func(p *program) {
			p.in("step", p.in("Layer 3", p.in("self attention", p.k("a")), p.in("mlp", p.k("b"))))()
		}, 1, []string{"step: Layer 3/self attention", "step: Layer 3/mlp"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := &program{late: 500}
			test.write(p)
			var match *regexp.Regexp
			if test.match != "" {
				match = regexp.MustCompile(test.match)
			}
			tr := p.trace()
			if got := OfRanges(tr, match); got != (test.passes > 0) {
				t.Errorf("OfRanges is %t", got)
			}
			if got := passesOf(tr); got != test.passes {
				t.Errorf("%d passes, want %d", got, test.passes)
			}
			if got := stagesOf(tr); !slices.Equal(got, test.stages) {
				t.Errorf("stages\n%q, want\n%q", got, test.stages)
			}
			for _, f := range traces.Examine(tr.Header, tr.Attribution) {
				if f.Misleads {
					t.Errorf("finding: %s", f.Text)
				}
			}
			if test.passes == 0 {
				return
			}
			for _, by := range []tables.By{tables.ByFolded, tables.ByStage, tables.ByLayer, tables.ByPhase, tables.ByOp} {
				if _, err := tables.Summarize(tr, by, -1); err != nil {
					t.Errorf("by %s: %v", by, err)
				}
			}
			if OfRanges(tr, match) {
				t.Error("a trace with steps got others")
			}
		})
	}
}

// TestDamagedRanges: parents that form a ring, and ranges that never ended, end nothing.
func TestDamagedRanges(t *testing.T) {
	p := &program{}
	p.in("a", p.in("b", p.k("x")), p.in("b", p.k("x")))()
	tr := p.trace()
	for i := range tr.Events {
		if e := &tr.Events[i]; e.Kind == traces.KindRange {
			e.Parent, e.Open = e.ID%3+1, true
		}
	}
	OfRanges(tr, nil)
	p = &program{}
	p.in(strings.Repeat("(", 3000)+" ", p.k("x"))()
	OfRanges(p.trace(), nil)
}

// TestRangesOfProcesses: of two processes at once each has the passes that it has alone.
func TestRangesOfProcesses(t *testing.T) {
	for name, write := range map[string]func(p *program){
		"ranges side by side": func(p *program) {
			for range 3 {
				p.in("fwd", p.k("a"))()
				p.in("bwd", p.k("b"))()
			}
		},
		"a range around all passes": func(p *program) {
			p.in("generate", p.in("forward", p.in("h.0", p.k("a"))), p.in("forward", p.in("h.0", p.k("a"))))()
		},
	} {
		var list []*traces.Trace
		for i := range int64(2) {
			p := &program{late: 500, now: 20 * i}
			write(p)
			tr := p.trace()
			tr.Header.Base = 1
			list = append(list, tr)
		}
		both := require.Value(traces.Merge(list, []string{"a", "b"}))(t)
		OfRanges(list[0], nil)
		OfRanges(both, nil)
		if got, want := passesOf(both), 2*passesOf(list[0]); got != want || !slices.Equal(stagesOf(both), stagesOf(list[0])) {
			t.Errorf("%s: %d passes of %q, not %d of %q", name, got, stagesOf(both), want, stagesOf(list[0]))
		}
		for i := range both.Events {
			if e := &both.Events[i]; e.Kind == traces.KindRange || e.Kind == traces.KindStep || e.Kind == traces.KindPass {
				if pass := both.Index().Range(e.Parent); pass != nil && pass.Lane.Process != e.Lane.Process {
					t.Errorf("%s: %s of process %d is in %s of process %d", name, e.Name, e.Lane.Process, pass.Name, pass.Lane.Process)
				}
			}
		}
	}
}

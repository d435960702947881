package exec

import (
	"fmt"
	"os"

	"gpt2scope/cuda"
	"gpt2scope/cuda/persistent"
	"gpt2scope/gpt2"
)

// Mode is how passes are launched.
type Mode uint8

// The modes.
const (
	Auto       Mode = iota // persistent where that is possible, else graph; eager when a profiler is attached
	Eager                  // step after step
	Graph                  // captured once and replayed
	Persistent             // as graph, and decode steps in one kernel
)

// String gives the name that the command line uses.
func (m Mode) String() string { return [...]string{"auto", "eager", "graph", "persistent"}[m] }

// captures reports whether passes are captured in graphs.
func (m Mode) captures() bool { return m == Graph || m == Persistent }

// ProfileEnv names the environment variable that, set to 1, keeps mode persistent under a profiler, which then sees its
// kernel as a whole.
const ProfileEnv = "GPT2SCOPE_PROFILE_PERSISTENT"

// choice is how a backend launches passes, or how one pass is launched.
type choice struct {
	mode        Mode
	why         string
	singleSteps bool // in mode eager: decode steps by the persistent kernel's steps, each launched alone
	instead     bool // of what the user asked for, who should know why
}

// passFacts is what decides about a pass of a session.
type passFacts struct {
	config   gpt2.Config
	layers   int
	pass     gpt2.Pass
	prompt   bool // it evaluates tokens that are given, also if there is one
	sampling gpt2.Sampling
	refused  string // why the persistent kernel cannot run the session's passes; "" if nothing is known against it
}

// chooseMode chooses how the backend launches passes (p is nil), or how it launches one pass.
func (b *Backend) chooseMode(p *passFacts) (choice, error) {
	o, tool, singleSteps := b.options, b.tool, b.options.Variants[variantDecode] == variantSteps
	other := len(o.Variants) > 0 && !singleSteps || len(o.Variants) > 1
	c := choice{mode: o.Mode, why: "as requested"}
	switch {
	case b.dtype == cuda.F32 && (o.Mode == Persistent || singleSteps):
		return c, fmt.Errorf("the persistent kernel takes weights in bf16 only: f32 is for exact results, and runs as " +
			"graphs (--mode graph, or --dtype bf16)")
	case o.KVQ8 && (o.Mode == Persistent || singleSteps):
		return c, fmt.Errorf("the persistent kernel reads keys and values in bf16 only: those in 8 bits (--kv q8) are for " +
			"graphs (--mode graph)")
	case singleSteps && o.Mode.captures():
		return c, fmt.Errorf("variant %s=%s has a kernel for each step, launched one by one: use mode eager with it, not %s",
			variantDecode, variantSteps, o.Mode)
	case singleSteps:
		c = choice{mode: Eager, why: "variant " + variantDecode + "=" + variantSteps +
			" has a kernel for each step of a decode step", singleSteps: true}
	case o.Mode == Eager || o.Mode == Graph:
	case o.Mode == Auto && tool != "":
		c = choice{mode: Eager, why: "a profiler is attached (" + tool + " is set); --mode graph overrides", instead: true}
	case o.Mode == Auto && b.dtype == cuda.F32:
		c = choice{mode: Graph, why: "weights are f32, and the persistent kernel takes bf16"}
	case o.Mode == Auto && o.KVQ8:
		c = choice{mode: Graph, why: "keys and values are in 8 bits, and the persistent kernel takes bf16"}
	case o.Recorder == RecorderCUPTI:
		c = choice{mode: Graph, why: "CUPTI records, and sees one kernel without steps; --recorder stamps sees them",
			instead: o.Mode == Persistent}
	case other:
		c = choice{mode: Graph, why: "kernels were chosen by --variant, and the persistent kernel is one for all steps",
			instead: o.Mode == Persistent}
	case o.Mode == Persistent && tool != "" && os.Getenv(ProfileEnv) != "1":
		c = choice{mode: Eager, singleSteps: true, instead: true,
			why: "a profiler is attached (" + tool + " is set), which sees a kernel for each step, with the results of mode " +
				"persistent; " + ProfileEnv + "=1 runs them in one kernel"}
	case o.Mode == Auto:
		c = choice{mode: Persistent, why: "decode steps in one kernel take the least time"}
	}
	if p == nil || c.mode != Persistent && !c.singleSteps {
		return c, nil
	}
	not := func(why string) (choice, error) { // the pass runs as those of mode graph, or eager
		if !c.singleSteps {
			c.mode = Graph
		}
		c.singleSteps, c.why, c.instead = false, why, why != ""
		return c, nil
	}
	measured := o.Mode == Auto && !c.singleSteps // only where it was measured to be faster
	switch {
	case p.prompt && (p.pass.Batch != 1 || p.pass.Tokens > cuda.PersistentRows || p.pass.Logits != gpt2.LogitsLast ||
		p.pass.Until != "" || !p.sampling.Basic()):
		return not("")
	case p.prompt && measured && persistent.SlowerPrompt(p.config.Channels, p.layers, p.pass.Tokens):
		return not("")
	case p.refused != "":
		return not(p.refused)
	}
	if why := persistent.Slower(p.config, b.held == cuda.Q8, p.layers, p.pass.Batch, p.sampling); measured && why != "" {
		return not(why)
	}
	return c, nil
}

// Mode returns how passes are launched, and why so. It is Auto as long as it depends on the session: until decode steps
// run, or [Backend.Survey] has found out whether they can in one kernel.
func (b *Backend) Mode() (Mode, string) {
	if b.options.Mode != Auto || b.mode != Persistent {
		return b.mode, b.why
	}
	switch found := b.found.Load(); {
	case found == nil:
		return Auto, "decode steps in one kernel where that is possible"
	case *found != "":
		return Graph, *found
	}
	return Persistent, b.why
}

// say gives the notice of a choice that the user did not ask for.
func (b *Backend) say(asked Mode, c choice) {
	switch {
	case !c.instead:
	case asked == Auto:
		b.notice("mode eager: " + c.why)
	case c.singleSteps:
		b.notice("mode eager with --variant " + variantDecode + "=" + variantSteps + " in place of persistent: " + c.why)
	default:
		b.notice("mode graph in place of persistent: mode persistent cannot be used: " + c.why)
	}
}

// fallBack notes why decode steps do not run by the persistent kernel, and says it once. In mode auto that is no
// failure.
func (b *Backend) fallBack(why string) {
	how := "as CUDA graphs"
	switch {
	case b.singleSteps:
		how = "by the kernels of mode eager"
	case b.mode != Persistent:
		return
	case b.options.Mode == Auto:
		b.found.Store(&why)
		return
	}
	text := "decode steps run " + how + ": " + why
	b.fallback.Store(&text)
	if b.singleSteps {
		b.noticeOnce("decode steps run by the kernels of mode eager, since those of mode persistent cannot be used: " + why)
	} else {
		b.noticeOnce("mode persistent: decode steps run as CUDA graphs, since " + why)
	}
}

func (b *Backend) fellBack() string {
	if text := b.fallback.Load(); text != nil {
		return *text
	}
	return ""
}

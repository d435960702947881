package learn

import (
	"fmt"

	"gpt2scope/cuda"
)

var lesson18 = Lesson{
	Number: 18,
	Claim:  "thread divergence halves speed",
	GPU: &Experiment{Run: onGPU(runDivergence), Judge: judgeDivergence,
		Picture: bars("Time of branches, against one path", linear("factor"), 1, func(d Data) (factors []Figure) {
			for _, of := range []string{onePath, byWarp, byLane(2), byLane(4), byLane(8), byLane(16), byLane(32)} {
				factors = append(factors, figureOf(of, "x", ratios(d.values(of, "time_us"), d.values(onePath, "time_us"))))
			}
			return factors
		})},
	Why: `An SM issues one instruction for a whole warp. If the 32 lanes take different paths, the warp runs one path
after the other, with the other lanes switched off. So a warp pays for every path that any of its lanes takes, and a
long path costs the same whether one lane takes it or all. Warps that agree within themselves pay for one path,
whatever others do. A short branch has no jump: the compiler predicates it, each lane keeps one of two results, and
agreement makes no difference. Since Volta, lanes have program counters of their own, so diverged paths can
interleave, but still one path issues at a time. So do not count the branches in a source. Ask which lanes of one warp
disagree and how long their paths are, and order the work so that neighbours agree.`,
	GoOn: "infer trace kpi sample:steady --counters sample:counters",
}

// The cases of lesson 18.
const (
	onePath   = "one path"
	byWarp    = "2 paths, by warp"
	agreeing  = "short branch, lanes agree"
	differing = "short branch, lanes differ"
)

func byLane(paths int) string { return fmt.Sprintf("%d paths, by lane", paths) }

func runDivergence(g *gpu) {
	kernels := g.kernels("lesson18.cu", "paths", "predicated")
	const threads = 256
	blocks := 8 * g.Device.Info().Processors
	b := g.buffer(int64(4 * blocks * threads))
	rounds := int32(g.pick(2048, 2)) // long against a launch
	var ways []way
	add := func(of string, kernel *cuda.Function, arguments ...any) {
		arguments = append([]any{b, rounds}, arguments...)
		ways = append(ways, way{of: of, run: func() float64 {
			return g.timeUs(func() { g.launch(kernel, blocks, threads, arguments...) })
		}})
	}
	add(onePath, kernels[0], int32(0), int32(0))
	add(byWarp, kernels[0], int32(1), int32(5))
	for bits := range int32(5) {
		add(byLane(2<<bits), kernels[0], bits+1, int32(0))
	}
	add(agreeing, kernels[1], int32(0))
	add(differing, kernels[1], int32(1))
	g.inTurns(g.pick(21, 7), ways...)
}

func judgeDivergence(d Data) Finding {
	factor := func(name, of, base string) Figure {
		return figureOf(name, "x", ratios(d.values(of, "time_us"), d.values(base, "time_us")))
	}
	f := Finding{Figures: []Figure{
		factor("2 paths within a warp, over 1 path", byLane(2), onePath),
		factor("32 paths within a warp, over 1 path", byLane(32), onePath),
		factor("2 paths, each of whole warps, over 1 path", byWarp, onePath),
		factor("short branch, lanes differ over lanes agree", differing, agreeing),
	}}
	f.Text = fmt.Sprintf("The factor in time is %s for two paths within a warp, %s for 32, and %s for two paths that "+
		"whole warps take.", f.Figures[0].Short(), f.Figures[1].Short(), f.Figures[2].Short())
	refuted, unclear, halves := false, false, false
	for _, x := range f.Figures {
		low, high := x.interval()
		refuted, unclear = refuted || high < 1.8 || low > 2.2, unclear || low < 1.8 || high > 2.2
		halves = halves || low >= 1.8 && high <= 2.2
	}
	return f.decide(
		rule{HalfTrue, refuted && halves, "Half true: two paths within a warp halve the speed. Otherwise divergence costs nothing, or " +
			"nearly all of it."},
		rule{Refuted, refuted, "So divergence does not halve the speed: it can cost nothing, half or nearly all of it."},
		rule{Shown, !unclear, ""})
}

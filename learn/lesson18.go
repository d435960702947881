package learn

import (
	"context"
	_ "embed"
	"fmt"

	"gpt2scope/cuda"
	"gpt2scope/internal/chart"
)

//go:embed lesson18.cu
var divergenceSource string

var lesson18 = Lesson{
	Number: 18,
	Claim:  "thread divergence halves speed",
	GPU: &Experiment{Run: onGPU(runDivergence), Judge: judgeDivergence, Picture: drawDivergence,
		Sources: []Source{{"lesson18.cu", divergenceSource}}},
	Why: `An SM issues one instruction for a whole warp. If the 32 lanes take different paths, the warp runs one path
after the other, with the other lanes switched off. So a warp pays for every path that any of its lanes takes, and a
long path costs the same whether one lane takes it or all. Warps that agree within themselves pay for one path,
whatever others do. A short branch has no jump: the compiler predicates it, each lane keeps one of two results, and
agreement makes no difference. Since Volta, lanes have program counters of their own, so diverged paths can
interleave, but still one path issues at a time. So do not count the branches in a source. Ask which lanes of one warp
disagree and how long their paths are, and order the work so that neighbours agree.`,
	GoOn: "ncu --metrics smsp__thread_inst_executed_per_inst_executed.ratio infer -p ROMEO: -n 2 --device cuda",
}

// The cases of lesson 18.
const (
	onePath   = "one path"
	byWarp    = "2 paths, by warp"
	byLane    = "%d paths, by lane"
	agreeing  = "short branch, lanes agree"
	differing = "short branch, lanes differ"
	allBrief  = "all lanes brief"
	oneLong   = "one lane of 32 long"
	allLong   = "all lanes long"
)

var divergenceCases = []string{onePath, byWarp, fmt.Sprintf(byLane, 2), fmt.Sprintf(byLane, 4), fmt.Sprintf(byLane, 8), fmt.Sprintf(byLane, 16),
	fmt.Sprintf(byLane, 32), agreeing, differing, allBrief, oneLong, allLong}

func runDivergence(ctx context.Context, e *Env, g *gpu) (d Data, err error) {
	kernels := g.kernels(Source{"lesson18.cu", divergenceSource}, "paths", "predicated", "one_long")
	const threads = 256
	blocks := 8 * g.Device.Info().Processors
	b := g.buffers(1, int64(4*blocks*threads))
	if g.err != nil {
		return nil, g.err
	}
	long, brief := int32(e.pick(2048, 2)), int32(e.pick(128, 1)) // long against a launch
	launches := map[string]struct {
		kernel    *cuda.Function
		arguments []any
	}{
		onePath:   {kernels[0], []any{b[0], long, int32(0), int32(0)}},
		byWarp:    {kernels[0], []any{b[0], long, int32(1), int32(5)}},
		agreeing:  {kernels[1], []any{b[0], long, int32(0)}},
		differing: {kernels[1], []any{b[0], long, int32(1)}},
		allBrief:  {kernels[2], []any{b[0], brief, brief, int32(1)}},
		oneLong:   {kernels[2], []any{b[0], brief, long, int32(0)}},
		allLong:   {kernels[2], []any{b[0], brief, long, int32(1)}},
	}
	for bits := range int32(5) {
		l := launches[onePath]
		l.arguments = []any{b[0], long, bits + 1, int32(0)}
		launches[fmt.Sprintf(byLane, 2<<bits)] = l
	}
	err = inTurns(ctx, &d, divergenceCases, e.pick(21, 7), func(i int) (float64, error) {
		l := launches[divergenceCases[i]]
		return g.timeUs(func() error { return l.kernel.Launch(g.Stream, line(blocks, threads), l.arguments...) })
	})
	return d, err
}

func judgeDivergence(d Data) Finding {
	factor := func(name, of, base string) Figure {
		return figureOf(name, "x", ratios(d.values(of, "time_us"), d.values(base, "time_us")))
	}
	two, most := factor("2 paths within a warp, over 1 path", fmt.Sprintf(byLane, 2), onePath), factor("32 paths within a warp, over 1 path", fmt.Sprintf(byLane, 32), onePath)
	warps := factor("2 paths, each of whole warps, over 1 path", byWarp, onePath)
	short := factor("short branch, lanes differ over lanes agree", differing, agreeing)
	one, all := factor("1 lane of 32 has long work, over none", oneLong, allBrief), factor("all lanes have long work, over none", allLong, allBrief)
	f := Finding{Figures: []Figure{two, most, warps, short, one, all}, Text: fmt.Sprintf(
		"The factor in time is %s for two paths within a warp, %s for 32, and %s for two paths that whole warps take.", two.Short(), most.Short(), warps.Short())}
	f.Verdict = Shown
	for _, x := range f.Figures[:4] { // the others depend on how long is long
		low, high := x.interval()
		switch {
		case high < 1.8 || low > 2.2:
			f.Verdict = Refuted
			f.Text += " So divergence does not halve the speed: it can cost nothing, half or nearly all of it."
			return f
		case low < 1.8 || high > 2.2:
			f.Verdict = Unknown
		}
	}
	return f
}

func drawDivergence(d Data) chart.Picture {
	var figures []Figure
	for _, of := range divergenceCases[:7] {
		figures = append(figures, figureOf(of, "x", ratios(d.values(of, "time_us"), d.values(onePath, "time_us"))))
	}
	return bars("Time of branches, against one path", linear("factor"), 1, figures...)
}

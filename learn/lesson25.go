package learn

import (
	"fmt"
	"math"

	"gpt2scope/traces/tables"
)

var lesson25 = Lesson{
	Number: 25,
	Claim:  "the sum of the kernel times in a profile is the time of a step",
	CPU:    &Experiment{Of: "From two recordings of GPT-2 in the program, sample:gpt2-eager and sample:gpt2-graph", Run: stepsOf, Judge: judgeKernelSums},
	Why: `Kernels that are launched one by one have gaps between them: each starts about a microsecond after the one
before has ended, and later where the host is late. So the sum is less than the step. In a CUDA
graph, kernels may start before the one ahead has ended (programmatic dependent launch): they load weights and then
wait. CUDA records that wait as their duration, kernels overlap, and the sum is more than the step. Under ncu each
kernel runs alone, with cold caches, which is a third number. So measure a step from its first kernel to the last one,
or by a clock around many steps without a profiler, and use kernel times only for shares of one recording in which
kernels do not overlap. 'time' in infer trace show counts each nanosecond once.`,
	GoOn: "infer trace show sample:gpt2-graph --by phase",
}

func stepsOf(l *lab) {
	for _, mode := range captureModes {
		for _, r := range must(tables.Summarize(l.sample("gpt2-"+mode), tables.ByPhase, -1)).Rows {
			switch {
			case r.Kind == tables.RowWork && r.Name == "decode step":
				l.add(mode, "steps", 0, float64(r.Calls))
				l.add(mode, "kernels_us", 0, float64(r.Busy)/1e3)
				l.add(mode, "wall_us", 0, float64(r.Exclusive)/1e3)
			case r.Phase == "decode step":
				l.add(mode, "wall_us", 0, float64(r.Exclusive)/1e3)
			}
		}
	}
}

// A sum of kernel times within sumsAgree of the time of the step, as a share, is that time.
const sumsAgree = 0.05

func judgeKernelSums(d Data) Finding {
	var f Finding
	far, near := false, true
	for _, mode := range captureModes {
		steps, kernels, wall := total(d.values(mode, "steps")), total(d.values(mode, "kernels_us")), total(d.values(mode, "wall_us"))
		if !(steps > 0 && wall > 0) {
			return undecided("There is no step of mode " + mode + ".")
		}
		r := exact(mode+": kernels over the step", "x", kernels/wall)
		f.Figures = append(f.Figures, exact(mode+": kernels of a decode step, summed", "us", kernels/steps),
			exact(mode+": time of a decode step", "us", wall/steps), r)
		off := math.Abs(r.Value - 1)
		far, near = far || off > 2*sumsAgree, near && off <= sumsAgree
	}
	f.Text = fmt.Sprintf("Launched one by one, kernels take %s the time of the step; in a CUDA graph, %s.",
		f.Figures[2].Short(), f.Figures[5].Short())
	return f.decide(rule{Refuted, far, "So the sum is not the time of a step, nor an upper or a lower bound of it."},
		rule{Shown, near, ""})
}

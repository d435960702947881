package learn

import (
	"context"
	"fmt"

	"gpt2scope/internal/chart"
)

var lesson10 = Lesson{
	Number: 10,
	Claim:  "a synchronisation is needed so that the CPU does not run ahead of the GPU",
	GPU: &Experiment{Run: onGPU(queueOnGPU), Judge: judgeQueue,
		Picture: curves("How long each launch takes", linear("launch"), log("time of the launch (us)"),
			func(d Data) (first []chart.Series) {
				if rounds := d.rounds("launches"); len(rounds) > 0 {
					first = medians("time_us", "launch")(rounds[0])
				}
				return first
			})},
	Why: `Launches go into a queue of the driver, which has a fixed number of places. While there is room, a launch
takes microseconds and the CPU runs ahead. When the queue is full, the launch itself waits until the GPU has finished
a kernel. So the CPU can never be further ahead than the queue is long, and needs no call for that. Running ahead is
what you want: the GPU always finds its next kernel and never idles between two. A synchronisation empties the queue,
and the GPU then waits for the next launch. It is needed where the host reads a result, reuses memory that a copy
still reads, or stops a timer; not for order, which the stream keeps. In a timeline, a launch that suddenly takes as
long as a kernel is not slow: the queue is full.`,
	GoOn: "infer trace advise sample:gpt2-eager",
}

func queueOnGPU(g *gpu) {
	spin := g.spin()
	const length = 100
	launches := g.pick(2000, 50)
	spin(length)
	g.wait()
	for range 7 {
		check(context.Cause(g.ctx))
		const several = 20 // of one alone, events also time the wait for its launch
		kernel := g.timeUs(func() {
			for range several {
				spin(length)
			}
		}) / several
		took := make([]float64, launches)
		for i := range took {
			took[i] = timed(func() { spin(length) })
		}
		g.wait()
		g.add("kernel", "time_us", 0, kernel)
		g.add("round", "launches", 0, float64(launches))
		// All launches would be many: of those that lasted less than a quarter of the kernel, one in fifty is kept.
		for i, t := range took {
			if i%50 == 0 || t > kernel/4 {
				g.add("launch", "time_us", float64(i+1), t)
			}
		}
	}
}

// rounds splits data at the points of a quantity.
func (d Data) rounds(quantity string) (rounds []Data) {
	for i, p := range d {
		if p.Quantity == quantity {
			rounds = append(rounds, d[i:i])
		}
		if n := len(rounds); n > 0 {
			rounds[n-1] = rounds[n-1][:len(rounds[n-1])+1]
		}
	}
	return rounds
}

// launchesAhead returns how many launches of a round were made before the first of five in a row that took longer than
// a limit: a single one is a thread that the operating system held up. It returns 0 if there are no such five.
func launchesAhead(round Data, limit float64) float64 {
	first, last := 0.0, -1.0
	for _, p := range round {
		switch {
		case p.Case != "launch" || p.Value < limit:
			continue
		case p.X != last+1:
			first = p.X
		}
		if last = p.X; last == first+4 {
			return first - 1
		}
	}
	return 0
}

func judgeQueue(d Data) Finding {
	kernel := figureOf("time of a kernel", "us", d.values("kernel", "time_us"))
	var depths, free, blocked []float64
	rounds := d.rounds("launches")
	for _, round := range rounds {
		depth := launchesAhead(round, kernel.Value/2)
		if depth > 0 {
			depths = append(depths, depth)
		}
		for _, p := range round {
			switch {
			case p.Case != "launch" || p.X == 1:
			case depth > 0 && p.X > depth:
				blocked = append(blocked, p.Value)
			default:
				free = append(free, p.Value)
			}
		}
	}
	quick := figureOf("time of a launch, room in the queue", "us", free)
	f := Finding{Figures: []Figure{kernel, quick}}
	depth := figureOf("launches until one waits for room", "", depths)
	if len(depths) == len(rounds) {
		f.Figures = append(f.Figures, depth, figureOf("time of a launch, queue full", "us", blocked))
	}
	return f.decide(
		rule{Unknown, kernel.Value < 10 || !(kernel.Value >= 4*quick.Value), fmt.Sprintf("A kernel takes %s and a launch "+
			"%s: the GPU keeps up with the CPU, so the queue never fills.", kernel.Short(), quick.Short())},
		rule{Unknown, len(rounds) == 0 || len(depths) > 0 && len(depths) < len(rounds),
			"The launches waited in some rounds only."},
		rule{Shown, len(depths) == 0, fmt.Sprintf("None of %s launches in a row waited: the CPU ran ahead of all of them.",
			count(median(d.values("round", "launches"))))},
		rule{Refuted, true, fmt.Sprintf("The CPU runs %s launches ahead. From there on each launch takes about as long as a "+
			"kernel, although nothing was synchronised: the launch itself waits for room in the queue.", depth.Short())})
}

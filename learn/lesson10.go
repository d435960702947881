package learn

import (
	"context"
	"errors"
	"fmt"
	"time"

	"gpt2scope/internal/chart"
)

var lesson10 = Lesson{
	Number: 10,
	Claim:  "a synchronisation is needed so that the CPU does not run ahead of the GPU",
	GPU:    &Experiment{Run: onGPU(queueOnGPU), Judge: judgeQueue, Picture: drawQueue, Sources: []Source{spinSource}},
	Why: `Launches go into a queue of the driver, which has a fixed number of places. While there is room, a launch
takes microseconds and the CPU runs ahead. When the queue is full, the launch itself waits until the GPU has finished
a kernel. So the CPU can never be further ahead than the queue is long, and needs no call for that. Running ahead is
what you want: the GPU always finds its next kernel and never idles between two. A synchronisation empties the queue,
and the GPU then waits for the next launch. It is needed where the host reads a result, reuses memory that a copy
still reads, or stops a timer; not for order, which the stream keeps. In a timeline, a launch that suddenly takes as
long as a kernel is not slow: the queue is full.`,
	GoOn: "infer trace advise traces/samples/gpt2-L12-eager-cupti.json.gz",
}

func queueOnGPU(ctx context.Context, e *Env, g *gpu) (d Data, err error) {
	spin := g.spin()
	if g.err != nil {
		return nil, g.err
	}
	const length = 100
	launches := e.pick(2000, 50)
	if err := errors.Join(spin(length), g.Stream.Synchronize()); err != nil {
		return nil, err
	}
	for range e.pick(7, 7) {
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
		const several = 20 // of one alone, events also time the wait for its launch
		kernel, err := g.timeUs(func() (err error) {
			for range several {
				err = errors.Join(err, spin(length))
			}
			return err
		})
		if err != nil {
			return nil, err
		}
		kernel /= several
		d.add("kernel", "time_us", 0, kernel)
		took := make([]time.Duration, launches)
		for i := range took {
			start := time.Now()
			if err := spin(length); err != nil {
				return nil, err
			}
			took[i] = time.Since(start)
		}
		if err := g.Stream.Synchronize(); err != nil {
			return nil, err
		}
		// All launches of each round would be many: of those that lasted less than a quarter of the kernel, one in
		// fifty.
		d.add("round", "launches", 0, float64(launches))
		for i, t := range took {
			if i%50 == 0 || us(t) > kernel/4 {
				d.add("launch", "time_us", float64(i+1), us(t))
			}
		}
	}
	return d, nil
}

// rounds splits data at the points of a quantity.
func (d Data) rounds(quantity string) (rounds []Data) {
	from := -1
	for i, p := range d {
		if p.Quantity == quantity {
			if from >= 0 {
				rounds = append(rounds, d[from:i])
			}
			from = i
		}
	}
	if from >= 0 {
		rounds = append(rounds, d[from:])
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
	most := median(d.values("round", "launches"))
	switch {
	case kernel.Value < 10 || !(kernel.Value >= 4*quick.Value):
		return undecided(fmt.Sprintf("A kernel takes %s and a launch %s: the GPU keeps up with the CPU, so the queue never fills.", kernel.Short(), quick.Short()), f.Figures...)
	case len(rounds) == 0 || len(depths) > 0 && len(depths) < len(rounds):
		return undecided("The launches waited in some rounds only.", f.Figures...)
	case len(depths) == 0:
		f.Verdict = Shown
		f.Text = fmt.Sprintf("None of %s launches in a row waited: the CPU ran ahead of all of them.", count(most))
	default:
		depth := figureOf("launches until one waits for room", "", depths)
		wait := figureOf("time of a launch, queue full", "us", blocked)
		f.Verdict = Refuted
		f.Figures = append(f.Figures, depth, wait)
		f.Text = fmt.Sprintf("The CPU runs %s launches ahead. From there on each launch takes about as long as a kernel, although nothing was synchronised: the launch itself waits for room in the queue.", depth.Short())
	}
	return f
}

func drawQueue(d Data) chart.Picture {
	var first Data
	if rounds := d.rounds("launches"); len(rounds) > 0 {
		first = rounds[0]
	}
	return curves("How long each launch takes", linear("launch"), log("time of the launch (us)"), first.medians("time_us", "launch")...)
}

package learn

import "fmt"

var lesson05 = Lesson{
	Number: 5,
	Claim:  "Python's timer, or any timer of the host, cannot time a kernel, because CUDA is asynchronous",
	GPU: &Experiment{Run: onGPU(timersOnGPU), Judge: judgeTimers,
		Picture: curves("Three timers of one kernel", log("length that the kernel was asked to take (us)"),
			log("measured time (us)"), medians("time_us"))},
	Why: `The premise is right, the conclusion is not. A launch puts the kernel into a queue and returns; a timer
stopped then has measured the launch, however long the kernel runs. But the host can wait: synchronise, start the
timer, launch, synchronise, stop. That is the kernel's time plus some microseconds for launch and wake-up, which
vanish in a millisecond and dominate in ten microseconds. Events are timestamps that the GPU writes in the order of
the stream, so the way back to the host is not in them. Around one short kernel they help little: on an idle GPU the
first stamp is written at once, and the wait for the launch is counted too. Queue many launches between two events and
divide. And synchronise only around what you measure: each wait empties the queue.`,
	GoOn: "infer trace kpi sample:eager",
}

const (
	noWait = "host timer, no wait"
	waited = "host timer, synchronised"
	events = "events"
)

func timersOnGPU(g *gpu) {
	spin := g.spin()
	var ways []way
	for _, length := range []float64{10, 100, 1000, 10000} {
		length := min(length, float64(g.pick(10000, 100)))
		ways = append(ways,
			way{of: noWait, x: length, run: func() float64 {
				t := timed(func() { spin(length) })
				g.wait()
				return t
			}},
			way{of: waited, x: length, run: func() float64 {
				return timed(func() {
					spin(length)
					g.wait()
				})
			}},
			way{of: events, x: length, run: func() float64 { return g.timeUs(func() { spin(length) }) }})
	}
	g.inTurns(g.pick(15, 7), ways...)
}

// timersSame is how far two timers may differ, in percent of the time by events.
const timersSame = 2

func judgeTimers(d Data) Finding {
	lengths := d.xs(events, "time_us")
	if len(lengths) < 2 {
		return undecided("Kernels of one length only were timed.")
	}
	short, long := lengths[0], lengths[len(lengths)-1]
	of := func(name string, x float64) Figure {
		return figureOf(exact("", "us", x).Short()+" kernel: "+name, "us", d.at(name, "time_us", x))
	}
	a, b, c := of(noWait, long), of(waited, long), of(events, long)
	off := figureOf("the host timer that waits, over events", "%",
		changes(d.at(events, "time_us", long), d.at(waited, "time_us", long)))
	f := Finding{Figures: []Figure{c, b, off, a, of(events, short), of(waited, short)}}
	f.Text = fmt.Sprintf("Without a wait, the host's timer measures the launch alone, %s.", a.Short())
	low, high := off.interval()
	return f.decide(
		rule{Unknown, c.Value < 1000, "The kernels were too short to tell."},
		rule{HalfTrue, low >= -timersSame && high <= timersSame, fmt.Sprintf("Half true: CUDA is asynchronous, but if the "+
			"timer waits for a long kernel, it agrees with events within %d %%: the host can time a kernel.", timersSame)},
		rule{Shown, low > timersSame || high < -timersSame,
			fmt.Sprintf("If it waits, it still differs from events by more than %d %%.", timersSame)},
		rule{Unknown, true, "The interval is too wide to tell: other work disturbed the host."})
}

package learn

import (
	"context"
	"errors"
	"fmt"
	"time"
)

var lesson05 = Lesson{
	Number: 5,
	Claim:  "Python's timer, or any timer of the host, cannot time a kernel: CUDA is asynchronous",
	GPU:    &Experiment{Run: timersOnGPU, Judge: judgeTimers, Picture: drawTimers, Sources: []Source{spinSource}},
	Why: `The premise is right, the conclusion is not. A launch only queues the kernel and returns, so a timer that is stopped then has measured the launch,
whatever the kernel does: the times look wonderful and say nothing. But the host can wait. Synchronise, start the timer, launch, synchronise,
stop: that time is the kernel's, plus a few microseconds for launch and wake-up. For kernels of a millisecond that vanishes;
for one of ten it does not. Events are stamps that the GPU takes in the order of the stream, so they leave out the way back to the host. But they
do not help a short kernel alone: the idle GPU stamps at once, then waits for the launch. Time many launches between two events and divide. And synchronise only around what you measure: in a program, each wait empties the queue.`,
	GoOn: "infer trace show traces/samples/eager.sqlite --by launch",
}

const (
	noWait = "host timer, no wait"
	waited = "host timer, synchronised"
	events = "events"
)

func timersOnGPU(ctx context.Context, e *Env) (d Data, err error) {
	g, err := e.gpu()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, g.close()) }()
	spin, err := g.spin()
	if err != nil {
		return nil, err
	}
	if err := errors.Join(spin(100), g.Stream.Synchronize()); err != nil {
		return nil, err
	}
	for range e.pick(15, 7) {
		for _, length := range []float64{10, 100, 1000, 10000} {
			if err := context.Cause(ctx); err != nil {
				return nil, err
			}
			length := min(length, float64(e.pick(10000, 100)))
			start := time.Now()
			err := spin(length)
			returned := time.Since(start)
			if err = errors.Join(err, g.Stream.Synchronize()); err != nil {
				return nil, err
			}
			start = time.Now()
			err = errors.Join(spin(length), g.Stream.Synchronize())
			whole := time.Since(start)
			if err != nil {
				return nil, err
			}
			device, err := g.timeUs(func() error { return spin(length) })
			if err != nil {
				return nil, err
			}
			d.add(noWait, "time_us", length, us(returned))
			d.add(waited, "time_us", length, us(whole))
			d.add(events, "time_us", length, device)
		}
	}
	return d, nil
}

// timersSame is how far two timers may differ, in percent of the time by events.
const timersSame = 2

func judgeTimers(d Data) Finding {
	lengths := d.xs(events, "time_us")
	if len(lengths) < 2 {
		return undecided("Kernels of one length only were timed.")
	}
	short, long := lengths[0], lengths[len(lengths)-1]
	of := func(name string, x float64) Figure { return figureOf(name, "us", d.at(name, "time_us", x)) }
	a, b, c := of(noWait, long), of(waited, long), of(events, long)
	off := figureOf("synchronised against events", "%", each(d.at(waited, "time_us", long), d.at(events, "time_us", long), func(w, e float64) float64 { return 100 * (w/e - 1) }))
	sb, sc := of(waited, short), of(events, short)
	f := Finding{Figures: []Figure{a, b, c, off}}
	f.Text = fmt.Sprintf("The longest kernel takes %s by events. A host timer that waits gives %s: %s %% more [%s, %s]. One that does not wait gives %s, which is the launch. Of a kernel that was asked to take %s, events give %s and the host timer that waits %s.",
		c, b, number(off.Value), number(deref(off.Low)), number(deref(off.High)), a, exact("", "us", short).Short(), sc.Short(), sb.Short())
	low, high := off.interval()
	switch {
	case c.Value < 1000:
		f.Verdict = Unknown
		f.Text += " The kernels were too short to tell."
	case low >= -timersSame && high <= timersSame:
		f.Verdict = Refuted
		f.Text += fmt.Sprintf(" They agree within %d %%: the host can time a kernel if it waits.", timersSame)
	case low > timersSame || high < -timersSame:
		f.Verdict = Shown
		f.Text += fmt.Sprintf(" They differ by more than %d %%, even though the host waited.", timersSame)
	default:
		f.Verdict = Unknown
		f.Text += " The interval is too wide to tell: other work disturbed the host."
	}
	return f
}

func deref(x *float64) float64 {
	if x == nil {
		return 0
	}
	return *x
}

func drawTimers(d Data) *Picture {
	p := &Picture{Title: "Three timers of one kernel", X: Axis{"length that the kernel was asked to take (us)", true}, Y: Axis{"measured time (us)", true}}
	for _, timer := range []string{noWait, waited, events} {
		p.Lines = append(p.Lines, lineOf(d, timer, "time_us"))
	}
	return p
}

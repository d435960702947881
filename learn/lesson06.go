package learn

// #cgo CFLAGS: -O3
// #cgo LDFLAGS: -lm
// #include "lesson06.h"
import "C"

import (
	"context"
	_ "embed"
	"fmt"
	"math/rand/v2"
	"time"
	"unsafe"

	"gpt2scope/internal/chart"
)

//go:embed lesson06.cu
var squaresSource string

var lesson06 = Lesson{
	Number: 6,
	Claim:  "a * a (3.333 ms) is faster than square(a) (3.331 ms) and a ** 2 (3.339 ms) because mul is optimised more",
	CPU:    &Experiment{Run: squaresOnCPU, Judge: judgeSquares, Picture: drawSquares},
	GPU:    &Experiment{Run: onGPU(squaresOnGPU), Judge: judgeSquares, Picture: drawSquares, Sources: []Source{{"lesson06.cu", squaresSource}}},
	Why: `A table of three single times compares noise. Each way reads every number once, writes it once and makes one
multiplication: the compiler, or PyTorch for the exponent 2, turns all three into the same one. It is hidden behind
the wait for memory: -a, which multiplies nothing, takes as long. So the bytes explain the time, and the name of the
operation does not. To compare two ways, run them in turns on one machine and look at the interval of the difference.
If it holds 0, there is no evidence of a difference. If it does not, its size says whether the difference matters: a
quarter of a percent does not. What helps is to move fewer bytes: fuse the square with the operation before or after
it.`,
	GoOn: "infer bench -m random:gpt2",
}

// The ways to square; the last moves the same bytes and computes nothing.
var squares = []string{"a * a", "square(a)", "a ** 2", "-a"}

// inTurns measures ways in random order, in so many rounds after one for warm-up.
func inTurns(ctx context.Context, d *Data, ways []string, rounds int, measure func(i int) (float64, error)) error {
	random := rand.New(rand.NewPCG(6, 6))
	for round := range rounds + 1 {
		times := make([]float64, len(ways))
		for _, i := range random.Perm(len(ways)) {
			if err := context.Cause(ctx); err != nil {
				return err
			}
			t, err := measure(i)
			if err != nil {
				return err
			}
			times[i] = t
		}
		for i, t := range times {
			if round > 0 {
				d.add(ways[i], "time_us", 0, t)
			}
		}
	}
	return nil
}

func squaresOnCPU(ctx context.Context, e *Env) (d Data, err error) {
	n := e.pick(1<<24, 1<<12) // 64 MiB each: more than caches hold
	x, y := make([]float32, n), make([]float32, n)
	for i := range x {
		x[i], y[i] = float32(i%1000)/500, 1
	}
	// Each call works on the next of 16 slices, so that it is short: other work interrupts few of many calls, which
	// hardly moves a median, and a round is over before that work changes.
	const slices = 16
	calls := 0
	d.add("all", "bytes", 0, float64(8*n/slices))
	err = inTurns(ctx, &d, squares, e.pick(401, 9), func(i int) (float64, error) {
		at := calls % slices * (n / slices)
		calls++
		to, from, n := (*C.float)(unsafe.Pointer(&y[at])), (*C.float)(unsafe.Pointer(&x[at])), n/slices
		start := time.Now()
		switch i {
		case 0:
			C.learn_multiply(to, from, C.long(n))
		case 1:
			C.learn_square(to, from, C.long(n))
		case 2:
			C.learn_power(to, from, C.long(n))
		case 3:
			C.learn_negate(to, from, C.long(n))
		}
		return us(time.Since(start)), nil
	})
	return d, err
}

func squaresOnGPU(ctx context.Context, e *Env, g *gpu) (d Data, err error) {
	kernels := g.kernels(Source{"lesson06.cu", squaresSource}, "multiply", "square", "power", "negate")
	n := g.elements(e.pick(1<<28, 1<<12), 8)
	b := g.buffers(2, 4*int64(n))
	if g.err != nil {
		return nil, g.err
	}
	shape := line(g.Device.Info().Processors*16, 256)
	d.add("all", "bytes", 0, float64(8*n))
	err = inTurns(ctx, &d, squares, e.pick(41, 9), func(i int) (float64, error) {
		arguments := []any{b[0], b[1], int64(n)}
		if i == 2 {
			arguments = append(arguments, float32(2))
		}
		return g.timeUs(func() error { return kernels[i].Launch(g.Stream, shape, arguments...) })
	})
	return d, err
}

// In percent: a smaller difference is none that matters, and an interval that reaches further does not tell.
const squaresSame, squaresWide = 1, 5

func judgeSquares(d Data) Finding {
	base := d.values(squares[0], "time_us")
	var f Finding
	for i, way := range squares {
		name := way
		if i == 3 {
			name += ": as many bytes, no product"
		}
		f.Figures = append(f.Figures, figureOf(name, "us", d.values(way, "time_us")))
	}
	faster, notFaster := true, false // than both; than one of them
	for _, way := range squares[1:3] {
		change := each(base, d.values(way, "time_us"), func(a, b float64) float64 { return 100 * (b/a - 1) })
		figure := figureOf(way+" against a * a", "%", change)
		f.Figures = append(f.Figures, figure)
		if figure.Low == nil {
			return undecided("There are too few rounds for an interval.", f.Figures...)
		}
		low, high := figure.interval()
		faster = faster && low > squaresSame
		notFaster = notFaster || high < squaresSame || low <= 0 && high < squaresWide
	}
	times, changes := f.Figures[:4], f.Figures[4:]
	switch {
	case faster:
		f.Verdict = Shown
		f.Text = fmt.Sprintf("a * a is faster than both others by more than %d %%.", squaresSame)
	case notFaster:
		f.Verdict = Refuted
		if holdsZero(changes[0]) && holdsZero(changes[1]) {
			f.Text = "The intervals of both differences hold 0: nothing says that a * a is faster."
		} else {
			f.Text = fmt.Sprintf("a * a is not faster than both others by more than %d %%.", squaresSame)
		}
	default:
		f.Verdict = Unknown
		f.Text = "The intervals are too wide to tell: other work disturbed the measurement."
	}
	if bytes := d.values("all", "bytes"); len(bytes) > 0 && times[0].Value > 0 {
		rate := exact("a * a, bytes read and written", "GB/s", bytes[0]/times[0].Value/1e3)
		f.Figures = append(f.Figures, rate)
		f.Text += fmt.Sprintf(" Each way moves %s bytes.", count(bytes[0]))
	}
	return f
}

// holdsZero tells whether the interval of a figure does.
func holdsZero(f Figure) bool {
	low, high := f.interval()
	return low <= 0 && high >= 0
}

func drawSquares(d Data) chart.Picture {
	var figures []Figure
	for _, way := range squares {
		figures = append(figures, figureOf(way, "us", d.values(way, "time_us")))
	}
	return bars("Three ways to square, and a change of sign", linear("time (ms)"), 1e3, figures...)
}

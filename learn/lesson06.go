package learn

// #cgo CFLAGS: -O3
// #cgo LDFLAGS: -lm
// #include "lessons.h"
import "C"

import (
	"fmt"
	"unsafe"
)

var lesson06 = Lesson{
	Number: 6,
	Claim:  "a * a (3.333 ms) is faster than square(a) (3.331 ms) and a ** 2 (3.339 ms) because mul is optimised more",
	CPU:    &Experiment{Run: squaresOnCPU, Judge: judgeSquares, Picture: drawSquares},
	GPU:    &Experiment{Run: onGPU(squaresOnGPU), Judge: judgeSquares, Picture: drawSquares},
	Why: `In the claim's own table 3.333 is more than 3.331, and three single times compare noise. Each way reads every
number once, writes it once and makes one multiplication: the compiler, or PyTorch for the exponent 2, turns all three
into the same one. It is hidden behind the wait for memory: -a, which multiplies nothing, takes as long. So the bytes
explain the time, and the name of the operation does not. To compare two ways, run them in turns on one machine and
look at the interval of the difference. If it holds 0, there is no evidence of a difference. If it does not, its size
says whether the difference matters: a quarter of a percent does not. What helps is to move fewer bytes: fuse the
square with the operation before or after it.`,
	GoOn: "infer bench -m random:gpt2",
}

var drawSquares = bars("Three ways to square, and a change of sign", linear("time (ms)"), 1e3, found(judgeSquares, "us"))

// The ways to square; the last moves the same bytes and computes nothing.
var squares = []string{"a * a", "square(a)", "a ** 2", "-a"}

func squaresOnCPU(l *lab) {
	n := l.pick(1<<24, 1<<12) // 64 MiB each: more than caches hold
	x, y := make([]float32, n), make([]float32, n)
	for i := range x {
		x[i], y[i] = float32(i%1000)/500, 1
	}
	// Each call works on the next of 16 slices, so that it is short: other work interrupts few of many calls, which
	// hardly moves a median, and a round is over before that work changes.
	const slices = 16
	part := n / slices
	calls := 0
	l.add("all", "bytes", 0, float64(8*part))
	var ways []way
	for i, of := range squares {
		ways = append(ways, way{of: of, run: func() float64 {
			at := calls % slices * part
			calls++
			to, from := (*C.float)(unsafe.Pointer(&y[at])), (*C.float)(unsafe.Pointer(&x[at]))
			return timed(func() {
				switch i {
				case 0:
					C.learn_multiply(to, from, C.long(part))
				case 1:
					C.learn_square(to, from, C.long(part))
				case 2:
					C.learn_power(to, from, C.long(part))
				case 3:
					C.learn_negate(to, from, C.long(part))
				}
			})
		}})
	}
	l.inTurns(l.pick(401, 9), ways...)
}

func squaresOnGPU(g *gpu) {
	kernels := g.kernels("lesson06.cu", "multiply", "square", "power", "negate")
	n := g.elements(g.pick(1<<28, 1<<12), 8)
	x, y := g.buffer(4*int64(n)), g.buffer(4*int64(n))
	g.add("all", "bytes", 0, float64(8*n))
	var ways []way
	for i, of := range squares {
		arguments := []any{y, x, int64(n)}
		if i == 2 {
			arguments = append(arguments, float32(2))
		}
		ways = append(ways, way{of: of, run: func() float64 {
			return g.timeUs(func() { g.launch(kernels[i], g.Device.Info().Processors*16, 256, arguments...) })
		}})
	}
	g.inTurns(g.pick(41, 9), ways...)
}

// In percent: a smaller difference is none that matters, and an interval that reaches further does not tell.
const squaresSame, squaresWide = 1, 5

func judgeSquares(d Data) Finding {
	base := d.values(squares[0], "time_us")
	var f Finding
	for i, of := range squares {
		name := of
		if i == 3 {
			name += ": as many bytes, no product"
		}
		f.Figures = append(f.Figures, figureOf(name, "us", d.values(of, "time_us")))
	}
	faster, notFaster, holdZero := true, false, true // than both; than one of them; the intervals of both differences
	for _, of := range squares[1:3] {
		figure := figureOf(of+" against a * a", "%", changes(base, d.values(of, "time_us")))
		f.Figures = append(f.Figures, figure)
		if figure.Low == nil {
			return undecided("There are too few rounds for an interval.", f.Figures...)
		}
		low, high := figure.interval()
		faster = faster && low > squaresSame
		notFaster = notFaster || high < squaresSame || low <= 0 && high < squaresWide
		holdZero = holdZero && low <= 0 && high >= 0
	}
	f = f.decide(
		rule{Shown, faster, fmt.Sprintf("a * a is faster than both others by more than %d %%.", squaresSame)},
		rule{Refuted, notFaster && holdZero, "The intervals of both differences hold 0: nothing says that a * a is faster."},
		rule{Refuted, notFaster, fmt.Sprintf("a * a is not faster than both others by more than %d %%.", squaresSame)},
		rule{Unknown, true, "The intervals are too wide to tell: other work disturbed the measurement."})
	if bytes := d.values("all", "bytes"); len(bytes) > 0 && f.Figures[0].Value > 0 {
		f.Figures = append(f.Figures, exact("a * a, bytes read and written", "GB/s", bytes[0]/f.Figures[0].Value/1e3))
		f.Text += fmt.Sprintf(" Each way moves %s bytes.", count(bytes[0]))
	}
	return f
}

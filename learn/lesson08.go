package learn

// #include "lessons.h"
import "C"

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"time"
	"unsafe"

	"gpt2scope/cuda"
)

var lesson08 = Lesson{
	Number: 8,
	Claim:  "the first calls are slow: warm up before you measure",
	CPU:    &Experiment{Run: firstOnCPU, Judge: judgeFirst, Picture: drawFirst},
	GPU:    &Experiment{Run: firstOnGPU, Judge: judgeFirst, Picture: drawFirst},
	Why: `The first call does work that later calls find done. On a GPU: load the driver, make a context, compile or
load the module, allocate memory; the first launch of a kernel also loads its code, and the clocks may still be those
of an idle GPU. On a CPU, the operating system maps pages that are touched for the first time, and caches are cold.
None of this is the work that you want to time, and a mean never forgets it: one call of 1 s among 99 of 1 ms makes a
mean of 11 ms. So run a few times before the clock starts and report a median. But do look at the first calls, apart:
they are what a user of a short program waits for. Measure them in fresh processes, since a warm one cannot show them.`,
	GoOn:     `infer -p "ROMEO:" -n 32 --profile`,
	programs: map[string]func(*lab, []string){"first-on-cpu": firstCallsOnCPU, "first-on-gpu": firstCallsOnGPU},
}

var drawFirst = curves("Time of the n-th call of a fresh process", linear("call"), log("time (us)"), medians("time_us"))

// firstCalls is how many calls are measured in each process.
const firstCalls = 10

func firstOnCPU(l *lab) { l.fresh(l.pick(11, 2), "first-on-cpu", strconv.Itoa(l.pick(1<<24, 1<<14))) }

func firstOnGPU(l *lab) { l.fresh(l.pick(7, 2), "first-on-gpu", strconv.Itoa(l.Device.Info().Index)) }

// oneNumber is the only argument of a program.
func oneNumber(args []string) int {
	if len(args) != 1 {
		check(errors.New("expected one number"))
	}
	return must(strconv.Atoi(args[0]))
}

func firstCallsOnCPU(l *lab, args []string) {
	n := oneNumber(args)
	if n < 1 || n > 1<<26 {
		check(fmt.Errorf("expected a number of elements from 1 to %d", 1<<26))
	}
	var x, y []float32
	l.add("allocate", "spent_us", 0, timed(func() { x, y = make([]float32, n), make([]float32, n) }))
	for call := range firstCalls {
		l.add("call", "time_us", float64(call+1), timed(func() {
			C.learn_multiply((*C.float)(unsafe.Pointer(&y[0])), (*C.float)(unsafe.Pointer(&x[0])), C.long(n))
		}))
	}
}

func firstCallsOnGPU(l *lab, args []string) {
	index := oneNumber(args)
	last := time.Now()
	spent := func(what string) {
		l.add(what, "spent_us", 0, us(time.Since(last)))
		last = time.Now()
	}
	lib := must(cuda.Open())
	spent("open the library")
	dev := must(lib.Device(index))
	spent("find the GPU")
	l.withGPU(dev, func(g *gpu) {
		spent("make a context and a stream")
		clocked := g.kernels("lesson08.cu", "clocked")[0]
		spent("compile and load the module")
		b := must(g.Alloc(32 << 20))
		spent("allocate 32 MiB")
		for call := range firstCalls {
			l.add("call", "time_us", float64(call+1), timed(func() {
				g.launch(clocked, dev.Info().Processors, 256, b, int32(1<<23))
				g.wait()
			}))
			stamps := g.read(b, 16)
			cycles, ns := binary.LittleEndian.Uint64(stamps), binary.LittleEndian.Uint64(stamps[8:])
			if ns > 0 && cycles < 1<<40 && ns < 1<<40 {
				l.add("clock", "mhz", float64(call+1), 1e3*float64(cycles)/float64(ns))
			}
		}
	})
}

// firstSlow is how many times longer a first call takes that shows the claim.
const firstSlow = 1.5

func judgeFirst(d Data) Finding {
	first, second := d.at("call", "time_us", 1), d.at("call", "time_us", 2)
	var later []float64
	typical := make([]float64, len(first)) // of each process
	for process := range typical {
		var calls []float64
		for call := 4.0; call <= firstCalls; call++ {
			if times := d.at("call", "time_us", call); process < len(times) {
				calls = append(calls, times[process])
			}
		}
		typical[process] = median(calls)
		later = append(later, calls...)
	}
	factor := figureOf("first call over later calls", "x", ratios(first, typical))
	f := Finding{Figures: []Figure{
		figureOf("first call", "us", first),
		figureOf(fmt.Sprintf("calls 4 to %d", firstCalls), "us", later),
		factor,
		figureOf("second call over later calls", "x", ratios(second, typical)),
	}}
	f.Text = fmt.Sprintf("In each of %d fresh processes, the first call is compared with the later ones: it takes "+
		"%s their time.", len(first), factor.Short())
	for _, what := range d.cases("spent_us") {
		f.Figures = append(f.Figures, figureOf("before the first call: "+what, "us", d.values(what, "spent_us")))
	}
	if clocks := d.at("clock", "mhz", 1); len(clocks) > 0 {
		from := figureOf("clock of an SM in the first call", "MHz", clocks)
		to := figureOf("clock of an SM in the last call", "MHz", d.at("clock", "mhz", firstCalls))
		f.Figures = append(f.Figures, from, to)
		if from.Value >= 0.95*to.Value {
			f.Text += " The clock is not why: it is as high in the first call as in the last."
		} else {
			f.Text += fmt.Sprintf(" The clock is a part of it: it rises from %s to %s.", from.Short(), to.Short())
		}
	}
	low, high := factor.interval()
	return f.decide(
		rule{Shown, low >= firstSlow, ""},
		rule{Refuted, high < firstSlow, fmt.Sprintf("That is less than %gx: no call is slow for being first.", firstSlow)},
		rule{Unknown, true, fmt.Sprintf("The interval holds %gx, so this does not tell.", firstSlow)})
}

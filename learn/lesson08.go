package learn

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"
	"unsafe"

	"gpt2scope/cuda"
	"gpt2scope/internal/chart"
)

// #include "lesson06.h"
import "C"

//go:embed lesson08.cu
var firstSource string

var lesson08 = Lesson{
	Number: 8,
	Claim:  "the first calls are slow: warm up before you measure",
	CPU:    &Experiment{Run: firstOnCPU, Judge: judgeFirst, Picture: drawFirst},
	GPU:    &Experiment{Run: firstOnGPU, Judge: judgeFirst, Picture: drawFirst, Sources: []Source{{"lesson08.cu", firstSource}}},
	Why: `The first call does work that later calls find done. On a GPU: load the driver, make a context, compile or
load the module, allocate memory; the first launch of a kernel also loads its code, and the clocks may still be those
of an idle GPU. On a CPU, the operating system maps pages that are touched for the first time, and caches are cold.
None of this is the work that you want to time, and a mean never forgets it: one call of 1 s among 99 of 1 ms makes a
mean of 11 ms. So run a few times before the clock starts and report a median. But do look at the first calls, apart:
they are what a user of a short program waits for. Measure them in fresh processes, since a warm one cannot show them.`,
	GoOn:     `infer -p "ROMEO:" -n 32 --profile`,
	Programs: map[string]Program{"first-on-cpu": firstCallsOnCPU, "first-on-gpu": firstCallsOnGPU},
}

// firstCalls is how many calls are measured in each process.
const firstCalls = 10

// fresh runs a program in so many processes of their own and joins the data that they write.
func fresh(ctx context.Context, e *Env, processes int, program string, args ...string) (d Data, err error) {
	for range e.pick(processes, 2) {
		text, err := e.run(ctx, program, args...)
		if err != nil {
			return nil, err
		}
		var part Data
		if err := json.Unmarshal(text, &part); err != nil {
			return nil, fmt.Errorf("%s writes %q: %w", program, text[:min(len(text), 80)], err)
		}
		d = append(d, part...)
	}
	return d, nil
}

func firstOnCPU(ctx context.Context, e *Env) (Data, error) {
	return fresh(ctx, e, 11, "first-on-cpu", strconv.Itoa(e.pick(1<<24, 1<<14)))
}

func firstOnGPU(ctx context.Context, e *Env) (Data, error) {
	if e.Device == nil {
		return nil, fmt.Errorf("%w: %s", errNotHere, e.NoGPU)
	}
	return fresh(ctx, e, 7, "first-on-gpu", strconv.Itoa(e.Device.Info().Index))
}

// argument is the only argument of a program, a number.
func argument(args []string) (int, error) {
	if len(args) != 1 {
		return 0, errors.New("expected one number")
	}
	return strconv.Atoi(args[0])
}

func firstCallsOnCPU(ctx context.Context, args []string, w io.Writer) error {
	n, err := argument(args)
	if err != nil || n < 1 || n > 1<<26 {
		return fmt.Errorf("first-on-cpu: expected a number of elements from 1 to %d: %w", 1<<26, err)
	}
	var d Data
	start := time.Now()
	x, y := make([]float32, n), make([]float32, n)
	d.add("allocate", "spent_us", 0, us(time.Since(start)))
	for call := range firstCalls {
		start := time.Now()
		C.learn_multiply((*C.float)(unsafe.Pointer(&y[0])), (*C.float)(unsafe.Pointer(&x[0])), C.long(n))
		d.add("call", "time_us", float64(call+1), us(time.Since(start)))
	}
	return json.NewEncoder(w).Encode(d)
}

func firstCallsOnGPU(ctx context.Context, args []string, w io.Writer) (err error) {
	index, err := argument(args)
	if err != nil {
		return fmt.Errorf("first-on-gpu: the index of a GPU: %w", err)
	}
	var d Data
	last := time.Now()
	spent := func(what string) {
		d.add(what, "spent_us", 0, us(time.Since(last)))
		last = time.Now()
	}
	lib, err := cuda.Open()
	if err != nil {
		return err
	}
	spent("open the library")
	dev, err := lib.Device(index)
	if err != nil {
		return err
	}
	spent("find the GPU")
	g, err := newGPU(dev)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.close()) }()
	spent("make a context and a stream")
	kernels := g.kernels(Source{"lesson08.cu", firstSource}, "clocked")
	spent("compile and load the module")
	b, err := g.Alloc(32 << 20)
	if err = errors.Join(g.err, err); err != nil {
		return err
	}
	spent("allocate 32 MiB")
	for call := range firstCalls {
		start := time.Now()
		if err := errors.Join(kernels[0].Launch(g.Stream, line(dev.Info().Processors, 256), b, int32(1<<23)), g.Stream.Synchronize()); err != nil {
			return err
		}
		d.add("call", "time_us", float64(call+1), us(time.Since(start)))
		stamps := make([]byte, 16)
		if err := b.Read(0, stamps); err != nil {
			return err
		}
		cycles, ns := binary.LittleEndian.Uint64(stamps), binary.LittleEndian.Uint64(stamps[8:])
		if ns > 0 && cycles < 1<<40 && ns < 1<<40 {
			d.add("clock", "mhz", float64(call+1), 1e3*float64(cycles)/float64(ns))
		}
	}
	var text bytes.Buffer
	if err := json.NewEncoder(&text).Encode(d); err != nil {
		return err
	}
	_, err = w.Write(text.Bytes())
	return err
}

// firstSlow is how many times longer a first call takes that shows the claim.
const firstSlow = 1.5

func judgeFirst(d Data) Finding {
	first := d.at("call", "time_us", 1)
	second := d.at("call", "time_us", 2)
	var later []float64
	for call := 4.0; call <= firstCalls; call++ {
		later = append(later, d.at("call", "time_us", call)...)
	}
	typical := make([]float64, len(first)) // of each process
	for process := range typical {
		var calls []float64
		for call := 4.0; call <= firstCalls; call++ {
			if times := d.at("call", "time_us", call); process < len(times) {
				calls = append(calls, times[process])
			}
		}
		typical[process] = median(calls)
	}
	a, b, factor := figureOf("first call", "us", first), figureOf(fmt.Sprintf("calls 4 to %d", firstCalls), "us", later), figureOf("first call over later calls", "x", ratios(first, typical))
	again := figureOf("second call over later calls", "x", ratios(second, typical))
	f := Finding{Figures: []Figure{a, b, factor, again}}
	f.Text = fmt.Sprintf("In each of %d fresh processes, the first call is compared with the later ones: it takes %s their time.", len(first), factor.Short())
	for _, what := range d.cases("spent_us") {
		f.Figures = append(f.Figures, figureOf("before the first call: "+what, "us", d.values(what, "spent_us")))
	}
	if clocks := d.at("clock", "mhz", 1); len(clocks) > 0 {
		from, to := figureOf("clock of an SM in the first call", "MHz", clocks), figureOf("clock of an SM in the last call", "MHz", d.at("clock", "mhz", firstCalls))
		f.Figures = append(f.Figures, from, to)
		if from.Value >= 0.95*to.Value {
			f.Text += " The clock is not why: it is as high in the first call as in the last."
		} else {
			f.Text += fmt.Sprintf(" The clock is a part of it: it rises from %s to %s.", from.Short(), to.Short())
		}
	}
	switch low, high := factor.interval(); {
	case low >= firstSlow:
		f.Verdict = Shown
	case high < firstSlow:
		f.Verdict = Refuted
		f.Text += fmt.Sprintf(" That is less than %gx: no call is slow for being first.", firstSlow)
	default:
		f.Verdict = Unknown
		f.Text += fmt.Sprintf(" The interval holds %gx, so this does not tell.", firstSlow)
	}
	return f
}

func drawFirst(d Data) chart.Picture {
	return curves("Time of the n-th call of a fresh process", linear("call"), log("time (us)"), d.medians("time_us", "call")...)
}

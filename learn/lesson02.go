package learn

// #cgo linux LDFLAGS: -ldl
// #include "lesson02.h"
import "C"

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strconv"
	"unsafe"

	"gpt2scope/cuda"
)

var lesson02 = Lesson{
	Number: 2,
	Claim:  "the six steps of a GPU program: allocate on host, on device, load, copy, launch, copy back; leave one out and it fails",
	GPU:    &Experiment{Run: stepsOnGPU, Judge: judgeSteps, Sources: []Source{{"lesson01.cu", addSource}}},
	Why: `The steps are right, but an omission need not announce itself. Give a kernel a pointer of malloc, and the
outcome depends on the system. Where the GPU cannot access pageable memory (attribute pageableMemoryAccess 0), the
launch returns success, the kernel faults, and the next call that waits reports the error; after that the context is
unusable. Where it can, by HMM on Linux or by the shared page tables of Grace Hopper, the same program is right: pages
are mapped or migrated on access. Leave out the copy back, and no call fails at all: the result is right, in device
memory, and the host reads its old values. So check the status of the call that waits, not only of the launch, and
compare the numbers: a program without an error is not yet a program with a result.`,
	GoOn:     "infer learn 14",
	Programs: map[string]Program{"six-steps": sixSteps},
}

// The programs of lesson 2.
const (
	allSteps     = "all six steps"
	hostPointers = "host pointers in the kernel"
	noCopyBack   = "no copy back"
)

// Outcomes of these programs. A failure is followed by the words of CUDA.
const (
	cameRight = "right"
	cameWrong = "wrong"
	cameError = "error: "
)

func stepsOnGPU(ctx context.Context, e *Env) (d Data, err error) {
	if e.Device == nil {
		return nil, fmt.Errorf("%w: %s", errNotHere, e.NoGPU)
	}
	for range e.pick(3, 1) {
		for _, program := range []string{allSteps, hostPointers, noCopyBack} {
			text, err := e.run(ctx, "six-steps", strconv.Itoa(e.Device.Info().Index), program)
			if err != nil {
				return nil, err
			}
			var part Data
			if err := json.Unmarshal(text, &part); err != nil {
				return nil, fmt.Errorf("six-steps writes %q: %w", text[:min(len(text), 80)], err)
			}
			d = append(d, part...)
		}
	}
	return d, nil
}

func sixSteps(ctx context.Context, args []string, w io.Writer) error {
	if len(args) != 2 {
		return errors.New("six-steps: expected the index of a GPU and the name of a program")
	}
	index, err := strconv.Atoi(args[0])
	if err != nil {
		return fmt.Errorf("six-steps: the index of a GPU: %w", err)
	}
	var d Data
	d.add("GPU", "pageable_memory_access", 0, float64(C.learn_pageable_access(C.int(index))))
	outcome, err := addNumbers(index, args[1])
	if failure := new(cuda.Error); errors.As(err, &failure) {
		outcome = cameError + failure.Text
	} else if err != nil {
		outcome = cameError + err.Error()
	}
	d.say(args[1], "outcome", outcome)
	return json.NewEncoder(w).Encode(d)
}

// addNumbers adds vectors with all steps or without one, and compares what the host then has.
func addNumbers(index int, program string) (outcome string, err error) {
	lib, err := cuda.Open()
	if err != nil {
		return "", err
	}
	dev, err := lib.Device(index)
	if err != nil {
		return "", err
	}
	g, err := newGPU(dev)
	if err != nil {
		return "", err
	}
	defer func() { // after an error in a kernel, freeing fails too
		if closed := g.close(); err == nil {
			err = closed
		}
	}()
	kernels := g.kernels(Source{"lesson01.cu", addSource}, "add")
	if g.err != nil {
		return "", g.err
	}
	const n = 1 << 20
	host := make([]float32, 3*n) // z, x, y; ordinary memory
	z, x, y := host[:n], host[n:2*n], host[2*n:]
	for i := range x {
		x[i], y[i] = float32(i), 1
	}
	var arguments []any
	var result *cuda.Buffer
	if program == hostPointers {
		arguments = []any{pointer(z), pointer(x), pointer(y)}
	} else {
		b := g.buffers(3, 4*n)
		if g.err != nil {
			return "", g.err
		}
		if err := errors.Join(b[1].Write(0, raw(x)), b[2].Write(0, raw(y))); err != nil {
			return "", err
		}
		arguments, result = []any{b[0], b[1], b[2]}, b[0]
	}
	if err := errors.Join(kernels[0].Launch(g.Stream, line(n/256, 256), append(arguments, int32(n))...), g.Stream.Synchronize()); err != nil {
		return "", err
	}
	if program == allSteps {
		if err := result.Read(0, raw(z)); err != nil {
			return "", err
		}
	}
	outcome = cameRight
	for i := range z {
		if z[i] != x[i]+y[i] {
			outcome = cameWrong
			break
		}
	}
	runtime.KeepAlive(host)
	return outcome, nil
}

// raw is memory as bytes.
func raw(x []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), 4*len(x))
}

// pointer is the host's address of memory, as if it were the device's.
func pointer(x []float32) cuda.Ptr { return cuda.Ptr(uintptr(unsafe.Pointer(unsafe.SliceData(x)))) }

func judgeSteps(d Data) Finding {
	whole, host, back := d.text(allSteps, "outcome"), d.text(hostPointers, "outcome"), d.text(noCopyBack, "outcome")
	access := figureOf("device attribute pageableMemoryAccess", "", d.values("GPU", "pageable_memory_access"))
	if whole == "" || host == "" || back == "" {
		return undecided("One of the three programs was not run.")
	}
	f := Finding{Figures: []Figure{access}}
	f.Text = fmt.Sprintf("The result of all six steps: %s. With the host's pointers in the kernel, so that nothing is allocated on the device or copied to it: %s. Without the copy back: %s.", whole, host, back)
	switch access.Value {
	case 1:
		f.Text += " The attribute pageableMemoryAccess is 1: here kernels can follow the host's pointers."
	case 0:
		f.Text += " The attribute pageableMemoryAccess is 0: here kernels cannot follow the host's pointers."
	default:
		f.Text += " The driver did not say whether kernels can follow the host's pointers."
	}
	for _, p := range d {
		if p.Quantity == "outcome" && p.Text != d.text(p.Case, "outcome") {
			return undecided(f.Text+" The outcomes differed from run to run.", access)
		}
	}
	switch {
	case whole != cameRight:
		f.Verdict = Unknown
		f.Text += " The whole program has to work before it can be judged."
	case host == cameRight:
		f.Verdict = Refuted
		f.Text += " Steps were left out, and the result is right."
	case back == cameRight:
		f.Verdict = Refuted
		f.Text += " The copy back was left out, and the result is right."
	default:
		f.Verdict = Shown
		if back == cameWrong {
			f.Text += " Each omission costs the result; that of the copy back gives no error."
		}
	}
	return f
}

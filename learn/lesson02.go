package learn

import (
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"unsafe"

	"gpt2scope/cuda"
)

var lesson02 = Lesson{
	Number: 2,
	Claim: "the six steps of a GPU program: allocate on host, on device, load, copy, launch, copy back; " +
		"leave one out and it fails",
	GPU: &Experiment{Run: stepsOnGPU, Judge: judgeSteps},
	Why: `The steps are right, but an omission need not announce itself. Give a kernel a pointer of malloc, and the
outcome depends on the system. Where the GPU cannot access pageable memory (attribute pageableMemoryAccess 0), the
launch returns success, the kernel faults, and the next call that waits reports the error; after that the context is
unusable. Where it can, by HMM on Linux or by the shared page tables of Grace Hopper, the same program is right: pages
are mapped or migrated on access. Leave out the copy back, and no call fails at all: the result is right, in device
memory, and the host reads its old values. So check the status of the call that waits, not only of the launch, and
compare the numbers: a program without an error is not yet a program with a result.`,
	GoOn:     "infer learn 14",
	programs: map[string]func(*lab, []string){"six-steps": sixSteps},
}

// The programs of lesson 2.
const (
	allSteps     = "all six steps"
	hostPointers = "host pointers in the kernel"
	noCopyBack   = "no copy back"
	ofNotes      = "the program of lecture notes"
)

// notesProgram is what they print, shortened, with its two faults.
var notesProgram = []string{
	"The vector addition of some lecture notes, which has both faults:",
	"  float *a = malloc(4 * n), *b = malloc(4 * n), *out = malloc(4 * n), *d_a;",
	"  cudaMalloc(&d_a, 4 * n);",
	"  cudaMemcpy(d_a, a, 4 * n, cudaMemcpyHostToDevice);",
	"  vector_add<<<1, 1>>>(out, d_a, b, n);   // fault 1: out and b are the host's",
	"  cudaFree(d_a);                          // fault 2: nothing is copied back",
}

// Outcomes of these programs. A failure is followed by the words of CUDA.
const (
	cameRight = "right"
	cameWrong = "wrong"
	cameError = "error: "
)

func stepsOnGPU(l *lab) {
	for range l.pick(3, 1) {
		for _, program := range []string{allSteps, hostPointers, noCopyBack, ofNotes} {
			l.fresh(1, "six-steps", strconv.Itoa(l.Device.Info().Index), program)
		}
	}
}

// sixSteps adds vectors with all steps or without one, and compares what the host then has.
func sixSteps(l *lab, args []string) {
	if len(args) != 2 {
		check(errors.New("expected the index of a GPU and the name of a program"))
	}
	index, program := must(strconv.Atoi(args[0])), args[1]
	outcome := cameRight
	err := attempt(func() {
		lib := must(cuda.Open())
		l.withGPU(must(lib.Device(index)), func(g *gpu) {
			if !addNumbers(g, program) {
				outcome = cameWrong
			}
		})
	})
	if failure := new(cuda.Error); errors.As(err, &failure) {
		outcome = cameError + failure.Text
	} else if err != nil {
		outcome = cameError + err.Error()
	}
	l.say(program, "outcome", outcome)
}

// addNumbers tells whether the sum that the host has in the end is right.
func addNumbers(g *gpu, program string) bool {
	add := g.kernels("lesson01.cu", "add")[0]
	const n = 1 << 20
	host := make([]float32, 3*n) // z, x, y; ordinary memory
	z, x, y := host[:n], host[n:2*n], host[2*n:]
	for i := range x {
		x[i], y[i] = float32(i), 1
	}
	switch program {
	case hostPointers:
		g.launch(add, n/256, 256, pointer(z), pointer(x), pointer(y), int32(n))
		g.wait()
	case ofNotes:
		a := g.buffer(4 * n)
		check(a.Write(0, raw(x)))
		g.launch(add, 1, 1, pointer(z), a, pointer(y), int32(n))
		g.wait()
	default:
		a, b, sum := g.buffer(4*n), g.buffer(4*n), g.buffer(4*n)
		check(a.Write(0, raw(x)), b.Write(0, raw(y)))
		g.launch(add, n/256, 256, sum, a, b, int32(n))
		g.wait()
		if program == allSteps {
			check(sum.Read(0, raw(z)))
		}
	}
	right := true
	for i := range z {
		right = right && z[i] == x[i]+y[i]
	}
	runtime.KeepAlive(host)
	return right
}

func raw(x []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), 4*len(x))
}

// pointer is the host's address of memory, as if it were the device's.
func pointer(x []float32) cuda.Ptr { return cuda.Ptr(uintptr(unsafe.Pointer(unsafe.SliceData(x)))) }

func judgeSteps(d Data) Finding {
	whole, host, back := d.text(allSteps, "outcome"), d.text(hostPointers, "outcome"), d.text(noCopyBack, "outcome")
	if whole == "" || host == "" || back == "" {
		return undecided("One of the three programs was not run.")
	}
	differ, runs := false, 0
	for _, p := range d {
		if p.Quantity == "outcome" {
			differ = differ || p.Text != d.text(p.Case, "outcome")
			runs++
		}
	}
	f := Finding{Figures: []Figure{exact("runs of the programs", "", float64(runs))}}
	f.Text = fmt.Sprintf("The result of all six steps: %s. With the host's pointers in the kernel, so that nothing is "+
		"allocated on the device or copied to it: %s. Without the copy back: %s.", whole, host, back)
	if notes := d.text(ofNotes, "outcome"); notes != "" {
		f.Text += " The program of the notes: " + notes + "."
	}
	f.Lines = notesProgram
	return f.decide(
		rule{Unknown, differ, "The outcomes differed from run to run."},
		rule{Unknown, whole != cameRight, "The whole program has to work before it can be judged."},
		rule{Refuted, host == cameRight, "Steps were left out, and the result is right."},
		rule{Refuted, back == cameRight, "The copy back was left out, and the result is right."},
		rule{HalfTrue, back == cameWrong, "Half true: each omission costs the result, but that of the copy back gives no error."},
		rule{Shown, true, ""})
}

package learn

import (
	"fmt"
	"strings"
)

var lesson24 = Lesson{
	Number: 24,
	Claim:  "a .cu file is a program for the GPU",
	CPU:    &Experiment{Of: "From a file of the program, learn/lesson24.cu", Run: splitSource, Judge: judgeSplit},
	Why: `nvcc is no compiler of one language; it splits a file. Functions marked __global__ (kernels) or __device__ go
to NVIDIA's compiler, which writes PTX, a portable assembly, and from it machine code (SASS) for each architecture that
was asked for. All else is C++ of the host and goes to gcc or cl. A launch, <<<blocks, threads>>>, becomes calls of the
host that pass its arguments to the driver. Both are linked into one program: an ordinary one, which starts on the CPU
and carries the GPU's code as data. A GPU newer than the code needs the PTX, which the driver compiles when the program
starts. Run-time compilation (NVRTC) leaves the host's part out: a program hands the kernel's text to a library and
loads what comes back. So do Triton, CuPy, Numba, and this program for its lessons.`,
	GoOn: "infer learn vector_add.cu --new vector.add",
}

// Who compiles a line of a .cu file.
const (
	byHost   = "host"
	byGPU    = "GPU"
	byLaunch = "launch"
)

// splitSource says of each line of code who compiles it.
func splitSource(l *lab) {
	inside := false
	for i, line := range strings.Split(strings.TrimRight(source("lesson24.cu"), "\n"), "\n") {
		of := byHost
		if inside = inside || strings.Contains(line, "__global__"); inside {
			of = byGPU
		} else if strings.Contains(line, "<<<") {
			of = byLaunch
		}
		if inside = inside && line != "}"; strings.TrimSpace(line) == "" || strings.HasPrefix(line, "//") {
			of = ""
		}
		l.Data = append(l.Data, Point{Case: of, Quantity: "line", X: float64(i + 1), Value: 1, Text: line})
	}
}

func judgeSplit(d Data) Finding {
	host, gpu, launches := len(d.values(byHost, "line")), len(d.values(byGPU, "line")), len(d.values(byLaunch, "line"))
	f := Finding{Figures: []Figure{exact("lines that the host's compiler gets", "", float64(host)),
		exact("lines that the GPU's compiler gets", "", float64(gpu)), exact("launches", "", float64(launches))}}
	for _, p := range d {
		if p.Quantity == "line" {
			f.Lines = append(f.Lines, strings.TrimRight(fmt.Sprintf("%-6s | %s", p.Case, p.Text), " "))
		}
	}
	f.Text = fmt.Sprintf("Of this file the CPU's compiler gets %s and the GPU's %s; a launch joins them.", countOf(host, "line"), countOf(gpu, "line"))
	return f.decide(
		rule{HalfTrue, host > 0 && gpu > 0, "Half true: a part of it is, and the program starts on the CPU."},
		rule{Shown, gpu > 0, ""}, rule{Refuted, host > 0, ""})
}

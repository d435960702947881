package tasks

import (
	"strconv"
	"strings"

	"gpt2scope/cpu"
	"gpt2scope/predict"
)

// stepRows is how many rows of a pass take as long as a decode step, roughly: one reads all weights for them.
const stepRows = 12

// setHost sets what is known of work of a shape on a CPU, by the CPU's key: its threads, the kernel that multiplies, and how many threads are idle
// since a product has too few panels of weights for them.
func setHost(w *predict.Work, shape Shape, key string) {
	threads, version := processor(key)
	w.Threads = float64(threads)
	if threads == 0 || w.Rows == 0 {
		return
	}
	bf16 := w.DType == BFloat16
	var all, times float64 // multiplications, and the same times threads for each part
	multiply := func(m, n, k, often int) {
		_, parts := cpu.Divide(version, threads, m, n, k, bf16)
		operations := float64(m) * float64(n) * float64(k) * float64(often)
		all, times = all+operations, times+operations*max(1, float64(threads)/float64(parts))
	}
	if m, n, k := shape.Get("m"), shape.Get("n"), shape.Get("k"); m > 0 && n > 0 && k > 0 {
		multiply(m, n, k, 1)
	} else if c, v, l := shape.Get("c"), shape.Get("v"), shape.Get("l"); c > 0 && v > 0 && l > 0 {
		pass := func(rows, sequences, often int) {
			for _, p := range [][2]int{{3 * c, c}, {c, c}, {4 * c, c}, {c, 4 * c}} {
				multiply(rows, p[0], p[1], l*often)
			}
			multiply(sequences, v, c, often)
		}
		switch sequences := max(1, shape.Get("b")); {
		case shape.Get("past") > 0:
			pass(sequences, sequences, 1)
		default:
			pass(shape.Get("t")*sequences, sequences, 1)
			if n := shape.Get("n"); n > 1 {
				pass(1, 1, stepRows*(n-1))
			}
		}
	}
	if all > 0 {
		kernel, _ := cpu.Divide(version, threads, int(w.Rows), 1, 1, bf16)
		w.Kernel, w.Idle = float64(kernel), times/all
	}
}

// processor returns the number of threads and the version of the kernels that the key of a CPU names, 0 and "" if it names none.
func processor(key string) (threads int, version string) {
	for part := range strings.SplitSeq(key, ", ") {
		if number, ok := strings.CutSuffix(strings.TrimSuffix(part, "s"), " thread"); ok {
			if n, err := strconv.ParseUint(number, 10, 16); err == nil {
				threads = int(n)
			}
		} else if name, ok := strings.CutPrefix(part, "kernels "); ok {
			version = name
		}
	}
	return threads, version
}

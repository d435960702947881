package cpu

/*
#include "kernels.h"
*/
import "C"

// Kernel is one of the ways in which the engine multiplies matrices.
type Kernel int

// The kernels that multiply.
const (
	FewRows  Kernel = C.GS_FEW_ROWS  // all sums in registers, the weights are read once
	ManyRows Kernel = C.GS_MANY_ROWS // in blocks, in float32
	Units    Kernel = C.GS_UNITS     // by the processor's products of bfloat16
)

// equalRows is how many rows of up to K values products compute with the same result as of one row.
func (i isa) equalRows(K int) int { return int(C.gs_equal_rows(C.int(i), C.int64_t(K))) }

// Divide returns which kernel multiplies (m, k) by (k, n), with weights of float32 or bfloat16 in panels, on a
// processor that runs a version of the kernels, and into how many tasks it divides the product for a number of threads.
// That processor need not be here.
func Divide(version string, threads, m, n, k int, bf16 bool) (Kernel, int) {
	i := portable
	for i < isas-1 && i.String() != version {
		i++
	}
	var kernel C.int
	tasks := C.gs_divide(C.int(i), C.int64_t(threads), C.int64_t(m), C.int64_t(n), C.int64_t(k), C.int(flag(bf16)),
		&kernel)
	return Kernel(kernel), int(tasks)
}

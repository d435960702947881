package cpu

/*
#include "kernels.h"
*/
import "C"

import "strings"

// Kernel is one of the ways in which the engine multiplies matrices.
type Kernel int

// The kernels that multiply: see op_linear in kernels_impl.h.
const (
	FewRows  Kernel = iota + 1 // linear_few: all sums in registers, the weights are read once
	ManyRows                   // linear_many: in blocks, in float32
	Units                      // linear_bf16 and linear_split: by the processor's products of bfloat16
)

// Divide returns which kernel multiplies (m, k) by (k, n), with weights of float32 or bfloat16 in panels, on a processor that runs a version of
// the kernels, and into how many tasks it divides the product for a number of threads. It says of any processor what linear.h, bf16.h and
// split.h do there, so that times can be predicted for one that is not here.
func Divide(version string, threads, m, n, k int, bf16 bool) (Kernel, int) {
	const (
		blockRows  = 768       // of a block of a panel at most: KC
		scratch    = 768 << 10 // GS_SCRATCH
		panelsMost = 20        // of a task that goes over several blocks: NC
		wholeMost  = 80        // of one that has one block: NC_WHOLE
		packed     = 384 << 10 // numbers of the first matrix that a task of linear_bf16 packs: BA_VALUES
		evenRows   = 256       // of a task of linear_bf16 and linear_split at most: BMC, SM
		manyRows   = 240       // of a task of linear_many: MC
		lda        = blockRows + 16
	)
	wide := strings.HasPrefix(version, "avx512") || version == "amx"
	tile := 6 // rows of a register tile: GS_MR
	switch {
	case wide:
		tile = 12
	case version == "portable":
		tile = 4
	}
	panels, blocks := ceil(n, C.GS_NR), ceil(k, blockRows)
	if m <= tile && blocks*m*lda <= scratch {
		if m == 1 && wide && panels >= 16*threads {
			return FewRows, ceil(panels, 2) // GS_GP panels at once
		}
		return FewRows, panels
	}
	most := panelsMost
	if blocks == 1 {
		most = wholeMost
	}
	rows, columns := 1, ceil(panels, most) // a task is one of these parts of the rows by one of these parts of the panels
	divideColumns := func(tasks, least int) {
		for rows*columns < tasks && panels/columns > least {
			columns++
		}
	}
	divideRows := func(tasks, least int) {
		for rows*columns < tasks && m/rows > least {
			rows++
		}
	}
	switch {
	case bf16 && (version == "amx" || version == "avx512-bf16") && k <= packed/32-32:
		rows, columns = ceil(m, min(evenRows, packed/(ceil(k, 32)*32+32)/32*32)), 1
		if even := ceil(rows, threads) * threads; m/even >= evenRows/2 {
			rows = even
		}
		if version == "amx" {
			tile = 32
		}
		divideColumns(8*threads, 3)
		divideRows(2*threads, 2*tile)
		divideColumns(2*threads, 1)
		return Units, rows * columns
	case version == "amx" && m >= splitRows:
		rows = ceil(m, evenRows)
		divideColumns(2*threads, 4)
		divideRows(2*threads, 2*splitRows)
		for rows*columns%threads != 0 && rows*columns < 4*threads && panels/columns > 4 {
			columns++
		}
		return Units, rows * columns
	}
	rows = ceil(m, manyRows)
	divideColumns(4*threads, 4)
	divideRows(4*threads, 4*tile)
	for rows*columns%threads != 0 && rows*columns < 8*threads && m/rows > 2*tile {
		rows++
	}
	return ManyRows, rows * columns
}

func ceil(a, b int) int { return (a + b - 1) / b }

// parts returns into how many tasks the last step of the last program was divided.
func (p *pool) parts() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return int(C.gs_pool_parts(p.c))
}

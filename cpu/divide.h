// How products are divided into tasks: for the kernels, and for Go, which predicts times of processors that are not
// here. A task is a part of the rows by a part of the panels.
#ifndef GS_DIVIDE_H
#define GS_DIVIDE_H

#include "kernels.h"

enum {
	KC = 768,      // rows of a block of a panel at most: 96 KiB, for the L2 cache
	LDA = KC + 16, // leading dimension of packed rows of A: not of 4 KiB, so that rows do not compete for cache sets

	// linear_many
	MC = 240,      // rows of a task: MC * LDA * 4 = 735 KiB of packed x; a multiple of every MR
	MC_ROWS = 360, // rows of a task with a weight stored by rows, as each task transposes its panels
	NC = 20,       // panels of a task that keeps the sums of several blocks
	NC_WHOLE = 80, // panels of a task if K is one block

	// linear_bf16
	BMC = 256,                    // rows of a task at most: a multiple of 32
	BA_VALUES = 400 * 1024,       // values of packed x of a task: 800 KiB, for the L2 cache
	BK_MAX = BA_VALUES / 32 - 32, // the largest K of which 32 rows fit

	// linear_many_q8
	Q8_MC = 96, // rows of a task at most

	// linear_int8
	INT8_GROUP = 128,               // values of a row with one scale
	INT8_ROWS = 256,                // rows of a task at most
	INT8_VALUES = 1 << 20,          // values of quantised x of a task, for the L2 cache
	INT8_K = INT8_VALUES / 32 - 128, // the largest K of which 32 rows fit

	// linear_split
	SM = 256, // rows of a task at most: their parts of a block of K are 1.1 MiB, for the L2 cache
};

// Into how many parts rows and panels are divided.
typedef struct gs_parts {
	int64_t rows, panels;
} gs_parts;

static inline int64_t gs_ceil(int64_t a, int64_t b) { return (a + b - 1) / b; }

// row_distance is how many floats rows of x of a product of few rows are apart: not 4 KiB, so that they do not compete
// for cache sets.
static inline int64_t row_distance(int64_t K) { return K + 16; }

// gs_panels_at_once returns how many panels, at most `most`, a task of a product of one row reads at once: so many that
// threads still have nearly equal shares.
static inline int64_t gs_panels_at_once(int64_t panels, int64_t threads, int64_t most) {
	while (most > 1 && panels < 8 * most * threads && panels % (most * threads) != 0) most /= 2;
	return most;
}

// The fewer tasks, the less is packed and read. There are enough of them that no worker waits long at the end, and if
// possible the same number for each worker.
static inline gs_parts divide_many(int64_t M, int64_t panels, int64_t K, int by_rows, int64_t threads, int64_t mr) {
	const int64_t most = K <= KC ? NC_WHOLE : by_rows ? NC / 2 : NC;
	gs_parts p = {gs_ceil(M, by_rows ? MC_ROWS : MC), gs_ceil(panels, most)};
	while (p.rows * p.panels < 4 * threads && panels / p.panels > 4) p.panels++;
	while (p.rows * p.panels < 4 * threads && M / p.rows > 4 * mr) p.rows++;
	while (p.rows * p.panels % threads != 0 && p.rows * p.panels < 8 * threads && M / p.rows > 2 * mr) p.rows++;
	return p;
}

// Panels are small: rows are divided first, as those of x are quantised once for all panels.
static inline gs_parts divide_q8(int64_t M, int64_t panels, int64_t threads, int64_t gr) {
	gs_parts p = {gs_ceil(M, Q8_MC), 1};
	while (p.rows < 4 * threads && M / p.rows > 4 * gr) p.rows++;
	while (p.rows * p.panels < 8 * threads && panels / p.panels > 4) p.panels++;
	return p;
}

// What a task of a kind of product takes, in about cycles for 32 values of K: to bring or prepare a row of x, to bring
// and prepare a panel, and to multiply one with a register tile's rows. Rows stay in a cache for consecutive tasks.
typedef struct gs_costs {
	int64_t rows, unit; // rows of a task at most, and of a register tile
	int64_t row, panel, product;
} gs_costs;

// gs_fewest divides a product so that the worker with the most to do is done first. At the end all wait for a task that
// a slower worker has begun.
static inline gs_parts gs_fewest(int64_t M, int64_t panels, int64_t threads, gs_costs c) {
	const int64_t units = gs_ceil(M, c.unit);
	gs_parts best = {0};
	int64_t least = INT64_MAX;
	for (int64_t rows = gs_ceil(M, c.rows); rows <= units; rows += rows / 4 + 1)
		for (int64_t each = 1; each <= 32 && each <= 4 * threads; each *= 2) { // tasks of a worker
			int64_t p = each * threads / rows;
			p = p < 1 ? 1 : p < panels ? p : panels;
			const int64_t tiles = gs_ceil(units, rows), q = gs_ceil(panels, p), tasks = gs_ceil(rows * p, threads);
			const int64_t task = q * (c.panel + tiles * c.product);
			const int64_t time = gs_ceil(tasks, p) * tiles * c.unit * c.row + (tasks + 1) * task;
			if (time < least) least = time, best = (gs_parts){rows, p};
		}
	return best;
}

static inline gs_parts divide_bf16(int64_t M, int64_t panels, int64_t K, int64_t threads, int64_t mr) {
	const int64_t most = BA_VALUES / (gs_ceil(K, 32) * 32 + 32) / 32 * 32;
	return gs_fewest(M, panels, threads, (gs_costs){most < BMC ? most : BMC, mr, 10, 100, 80});
}

static inline gs_parts divide_int8(int64_t M, int64_t panels, int64_t K, int64_t threads) {
	const int64_t most = INT8_VALUES / (gs_ceil(K, INT8_GROUP) * INT8_GROUP) / 32 * 32;
	return gs_fewest(M, panels, threads, (gs_costs){most < INT8_ROWS ? most : INT8_ROWS, 32, 10, 110, 40});
}

static inline gs_parts divide_split(int64_t M, int64_t panels, int64_t threads, int split) {
	return gs_fewest(M, panels, threads, (gs_costs){SM, 16, 40, split ? 320 : 50, split ? 250 : 125});
}

#endif

// Arrays shared among the threads of a pool: what the tasks of package tasks do on a CPU.
#include "kernels.h"
#include "version.h"

// Arrays of fewer values are one thread's: threads that sleep take longer to wake.
enum { FEW = 65536 };

typedef struct array_job {
	int what, past;
	float *z;
	const float *x, *y;
	const uint16_t *words; // x, if it is bfloat16
	int64_t n;
} array_job;

static void map_range(const gs_kernels *k, const array_job *j, int64_t lo, int64_t hi) {
	switch (j->what) {
	case GS_ARRAY_ADD: k->add(j->z + lo, j->x + lo, j->y + lo, hi - lo, j->past); return;
	case GS_ARRAY_SQUARE: k->square(j->z + lo, j->x + lo, hi - lo, j->past); return;
	case GS_ARRAY_WIDEN: k->widen(j->z + lo, j->words + lo, hi - lo); return;
	case GS_ARRAY_SUMS: // z[b] is the sum of block b
		for (int64_t b = lo; b < hi; b++) {
			const int64_t from = b * GS_ARRAY_BLOCK, left = j->n - from;
			j->z[b] = k->sum(j->x + from, left < GS_ARRAY_BLOCK ? left : GS_ARRAY_BLOCK);
		}
	}
}

// Workers take parts of an array from their own share first, where its pages are near them, then from those of others:
// nobody waits for a worker whose core another program uses, or which shares the memory with another machine. Parts of
// at most GS_ARRAY_CHUNK values, in place of whole shares, made arrays beyond the caches a sixth to a third faster on
// 16 cores of a Xeon.
enum { PARTS = 8 }; // of a worker's share at least

static void map_job(gs_worker *w, void *arg) {
	const array_job *j = arg;
	const int sums = j->what == GS_ARRAY_SUMS;
	const int64_t unit = sums ? 1 : 1024, n = sums ? (j->n + GS_ARRAY_BLOCK - 1) / GS_ARRAY_BLOCK : j->n;
	const int64_t units = (n + unit - 1) / unit;
	int64_t parts = (j->n + GS_ARRAY_CHUNK - 1) / GS_ARRAY_CHUNK;
	if (parts < (int64_t)w->n * PARTS) parts = (int64_t)w->n * PARTS;
	if (parts > units) parts = units;
	for (int64_t i = gs_first(w, parts); i >= 0; i = gs_next(w)) {
		const int64_t lo = units * i / parts * unit, end = units * (i + 1) / parts * unit;
		map_range(w->pool->kernels, j, lo, end < n ? end : n);
	}
}

void gs_array(gs_pool *p, int what, float *z, const void *x, const float *y, int64_t n, int past) {
	array_job j = {.what = what, .past = past, .z = z, .x = x, .y = y, .words = x, .n = n};
	if (n < FEW)
		map_range(p->kernels, &j, 0, what == GS_ARRAY_SUMS ? (n + GS_ARRAY_BLOCK - 1) / GS_ARRAY_BLOCK : n);
	else
		gs_pool_run(p, map_job, &j, 0);
}

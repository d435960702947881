// Inside the thread pool: workers, the barrier and the sharing of a loop. Included by C files only.
#ifndef GS_POOL_H
#define GS_POOL_H

#include "kernels.h"
#include <stdatomic.h>

enum { GS_LINE = 64 }; // bytes of a cache line

typedef struct gs_worker {
	_Alignas(GS_LINE) gs_pool *pool; // a line each: all but pool, id, n and scratch changes in every loop
	int id, n;
	int victim;       // whose share of the loop is being taken, relative to id
	int64_t count;    // of the current loop
	unsigned phase;   // barriers passed
	float *scratch;   // GS_SCRATCH floats of this worker's own
} gs_worker;

// Scratch holds a packed block of activations and the state of an attention tile. Touched as far as needed.
enum { GS_SCRATCH = 768 * 1024 };

// A loop's ticket counter, one per worker and parity of phase, on a line of its own.
typedef struct gs_ticket {
	_Alignas(GS_LINE) _Atomic int64_t next;
} gs_ticket;

struct gs_pool {
	int n;
	const gs_kernels *kernels;
	struct gs_thread *threads; // n-1
	gs_worker *workers;        // n
	gs_ticket *tickets;        // (n, 2)
	float *scratch;            // (n, GS_SCRATCH)
	const int32_t *cancel;     // of the running gs_run, or NULL
	int stop;                  // decided at a barrier, so that all workers agree; written only to set it, as its line is hot

	void (*fn)(gs_worker *, void *);
	void *arg;
	_Alignas(GS_LINE) _Atomic uint32_t job;     // counts jobs; workers wait for a change
	_Alignas(GS_LINE) _Atomic int32_t sleepers; // workers that wait on the condition variable
	_Alignas(GS_LINE) _Atomic int32_t arrived;  // at the barrier
	_Alignas(GS_LINE) _Atomic uint32_t passed;  // barriers completed
	_Alignas(GS_LINE) _Atomic int32_t quit;
	struct gs_sleep *sleep;
};

// gs_pool_run calls fn(worker, arg) once on every worker and returns when all have. One caller at a time.
void gs_pool_run(gs_pool *pool, void (*fn)(gs_worker *, void *), void *arg);

// gs_barrier waits until all workers have called it. What they wrote before is visible to all after.
void gs_barrier(gs_worker *w);

static inline int gs_cancelled(const gs_pool *p) { return p->cancel && __atomic_load_n(p->cancel, __ATOMIC_RELAXED); }

// A loop over [0, count) that all workers share, one loop between two barriers:
//
//   for (int64_t i = gs_first(w, count); i >= 0; i = gs_next(w)) ...
//
// Each worker starts on its own contiguous share, the same in every pass, so that the weights it reads stay in its own cache; when
// its share is done it takes from the others', so that a worker that lost its core delays nobody.
static inline int64_t gs_next(gs_worker *w) {
	gs_pool *p = w->pool;
	if (gs_cancelled(p)) return -1;
	for (; w->victim < w->n; w->victim++) {
		int v = w->id + w->victim;
		if (v >= w->n) v -= w->n;
		int64_t lo = w->count * v / w->n, hi = w->count * (v + 1) / w->n;
		_Atomic int64_t *next = &p->tickets[2 * v + (w->phase & 1)].next;
		if (lo + atomic_load_explicit(next, memory_order_relaxed) >= hi) continue; // spare the line a write
		int64_t i = lo + atomic_fetch_add_explicit(next, 1, memory_order_relaxed);
		if (i < hi) return i;
	}
	return -1;
}

static inline int64_t gs_first(gs_worker *w, int64_t count) {
	w->count = count;
	w->victim = 0;
	return gs_next(w);
}

// gs_share gives worker w's part of [0, count), where taking from others does not pay.
static inline void gs_share(const gs_worker *w, int64_t count, int64_t *lo, int64_t *hi) {
	*lo = count * w->id / w->n;
	*hi = count * (w->id + 1) / w->n;
}

#endif

// The thread pool from inside: workers, the barrier, and loops that all workers share.
#ifndef GS_POOL_H
#define GS_POOL_H

#include "kernels.h"
#include <stdatomic.h>

enum { GS_LINE = 64 }; // bytes of a cache line

typedef struct gs_worker {
	_Alignas(GS_LINE) gs_pool *pool; // a cache line for each worker, as every loop writes victim, count and phase
	int id, n;        // n is the number of workers of the job
	int victim;       // the worker from whose share of the loop iterations are taken now, relative to id
	int64_t count;    // iterations of the current loop
	unsigned phase;   // barriers passed
	unsigned crowded; // barriers to come at which the worker does not yield, since another thread wanted its core
	unsigned backoff; // how many these were the last time: it doubles and halves
	float *scratch;   // GS_SCRATCH floats of this worker
} gs_worker;

// Floats of a worker's scratch, which holds packed activations or the state of attention tiles. Only what an op uses is committed.
enum { GS_SCRATCH = 768 * 1024 };

// The number of iterations taken from a worker's share of a loop: a cache line for each worker and parity of phase.
typedef struct gs_ticket {
	_Alignas(GS_LINE) _Atomic int64_t next;
} gs_ticket;

enum { GS_ASLEEP = 1 << 16, GS_WORKERS = 1 << 16 };

struct gs_pool {
	int n;
	int used; // workers of the jobs to come, the first ones
	const gs_kernels *kernels;
	struct gs_thread *threads; // n-1
	gs_worker *workers;        // n
	gs_ticket *tickets;        // (n, 2)
	float *scratch;            // (n, GS_SCRATCH)
	const int32_t *cancel;     // of the running gs_run, or NULL
	int stop;                  // set at a barrier, so that all workers see the same value

	void (*fn)(gs_worker *, void *);
	void *arg;
	_Alignas(GS_LINE) _Atomic uint64_t job;     // jobs posted, times GS_WORKERS, and the number of workers of the last; workers wait for a change
	_Alignas(GS_LINE) _Atomic int32_t sleepers; // workers that wait on the condition variable
	_Alignas(GS_LINE) _Atomic uint32_t arrived; // workers at the barrier, and GS_ASLEEP for each of them that sleeps
	_Alignas(GS_LINE) _Atomic uint32_t passed;  // barriers completed
	_Alignas(GS_LINE) _Atomic int32_t quit;
	struct gs_sleep *sleep;
};

// gs_pool_run calls fn(worker, arg) once on every worker that is used and returns when all calls have returned. One caller at a time.
void gs_pool_run(gs_pool *pool, void (*fn)(gs_worker *, void *), void *arg);

// gs_barrier waits until all workers have called it. All workers then see what any of them wrote before.
void gs_barrier(gs_worker *w);

static inline int gs_cancelled(const gs_pool *p) { return p->cancel && __atomic_load_n(p->cancel, __ATOMIC_RELAXED); }

// A loop over [0, count) that all workers share, at most one between two barriers:
//
//   for (int64_t i = gs_first(w, count); i >= 0; i = gs_next(w)) ...
//
// A worker first takes the iterations of its own contiguous share, which is the same in every pass, so that the weights it reads stay in
// its cache. Then it takes iterations from the shares of others (work stealing), so that nobody waits for a worker that lost its core.
static inline int64_t gs_next(gs_worker *w) {
	gs_pool *p = w->pool;
	if (gs_cancelled(p)) return -1;
	for (; w->victim < w->n; w->victim++) {
		int v = w->id + w->victim;
		if (v >= w->n) v -= w->n;
		int64_t lo = w->count * v / w->n, hi = w->count * (v + 1) / w->n;
		_Atomic int64_t *next = &p->tickets[2 * v + (w->phase & 1)].next;
		if (lo + atomic_load_explicit(next, memory_order_relaxed) >= hi) continue; // no write to the line of a share that is done
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

// gs_share returns worker w's part [*lo, *hi) of [0, count), for loops without work stealing.
static inline void gs_share(const gs_worker *w, int64_t count, int64_t *lo, int64_t *hi) {
	*lo = count * w->id / w->n;
	*hi = count * (w->id + 1) / w->n;
}

#endif

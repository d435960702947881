// The thread pool from inside: workers, the barrier, and loops that all workers share.
#ifndef GS_POOL_H
#define GS_POOL_H

#include "kernels.h"
#include <stdatomic.h>

enum { GS_LINE = 64 }; // bytes of a cache line
#define HUGE_PAGE ((size_t)2 << 20)

typedef struct gs_worker {
	_Alignas(GS_LINE) gs_pool *pool; // a cache line for each worker, as every loop writes victim and done
	int id, n;           // n is the number of workers of the job
	int victim;          // the worker from whose share of the loop iterations are taken now, relative to id
	uint32_t phase;      // barriers before the part of the job in which it is
	int64_t count, done; // iterations of the loop of this phase, and how many of them it has taken and not counted
	int last;            // it has counted the last of them, and ends the phase
	_Atomic int32_t in;  // it is in a job, whose caller waits until it has left
	unsigned crowded;    // barriers to come at which the worker does not yield, since another thread wanted its core
	unsigned backoff;    // how many these were the last time: it doubles and halves
	uint64_t job;        // that it works on
	float *scratch;      // GS_SCRATCH floats of this worker
} gs_worker;

// Floats of a worker's scratch, which holds packed activations or the state of attention tiles. Only what an op uses is
// committed.
enum { GS_SCRATCH = 768 * 1024 };

// Bytes for rows of x that all workers use: at most so many are packed at a time.
#define GS_SHARED ((size_t)24 << 20)

// How many iterations were taken from a worker's share of a loop, in the lower 32 bits, and in which phase, in the
// upper: a cache line for each worker.
typedef struct gs_ticket {
	_Alignas(GS_LINE) _Atomic uint64_t taken;
} gs_ticket;

struct gs_pool {
	int n;
	const gs_kernels *kernels;
	struct gs_thread *threads; // n-1
	gs_worker *workers;        // n
	gs_ticket *tickets;        // (n)
	float *scratch;            // (n, GS_SCRATCH)
	void *shared;              // GS_SHARED bytes
	const int32_t *cancel;     // of the running gs_run, or NULL

	void (*fn)(gs_worker *, void *);
	void *arg;
	int everyone;   // barriers of the job wait for all workers
	uint32_t first; // phase of the job
	_Alignas(GS_LINE) _Atomic uint64_t job;     // jobs posted; workers wait for a change
	_Atomic uint64_t open;                      // the job that workers may still enter, 0 for none
	_Alignas(GS_LINE) _Atomic int32_t sleepers; // workers that wait on the condition variable
	// Iterations of the phase that are done, and GS_ASLEEP for each worker that sleeps at its barrier.
	_Alignas(GS_LINE) _Atomic uint64_t arrived;
	_Alignas(GS_LINE) _Atomic uint32_t passed;  // barriers completed: the phase
	_Atomic int64_t stop;                       // the phase from which on a cancelled job does nothing, -1 if it goes on
	_Alignas(GS_LINE) _Atomic int32_t quit;
	struct gs_sleep *sleep;
};

// gs_pool_run calls fn(worker, arg) on the caller, which is the first worker, and on each other worker that has a core
// before all work is done. It returns when all work is done and no worker is in fn any more. With `everyone` it is
// called on every worker, and barriers wait for all. One caller at a time.
void gs_pool_run(gs_pool *pool, void (*fn)(gs_worker *, void *), void *arg, int everyone);

// gs_barrier waits until all iterations of the loop before it are done, by whichever workers. These then see what any
// of them wrote before. It returns 0 if the job has ended meanwhile without this worker: fn must then return, and use
// nothing that belongs to its caller.
//
// A worker that loses its core keeps others waiting for the iteration that it has begun, and for nothing else. When it
// comes back it goes through the phases that the others have done, in which it gets no iterations.
int gs_barrier(gs_worker *w);

static inline int gs_cancelled(const gs_pool *p) { return p->cancel && __atomic_load_n(p->cancel, __ATOMIC_RELAXED); }

// gs_late tells whether the phase in which a worker is has ended without it.
static inline int gs_late(const gs_worker *w) {
	return atomic_load_explicit(&w->pool->passed, memory_order_relaxed) != w->phase;
}

// gs_count counts the iterations that a worker has done, before it looks for more. It returns 1 if all of the loop are
// done.
int gs_count(gs_worker *w);

static inline void pause_core(void) {
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("isb" ::: "memory");
#endif
}

// gs_take returns an iteration of the loop of this phase that no worker has taken, -1 if there is none.
static inline int64_t gs_take(gs_worker *w) {
	gs_pool *p = w->pool;
	for (; w->victim < w->n; w->victim++) {
		int v = w->id + w->victim;
		if (v >= w->n) v -= w->n;
		const int64_t lo = w->count * v / w->n, hi = w->count * (v + 1) / w->n;
		_Atomic uint64_t *ticket = &p->tickets[v].taken;
		uint64_t seen = atomic_load_explicit(ticket, memory_order_acquire);
		for (;;) {
			// A ticket of another phase is of an earlier one, if this phase has not ended. If it ends now, others have written
			// the ticket, and the exchange fails.
			if (gs_late(w)) return -1;
			const int64_t i = lo + (seen >> 32 == w->phase ? (int64_t)(uint32_t)seen : 0);
			if (i >= hi) break; // no write to the line of a share that is done
			if (atomic_compare_exchange_weak_explicit(ticket, &seen, (uint64_t)w->phase << 32 | (uint64_t)(i - lo + 1),
					memory_order_acq_rel, memory_order_acquire)) {
				w->done++;
				return i;
			}
		}
		// The worker that all wait for usually ends with its own share. It need not read the tickets of all others, in other
		// cores' caches.
		if (w->victim > 0) continue;
		if (w->done > 0 && gs_count(w)) {
			w->victim = w->n;
			return -1;
		}
		// Nor need others while they end theirs: reading a ticket slows its worker, the more workers there are.
		for (int i = 1; i < w->n && !gs_late(w); i++) pause_core();
	}
	return -1;
}

// A loop over [0, count) that all workers share, at most one between two barriers:
//
//   for (int64_t i = gs_first(w, count); i >= 0; i = gs_next(w)) ...
//
// A worker first takes the iterations of its own contiguous share, which is the same in every pass, so that the weights
// it reads stay in its cache. Then it takes iterations from the shares of others (work stealing), so that nobody waits
// for a worker that lost its core.
static inline int64_t gs_next(gs_worker *w) { return gs_cancelled(w->pool) ? -1 : gs_take(w); }

static inline int64_t gs_first(gs_worker *w, int64_t count) {
	w->count = count;
	w->victim = 0;
	return gs_next(w);
}

// gs_share returns worker w's part [*lo, *hi) of [0, count), for loops without work stealing, in jobs for everyone.
static inline void gs_share(const gs_worker *w, int64_t count, int64_t *lo, int64_t *hi) {
	*lo = count * w->id / w->n;
	*hi = count * (w->id + 1) / w->n;
}

#endif

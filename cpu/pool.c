// The thread pool.
//
// A decode step of a small model takes tens of microseconds, less than it takes to wake a sleeping thread. So workers
// spin for SPIN_NS after a job before they sleep: they stay awake between two tokens, and the cores are free within a
// millisecond after the last one. A worker that has spun for PAUSES also yields its core, so that with more threads
// than cores the threads that have work can run.
//
// When other programs want the cores, a worker that loses its own runs again after their time slices, of some
// milliseconds: some hundred steps of a pass. So a barrier waits for work, not for workers (gs_barrier), and a job ends
// without those that have no core.
//
// A worker that yields runs again after the others' time slices too, and one that sleeps is woken at once. So one whose
// core was taken from it sleeps at its next barriers.
#if defined(__linux__)
#define _GNU_SOURCE
#endif
#include "pool.h"
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#if defined(__linux__)
#include <linux/futex.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#define SPIN_NS 200000  // how long a worker spins after a job, and at a barrier
#define TAKEN_NS 100000 // a core that a yield gives back after this time may have been taken by another thread
// Barriers at most at which a worker then does not yield; from time to time it tries, and doubles or halves their
// number.
#define CROWDED 1000
#define LOOK_NS 1000000 // after which a worker that sleeps at a barrier looks whether it was overlooked
#define PAUSES 400      // pause instructions before the first yield, and between two readings of the clock: 10 to 20 us

struct gs_sleep {
	pthread_mutex_t mutex;
	pthread_cond_t wake;
};

struct gs_thread {
	pthread_t id;
	gs_worker *worker;
};

int64_t gs_now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

// p->arrived counts iterations in its lower bits, and above them workers that sleep.
#define GS_ASLEEP ((uint64_t)1 << 48)

static int is_passed(gs_pool *p, uint32_t phase) {
	return atomic_load_explicit(&p->passed, memory_order_acquire) != phase;
}

#if defined(__linux__)
// The worker that ends a phase wakes those that it finds in the counter. One that registers later finds the next phase
// and does not sleep, unless the other loses its core between its two writes; it looks again after LOOK_NS.
static void sleep_until(gs_pool *p, uint32_t phase) {
	const struct timespec look = {.tv_nsec = LOOK_NS};
	atomic_fetch_add_explicit(&p->arrived, GS_ASLEEP, memory_order_acq_rel);
	while (!is_passed(p, phase)) syscall(SYS_futex, &p->passed, FUTEX_WAIT_PRIVATE, phase, &look, NULL, 0);
}

static void wake_all(gs_pool *p) { syscall(SYS_futex, &p->passed, FUTEX_WAKE_PRIVATE, p->n, NULL, NULL, 0); }

static long switches(void) {
	struct rusage u;
	return getrusage(RUSAGE_THREAD, &u) == 0 ? u.ru_nvcsw + u.ru_nivcsw : 0;
}

// Whether another thread wants this core. A yield takes long, too, when a hypervisor takes the core; then no thread is
// switched to.
static int is_wanted(void) {
	const long before = switches();
	sched_yield();
	return switches() != before;
}
#else
static void sleep_until(gs_pool *p, uint32_t phase) {
	while (!is_passed(p, phase)) sched_yield();
}

static void wake_all(gs_pool *p) {}
static int is_wanted(void) { return 0; }
#endif

static void wait_until(gs_worker *w, uint32_t phase) {
	gs_pool *p = w->pool;
	for (int i = 0; i < PAUSES; i++) {
		if (is_passed(p, phase)) return;
		pause_core();
	}
	int64_t began = gs_now(), now = began;
	while (w->crowded == 0 && now - began < SPIN_NS) {
		sched_yield();
		int64_t before = now;
		now = gs_now();
		if (now - before > TAKEN_NS && is_wanted()) {
			w->backoff = w->backoff < CROWDED / 2 ? 2 * w->backoff + 1 : CROWDED;
			w->crowded = w->backoff;
		}
		if (is_passed(p, phase)) {
			if (w->crowded == 0) w->backoff /= 2;
			return;
		}
	}
	sleep_until(p, phase);
}

static uint64_t add_done(gs_worker *w, int64_t done) {
	w->done = 0;
	return atomic_fetch_add_explicit(&w->pool->arrived, (uint64_t)done, memory_order_acq_rel) + (uint64_t)done;
}

int gs_count(gs_worker *w) {
	if (w->n == 1 || w->pool->everyone) return 0; // no other share to look at, or the phase ends with an arrival
	w->last = add_done(w, w->done) % GS_ASLEEP == (uint64_t)w->count;
	return w->last;
}

// arrive counts the iterations of a phase that a worker has done. Who counts the last ends the phase: arrive returns 1
// to that worker.
static int arrive(gs_worker *w) {
	gs_pool *p = w->pool;
	if (w->count == 0) { // a phase without iterations ends when a worker has come
		w->count = 1;
		w->victim = 0;
		gs_take(w);
	}
	if (gs_cancelled(p))
		while (gs_take(w) >= 0) {} // and does nothing with them
	int64_t count = w->count, done = w->done;
	if (p->everyone) {
		count += w->n;
		done++;
	}
	const uint32_t next = ++w->phase;
	const int last = w->last;
	w->count = w->done = w->last = 0;
	if (w->crowded > 0) w->crowded--;
	if (done == 0 && !last) return 0;
	const uint64_t there = last ? atomic_load_explicit(&p->arrived, memory_order_relaxed) : add_done(w, done);
	if (!last && there % GS_ASLEEP != (uint64_t)count) return 0;
	atomic_store_explicit(&p->arrived, 0, memory_order_relaxed);
	if (gs_cancelled(p) && atomic_load_explicit(&p->stop, memory_order_relaxed) < 0)
		atomic_store_explicit(&p->stop, next, memory_order_relaxed);
	atomic_store_explicit(&p->passed, next, memory_order_release);
	if (there >= GS_ASLEEP) wake_all(p);
	return 1;
}

static void leave(gs_worker *w) { atomic_store_explicit(&w->in, 0, memory_order_release); }

// enter returns 1 if the job of a worker has not ended. Until the worker leaves, the job's caller does not return: the
// caller closes the job before it reads `in`, and this writes `in` before it reads which job is open.
static int enter(gs_worker *w) {
	atomic_store(&w->in, 1);
	if (atomic_load(&w->pool->open) == w->job) return 1;
	leave(w);
	return 0;
}

static int is_in(gs_worker *w) { return atomic_load_explicit(&w->in, memory_order_acquire); }

int gs_barrier(gs_worker *w) {
	if (!is_in(w)) return 0;
	if (arrive(w)) return 1;
	if (w->id == 0) {
		wait_until(w, w->phase - 1);
		return 1;
	}
	leave(w);
	wait_until(w, w->phase - 1);
	return enter(w);
}

// await returns p->job as soon as it is not `seen`.
static uint64_t await(gs_worker *w, uint64_t seen) {
	gs_pool *p = w->pool;
	uint64_t job;
	int64_t until = 0;
	for (;;) {
		for (int i = 0; i < PAUSES; i++) {
			job = atomic_load_explicit(&p->job, memory_order_acquire);
			if (job != seen) return job;
			pause_core();
		}
		if (w->crowded > 0) break;
		int64_t now = gs_now();
		if (until == 0)
			until = now + SPIN_NS;
		else if (now > until)
			break;
		sched_yield();
	}
	// No wake-up is lost: post writes job before it reads sleepers, and this writes sleepers before it reads job.
	pthread_mutex_lock(&p->sleep->mutex);
	atomic_fetch_add(&p->sleepers, 1);
	while ((job = atomic_load(&p->job)) == seen) pthread_cond_wait(&p->sleep->wake, &p->sleep->mutex);
	atomic_fetch_sub(&p->sleepers, 1);
	pthread_mutex_unlock(&p->sleep->mutex);
	return job;
}

static void post(gs_pool *p) {
	const uint64_t job = atomic_load(&p->job) + 1;
	atomic_store_explicit(&p->open, job, memory_order_release);
	atomic_store(&p->job, job);
	if (atomic_load(&p->sleepers) > 0) {
		pthread_mutex_lock(&p->sleep->mutex);
		pthread_cond_broadcast(&p->sleep->wake);
		pthread_mutex_unlock(&p->sleep->mutex);
	}
}

static void *thread_main(void *arg) {
	gs_worker *w = ((struct gs_thread *)arg)->worker;
	gs_pool *p = w->pool;
	char name[32];
	snprintf(name, sizeof name, w->id < 10 ? "gpt2scope-cpu-%d" : "gpt2scope-cpu%d", w->id);
	name[15] = 0; // the system's limit
#if defined(__linux__)
	pthread_setname_np(pthread_self(), name);
#elif defined(__APPLE__)
	pthread_setname_np(name);
#endif
	for (;;) {
		w->job = await(w, w->job);
		if (atomic_load(&p->quit)) return NULL;
		if (!enter(w)) continue;
		w->phase = p->first;
		w->count = w->done = 0;
		p->fn(w, p->arg);
		if (!is_in(w)) continue;
		arrive(w);
		leave(w);
	}
}

// close returns when no worker is in the job any more. All work is done, so that one that is will leave within a
// microsecond, if it has a core.
static void close_job(gs_pool *p) {
	atomic_store(&p->open, 0);
	for (int i = 1; i < p->n; i++)
		for (int n = 1; atomic_load(&p->workers[i].in); n++) {
			if (n % PAUSES == 0) sched_yield();
			pause_core();
		}
}

void gs_pool_run(gs_pool *p, void (*fn)(gs_worker *, void *), void *arg, int everyone) {
	gs_worker *w = &p->workers[0];
	p->fn = fn;
	p->arg = arg;
	p->everyone = everyone;
	p->first = w->phase;
	atomic_store_explicit(&p->stop, -1, memory_order_relaxed);
	if (p->n > 1) post(p);
	fn(w, arg);
	gs_barrier(w);
	if (p->n > 1) close_job(p);
}

static void stop_threads(gs_pool *p, int started) {
	atomic_store(&p->quit, 1);
	post(p);
	for (int i = 0; i < started; i++) pthread_join(p->threads[i].id, NULL);
}

static void release(gs_pool *p) {
	if (p->sleep) {
		pthread_mutex_destroy(&p->sleep->mutex);
		pthread_cond_destroy(&p->sleep->wake);
	}
	gs_free(p->scratch, (size_t)p->n * GS_SCRATCH * sizeof(float));
	gs_free(p->shared, GS_SHARED);
	gs_free(p->tickets, (size_t)p->n * sizeof(gs_ticket));
	free(p->sleep);
	free(p->threads);
	gs_free(p->workers, (size_t)p->n * sizeof *p->workers);
	gs_free(p, sizeof *p);
}

gs_pool *gs_pool_create(int threads, const gs_kernels *kernels) {
	if (threads < 1 || threads > GS_MAX_THREADS || !kernels) return NULL;
	gs_pool *p = gs_alloc(sizeof *p);
	if (!p) return NULL;
	p->n = threads;
	p->kernels = kernels;
	p->threads = calloc((size_t)threads, sizeof *p->threads);
	p->workers = gs_alloc((size_t)threads * sizeof *p->workers);
	p->tickets = gs_alloc((size_t)threads * sizeof *p->tickets);
	p->scratch = gs_alloc((size_t)threads * GS_SCRATCH * sizeof(float));
	p->shared = gs_alloc(GS_SHARED);
	if (p->scratch) gs_huge_pages(p->scratch, (size_t)threads * GS_SCRATCH * sizeof(float), 0);
	p->sleep = malloc(sizeof *p->sleep);
	if (p->sleep) {
		pthread_mutex_init(&p->sleep->mutex, NULL);
		pthread_cond_init(&p->sleep->wake, NULL);
	}
	if (!p->threads || !p->workers || !p->tickets || !p->scratch || !p->shared || !p->sleep) {
		release(p);
		return NULL;
	}
	for (int i = 0; i < threads; i++)
		p->workers[i] = (gs_worker){
			.pool = p, .id = i, .n = threads, .in = i == 0, .scratch = p->scratch + (size_t)i * GS_SCRATCH};

	// Workers block signals, as Go's handlers must run on Go's threads. Faults are not blocked: the thread that causes one
	// gets it.
	sigset_t all, old;
	sigfillset(&all);
	sigdelset(&all, SIGSEGV);
	sigdelset(&all, SIGBUS);
	sigdelset(&all, SIGFPE);
	sigdelset(&all, SIGILL);
	sigdelset(&all, SIGTRAP);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	int started = 0;
	while (started < threads - 1) {
		struct gs_thread *t = &p->threads[started];
		t->worker = &p->workers[started + 1];
		if (pthread_create(&t->id, NULL, thread_main, t) != 0) break;
		started++;
	}
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (started < threads - 1) {
		stop_threads(p, started);
		release(p);
		return NULL;
	}
	return p;
}

void gs_pool_destroy(gs_pool *p) {
	if (!p) return;
	stop_threads(p, p->n - 1);
	release(p);
}

static void barrier_job(gs_worker *w, void *arg) {
	int64_t count = *(int64_t *)arg;
	for (int64_t i = 0; i < count; i++) gs_barrier(w);
}

double gs_bench_barrier(gs_pool *p, int64_t count) {
	int64_t start = gs_now();
	gs_pool_run(p, barrier_job, &count, 1);
	return (double)(gs_now() - start) * 1e-9;
}

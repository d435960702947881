// The thread pool.
//
// A decode step of a small model takes tens of microseconds, less than it takes to wake a sleeping thread. So workers spin for SPIN_NS
// after a job before they sleep: they stay awake between two tokens, and the cores are free within a millisecond after the last one.
// A worker that has spun for PAUSES also yields its core, so that with more threads than cores the threads that have work can run.
//
// At a barrier yielding is not enough when other programs want the cores: a worker that yields runs again after their time slices, and
// the others wait for it at the next barrier. A worker that sleeps is woken at once. So one whose core was taken from it sleeps
// at its next barriers.
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
#define CROWDED 1000    // barriers at most at which a worker then does not yield; from time to time it tries, and doubles or halves their number
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

static inline void pause_core(void) {
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("isb" ::: "memory");
#endif
}

static int is_passed(gs_pool *p, uint32_t passed) { return atomic_load_explicit(&p->passed, memory_order_acquire) != passed; }

#if defined(__linux__)
// The last worker to arrive wakes those that it finds in the counter. One that registers later finds the next generation and does not
// sleep, unless the last worker loses its core between its two writes; it looks again after LOOK_NS.
static void sleep_until(gs_pool *p, uint32_t passed) {
	const struct timespec look = {.tv_nsec = LOOK_NS};
	atomic_fetch_add_explicit(&p->arrived, GS_ASLEEP, memory_order_acq_rel);
	while (!is_passed(p, passed)) syscall(SYS_futex, &p->passed, FUTEX_WAIT_PRIVATE, passed, &look, NULL, 0);
}

static void wake_all(gs_pool *p) { syscall(SYS_futex, &p->passed, FUTEX_WAKE_PRIVATE, p->n, NULL, NULL, 0); }

static long switches(void) {
	struct rusage u;
	return getrusage(RUSAGE_THREAD, &u) == 0 ? u.ru_nvcsw + u.ru_nivcsw : 0;
}

// Whether another thread wants this core. A yield takes long, too, when a hypervisor takes the core; then no thread is switched to.
static int is_wanted(void) {
	const long before = switches();
	sched_yield();
	return switches() != before;
}
#else
static void sleep_until(gs_pool *p, uint32_t passed) {
	while (!is_passed(p, passed)) sched_yield();
}

static void wake_all(gs_pool *p) {}
static int is_wanted(void) { return 0; }
#endif

static void wait_until(gs_worker *w, uint32_t passed) {
	gs_pool *p = w->pool;
	for (int i = 0; i < PAUSES; i++) {
		if (is_passed(p, passed)) return;
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
		if (is_passed(p, passed)) {
			if (w->crowded == 0) w->backoff /= 2;
			return;
		}
	}
	sleep_until(p, passed);
}

// A barrier of a counter and a generation number: the last worker to arrive resets the counter and increments the generation.
void gs_barrier(gs_worker *w) {
	gs_pool *p = w->pool;
	// The next phase's tickets were last used in the phase before this one, which all workers have left.
	atomic_store_explicit(&p->tickets[2 * w->id + ((w->phase + 1) & 1)].next, 0, memory_order_relaxed);
	w->phase++;
	if (w->n == 1) {
		if (gs_cancelled(p)) p->stop = 1;
		return;
	}
	if (w->crowded > 0) w->crowded--;
	uint32_t passed = atomic_load_explicit(&p->passed, memory_order_relaxed);
	uint32_t there = atomic_fetch_add_explicit(&p->arrived, 1, memory_order_acq_rel);
	if (there % GS_ASLEEP != (uint32_t)w->n - 1) {
		wait_until(w, passed);
		return;
	}
	atomic_store_explicit(&p->arrived, 0, memory_order_relaxed);
	if (gs_cancelled(p)) p->stop = 1;
	atomic_store_explicit(&p->passed, passed + 1, memory_order_release);
	if (there >= GS_ASLEEP) wake_all(p);
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
	atomic_store(&p->job, (atomic_load(&p->job) / GS_WORKERS + 1) * GS_WORKERS + (uint64_t)p->used);
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
	uint64_t seen = 0;
	for (;;) {
		seen = await(w, seen);
		if (atomic_load(&p->quit)) return NULL;
		if ((uint64_t)w->id >= seen % GS_WORKERS) continue; // the job is over without this worker, and p->fn may be that of the next
		p->fn(w, p->arg);
		gs_barrier(w);
	}
}

void gs_pool_use(gs_pool *p, int workers) {
	if (workers == p->used) return;
	const unsigned phase = p->workers[0].phase;
	for (int i = 0; i < workers; i++) { // those that were not used have missed phases
		p->workers[i].n = workers;
		p->workers[i].phase = phase;
		atomic_store_explicit(&p->tickets[2 * i].next, 0, memory_order_relaxed);
		atomic_store_explicit(&p->tickets[2 * i + 1].next, 0, memory_order_relaxed);
	}
	p->used = workers;
}

void gs_pool_run(gs_pool *p, void (*fn)(gs_worker *, void *), void *arg) {
	p->fn = fn;
	p->arg = arg;
	if (p->used > 1) post(p);
	fn(&p->workers[0], arg);
	gs_barrier(&p->workers[0]);
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
	gs_free(p->tickets, (size_t)p->n * 2 * sizeof(gs_ticket));
	free(p->sleep);
	free(p->threads);
	gs_free(p->workers, (size_t)p->n * sizeof *p->workers);
	gs_free(p, sizeof *p);
}

gs_pool *gs_pool_create(int threads, const gs_kernels *kernels) {
	if (threads < 1 || threads > GS_MAX_THREADS || !kernels) return NULL;
	gs_pool *p = gs_alloc(sizeof *p);
	if (!p) return NULL;
	p->n = p->used = threads;
	p->kernels = kernels;
	p->threads = calloc((size_t)threads, sizeof *p->threads);
	p->workers = gs_alloc((size_t)threads * sizeof *p->workers);
	p->tickets = gs_alloc((size_t)threads * 2 * sizeof *p->tickets);
	p->scratch = gs_alloc((size_t)threads * GS_SCRATCH * sizeof(float));
	if (p->scratch) gs_small_pages(p->scratch, (size_t)threads * GS_SCRATCH * sizeof(float));
	p->sleep = malloc(sizeof *p->sleep);
	if (p->sleep) {
		pthread_mutex_init(&p->sleep->mutex, NULL);
		pthread_cond_init(&p->sleep->wake, NULL);
	}
	if (!p->threads || !p->workers || !p->tickets || !p->scratch || !p->sleep) {
		release(p);
		return NULL;
	}
	for (int i = 0; i < threads; i++)
		p->workers[i] = (gs_worker){.pool = p, .id = i, .n = threads, .scratch = p->scratch + (size_t)i * GS_SCRATCH};

	// Workers block signals, as Go's handlers must run on Go's threads. Faults are not blocked: the thread that causes one gets it.
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
	gs_pool_run(p, barrier_job, &count);
	return (double)(gs_now() - start) * 1e-9;
}

// The functions of kernels.h that run on a pool: the interpreter of steps, packing and measuring.
#include "divide.h"
#include "version.h"

typedef struct run {
	const gs_step *steps;
	int from, to;
	int64_t *stamps;
} run;

// is_stopped tells whether the pass was cancelled before the phase in which a worker is: all workers leave it at the
// same step.
static int is_stopped(const gs_worker *w) {
	const int64_t stop = atomic_load_explicit(&w->pool->stop, memory_order_relaxed);
	return stop >= 0 && (int32_t)(w->phase - (uint32_t)stop) >= 0;
}

static void run_steps(gs_worker *w, void *arg) {
	const run r = *(const run *)arg;
	const gs_kernels *k = w->pool->kernels;
	int64_t *stamp = r.stamps ? r.stamps + 2 * w->id : NULL;
	for (int i = r.from; i < r.to; i++) {
		if (stamp) stamp[0] = gs_now();
		k->op[r.steps[i].op](w, &r.steps[i]);
		if (stamp) {
			stamp[1] = gs_now();
			stamp += 2 * w->pool->n;
		}
		if (i + 1 == r.to) break; // the job's own barrier follows
		if (!gs_barrier(w) || is_stopped(w)) break;
	}
}

int gs_run(gs_pool *p, const gs_step *steps, int from, int to, int64_t *stamps, const int32_t *cancel) {
	run r = {steps, from, to, stamps};
	p->cancel = cancel;
	gs_pool_run(p, run_steps, &r, stamps != NULL);
	p->cancel = NULL;
	return p->stop >= 0;
}

// ---- products ----

void gs_join(gs_pool *p, gs_step *steps, int n) {
	for (int i = 1; i < n && p->kernels->join; i++) p->kernels->join(p->shared, steps + i - 1, steps + i);
}

// few_rows is the rows of a register tile: MR.
static int64_t few_rows(int isa) { return isa >= GS_AVX512 ? 12 : isa == GS_PORTABLE ? 4 : 6; }

int64_t gs_equal_rows(int isa, int64_t K) {
	const int64_t most = GS_SCRATCH / (row_distance(K) + GS_NR) - 1; // op_linear: of every kind of weight
	return most < 1 ? 1 : most < few_rows(isa) ? most : few_rows(isa);
}

int64_t gs_divide(int isa, int64_t threads, int64_t M, int64_t N, int64_t K, int bf16, int *kernel) {
	const int64_t mr = few_rows(isa);
	const int64_t panels = gs_ceil(N, GS_NR);
	*kernel = GS_FEW_ROWS;
	if (M <= mr && M * row_distance(K) <= GS_SCRATCH) // op_linear
		return M == 1 && isa >= GS_AVX512 ? gs_ceil(panels, gs_panels_at_once(panels, threads, 4)) : panels; // 4 is GS_GP
	gs_parts p;
	if (bf16 && isa >= GS_AVX512_BF16 && K <= BK_MAX) {
		*kernel = GS_UNITS;
		p = divide_bf16(M, panels, K, threads, isa == GS_AMX ? 32 : mr);
	} else if (isa == GS_AMX && M >= GS_SPLIT_ROWS) {
		*kernel = GS_UNITS;
		p = divide_split(M, panels, threads, 1);
	} else {
		*kernel = GS_MANY_ROWS;
		p = divide_many(M, panels, K, 0, threads, mr);
	}
	return p.rows * p.panels;
}

// ---- packing ----

static void pack_job(gs_worker *w, void *arg) { w->pool->kernels->pack(w, arg); }

int64_t gs_pack(gs_pool *p, const gs_weight *w, const void *src, int32_t src_dtype, int32_t transposed, int64_t r0,
		int64_t r1) {
	gs_pack_job job = {.w = w, .src = src, .src_dtype = src_dtype, .transposed = transposed, .r0 = r0, .r1 = r1};
	gs_pool_run(p, pack_job, &job, 0);
	return job.bad;
}

void gs_pack_file(gs_pool *p, int fd, gs_source *sources, int64_t n) {
	gs_pack_job job = {.fd = fd, .sources = sources, .n = n};
	gs_pool_run(p, pack_job, &job, 0);
}

size_t gs_weight_bytes(int64_t K, int64_t N, int dtype, int rows) {
	size_t panels = (size_t)(N + GS_NR - 1) / GS_NR;
	if (rows) return panels * GS_NR * (size_t)((K + GS_NR - 1) / GS_NR * GS_NR) * (dtype == GS_BF16 ? 2 : 4);
	if (dtype == GS_Q8) return panels * (size_t)((K + GS_QB - 1) / GS_QB) * GS_Q8_BLOCK;
	if (dtype == GS_BF16) return panels * (size_t)((K + 1) / 2) * 2 * GS_NR * 2;
	return panels * (size_t)K * GS_NR * 4;
}

void gs_maxima(int isa, float *maxima, const float *x, int64_t n, int64_t block) {
	gs_kernels_of(isa)->maxima(maxima, x, n, block);
}

size_t gs_attention_work(int B, int NH, int HS, int S) {
	// The layout of attention_one: for each block of GS_KEYS keys a maximum and a sum, in a panel's row, then a row of the
	// output.
	return (size_t)(B * gs_ceil(S, GS_KEYS) * NH * (gs_ceil(HS, GS_NR) * GS_NR + GS_NR));
}

// ---- measuring ----

typedef struct bench {
	int which;
	int64_t count, n;
	const float *p;
	_Atomic int64_t ops;
	float sink[GS_MAX_THREADS];
} bench;

static void arithmetic_job(gs_worker *w, void *arg) {
	bench *b = arg;
	int64_t ops = 0;
	b->sink[w->id] = w->pool->kernels->arithmetic[b->which](w, b->count, &ops);
	atomic_fetch_add(&b->ops, ops);
}

double gs_bench_arithmetic(gs_pool *p, int which, int64_t count, int64_t *ops) {
	bench b = {.which = which, .count = count};
	int64_t start = gs_now();
	if (p->kernels->arithmetic[which]) gs_pool_run(p, arithmetic_job, &b, 1);
	*ops = b.ops;
	return (double)(gs_now() - start) * 1e-9;
}

static void fill_job(gs_worker *w, void *arg) {
	bench *b = arg;
	float *p = (float *)b->p;
	int64_t lo, hi;
	gs_share(w, b->n / 1024, &lo, &hi);
	if (w->id == w->n - 1) hi = (b->n + 1023) / 1024;
	for (int64_t i = lo * 1024; i < hi * 1024 && i < b->n; i++) p[i] = (float)(i % 251 - 125) * 0.01f;
}

void gs_bench_fill(gs_pool *p, float *x, int64_t n) {
	bench b = {.n = n, .p = x};
	gs_pool_run(p, fill_job, &b, 1);
}

static void read_job(gs_worker *w, void *arg) {
	bench *b = arg;
	const int64_t n = b->n / 1024 * 1024;
	for (int64_t i = gs_first(w, gs_ceil(n, GS_ARRAY_CHUNK)); i >= 0; i = gs_next(w)) {
		const int64_t lo = i * GS_ARRAY_CHUNK, left = n - lo;
		b->sink[w->id] = w->pool->kernels->read(b->p + lo, left < GS_ARRAY_CHUNK ? left : GS_ARRAY_CHUNK);
	}
}

static void copy_job(gs_worker *w, void *arg) {
	bench *b = arg;
	for (int64_t i = gs_first(w, b->n / (2 * GS_ARRAY_CHUNK)); i >= 0; i = gs_next(w)) {
		float *x = (float *)b->p + i * 2 * GS_ARRAY_CHUNK;
		w->pool->kernels->copy(x + GS_ARRAY_CHUNK, x, GS_ARRAY_CHUNK, b->which);
	}
}

double gs_bench_copy(gs_pool *p, int past, float *x, int64_t n) {
	bench b = {.which = past, .n = n, .p = x};
	int64_t start = gs_now();
	gs_pool_run(p, copy_job, &b, 1);
	return (double)(gs_now() - start) * 1e-9;
}

double gs_bench_read(gs_pool *p, const float *x, int64_t n) {
	bench b = {.n = n, .p = x};
	int64_t start = gs_now();
	gs_pool_run(p, read_job, &b, 1);
	return (double)(gs_now() - start) * 1e-9;
}

// The interpreter of steps, the choice of an instruction set, and packing's entry points.
#if defined(__linux__)
#define _GNU_SOURCE
#endif
#include "pool.h"
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif
#if GS_HAVE_AMX
#include <errno.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

typedef struct run {
	const gs_step *steps;
	int from, to;
	int64_t *stamps;
} run;

static void run_steps(gs_worker *w, void *arg) {
	const run *r = arg;
	const gs_kernels *k = w->pool->kernels;
	int64_t *stamp = r->stamps ? r->stamps + 2 * w->id : NULL;
	for (int i = r->from; i < r->to; i++) {
		if (stamp) stamp[0] = gs_now();
		k->op[r->steps[i].op](w, &r->steps[i]);
		if (stamp) {
			stamp[1] = gs_now();
			stamp += 2 * w->n;
		}
		if (i + 1 == r->to) break; // the job's own barrier follows
		gs_barrier(w);
		if (w->pool->stop) break;
	}
}

int gs_run(gs_pool *p, const gs_step *steps, int from, int to, int64_t *stamps, const int32_t *cancel) {
	run r = {steps, from, to, stamps};
	p->cancel = cancel;
	p->stop = 0;
	gs_pool_run(p, run_steps, &r);
	p->cancel = NULL;
	return p->stop;
}

// ---- instruction sets ----

#if defined(__x86_64__)
extern const gs_kernels gs_kernels_avx512_vnni, gs_kernels_avx512, gs_kernels_avx2_vnni, gs_kernels_avx2;
#if GS_HAVE_DOT
extern const gs_kernels gs_kernels_avx512_bf16;
#endif
#if GS_HAVE_AMX
extern const gs_kernels gs_kernels_amx;
#endif
#elif defined(__aarch64__)
extern const gs_kernels gs_kernels_neon_dot, gs_kernels_neon;
#endif
extern const gs_kernels gs_kernels_portable;

const gs_kernels *gs_kernels_of(int isa) {
	switch (isa) {
#if defined(__x86_64__)
#if GS_HAVE_AMX
	case GS_AMX: return &gs_kernels_amx;
#endif
#if GS_HAVE_DOT
	case GS_AVX512_BF16: return &gs_kernels_avx512_bf16;
#endif
	case GS_AVX512_VNNI: return &gs_kernels_avx512_vnni;
	case GS_AVX512: return &gs_kernels_avx512;
	case GS_AVX2_VNNI: return &gs_kernels_avx2_vnni;
	case GS_AVX2: return &gs_kernels_avx2;
#elif defined(__aarch64__)
	case GS_NEON_DOT: return &gs_kernels_neon_dot;
	case GS_NEON: return &gs_kernels_neon;
#endif
	case GS_PORTABLE: return &gs_kernels_portable;
	}
	return NULL;
}

#if defined(__x86_64__)
// has_avx_vnni looks at leaf 7, subleaf 1, EAX bit 4 (Intel, Architecture Instruction Set Extensions, CPUID), for which older compilers
// have no name. That the system saves AVX's registers is known from AVX2.
static int has_avx_vnni(void) {
	unsigned a, b, c, d;
	return __get_cpuid_count(7, 0, &a, &b, &c, &d) && a >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 4 & 1);
}
#endif

#if GS_HAVE_AMX
static int amx_error; // of the request, once it was made

// Linux gives a process the tile registers when it asks (Documentation/arch/x86/xstate.rst): a thread's state that is saved on a switch,
// and the frame of a signal, grow by 8 KiB then.
static void request_tiles(void) {
	enum { REQUEST = 0x1023, TILE_DATA = 18 }; // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
	if (syscall(SYS_arch_prctl, REQUEST, TILE_DATA) != 0) amx_error = errno;
}

static int amx_supported(void) {
	unsigned a, b, c, d, low, high;
	const unsigned tile_bf16 = 1u << 22 | 1u << 24, tile_state = 1u << 17 | 1u << 18, osxsave = 1u << 27;
	if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & tile_bf16) != tile_bf16) return 0;
	if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & osxsave)) return 0;
	__asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0)); // does the system save them?
	if ((low & tile_state) != tile_state) return 0;
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, request_tiles);
	return amx_error == 0;
}

int gs_amx_refused(void) { return amx_supported() ? 0 : amx_error; }
#else
int gs_amx_refused(void) { return 0; }
#endif

int gs_isa_supported(int isa) {
	switch (isa) {
	case GS_PORTABLE: return 1;
#if defined(__x86_64__)
	case GS_AVX2: return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
	case GS_AVX2_VNNI: return gs_isa_supported(GS_AVX2) && has_avx_vnni();
	case GS_AVX512_VNNI: return gs_isa_supported(GS_AVX512) && __builtin_cpu_supports("avx512vnni");
	case GS_AVX512:
		return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
		       __builtin_cpu_supports("avx512vl");
#if GS_HAVE_DOT
	case GS_AVX512_BF16: return gs_isa_supported(GS_AVX512_VNNI) && __builtin_cpu_supports("avx512bf16");
#endif
#if GS_HAVE_AMX
	case GS_AMX: return gs_isa_supported(GS_AVX512_BF16) && amx_supported();
#endif
#elif defined(__aarch64__)
	case GS_NEON: return 1; // part of the base architecture
	case GS_NEON_DOT:
#if defined(__linux__)
		return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
#elif defined(__APPLE__)
		return 1; // all of Apple's own processors in Macs
#endif
#endif
	}
	return 0;
}

const char *gs_isa_name(int isa) {
	static const char *const names[GS_ISAS] = {
		[GS_PORTABLE] = "portable", [GS_NEON] = "neon", [GS_NEON_DOT] = "neon-dot", [GS_AVX2] = "avx2",
		[GS_AVX2_VNNI] = "avx2-vnni", [GS_AVX512] = "avx512", [GS_AVX512_VNNI] = "avx512-vnni", [GS_AVX512_BF16] = "avx512-bf16",
		[GS_AMX] = "amx"};
	return isa >= 0 && isa < GS_ISAS ? names[isa] : NULL;
}

// ---- packing ----

static void pack_job(gs_worker *w, void *arg) { w->pool->kernels->pack(w, arg); }

int64_t gs_pack(gs_pool *p, const gs_weight *w, const void *src, int src_dtype, int transposed, int64_t r0, int64_t r1) {
	gs_pack_job job = {.w = w, .src = src, .src_dtype = src_dtype, .transposed = transposed, .r0 = r0, .r1 = r1};
	gs_pool_run(p, pack_job, &job);
	return job.bad;
}

size_t gs_weight_bytes(int64_t K, int64_t N, int dtype, int rows) {
	size_t panels = (size_t)(N + GS_NR - 1) / GS_NR;
	if (rows) return panels * GS_NR * (size_t)((K + GS_NR - 1) / GS_NR * GS_NR) * (dtype == GS_BF16 ? 2 : 4);
	if (dtype == GS_Q8) return panels * (size_t)((K + GS_QB - 1) / GS_QB) * GS_Q8_BLOCK;
	if (dtype == GS_BF16) return panels * (size_t)((K + 1) / 2) * 2 * GS_NR * 2;
	return panels * (size_t)K * GS_NR * 4;
}

void gs_maxima(int isa, float *maxima, const float *x, int64_t n, int64_t block) { gs_kernels_of(isa)->maxima(maxima, x, n, block); }

size_t gs_attention_work(int B, int NH, int HS, int S) {
	// As attention.h lays it out: per chunk of 256 keys, a maximum and a sum on a line of their own, and a row of the output.
	return (size_t)B * (size_t)NH * (size_t)((S + 255) / 256) * (size_t)((HS + GS_NR - 1) / GS_NR * GS_NR + GS_NR);
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
	if (p->kernels->arithmetic[which]) gs_pool_run(p, arithmetic_job, &b);
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
	gs_pool_run(p, fill_job, &b);
}

static void read_job(gs_worker *w, void *arg) {
	bench *b = arg;
	int64_t lo, hi;
	gs_share(w, b->n / 1024, &lo, &hi);
	b->sink[w->id] = w->pool->kernels->read(b->p + lo * 1024, (hi - lo) * 1024);
}

double gs_bench_read(gs_pool *p, const float *x, int64_t n) {
	bench b = {.n = n, .p = x};
	int64_t start = gs_now();
	gs_pool_run(p, read_job, &b);
	return (double)(gs_now() - start) * 1e-9;
}

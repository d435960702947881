// Which versions of the kernels this program contains, and which of them this processor can run.
#if defined(__linux__)
#define _GNU_SOURCE
#endif
#include "version.h"
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

extern const gs_kernels gs_kernels_portable, gs_kernels_neon, gs_kernels_neon_dot;
extern const gs_kernels gs_kernels_avx2, gs_kernels_avx2_vnni, gs_kernels_avx512, gs_kernels_avx512_vnni;
extern const gs_kernels gs_kernels_avx512_bf16, gs_kernels_amx;

static int always(void) { return 1; }

#if defined(__x86_64__)
static int has_avx2(void) { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }
static int has_avx512(void) {
	return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
	       __builtin_cpu_supports("avx512vl");
}
static int has_avx512_vnni(void) { return has_avx512() && __builtin_cpu_supports("avx512vnni"); }
#if GS_HAVE_DOT
static int has_avx512_bf16(void) { return has_avx512_vnni() && __builtin_cpu_supports("avx512bf16"); }
#endif

// has_avx_vnni reads CPUID leaf 7, subleaf 1, EAX bit 4 (Intel, Architecture Instruction Set Extensions Programming
// Reference), for which older compilers have no name. The check of AVX2 has shown that the system saves the AVX
// registers.
static int has_avx_vnni(void) {
	unsigned a, b, c, d;
	return has_avx2() && __get_cpuid_count(7, 0, &a, &b, &c, &d) && a >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d) &&
		(a >> 4 & 1);
}
#endif

#if GS_HAVE_AMX
static int amx_error; // errno of the request

// Linux lets a process use the tile registers after a request (Documentation/arch/x86/xstate.rst). The request makes
// the saved state of threads and the frames of signals 8 KiB larger.
static void request_tiles(void) {
	enum { REQUEST = 0x1023, TILE_DATA = 18 }; // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
	if (syscall(SYS_arch_prctl, REQUEST, TILE_DATA) != 0) amx_error = errno;
}

static int has_amx(void) {
	unsigned a, b, c, d, low, high;
	const unsigned tile = 1u << 22 | 1u << 24 | 1u << 25, tile_state = 1u << 17 | 1u << 18, osxsave = 1u << 27;
	if (!has_avx512_bf16() || !__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & tile) != tile) return 0;
	if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & osxsave)) return 0;
	__asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0)); // the register state that the system saves
	if ((low & tile_state) != tile_state) return 0;
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, request_tiles);
	return amx_error == 0;
}

int gs_amx_refused(void) { return has_amx() ? 0 : amx_error; }
#else
int gs_amx_refused(void) { return 0; }
#endif

#if defined(__aarch64__)
static int has_dot(void) {
#if defined(__linux__)
	return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
#else
	return 1; // every Apple processor in a Mac has it
#endif
}
#endif

static const char *const names[GS_ISAS] = {
	[GS_PORTABLE] = "portable", [GS_NEON] = "neon", [GS_NEON_DOT] = "neon-dot", [GS_AVX2] = "avx2",
	[GS_AVX2_VNNI] = "avx2-vnni", [GS_AVX512] = "avx512", [GS_AVX512_VNNI] = "avx512-vnni",
	[GS_AVX512_BF16] = "avx512-bf16", [GS_AMX] = "amx"};

// The versions that this program contains, and whether this processor can run them.
static const struct {
	const gs_kernels *kernels;
	int (*runs)(void);
} versions[GS_ISAS] = {
	[GS_PORTABLE] = {&gs_kernels_portable, always},
#if defined(__x86_64__)
	[GS_AVX2] = {&gs_kernels_avx2, has_avx2},
	[GS_AVX2_VNNI] = {&gs_kernels_avx2_vnni, has_avx_vnni},
	[GS_AVX512] = {&gs_kernels_avx512, has_avx512},
	[GS_AVX512_VNNI] = {&gs_kernels_avx512_vnni, has_avx512_vnni},
#if GS_HAVE_DOT
	[GS_AVX512_BF16] = {&gs_kernels_avx512_bf16, has_avx512_bf16},
#endif
#if GS_HAVE_AMX
	[GS_AMX] = {&gs_kernels_amx, has_amx},
#endif
#elif defined(__aarch64__)
	[GS_NEON] = {&gs_kernels_neon, always}, // part of the base architecture
	[GS_NEON_DOT] = {&gs_kernels_neon_dot, has_dot},
#endif
};

const gs_kernels *gs_kernels_of(int isa) { return versions[isa].kernels; }

int gs_isa_supported(int isa) { return versions[isa].kernels && versions[isa].runs(); }

const char *gs_isa_name(int isa) { return isa >= 0 && isa < GS_ISAS ? names[isa] : NULL; }

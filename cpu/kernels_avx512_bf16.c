// The kernels for x86-64 with AVX512_BF16: those of AVX512_VNNI, with bfloat16 products of many rows by dot products of
// bfloat16.
#include "version.h"
#if GS_HAVE_DOT
GS_TARGET("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512bf16,avx2,fma")
#define GS_TABLE gs_kernels_avx512_bf16
#include "avx512.h"
#define GS_DOT_VNNI
#define GS_READS_AHEAD 1 // as AMD's Zen 4 does; Intel's processors with AVX512_BF16 but for one have AMX
#define GS_BF16_TILE GS_BY_DOT
#include "kernels_impl.h"
GS_TARGET_END
#endif

// The kernels for x86-64 with AMX: those of AVX512_VNNI, with products of many rows on AMX tiles.
#include "version.h"
#if GS_HAVE_AMX
GS_TARGET("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512bf16,avx2,fma")
#define GS_TABLE gs_kernels_amx
#include "avx512.h"
#define GS_DOT_VNNI
#define GS_BF16_TILE GS_BY_AMX
#include "kernels_impl.h"
GS_TARGET_END
#endif

// The kernels for x86-64 with AVX512_BF16: those of AVX512_VNNI, with bfloat16 products of many rows by dot products of bfloat16.
#include "version.h"
#if GS_HAVE_DOT
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512bf16,avx2,fma"))), apply_to = function)
#else
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512bf16,avx2,fma")
#endif
#define GS_TABLE gs_kernels_avx512_bf16
#include "avx512.h"
#define GS_DOT_VNNI
#define GS_BF16_TILE GS_BY_DOT
#include "kernels_impl.h"
#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif

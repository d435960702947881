// The kernels for x86-64 with AVX2 and FMA: 16 registers of 8 floats, a register tile of 6 x 16.
#if defined(__x86_64__)
#include "version.h"
GS_TARGET("avx2,fma")
#define GS_TABLE gs_kernels_avx2
#define GS_VB 32
#define GS_MR 6
#define GS_NV 2
#define GS_GP 1
#define GS_GU 2
#include "kernels_impl.h"
GS_TARGET_END
GS_TARGET("avx2,fma,avxvnni")
// The version with AVX-VNNI (Intel since Alder Lake, AMD since Zen 5): dot products of bytes without AVX-512.
#define GS_DOT_VNNI
#define GS_GEMV gemv_q8_vnni
#include "q8_gemv.h"
const gs_kernels gs_kernels_avx2_vnni = GS_KERNELS(quantise_bytes, gemv_q8_vnni, gemv_q8_vnni_rows);
GS_TARGET_END
#endif

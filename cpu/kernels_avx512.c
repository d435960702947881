// The kernels for x86-64 with AVX-512.
#if defined(__x86_64__)
#include "version.h"
GS_TARGET("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")
#define GS_TABLE gs_kernels_avx512
#include "avx512.h"
#include "kernels_impl.h"
GS_TARGET_END
GS_TARGET("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,avx512vnni")
// The version with AVX512_VNNI (Intel since Cascade Lake, AMD since Zen 4): dot products of bytes.
#define GS_DOT_VNNI
#define GS_GEMV gemv_q8_vnni
#include "q8_gemv.h"
const gs_kernels gs_kernels_avx512_vnni = GS_KERNELS(quantise_bytes, gemv_q8_vnni, gemv_q8_vnni_rows);
GS_TARGET_END
#endif

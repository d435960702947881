// The kernels for 64-bit Arm, all of which have NEON and FMA: 32 registers of 4 floats, a register tile of 6 x 16.
#if defined(__aarch64__)
#define GS_TABLE gs_kernels_neon
#define GS_VB 16
#define GS_MR 6
#define GS_NV 4
#define GS_GP 1
#define GS_GU 2
#include "kernels_impl.h"

// The version with dot products of bytes (Armv8.2, nearly all processors since 2018).
#if defined(__clang__)
GS_TARGET("dotprod")
#else
GS_TARGET("arch=armv8.2-a+dotprod")
#endif
#define GS_DOT_SDOT
#define GS_GEMV gemv_q8_dot
#include "q8_gemv.h"
const gs_kernels gs_kernels_neon_dot = GS_KERNELS(quantise_bytes, gemv_q8_dot, gemv_q8_dot_rows);
GS_TARGET_END
#endif

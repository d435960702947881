// The kernels of gs_linear, each in its file.
#pragma once

#include "common.cuh"

// The naive kernel (linear.cu): any shape, any type.
int gs_linear_naive(gs_stream *s, const gs_linear_args *a);
// Matrix-vector kernels (gemv.cu): up to GS_GEMV_ROWS rows.
typedef enum {
  GS_GEMV_WIDE,      // loads weights into registers, with as many blocks as an SM has room for
  GS_GEMV_BULK,      // copies weights to shared memory by bulk copies, up to 100 KB per SM in flight
  GS_GEMV_AHEAD,     // as BULK, and prefetches the weights that follow into L2
  GS_GEMV_KINDS
} gs_gemv;
int gs_linear_gemv(gs_stream *s, const gs_linear_args *a, gs_gemv kind);
// cuBLASLt (gemm.cu).
int gs_linear_blas(gs_stream *s, const gs_linear_args *a);

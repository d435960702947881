// The kernels of gs_linear, each in its file. gemv.cu has the table of all variants.
#pragma once

#include "common.cuh"

// The variants that are not a way of gemv.cu.
enum { kAuto, kNaive, kGemv, kBlas, kFirstWay };

// The naive kernel (linear.cu): any shape, any type.
int gs_linear_naive(gs_stream *s, const gs_linear_args *a);
// Matrix-vector kernels (gemv.cu): up to GS_GEMV_ROWS rows. The one of the variant, or
// the best for the size.
int gs_linear_gemv(gs_stream *s, const gs_linear_args *a);
// cuBLASLt (gemm.cu).
int gs_linear_blas(gs_stream *s, const gs_linear_args *a);

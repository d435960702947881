// The kernels of gs_linear, each in its file. linear.cu has the table of variants.
#pragma once

#include "common.cuh"

// The naive kernel (linear.cu): any shape, any type.
int gs_linear_naive(gs_stream *s, const gs_linear_args *a);
// Matrix-vector kernels (gemv.cu): up to GS_GEMV_ROWS rows of x. Rows of W are whole 16 bytes, those of x a multiple of
// 4 values apart; x, W, gain and shift are aligned to 16 bytes.
int gs_linear_gemv(gs_stream *s, const gs_linear_args *a);
int gs_linear_gemv_watched(gs_stream *s, const gs_linear_args *a);  // the same, with kernels that stamp
bool gs_linear_gemv_takes(const gs_linear_args *a);                 // whether gs_linear_gemv does
// cuBLASLt (gemm.cu).
int gs_linear_blas(gs_stream *s, const gs_linear_args *a);
// Hopper's tensor cores (linear_wgmma.cu): bfloat16, many rows, of whole 16 bytes.
int gs_linear_wgmma(gs_stream *s, const gs_linear_args *a);
bool gs_linear_wgmma_takes(const gs_stream *s, const gs_linear_args *a);
// The same GPUs, few rows (linear_rows.cu). It wins where all blocks run at once, of more than
// 16 rows only where the kernel above takes none.
int gs_linear_rows(gs_stream *s, const gs_linear_args *a);
bool gs_linear_rows_wins(const gs_stream *s, const gs_linear_args *a);

// gs_linear: the choice of the kernel, and the naive one. It multiplies tiles in shared memory in float32, and takes
// every shape, type and epilogue; the others are checked against it.

#include "linear.cuh"

const char *const gs_linear_variants[] = {"auto", "naive", "gemv", "blas", "wgmma", "rows", nullptr};
enum { kAuto, kNaive, kGemv, kBlas, kWgmma, kRows };  // the same, as numbers

namespace {

constexpr int kTile = 64;  // rows and columns of y per block
constexpr int kDeep = 16;  // columns of x and W at a time
constexpr int kThreads = 256;

template <typename X, typename W>
__global__ __launch_bounds__(kThreads) void linear_naive(const gs_stamp stamp, const X *x, const W *w, const float *bias,
                                                         const float *gain, const float *shift, void *y, int M, int N,
                                                         int K, int ldx, int ldy, int y_bf16, int act, int accumulate,
                                                         float eps) {
  __shared__ float xs[kDeep][kTile + 1], ws[kDeep][kTile + 1];
  __shared__ float mean[kTile], scale[kTile];
  gs_let_next();
  const gs_stamped stamped(stamp);
  gs_wait();
  stamped.start();

  const int m0 = blockIdx.y * kTile, n0 = blockIdx.x * kTile;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  if (sizeof(X) > 2 && gain) {
    for (int i = warp; i < kTile && m0 + i < M; i += kThreads / 32) {
      const X *row = x + (size_t)(m0 + i) * ldx;
      float sum = 0;
      for (int k = lane; k < K; k += 32) sum += to_float(row[k]);
      const float mu = warp_sum(sum) / K;
      sum = 0;
      for (int k = lane; k < K; k += 32) sum += (to_float(row[k]) - mu) * (to_float(row[k]) - mu);
      const float var = warp_sum(sum) / K;
      if (lane == 0) {
        mean[i] = mu;
        scale[i] = rsqrtf(var + eps);
      }
    }
    __syncthreads();
  }

  // A thread computes four rows by four columns, 16 apart.
  const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
  float acc[16] = {};
  for (int k0 = 0; k0 < K; k0 += kDeep) {
    for (int i = threadIdx.x; i < kTile * kDeep; i += kThreads) {
      const int r = i / kDeep, d = i % kDeep, k = k0 + d;
      float a = 0, b = 0;
      if (k < K && m0 + r < M) {
        a = to_float(x[(size_t)(m0 + r) * ldx + k]);
        if (sizeof(X) > 2 && gain) a = (a - mean[r]) * scale[r] * gain[k] + shift[k];
      }
      if (k < K && n0 + r < N) b = to_float(w[(size_t)(n0 + r) * K + k]);
      xs[d][r] = a;
      ws[d][r] = b;
    }
    __syncthreads();
#pragma unroll
    for (int d = 0; d < kDeep; d++)
      for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++) acc[4 * i + j] = fmaf(xs[d][ty + 16 * i], ws[d][tx + 16 * j], acc[4 * i + j]);
    __syncthreads();
  }

  // The code is there once, not 16 times: the sums move down, so that they stay in registers.
#pragma unroll 1
  for (int e = 0; e < 16; e++) {
    const int m = m0 + ty + 16 * (e / 4), n = n0 + tx + 16 * (e % 4);
    float v = acc[0];
    for (int k = 0; k < 15; k++) acc[k] = acc[k + 1];
    if (m >= M || n >= N) continue;
    const size_t at = (size_t)m * ldy + n;
    v = activate(v + (bias ? bias[n] : 0.0f), act);
    if (accumulate) v += static_cast<float *>(y)[at];
    if (y_bf16)
      static_cast<bf16 *>(y)[at] = from_float<bf16>(v);
    else
      static_cast<float *>(y)[at] = v;
  }
}

template <typename X, typename W>
int launch_naive(gs_stream *s, const gs_linear_args *a) {
  const dim3 grid((a->N + kTile - 1) / kTile, (a->M + kTile - 1) / kTile);
  return gs_launch(s, "linear", linear_naive<X, W>, grid, dim3(kThreads), 0, reinterpret_cast<const X *>(a->x),
                   reinterpret_cast<const W *>(a->w), reinterpret_cast<const float *>(a->bias),
                   reinterpret_cast<const float *>(a->gain), reinterpret_cast<const float *>(a->shift),
                   reinterpret_cast<void *>(a->y), a->M, a->N, a->K, a->ldx, a->ldy, (int)(a->y_type == GS_BF16),
                   a->act, a->accumulate, a->eps);
}

}  // namespace

int gs_linear_naive(gs_stream *s, const gs_linear_args *a) {
  if (a->dtype == GS_F32) return launch_naive<float, float>(s, a);
  if (a->gain) return launch_naive<float, bf16>(s, a);
  return launch_naive<bf16, bf16>(s, a);
}

// "auto" is, of few rows, linear_rows.cu where it wins and else a matrix-vector kernel (the naive one, which takes no
// 8-bit weights, of rows that are not aligned, which no model has), else one of Hopper's tensor cores, else cuBLASLt,
// whose opening takes 200 ms and which adds to float32 faster where there are many waves of tiles.
extern "C" int gs_linear_variant(gs_stream *s, const gs_linear_args *a, int *variant) {
  GS_ENTER(s, a);
  const bool few = a->M <= GS_GEMV_ROWS,
             wgmma = (a->y_type == GS_BF16 || a->M <= GS_WGMMA_ROWS) && gs_linear_wgmma_takes(s, a);
  *variant = a->variant != kAuto            ? a->variant
             : gs_linear_rows_wins(s, a)    ? kRows
             : few && (a->M == 1 || !wgmma) ? a->dtype == GS_Q8 || gs_linear_gemv_takes(a) ? kGemv : kNaive
             : wgmma                        ? kWgmma
                                            : kBlas;
  return GS_OK;
}

extern "C" int gs_linear(gs_stream *s, const gs_linear_args *a) {
  int variant;
  if (int e = gs_linear_variant(s, a, &variant)) return e;
  if (a->dtype == GS_Q8 && variant != kGemv && variant != kRows)
    return gs_fail(GS_UNSUPPORTED, "gs_linear: 8-bit weights are for variants gemv and rows; gs_pack widens them");
  switch (variant) {
    case kNaive: return gs_linear_naive(s, a);
    case kGemv: return gs_linear_gemv(s, a);
    case kBlas: return gs_linear_blas(s, a);
    case kWgmma: return gs_linear_wgmma(s, a);
    case kRows: return gs_linear_rows(s, a);
  }
  return gs_fail(GS_ARGUMENT, "gs_linear: there is no variant %d", variant);
}

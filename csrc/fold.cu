// The sums of a product's rows by which the decode kernels apply LayerNorm to its outputs: gs_fold_args.

#include "q8.cuh"

namespace {

constexpr int FOLD_THREADS = 256;

// A warp per row of W.
template <bool Q8>
__global__ void __launch_bounds__(FOLD_THREADS)
    fold_kernel(const char *w, int row_bytes, const float *gain, const float *shift, const float *bias, float *sums,
                float *folded, int N, int K) {
  gs_let_next();
  gs_wait();
  const int row = blockIdx.x * (FOLD_THREADS / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (row >= N) return;
  const char *const from = w + (size_t)row * row_bytes;
  float s = 0, f = 0;
  for (int k = lane; k < K; k += 32) {
    const float v = Q8 ? q8_exact(from, k) : to_float(reinterpret_cast<const __nv_bfloat16 *>(from)[k]);
    s = fmaf(v, gain[k], s);
    f = fmaf(v, shift[k], f);
  }
  s = warp_sum(s), f = warp_sum(f);
  if (lane == 0) sums[row] = s, folded[row] = f + (bias ? bias[row] : 0.0f);
}

}  // namespace

extern "C" int gs_fold(gs_stream *s, const gs_fold_args *a) {
  GS_ENTER(s, a);
  const bool q8 = a->dtype == GS_Q8;
  return gs_launch(s, "fold", q8 ? fold_kernel<true> : fold_kernel<false>,
                   dim3((a->N + FOLD_THREADS / 32 - 1) / (FOLD_THREADS / 32)), FOLD_THREADS, 0, (const char *)a->w,
                   q8 ? GS_Q8_ROW(a->K) : 2 * a->K, (const float *)a->gain, (const float *)a->shift,
                   (const float *)a->bias, (float *)a->sums, (float *)a->folded, (int)a->N, (int)a->K);
}

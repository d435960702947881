// y = act(x W^T + bias), or y += that, of few rows of x in bfloat16 by tensor cores (mma), on GPUs of compute
// capability 9.0. The time is that of reading W once, and of starting:
//
// * A block has 16 rows of W, its warps each a part of K, a lane 16 bytes of two rows at a time. W depends on no other
//   kernel, so all of it is on its way to registers before gs_wait(). Rows of x go from memory to the tensor cores'
//   operands, as W does: any order of K is right that is the same for both.
// * Of a long K blocks of a cluster have a part each, and finish a part of the rows of y.
// * The order of sums depends on M and K alone.

#include "linear.cuh"
#include "q8.cuh"
#include "wgmma.cuh"

namespace {

constexpr int WARPS = 8, THREADS = 32 * WARPS;
constexpr int HIGH = 16;  // rows of W of a block

// Blocks of an SM, for which the compiler limits registers.
__host__ __device__ constexpr int resident(int KB, int M) { return M == 16 && KB < 4 ? 3 : 2; }

struct Rows {
  const void *x, *w;
  const float *bias;
  void *y;
  int M, N, K, ldx, ldy, act;
  bool add, y_bf16;
};

#ifdef GS_WGMMA
// A lane's eight weights of 32, on their way.
template <bool Q8> struct Weights;
template <> struct Weights<false> {
  uint4 v;
  __device__ void load(const char *row, int block, int q) {
    v = __ldcs(reinterpret_cast<const uint4 *>(row + block * 64 + q * 16));
  }
  __device__ void clear() { v = make_uint4(0, 0, 0, 0); }
  __device__ uint4 wide() const { return v; }
};
template <> struct Weights<true> {
  uint2 v;
  unsigned short scale;
  __device__ void load(const char *row, int block, int q) {
    v = __ldcs(reinterpret_cast<const uint2 *>(row + q8_integers(block) + q * 8));
    scale = __ldg(reinterpret_cast<const unsigned short *>(row + q8_scale(block)));
  }
  __device__ void clear() { v.x = v.y = scale = 0; }
  __device__ uint4 wide() const { return widen(v, scale); }
};
#endif

// KB: blocks of 32 along K of a warp. M: the most rows of x, 16 or 32.
template <int KB, int M, bool Q8, typename S>
__global__ void __launch_bounds__(THREADS, resident(KB, M)) gemm_rows(const S stamp, const Rows p, const int cluster) {
#ifdef GS_WGMMA
  constexpr int EACH = M * HIGH / THREADS;  // sums that a thread finishes
  constexpr int PITCH = HIGH + 4;           // floats from one row of sums to the next
  constexpr int AT_ONCE = 2;                // eights of rows of x that are multiplied at once
  __shared__ float sums[WARPS][M][PITCH], others[M][HIGH];
  gs_let_next();
  if (cluster > 1) cluster_arrive();  // this block runs: others may write to its shared memory
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, q = lane % 4;
  const int rank = cluster > 1 ? cluster_block() : 0, mine = M / cluster;  // rows of y that this block finishes
  const int blocks = p.K / 32, first = blocks * rank / cluster + warp, end = blocks * (rank + 1) / cluster;
  const int n0 = (int)blockIdx.x / cluster * HIGH;
  Weights<Q8> loaded[2][KB];
  for (int half = 0; half < 2; half++) {
    const char *const row =
        static_cast<const char *>(p.w) + (size_t)min(n0 + 8 * half + g, p.N - 1) * (Q8 ? GS_Q8_ROW(p.K) : 2 * p.K);
    for (int k = 0; k < KB; k++)
      if (first + k * WARPS < end) loaded[half][k].load(row, first + k * WARPS, q);
      else loaded[half][k].clear();
  }
  // Sum i of a block is of row i / HIGH of its part of y, and of row i % HIGH of its part of W.
  const int n = n0 + (int)threadIdx.x % HIGH;
  auto row_of = [&](int e) { return ((int)threadIdx.x + e * THREADS) / HIGH; };
  const float bias = p.bias && n < p.N ? __ldg(p.bias + n) : 0.0f;
  uint4 a[KB], b[KB];
  for (int k = 0; k < KB; k++) a[k] = loaded[0][k].wide(), b[k] = loaded[1][k].wide();
  const gs_stamped<S> stamped(stamp);
  gs_wait();
  stamped.start();
  float old[EACH];
  for (int e = 0; e < EACH; e++) {
    const int m = rank * mine + row_of(e);
    old[e] = 0;
    if (p.add && row_of(e) < mine && m < p.M && n < p.N)
      old[e] = __ldcg(static_cast<const float *>(p.y) + (size_t)m * p.ldy + n);
  }
  for (int from = 0; from < M; from += 8 * AT_ONCE) {
    uint4 x[AT_ONCE][KB];
    for (int j = 0; j < AT_ONCE; j++) {
      const bf16 *const row =
          static_cast<const bf16 *>(p.x) + (size_t)min(from + 8 * j + g, p.M - 1) * p.ldx + q * 8;
      for (int k = 0; k < KB; k++)  // beyond K weights are 0
        x[j][k] = __ldcg(reinterpret_cast<const uint4 *>(row + min(first + k * WARPS, blocks - 1) * 32));
    }
    float d[AT_ONCE][4] = {};
    for (int k = 0; k < KB; k++)
      for (int j = 0; j < AT_ONCE; j++) mma(d[j], a[k], b[k], x[j][k]);
    for (int j = 0; j < AT_ONCE; j++)
      for (int e = 0; e < 4; e++) sums[warp][from + 8 * j + 2 * q + e % 2][g + e / 2 * 8] = d[j][e];
  }
  __syncthreads();

  auto finish = [&](int e, float sum) {
    const int m = rank * mine + row_of(e);
    if (row_of(e) >= mine || m >= p.M || n >= p.N) return;
    const float z = activate(sum + bias, p.act) + old[e];
    const size_t at = (size_t)m * p.ldy + n;
    if (p.y_bf16) static_cast<bf16 *>(p.y)[at] = from_float<bf16>(z);
    else static_cast<float *>(p.y)[at] = z;
  };
  if (cluster > 1) cluster_wait();
  for (int e = 0; e < EACH; e++) {
    const int m = row_of(e), row = threadIdx.x % HIGH;
    float sum = 0;
    for (int w = 0; w < WARPS; w++) sum += sums[w][m][row];
    if (cluster == 1) finish(e, sum);
    else store_cluster1(shared_address(&others[rank * mine + m % mine][row]), m / mine, sum);
  }
  if (cluster == 1) return;
  cluster_release(), cluster_wait();
#pragma unroll
  for (int e = 0; e < EACH; e++) {
    float sum = 0;
    for (int c = 0; c < cluster; c++) sum += others[c * mine + row_of(e) % mine][threadIdx.x % HIGH];
    finish(e, sum);
  }
#endif
}

// How many blocks of a cluster divide K, 9 or more if it is too long: registers hold three blocks of 32, or four of few
// rows.
int cluster_of(const gs_linear_args *a) {
  int cluster = 1;
  while (cluster <= 8 && a->K > cluster * WARPS * 32 * (a->M <= 16 ? 4 : 3)) cluster *= 2;
  return cluster;
}

template <int KB, int M, bool Q8, typename S> int launch(gs_stream *s, const gs_linear_args *a, int cluster) {
  const Rows p = {reinterpret_cast<const void *>(a->x), reinterpret_cast<const void *>(a->w),
                  reinterpret_cast<const float *>(a->bias), reinterpret_cast<void *>(a->y), a->M, a->N, a->K, a->ldx,
                  a->ldy, a->act, a->accumulate != 0, a->y_type == GS_BF16};
  return gs_launch_as(s, "gemm_rows", gemm_rows<KB, M, Q8, S>, dim3((a->N + HIGH - 1) / HIGH * cluster),
                      dim3(THREADS), 0, {(unsigned)cluster, true}, p, cluster);
}

template <int KB, bool Q8, typename S> int launch_rows(gs_stream *s, const gs_linear_args *a, int cluster) {
  if constexpr (KB < 4)
    if (a->M > 16) return launch<KB, 32, Q8, S>(s, a, cluster);
  return launch<KB, 16, Q8, S>(s, a, cluster);
}

template <bool Q8, typename S> int launch_deep(gs_stream *s, const gs_linear_args *a) {
  const int cluster = cluster_of(a), blocks = (a->K / 32 + cluster - 1) / cluster;
  switch ((blocks + WARPS - 1) / WARPS) {
    case 1: return launch_rows<1, Q8, S>(s, a, cluster);
    case 2: return launch_rows<2, Q8, S>(s, a, cluster);
    case 3: return launch_rows<3, Q8, S>(s, a, cluster);
    default: return launch_rows<4, Q8, S>(s, a, cluster);
  }
}

bool takes(const gs_stream *s, const gs_linear_args *a) {
  return a->dtype != GS_F32 && !a->gain && a->M <= GS_FEW_ROWS && a->K % 32 == 0 && cluster_of(a) <= 8 &&
         a->ldx % 8 == 0 && (a->x | a->w) % 16 == 0 && gs_has_wgmma(s);
}

}  // namespace

bool gs_linear_rows_wins(const gs_stream *s, const gs_linear_args *a) {
  return a->M > 1 && (a->M <= 16 || !gs_linear_wgmma_takes(s, a)) && takes(s, a) &&
         ((a->dtype == GS_Q8 && a->M <= GS_GEMV_ROWS) ||
          (a->N + HIGH - 1) / HIGH * cluster_of(a) <= 2 * s->processors * 10 / 11);
}

int gs_linear_rows(gs_stream *s, const gs_linear_args *a) {
  if (!takes(s, a))
    return gs_fail(GS_UNSUPPORTED,
                   "linear: variant rows takes bfloat16 and 8 bits, up to %d rows, of multiples of 32 inputs, on GPUs "
                   "of compute capability 9.0",
                   GS_FEW_ROWS);
  return gs_with_stamps(s, [&](auto stamp) -> int {
    using S = decltype(stamp);
    return a->dtype == GS_Q8 ? launch_deep<true, S>(s, a) : launch_deep<false, S>(s, a);
  });
}

// gs_pack and gs_fold, which prepare weights. Values are converted through float32 and rounded to nearest, ties to even.
// The transposition passes through a tile in shared memory, so that source and destination are both accessed along rows.

#include <cuda_fp16.h>

#include "q8.cuh"
#include "rows.cuh"

// Not in the namespace below, where it would hide the ones for other types, and float32 would pass through float16.
__device__ inline float to_float(__half v) { return __half2float(v); }

namespace {

constexpr int THREADS = 256;

template <typename T> struct alignas(2 * sizeof(T)) Pair { T a, b; };

__device__ inline void store8(float *p, const float *v) {
  store4(p, make_float4(v[0], v[1], v[2], v[3]));
  store4(p + 4, make_float4(v[4], v[5], v[6], v[7]));
}

// Two 16-bit elements as a 32-bit word.
template <typename T> __device__ inline unsigned word(float low, float high) {
  const T a = from_float<T>(low), b = from_float<T>(high);
  return *reinterpret_cast<const unsigned short *>(&a) | (unsigned)*reinterpret_cast<const unsigned short *>(&b) << 16;
}

template <typename T> __device__ inline void store8(T *p, const float *v) {
  // In assembly, as the compiler would emit four narrow stores.
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(word<T>(v[0], v[1])), "r"(word<T>(v[2], v[3])),
               "r"(word<T>(v[4], v[5])), "r"(word<T>(v[6], v[7]))
               : "memory");
}

// A thread converts WIDTH elements of a row: 8 or 1.
template <typename S, typename D, int WIDTH>
__global__ void __launch_bounds__(THREADS)
    convert_kernel(const S *src, D *dst, uint64_t groups, unsigned per_row, int lddst) {
  gs_let_next();
  gs_wait();
  const uint64_t g = (uint64_t)blockIdx.x * THREADS + threadIdx.x;
  if (g >= groups) return;
  const uint64_t row = g / per_row, col = (g - row * per_row) * WIDTH;
  const S *from = src + g * WIDTH;
  D *to = dst + row * lddst + col;
  if constexpr (WIDTH == 1) {
    *to = from_float<D>(to_float(*from));
  } else {
    uint4 in[sizeof(S) / 2];  // 8 elements
#pragma unroll
    for (int i = 0; i < (int)sizeof(S) / 2; i++) in[i] = reinterpret_cast<const uint4 *>(from)[i];
    float v[WIDTH];
#pragma unroll
    for (int i = 0; i < WIDTH; i++) v[i] = to_float(reinterpret_cast<const S *>(in)[i]);
    store8(to, v);
  }
}

// A CTA transposes a tile of TILE x TILE elements. Lanes read and write two elements at a time if rows are aligned for
// that (pairs_in, pairs_out). The odd width of the tile avoids bank conflicts.
constexpr int TILE = 64;

template <typename S, typename D>
__global__ void __launch_bounds__(THREADS)
    transpose_kernel(const S *src, D *dst, int rows, int cols, int lddst, bool pairs_in, bool pairs_out) {
  __shared__ float tile[TILE][TILE + 1];
  gs_let_next();
  gs_wait();
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int row0 = blockIdx.y * TILE, col0 = blockIdx.x * TILE;
#pragma unroll
  for (int i = 0; i < TILE; i += THREADS / 32) {
    const int r = i + warp;
    if (row0 + r >= rows) continue;
    const S *from = src + (size_t)(row0 + r) * cols + col0;
    if (pairs_in && col0 + 2 * lane < cols) {  // cols is even, so the pair is whole
      const Pair<S> p = reinterpret_cast<const Pair<S> *>(from)[lane];
      tile[r][2 * lane] = to_float(p.a);
      tile[r][2 * lane + 1] = to_float(p.b);
    } else if (!pairs_in) {
      if (col0 + lane < cols) tile[r][lane] = to_float(from[lane]);
      if (col0 + lane + 32 < cols) tile[r][lane + 32] = to_float(from[lane + 32]);
    }
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < TILE; i += THREADS / 32) {
    const int c = i + warp;
    if (col0 + c >= cols) continue;
    D *to = dst + (size_t)(col0 + c) * lddst + row0;
    if (pairs_out && row0 + 2 * lane < rows) {  // rows and lddst are even
      Pair<D> p;
      p.a = from_float<D>(tile[2 * lane][c]);
      p.b = from_float<D>(tile[2 * lane + 1][c]);
      reinterpret_cast<Pair<D> *>(to)[lane] = p;
    } else if (!pairs_out) {
      if (row0 + lane < rows) to[lane] = from_float<D>(tile[lane][c]);
      if (row0 + lane + 32 < rows) to[lane + 32] = from_float<D>(tile[lane + 32][c]);
    }
  }
}

template <typename S, typename D> int pack(gs_stream *s, const gs_pack_args *a) {
  const S *src = (const S *)a->src;
  D *dst = (D *)a->dst;
  if (a->transpose) {
    const bool in = a->cols % 2 == 0 && gs_aligned(a->src, 2 * sizeof(S));
    const bool out = a->rows % 2 == 0 && a->lddst % 2 == 0 && gs_aligned(a->dst, 2 * sizeof(D));
    const int across = (a->cols + TILE - 1) / TILE;
    // The second dimension of a grid is at most 65535: taller matrices take several launches.
    constexpr int MOST = 65535 * TILE;
    for (int row = 0; row < a->rows; row += MOST) {
      const int rows = a->rows - row < MOST ? a->rows - row : MOST;
      const int status = gs_launch(s, "pack", transpose_kernel<S, D>, dim3(across, (rows + TILE - 1) / TILE), THREADS,
                                   0, src + (size_t)row * a->cols, dst + row, rows, a->cols, a->lddst, in, out);
      if (status != GS_OK || a->rows - row <= MOST) return status;
    }
    return GS_OK;
  }
  const bool wide = a->cols % 8 == 0 && gs_aligned(a->src, 16) && gs_aligned(a->dst, 16) && a->lddst % 8 == 0;
  const unsigned per_row = wide ? a->cols / 8 : a->cols;
  const uint64_t groups = (uint64_t)a->rows * per_row;
  return gs_launch(s, "pack", wide ? convert_kernel<S, D, 8> : convert_kernel<S, D, 1>,
                   dim3((groups + THREADS - 1) / THREADS), THREADS, 0, src, dst, groups, per_row, a->lddst);
}

// The lanes of a warp quantise a block of a row: the scheme of cpu/q8.h. A scale whose inverse is not a normal number
// becomes zero.
__device__ inline void quantise(float v, char *row, int block) {
  const float d = to_float(from_float<bf16>(warp_max(fabsf(v)) * (1.0f / 127)));
  const bool normal = d >= 0x1p-119f / 127;
  const int lane = threadIdx.x % 32;
  row[q8_integers(block) + lane] = normal ? (char)__float2int_rn(v * (1.0f / d)) : 0;
  if (lane == 0)
    *reinterpret_cast<bf16 *>(row + q8_scale(block)) = from_float<bf16>(normal ? d : 0.0f);
}

// A warp has a block.
template <typename S>
__global__ void __launch_bounds__(THREADS)
    quantise_kernel(const S *src, char *dst, uint64_t blocks, int per_row, int first, int row_bytes) {
  gs_let_next();
  gs_wait();
  const uint64_t b = ((uint64_t)blockIdx.x * THREADS + threadIdx.x) / 32;
  if (b >= blocks) return;
  const uint64_t row = b / per_row;
  quantise(to_float(src[b * 32 + threadIdx.x % 32]), dst + row * row_bytes, first + (int)(b - row * per_row));
}

// A CTA has a block of each of 32 rows of dst.
template <typename S>
__global__ void __launch_bounds__(THREADS)
    quantise_transposed_kernel(const S *src, char *dst, int cols, int first, int row_bytes) {
  __shared__ float tile[32][33];
  gs_let_next();
  gs_wait();
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, col0 = blockIdx.x * 32, row0 = blockIdx.y * 32;
#pragma unroll
  for (int i = warp; i < 32; i += THREADS / 32)
    if (col0 + lane < cols) tile[i][lane] = to_float(src[(size_t)(row0 + i) * cols + col0 + lane]);
  __syncthreads();
#pragma unroll
  for (int i = warp; i < 32; i += THREADS / 32)
    if (col0 + i < cols) quantise(tile[lane][i], dst + (size_t)(col0 + i) * row_bytes, first + blockIdx.y);
}

template <typename S> int to_q8(gs_stream *s, const gs_pack_args *a) {
  const S *src = (const S *)a->src;
  char *dst = (char *)a->dst;
  const int first = a->first / Q8_BLOCK, row_bytes = GS_Q8_ROW(a->lddst);
  if (a->transpose)
    return gs_launch(s, "pack", quantise_transposed_kernel<S>, dim3((a->cols + 31) / 32, a->rows / 32), THREADS, 0, src,
                     dst, a->cols, first, row_bytes);
  const uint64_t blocks = (uint64_t)a->rows * a->cols / Q8_BLOCK;
  return gs_launch(s, "pack", quantise_kernel<S>, dim3((blocks + THREADS / 32 - 1) / (THREADS / 32)), THREADS, 0, src,
                   dst, blocks, a->cols / Q8_BLOCK, first, row_bytes);
}

// A thread widens 8 weights.
__global__ void __launch_bounds__(THREADS)
    widen_kernel(const char *src, bf16 *dst, uint64_t groups, int per_row, int row_bytes, int lddst) {
  gs_wait();
  const uint64_t g = (uint64_t)blockIdx.x * THREADS + threadIdx.x;
  if (g >= groups) return;
  const uint64_t row = g / per_row;
  const int col = (int)(g - row * per_row) * 8;
  const char *const from = src + row * row_bytes;
  const uint2 q = *reinterpret_cast<const uint2 *>(from + q8_integers(col / Q8_BLOCK) + col % Q8_BLOCK);
  const float d = to_float(*reinterpret_cast<const bf16 *>(from + q8_scale(col / Q8_BLOCK)));
  float v[8];
#pragma unroll
  for (int i = 0; i < 8; i++) v[i] = (float)(signed char)((i < 4 ? q.x : q.y) >> 8 * (i % 4)) * d;
  store8(dst + row * lddst + col, v);
}

int from_q8(gs_stream *s, const gs_pack_args *a) {
  const uint64_t groups = (uint64_t)a->rows * a->cols / 8;
  const int status = gs_launch(s, "pack", widen_kernel, dim3((groups + THREADS - 1) / THREADS), THREADS, 0,
                               (const char *)a->src, (bf16 *)a->dst, groups, a->cols / 8,
                               GS_Q8_ROW(a->cols), a->lddst);
  s->ordered = true;
  return status;
}

template <typename S> int pack_to(gs_stream *s, const gs_pack_args *a) {
  if (a->dst_type == GS_Q8) return to_q8<S>(s, a);
  return a->dst_type == GS_F32 ? pack<S, float>(s, a) : pack<S, bf16>(s, a);
}

}  // namespace

extern "C" int gs_pack(gs_stream *s, const gs_pack_args *a) {
  GS_ENTER(s, a);
  switch (a->src_type) {
    case GS_F32: return pack_to<float>(s, a);
    case GS_BF16: return pack_to<bf16>(s, a);
    case GS_Q8: return from_q8(s, a);
    default: return pack_to<__half>(s, a);
  }
}

// The sums of a product's rows by which the decode kernels apply LayerNorm to its outputs: gs_fold_args.
namespace {

// A warp per row of W.
template <bool Q8>
__global__ void __launch_bounds__(THREADS)
    fold_kernel(const char *w, int row_bytes, const float *gain, const float *shift, const float *bias, float *sums,
                float *folded, int N, int K) {
  gs_let_next();
  gs_wait();
  const int row = blockIdx.x * (THREADS / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (row >= N) return;
  const char *const from = w + (size_t)row * row_bytes;
  float s = 0, f = 0;
  for (int k = lane; k < K; k += 32) {
    const float v = Q8 ? q8_exact(from, k) : to_float(reinterpret_cast<const bf16 *>(from)[k]);
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
                   dim3((a->N + THREADS / 32 - 1) / (THREADS / 32)), THREADS, 0, (const char *)a->w,
                   q8 ? GS_Q8_ROW(a->K) : 2 * a->K, (const float *)a->gain, (const float *)a->shift,
                   (const float *)a->bias, (float *)a->sums, (float *)a->folded, (int)a->N, (int)a->K);
}

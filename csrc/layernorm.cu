// gs_layernorm. The variance is computed in a second pass over values that stay in registers: x is read once and
// nothing cancels. A row of up to 1024 channels belongs to one warp, one of up to 4096 to four warps.

#include "rows.cuh"

const char *const gs_layernorm_variants[] = {"auto", "naive", nullptr};

namespace {

struct LayerNorm {
  float *x;
  const void *add;
  const float *gain, *bias;
  void *y;
  int M, C, ldx, ldadd, ldy;
  int add_bf16, y_bf16;
  float eps;
};

constexpr int WARPS = 4;  // of a CTA

// The sum over the threads that share a row: a warp or the CTA. All threads get the same bits, as each adds the same
// terms in the same order.
template <int ROW_WARPS> __device__ inline float row_sum(float v, float *scratch) {
  v = warp_sum(v);
  if (ROW_WARPS == 1) return v;
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = v;
  __syncthreads();
  float sum = 0.0f;
  for (int i = 0; i < ROW_WARPS; i++) sum += scratch[i];
  return sum;
}

// Each thread holds VECTORS float4 of its row. EARLY loads gain and bias, which no kernel writes, while the kernel
// before this one runs. That takes registers, and is faster for few rows, where latency decides: gain and bias come
// from device memory.
template <int VECTORS, int ROW_WARPS, bool EARLY, typename S>
__global__ void __launch_bounds__(32 * WARPS) layernorm_kernel(const S stamp, LayerNorm p) {
  __shared__ float scratch[2][WARPS];
  gs_let_next();
  constexpr int STRIDE = 128 * ROW_WARPS;  // elements that the threads of a row load at once
  const int warp = threadIdx.x / 32;
  const int first = 4 * (ROW_WARPS == 1 ? threadIdx.x % 32 : threadIdx.x);
  const int row = ROW_WARPS == 1 ? blockIdx.x * WARPS + warp : blockIdx.x;

  float4 gain[EARLY ? VECTORS : 1], bias[EARLY ? VECTORS : 1];
  if (EARLY) {
    for (int i = 0; i < VECTORS; i++) {
      const int c = first + i * STRIDE;
      if (c < p.C) {
        gain[i] = load4(p.gain + c);
        bias[i] = load4(p.bias + c);
      }
    }
  }
  const gs_stamped<S> stamped(stamp);
  gs_wait();
  if (row >= p.M) return;  // a whole warp of the kernel without barriers

  float *x = p.x + (size_t)row * p.ldx;
  float4 v[VECTORS];
  for (int i = 0; i < VECTORS; i++) {
    const int c = first + i * STRIDE;
    v[i] = c < p.C ? load4(x + c) : make_float4(0, 0, 0, 0);
  }
  stamped.start();  // while the loads are in flight
  if (p.add) {
    auto add = [&](auto *from) {
      for (int i = 0; i < VECTORS; i++) {
        const int c = first + i * STRIDE;
        if (c < p.C) v[i] = v[i] + load4(from + (size_t)row * p.ldadd + c);
      }
    };
    if (p.add_bf16) add((const bf16 *)p.add);
    else add((const float *)p.add);
    for (int i = 0; i < VECTORS; i++) {
      const int c = first + i * STRIDE;
      if (c < p.C) store4(x + c, v[i]);
    }
  }

  float sum = 0.0f;
  for (int i = 0; i < VECTORS; i++) sum += (v[i].x + v[i].y) + (v[i].z + v[i].w);
  const float mean = row_sum<ROW_WARPS>(sum, scratch[0]) / p.C;
  float squares = 0.0f;
  for (int i = 0; i < VECTORS; i++) {
    v[i] = v[i] + make_float4(-mean, -mean, -mean, -mean);
    if (first + i * STRIDE < p.C) squares += (v[i].x * v[i].x + v[i].y * v[i].y) + (v[i].z * v[i].z + v[i].w * v[i].w);
  }
  const float scale = 1.0f / sqrtf(row_sum<ROW_WARPS>(squares, scratch[1]) / p.C + p.eps);

#pragma unroll
  for (int i = 0; i < VECTORS; i++) {
    const int c = first + i * STRIDE;
    if (c >= p.C) continue;
    const float4 g = EARLY ? gain[EARLY ? i : 0] : load4(p.gain + c),
                 b = EARLY ? bias[EARLY ? i : 0] : load4(p.bias + c);
    const float4 y = make_float4(v[i].x * scale * g.x + b.x, v[i].y * scale * g.y + b.y, v[i].z * scale * g.z + b.z,
                                 v[i].w * scale * g.w + b.w);
    if (p.y_bf16) store4((bf16 *)p.y + (size_t)row * p.ldy + c, y);
    else store4((float *)p.y + (size_t)row * p.ldy + c, y);
  }
}

// The variant naive: one CTA per row, three loops over the row, any shape.
constexpr int NAIVE_THREADS = 256;

__device__ inline float block_sum(float v, float *scratch) {
  v = warp_sum(v);
  __syncthreads();  // scratch may still be read
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = v;
  __syncthreads();
  float sum = 0.0f;
  for (int i = 0; i < NAIVE_THREADS / 32; i++) sum += scratch[i];
  return sum;
}

template <typename S>
__global__ void __launch_bounds__(NAIVE_THREADS) layernorm_naive_kernel(const S stamp, LayerNorm p) {
  __shared__ float scratch[NAIVE_THREADS / 32];
  gs_let_next();
  const gs_stamped<S> stamped(stamp);
  gs_wait();
  stamped.start();
  const size_t row = blockIdx.x;
  float *x = p.x + row * p.ldx;
  float sum = 0.0f;
  for (int c = threadIdx.x; c < p.C; c += NAIVE_THREADS) {
    float v = x[c];
    if (p.add) {
      v += p.add_bf16 ? to_float(((const bf16 *)p.add)[row * p.ldadd + c])
                      : ((const float *)p.add)[row * p.ldadd + c];
      x[c] = v;  // no other thread reads it
    }
    sum += v;
  }
  const float mean = block_sum(sum, scratch) / p.C;
  float squares = 0.0f;
  for (int c = threadIdx.x; c < p.C; c += NAIVE_THREADS) squares += (x[c] - mean) * (x[c] - mean);
  const float scale = 1.0f / sqrtf(block_sum(squares, scratch) / p.C + p.eps);
  for (int c = threadIdx.x; c < p.C; c += NAIVE_THREADS) {
    const float y = (x[c] - mean) * scale * p.gain[c] + p.bias[c];
    if (p.y_bf16) ((bf16 *)p.y)[row * p.ldy + c] = from_float<bf16>(y);
    else ((float *)p.y)[row * p.ldy + c] = y;
  }
}

template <int VECTORS, int ROW_WARPS, typename S> int launch(gs_stream *s, const LayerNorm &p) {
  const int rows = ROW_WARPS == 1 ? WARPS : 1;  // of a CTA
  const int early = ROW_WARPS == 1 ? 2048 : 64;  // up to here the time is latency, beyond it bandwidth
  auto kernel = p.M <= early ? layernorm_kernel<VECTORS, ROW_WARPS, true, S>
                             : layernorm_kernel<VECTORS, ROW_WARPS, false, S>;
  return gs_launch(s, "layernorm", kernel, dim3((p.M + rows - 1) / rows), 32 * WARPS, 0, p);
}

template <typename S> int layernorm(gs_stream *s, const LayerNorm &p, bool naive) {
  if (naive) return gs_launch(s, "layernorm", layernorm_naive_kernel<S>, dim3(p.M), NAIVE_THREADS, 0, p);
  if (p.C <= 384) return launch<3, 1, S>(s, p);
  if (p.C <= 768) return launch<6, 1, S>(s, p);
  if (p.C <= 1024) return launch<8, 1, S>(s, p);
  if (p.C <= 1536) return launch<3, WARPS, S>(s, p);
  if (p.C <= 2048) return launch<4, WARPS, S>(s, p);
  return launch<8, WARPS, S>(s, p);
}

}  // namespace

extern "C" int gs_layernorm(gs_stream *s, const gs_layernorm_args *a) {
  GS_ENTER(s, a);
  if (a->variant < 0 || a->variant > 1) return gs_fail(GS_ARGUMENT, "layernorm: no variant %d", a->variant);
  const LayerNorm p = {(float *)a->x, (const void *)a->add, (const float *)a->gain, (const float *)a->bias,
                       (void *)a->y,  a->M, a->C, a->ldx, a->ldadd, a->ldy, a->add_type == GS_BF16,
                       a->y_type == GS_BF16, a->eps};
  const bool wide = a->C % 4 == 0 && gs_wide(a->x, a->ldx, 4, 4) && gs_wide(a->y, a->ldy, gs_bytes(a->y_type), 4) &&
                    (!a->add || gs_wide(a->add, a->ldadd, gs_bytes(a->add_type), 4)) && gs_aligned(a->gain, 16) &&
                    gs_aligned(a->bias, 16);
  const bool naive = a->variant == 1 || !wide || a->C > 4096;
  return gs_with_stamps(s, [&](auto stamp) { return layernorm<decltype(stamp)>(s, p, naive); });
}

// y = act(norm(x) W^T + bias), or y += it, for few rows. The time is that of reading W once, so the kernels keep many
// bytes of W in flight from the start: that of gemv_bulk.cuh, for compute capability 9.0, and the one here, in which a
// warp has R rows of W, or one of S equal parts of each. Rows of W are whole 16 bytes. Sums are float32, in an order
// that depends on shape and device alone.

#include "linear.cuh"
#include "mbarrier.cuh"
#include "q8.cuh"

namespace {

constexpr int kMaxWarps = 8;

struct Q8 {  // an integer of GS_Q8
  signed char q;
};

struct gemv_params {
  const void *x;              // (rows, K), ldx apart; bfloat16 or float32
  const void *w;              // (N, K)
  const float *bias;          // (N) or null
  const float *gain, *shift;  // (K) or null
  void *y;                    // (rows, N), ldy apart; bfloat16 or float32
  int rows, N, K, ldx, ldy;
  int x_bf16, y_bf16;
  int act, accumulate;
  float eps;
  int splits;     // S: warps that share a row
  int blocks;     // blocks of rows; a thread block takes every gridDim.x-th
  int stream;     // W is too large for the L2 cache: evict it first
  int64_t ahead;  // bytes of W that are prefetched into L2 before gs_wait()
};

constexpr int kRing = 100 << 10;  // bytes of shared memory for W per block of the bulk kernel, at most

// Bytes of W that the blocks of the bulk kernel prefetch into L2 before gs_wait(): half of that of an H200. That is
// faster if W is much larger than what the blocks copy at once, as in lm_head, and slower otherwise.
int64_t ahead_of(const gs_linear_args *a) {
  const int64_t bytes = (int64_t)a->N * a->K * (a->dtype == GS_F32 ? 4 : 2);
  return bytes > 32 << 20 ? 24ll << 20 : 0;
}

// Loads 16 bytes of W, or zeros if not valid.
__device__ inline uint4 load_chunk(const void *p, bool valid, uint64_t policy) {
  uint4 v;
  asm volatile(
      "{\n"
      " .reg .pred q;\n"
      " setp.ne.s32 q, %5, 0;\n"
      " mov.u32 %0, 0;\n mov.u32 %1, 0;\n mov.u32 %2, 0;\n mov.u32 %3, 0;\n"
#if __CUDA_ARCH__ >= 800
      " @q ld.global.nc.L1::no_allocate.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %6;\n"
#else
      " @q ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];\n"
#endif
      "}"
      : "=&r"(v.x), "=&r"(v.y), "=&r"(v.z), "=&r"(v.w)
      : "l"(p), "r"((int)valid), "l"(policy));
  return v;
}

#if __CUDA_ARCH__ >= 900
// Prefetches constant memory into L2. Address and bytes are multiples of 16.
__device__ inline void prefetch_l2(const void *p, int bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(p), "r"(bytes) : "memory");
}
#endif

// Four elements of a chunk as float32: all of a float32 chunk, a half of a bfloat16 chunk, a quarter of an 8-bit chunk,
// without its scale.
template <typename W> __device__ inline void unpack(const uint4 &q, int half, float (&f)[4]) {
  if (sizeof(W) == 1) {
    // Of q + 128, a byte, the float 2^23 + q + 128 is made by its bits.
    const uint32_t bytes = (half == 0 ? q.x : half == 1 ? q.y : half == 2 ? q.z : q.w) ^ 0x80808080u;
#pragma unroll
    for (int i = 0; i < 4; i++) f[i] = __uint_as_float(__byte_perm(bytes, 0x4b000000u, 0x7650 + i)) - 8388736.0f;
  } else if (sizeof(W) == 4) {
    f[0] = __uint_as_float(q.x);
    f[1] = __uint_as_float(q.y);
    f[2] = __uint_as_float(q.z);
    f[3] = __uint_as_float(q.w);
  } else {
    const uint32_t a = half ? q.z : q.x, b = half ? q.w : q.y;
    f[0] = __uint_as_float(a << 16);
    f[1] = __uint_as_float(a & 0xffff0000u);
    f[2] = __uint_as_float(b << 16);
    f[3] = __uint_as_float(b & 0xffff0000u);
  }
}

// Sums each of V values over the warp in V - 1 + log2(32/V) shuffles: at each step a lane keeps half of its values and
// passes the other half to its partner. Lane l returns the sum of value l / (32/V).
template <int V, int OFFSET = 16> __device__ inline float warp_sums(const float (&v)[V]) {
  static_assert(V >= 1 && V <= 32 && (V & (V - 1)) == 0, "a power of two");
  if constexpr (V == 1) {
    float sum = v[0];
#pragma unroll
    for (int o = OFFSET; o > 0; o /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, o);
    return sum;
  } else {
    const bool upper = threadIdx.x & OFFSET;
    float half[V / 2];
#pragma unroll
    for (int i = 0; i < V / 2; i++) {
      const float low = v[i], high = v[i + V / 2];
      half[i] = (upper ? high : low) + __shfl_xor_sync(0xffffffffu, upper ? low : high, OFFSET);
    }
    return warp_sums<V / 2, OFFSET / 2>(half);
  }
}

// Sums each of M values over the block; every thread gets all sums.
template <int M> __device__ inline void block_sums(float (&v)[M], float *partial) {
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32;
  float sum = warp_sums<M>(v);
  if (lane % (32 / M) == 0) partial[warp * M + lane / (32 / M)] = sum;
  __syncthreads();
#pragma unroll
  for (int m = 0; m < M; m++) {
    v[m] = 0;
    for (int w = 0; w < warps; w++) v[m] += partial[w * M + m];
  }
}

// Blocks of 256 threads per SM for which the compiler limits registers: the most without spills.
template <typename W> constexpr int resident(int M, int R, int U) {
  return M * R * U <= 4 ? 4 : M <= 2 && (sizeof(W) > 1 || M * R * U < 16) ? 3 : 2;
}

template <typename W, int M, int R, int U, typename Stamp>
__global__ __launch_bounds__(32 * kMaxWarps, resident<W>(M, R, U)) void gemv_kernel(const Stamp stamp,
                                                                                    const gemv_params p) {
  constexpr int E = 16 / sizeof(W);               // elements of a chunk
  constexpr int Q = E / 4;                        // float4 of x per chunk
  constexpr int V = R * M;                        // sums of a warp
  constexpr int A = V == 1 ? 4 : V <= 4 ? 2 : 1;  // independent chains of additions per sum, to hide their latency

  gs_let_next();

  // x: element k of row m is in float4 number (m*Q + k/4%Q)*KC + k/E, so that neighbouring lanes read neighbouring
  // float4. gain and shift follow.
  extern __shared__ float4 xs[];
  __shared__ float partial[2][kMaxWarps * V];

  const int KC = p.K / E;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  const int S = p.splits, split = warp % S, sub = warp / S, subs = warps / S;
  const int block_rows = subs * R;
  const int per = (KC + S - 1) / S, first = split * per, last = min(KC, first + per);
  const int batches = (per + 32 * U - 1) / (32 * U);

  uint64_t policy = 0;
#if __CUDA_ARCH__ >= 800
  if (p.stream) asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  else asm("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(policy));
#endif

  uint4 q[R][U];
  float scale_of[R][U];  // of 8-bit chunks
  auto load = [&](int block, int batch) {
    const int row = block * block_rows + sub * R, c = first + batch * 32 * U + lane;
    if constexpr (sizeof(W) == 1) {
      constexpr int STEP = 32 * 16 / GS_Q8_GROUP * (GS_Q8_GROUP + GS_Q8_SCALES);  // bytes of 32 chunks
#pragma unroll
      for (int r = 0; r < R; r++) {
        const char *from = static_cast<const char *>(p.w) + (size_t)min(row + r, p.N - 1) * GS_Q8_ROW(p.K);
#pragma unroll
        for (int u = 0; u < U; u++) {
          const bool valid = c + 32 * u < last;
          q[r][u] = load_chunk(from + q8_integers(c / 2) + c % 2 * 16 + u * STEP, valid, policy);
          const void *const scale = from + q8_scale(c / 2) + u * STEP;
          scale_of[r][u] = valid ? to_float(__ldg(static_cast<const bf16 *>(scale))) : 0.0f;
        }
      }
    } else {
#pragma unroll
      for (int r = 0; r < R; r++) {
        const W *base = static_cast<const W *>(p.w) + (size_t)min(row + r, p.N - 1) * p.K + (size_t)c * E;
#pragma unroll
        for (int u = 0; u < U; u++) q[r][u] = load_chunk(base + 32 * u * E, c + 32 * u < last, policy);
      }
    }
  };

  // The sum that this thread finishes: its lane's own if a warp has whole rows, else the first subs*V threads finish
  // one each.
  const int sum = S == 1 ? lane / (32 / V) : (int)threadIdx.x % V;
  const int out_sub = S == 1 ? sub : (int)threadIdx.x / V;
  const int out_m = sum % M, out_r = out_sub * R + sum / M;
  const bool out = out_m < p.rows && (S == 1 ? lane % (32 / V) == 0 : (int)threadIdx.x < subs * V);
  float bias = 0, old = 0;
  auto load_bias = [&](int block) {
    const int n = block * block_rows + out_r;
    bias = p.bias && out && n < p.N ? __ldg(p.bias + n) : 0;
  };
  auto load_old = [&](int block) {
    const int n = block * block_rows + out_r;
    if (p.accumulate && out && n < p.N) old = __ldcg(static_cast<float *>(p.y) + (size_t)out_m * p.ldy + n);
  };

  int block = blockIdx.x, batch = 0;
  load(block, 0);
  load_bias(block);
  const int units = KC * Q;  // float4 of a row
  float4 *gain = xs + M * units, *shift = gain + units;
  if (p.gain) {
#pragma unroll 2
    for (int f = threadIdx.x; f < units; f += blockDim.x) {
      gain[f] = __ldg(reinterpret_cast<const float4 *>(p.gain) + f);
      shift[f] = __ldg(reinterpret_cast<const float4 *>(p.shift) + f);
    }
  }

  const gs_stamped<Stamp> stamped(stamp, blockDim.x - 32);

  gs_wait();

  stamped.start();

  load_old(block);
  // Several loads are in flight before the first is stored.
  const int all = M * units;
  auto keep = [&](int i, float4 v) {
    const int m = M == 1 ? 0 : i / units, f = i - m * units;
    xs[(m * Q + f % Q) * KC + f / Q] = v;
  };
  if (p.x_bf16) {
    for (int at = threadIdx.x; at < all; at += 4 * blockDim.x) {
      uint2 u[4];
#pragma unroll
      for (int j = 0; j < 4; j++) {
        const int i = at + j * blockDim.x, m = M == 1 ? 0 : i / units, f = i - m * units;
        u[j] = make_uint2(0, 0);
        if (i < all && m < p.rows)
          u[j] =
              __ldcg(reinterpret_cast<const uint2 *>(static_cast<const bf16 *>(p.x) + (size_t)m * p.ldx) + f);
      }
#pragma unroll
      for (int j = 0; j < 4; j++)
        if (at + j * blockDim.x < all)
          keep(at + j * blockDim.x, make_float4(__uint_as_float(u[j].x << 16), __uint_as_float(u[j].x & 0xffff0000u),
                                                __uint_as_float(u[j].y << 16), __uint_as_float(u[j].y & 0xffff0000u)));
    }
  } else {
    for (int at = threadIdx.x; at < all; at += 2 * blockDim.x) {
      float4 v[2];
#pragma unroll
      for (int j = 0; j < 2; j++) {
        const int i = at + j * blockDim.x, m = M == 1 ? 0 : i / units, f = i - m * units;
        v[j] = make_float4(0, 0, 0, 0);
        if (i < all && m < p.rows)
          v[j] = __ldcg(reinterpret_cast<const float4 *>(static_cast<const float *>(p.x) + (size_t)m * p.ldx) + f);
      }
#pragma unroll
      for (int j = 0; j < 2; j++)
        if (at + j * blockDim.x < all) keep(at + j * blockDim.x, v[j]);
    }
  }

  if (p.gain) {
    // LayerNorm: the mean, then the mean square of the differences from it.
    __syncthreads();
    float mean[M] = {}, scale[M] = {};
    for (int f = threadIdx.x; f < units; f += blockDim.x)
#pragma unroll
      for (int m = 0; m < M; m++) {
        const float4 v = xs[(m * Q + f % Q) * KC + f / Q];
        mean[m] += (v.x + v.y) + (v.z + v.w);
      }
    block_sums<M>(mean, partial[0]);
#pragma unroll
    for (int m = 0; m < M; m++) mean[m] /= p.K;
    for (int f = threadIdx.x; f < units; f += blockDim.x)
#pragma unroll
      for (int m = 0; m < M; m++) {
        const float4 v = xs[(m * Q + f % Q) * KC + f / Q];
        const float e[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (int i = 0; i < 4; i++) {
          const float d = e[i] - mean[m];
          scale[m] += d * d;
        }
      }
    block_sums<M>(scale, partial[1]);
#pragma unroll
    for (int m = 0; m < M; m++) scale[m] = rsqrtf(scale[m] / p.K + p.eps);
    for (int f = threadIdx.x; f < units; f += blockDim.x) {
      const float4 g = gain[f], t = shift[f];
#pragma unroll
      for (int m = 0; m < M; m++) {
        float4 &v = xs[(m * Q + f % Q) * KC + f / Q];
        const float z = scale[m], mu = mean[m];
        v = make_float4((v.x - mu) * z * g.x + t.x, (v.y - mu) * z * g.y + t.y, (v.z - mu) * z * g.z + t.z,
                        (v.w - mu) * z * g.w + t.w);
      }
    }
  }
  __syncthreads();

  float acc[V][A] = {};
  for (int turn = 0;;) {
#pragma unroll
    for (int u = 0; u < U; u++) {
      const int c = first + (batch * U + u) * 32 + lane;
      if (c < last) {
#pragma unroll
        for (int h = 0; h < Q; h++) {
          float f[R][4];
#pragma unroll
          for (int r = 0; r < R; r++) {
            unpack<W>(q[r][u], h, f[r]);
            if (sizeof(W) == 1)
#pragma unroll
              for (int i = 0; i < 4; i++) f[r][i] *= scale_of[r][u];
          }
#pragma unroll
          for (int m = 0; m < M; m++) {
            const float4 v = xs[(m * Q + h) * KC + c];
            const float e[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
            for (int r = 0; r < R; r++)
#pragma unroll
              for (int i = 0; i < 4; i++) acc[r * M + m][i % A] = fmaf(f[r][i], e[i], acc[r * M + m][i % A]);
          }
        }
      }
    }

    const int done = block;
    if (++batch == batches) {
      batch = 0;
      block += gridDim.x;
    }
    const bool more = block < p.blocks;
    if (more) load(block, batch);
    if (batch == 0) {  // the rows of `done` are complete
      float v[V];
#pragma unroll
      for (int i = 0; i < V; i++) {
        v[i] = A == 4   ? (acc[i][0] + acc[i][1 % A]) + (acc[i][2 % A] + acc[i][3 % A])
               : A == 2 ? acc[i][0] + acc[i][1 % A]
                        : acc[i][0];
#pragma unroll
        for (int k = 0; k < A; k++) acc[i][k] = 0;
      }
      float total = warp_sums<V>(v);
      if (S > 1) {
        float *sums = partial[turn & 1];  // two buffers, so that one barrier per turn is enough
        if (lane % (32 / V) == 0) sums[warp * V + lane / (32 / V)] = total;
        __syncthreads();
        if (out) {
          total = 0;
          for (int i = 0; i < S; i++) total += sums[(out_sub * S + i) * V + sum];
        }
      }
      const int n = done * block_rows + out_r;
      if (out && n < p.N) {
        const size_t at = (size_t)out_m * p.ldy + n;
        const float z = activate(total + bias, p.act) + old;
        if (p.y_bf16) static_cast<bf16 *>(p.y)[at] = from_float<bf16>(z);
        else static_cast<float *>(p.y)[at] = z;
      }
      if (more) {
        load_bias(block);
        load_old(block);
      }
      turn++;
    }
    if (!more) break;
  }
}

int divide_up(int a, int b) { return (a + b - 1) / b; }

#include "gemv_bulk.cuh"

// Warps that share a row: until each reads its part in few batches; if W has few rows, more, until there are 16 warps
// per SM or a lane has at most 3 chunks.
int splits_of(const gs_stream *s, int N, int chunks, int R) {
  auto few = [&](int S) { return (int64_t)N * S < (int64_t)s->processors * 16 * R; };
  int S = 1;
  for (int part = chunks; S < kMaxWarps && (part > 256 || (few(S) && part > 96)); part = divide_up(chunks, S)) S *= 2;
  return S;
}

template <typename W, int M, int R, int U, typename Stamp>
int launch(gs_stream *s, gemv_params p, size_t shared) {
  auto kernel = gemv_kernel<W, M, R, U, Stamp>;
  const int chunks = p.K / (16 / (int)sizeof(W)), S = splits_of(s, p.N, chunks, R);
  // Smaller blocks if there would be less than one per SM.
  int warps = kMaxWarps;
  while (warps > 2 && warps > S && divide_up(p.N, warps / S * R) < s->processors) warps /= 2;
  p.splits = S;
  p.blocks = divide_up(p.N, warps / S * R);

  // As many thread blocks as can be resident, all of which have the same number of turns or one less.
  const int by_registers = resident<W>(M, R, U) * kMaxWarps / warps;
  const int by_shared = (int)((s->shared_per_block + 1024) / (shared + 4096));
  int fit = by_registers < by_shared ? by_registers : by_shared;
  if (fit < 1) fit = 1;
  if (fit > 16) fit = 16;
  const int turns = divide_up(p.blocks, fit * s->processors);
  const int grid = divide_up(p.blocks, turns);

  if (shared > 40 * 1024) {
    if (int e = gs_allow_shared<gemv_kernel<W, M, R, U, Stamp>>(s, s->shared_per_block - 4096)) return e;
  }
  return gs_launch(s, "gemv", kernel, dim3(grid), dim3(32 * warps), shared, p);
}

// A row of W, or a part of one, per warp: 4 chunks in flight per lane if that is all of it, else 8.
template <typename W, int M, typename Stamp> int one_row(gs_stream *s, const gemv_params &p, size_t shared) {
  const int chunks = p.K / (16 / (int)sizeof(W)), part = divide_up(chunks, splits_of(s, p.N, chunks, 1));
  if constexpr (sizeof(W) > 1)  // else registers are spilled
    if (part > 128) return launch<W, M, 1, 8, Stamp>(s, p, shared);
  return launch<W, M, 1, 4, Stamp>(s, p, shared);
}

// Chooses the rows of W per warp and the chunks of each in flight, by the rows of x (M) and the size of W. With many
// rows of x, reading x from shared memory would take longer than reading W from memory if several rows of W did not
// share the reads.
template <typename W, int M, typename Stamp> int choose(gs_stream *s, const gemv_params &p, size_t shared) {
  constexpr int E = 16 / sizeof(W);
  if constexpr (sizeof(W) > 1) {
    bool taken;
    int e = try_bulk<W, M, Stamp>(s, p, &taken);
    if (e || taken) return e;
  }
  const int chunks = p.K / E;
  // From 128 KB per SM on, W takes several turns in any case.
  const bool large = (int64_t)p.N * chunks >= (int64_t)s->processors * 8192;
  if constexpr (M >= 4) {
    if constexpr (M < 8 || sizeof(W) > 1)  // else registers are spilled
      if (large) return launch<W, M, 4, 2, Stamp>(s, p, shared);
    return launch<W, M, 2, 4, Stamp>(s, p, shared);
  } else {
    if (large) return launch<W, M, 2, 4, Stamp>(s, p, shared);
    return one_row<W, M, Stamp>(s, p, shared);
  }
}

template <typename W, typename Stamp> int by_rows(gs_stream *s, const gs_linear_args *a) {
  gemv_params p = {};
  const bool norm = a->gain != 0;
  p.w = reinterpret_cast<const void *>(a->w);
  p.bias = reinterpret_cast<const float *>(a->bias);
  p.gain = reinterpret_cast<const float *>(a->gain);
  p.shift = reinterpret_cast<const float *>(a->shift);
  p.N = a->N;
  p.K = a->K;
  p.ldx = a->ldx;
  p.ldy = a->ldy;
  p.x_bf16 = !norm && a->dtype != GS_F32;
  p.y_bf16 = a->y_type == GS_BF16;
  p.act = a->act;
  p.accumulate = a->accumulate;
  p.eps = a->eps;
  // A matrix of more than 32 MB would evict everything else from the L2 cache (50 MB on H100 and H200), and itself,
  // before it is read again.
  p.stream = (int64_t)a->N * a->K * sizeof(W) > (32ll << 20);
  p.ahead = ahead_of(a);
  const size_t x_size = p.x_bf16 ? 2 : 4, y_size = p.y_bf16 ? 2 : 4;

  for (int m = 0; m < a->M;) {
    // As many rows of x at a time as shared memory has room for; W is read again for others.
    int M = a->M - m >= 5 ? 8 : a->M - m >= 3 ? 4 : a->M - m;
    size_t shared;
    for (;; M /= 2) {
      shared = 4 * ((size_t)a->K * (M + (norm ? 2 : 0)));
      if (shared + 4096 <= (size_t)s->shared_per_block) break;
      if (M == 1)
        return gs_fail(GS_UNSUPPORTED, "gemv: a row of %d inputs does not fit in %d bytes of shared memory", a->K,
                       s->shared_per_block);
    }
    p.rows = a->M - m < M ? a->M - m : M;
    p.x = reinterpret_cast<const void *>(a->x + (uint64_t)m * a->ldx * x_size);
    p.y = reinterpret_cast<void *>(a->y + (uint64_t)m * a->ldy * y_size);
    int e = M == 8   ? choose<W, 8, Stamp>(s, p, shared)
            : M == 4 ? choose<W, 4, Stamp>(s, p, shared)
            : M == 2 ? choose<W, 2, Stamp>(s, p, shared)
                     : choose<W, 1, Stamp>(s, p, shared);
    if (e) return e;
    m += p.rows;
  }
  return GS_OK;
}

template <typename Stamp> int by_type(gs_stream *s, const gs_linear_args *a) {
  if (a->dtype == GS_Q8) return by_rows<Q8, Stamp>(s, a);
  return a->dtype == GS_BF16 ? by_rows<bf16, Stamp>(s, a) : by_rows<float, Stamp>(s, a);
}

}  // namespace

#ifdef GS_WATCHED
int gs_linear_gemv_watched(gs_stream *s, const gs_linear_args *a) { return by_type<gs_stamp>(s, a); }
#else
bool gs_linear_gemv_takes(const gs_linear_args *a) {
  return a->M <= GS_GEMV_ROWS && a->K % (a->dtype == GS_F32 ? 4 : 8) == 0 && a->ldx % 4 == 0 &&
         (a->x | a->w | a->gain | a->shift) % 16 == 0;
}

int gs_linear_gemv(gs_stream *s, const gs_linear_args *a) {
  if (!gs_linear_gemv_takes(a))
    return gs_fail(GS_UNSUPPORTED,
                   "linear: variant gemv takes up to %d rows of x, a multiple of 4 values apart, and rows of W of whole 16 "
                   "bytes; x, W, gain and shift begin at a multiple of 16",
                   GS_GEMV_ROWS);
  return s->stamps.areas ? gs_linear_gemv_watched(s, a) : by_type<gs_unstamped>(s, a);
}
#endif

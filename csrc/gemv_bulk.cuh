// A part of gemv.cu, inside its namespace: the matrix-vector kernel that loads weights into shared memory by bulk
// copies (compute capability 9.0).
//
// * There is a block per SM. One warp copies its rows of W, V at a time, to a ring of stages in shared memory. Copies
//   in flight take no registers, and W depends on no other kernel, so this warp fills the ring before gs_wait(). With
//   `ahead`, it then prefetches the rows that follow into L2.
// * Blocks are small enough that an SM has room for those of two or three kernels: the ring of the next product is
//   filled while this one computes.
// * The other warps form groups. The P warps of a group share a row; each lane keeps its part of x in registers.
//
// The order of a sum depends on K, M and types alone.

constexpr int kBulkWarps = 16;         // at most, with the one that copies
constexpr int kBulkStages = 32;        // at most
constexpr int kPrefetchBytes = 16384;  // bytes of a prefetch

struct bulk_params {
  gemv_params g;
  int rows, extra;                  // rows of W per block; the first `extra` blocks have one more
  int ahead;                        // bytes of a block's rows that are copied or prefetched before gs_wait()
  int parts;                        // P: warps that share a row
  float rest, over_rest, over_all;  // elements of x in the last part of a row; the inverses of it and of K
  int groups;
  int stages;
  int batches;  // batches of V rows in the block with the most rows, for which there is room for partial sums
};

// Whether a lane's part of x fits its registers.
template <typename W> constexpr bool bulk_fits(int M, int U) { return M * U * (16 / (int)sizeof(W)) <= 64; }
// Rows of a stage: enough independent chains of additions, few enough registers.
__host__ __device__ constexpr int bulk_rows(int M, int U) { return M <= 4 && U == 1 ? 4 : 2; }
// Blocks per SM, and threads per block, for which the compiler limits registers. For one row of x, two blocks of 18
// warps: 56 registers per thread, so that three kernels of 8 warps leave room for two blocks of attention.
template <typename W> constexpr int bulk_resident(int M, int U) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800  // an SM holds 1,024 threads, and the kernel is empty
  return 1;
#else
  return M * U * (16 / (int)sizeof(W)) <= 16 ? 2 : 1;
#endif
}
template <typename W> constexpr int bulk_threads(int M, int U) {
  return M * U * (16 / (int)sizeof(W)) <= 8 ? 576 : 32 * kBulkWarps;
}

#if __CUDA_ARCH__ >= 900

__device__ inline void bulk_copy(void *to, const void *from, int bytes, uint64_t *full, uint64_t policy) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::
          "r"(shared_address(to)),
      "l"(from), "r"(bytes), "r"(shared_address(full)), "l"(policy)
      : "memory");
}
// A barrier of `threads` threads of the block.
__device__ inline void barrier_sync(int barrier, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
#endif

template <typename W, int M, int U, typename Stamp>
__global__ __launch_bounds__(bulk_threads<W>(M, U), bulk_resident<W>(M, U)) void gemv_bulk(const Stamp stamp,
                                                                                           const bulk_params bp) {
#if __CUDA_ARCH__ >= 900
  constexpr int E = 16 / sizeof(W);   // elements of a chunk
  constexpr int V = bulk_rows(M, U);  // rows of a stage
  const gemv_params &p = bp.g;
  gs_let_next();

  extern __shared__ __align__(128) uint4 ring[];  // (stages, V, KC) chunks of W, then (P, batches*V*M) sums
  __shared__ __align__(8) uint64_t full[kBulkStages], empty[kBulkStages];
  __shared__ float2 stats[kBulkWarps][M];  // of a warp's part of x: mean, sum of squared differences from it

  const int KC = p.K / E, stage_chunks = V * KC;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int P = bp.parts, consumers = 32 * P * bp.groups;
  const int row0 = blockIdx.x * bp.rows + min((int)blockIdx.x, bp.extra);
  const int rows = bp.rows + ((int)blockIdx.x < bp.extra), batches = (rows + V - 1) / V;
  const W *w = static_cast<const W *>(p.w) + (size_t)row0 * p.K;  // (rows, K)
  const bool copies = warp == P * bp.groups;

  uint64_t policy;
  if (p.stream) asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  else asm("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(policy));
  auto fetch = [&](int batch, int stage) {
    const int bytes = min(V, rows - batch * V) * KC * 16;
    mbarrier_expect(shared_address(&full[stage]), bytes);
    bulk_copy(ring + (size_t)stage * stage_chunks, w + (size_t)batch * V * p.K, bytes, &full[stage], policy);
  };
  if (copies && lane == 0) {
#pragma unroll 1
    for (int i = 0; i < bp.stages; i++) {
      mbarrier_init(&full[i], 1);
      mbarrier_init(&empty[i], P);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#pragma unroll 1
    for (int i = 0; i < min(bp.stages, batches); i++) fetch(i, i);
    // Several small prefetches, so that those of other blocks are served in between.
    const int end = (int)min((int64_t)rows * KC * 16, (int64_t)bp.ahead);
#pragma unroll 1
    for (int at = bp.stages * stage_chunks * 16; at < end; at += kPrefetchBytes)
      prefetch_l2(reinterpret_cast<const char *>(w) + at, min(kPrefetchBytes, end - at));
  }
  __syncthreads();

  if (copies) {
    if (lane == 0)
#pragma unroll 1
      for (int batch = bp.stages, stage = 0, parity = 0; batch < batches; batch++) {
        mbarrier_wait(&empty[stage], parity);
        fetch(batch, stage);
        if (++stage == bp.stages) {
          stage = 0;
          parity ^= 1;
        }
      }
    return;
  }

  const int group = warp / P, part = warp % P;
  int chunk[U];
  bool valid[U];
#pragma unroll
  for (int u = 0; u < U; u++) {
    const int c = (part * U + u) * 32 + lane;
    valid[u] = c < KC;
    chunk[u] = min(c, KC - 1);  // x is 0 where not valid
  }

  // Constants are loaded before gs_wait(): the bias of the sum that this thread finishes, gain and shift.
  auto out_row = [&](int i) { return M == 1 ? i : i % rows; };
  auto out_m = [&](int i) { return M == 1 ? 0 : i / rows; };
  const int mine = threadIdx.x;
  const bool has = mine < rows * M && out_m(mine) < p.rows;
  auto load_bias = [&](int i) { return p.bias ? __ldg(p.bias + row0 + out_row(i)) : 0.0f; };
  auto load_old = [&](int i) {
    return p.accumulate ? __ldcg(static_cast<const float *>(p.y) + (size_t)out_m(i) * p.ldy + row0 + out_row(i)) : 0.0f;
  };
  const float bias = has ? load_bias(mine) : 0.0f;
  float gain[E], shift[E];  // of one of the lane's chunks at a time
  auto load_norm = [&](int u) {
#pragma unroll
    for (int e = 0; e < E; e += 4) {
      float4 g = make_float4(0, 0, 0, 0), t = g;
      if (valid[u]) {
        g = __ldg(reinterpret_cast<const float4 *>(p.gain + chunk[u] * E + e));
        t = __ldg(reinterpret_cast<const float4 *>(p.shift + chunk[u] * E + e));
      }
      gain[e] = g.x, gain[e + 1] = g.y, gain[e + 2] = g.z, gain[e + 3] = g.w;
      shift[e] = t.x, shift[e + 1] = t.y, shift[e + 2] = t.z, shift[e + 3] = t.w;
    }
  };
  if (U == 1 && p.gain) load_norm(0);
  // Elements of x in each part of a row but the last; in the last; the inverse for this warp's part.
  constexpr float FULL = 32 * U * E;
  const float rest = bp.rest, own = part == P - 1 ? bp.over_rest : 1.0f / FULL;

  const gs_stamped<Stamp> stamped(stamp, consumers - 32);

  gs_wait();
  stamped.start();

  float x[M][U][E];
#pragma unroll
  for (int m = 0; m < M; m++)
#pragma unroll
    for (int u = 0; u < U; u++) {
      const bool read = valid[u] && m < p.rows;
      const size_t at = (size_t)m * p.ldx + chunk[u] * E;
      if (E == 8 && p.x_bf16) {
        uint4 v = make_uint4(0, 0, 0, 0);
        if (read) v = __ldcg(reinterpret_cast<const uint4 *>(static_cast<const bf16 *>(p.x) + at));
        float low[4], high[4];
        unpack<bf16>(v, 0, low);
        unpack<bf16>(v, 1, high);
#pragma unroll
        for (int e = 0; e < 4; e++) x[m][u][e] = low[e], x[m][u][(e + 4) % E] = high[e];
      } else {
#pragma unroll
        for (int e = 0; e < E; e += 4) {
          float4 v = make_float4(0, 0, 0, 0);
          if (read) v = __ldcg(reinterpret_cast<const float4 *>(static_cast<const float *>(p.x) + at + e));
          x[m][u][e] = v.x, x[m][u][e + 1] = v.y, x[m][u][e + 2] = v.z, x[m][u][e + 3] = v.w;
        }
      }
    }
  const float old = has ? load_old(mine) : 0.0f;

  if (p.gain) {
    // LayerNorm. A warp computes mean and squares of its part. After one barrier, each thread combines those of all
    // parts (T. Chan, G. Golub, R. LeVeque, Algorithms for computing the sample variance, 1983).
#pragma unroll
    for (int m = 0; m < M; m++) {
      float sum = 0, squares = 0;
#pragma unroll
      for (int u = 0; u < U; u++)
#pragma unroll
        for (int e = 0; e < E; e++) sum += x[m][u][e];  // zeros where not valid
      const float mean = warp_sum(sum) * own;
#pragma unroll
      for (int u = 0; u < U; u++)
#pragma unroll
        for (int e = 0; e < E; e++) {
          const float d = valid[u] ? x[m][u][e] - mean : 0.0f;
          squares = fmaf(d, d, squares);
        }
      squares = warp_sum(squares);
      if (lane == 0) stats[warp][m] = make_float2(mean, squares);
    }
    barrier_sync(1 + group, 32 * P);
    float mean[M], scale[M];
#pragma unroll
    for (int m = 0; m < M; m++) {
      // Differences from the mean of the first part, so that the terms that cancel in the last line are at most P times
      // the result.
      const float about = stats[group * P][m].x;
      float sum = 0, between = 0, within = 0;
#pragma unroll 2
      for (int i = 0; i < P; i++) {
        const float2 s = stats[group * P + i][m];
        const float d = s.x - about, nd = (i < P - 1 ? FULL : rest) * d;
        sum += nd;
        between = fmaf(nd, d, between);
        within += s.y;
      }
      const float off = sum * bp.over_all;
      mean[m] = about + off;
      scale[m] = rsqrtf(fmaxf(within + (between - sum * off), 0.0f) * bp.over_all + p.eps);
    }
#pragma unroll
    for (int u = 0; u < U; u++) {
      if (U > 1) load_norm(u);
#pragma unroll
      for (int m = 0; m < M; m++)
#pragma unroll
        for (int e = 0; e < E; e++) x[m][u][e] = (x[m][u][e] - mean[m]) * scale[m] * gain[e] + shift[e];
    }
  }

  float *sums = reinterpret_cast<float *>(ring + (size_t)bp.stages * stage_chunks);
  const int room = bp.batches * V * M;  // sums of a part
  int stage = group, parity = 0;
#pragma unroll 1
  for (int batch = group; batch < batches; batch += bp.groups) {
    if (stage >= bp.stages) {
      stage -= bp.stages;
      parity ^= 1;
    }
    const uint4 *from = ring + (size_t)stage * stage_chunks;
    mbarrier_wait(&full[stage], parity);
    uint4 q[V][U];
#pragma unroll
    for (int r = 0; r < V; r++)
#pragma unroll
      for (int u = 0; u < U; u++) q[r][u] = from[r * KC + chunk[u]];  // rows past the last: never stored
    float v[V * M] = {};
#pragma unroll
    for (int u = 0; u < U; u++)
#pragma unroll
      for (int h = 0; h < E / 4; h++) {
        float f[V][4];
#pragma unroll
        for (int r = 0; r < V; r++) unpack<W>(q[r][u], h, f[r]);
#pragma unroll
        for (int e = 0; e < 4; e++)
#pragma unroll
          for (int r = 0; r < V; r++)
#pragma unroll
            for (int m = 0; m < M; m++) v[r * M + m] = fmaf(f[r][e], x[m][u][4 * h + e], v[r * M + m]);
      }
    __syncwarp();
    if (lane == 0) mbarrier_arrive(&empty[stage]);
    constexpr int LANES = 32 / (V * M);
    const float total = warp_sums<V * M>(v);
    if (lane % LANES == 0) sums[part * room + batch * V * M + lane / LANES] = total;
    stage += bp.groups;
  }
  barrier_sync(0, consumers);

#pragma unroll 1
  for (int i = mine; i < rows * M; i += consumers) {
    const int r = out_row(i), m = out_m(i);
    if (m >= p.rows) break;
    float total = 0;
#pragma unroll 4
    for (int k = 0; k < P; k++) total += sums[k * room + r * M + m];
    const float z = activate(total + (i == mine ? bias : load_bias(i)), p.act) + (i == mine ? old : load_old(i));
    const size_t at = (size_t)m * p.ldy + row0 + r;
    if (p.y_bf16) static_cast<bf16 *>(p.y)[at] = from_float<bf16>(z);
    else static_cast<float *>(p.y)[at] = z;
  }
#endif
}

// Launches the kernel with U chunks per lane. taken becomes false if it needs more shared memory than a block can have.
template <typename W, int M, int U, typename Stamp> int launch_bulk(gs_stream *s, const gemv_params &p, bool *taken) {
  constexpr int V = bulk_rows(M, U);
  auto kernel = gemv_bulk<W, M, U, Stamp>;
  bulk_params bp = {};
  bp.g = p;
  const int chunks = p.K / (16 / (int)sizeof(W)), stage_bytes = V * chunks * 16;
  const int grid = p.N < s->processors ? p.N : s->processors;
  bp.rows = p.N / grid;
  bp.extra = p.N % grid;
  bp.ahead = (int)(p.ahead / grid / 16 * 16);
  bp.batches = divide_up(divide_up(p.N, grid), V);
  bp.parts = divide_up(chunks, 32 * U);
  bp.rest = (float)(p.K - (bp.parts - 1) * 32 * U * (16 / (int)sizeof(W)));
  bp.over_rest = 1 / bp.rest;
  bp.over_all = 1.0f / p.K;
  bp.groups = (kBulkWarps - 1) / bp.parts;
  if (bp.groups < 1) bp.groups = 1;
  if (bp.groups > bp.batches) bp.groups = bp.batches;
  bp.groups = divide_up(bp.batches, divide_up(bp.batches, bp.groups));  // the fewest that need no more turns
  bp.stages = kRing / stage_bytes;
  if (bp.stages < 2) bp.stages = 2;
  if (bp.stages > kBulkStages) bp.stages = kBulkStages;
  if (bp.stages >= bp.batches) {
    bp.stages = bp.batches;
  } else {
    // Each stage belongs to one group, which then knows that the phase before the one it waits for is over: an mbarrier
    // distinguishes only odd from even phases.
    if (bp.groups > bp.stages) bp.groups = bp.stages;
    bp.stages -= bp.stages % bp.groups;
  }
  const size_t shared = (size_t)bp.stages * stage_bytes + (size_t)bp.parts * bp.batches * V * M * 4;
  *taken = shared + 4096 <= (size_t)s->shared_per_block;
  if (!*taken) return GS_OK;
  if (int e = gs_allow_shared<gemv_bulk<W, M, U, Stamp>>(s, s->shared_per_block - 4096)) return e;
  return gs_launch_as(s, "gemv", kernel, dim3(grid), dim3(32 * (bp.parts * bp.groups + 1)), shared, {1, true}, bp);
}

// Launches the bulk kernel if device and shapes allow it (taken becomes true): compute capability 9.0, aligned rows of
// W, x, gain and shift, and an x that fits the registers.
template <typename W, int M, typename Stamp> int try_bulk(gs_stream *s, const gemv_params &p, bool *taken) {
  constexpr int E = 16 / sizeof(W);
  *taken = false;
  const size_t x_size = p.x_bf16 ? 2 : 4;
  if (s->major < 9 || p.ldx * x_size % 16 != 0) return GS_OK;
  constexpr int most = 32 * (kBulkWarps - 1);  // chunks of a row, one per lane
  const int chunks = p.K / E;
  if constexpr (bulk_fits<W>(M, 1))
    if (chunks <= most) return launch_bulk<W, M, 1, Stamp>(s, p, taken);
  if constexpr (bulk_fits<W>(M, 2))
    if (chunks <= 2 * most) return launch_bulk<W, M, 2, Stamp>(s, p, taken);
  if constexpr (bulk_fits<W>(M, 4))
    if (chunks <= 4 * most) return launch_bulk<W, M, 4, Stamp>(s, p, taken);
  return GS_OK;
}

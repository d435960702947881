// Attention of many queries, for prefill; a part of attention.cu. Tiles of queries are multiplied with tiles of keys,
// with an online softmax (T. Dao, FlashAttention-2, 2023). Blocks with the most keys come first in the grid.
//
// Keys and values of positions before pos[b] are read from the cache, those of the new rows from qkv. Each block also
// stores the keys and values of its own rows. No block reads a cache row that another block writes in the same launch.
#pragma once

// ---------------------------------------------------------------- asynchronous copies, matrix instructions

#if __CUDA_ARCH__ >= 800
// Copies 16 bytes from global to shared memory, or zeros if ok is false.
__device__ inline void copy16(uint32_t dst, const void *src, bool ok) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(dst), "l"(src), "r"(ok ? 16 : 0) : "memory");
}
__device__ inline void copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> __device__ inline void copy_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }
#else  // such GPUs get the naive kernel
__device__ inline void copy16(uint32_t, const void *, bool) { __trap(); }
__device__ inline void copy_commit() {}
template <int N> __device__ inline void copy_wait() {}
#endif

__device__ inline void load_matrices(uint32_t (&r)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}
__device__ inline void load_matrices_transposed(uint32_t (&r)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

// c (16, 8) += a (16, 16) b (16, 8): bfloat16 inputs, float32 sums.
__device__ inline void multiply(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
#if __CUDA_ARCH__ >= 800
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#endif
}

// ---------------------------------------------------------------- where the rows of a tile lie

// The keys and values of one sequence and head by position: from the cache before pos, from qkv from there on. A thread
// loads the same 16-byte chunk of every row. What is equal for the whole block is separate from what is a thread's own,
// so that the compiler can keep it in uniform registers.
template <typename T> struct Rows {
  static constexpr int ELEMENTS = 16 / sizeof(T);
  const Attention &a;
  int head, sequence;   // indices into B*NH and B
  int pos, shift;       // shift: the position of row 0 of qkv
  int h, column;        // of the thread's chunk; -1 if it is between HS and the tile's width, where there are zeros

  __device__ Rows(const Attention &a, int b, int h, int pos, int pad, int chunk)
      : a(a), head(b * a.NH + h), sequence(b), pos(pos), shift(pos - pad), h(h),
        column(chunk * ELEMENTS < a.HS ? chunk * ELEMENTS : -1) {}
  __device__ bool inside() const { return column >= 0; }
  __device__ const T *row(int position, const void *cache, int third) const {
    const T *past = static_cast<const T *>(cache) + int64_t(head) * a.P * a.HS;
    const T *fresh = static_cast<const T *>(a.qkv) + int64_t(sequence) * a.T * a.ldqkv + (third * a.NH + h) * a.HS;
    return (position < pos ? past : fresh) + (position < pos ? position * a.HS : (position - shift) * a.ldqkv) +
           max(column, 0);
  }
  __device__ const T *k(int position) const { return row(position, a.k_cache, 1); }
  __device__ const T *v(int position) const { return row(position, a.v_cache, 2); }
  // Stores the key and value of a new row in the cache.
  __device__ void store(int position) const {
    if (!inside() || position < pos || position >= a.P) return;
    const uint4 key = *reinterpret_cast<const uint4 *>(k(position)),
                value = *reinterpret_cast<const uint4 *>(v(position));
    const int64_t to = (int64_t(head) * a.P + position) * a.HS + column;
    *reinterpret_cast<uint4 *>(static_cast<T *>(a.k_cache) + to) = key;
    *reinterpret_cast<uint4 *>(static_cast<T *>(a.v_cache) + to) = value;
  }
};

// Sets rows r0 to r0 + rows - 1 of y of a head to 0.
template <typename T>
__device__ inline void zero_rows(const Attention &a, int b, int h, int r0, int rows, int threads) {
  int width = a.HS * int(sizeof(T)) / 16;
  for (int i = threadIdx.x; i < rows * width; i += threads) {
    T *y = static_cast<T *>(a.y) + (int64_t(b) * a.T + r0 + i / width) * a.ldy + h * a.HS +
           i % width * (16 / int(sizeof(T)));
    *reinterpret_cast<uint4 *>(y) = make_uint4(0, 0, 0, 0);
  }
}

// ---------------------------------------------------------------- bfloat16, mma.sync

// Tiles in shared memory are panels of 64 columns: rows of 128 bytes, with the 16-byte chunks permuted by chunk ^ (row
// % 8) so that ldmatrix and cp.async have no bank conflicts.
__device__ inline uint32_t tile_offset(int row, int chunk, int rows) {
  return (chunk >> 3) * rows * 128 + row * 128 + (((chunk & 7) ^ (row & 7)) << 4);
}

// The address of chunk 2*k + bit of a row, given that of chunk `bit`. Tiles begin at multiples of 128 bytes, so the
// permutation is an exclusive or of the address.
__device__ inline uint32_t chunk_pair(uint32_t address, int k, int rows) {
  return (address ^ ((k & 3) << 5)) + (k >> 2) * rows * 128;
}

constexpr int KEY_TILE = 64;

template <int D, int R, int WM, int WK> constexpr size_t flash_shared() {
  return 16 * R * WM * D * 2 + 2 * 2 * KEY_TILE * WK * D * 2;
}

// The blocks per SM for which the compiler limits registers. From compute capability 10.0 on, two blocks of 8 warps
// would cause spills.
constexpr int flash_blocks(int D, int warps) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
  return D == 64 && warps == 4 ? 2 : 1;
#else
  return D == 64 ? 2 : 1;
#endif
}

// One block: 16 * R * WM queries of one head. WM warps have 16 * R queries each (R = 2 halves the reads from shared
// memory per product). WK such groups take every WK-th tile of 64 keys and are merged at the end (WK = 2 keeps the GPU
// busy if there are few blocks). D is the width of the tiles; columns from HS to D are zeros.
template <int D, int R, int WM, int WK, typename S>
__global__ void __launch_bounds__(32 * WM * WK, flash_blocks(D, WM *WK))
    attention_flash_bf16(const S stamp, const Attention a) {
  constexpr int THREADS = 32 * WM * WK, ROWS = 16 * R, BM = ROWS * WM, KEYS = KEY_TILE * WK;
  constexpr int CHUNKS = D / 8, STEP = THREADS / CHUNKS;  // rows that the block loads at once
  constexpr uint32_t MATRIX = KEYS * D * 2, STAGE = 2 * MATRIX;
  static_assert(WK == 1 || (WK == 2 && R == 1), "one or two groups of keys");
  static_assert(STEP % 8 == 0 && BM % STEP == 0 && KEYS % STEP == 0, "whole turns of the loaders");
  extern __shared__ __align__(1024) uint8_t shared[];
  const uint32_t q_tile = shared_address(shared), stages = q_tile + BM * D * 2;

  const int h = blockIdx.x, b = blockIdx.y, tile = gridDim.z - 1 - blockIdx.z;
  const int tid = threadIdx.x, lane = tid & 31, warp = tid >> 5, wm = warp % WM, wk = warp / WM;
  gs_let_next();
  const gs_stamped<S> stamped(stamp);
  gs_wait();
  stamped.start();
  const int pad = a.pad ? *a.pad : 0, pos = a.pos[b];
  const int r0 = tile * BM, rows = min(BM, a.T - r0);
  if (r0 + rows <= pad) {
    zero_rows<bf16>(a, b, h, r0, rows, THREADS);
    return;
  }
  const int end = pos + r0 + rows - pad;  // keys to which the tile's last row attends

  const int chunk = tid % CHUNKS, row_of_thread = tid / CHUNKS;
  const Rows<bf16> source(a, b, h, pos, pad, chunk);
  const uint32_t to = tile_offset(row_of_thread, chunk, KEYS);
  auto load = [&](int turn) {
    const uint32_t at = stages + (turn & 1) * STAGE + to;
#pragma unroll
    for (int i = 0; i < KEYS / STEP; i++) {
      int position = turn * KEYS + i * STEP + row_of_thread;
      bool ok = source.inside() && position < end;
      if (position >= end) position = end - 1;
      copy16(at + i * STEP * 128, source.k(position), ok);
      copy16(at + MATRIX + i * STEP * 128, source.v(position), ok);
    }
    copy_commit();
  };

#pragma unroll
  for (int i = 0; i < BM / STEP; i++) {
    int row = i * STEP + row_of_thread, r = r0 + row;
    bool ok = source.inside() && r >= pad && r < a.T;
    const bf16 *q = static_cast<const bf16 *>(a.qkv) + (int64_t(b) * a.T + (ok ? r : 0)) * a.ldqkv + h * a.HS +
                    (ok ? chunk * 8 : 0);
    copy16(q_tile + tile_offset(row, chunk, BM), q, ok);
  }
  copy_commit();
  load(0);
#pragma unroll
  for (int i = 0; i < BM / STEP; i++) {
    int r = r0 + i * STEP + row_of_thread;
    if (r >= pad && r < a.T) source.store(pos + r - pad);
  }

  const uint32_t q_at = q_tile + tile_offset(wm * ROWS + (lane & 15), lane >> 4, BM);
  auto q_fragment = [&](uint32_t(&f)[4], int i, int k) { load_matrices(f, chunk_pair(q_at, k, BM) + i * 16 * 128); };
  copy_wait<1>();
  __syncthreads();

  // A thread holds rows lane / 4 and lane / 4 + 8 of each 16 of its warp's.
  float o[R][D / 8][4] = {}, m[R][2], l[R][2] = {};
#pragma unroll
  for (int i = 0; i < R; i++) m[i][0] = m[i][1] = -INFINITY;
  const int first = pos + r0 + wm * ROWS - pad;      // the last key of the warp's first row
  const int last = min(first + ROWS - 1, end - 1);  // the last key of its last row
  const uint32_t k_offset = tile_offset(wk * KEY_TILE + (lane & 7) + ((lane >> 4) << 3), (lane >> 3) & 1, KEYS);
  const uint32_t v_offset = MATRIX + tile_offset(wk * KEY_TILE + (lane & 15), lane >> 4, KEYS);
  for (int turn = 0; turn * KEYS < end; turn++) {
    copy_wait<0>();
    __syncthreads();
    if ((turn + 1) * KEYS < end) load(turn + 1);
    const int key0 = turn * KEYS + wk * KEY_TILE;
    if (key0 > last) continue;
    const uint32_t k_tile = stages + (turn & 1) * STAGE + k_offset, v_tile = stages + (turn & 1) * STAGE + v_offset;

    float s[R][KEY_TILE / 8][4] = {};
#pragma unroll
    for (int k = 0; k < D / 16; k++) {
      uint32_t q[R][4];
#pragma unroll
      for (int i = 0; i < R; i++) q_fragment(q[i], i, k);
#pragma unroll
      for (int n = 0; n < KEY_TILE / 16; n++) {
        uint32_t f[4];
        load_matrices(f, chunk_pair(k_tile, k, KEYS) + n * 16 * 128);
#pragma unroll
        for (int i = 0; i < R; i++) {
          multiply(s[i][2 * n], q[i], f[0], f[1]);
          multiply(s[i][2 * n + 1], q[i], f[2], f[3]);
        }
      }
    }
    if (key0 + KEY_TILE - 1 > first) {
      const int limit = first + (lane >> 2) - key0 - (lane & 3) * 2;
#pragma unroll
      for (int i = 0; i < R; i++)
#pragma unroll
        for (int n = 0; n < KEY_TILE / 8; n++)
#pragma unroll
          for (int e = 0; e < 4; e++)
            if (n * 8 + (e & 1) > limit + i * 16 + (e >> 1) * 8) s[i][n][e] = -INFINITY;
    }
#pragma unroll
    for (int i = 0; i < R; i++)
#pragma unroll
      for (int half = 0; half < 2; half++) {
        float top = m[i][half];
#pragma unroll
        for (int n = 0; n < KEY_TILE / 8; n++) top = fmaxf(top, fmaxf(s[i][n][2 * half], s[i][n][2 * half + 1]));
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
        const float base = top == -INFINITY ? 0.0f : top * a.scale;
        const float shrink = exp2_fast(m[i][half] * a.scale - base);
        m[i][half] = top;
        float sum = 0;
#pragma unroll
        for (int n = 0; n < KEY_TILE / 8; n++)
#pragma unroll
          for (int e = 2 * half; e < 2 * half + 2; e++) {
            s[i][n][e] = exp2_fast(s[i][n][e] * a.scale - base);
            sum += s[i][n][e];
          }
        l[i][half] = l[i][half] * shrink + sum;
#pragma unroll
        for (int d = 0; d < D / 8; d++) {
          o[i][d][2 * half] *= shrink;
          o[i][d][2 * half + 1] *= shrink;
        }
      }
#pragma unroll
    for (int k = 0; k < KEY_TILE / 16; k++) {
      uint32_t p[R][4];
#pragma unroll
      for (int i = 0; i < R; i++)
#pragma unroll
        for (int e = 0; e < 4; e++)
          p[i][e] = pack_bf16(s[i][2 * k + (e >> 1)][2 * (e & 1)], s[i][2 * k + (e >> 1)][2 * (e & 1) + 1]);
#pragma unroll
      for (int d = 0; d < D / 16; d++) {
        uint32_t f[4];
        load_matrices_transposed(f, chunk_pair(v_tile, d, KEYS) + k * 16 * 128);
#pragma unroll
        for (int i = 0; i < R; i++) {
          multiply(o[i][2 * d], p[i], f[0], f[1]);
          multiply(o[i][2 * d + 1], p[i], f[2], f[3]);
        }
      }
    }
  }
#pragma unroll
  for (int i = 0; i < R; i++)
#pragma unroll
    for (int half = 0; half < 2; half++) {
      l[i][half] += __shfl_xor_sync(0xffffffffu, l[i][half], 1);
      l[i][half] += __shfl_xor_sync(0xffffffffu, l[i][half], 2);
    }

  if (WK == 2) {  // the second group passes its part to the first through shared memory
    float *part = reinterpret_cast<float *>(shared + BM * D * 2) + wm * 32 + lane;
    constexpr int STRIDE = WM * 32;
    __syncthreads();
    if (wk == 1) {
#pragma unroll
      for (int half = 0; half < 2; half++) {
        part[half * STRIDE] = m[0][half];
        part[(2 + half) * STRIDE] = l[0][half];
      }
#pragma unroll
      for (int d = 0; d < D / 8; d++)
#pragma unroll
        for (int e = 0; e < 4; e++) part[(4 + d * 4 + e) * STRIDE] = o[0][d][e];
    }
    __syncthreads();
    if (wk == 1) return;
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const float other = part[half * STRIDE], top = fmaxf(m[0][half], other);
      const float base = top == -INFINITY ? 0.0f : top * a.scale;
      const float mine = exp2_fast(m[0][half] * a.scale - base), theirs = exp2_fast(other * a.scale - base);
      l[0][half] = l[0][half] * mine + part[(2 + half) * STRIDE] * theirs;
#pragma unroll
      for (int d = 0; d < D / 8; d++)
#pragma unroll
        for (int e = 2 * half; e < 2 * half + 2; e++)
          o[0][d][e] = o[0][d][e] * mine + part[(4 + d * 4 + e) * STRIDE] * theirs;
    }
  }

  const int idle = a.pad ? *static_cast<const volatile int *>(a.pad) : 0;  // read again, to save a register in the loop
  // The output passes through the warp's rows of the q tile, so that y is written in 16-byte chunks.
  __syncwarp();
#pragma unroll
  for (int i = 0; i < R; i++)
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const float inverse = l[i][half] > 0 ? 1 / l[i][half] : 0;
#pragma unroll
      for (int d = 0; d < D / 8; d++) {
        uint32_t at = tile_offset(wm * ROWS + i * 16 + half * 8 + (lane >> 2), d, BM) + (lane & 3) * 4;
        *reinterpret_cast<uint32_t *>(shared + at) =
            pack_bf16(o[i][d][2 * half] * inverse, o[i][d][2 * half + 1] * inverse);
      }
    }
  __syncwarp();
#pragma unroll
  for (int i = 0; i < ROWS * CHUNKS / 32; i++) {
    const int row = wm * ROWS + (i * 32 + lane) / CHUNKS, c = (i * 32 + lane) % CHUNKS, r = r0 + row;
    if (r >= a.T || c * 8 >= a.HS) continue;
    uint4 v = *reinterpret_cast<const uint4 *>(shared + tile_offset(row, c, BM));
    if (r < idle) v = make_uint4(0, 0, 0, 0);
    *reinterpret_cast<uint4 *>(static_cast<bf16 *>(a.y) + (int64_t(b) * a.T + r) * a.ldy + h * a.HS + c * 8) = v;
  }
}

// ---------------------------------------------------------------- float32

template <int D, int BN>
constexpr size_t flash_f32_shared() {
  return sizeof(float) * ((64 + 2 * BN) * (D + 4) + 64 * (BN + 4));
}

// One block: 64 queries of one head, 16 x 16 threads, in float32 without TF32. A thread computes 4 queries x BN / 16
// scores, then 4 queries x D / 16 values of the output. Rows are padded by 16 bytes, the width of a read.
template <int D, int BN, typename S>
__global__ void __launch_bounds__(256, 2) attention_flash_f32(const S stamp, const Attention a) {
  constexpr int THREADS = 256, BM = 64, LD = D + 4, LDP = BN + 4;
  constexpr int CHUNKS = D / 4, STEP = THREADS / CHUNKS, COLUMNS = D / 64, NK = BN / 16;
  extern __shared__ __align__(1024) uint8_t shared[];
  float *q_tile = reinterpret_cast<float *>(shared), *k_tile = q_tile + BM * LD, *v_tile = k_tile + BN * LD,
        *p_tile = v_tile + BN * LD;

  const int h = blockIdx.x, b = blockIdx.y, tile = gridDim.z - 1 - blockIdx.z;
  const int tid = threadIdx.x, tx = tid & 15, ty = tid >> 4;
  gs_let_next();
  const gs_stamped<S> stamped(stamp);
  gs_wait();
  stamped.start();
  const int pad = a.pad ? *a.pad : 0, pos = a.pos[b];
  const int r0 = tile * BM, rows = min(BM, a.T - r0);
  if (r0 + rows <= pad) {
    zero_rows<float>(a, b, h, r0, rows, THREADS);
    return;
  }
  const int end = pos + r0 + rows - pad;

  const int chunk = tid % CHUNKS, row_of_thread = tid / CHUNKS;
  const Rows<float> source(a, b, h, pos, pad, chunk);
  auto load = [&](float *to, int key0, bool values) {
#pragma unroll
    for (int i = 0; i < BN / STEP; i++) {
      int row = i * STEP + row_of_thread, position = min(key0 + row, end - 1);
      copy16(shared_address(to + row * LD + chunk * 4), values ? source.v(position) : source.k(position),
             source.inside() && key0 + row < end);
    }
    copy_commit();
  };
#pragma unroll
  for (int i = 0; i < BM / STEP; i++) {
    int row = i * STEP + row_of_thread, r = r0 + row;
    bool ok = source.inside() && r >= pad && r < a.T;
    const float *q = static_cast<const float *>(a.qkv) + (int64_t(b) * a.T + (ok ? r : 0)) * a.ldqkv + h * a.HS +
                     (ok ? chunk * 4 : 0);
    copy16(shared_address(q_tile + row * LD + chunk * 4), q, ok);
  }
  load(k_tile, 0, false);
  load(v_tile, 0, true);
#pragma unroll 4
  for (int i = 0; i < BM / STEP; i++) {
    int r = r0 + i * STEP + row_of_thread;
    if (r >= pad && r < a.T) source.store(pos + r - pad);
  }

  float o[4][4 * COLUMNS] = {}, m[4], l[4] = {};
#pragma unroll
  for (int i = 0; i < 4; i++) m[i] = -INFINITY;
  const int first = pos + r0 - pad;  // the last key of the tile's first row
  for (int key0 = 0; key0 < end; key0 += BN) {
    copy_wait<1>();
    __syncthreads();
    float s[4][NK] = {};
#pragma unroll 4
    for (int d = 0; d < D; d += 4) {
      float4 q[4], k[NK];
#pragma unroll
      for (int i = 0; i < 4; i++) q[i] = *reinterpret_cast<const float4 *>(q_tile + (ty * 4 + i) * LD + d);
#pragma unroll
      for (int j = 0; j < NK; j++) k[j] = *reinterpret_cast<const float4 *>(k_tile + (tx + 16 * j) * LD + d);
#pragma unroll
      for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < NK; j++) {
          s[i][j] = fmaf(q[i].x, k[j].x, s[i][j]);
          s[i][j] = fmaf(q[i].y, k[j].y, s[i][j]);
          s[i][j] = fmaf(q[i].z, k[j].z, s[i][j]);
          s[i][j] = fmaf(q[i].w, k[j].w, s[i][j]);
        }
    }
    __syncthreads();  // all threads are done with these keys
    if (key0 + BN < end) load(k_tile, key0 + BN, false);
    else copy_commit();  // an empty group, as copy_wait<1> counts groups

    if (key0 + BN - 1 > first) {
#pragma unroll
      for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < NK; j++)
          if (key0 + tx + 16 * j > first + ty * 4 + i) s[i][j] = -INFINITY;
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
      float top = m[i];
#pragma unroll
      for (int j = 0; j < NK; j++) top = fmaxf(top, s[i][j]);
#pragma unroll
      for (int x = 8; x > 0; x >>= 1) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, x));
      const float unset = top == -INFINITY ? 0.0f : top;
      const float shrink = exp2f((m[i] - unset) * a.scale);
      m[i] = top;
      float sum = 0;
#pragma unroll
      for (int j = 0; j < NK; j++) {
        float p = exp2f((s[i][j] - unset) * a.scale);
        p_tile[(ty * 4 + i) * LDP + tx + 16 * j] = p;
        sum += p;
      }
      l[i] = l[i] * shrink + sum;
#pragma unroll
      for (int c = 0; c < 4 * COLUMNS; c++) o[i][c] *= shrink;
    }
    copy_wait<1>();
    __syncthreads();
#pragma unroll 2
    for (int k = 0; k < BN; k += 4) {
      float4 p[4];
#pragma unroll
      for (int i = 0; i < 4; i++) p[i] = *reinterpret_cast<const float4 *>(p_tile + (ty * 4 + i) * LDP + k);
#pragma unroll
      for (int c = 0; c < COLUMNS; c++)
#pragma unroll
        for (int j = 0; j < 4; j++) {
          const float4 v = *reinterpret_cast<const float4 *>(v_tile + (k + j) * LD + c * 64 + tx * 4);
#pragma unroll
          for (int i = 0; i < 4; i++) {
            const float w = j == 0 ? p[i].x : j == 1 ? p[i].y : j == 2 ? p[i].z : p[i].w;
            o[i][c * 4] = fmaf(w, v.x, o[i][c * 4]);
            o[i][c * 4 + 1] = fmaf(w, v.y, o[i][c * 4 + 1]);
            o[i][c * 4 + 2] = fmaf(w, v.z, o[i][c * 4 + 2]);
            o[i][c * 4 + 3] = fmaf(w, v.w, o[i][c * 4 + 3]);
          }
        }
    }
    __syncthreads();  // all threads are done with these values
    if (key0 + BN < end) load(v_tile, key0 + BN, true);
    else copy_commit();
  }
#pragma unroll
  for (int i = 0; i < 4; i++) {
#pragma unroll
    for (int x = 8; x > 0; x >>= 1) l[i] += __shfl_xor_sync(0xffffffffu, l[i], x);
    const int r = r0 + ty * 4 + i;
    if (r >= a.T) continue;
    const float inverse = r >= pad ? 1 / l[i] : 0;
#pragma unroll
    for (int c = 0; c < COLUMNS; c++) {
      const int column = c * 64 + tx * 4;
      if (column >= a.HS) continue;
      float4 v = make_float4(0, 0, 0, 0);
      if (r >= pad)
        v = make_float4(o[i][c * 4] * inverse, o[i][c * 4 + 1] * inverse, o[i][c * 4 + 2] * inverse,
                        o[i][c * 4 + 3] * inverse);
      *reinterpret_cast<float4 *>(static_cast<float *>(a.y) + (int64_t(b) * a.T + r) * a.ldy + h * a.HS + column) = v;
    }
  }
}

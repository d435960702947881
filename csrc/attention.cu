// Causal attention over a KV cache: gs_attention_args. Variants: naive (a warp per query), split (one query: the keys
// are divided among blocks; by auto among those of a cluster where the GPU has clusters), flash (many queries,
// attention_flash.cuh), wgmma and queue (few and many tiles of queries on Hopper's tensor cores, attention_wgmma.cu).
//
// pos and pad are read on the device, and grids depend on shapes alone, so that a captured launch serves every
// position. The softmax is in float32 to base 2; the scale includes log2(e) and must be positive. Sums have a fixed
// order.

#include "attention.cuh"
#include "mbarrier.cuh"
#include "ptx.cuh"

namespace {

struct Attention {
  const void *qkv;          // (B*T, 3*C)
  void *k_cache, *v_cache;  // (B, NH, P, HS)
  const int *pos, *pad;
  void *y;     // (B*Q, C)
  void *work;  // COUNTERS counters that are 0 between launches, then partial results of the split kernel
  int B, T, Q, NH, HS, P, ldqkv, ldy;
  int splits;
  float scale;  // times log2(e)
};

#include "attention_flash.cuh"

// ---------------------------------------------------------------- append

// Stores keys and values of new rows in the cache: one block per row of a sequence, words of type V. ld, row and head
// are the words of ldqkv, C and HS elements.
template <typename V, typename S>
__global__ void attention_append(const S stamp, const Attention a, int64_t ld, int row, int head) {
  gs_let_next();
  const gs_stamped<S> stamped(stamp);
  gs_wait();
  stamped.start();
  const int r = blockIdx.x, b = blockIdx.y, pad = a.pad ? *a.pad : 0, position = a.pos[b] + r - pad;
  if (r < pad || position >= a.P) return;
  const V *from = static_cast<const V *>(a.qkv) + (int64_t(b) * a.T + r) * ld + row;
  for (int i = threadIdx.x; i < row; i += blockDim.x) {
    int64_t to = ((int64_t(b) * a.NH + i / head) * a.P + position) * head + i % head;
    V k = from[i], v = from[row + i];
    static_cast<V *>(a.k_cache)[to] = k;
    static_cast<V *>(a.v_cache)[to] = v;
  }
}

// ---------------------------------------------------------------- naive

// One warp per query, sequence and head; one key at a time. Reads keys and values from the cache, where
// attention_append has stored the new ones. A lane has N values of a head: HS <= 32 N.
template <typename T, int N, typename S>
__global__ void __launch_bounds__(128) attention_naive(const S stamp, const Attention a) {
  gs_let_next();
  const gs_stamped<S> stamped(stamp);
  gs_wait();
  stamped.start();
  const int lane = threadIdx.x & 31;
  const int64_t item = int64_t(blockIdx.x) * 4 + (threadIdx.x >> 5);
  if (item >= int64_t(a.B) * a.NH * a.Q) return;
  const int query = item % a.Q, h = item / a.Q % a.NH, b = item / a.Q / a.NH;
  const int r = a.T - a.Q + query, pad = a.pad ? *a.pad : 0;
  const int keys = r < pad ? 0 : min(a.pos[b] + r - pad + 1, a.P);
  const T *q = static_cast<const T *>(a.qkv) + (int64_t(b) * a.T + r) * a.ldqkv + h * a.HS;
  const T *k = static_cast<const T *>(a.k_cache) + (int64_t(b) * a.NH + h) * a.P * a.HS;
  const T *v = static_cast<const T *>(a.v_cache) + (int64_t(b) * a.NH + h) * a.P * a.HS;
  T *y = static_cast<T *>(a.y) + (int64_t(b) * a.Q + query) * a.ldy + h * a.HS;

  float qf[N], o[N] = {}, m = -INFINITY, l = 0;
  for (int i = 0; i < N; i++) qf[i] = lane + 32 * i < a.HS ? to_float(q[lane + 32 * i]) : 0;
  for (int j = 0; j < keys; j++, k += a.HS, v += a.HS) {
    float s = 0;
    for (int i = 0; i < N; i++)
      if (lane + 32 * i < a.HS) s = fmaf(qf[i], to_float(k[lane + 32 * i]), s);
    s = warp_sum(s) * a.scale;
    const float top = fmaxf(m, s), shrink = exp2f(m - top), p = exp2f(s - top);
    m = top;
    l = l * shrink + p;
    for (int i = 0; i < N; i++)
      if (lane + 32 * i < a.HS) o[i] = o[i] * shrink + p * to_float(v[lane + 32 * i]);
  }
  for (int i = 0; i < N; i++)
    if (lane + 32 * i < a.HS) y[lane + 32 * i] = from_float<T>(keys > 0 ? o[i] / l : 0.0f);
}

// ---------------------------------------------------------------- split

// Flash-Decoding (T. Dao, D. Haziza, F. Massa, G. Sizov, Flash-Decoding for long-context inference, 2023), for one
// query per sequence, the last row. LANES lanes hold a key, and a block a group of KEYS keys; groups are dealt to the
// blocks in turn, at least TURN to each. The last block to finish, by an atomic counter that wraps to 0, merges the
// parts.

constexpr int MAX_SPLITS = 32;  // one per lane of the warp that weights the parts
// one per sequence and head; fixed, so that launches of all shapes can share the work area
constexpr int COUNTERS = 4096;
constexpr int SPLIT_WARPS = 8;
constexpr int SM_WARPS = 24;  // of a split kernel on an SM, for which the compiler limits registers

// Of a cache of type T: the values in 16 bytes, the type of rows of qkv, and the groups of keys that a thread loads
// before it uses the first.
template <typename T> struct Chunk {
  static constexpr int N = 16 / sizeof(T), TURN = 4;
  using Row = T;
};

__device__ inline void unpack(const uint4 &v, float (&f)[4]) {
  f[0] = __uint_as_float(v.x), f[1] = __uint_as_float(v.y), f[2] = __uint_as_float(v.z), f[3] = __uint_as_float(v.w);
}
__device__ inline void unpack(const uint4 &v, float (&f)[8]) {  // bfloat16 is the upper half of a float32
  const uint32_t w[4] = {v.x, v.y, v.z, v.w};
  for (int i = 0; i < 4; i++) {
    f[2 * i] = __uint_as_float(w[i] << 16);
    f[2 * i + 1] = __uint_as_float(w[i] & 0xffff0000u);
  }
}

#include "attention_q8.cuh"

// Merges maximum m, sum l and output o with those of lane ^ mask, which has other keys.
template <int N> __device__ inline void merge_lanes(float &m, float &l, float (&o)[N], int mask) {
  const float other = __shfl_xor_sync(0xffffffffu, m, mask), top = fmaxf(m, other);
  const float base = top == -INFINITY ? 0.0f : top;
  const float mine = exp2_fast(m - base), theirs = exp2_fast(other - base);
  m = top;
  l = l * mine + __shfl_xor_sync(0xffffffffu, l, mask) * theirs;
  for (int i = 0; i < N; i++) o[i] = o[i] * mine + __shfl_xor_sync(0xffffffffu, o[i], mask) * theirs;
}

// What one thread of a split kernel works on: a chunk of 16 bytes of the query and of one key and value of each group.
template <typename T, int LANES> struct SplitThread {
  int key, column;  // of a group; of the head
  bool column_ok;   // whether the column is less than HS; beyond it q, k and v are 0
  int C, HS, P;
  T *k_cache, *v_cache;
  const typename Chunk<T>::Row *row;  // q; k and v follow at C and 2 * C
  Scales k_scales, v_scales;          // with 8 bits

  __device__ SplitThread(const Attention &a, int b, int h, int lane, int warp)
      : key(warp * (32 / LANES) + lane / LANES), column(lane % LANES * Chunk<T>::N), column_ok(column < a.HS),
        C(a.NH * a.HS), HS(a.HS), P(a.P), k_scales(a, a.k_cache, b * a.NH + h),
        v_scales(a, a.v_cache, b * a.NH + h) {
    const int64_t head = (int64_t(b) * a.NH + h) * a.P * a.HS + (column_ok ? column : 0);
    k_cache = static_cast<T *>(a.k_cache) + head, v_cache = static_cast<T *>(a.v_cache) + head;
    row = static_cast<decltype(row)>(a.qkv) + (int64_t(b) * a.T + a.T - 1) * a.ldqkv + h * a.HS +
          (column_ok ? column : 0);
  }
};

// A thread's chunks of the keys and values of TURN groups, and in 8 bits their scales.
template <typename T> struct SplitKeys {
  static constexpr int TURN = Chunk<T>::TURN;
  int position[TURN];
  uint4 k[TURN], v[TURN];
  float k_scale[TURN], v_scale[TURN];
};

// Loads the chunks of TURN groups, `step` groups apart; zeros from position `keys` on. The key and value at position
// `fresh`, the new row's, come from qkv.
template <int KEYS, typename T, int LANES>
__device__ inline void load_keys(const SplitThread<T, LANES> &t, int group, int step, int keys, int fresh,
                                 SplitKeys<T> &got) {
  const uint4 zero = make_uint4(0, 0, 0, 0);
  for (int i = 0; i < got.TURN; i++) {
    got.position[i] = (group + i * step) * KEYS + t.key;
    const bool ok = t.column_ok && got.position[i] < keys;
    const int64_t at = int64_t(got.position[i]) * t.HS;
    const void *k = t.k_cache + at, *v = t.v_cache + at;
    if (sizeof(T) > 1 && got.position[i] == fresh) k = t.row + t.C, v = t.row + 2 * t.C;
    got.k[i] = zero, got.v[i] = zero;
    got.k_scale[i] = got.v_scale[i] = sizeof(T) > 1;
    if (ok) {
      got.k[i] = *static_cast<const uint4 *>(k);
      got.v[i] = *static_cast<const uint4 *>(v);
      if (sizeof(T) == 1) got.k_scale[i] = t.k_scales[got.position[i]], got.v_scale[i] = t.v_scales[got.position[i]];
    }
  }
}

// Adds loaded keys to the running maximum m, sum l and output o of the thread's lanes, and stores the new row's key and
// value in the cache.
template <typename T, int LANES, int N>
__device__ inline void add_keys(const SplitThread<T, LANES> &t, float scale, int keys, int fresh,
                                const SplitKeys<T> &got, const float (&q)[N], float &m, float &l, float (&o)[N]) {
  constexpr int TURN = Chunk<T>::TURN;
  float s[TURN], top = m;
  for (int i = 0; i < TURN; i++) {
    float k[N];
    unpack(got.k[i], k);
    s[i] = 0;
    for (int e = 0; e < N; e++) s[i] = fmaf(q[e], k[e], s[i]);
    for (int x = LANES / 2; x > 0; x >>= 1) s[i] += __shfl_xor_sync(0xffffffffu, s[i], x);
    if (sizeof(T) == 1) s[i] *= got.k_scale[i];
    s[i] = got.position[i] < keys ? s[i] * scale : -INFINITY;
    top = fmaxf(top, s[i]);
  }
  const float base = top == -INFINITY ? 0.0f : top, shrink = exp2_fast(m - base);
  m = top;
  l *= shrink;
  for (int e = 0; e < N; e++) o[e] *= shrink;
  for (int i = 0; i < TURN; i++) {
    const float p = exp2_fast(s[i] - base);
    float v[N];
    unpack(got.v[i], v);
    l += p;
    for (int e = 0; e < N; e++) o[e] = fmaf(sizeof(T) == 1 ? p * got.v_scale[i] : p, v[e], o[e]);
    if (sizeof(T) > 1 && got.position[i] == fresh && t.column_ok && fresh < t.P) {
      *reinterpret_cast<uint4 *>(t.k_cache + int64_t(fresh) * t.HS) = got.k[i];
      *reinterpret_cast<uint4 *>(t.v_cache + int64_t(fresh) * t.HS) = got.v[i];
    }
  }
}

// Merges the lanes of each warp that hold different keys, and stores the result of each warp in shared memory.
template <int LANES, int N, int WARPS, int WIDTH>
__device__ inline void store_parts(int lane, int warp, float m, float l, float (&o)[N], int column,
                                   float (&part_m)[WARPS], float (&part_l)[WARPS], float (&part_o)[WARPS][WIDTH]) {
  for (int x = LANES; x < 32; x <<= 1) merge_lanes(m, l, o, x);
  if (lane < LANES)
    for (int e = 0; e < N; e++) part_o[warp][column + e] = o[e];
  if (lane == 0) part_m[warp] = m, part_l[warp] = l;
}

// Of a cache in 8 bits the first warp of a head rounds and stores the new row's key and value, and begins with them.
template <typename T, int LANES, int WARPS, typename S>
__global__ void __launch_bounds__(32 * WARPS, SM_WARPS / WARPS) attention_split(const S stamp, const Attention a) {
  constexpr int N = Chunk<T>::N, TURN = Chunk<T>::TURN, KEYS = WARPS * (32 / LANES), WIDTH = LANES * N;
  using Row = typename Chunk<T>::Row;
  __shared__ float part_o[WARPS][WIDTH], part_m[WARPS], part_l[WARPS];
  __shared__ bool is_last;
  const int split = blockIdx.x, h = blockIdx.y, b = blockIdx.z;
  const int tid = threadIdx.x, lane = tid & 31, warp = tid >> 5;
  const SplitThread<T, LANES> thread(a, b, h, lane, warp);
  Row *y = static_cast<Row *>(a.y) + int64_t(b) * a.ldy + h * a.HS;

  gs_let_next();
#if __CUDA_ARCH__ >= 900
  // Keys and values of the cache are prefetched into L2 while the product before this kernel ends. pos may still be
  // that of the step before, which is good enough for a prefetch. It is not kept in L1, so that the read after
  // gs_wait() gets the new one.
  if (a.T == 1) {
    const int old_keys = min(__ldcg(a.pos + b) + 1 - (a.pad ? __ldcg(a.pad) : 0), a.P);
    const int old_groups = (old_keys + KEYS - 1) / KEYS, old_used = min(a.splits, (old_groups + TURN - 1) / TURN);
    for (int i = 0; i < TURN; i++) {
      const int position = (split + i * old_used) * KEYS + thread.key;
      // One of the lanes that share a line of 128 bytes prefetches it.
      if (thread.column_ok && thread.column * sizeof(T) % 128 == 0 && split < old_used && position < old_keys) {
        asm volatile("prefetch.global.L2 [%0];" ::"l"(thread.k_cache + int64_t(position) * a.HS));
        asm volatile("prefetch.global.L2 [%0];" ::"l"(thread.v_cache + int64_t(position) * a.HS));
      }
    }
  }
#endif
  const gs_stamped<S> stamped(stamp, 32 * WARPS - 32);
  gs_wait();
  stamped.start();
  float q[N], o[N] = {}, m = -INFINITY, l = 0;
  read_row(thread.row, thread.column_ok, q);
  const int pad = a.pad ? *a.pad : 0, pos = a.pos[b];
  const int keys = a.T - 1 < pad ? 0 : min(sizeof(T) == 1 ? pos : pos + a.T - pad, a.P);  // of 8 bits, the old ones
  const int groups = (keys + KEYS - 1) / KEYS;
  const int used = min(a.splits, max((groups + TURN - 1) / TURN, int(sizeof(T) == 1 && pad == 0)));
  if (split >= used) {
    if (split == 0)  // an idle row has no keys
      for (int i = tid; i < a.HS; i += 32 * WARPS) y[i] = from_float<Row>(0);
    return;
  }
  // A single new row's key and value come from qkv, and the thread that loads them stores them. Several rows have been
  // stored by attention_append.
  const int fresh = a.T == 1 ? pos : -1;

  SplitKeys<T> got;
  load_keys<KEYS>(thread, split, used, keys, fresh, got);
  if constexpr (sizeof(T) == 1)
    if (split == 0 && warp == 0) begin_with_row<LANES>(thread, a.scale, pos, lane < LANES, q, m, l, o);
  for (int group = split; group < groups; group += used * TURN) {
    if (group != split) load_keys<KEYS>(thread, group, used, keys, fresh, got);
    add_keys(thread, a.scale, keys, fresh, got, q, m, l, o);
  }
  store_parts<LANES>(lane, warp, m, l, o, thread.column, part_m, part_l, part_o);
  __syncthreads();
  float top = part_m[0];
  for (int w = 1; w < WARPS; w++) top = fmaxf(top, part_m[w]);
  float sum = 0, out = 0;
  const int d = min(tid, WIDTH - 1);
  for (int w = 0; w < WARPS; w++) {
    const float weight = exp2_fast(part_m[w] - top);  // a used block has a key, so top is finite
    sum = fmaf(weight, part_l[w], sum);
    out = fmaf(weight, part_o[w][d], out);
  }
  if (used == 1) {
    if (tid < a.HS) y[tid] = from_float<Row>(out / sum);
    return;
  }

  // parts (B*NH, splits, 2 + HS): m, l, o
  const int stride = a.HS + 2, item = b * a.NH + h;
  float *parts =
      reinterpret_cast<float *>(static_cast<unsigned *>(a.work) + COUNTERS) + int64_t(item) * a.splits * stride;
  float *mine = parts + split * stride;
  if (tid == 0) mine[0] = top, mine[1] = sum;
  if (tid < a.HS) mine[2 + tid] = out;
  __threadfence();
  __syncthreads();
  if (tid == 0) is_last = atomicInc(static_cast<unsigned *>(a.work) + item, used - 1) == unsigned(used - 1);
  __syncthreads();
  if (!is_last) return;
  __threadfence();
  const float part_top = lane < used ? __ldcg(parts + lane * stride) : -INFINITY;
  const float part_sum = lane < used ? __ldcg(parts + lane * stride + 1) : 0;
  float value[MAX_SPLITS / 4];
  const bool writes = tid < a.HS;
  const float all = warp_max(part_top), weight = exp2_fast(part_top - all), total = warp_sum(weight * part_sum);
  out = 0;
  for (int s0 = 0; s0 < used; s0 += MAX_SPLITS / 4) {
    for (int i = 0; i < MAX_SPLITS / 4; i++)
      value[i] = writes && s0 + i < used ? __ldcg(parts + (s0 + i) * stride + 2 + tid) : 0;
    for (int i = 0; i < MAX_SPLITS / 4; i++) out = fmaf(__shfl_sync(0xffffffffu, weight, s0 + i), value[i], out);
  }
  if (writes) y[tid] = from_float<Row>(out / total);
}

// ---------------------------------------------------------------- split over a cluster

// The same for compute capability 9.0: the blocks that share a head are a thread block cluster of CLUSTER (4 or 8).
// They exchange their parts through distributed shared memory, which saves the round trip through L2 and the counter.
// Each block merges the parts for its own share of the columns.
#if __CUDA_ARCH__ >= 900
// Writes to the address in the shared memory of another block of the cluster that p has in this one's. An mbarrier
// there counts the bytes: a barrier of the cluster with "release" would wait for earlier accesses to device memory.
__device__ inline void store_cluster(float *p, int block, float v, uint64_t *full) {
  uint32_t to, at;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(to) : "r"(shared_address(p)), "r"(block));
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(at) : "r"(shared_address(full)), "r"(block));
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %1, [%2];" ::"r"(to), "f"(v),
               "r"(at)
               : "memory");
}
#endif

template <typename T, int LANES, int CLUSTER, int WARPS, typename S>
__global__ void __launch_bounds__(32 * WARPS) attention_cluster(const S stamp, const Attention a) {
#if __CUDA_ARCH__ >= 900
  constexpr int N = Chunk<T>::N, TURN = Chunk<T>::TURN, KEYS = WARPS * (32 / LANES), WIDTH = LANES * N;
  static_assert(WIDTH <= 32 * WARPS, "a thread for each column and part");
  __shared__ float part_o[WARPS][WIDTH], part_m[WARPS], part_l[WARPS];
  constexpr int SHARE = WIDTH / CLUSTER;       // columns that a block merges
  __shared__ float inbox[CLUSTER][SHARE + 2];  // from every block: these columns of o, then m and l
  __shared__ uint64_t full;                    // ends a phase when it is
  const int split = blockIdx.x, h = blockIdx.y, b = blockIdx.z;
  const int tid = threadIdx.x, lane = tid & 31, warp = tid >> 5;
  const SplitThread<T, LANES> thread(a, b, h, lane, warp);
  T *y = static_cast<T *>(a.y) + int64_t(b) * a.ldy + h * a.HS;

  if (tid == 0) {
    mbarrier_init(&full, 1);
    mbarrier_expect(shared_address(&full), sizeof inbox);
    mbarrier_show();
  }
  __syncthreads();
  gs_let_next();
  // this block runs: others may write to its inbox
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
  // pos usually has its final value before the preceding kernel ends. Keys are loaded early for the value read here,
  // and again if the one after gs_wait() differs.
  const int hint = a.T == 1 ? __ldcg(a.pos + b) : 0;
  // one lane prefetches each line of 128 bytes
  if (a.T == 1 && thread.column_ok && thread.column * sizeof(T) % 128 == 0) {
    for (int i = 0; i < TURN; i++) {
      const int position = (split + i * CLUSTER) * KEYS + thread.key;
      if (position < min(hint, a.P)) {
        asm volatile("prefetch.global.L2 [%0];" ::"l"(thread.k_cache + int64_t(position) * a.HS));
        asm volatile("prefetch.global.L2 [%0];" ::"l"(thread.v_cache + int64_t(position) * a.HS));
      }
    }
  }
  const gs_stamped<S> stamped(stamp, 32 * WARPS - 32);
  gs_wait();
  stamped.start();
  const int pad = a.pad ? __ldcg(a.pad) : 0, pos = __ldcg(a.pos + b);
  const uint4 q_bits = thread.column_ok ? *reinterpret_cast<const uint4 *>(thread.row) : make_uint4(0, 0, 0, 0);
  int keys, groups, fresh;
  auto set_position = [&](int pos, int pad) {
    keys = a.T - 1 < pad ? 0 : min(pos + a.T - pad, a.P);
    groups = (keys + KEYS - 1) / KEYS;
    fresh = a.T == 1 ? pos : -1;
  };
  SplitKeys<T> got;
  set_position(hint, 0);
  if (a.T == 1) load_keys<KEYS>(thread, split, CLUSTER, keys, fresh, got);  // overlaps with the read of pos
  if (a.T > 1 || pos != hint || pad != 0) {
    set_position(pos, pad);
    load_keys<KEYS>(thread, split, CLUSTER, keys, fresh, got);
  }

  float q[N], o[N] = {}, m = -INFINITY, l = 0;
  unpack(q_bits, q);
  for (int group = split; group < groups; group += CLUSTER * TURN) {
    if (group != split) load_keys<KEYS>(thread, group, CLUSTER, keys, fresh, got);
    add_keys(thread, a.scale, keys, fresh, got, q, m, l, o);
  }
  store_parts<LANES>(lane, warp, m, l, o, thread.column, part_m, part_l, part_o);
  __syncthreads();
  if (tid < WIDTH) {
    float top = part_m[0];
    for (int w = 1; w < WARPS; w++) top = fmaxf(top, part_m[w]);
    const float base = top == -INFINITY ? 0.0f : top;  // a block without keys
    float sum = 0, out = 0;
    for (int w = 0; w < WARPS; w++) {
      const float weight = exp2_fast(part_m[w] - base);
      sum = fmaf(weight, part_l[w], sum);
      out = fmaf(weight, part_o[w][tid], out);
    }
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
    store_cluster(&inbox[split][tid % SHARE], tid / SHARE, out, &full);
    if (tid < CLUSTER) {
      store_cluster(&inbox[split][SHARE], tid, top, &full);
      store_cluster(&inbox[split][SHARE + 1], tid, sum, &full);
    }
  } else {
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
  }

  // CLUSTER threads for each of the block's columns, one for every part.
  if (tid < WIDTH) {
    mbarrier_wait(&full, 0);
    const int d = split * SHARE + tid / CLUSTER, part = tid % CLUSTER;
    const float part_top = inbox[part][SHARE];
    float top = part_top;
    for (int x = CLUSTER / 2; x > 0; x >>= 1) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, x));
    const float weight = exp2_fast(part_top - (top == -INFINITY ? 0.0f : top));
    float sum = weight * inbox[part][SHARE + 1], out = weight * inbox[part][tid / CLUSTER];
    for (int x = CLUSTER / 2; x > 0; x >>= 1) {
      sum += __shfl_xor_sync(0xffffffffu, sum, x);
      out += __shfl_xor_sync(0xffffffffu, out, x);
    }
    if (part == 0 && d < a.HS) y[d] = from_float<T>(keys > 0 ? out / sum : 0.0f);
  }
#endif
}

// ---------------------------------------------------------------- launchers

enum Variant { AUTO, NAIVE, SPLIT, FLASH, WGMMA, QUEUE };

size_t element(int dtype) { return dtype == GS_F32 ? 4 : 2; }

// Whether heads can be read and written 16 bytes at a time.
bool in_chunks(const gs_attention_args *a) {
  const size_t n = element(a->dtype);
  return a->HS * n % 16 == 0 && a->ldqkv * n % 16 == 0 && a->ldy * n % 16 == 0 &&
         (a->qkv | a->k_cache | a->v_cache | a->y) % 16 == 0;
}

// The number of lanes that hold a key in the split kernels.
int split_lanes(const gs_attention_args *a) {
  if (a->wide) return a->HS <= 64 ? 4 : 8;
  const int chunks = a->HS * int(element(a->dtype)) / 16;
  return chunks <= 8 ? 8 : chunks <= 16 ? 16 : 32;
}

// The number of blocks that share a head: two blocks per SM in all, as a head whose parts no other block has needs no
// merging, but no more than get four groups of keys each when the cache is full.
int split_count(const gs_stream *s, const gs_attention_args *a) {
  const int64_t heads = int64_t(a->B) * a->NH;
  if (heads > COUNTERS) return 1;
  const int keys = SPLIT_WARPS * (32 / split_lanes(a)) * 4;
  int n = int((2 * int64_t(s->processors) + heads - 1) / heads);
  if (n > (a->P + keys - 1) / keys) n = (a->P + keys - 1) / keys;
  return n > MAX_SPLITS ? MAX_SPLITS : n < 1 ? 1 : n;
}

template <typename S> int append(gs_stream *s, const gs_attention_args *a, const Attention &k) {
  const int n = int(element(a->dtype));
  const dim3 grid(a->T, a->B);
  auto launch = [&](auto kernel, int width) {
    return gs_launch(s, "attention_append", kernel, grid, dim3(128), 0, k, int64_t(a->ldqkv) * n / width,
                     a->NH * a->HS * n / width, a->HS * n / width);
  };
  if (in_chunks(a)) return launch(attention_append<uint4, S>, 16);
  return n == 4 ? launch(attention_append<uint32_t, S>, 4) : launch(attention_append<uint16_t, S>, 2);
}

template <typename S> int naive(gs_stream *s, const gs_attention_args *a, const Attention &k) {
  if (int e = append<S>(s, a, k)) return e;
  const dim3 grid(unsigned((int64_t(a->B) * a->NH * a->Q + 3) / 4));
  void (*kernel)(S, Attention);
  if (a->HS <= 128) kernel = a->dtype == GS_F32 ? attention_naive<float, 4, S> : attention_naive<bf16, 4, S>;
  else kernel = a->dtype == GS_F32 ? attention_naive<float, 16, S> : attention_naive<bf16, 16, S>;
  return gs_launch(s, "attention_naive", kernel, grid, dim3(128), 0, k);
}

template <typename S> int split(gs_stream *s, const gs_attention_args *a, const Attention &k) {
  const int lanes = split_lanes(a);
  // Small blocks all run at once.
  const int warps = a->wide && a->B * a->NH > SM_WARPS / SPLIT_WARPS * s->processors ? 4 : SPLIT_WARPS;
  void (*kernel)(S, Attention);
  if (warps == 4)
    kernel = lanes == 4 ? attention_split<int8_t, 4, 4, S> : attention_split<int8_t, 8, 4, S>;
  else if (a->wide)
    kernel = lanes == 4 ? attention_split<int8_t, 4, SPLIT_WARPS, S> : attention_split<int8_t, 8, SPLIT_WARPS, S>;
  else if (a->dtype == GS_F32)
    kernel = lanes == 8    ? attention_split<float, 8, SPLIT_WARPS, S>
             : lanes == 16 ? attention_split<float, 16, SPLIT_WARPS, S>
                           : attention_split<float, 32, SPLIT_WARPS, S>;
  else
    kernel = lanes == 8 ? attention_split<bf16, 8, SPLIT_WARPS, S>
                        : attention_split<bf16, 16, SPLIT_WARPS, S>;
  return gs_launch_as(s, "attention_split", kernel, dim3(k.splits, a->NH, a->B), dim3(32 * warps), 0, {1, a->T == 1},
                      k);
}

template <int CLUSTER, int WARPS, typename S>
int split_cluster(gs_stream *s, const gs_attention_args *a, const Attention &k) {
  const int lanes = split_lanes(a);
  void (*kernel)(S, Attention);
  if (a->dtype == GS_F32)
    kernel = lanes == 8    ? attention_cluster<float, 8, CLUSTER, WARPS, S>
             : lanes == 16 ? attention_cluster<float, 16, CLUSTER, WARPS, S>
                           : attention_cluster<float, 32, CLUSTER, WARPS, S>;
  else
    kernel = lanes == 8 ? attention_cluster<bf16, 8, CLUSTER, WARPS, S>
                        : attention_cluster<bf16, 16, CLUSTER, WARPS, S>;
  return gs_launch_as(s, "attention_cluster", kernel, dim3(CLUSTER, a->NH, a->B), dim3(32 * WARPS), 0,
                      {CLUSTER, a->T == 1}, k);
}

template <int D, int R, int WM, int WK, typename S>
int flash_bf16(gs_stream *s, const gs_attention_args *a, const Attention &k) {
  constexpr size_t shared = flash_shared<D, R, WM, WK>();
  if (int e = gs_allow_shared<attention_flash_bf16<D, R, WM, WK, S>>(s, shared)) return e;
  return gs_launch(s, "attention_flash_bf16", attention_flash_bf16<D, R, WM, WK, S>,
                   dim3(a->NH, a->B, (a->T + 16 * R * WM - 1) / (16 * R * WM)), dim3(32 * WM * WK), shared, k);
}

template <int D, int BN, typename S> int flash_f32(gs_stream *s, const gs_attention_args *a, const Attention &k) {
  constexpr size_t shared = flash_f32_shared<D, BN>();
  if (int e = gs_allow_shared<attention_flash_f32<D, BN, S>>(s, shared)) return e;
  const dim3 grid(a->NH, a->B, (a->T + 63) / 64);
  return gs_launch(s, "attention_flash_f32", attention_flash_f32<D, BN, S>, grid, dim3(256), shared, k);
}

template <typename S> int flash(gs_stream *s, const gs_attention_args *a, const Attention &k) {
  if (a->dtype == GS_F32) return a->HS <= 64 ? flash_f32<64, 64, S>(s, a, k) : flash_f32<128, 32, S>(s, a, k);
  if (a->HS > 64) return flash_bf16<128, 1, 4, 1, S>(s, a, k);  // there is shared memory for no larger one
  // Long tiles read keys less often, and warps of 32 queries read shared memory half as often as warps of 16. If long
  // tiles leave SMs idle, short tiles whose keys are divided between two groups of warps are faster.
  const int64_t blocks = int64_t(a->B) * a->NH * ((a->T + 127) / 128);
  return blocks >= 2 * s->processors ? flash_bf16<64, 2, 4, 1, S>(s, a, k) : flash_bf16<64, 1, 4, 2, S>(s, a, k);
}

}  // namespace

const char *const gs_attention_variants[] = {"auto", "naive", "split", "flash", "wgmma", "queue", nullptr};

int gs_attention_work(gs_stream *s, const gs_attention_args *a, uint64_t *bytes) {
  GS_ENTER(s, a);
  *bytes = COUNTERS * sizeof(unsigned);
  if (a->Q == 1) *bytes += uint64_t(a->B) * a->NH * split_count(s, a) * (a->HS + 2) * sizeof(float);
  return GS_OK;
}

template <typename S> static int attention(gs_stream *s, const gs_attention_args *a);

// A prompt with a cache in 8 bits.
template <typename S> static int prompt8(gs_stream *s, const gs_attention_args *a, const Attention &k) {
  int e = GS_OK;
  if (a->Q > 0) {
    gs_attention_args wide = *a;
    wide.k_cache = a->wide, wide.v_cache = a->wide + uint64_t(a->B) * a->NH * a->P * a->HS * 2, wide.wide = 0;
    e = gs_launch(s, "attention_widen", attention_widen<S>, dim3(4, a->NH * a->B), dim3(256), 0, k,
                  (bf16 *)wide.k_cache, (bf16 *)wide.v_cache);
    if (!e) e = attention<S>(s, &wide);
  }
  return e ? e : gs_launch(s, "attention_append8", attention_append8<S>, dim3(a->T, a->B), dim3(128), 0, k);
}

template <typename S> static int attention(gs_stream *s, const gs_attention_args *a) {
  const Attention k = {(const void *)a->qkv, (void *)a->k_cache, (void *)a->v_cache, (const int *)a->pos,
                       (const int *)a->pad, (void *)a->y, (void *)a->work, a->B, a->T, a->Q, a->NH, a->HS, a->P,
                       a->ldqkv, a->ldy, split_count(s, a), a->scale * 1.4426950408889634f};
  const bool fast = in_chunks(a) && a->HS <= 128;  // the shapes that split and flash take
  int variant = a->variant;
  if (a->wide) {
    const bool step = a->T == 1 && a->Q == 1;
    if (a->dtype != GS_BF16 || a->HS % 16 != 0 || !fast || (step && variant != AUTO && variant != SPLIT))
      return gs_fail(GS_UNSUPPORTED,
                     "attention: a cache in 8 bits is for bfloat16, head sizes of multiples of 16 up to 128, and, of "
                     "decode steps, variant split");
    return step ? split<S>(s, a, k) : prompt8<gs_stamp>(s, a, k);
  }
  if (a->Q == 0) return append<S>(s, a, k);

  if (variant == AUTO)
    variant = !fast       ? NAIVE
              : a->Q == 1 ? SPLIT
              : s->major < 8 ? NAIVE
              : a->T < 64 || !gs_attention_wgmma_takes(s, a) ? FLASH : WGMMA;  // FLASH is faster of few rows
  if (variant < AUTO || variant > QUEUE) return gs_fail(GS_ARGUMENT, "attention: no variant %d", variant);
  if (variant == NAIVE) return naive<gs_stamp>(s, a, k);
  const char *name = gs_attention_variants[variant];
  if (!fast)
    return gs_fail(GS_UNSUPPORTED,
                   "attention: variant %s takes head sizes up to 128 and rows of whole 16 bytes, not head size %d, "
                   "rows of %d and %d",
                   name, a->HS, a->ldqkv, a->ldy);
  if (variant == SPLIT) {
    if (a->Q != 1)
      return gs_fail(GS_UNSUPPORTED, "attention: variant %s takes one query of a sequence, not %d", name, a->Q);
    if (int e = a->T > 1 ? append<S>(s, a, k) : (int)GS_OK) return e;
    // Of many heads blocks that wait for no other one are faster: from about three blocks an SM on. Eight small blocks
    // share a head, or four larger ones if eight would make more blocks than SMs.
    const int heads = a->B * a->NH;
    if (a->variant != AUTO || s->major < 9 || 4 * heads > 3 * s->processors) return split<S>(s, a, k);
    return 8 * heads > s->processors ? split_cluster<4, 8, S>(s, a, k) : split_cluster<8, 4, S>(s, a, k);
  }
  if (a->Q != a->T || a->T == 1)
    return gs_fail(GS_UNSUPPORTED, "attention: variant %s takes all rows of several as queries", name);
  if (variant == FLASH) return flash<gs_stamp>(s, a, k);
  if (!gs_attention_wgmma_takes(s, a))
    return gs_fail(GS_UNSUPPORTED,
                   "attention: variant %s takes bfloat16 and head size 64 on GPUs of compute capability 9.0", name);
  return gs_attention_wgmma(s, a, a->variant == AUTO ? -1 : variant == QUEUE);
}

int gs_attention(gs_stream *s, const gs_attention_args *a) {
  GS_ENTER(s, a);
  return gs_with_stamps(s, [&](auto stamp) { return attention<decltype(stamp)>(s, a); });
}

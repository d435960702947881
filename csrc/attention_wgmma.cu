// Causal attention of many queries in bfloat16, head size 64, on Hopper's tensor cores (compute capability 9.0).
//
// A block takes 64 queries of a head. Its warpgroups take blocks of 64 keys in turns, with an online softmax, and merge
// what they have; the diagonal block, which is masked, comes first, then the new keys before it, then those of the
// cache. One thread copies keys and values into a ring, and those of the block's own rows on to the cache. What a block
// reads of the cache that others write in the same launch it replaces.

#include "attention.cuh"
#include "wgmma.cuh"

namespace {

constexpr int HEAD = 64, ROWS = 64;             // values of a head; queries and keys of a block
constexpr int TILE = ROWS * HEAD * 2;           // bytes of queries, keys or values
[[maybe_unused]] constexpr int PART = 8 * 2048 + 2048;  // what a warpgroup hands over: outputs, then maxima and sums
[[maybe_unused]] constexpr int LINE = HEAD * 2 + 16;  // bytes of a row of y on its way out; without bank conflicts
constexpr int RING = 2;                         // blocks of keys in the ring for each warpgroup
constexpr int shared_of(int groups) { return 1024 + 3 * TILE + RING * groups * 2 * TILE; }

struct Prompt {
  __nv_bfloat16 *k_cache, *v_cache, *y;
  const int *pos, *pad;
  int T, P, ldy;
  float scale;  // times log2(e)
};

template <int GROUPS>
__global__ void __launch_bounds__(128 * GROUPS + 32, GROUPS == 2 ? 2 : 1)
    attention_wgmma(const gs_stamp stamp, const __grid_constant__ CUtensorMap qkv,
                    const __grid_constant__ CUtensorMap rows, const __grid_constant__ CUtensorMap keys,
                    const __grid_constant__ CUtensorMap values, const Prompt p) {
#ifdef GS_WGMMA
  constexpr int STAGES = RING * GROUPS;
  enum { DONE = 1, PARTS = 2, OWN = 3 };  // named barriers; OWN + w is of the warpgroup w
  extern __shared__ uint8_t shared[];
  __shared__ uint64_t full[STAGES], empty[STAGES], queries, own;
  const uint32_t q_tile = (shared_address(shared) + 1023) & ~1023u, ring = q_tile + 3 * TILE;
  const int h = blockIdx.x, heads = gridDim.x, b = blockIdx.z, tile = gridDim.y - 1 - blockIdx.y;
  const int group = threadIdx.x / 128, thread = threadIdx.x % 128, lane = thread % 32;
  if (threadIdx.x == 0) {
    for (int i = 0; i < STAGES; i++) mbarrier_init(full + i, 1), mbarrier_init(empty + i, 1);
    mbarrier_init(&queries, 1), mbarrier_init(&own, 1);
    mbarrier_show();
    prefetch_map(qkv);
  }
  __syncthreads();
  gs_let_next();
  const gs_stamped<gs_stamp> stamped(stamp);
  gs_wait();
  stamped.start();
  // Rows of the prompt before pad are idle. This block's first query is row0, at a position of pos + 64 tile.
  const int pad = p.pad ? __ldcg(p.pad) : 0, pos = __ldcg(p.pos + b), row0 = pad + tile * ROWS;
  const int fresh = tile + 1, blocks = row0 < p.T ? fresh + (pos + ROWS - 1) / ROWS : 0;
  if (group == GROUPS) {
    if (thread == 0 && blocks > 0) {
      mbarrier_expect(shared_address(&queries), TILE);
      copy_box(q_tile, qkv, h * HEAD, row0, b, &queries);
      for (int i = 0; i < blocks; i++) {
        const int stage = i % STAGES, to = ring + stage * 2 * TILE;
        if (i >= STAGES) mbarrier_wait(empty + stage, (i / STAGES - 1) & 1);
        mbarrier_expect(shared_address(full + stage), 2 * TILE);
        if (i < fresh) {
          copy_box(to, qkv, (heads + h) * HEAD, row0 - i * ROWS, b, full + stage);
          copy_box(to + TILE, qkv, (2 * heads + h) * HEAD, row0 - i * ROWS, b, full + stage);
          if (i > 0) continue;
          mbarrier_expect(shared_address(&own), 2 * TILE);
          copy_box(q_tile + TILE, rows, (heads + h) * HEAD, row0, b, &own);
          copy_box(q_tile + 2 * TILE, rows, (2 * heads + h) * HEAD, row0, b, &own);
        } else {
          copy_box(to, keys, 0, (i - fresh) * ROWS, b * heads + h, full + stage);
          copy_box(to + TILE, values, 0, (i - fresh) * ROWS, b * heads + h, full + stage);
        }
      }
      const int64_t to = ((int64_t)(b * heads + h) * p.P + pos + tile * ROWS) * HEAD;
      const int count = min(ROWS, min(p.T - row0, p.P - pos - tile * ROWS));
      mbarrier_wait(&own, 0);
      show_shared();
      if (count > 0) {
        bulk_store(p.k_cache + to, q_tile + TILE, count * HEAD * 2);
        bulk_store(p.v_cache + to, q_tile + 2 * TILE, count * HEAD * 2);
      }
      bulk_commit();
      bulk_written();
    }
    return;
  }
  __nv_bfloat16 *const y = p.y + (int64_t)b * p.T * p.ldy + h * HEAD;
  for (int i = threadIdx.x; i < min(pad - tile * ROWS, ROWS) * 8; i += 128 * GROUPS)
    *reinterpret_cast<uint4 *>(y + (int64_t)(tile * ROWS + i / 8) * p.ldy + i % 8 * 8) = make_uint4(0, 0, 0, 0);
  if (blocks == 0) return;

  const int row = thread / 32 * 16 + lane / 4;  // this thread has this query and the one 8 further
  float o[32], m[2] = {-INFINITY, -INFINITY}, l[2] = {};
#pragma unroll
  for (int i = 0; i < 32; i++) o[i] = 0;
  mbarrier_wait(&queries, 0);
  const uint64_t q = tile_rows(q_tile);
  for (int i = group; i < blocks; i += GROUPS) {
    const int stage = i % STAGES, first = (i - fresh) * ROWS;  // the position of the block's first key, if it is cached
    const bool cut = first >= 0 && first + ROWS > pos;
    const uint32_t k_tile = ring + stage * 2 * TILE, v_tile = k_tile + TILE;
    mbarrier_wait(full + stage, i / STAGES & 1);
    const uint64_t k = tile_rows(k_tile), v = tile_columns(v_tile);
    float s[32];
    wgmma_begin();
#pragma unroll
    for (int j = 0; j < 4; j++) wgmma<64>(s, q + 2 * j, k + 2 * j, j > 0);
    wgmma_commit();
    wgmma_wait<0>(s);
    if (i == 0 || cut) {  // a query's last key
      const int last = (i == 0 ? row : pos - first - 1) - lane % 4 * 2, step = i == 0 ? 8 : 0;
#pragma unroll
      for (int j = 0; j < 32; j++)
        if (j / 4 * 8 + j % 2 > last + j / 2 % 2 * step) s[j] = -INFINITY;
    }
#pragma unroll
    for (int half = 0; half < 2; half++) {
      float top = m[half];
#pragma unroll
      for (int j = 2 * half; j < 32; j += 4) top = fmaxf(top, fmaxf(s[j], s[j + 1]));
      top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
      top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
      const float shrink = exp2_fast((m[half] - top) * p.scale), base = top * p.scale;
      m[half] = top;
      float sum = 0;
#pragma unroll
      for (int j = 2 * half; j < 32; j += 4) {
        s[j] = exp2_fast(fmaf(s[j], p.scale, -base)), s[j + 1] = exp2_fast(fmaf(s[j + 1], p.scale, -base));
        sum += s[j] + s[j + 1];
      }
      l[half] = l[half] * shrink + sum;
#pragma unroll
      for (int j = 2 * half; j < 32; j += 4) o[j] *= shrink, o[j + 1] *= shrink;
    }
    uint32_t weights[16];
#pragma unroll
    for (int j = 0; j < 16; j++) weights[j] = pack_bf16(s[2 * j], s[2 * j + 1]);
    if (cut) {  // the rows of the cache from pos on hold anything, and 0 times that need not be 0
#pragma unroll 1
      for (int at = (pos - first) * 128 + thread * 16; at < TILE; at += 2048) store_shared4(v_tile + at, 0, 0, 0, 0);
      show_shared();
      if (group == 0) named_sync<128>(OWN);
      else if (group == 1) named_sync<128>(OWN + 1);
      else if (GROUPS > 2) named_sync<128>(OWN + 2);
    }
    keep_order(o);
    wgmma_begin();
#pragma unroll
    for (int j = 0; j < 4; j++) wgmma_registers(o, weights + 4 * j, v + 128 * j);
    wgmma_commit();
    wgmma_wait<0>(o);
    if (thread == 0) mbarrier_arrive(empty + stage);
  }

  // The other warpgroups hand their parts to the first.
  named_sync<128 * GROUPS>(DONE);
  if (group > 0) {
    const uint32_t part = ring + (group - 1) * PART + thread * 16;
#pragma unroll
    for (int j = 0; j < 8; j++) store_shared4(part + j * 2048, o[4 * j], o[4 * j + 1], o[4 * j + 2], o[4 * j + 3]);
    store_shared4(part + 8 * 2048, m[0], m[1], l[0], l[1]);
    named_arrive<128 * GROUPS>(PARTS);
    return;
  }
  named_sync<128 * GROUPS>(PARTS);
  float weight[GROUPS][2], most[GROUPS][2] = {{m[0], m[1]}}, sums[GROUPS][2] = {{l[0], l[1]}};
#pragma unroll
  for (int g = 1; g < GROUPS; g++) {
    const float4 part = load_shared4(ring + (g - 1) * PART + thread * 16 + 8 * 2048);
    most[g][0] = part.x, most[g][1] = part.y, sums[g][0] = part.z, sums[g][1] = part.w;
  }
#pragma unroll
  for (int half = 0; half < 2; half++) {
    float top = m[half], sum = 0;
#pragma unroll
    for (int g = 1; g < GROUPS; g++) top = fmaxf(top, most[g][half]);
#pragma unroll
    for (int g = 0; g < GROUPS; g++) {
      weight[g][half] = exp2_fast((most[g][half] - top) * p.scale);
      sum += sums[g][half] * weight[g][half];
    }
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    sum += __shfl_xor_sync(0xffffffffu, sum, 2);
    const float over = 1.0f / sum;
#pragma unroll
    for (int g = 0; g < GROUPS; g++) weight[g][half] *= over;
  }
#pragma unroll
  for (int j = 0; j < 8; j++) {
    o[4 * j] *= weight[0][0], o[4 * j + 1] *= weight[0][0], o[4 * j + 2] *= weight[0][1], o[4 * j + 3] *= weight[0][1];
#pragma unroll
    for (int g = 1; g < GROUPS; g++) {
      const float4 part = load_shared4(ring + (g - 1) * PART + thread * 16 + j * 2048);
      o[4 * j] += part.x * weight[g][0], o[4 * j + 1] += part.y * weight[g][0];
      o[4 * j + 2] += part.z * weight[g][1], o[4 * j + 3] += part.w * weight[g][1];
    }
  }
  // Through shared memory, each warp its 16 rows, so that whole lines are stored.
  const uint32_t out = ring + (GROUPS - 1) * PART + thread / 32 * 16 * LINE;
#pragma unroll
  for (int j = 0; j < 8; j += 2) {
    uint32_t r[4];
#pragma unroll
    for (int i = 0; i < 4; i++) r[i] = pack_bf16(o[4 * j + 2 * i], o[4 * j + 2 * i + 1]);
    store_matrices(out + lane % 16 * LINE + (j + lane / 16) * 16, r);
  }
  __syncwarp();
#pragma unroll
  for (int c = lane; c < 16 * 8; c += 32) {
    const int r = row0 + thread / 32 * 16 + c / 8;
    if (r < p.T)
      *reinterpret_cast<uint4 *>(y + (int64_t)r * p.ldy + c % 8 * 8) = load_shared(out + c / 8 * LINE + c % 8 * 16);
  }
#endif
}

template <int GROUPS> int launch(gs_stream *s, const gs_attention_args *a) {
  constexpr auto kernel = attention_wgmma<GROUPS>;
  const int C = a->NH * HEAD, heads = a->B * a->NH;
  CUtensorMap qkv, rows, keys, values;
  int e = gs_allow_shared<kernel>(s, shared_of(GROUPS));
  if (!e) e = gs_tensor_map(&qkv, a->qkv, 3 * C, a->T, a->B, a->ldqkv, (int64_t)a->T * a->ldqkv, ROWS);
  if (!e) e = gs_tensor_map(&rows, a->qkv, 3 * C, a->T, a->B, a->ldqkv, (int64_t)a->T * a->ldqkv, ROWS, false);
  if (!e) e = gs_tensor_map(&keys, a->k_cache, HEAD, a->P, heads, HEAD, (int64_t)a->P * HEAD, ROWS);
  if (!e) e = gs_tensor_map(&values, a->v_cache, HEAD, a->P, heads, HEAD, (int64_t)a->P * HEAD, ROWS);
  if (e) return e;
  const Prompt p = {(__nv_bfloat16 *)a->k_cache, (__nv_bfloat16 *)a->v_cache, (__nv_bfloat16 *)a->y,
                    (const int *)a->pos, (const int *)a->pad, a->T, a->P, a->ldy, a->scale * 1.4426950408889634f};
  return gs_launch(s, "attention_wgmma", kernel, dim3(a->NH, (a->T + ROWS - 1) / ROWS, a->B), dim3(128 * GROUPS + 32),
                   shared_of(GROUPS), qkv, rows, keys, values, p);
}

}  // namespace

bool gs_attention_wgmma_takes(const gs_stream *s, const gs_attention_args *a) {
  return a->dtype == GS_BF16 && a->HS == HEAD && a->Q == a->T && a->T > 1 && gs_has_wgmma(s);
}

bool gs_attention_wgmma_wins(const gs_attention_args *a) { return a->T >= 64; }

// Three warpgroups if two of the blocks would not fill an SM.
int gs_attention_wgmma(gs_stream *s, const gs_attention_args *a) {
  const int64_t blocks = (int64_t)a->B * a->NH * ((a->T + ROWS - 1) / ROWS);
  return blocks < 2 * s->processors ? launch<3>(s, a) : launch<2>(s, a);
}

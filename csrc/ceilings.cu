// Kernels that measure ceilings of the device: the time of a launch and of a hop between all SMs, the rates of reading
// and copying memory, and of reading the L2 cache.

#include "rows.cuh"
#include "packet.cuh"

namespace {

__global__ void empty_kernel() {
  gs_let_next();
  gs_wait();
}

constexpr int HOP_THREADS = 384;
constexpr int HOP_DEPTH = 2;                        // packets that a thread polls, at most
constexpr int HOP_UNITS = HOP_THREADS * HOP_DEPTH;  // of all blocks, at most

// The exchange of vectors that csrc/decode_kernel.cuh has: in each round every block publishes `packets` packets, which
// depend on what it read in the round before, then polls those of all blocks, a thread up to EACH of them. Two buffers
// are enough, since a block publishes in round r+2 only when it has all packets of round r+1, and each of those was
// published by a block that had read all of round r. A block that waits too long stops waiting for good.
template <int EACH>
__global__ void __launch_bounds__(HOP_THREADS) hops_kernel(gs_hop_header *header, int packets, unsigned rounds) {
#if __CUDA_ARCH__ >= 900
  constexpr uint64_t PATIENCE = 1000000000;  // ns that a thread waits in one round
  gs_let_next();
  gs_wait();
  // Two buffers, since threads read the values of one round while others store those of the next.
  __shared__ uint32_t values[2][3 * HOP_THREADS * EACH];
  const uint32_t epoch0 = header->epoch;
  bool late = header->late != 0;
  if (late) return;
  const int all = packets * gridDim.x, own = blockIdx.x * packets + threadIdx.x;
  const bool writes = (int)threadIdx.x < packets;
  char *const buffers = (char *)header + GS_HOP_HEADER;
  unsigned from = blockIdx.x;  // the block whose values of the last round this one changes and publishes
  for (unsigned round = 1; round <= rounds; round++) {
    const uint32_t epoch = epoch0 + round;
    char *const buffer = buffers + (size_t)(epoch & 1) * all * 16;
    if (writes) {
      uint32_t x[3] = {};
      if (round > 1)
        for (int k = 0; k < 3; k++) x[k] = values[(epoch - 1) & 1][3 * (from * packets + threadIdx.x) + k];
      for (int k = 0; k < 3; k++) x[k] += 3 * own + k;
      store_packet(buffer + (size_t)own * 16, x[0], x[1], x[2], epoch);
    }
    if (++from == gridDim.x) from = 0;

    uint4 u[EACH];
    unsigned polls = 0;
    uint64_t since = 0;
    bool wait;
    do {
      // All loads, then all checks: the loads are in flight together.
#pragma unroll
      for (int i = 0; i < EACH; i++) {
        const int at = i * HOP_THREADS + threadIdx.x;
        u[i] = load_packet_if(at < all, buffer + (size_t)at * 16);
      }
      wait = false;
#pragma unroll
      for (int i = 0; i < EACH; i++) wait |= i * HOP_THREADS + (int)threadIdx.x < all && u[i].w != epoch;
      if (wait && ++polls % 1024 == 0) {
        const uint64_t now = gs_globaltimer();
        if (since == 0) since = now;
        if (now - since > PATIENCE) *(volatile uint32_t *)&header->late = 1;
        late = *(volatile uint32_t *)&header->late != 0;
      }
    } while (wait && !late);
#pragma unroll
    for (int i = 0; i < EACH; i++) {
      const int at = i * HOP_THREADS + threadIdx.x;
      if (at >= all) continue;
      uint32_t *const to = values[epoch & 1] + 3 * at;
      to[0] = u[i].x, to[1] = u[i].y, to[2] = u[i].z;
    }
    __syncthreads();
  }
  // All blocks have read the epoch: this one has packets of all of them.
  if (own == 0) header->epoch = epoch0 + rounds;
#endif
}

constexpr int THREADS = 512;
constexpr int DEPTH = 8;  // 16-byte accesses in flight per thread
constexpr uint64_t TURN = (uint64_t)THREADS * DEPTH;  // vectors of 16 bytes that a CTA accesses at once

__device__ inline uint4 load_once(const uint4 *p) {
  uint4 v;
  asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p));
  return v;
}

// out ^= x of all threads of a warp. It makes the loads that x comes from necessary.
__device__ inline void xor_into(unsigned *out, unsigned x) {
#pragma unroll
  for (int o = 16; o > 0; o >>= 1) x ^= __shfl_xor_sync(0xffffffffu, x, o);
  if (threadIdx.x % 32 == 0) atomicXor(out, x);
}

// out ^= the exclusive or of all 32-bit words, the last one padded with zeros, so that every byte is used.
__global__ void __launch_bounds__(THREADS) read_kernel(const uint4 *p, uint64_t bytes, unsigned *out) {
  gs_let_next();
  gs_wait();
  const uint64_t vectors = bytes / 16;
  unsigned x = 0;
  for (uint64_t base = blockIdx.x * TURN; base < vectors; base += gridDim.x * TURN) {
    const uint64_t first = base + threadIdx.x;
    uint4 v[DEPTH];
    if (base + TURN <= vectors) {
#pragma unroll
      for (int i = 0; i < DEPTH; i++) v[i] = load_once(p + first + i * THREADS);
    } else {
#pragma unroll
      for (int i = 0; i < DEPTH; i++)
        v[i] = first + i * THREADS < vectors ? load_once(p + first + i * THREADS) : make_uint4(0, 0, 0, 0);
    }
#pragma unroll
    for (int i = 0; i < DEPTH; i++) x ^= v[i].x ^ v[i].y ^ v[i].z ^ v[i].w;
  }
  if (blockIdx.x == 0 && threadIdx.x < bytes % 16)
    x ^= (unsigned)reinterpret_cast<const uint8_t *>(p + vectors)[threadIdx.x] << (8 * (threadIdx.x % 4));
  xor_into(out, x);
}

constexpr int CACHE_DEPTH = 2;  // with four CTAs of THREADS on an SM, 64 KiB are in flight there
constexpr uint64_t CACHE_TURN = (uint64_t)THREADS * CACHE_DEPTH;
constexpr unsigned CACHE_SHIFT = 37;

// Reads gridDim.x turns of CACHE_TURN vectors in each pass, every CTA one of them. From pass to pass a CTA takes
// another turn, which its SM's L1 cache does not hold. Passes lie in one kernel, whose start would take longer than a
// pass. out is as that of read_kernel if passes is odd; if it is even, words cancel out.
__global__ void __launch_bounds__(THREADS) read_again_kernel(const uint4 *p, unsigned passes, unsigned *out) {
  gs_let_next();
  gs_wait();
  unsigned x = 0, turn = blockIdx.x;
  for (unsigned pass = 0; pass < passes; pass++) {
    const uint4 *q = p + turn * CACHE_TURN + threadIdx.x;
    uint4 v[CACHE_DEPTH];
#pragma unroll
    for (int i = 0; i < CACHE_DEPTH; i++) v[i] = load_once(q + i * THREADS);
#pragma unroll
    for (int i = 0; i < CACHE_DEPTH; i++) x ^= v[i].x ^ v[i].y ^ v[i].z ^ v[i].w;
    turn = (turn + CACHE_SHIFT) % gridDim.x;
  }
  xor_into(out, x);
}

__global__ void __launch_bounds__(THREADS) copy_kernel(uint4 *dst, const uint4 *src, uint64_t bytes) {
  gs_let_next();
  gs_wait();
  const uint64_t vectors = bytes / 16;
  for (uint64_t base = blockIdx.x * TURN; base < vectors; base += gridDim.x * TURN) {
    const uint64_t first = base + threadIdx.x;
    uint4 v[DEPTH];
    if (base + TURN <= vectors) {
#pragma unroll
      for (int i = 0; i < DEPTH; i++) v[i] = load_once(src + first + i * THREADS);
#pragma unroll
      for (int i = 0; i < DEPTH; i++) __stcs(dst + first + i * THREADS, v[i]);
    } else {
      for (uint64_t i = first; i < vectors; i += THREADS) dst[i] = src[i];
    }
  }
  if (blockIdx.x == 0 && threadIdx.x < bytes % 16)
    reinterpret_cast<uint8_t *>(dst + vectors)[threadIdx.x] =
        reinterpret_cast<const uint8_t *>(src + vectors)[threadIdx.x];
}

// As many CTAs as are resident at once, or fewer if there is less work.
int streaming_grid(gs_stream *s, uint64_t bytes) {
  const uint64_t need = (bytes / 16 + TURN - 1) / TURN, fit = 2 * (uint64_t)s->processors;
  return need < 1 ? 1 : need < fit ? need : fit;
}

}  // namespace

extern "C" int gs_empty_kernel(gs_stream *s) { return gs_launch(s, "empty", empty_kernel, 1, 32, 0); }

extern "C" int gs_hops(gs_stream *s, gs_ptr work, int packets, int rounds) {
  if (s->major < 9)
    return gs_fail(GS_UNSUPPORTED, "hops need code of compute capability 9.0; this GPU runs that of %d.%d",
                   s->major, s->minor);
  if (!gs_aligned(work, 16)) return gs_fail(GS_ARGUMENT, "hops: the address is not a multiple of 16");
  const int64_t all = (int64_t)packets * s->processors;
  if (packets < 1 || all > HOP_UNITS)
    return gs_fail(GS_UNSUPPORTED, "hops: %d packets of each of %d blocks; 1 to %d in all are possible", packets,
                   s->processors, HOP_UNITS);
  const auto kernel = all <= HOP_THREADS ? hops_kernel<1> : hops_kernel<HOP_DEPTH>;
  if (int status = gs_use(s->device)) return status;
  return gs_launch_as(s, "hops", kernel, s->processors, HOP_THREADS, 0, {1, false, true}, (gs_hop_header *)work,
                      packets, (unsigned)rounds);
}

extern "C" int gs_read(gs_stream *s, gs_ptr p, uint64_t bytes, gs_ptr out) {
  if (!gs_aligned(p, 16)) return gs_fail(GS_ARGUMENT, "read: the address is not a multiple of 16");
  return gs_launch(s, "read", read_kernel, streaming_grid(s, bytes), THREADS, 0, (const uint4 *)p, bytes,
                   (unsigned *)out);
}

extern "C" int gs_read_again(gs_stream *s, gs_ptr p, uint32_t turns, uint32_t passes, gs_ptr out) {
  if (!gs_aligned(p, 16)) return gs_fail(GS_ARGUMENT, "read again: the address is not a multiple of 16");
  static_assert(CACHE_TURN * 16 == GS_CACHE_TURN, "the interface names the bytes of a turn");
  return gs_launch(s, "read again", read_again_kernel, turns, THREADS, 0, (const uint4 *)p, (unsigned)passes,
                   (unsigned *)out);
}

extern "C" int gs_copy_kernel(gs_stream *s, gs_ptr dst, gs_ptr src, uint64_t bytes) {
  if (!gs_aligned(dst, 16) || !gs_aligned(src, 16))
    return gs_fail(GS_ARGUMENT, "copy: the addresses are not multiples of 16");
  return gs_launch(s, "copy", copy_kernel, streaming_grid(s, bytes), THREADS, 0, (uint4 *)dst, (const uint4 *)src,
                   bytes);
}

// Stamps: reducing those of blocks (common.cuh) to one start and end per kernel, and comparing their clock with the
// host's.

#include <time.h>

#include <new>

#include "common.cuh"

namespace {

constexpr int THREADS = 128;

// The marker kernel: it only stamps, so there is no version of gs_unstamped.
__global__ void mark_kernel(const gs_stamp stamp) {
  gs_let_next();
  const gs_stamped<gs_stamp> stamped(stamp);
  gs_wait();
  stamped.start();
}

struct Collect {
  const unsigned char *areas;
  const uint32_t *blocks;
  uint64_t *ring;    // (rows, count, 2)
  uint64_t *passes;  // (count)
  uint32_t count, rows;
};

// Block i: ring[passes[i], i] = (min start, max end) over the slots of area i. Each block has its own count of passes,
// as a common one would need a barrier of the grid.
__global__ void __launch_bounds__(THREADS) collect_kernel(const Collect c) {
  __shared__ uint64_t starts[THREADS / 32], ends[THREADS / 32];
  gs_let_next();
  const ulonglong2 *pairs = reinterpret_cast<const ulonglong2 *>(c.areas + (size_t)blockIdx.x * GS_STAMP_AREA);
  const uint32_t slots = min(__ldg(c.blocks + blockIdx.x), (uint32_t)GS_STAMP_SLOTS);
  gs_wait();
  const uint64_t pass = __ldcg(c.passes + blockIdx.x);
  uint64_t start = ~0ull, end = 0;
  for (uint32_t i = threadIdx.x; i < slots; i += THREADS) {
    const ulonglong2 pair = __ldcg(pairs + i);
    start = min(start, (uint64_t)pair.x);
    end = max(end, (uint64_t)pair.y);
  }
#pragma unroll
  for (int o = 16; o > 0; o >>= 1) {
    start = min(start, (uint64_t)__shfl_xor_sync(0xffffffffu, start, o));
    end = max(end, (uint64_t)__shfl_xor_sync(0xffffffffu, end, o));
  }
  if (threadIdx.x % 32 == 0) starts[threadIdx.x / 32] = start, ends[threadIdx.x / 32] = end;
  __syncthreads();
  if (threadIdx.x != 0) return;
#pragma unroll
  for (int w = 1; w < THREADS / 32; w++) start = min(start, starts[w]), end = max(end, ends[w]);
  if (pass < c.rows) {
    uint64_t *out = c.ring + (pass * c.count + blockIdx.x) * 2;
    out[0] = start, out[1] = end;
  }
  c.passes[blockIdx.x] = pass + 1;
}

// What host and kernel exchange, in host memory.
struct Mailbox {
  volatile uint64_t ask, answer;  // numbers of turns
  volatile uint64_t time;
  volatile uint64_t resolution;
};

constexpr int TURNS = 32;
constexpr uint64_t TIMEOUT = 20000000;  // ns after which the kernel ends in any case

// In each turn the kernel waits for the host to ask, and answers with the time.
__global__ void clock_kernel(Mailbox *m) {
  gs_wait();
  uint64_t least = ~0ull, last = gs_globaltimer();
  const uint64_t began = last;
  for (int i = 0; i < 2000; i++) {
    const uint64_t now = gs_globaltimer();
    if (now != last) least = min(least, now - last);
    last = now;
  }
  m->resolution = least;
  for (uint64_t turn = 1; turn <= TURNS; turn++) {
    while (m->ask < turn)
      if (gs_globaltimer() - began > TIMEOUT) return;
    m->time = gs_globaltimer();
    __threadfence_system();
    m->answer = turn;
  }
}

int64_t host_now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000ll + t.tv_nsec;
}

}  // namespace

// How many kernels that took areas are recorded; a pass of gpt2-xl has 250.
static constexpr uint32_t KEPT = 1 << 14;

gs_stamp gs_next_stamp(gs_stream *s, const char *name, dim3 grid) {
  if (!s->stamps.areas) return {nullptr};
  const uint32_t i = s->stamps.used++;
  if (i < KEPT) s->stamps.taken[i] = {name, grid.x * grid.y * grid.z};
  if (i >= s->stamps.count) return {nullptr};
  return {reinterpret_cast<uint64_t *>(s->stamps.areas + (uint64_t)i * GS_STAMP_AREA)};
}

extern "C" int gs_stamps_into(gs_stream *s, gs_ptr areas, uint32_t count) {
  if (areas && !s->stamps.taken) {
    s->stamps.taken = new (std::nothrow) gs_stamp_taken[KEPT]();
    if (!s->stamps.taken) return gs_fail(GS_NO_MEMORY, "no host memory for the names of kernels that stamp");
  }
  s->stamps.count = count, s->stamps.areas = areas, s->stamps.used = 0;
  return GS_OK;
}

extern "C" int gs_stamps_used(gs_stream *s, uint32_t *used) {
  *used = s->stamps.used;
  return GS_OK;
}

extern "C" int gs_stamp_taken_by(gs_stream *s, uint32_t area, const char **name, uint32_t *blocks) {
  const bool taken = s->stamps.taken && area < KEPT && area < s->stamps.used;
  *name = taken ? s->stamps.taken[area].name : nullptr;
  *blocks = taken ? s->stamps.taken[area].blocks : 0;
  return GS_OK;
}

extern "C" int gs_stamp_mark(gs_stream *s) { return gs_launch(s, "mark", mark_kernel, 1, 32, 0); }

extern "C" int gs_stamps_collect(gs_stream *s, const gs_collect_args *a) {
  GS_ENTER(s, a);
  const Collect c = {(const unsigned char *)a->areas, (const uint32_t *)a->blocks, (uint64_t *)a->ring,
                     (uint64_t *)a->passes, a->count, a->rows};
  return gs_launch_as(s, "collect", collect_kernel, dim3(a->count), THREADS, 0, {1, true}, c);
}

extern "C" int gs_clock_compare(gs_stream *s, void *host, gs_ptr device_address, gs_clock_pair *out) {
  if (int status = gs_stream_synchronize(s)) return status;
  Mailbox *m = static_cast<Mailbox *>(host);
  m->ask = m->answer = m->time = m->resolution = 0;
  if (int status = gs_launch(s, "clock", clock_kernel, 1, 1, 0, (Mailbox *)device_address)) return status;
  // The first answer may take long, as the kernel may have to be loaded.
  const int64_t began = host_now();
  out->uncertainty = INT64_MAX;
  for (uint64_t turn = 1; turn <= TURNS; turn++) {
    const int64_t before = host_now();
    __atomic_store_n(&m->ask, turn, __ATOMIC_SEQ_CST);
    int64_t after = before;
    while (__atomic_load_n(&m->answer, __ATOMIC_ACQUIRE) < turn && (after = host_now()) - began < 1000000000ll) {}
    if (__atomic_load_n(&m->answer, __ATOMIC_ACQUIRE) < turn) break;
    after = host_now();
    const int64_t half = (after - before + 1) / 2;
    if (half < out->uncertainty) {
      out->uncertainty = half;
      out->host = before + half;
      out->device = (int64_t)m->time;
    }
  }
  if (int status = gs_stream_synchronize(s)) return status;
  if (out->uncertainty == INT64_MAX)
    return gs_fail(GS_UNSUPPORTED, "the GPU did not answer within 1 s while its clock was read");
  out->resolution = (int64_t)m->resolution;
  out->uncertainty += out->resolution;
  return GS_OK;
}

// Runs kernels on CPUs: fibers for the threads of a block, and a thread of the system for each
// block that waits for others. What a kernel may not rely on is random: how long copies take,
// and which fiber goes on. A warp of each block comes late, of half of them the one that copies,
// but of blocks that all run at once.
#include "cuda_runtime.h"

#include "ptx.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

thread_local uint3 threadIdx, blockIdx;
thread_local dim3 blockDim, gridDim;

namespace emulator {
namespace {

constexpr size_t STACK = 96 << 10;
constexpr int BARRIERS = 16, LANES = 32;

// The caller-saved half of a context switch is the call itself.
extern "C" void emulator_switch(void **save, void *load);
#if defined(__x86_64__)
asm(R"(
.text
.hidden emulator_switch
.globl emulator_switch
.type emulator_switch, @function
emulator_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size emulator_switch, .-emulator_switch
)");
#else
#error "the emulator switches fibers on x86-64 only"
#endif

struct Fiber {
  void *sp;
  char *stack;
  int id;
  int turn;  // which of the warp's two buffers its next value takes
};
struct Warp {
  int arrived;
  WarpOp what;
  Fiber *parked[LANES];
  alignas(16) unsigned char values[2][LANES][MOST];
};
struct Barrier {
  int arrived, threads;
  std::vector<Fiber *> parked;
};
struct Copy {
  void *to;
  const void *from;
  int bytes;
  uint64_t *full;
  int wait;  // looks at it
};
// What other blocks stored in a block's shared memory, by the number of the block.
struct Mail {
  std::mutex mutex;
  std::vector<std::pair<uint64_t *, int>> bytes;
} mail[1024];
struct Block {
  std::vector<Fiber> fibers;
  std::vector<Warp> warps;
  Barrier barriers[BARRIERS];
  std::vector<Copy> copies;
  std::vector<Fiber *> ready;  // a ring
  size_t head, count;
  Fiber *current;
  void *host;  // where the thread of the system goes on
  int alive;
  std::vector<Fiber *> waiting;  // for the phase of some mbarrier to end
  size_t idle;  // yields since something happened
  size_t polls; // yields since the block slept
  unsigned naps;  // since some of its threads met at a barrier
  uint32_t random;
  int late;  // this warp seldom goes on while others can; -1: the one that will copy, -2: none
  const std::function<void()> *kernel;
};
thread_local Block *block;

uint32_t draw() {
  uint32_t &x = block->random;
  x ^= x << 13, x ^= x >> 17, x ^= x << 5;
  return x;
}

[[noreturn]] void broken(const char *what) {
  fprintf(stderr, "emulator: block %u, thread %u: %s\n", blockIdx.x, threadIdx.x, what);
  abort();
}

void push(Fiber *f) {
  Block &b = *block;
  b.ready[(b.head + b.count++) % b.ready.size()] = f;
}

void land(const Copy &);
void count(uint64_t *full, int bytes);

// Copies of which enough time has passed, and what other blocks stored.
void land_copies() {
  Block &b = *block;
  {
    Mail &m = mail[blockIdx.x % 1024];
    std::lock_guard<std::mutex> l(m.mutex);
    for (const auto &e : m.bytes) count(e.first, e.second);
    m.bytes.clear();
  }
  for (size_t i = 0; i < b.copies.size();) {
    if (--b.copies[i].wait > 0) {
      i++;
      continue;
    }
    const Copy c = b.copies[i];
    b.copies[i] = b.copies.back();
    b.copies.pop_back();
    land(c);
    b.idle = 0;
  }
}

// Lets those who wait for mbarriers try again.
void wake() {
  Block &b = *block;
  for (Fiber *f : b.waiting) push(f);
  b.waiting.clear();
}

// Runs the next fiber that is ready, or the host if none is left.
void go_on() {
  Block &b = *block;
  Fiber *const from = b.current;
  while (b.count == 0 && b.alive > 0) {
    if (b.copies.empty() && b.waiting.empty()) broken("all threads wait for each other");
    land_copies();
    // A try to wait does not last for ever.
    if (b.copies.empty()) wake();
  }
  void *to = b.host;
  b.current = nullptr;
  if (b.alive > 0) {
    for (size_t i = 1; i < b.count && b.ready[b.head]->id / LANES == b.late && draw() % 64 > 0; i++) {
      push(b.ready[b.head]);
      b.head = (b.head + 1) % b.ready.size(), b.count--, b.polls = 0;
    }
    b.current = b.ready[b.head];
    b.head = (b.head + 1) % b.ready.size(), b.count--;
    to = b.current->sp;
    threadIdx.x = (unsigned)b.current->id;
  }
  if (b.current == from) return;
  emulator_switch(&from->sp, to);
}

void begin() {
  (*block->kernel)();
  block->alive--;
  go_on();
  broken("a thread that has ended goes on");
}

struct Stacks {
  std::mutex mutex;
  std::vector<char *> free;
} stacks;

char *take_stack() {
  {
    std::lock_guard<std::mutex> l(stacks.mutex);
    if (!stacks.free.empty()) {
      char *s = stacks.free.back();
      stacks.free.pop_back();
      return s;
    }
  }
  void *s = mmap(nullptr, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (s == MAP_FAILED) broken("no memory for stacks");
  return (char *)s;
}

constexpr size_t GUARD = 1024;  // bytes behind the shared memory of a block, which nothing may write

void run_block(dim3 grid, dim3 threads, unsigned index, size_t shared, unsigned char *dynamic, bool late,
               const std::function<void()> &kernel) {
  Block b = {};
  block = &b;
  b.kernel = &kernel;
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  b.random = (uint32_t)now.tv_nsec * 2654435761u ^ (index + 1) * 0x9e3779b9u;
  if (b.random == 0) b.random = 1;
  blockIdx = {index % grid.x, index / grid.x % grid.y, index / grid.x / grid.y}, gridDim = grid, blockDim = threads, threadIdx = {0, 0, 0};
  memset(dynamic, 0xa7, shared + GUARD);
  b.alive = (int)threads.x, b.late = !late ? -2 : draw() % 2 ? -1 : (int)(draw() % (threads.x / LANES));
  b.fibers.resize(threads.x), b.warps.resize((threads.x + LANES - 1) / LANES), b.ready.resize(threads.x + 1);
  for (unsigned i = 0; i < threads.x; i++) {
    Fiber &f = b.fibers[i];
    f = {nullptr, take_stack(), (int)i, 0};
    void **top = (void **)(f.stack + STACK) - 1;  // aligned as by a call
    *--top = (void *)begin;
    f.sp = top - 6;
    memset(f.sp, 0, 6 * sizeof(void *));
    push(&f);
  }
  b.current = b.ready[b.head];
  b.head = (b.head + 1) % b.ready.size(), b.count--;
  threadIdx.x = (unsigned)b.current->id;
  emulator_switch(&b.host, b.current->sp);
  if (!b.copies.empty()) broken("the block has ended before its copies");
  for (size_t i = 0; i < GUARD; i++)
    if (dynamic[shared + i] != 0xa7) broken("something was written behind the block's shared memory");
  std::lock_guard<std::mutex> l(stacks.mutex);
  for (Fiber &f : b.fibers) stacks.free.push_back(f.stack);
}

// mbarrier: its bits are opaque in PTX.
struct Phase {
  uint16_t count, pending : 15, phase : 1;
  int32_t bytes;
};
static_assert(sizeof(Phase) == 8, "an mbarrier has 64 bits");
Phase *phase_of(uint64_t *b) { return reinterpret_cast<Phase *>(b); }
void end_phase(Phase *p) {
  if (p->pending > 0 || p->bytes != 0) return;
  p->phase ^= 1, p->pending = p->count;
  wake();
  block->idle = 0;
}
void land(const Copy &c) {
  memcpy(c.to, c.from, (size_t)c.bytes);
  count(c.full, c.bytes);
}
void count(uint64_t *full, int bytes) {
  Phase *p = phase_of(full);
  p->bytes -= bytes;
  end_phase(p);
}

}  // namespace

void yield() {
  Block &b = *block;
  // A block whose threads all poll leaves the processor to those that it waits for.
  if (++b.polls > 2 * b.fibers.size()) {
    b.polls = 0;
    usleep(100u << (b.naps < 5 ? b.naps++ : 5));
  }
  if (++b.idle % 32 == 0) land_copies();
  if (b.idle > 2 * (b.count + 1)) {
    land_copies();  // also where too few threads poll for the count above
    wake();
    b.idle = 0;
    sched_yield();
  }
  push(b.current);
  go_on();
}

const unsigned char (*gather(WarpOp what, const void *value, size_t bytes))[MOST] {
  Block &b = *block;
  Fiber *const f = b.current;
  Warp &w = b.warps[f->id / LANES];
  if (bytes > MOST) broken("a value is too large");
  if (w.arrived > 0 && w.what != what) broken("lanes of a warp do different things");
  w.what = what;
  unsigned char(*const values)[MOST] = w.values[f->turn];
  f->turn ^= 1;
  if (bytes > 0) memcpy(values[f->id % LANES], value, bytes);
  if (w.arrived + 1 < LANES) {
    w.parked[w.arrived++] = f;
    go_on();
  } else {
    for (int i = 0; i < w.arrived; i++) push(w.parked[i]);
    w.arrived = 0, b.idle = 0;
  }
  return values;
}

void arrive(int barrier, int threads, bool wait) {
  Block &b = *block;
  if (barrier < 0 || barrier >= BARRIERS) broken("no such barrier");
  Barrier &at = b.barriers[barrier];
  if (at.arrived > 0 && at.threads != threads) broken("a barrier of different numbers of threads");
  at.threads = threads;
  if (++at.arrived < threads) {
    if (!wait) return;
    at.parked.push_back(b.current);
    go_on();
    return;
  }
  for (Fiber *f : at.parked) push(f);
  at.parked.clear();
  at.arrived = 0, b.idle = 0, b.naps = 0;
}

void copy(void *to, const void *from, int bytes, uint64_t *full) {
  if (bytes <= 0 || bytes % 16 != 0 || (uintptr_t)to % 16 != 0 || (uintptr_t)from % 16 != 0)
    broken("a bulk copy of a wrong size or address");
  if (block->late == -1) block->late = block->current->id / LANES;
  memset(to, 0xc5, (size_t)bytes);
  block->copies.push_back({to, from, bytes, full, (int)(draw() % 64)});
}

void came(int bytes, uint64_t *full, unsigned to) {
  Mail &m = mail[to % 1024];
  std::lock_guard<std::mutex> l(m.mutex);
  m.bytes.push_back({full, bytes});
}

// Processor time of all blocks, which other programs on the machine do not lengthen.
uint64_t nanoseconds() {
  static const long slow = getenv("GS_EMULATED_SLOW") ? atol(getenv("GS_EMULATED_SLOW")) : 200;
  timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return ((uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec) / (uint64_t)(slow > 0 ? slow : 1);
}

void launch(dim3 grid, dim3 threads, size_t shared, unsigned char *(*dynamic)(), bool cooperative,
            const std::function<void()> &kernel) {
  // Blocks that wait for no other one take turns.
  const unsigned blocks = grid.x * grid.y * grid.z, workers = cooperative || blocks < 4 ? blocks : 4;
  std::atomic<unsigned> next{0};
  std::vector<pthread_t> running(workers);
  struct Work {
    std::atomic<unsigned> *next;
    unsigned blocks;
    dim3 grid, threads;
    size_t shared;
    unsigned char *(*dynamic)();
    bool cooperative;
    const std::function<void()> *kernel;
  } work = {&next, blocks, grid, threads, shared, dynamic, cooperative, &kernel};
  for (pthread_t &t : running)
    if (pthread_create(&t, nullptr, [](void *of) -> void * {
          Work &w = *(Work *)of;
          for (unsigned i; (i = w.next->fetch_add(1)) < w.blocks;)
            run_block(w.grid, w.threads, i, w.shared, w.dynamic(), !w.cooperative, *w.kernel);
          return nullptr;
        }, &work) != 0) {
      fprintf(stderr, "emulator: no thread for a block\n");
      abort();
    }
  for (pthread_t t : running) pthread_join(t, nullptr);
}

}  // namespace emulator

using namespace emulator;

long long clock64() {
  thread_local long long clocks;
  yield();
  return clocks += 500;
}

// ---------------------------------------------------------------- PTX

void mbarrier_init(uint64_t *b, int count) { *phase_of(b) = {(uint16_t)count, (uint16_t)count, 0, 0}; }
void mbarrier_arrive(uint64_t *b) {
  Phase *p = phase_of(b);
  if (p->pending == 0) broken("more arrive at an mbarrier than it counts");
  p->pending--;
  end_phase(p);
}
void mbarrier_expect(uint32_t a, int bytes) {
  uint64_t *const b = (uint64_t *)of_shared(a);
  phase_of(b)->bytes += bytes;
  mbarrier_arrive(b);
}
bool mbarrier_test(uint32_t a, int parity) {
  if (parity != 0 && parity != 1) broken("a parity of neither 0 nor 1");
  return phase_of((uint64_t *)of_shared(a))->phase != parity;
}
bool mbarrier_try_wait(uint32_t a, int parity) {
  uint64_t *const b = (uint64_t *)of_shared(a);
  if (mbarrier_test(a, parity)) return true;
  block->waiting.push_back(block->current);
  go_on();
  return phase_of(b)->phase != parity;
}

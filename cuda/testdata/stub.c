// A CUDA library without CUDA: device memory is host memory, copies are memcpy,
// launches are written down. Tests build it with the C compiler and make it fail
// where they like. It computes nothing but what a decode loop needs of gs_sample, or,
// with STUB_COMPUTES, every operation of the model: see compute.h.
//
// Defined when compiling: STUB_ABI, STUB_DRIVER, STUB_RUNTIME, STUB_DEVICES,
// STUB_MAJOR, STUB_MINOR; STUB_MEMORY is how many bytes may be allocated, 0 for any;
// STUB_WITHOUT_PACK leaves gs_pack out; STUB_QUIET writes no calls down;
// STUB_EMULATES runs the decode kernels themselves, linked with csrc/emulator, on STUB_BLOCKS SMs;
// STUB_LOADING is how many us opening cuBLASLt, the first launch of a function and the first gs_persistent_work take.

#include <malloc.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <string.h>
#include <unistd.h>

#include "abi.h"
#include "stub.h"

#ifndef STUB_ABI
#define STUB_ABI GS_ABI_VERSION
#endif
#ifndef STUB_RUNTIME
#define STUB_RUNTIME 13000
#endif
#ifndef STUB_DRIVER
#define STUB_DRIVER STUB_RUNTIME
#endif
#ifndef STUB_DEVICES
#define STUB_DEVICES 1
#endif
#ifndef STUB_MEMORY
#define STUB_MEMORY 0
#endif
#ifndef STUB_MAJOR
#define STUB_MAJOR 9
#endif
#ifndef STUB_MINOR
#define STUB_MINOR 0
#endif
#ifndef STUB_BLOCKS
#define STUB_BLOCKS 4  // SMs
#endif

#pragma GCC diagnostic ignored "-Wunused-parameter"

static gs_stub stub = {.mutex = PTHREAD_MUTEX_INITIALIZER, .memory_limit = STUB_MEMORY, .spoiled_op = -1};
static _Thread_local char text[256];

GS_API gs_stub *gs_stub_control(void) { return &stub; }

// Counts down to a failure; 1 where it is due.
static int due(int *in) {
  pthread_mutex_lock(&stub.mutex);
  const int now = *in > 0 && --*in == 0;
  pthread_mutex_unlock(&stub.mutex);
  return now;
}

static int fail(int status, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  return status;
}

#ifdef STUB_LOADING
// Sleeps at the first call of a function, as a lazily loaded kernel does.
static void load(const char *name) {
  static const char *loaded[64];
  pthread_mutex_lock(&stub.mutex);
  int i = 0;
  while (i < 63 && loaded[i] && strcmp(loaded[i], name)) i++;
  int first = loaded[i] == NULL;
  loaded[i] = name;
  pthread_mutex_unlock(&stub.mutex);
  if (first) nanosleep(&(struct timespec){.tv_nsec = 1000L * STUB_LOADING}, NULL);
}
#endif

// Writes a call down; 1 where it is to fail. group is "alloc", "launch" or "".
static int note(const char *name, const char *group) {
#ifdef STUB_LOADING
  if (!strcmp(group, "launch") || !strcmp(name, "gs_blas_open") || !strcmp(name, "gs_persistent_work")) load(name);
#endif
  pthread_mutex_lock(&stub.mutex);
#ifdef STUB_LOG
  FILE *log = fopen(STUB_LOG, "a");  // calls in a process of its own
  if (log) fprintf(log, "%s\n", name), fclose(log);
#endif
#ifdef STUB_QUIET
  char *more = NULL;
  size_t n = 0;
#else
  size_t n = strlen(name);
  char *more = realloc(stub.calls, stub.calls_length + n + 1);
#endif
  if (more) {
    stub.calls = more;
    memcpy(stub.calls + stub.calls_length, name, n);
    stub.calls[stub.calls_length + n] = '\n';
    stub.calls_length += n + 1;
  }
  int now = 0;
  int any = !strcmp(stub.failing, "lost");
  if (stub.failing_in > 0 && (any || !strcmp(stub.failing, name) || !strcmp(stub.failing, group))) now = --stub.failing_in == 0;
  if (now && any) stub.lost = 1;
  if (stub.lost) now = 1;
  pthread_mutex_unlock(&stub.mutex);
  return now;
}

static void count(int n) { __atomic_add_fetch(&stub.live, n, __ATOMIC_SEQ_CST); }

// Makes an object for a caller, of zeros, and frees one.
#define MADE(out, bytes) (*(out) = calloc(1, bytes), count(1), GS_OK)
static int gone(void *p) {
  free(p);
  count(-1);
  return GS_OK;
}

// Takes memory of the devices; 0 if there is not enough.
static int take(uint64_t bytes) {
  pthread_mutex_lock(&stub.mutex);
  int enough = !stub.memory_limit || stub.memory_used + bytes <= stub.memory_limit;
  if (enough) stub.memory_used += bytes;
  pthread_mutex_unlock(&stub.mutex);
  return enough;
}

#define NOTE(group)                                                                             \
  do {                                                                                          \
    if (note(__func__, group))                                                                  \
      return !strcmp(group, "alloc") ? fail(2, "%s: out of memory (stub)", __func__) : fail(719, "%s: failed (stub)", __func__); \
  } while (0)

#define NOTE_SIZED(a, group)                                                                       \
  do {                                                                                          \
    NOTE(group);                                                                                \
    if (a->size != sizeof *a) return fail(GS_ARGUMENT, "%s: size %u", __func__, a->size);       \
  } while (0)

// A call that does no more than return.
#define RETURNS(name, group, result, ...) \
  GS_API int name(__VA_ARGS__) {          \
    NOTE(group);                          \
    return result;                        \
  }

GS_API uint32_t gs_abi_version(void) { return STUB_ABI; }
GS_API const char *gs_error(void) { return text; }
GS_API int gs_versions(int *driver, int *runtime) {
  *driver = STUB_DRIVER;
  *runtime = STUB_RUNTIME;
  return GS_OK;
}
GS_API int gs_blas_open(const char *path, uint64_t *version) {
  NOTE("");
  if (strstr(path, "stub-blas") == NULL) return fail(GS_BLAS, "cannot open %s", path);
  *version = 130002;
  return GS_OK;
}

GS_API int gs_device_count(int *n) {
  NOTE("");
  *n = STUB_DEVICES;
  return GS_OK;
}
GS_API int gs_device_get(int device, gs_device_info *info) {
  NOTE("");
  if (info->size != sizeof *info) return fail(GS_ARGUMENT, "size");
  memset(info, 0, sizeof *info);
  info->size = sizeof *info;
  info->major = STUB_MAJOR, info->minor = STUB_MINOR;
  info->processors = STUB_BLOCKS;
  info->threads_per_processor = 2048;
  info->shared_per_block = 227 * 1024;
  info->l2_bytes = 50 << 20;
  info->pci_bus = 0x19 + device;
  info->memory_bytes = 1 << 30;
  snprintf(info->name, sizeof info->name, "Stub %d", device);
  return GS_OK;
}
GS_API int gs_device_memory(int device, uint64_t *free_bytes, uint64_t *total_bytes) {
  NOTE("");
  pthread_mutex_lock(&stub.mutex);
  *free_bytes = !stub.memory_limit ? 1 << 29 : stub.memory_limit > stub.memory_used ? stub.memory_limit - stub.memory_used : 0;
  pthread_mutex_unlock(&stub.mutex);
  *total_bytes = 1 << 30;
  return GS_OK;
}

GS_API int gs_alloc(int device, uint64_t bytes, gs_ptr *out) {
  NOTE("alloc");
  void *p = malloc(bytes);
  if (!p || !take(malloc_usable_size(p))) return free(p), fail(2, "out of memory (stub)");
  memset(p, 0xff, bytes < 1 << 20 ? bytes : 1 << 20);  // more takes long, and no test reads it
  *out = (gs_ptr)(uintptr_t)p;
  count(1);
  return GS_OK;
}
GS_API int gs_free(int device, gs_ptr p) {
  NOTE("");
  __atomic_sub_fetch(&stub.memory_used, malloc_usable_size((void *)(uintptr_t)p), __ATOMIC_SEQ_CST);
  return gone((void *)(uintptr_t)p);
}
GS_API int gs_alloc_host(int device, uint64_t bytes, void **out, gs_ptr *address) {
  NOTE("alloc");
  *out = calloc(1, bytes);
  if (!*out) return fail(2, "out of memory");
  *address = (gs_ptr)(uintptr_t)*out;
  count(1);
  return GS_OK;
}
RETURNS(gs_free_host, "", gone(p), int device, void *p)

#ifdef STUB_COMPUTES
#include "compute.h"
#endif

// The arguments of an operation that only STUB_COMPUTES runs.
typedef union {
  gs_embed_args embed;
  gs_layernorm_args layernorm;
  gs_linear_args linear;
  gs_attention_args attention;
  gs_activation_args activation;
  gs_add_args add;
  gs_pack_args pack;
  gs_fold_args fold;
} operation;

// What a captured stream writes down: only what changes memory.
typedef struct {
  int kind;  // 0 an operation, 1 sample, 2 copy, 3 set, 4 collect
  void (*compute)(const operation *);  // null where it does nothing
  operation operation;
  gs_sample_args sample;
  gs_collect_args collect;
  gs_ptr area;  // where it stamps, 0 for nowhere
  uint64_t dst, src, bytes;
  int byte;
} work;

struct gs_stream {
  int capturing;
  work *recorded;
  uint64_t length;
  gs_ptr areas;
  uint32_t area_count, used;
  const char *takers[64];  // of the first areas
};
struct gs_event { int device; };
struct gs_graph { work *recorded; uint64_t length; };
struct gs_module {
  int device;
  char other;  // what functions that do nothing are known by
};

static int64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000ll + t.tv_nsec;
}

// The ring of stamps, from areas of one block each.
static void collect(const gs_collect_args *a) {
  uint64_t *passes = (uint64_t *)(uintptr_t)a->passes, *ring = (uint64_t *)(uintptr_t)a->ring;
  for (uint32_t i = 0; i < a->count; i++) {
    const uint64_t pass = passes[i]++;
    if (pass >= a->rows) continue;
    const uint64_t *area = (const uint64_t *)(uintptr_t)(a->areas + (uint64_t)i * GS_STAMP_AREA);
    if (((const uint32_t *)(uintptr_t)a->blocks)[i] == 0) {
      ring[(pass * a->count + i) * 2] = UINT64_MAX;
      ring[(pass * a->count + i) * 2 + 1] = 0;
      continue;
    }
    ring[(pass * a->count + i) * 2] = area[0];
    ring[(pass * a->count + i) * 2 + 1] = area[1];
  }
}

// A kernel that takes an area takes at least 300 ns.
static void stamp(const work *w) {
  if (!w->area) return;
  uint64_t *area = (uint64_t *)(uintptr_t)w->area;
  const int64_t start = now();
  while (now() - start < 300) {
  }
  area[0] = (uint64_t)start;
  area[1] = (uint64_t)now();
}

static void run(const work *w) {
  stamp(w);
  if (w->compute) w->compute(&w->operation);
  if (w->kind == 4) collect(&w->collect);
  if (w->kind == 2) memcpy((void *)(uintptr_t)w->dst, (void *)(uintptr_t)w->src, w->bytes);
  if (w->kind == 3) memset((void *)(uintptr_t)w->dst, w->byte, w->bytes);
  if (w->kind != 1) return;
  const gs_sample_args *a = &w->sample;
  gs_sampling *how = (gs_sampling *)(uintptr_t)a->sampling;
  int32_t *pos = (int32_t *)(uintptr_t)a->pos, *tokens = (int32_t *)(uintptr_t)a->tokens;
  int32_t pad = a->pad ? *(int32_t *)(uintptr_t)a->pad : 0;
  gs_slot *row = (gs_slot *)(uintptr_t)a->slots + how->step % (uint64_t)a->count * (uint64_t)a->B;
  const int bad = due(&stub.not_finite_in) ? a->B - 1 : -1;  // a sequence
  for (int b = 0; b < a->B; b++) {
    pos[b] += a->T - pad;
#ifdef STUB_COMPUTES
    tokens[b] = token_of(a, b);
#else
    tokens[b] = (int32_t)((how->step + 1) % (uint64_t)a->V);
#endif
    if (b == bad) tokens[b] = -1;
#ifdef STUB_EMULATES
    const uint32_t late = a->persistent_work ? ((const gs_persistent_header *)(uintptr_t)a->persistent_work)->expired : 0;
    const int at = (int)(late & 0x7fffffff);
#else
    const int late = a->persistent_work && *(uint64_t *)(uintptr_t)a->persistent_work == UINT64_MAX, at = stub.timeout_at;
#endif
    row[b].token = late ? GS_SLOT_TIMEOUT : tokens[b];
    row[b].log_probability = how->log_probs ? -(float)tokens[b] : NAN;
    row[b].position = late ? at : (int64_t)(how->offset + (uint64_t)pos[b]);
    row[b].time = how->step;
    __atomic_store_n(&row[b].sequence, how->step + 1, __ATOMIC_RELEASE);
  }
  how->step++;
}

static int put(gs_stream *s, work w);

// A kernel of the library: with a stamp where the stream says so.
static int put_kernel(gs_stream *s, const char *name, work w) {
  if (s->areas && s->used < sizeof s->takers / sizeof *s->takers) s->takers[s->used] = name;
  if (s->areas && s->used++ < s->area_count) w.area = s->areas + (uint64_t)(s->used - 1) * GS_STAMP_AREA;
  return put(s, w);
}

static int put(gs_stream *s, work w) {
  if (!s->capturing) {
    run(&w);
    return GS_OK;
  }
  work *more = realloc(s->recorded, (s->length + 1) * sizeof w);
  if (!more) return fail(GS_NO_MEMORY, "no memory");
  s->recorded = more;
  s->recorded[s->length++] = w;
  return GS_OK;
}

RETURNS(gs_stream_create, "alloc", MADE(out, sizeof **out), int device, gs_stream **out)
RETURNS(gs_stream_destroy, "", (free(s->recorded), gone(s)), gs_stream *s)
RETURNS(gs_stream_synchronize, "", (s->capturing ? fail(900, "the stream is capturing") : GS_OK), gs_stream *s)
GS_API int gs_stream_query(gs_stream *s, int *done) {
  *done = 1;
  return GS_OK;
}
RETURNS(gs_stream_overlap, "", GS_OK, gs_stream *s, int on)
RETURNS(gs_stream_wait, "", GS_OK, gs_stream *s, gs_event *e)
RETURNS(gs_event_create, "alloc", MADE(out, sizeof **out), int device, gs_event **out)
RETURNS(gs_event_destroy, "", gone(e), gs_event *e)
RETURNS(gs_event_record, "", GS_OK, gs_event *e, gs_stream *s)
RETURNS(gs_event_synchronize, "", GS_OK, gs_event *e)
GS_API int gs_event_elapsed(gs_event *start, gs_event *end, float *milliseconds) {
  NOTE("");
  *milliseconds = 1.5f;
  return GS_OK;
}

RETURNS(gs_copy, "", (put(s, (work){.kind = 2, .dst = dst, .src = src, .bytes = bytes})), gs_stream *s, uint64_t dst, uint64_t src, uint64_t bytes, int direction)
GS_API int gs_copy_now(int device, uint64_t dst, uint64_t src, uint64_t bytes, int direction) {
  NOTE("");
  memcpy((void *)(uintptr_t)dst, (void *)(uintptr_t)src, bytes);
  return GS_OK;
}
RETURNS(gs_set, "", (put(s, (work){.kind = 3, .dst = p, .byte = byte, .bytes = bytes})), gs_stream *s, gs_ptr p, int byte, uint64_t bytes)

GS_API int gs_capture_begin(gs_stream *s) {
  NOTE("");
  if (s->capturing) return fail(901, "the stream is capturing already");
  s->capturing = 1;
  return GS_OK;
}
static void drop(gs_stream *s) {
  s->capturing = 0;
  s->recorded = NULL;
  s->length = 0;
}
GS_API int gs_capture_end(gs_stream *s, gs_graph **out) {
  if (note("gs_capture_end", "alloc")) {
    free(s->recorded);
    drop(s);
    return fail(2, "gs_capture_end: out of memory (stub)");
  }
  gs_graph *g = calloc(1, sizeof *g);
  g->recorded = s->recorded;
  g->length = s->length;
  drop(s);
  *out = g;
  count(1);
  return GS_OK;
}
RETURNS(gs_capture_abandon, "", (free(s->recorded), drop(s), GS_OK), gs_stream *s)
GS_API int gs_graph_launch(gs_graph *g, gs_stream *s) {
  NOTE("launch");
  for (uint64_t i = 0; i < g->length; i++) run(&g->recorded[i]);
  return GS_OK;
}
RETURNS(gs_graph_destroy, "", (free(g->recorded), gone(g)), gs_graph *g)

RETURNS(gs_nvrtc_open, "", strstr(path, "stub-nvrtc") ? GS_OK : fail(GS_NVRTC, "cannot open %s", path), const char *path)
// Kernels that are computed, by their names; others do nothing: what they write to is left as it
// is. add is add(float *z, const float *x, const float *y, int n); the others are those of
// tasks/kernels.cu.
#define FLOATS(i) (*(float **)a[i])
static void kernel_add(void **a, uint64_t threads) {
  int n = *(int *)a[3];
  for (uint64_t i = 0; i < threads && i < (uint64_t)n; i++) FLOATS(0)[i] = FLOATS(1)[i] + FLOATS(2)[i];
}
static void kernel_add_all(void **a, uint64_t threads) {
  for (int64_t i = 0; i < *(int64_t *)a[3]; i++) FLOATS(0)[i] = FLOATS(1)[i] + FLOATS(2)[i];
}
static void kernel_square(void **a, uint64_t threads) {
  for (int64_t i = 0; i < *(int64_t *)a[2]; i++) FLOATS(0)[i] = FLOATS(1)[i] * FLOATS(1)[i];
}
static void kernel_sum_partial(void **a, uint64_t threads) { // all of it in the first
  double sum = 0;
  for (int64_t i = 0; i < *(int64_t *)a[2]; i++) sum += FLOATS(1)[i];
  memset(FLOATS(0), 0, threads / 256 * sizeof(float));
  *FLOATS(0) = (float)sum;
}
static void kernel_sum(void **a, uint64_t threads) {
  double sum = 0;
  for (int64_t i = 0; i < *(int64_t *)a[2]; i++) sum += FLOATS(1)[i];
  *FLOATS(0) = (float)sum;
}
static void kernel_product(void **a, uint64_t threads) {
  int M = *(int *)a[3], N = *(int *)a[4], K = *(int *)a[5];
  for (int i = 0; i < M; i++)
    for (int j = 0; j < N; j++) {
      float sum = 0;
      for (int l = 0; l < K; l++) sum += FLOATS(1)[i * K + l] * FLOATS(2)[j * K + l];
      FLOATS(0)[i * N + j] = sum;
    }
}
static const struct kernel {
  const char *name;
  void (*run)(void **arguments, uint64_t threads);
} kernels[] = {
    {"add", kernel_add}, {"add_tuned", kernel_add_all}, {"add_thread", kernel_add_all},
    {"square_tuned", kernel_square}, {"square_thread", kernel_square}, {"sum_thread", kernel_sum},
    {"product_naive", kernel_product},
    {"sum_partial", kernel_sum_partial}, {"sum_final", kernel_sum}, {"vector_add", kernel_add_all}, {"reduce_sum", kernel_sum_partial}, {"matmul", kernel_product},
};

// Does with signals what NVRTC does: it takes them, and gives the handlers back without their flags.
static void interrupted(int number) {
  _exit(4);
}
static void take_signals(void) {
  void (*interrupt)(int) = signal(SIGINT, interrupted), (*terminate)(int) = signal(SIGTERM, interrupted);
#ifdef STUB_INTERRUPTED // by Ctrl-C, once another thread has put back its handler, and after 10 s in any case
  struct sigaction now = {0};
  for (int i = 0; i < 10000 && !sigaction(SIGINT, NULL, &now) && now.sa_handler == interrupted; i++) usleep(1000);
  raise(SIGINT);
#endif
  signal(SIGINT, interrupt);
  signal(SIGTERM, terminate);
}

GS_API int gs_module_compile(int device, const char *source, const char *name, char *log, uint64_t log_bytes, gs_module **out) {
  NOTE("alloc");
  take_signals();
  if (strstr(source, "__global__") == NULL) {
    snprintf(log, log_bytes, "%s(1): error: no kernel\n", name);
    return fail(GS_NVRTC + 6, "nvrtcCompileProgram: NVRTC_ERROR_COMPILATION");
  }
  return MADE(out, sizeof **out);
}
RETURNS(gs_module_destroy, "", gone(m), gs_module *m)
GS_API int gs_module_function(gs_module *m, const char *name, void **out) {
  NOTE("");
  if (!strcmp(name, "missing")) return fail(500, "cuModuleGetFunction: named symbol not found");
  *out = &m->other;
  for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++)
    if (!strcmp(name, kernels[i].name)) *out = (void *)&kernels[i];
  return GS_OK;
}

GS_API int gs_function_launch(void *function, gs_stream *s, const uint32_t grid[3], const uint32_t block[3], uint32_t shared, void **arguments) {
  NOTE("launch");
  const struct kernel *k = function;
  if (k >= kernels && k < kernels + sizeof kernels / sizeof *kernels) k->run(arguments, (uint64_t)grid[0] * block[0]);
  return GS_OK;
}
GS_API int gs_function_occupancy(int device, void *function, int threads, uint32_t shared, gs_occupancy *out) {
  NOTE("");
  if (out->size != sizeof *out) return fail(GS_ARGUMENT, "size");
  out->registers = 16;
  out->blocks_per_processor = 2048 / threads;
  return GS_OK;
}
GS_API const char *gs_variant(int op, int n) {
  static const char *const plain[] = {"auto", "naive", NULL}, *const linear[] = {"auto", "naive", "gemv", "blas", NULL},
                           *const attention[] = {"auto", "naive", "split", "flash", NULL};
  if (op < 0 || op >= GS_OPS || n < 0) return NULL;
  const char *const *names = op == GS_OP_LINEAR ? linear : op == GS_OP_ATTENTION ? attention : plain;
  for (int i = 0; i < n; i++)
    if (!names[i]) return NULL;
  return names[n];
}

#ifdef STUB_COMPUTES
#define COMPUTE(name) (void (*)(const operation *))compute_##name
#else
#define COMPUTE(name) NULL
#endif

#define LAUNCH(name, type)                                                            \
  GS_API int name(gs_stream *s, const type *a) {                                      \
    NOTE_SIZED(a, "launch");                                                          \
      work w = {.compute = COMPUTE(name)};                                              \
    memcpy(&w.operation, a, sizeof *a);                                               \
    return put_kernel(s, __func__, w);                                                          \
  }
LAUNCH(gs_embed, gs_embed_args)
LAUNCH(gs_layernorm, gs_layernorm_args)
GS_API int gs_linear(gs_stream *s, const gs_linear_args *a) {
  NOTE_SIZED(a, "launch");
  work w = {.compute = COMPUTE(gs_linear), .operation.linear = *a};
  return a->M > GS_GEMV_ROWS ? put(s, w) : put_kernel(s, __func__, w);
}
GS_API int gs_linear_variant(gs_stream *s, const gs_linear_args *a, int *variant) {
  NOTE("");
  *variant = a->variant != 0 ? a->variant : a->M > GS_GEMV_ROWS ? 3 : 2;
  return GS_OK;
}
LAUNCH(gs_attention, gs_attention_args)
LAUNCH(gs_activate, gs_activation_args)
LAUNCH(gs_add, gs_add_args)
#ifndef STUB_WITHOUT_PACK
LAUNCH(gs_pack, gs_pack_args)
#endif

LAUNCH(gs_fold, gs_fold_args)

GS_API int gs_sample(gs_stream *s, const gs_sample_args *a) {
  NOTE_SIZED(a, "launch");
  return put_kernel(s, __func__, (work){.kind = 1, .sample = *a});
}
GS_API int gs_sample_work(gs_stream *s, const gs_sample_args *a, uint64_t *bytes) {
  *bytes = 256u * (uint64_t)a->B;
  return GS_OK;
}
GS_API int gs_attention_work(gs_stream *s, const gs_attention_args *a, uint64_t *bytes) {
  *bytes = 512u * (uint64_t)a->B * (uint64_t)a->NH;
  return GS_OK;
}
#ifdef STUB_EMULATES
const char *emulator_error(void);
int emulator_persistent(int blocks, const gs_persistent_args *a);
int emulator_persistent_one(int blocks, const gs_persistent_args *a, int step, int tail, uint32_t epoch);
int emulator_persistent_work(int blocks, const gs_persistent_args *a, uint64_t *bytes, int32_t *tokens);

static int emulated(int status) { return status == GS_OK ? GS_OK : fail(status, "%s", emulator_error()); }

GS_API int gs_persistent(gs_stream *s, const gs_persistent_args *a) {
  NOTE("launch");
  if (s->capturing) return fail(900, "%s: the stream is capturing (stub)", __func__);
  return emulated(emulator_persistent(STUB_BLOCKS, a));
}
GS_API int gs_persistent_one(gs_stream *s, const gs_persistent_args *a, int step, int tail, uint32_t epoch) {
  NOTE("launch");
  if (s->capturing) return fail(900, "%s: the stream is capturing (stub)", __func__);
  return emulated(emulator_persistent_one(STUB_BLOCKS, a, step, tail, epoch));
}
RETURNS(gs_persistent_work, "", (emulated(emulator_persistent_work(STUB_BLOCKS, a, bytes, tokens))), gs_stream *s, const gs_persistent_args *a, uint64_t *bytes, int32_t *tokens)
#else
// The stamps of decode step t. Its row i begins 1000 i ns after it, and lasts 1000 ns: block b
// has weights after b, inputs after 100 + b and outputs after 400 + 10 b ns of them. Block 3 has
// no part in it if i is even.
static void stamp_step(const gs_persistent_args *a, int t) {
  if (!a->stamps) return;
  const int n = a->count + 1;
  const int64_t begin = now();
  while (now() < begin + 1000 * (int64_t)n) continue;
  for (int i = 0; i < n; i++)
    for (uint64_t b = 0; b < STUB_BLOCKS; b++) {
      const uint64_t at = (uint64_t)begin + 1000 * (uint64_t)i;
      uint64_t *to = (uint64_t *)(uintptr_t)a->stamps + (((uint64_t)t * (uint64_t)n + (uint64_t)i) * STUB_BLOCKS + b) * 4;
      if (b == 3 && i % 2 == 0) continue;
      to[GS_PERSISTENT_READY] = at + b, to[GS_PERSISTENT_ARRIVED] = at + 100 + b, to[GS_PERSISTENT_PUBLISHED] = at + 400 + 10 * b;
    }
}
// Whether steps would write beyond the cache.
static int beyond(const gs_persistent_args *a, int tokens) {
  const int32_t *pos = (const int32_t *)(uintptr_t)a->pos;
  for (int b = 0; b < a->B; b++)
    if (pos[b] + (a->rows ? a->rows : tokens) > a->P) return fail(GS_ARGUMENT, "%d tokens at position %d of %d (stub)", a->rows ? a->rows : tokens, pos[b], a->P);
  return GS_OK;
}
// Decode steps. The first word of the work area counts them; all ones, which is how
// memory is allocated and what a timeout leaves, make every block wait too long.
GS_API int gs_persistent(gs_stream *s, const gs_persistent_args *a) {
  NOTE_SIZED(a, "launch");
  if (s->capturing) return fail(900, "%s: the stream is capturing (stub)", __func__);
  const int status = stub.decode_status, late = due(&stub.timeout_in);
  if (status) return fail(status, "%s: %d blocks cannot be resident at once (stub)", __func__, 4);
  if (beyond(a, a->tokens)) return GS_ARGUMENT;
  gs_sampling *how = (gs_sampling *)(uintptr_t)a->sampling;
  int32_t *pos = (int32_t *)(uintptr_t)a->pos, *token = (int32_t *)(uintptr_t)a->tokens_io;
  uint64_t *epoch = (uint64_t *)(uintptr_t)a->work;
  if (late) *epoch = UINT64_MAX;
  if (a->logits_only) {  // gs_sample does the rest
    stamp_step(a, 0);
    if (*epoch != UINT64_MAX) ++*epoch;
#ifdef STUB_COMPUTES
    for (int b = 0; b < a->B; b++) compute_decode(a, b);
#endif
    return GS_OK;
  }
  for (int t = 0; t < a->tokens; t++) {
    if (*epoch != UINT64_MAX) ++*epoch;
    const int bad = *epoch != UINT64_MAX && due(&stub.not_finite_in) ? a->B - 1 : -1;  // a sequence
    for (int b = 0; b < a->B; b++) {
      gs_slot *slot = (gs_slot *)(uintptr_t)a->slots + how->step % (uint64_t)a->slot_count * (uint64_t)a->B + b;
      if (*epoch == UINT64_MAX) {
        slot->token = GS_SLOT_TIMEOUT;
        slot->position = stub.timeout_at;
      } else {
#ifdef STUB_COMPUTES
        token[b] = compute_decode(a, b);
#else
        token[b] = (int32_t)((how->step + 1) % (uint64_t)a->V);
#endif
        if (b == bad) token[b] = -1;
        pos[b] += a->rows ? a->rows : 1;
        slot->token = token[b];
        slot->position = (int64_t)(how->offset + (uint64_t)pos[b]);
      }
      slot->log_probability = a->candidates && how->log_probs ? -(float)slot->token : NAN;
      slot->time = how->step;
      __atomic_store_n(&slot->sequence, how->step + 1, __ATOMIC_RELEASE);
    }
    how->step++;
    stamp_step(a, t);
  }
  return GS_OK;
}
// Single steps, of which the last one computes all. The second word of the work area is the epoch of the
// token: the first step must have a greater one, the others the same.
GS_API int gs_persistent_one(gs_stream *s, const gs_persistent_args *a, int step, int tail, uint32_t epoch) {
  NOTE_SIZED(a, "launch");
  if (s->capturing) return fail(900, "%s: the stream is capturing (stub)", __func__);
  const int late = due(&stub.timeout_in);
  uint64_t *work_area = (uint64_t *)(uintptr_t)a->work;
  const int32_t pos = *(int32_t *)(uintptr_t)a->pos;
  if (late) work_area[0] = UINT64_MAX;
  if (beyond(a, 1)) return GS_ARGUMENT;
  if ((step == 0) != (epoch > work_area[1]) || epoch < work_area[1] || tail > pos)
    return fail(GS_ARGUMENT, "%s: step %d at epoch %u and position %d, with %d tokens before it (stub)", __func__, step, epoch, pos, tail);
  work_area[1] = epoch;
#ifdef STUB_COMPUTES
  for (int b = 0; step == a->count - 1 && b < a->B; b++) compute_decode(a, b);
#endif
  return put_kernel(s, __func__, (work){0});
}
GS_API int gs_persistent_work(gs_stream *s, const gs_persistent_args *a, uint64_t *bytes, int32_t *tokens) {
  NOTE_SIZED(a, "");
  if (stub.refusal[0]) return fail(GS_UNSUPPORTED, "%s", stub.refusal);
  if (a->B > GS_PERSISTENT_SEQUENCES) return fail(GS_UNSUPPORTED, "%d sequences (stub)", a->B);
  *bytes = 64u * (uint64_t)a->C;
  if (a->candidates && a->B == 3) return fail(GS_UNSUPPORTED, "%d sequences leave too little shared memory to draw tokens (stub)", a->B);
  if (a->rows > 4 && a->count > 11) return fail(GS_UNSUPPORTED, "%d rows of more than two layers (stub)", a->rows);
  *tokens = a->rows ? 1 : a->B > 4 ? a->candidates ? 2 : 4 : GS_PERSISTENT_TOKENS;
  return GS_OK;
}
#endif
RETURNS(gs_linear_tune, "", GS_OK, gs_stream *s, const gs_linear_args *a, int candidates)

GS_API int gs_stamps_into(gs_stream *s, gs_ptr areas, uint32_t count) {
  NOTE("");
  s->areas = areas;
  s->area_count = count;
  s->used = 0;
  return GS_OK;
}
GS_API int gs_stamps_used(gs_stream *s, uint32_t *used) {
  NOTE("");
  *used = s->used;
  return GS_OK;
}
GS_API int gs_stamp_taken_by(gs_stream *s, uint32_t area, const char **name, uint32_t *blocks) {
  NOTE("");
  *blocks = area < s->used;
  *name = !*blocks ? NULL : area < sizeof s->takers / sizeof *s->takers ? s->takers[area] : "stub";
  return GS_OK;
}
RETURNS(gs_stamp_mark, "launch", (put_kernel(s, __func__, (work){0})), gs_stream *s)
GS_API int gs_stamps_collect(gs_stream *s, const gs_collect_args *a) {
  NOTE_SIZED(a, "launch");
  return put(s, (work){.kind = 4, .collect = *a});
}
// The device's clock is the host's.
GS_API int gs_clock_compare(gs_stream *s, void *host, gs_ptr device_address, gs_clock_pair *out) {
  NOTE("");
  out->host = out->device = now();
  out->uncertainty = 100;
  out->resolution = 1;
  return GS_OK;
}

RETURNS(gs_empty_kernel, "launch", put(s, (work){0}), gs_stream *s)
// With the failure "hop" a block waits too long.
GS_API int gs_hops(gs_stream *s, gs_ptr area, int packets, int rounds) {
  NOTE("launch");
  if (STUB_MAJOR < 9) return fail(GS_UNSUPPORTED, "hops need compute capability 9.0");
  gs_hop_header *header = (gs_hop_header *)(uintptr_t)area;
  header->epoch += (uint32_t)rounds;
  if (!strcmp(stub.failing, "hop") && due(&stub.failing_in)) header->late = 1;
  return put(s, (work){0});
}
RETURNS(gs_read, "launch", put(s, (work){0}), gs_stream *s, gs_ptr p, uint64_t bytes, gs_ptr out)
RETURNS(gs_read_again, "launch", put(s, (work){0}), gs_stream *s, gs_ptr p, uint32_t turns, uint32_t passes, gs_ptr out)
RETURNS(gs_copy_kernel, "launch", (put(s, (work){.kind = 2, .dst = dst, .src = src, .bytes = bytes})), gs_stream *s, gs_ptr dst, gs_ptr src, uint64_t bytes)

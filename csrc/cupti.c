// The CUPTI recorder: the functions of cuda/cupti/recorder.h by NVIDIA's CUPTI. Only its headers are needed to build
// (csrc/build-cupti.sh); libcupti is opened at run time.
//
// CUPTI requests a buffer by a callback, on any thread, and returns it full or flushed, into a list for drain().
#define _GNU_SOURCE
#include "../cuda/cupti/recorder.h"

#include <cupti_activity.h>
#include <cupti_callbacks.h>
#include <cupti_driver_cbid.h>
#include <cupti_runtime_cbid.h>
#include <cupti_version.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#if CUPTI_API_VERSION < 22
#error "the headers of CUPTI are too old: those of CUDA 12.4 or later are needed"
#endif

// The functions of libcupti that are required, with the types of their headers. Others may be missing from a libcupti.
#define REQUIRED(F)                                                                                  \
  F(cuptiGetVersion) F(cuptiGetResultString) F(cuptiGetTimestamp) F(cuptiSubscribe)                  \
  F(cuptiUnsubscribe) F(cuptiEnableCallback) F(cuptiGetCallbackName) F(cuptiGetGraphNodeId)          \
  F(cuptiActivityRegisterCallbacks) F(cuptiActivityEnable) F(cuptiActivityDisable)                   \
  F(cuptiActivityFlushAll) F(cuptiActivityGetNextRecord) F(cuptiActivityGetNumDroppedRecords)        \
  F(cuptiActivitySetAttribute) F(cuptiActivityPushExternalCorrelationId)                             \
  F(cuptiActivityPopExternalCorrelationId) F(cuptiSetThreadIdType)

#define MEMBER(f) __typeof__(&f) f;
static struct {
  REQUIRED(MEMBER)
  CUptiResult (*cuptiActivityEnableAllSyncRecords)(uint8_t enable);
  CUptiResult (*cuptiActivityEnableRuntimeApi)(CUpti_CallbackId id, uint8_t enable);
  CUptiResult (*cuptiActivityEnableDriverApi)(CUpti_CallbackId id, uint8_t enable);
  CUptiResult (*cuptiActivityRegisterTimestampCallback)(uint64_t (*clock)(void));
#if CUPTI_API_VERSION >= 130000
  __typeof__(&cuptiSubscribe_v2) cuptiSubscribe_v2;
#endif
} api;
#undef MEMBER

enum { OLDEST = 22 };  // CUDA 12.4, as the CUDA library

// CUPTI's names of the kinds.
static const CUpti_ActivityKind kinds[GS_CUPTI_KINDS] = {
    [GS_CUPTI_KERNEL] = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
    [GS_CUPTI_MEMCPY] = CUPTI_ACTIVITY_KIND_MEMCPY,
    [GS_CUPTI_MEMCPY_PEER] = CUPTI_ACTIVITY_KIND_MEMCPY2,
    [GS_CUPTI_MEMSET] = CUPTI_ACTIVITY_KIND_MEMSET,
    [GS_CUPTI_RUNTIME] = CUPTI_ACTIVITY_KIND_RUNTIME,
    [GS_CUPTI_DRIVER] = CUPTI_ACTIVITY_KIND_DRIVER,
    [GS_CUPTI_SYNC] = CUPTI_ACTIVITY_KIND_SYNCHRONIZATION,
    [GS_CUPTI_OVERHEAD] = CUPTI_ACTIVITY_KIND_OVERHEAD,
    [GS_CUPTI_EXTERNAL] = CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION,
    [GS_CUPTI_GRAPH] = CUPTI_ACTIVITY_KIND_GRAPH_TRACE,
    [GS_CUPTI_MEMORY] = CUPTI_ACTIVITY_KIND_MEMORY2,
    [GS_CUPTI_DEVICE] = CUPTI_ACTIVITY_KIND_DEVICE,
};

// GS_CUPTI_QUERIES: calls that only ask, many times a launch; recording them takes longer than they do. Under CUPTI
// the runtime asks for the name of each kernel that it launches.
#define RUNTIME(f) CUPTI_RUNTIME_TRACE_CBID_cuda##f
#define DRIVER(f) CUPTI_DRIVER_TRACE_CBID_cu##f
static const CUpti_CallbackId asks_runtime[] = {
    RUNTIME(GetDevice_v3020), RUNTIME(GetDeviceCount_v3020), RUNTIME(GetLastError_v3020),
    RUNTIME(PeekAtLastError_v3020), RUNTIME(DeviceGetAttribute_v5000), RUNTIME(GetErrorString_v3020),
    RUNTIME(RuntimeGetVersion_v3020), RUNTIME(DriverGetVersion_v3020), RUNTIME(PointerGetAttributes_v4000), 0};
static const CUpti_CallbackId asks_driver[] = {
    DRIVER(CtxGetCurrent), DRIVER(CtxGetDevice), DRIVER(CtxGetLimit), DRIVER(DeviceGet), DRIVER(DeviceGetCount),
    DRIVER(DeviceGetAttribute), DRIVER(DevicePrimaryCtxGetState), DRIVER(GetErrorString), DRIVER(DriverGetVersion),
    DRIVER(KernelGetName), DRIVER(FuncGetAttribute), DRIVER(PointerGetAttribute), 0};

// The kinds without which recording fails; CUPTI may refuse others.
static const uint64_t essential = 1 << GS_CUPTI_KERNEL;

// An activity buffer: free, held by CUPTI (out), or full of records to be read.
typedef struct buffer {
  struct buffer *next;
  uint8_t *data;
  size_t valid;
  int out;
} buffer;

static struct {
  void *library;
  CUpti_SubscriberHandle subscriber;
  gs_cupti_options options;
  gs_cupti_state state;
  int opened;
  uint64_t enabled;  // kinds

  atomic_int recording;  // 0: off, 1: on, 2: on, and CUPTI records external correlation ids
  atomic_uint_fast64_t lost_pushes;
  uint64_t lost_records, damaged;  // used only by the thread that drains

  pthread_mutex_t mutex;  // protects what follows
  buffer *buffers;        // options.buffers of them, of which `made` have data
  uint32_t made;
  buffer *free;
  buffer *first, *last;  // to be read
  gs_cupti_record *nodes;
  uint32_t node_count;
  uint64_t lost_nodes;
  int32_t fatal;

  // The state of drain.
  buffer *reading;
  CUpti_Activity *record;
  gs_cupti_record *taken;  // nodes taken from the list
  uint32_t taken_count, taken_next;
} s = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static int wants(int kind) { return s.options.kinds >> kind & 1; }

// one_by_one says that calls are switched on by their ids: by their kinds each takes CUPTI (13.0) longer. Tags need the
// kinds, and so does a newer CUPTI, which has calls of unknown ids.
static int one_by_one(void) {
  return s.state.version <= CUPTI_API_VERSION && !wants(GS_CUPTI_QUERIES) && !wants(GS_CUPTI_EXTERNAL) &&
         api.cuptiActivityEnableRuntimeApi && api.cuptiActivityEnableDriverApi;
}

// switch_calls switches, one by one, all but what the compiler puts around launches, __cuda..., and then off those that
// only ask. It marks the kind as refused if none can be switched on.
static void switch_calls(int kind, CUpti_CallbackDomain domain, CUpti_CallbackId count, const CUpti_CallbackId *asks,
                         CUptiResult (*enable)(CUpti_CallbackId id, uint8_t enable), uint8_t on) {
  if (one_by_one() && wants(kind)) {
    int done = !on;
    for (CUpti_CallbackId id = 1; id < count; id++) {
      const char *name = "";
      api.cuptiGetCallbackName(domain, id, &name);
      if (name[0] != '_') done |= !enable(id, on);
    }
    if (!done) s.state.refused |= 1ull << kind;
  }
  for (; enable && *asks; asks++) enable(*asks, 0);
}

static void switch_all_calls(uint8_t on) {
  if (wants(GS_CUPTI_QUERIES)) return;
  switch_calls(GS_CUPTI_RUNTIME, CUPTI_CB_DOMAIN_RUNTIME_API, CUPTI_RUNTIME_TRACE_CBID_SIZE, asks_runtime,
               api.cuptiActivityEnableRuntimeApi, on);
  switch_calls(GS_CUPTI_DRIVER, CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_SIZE, asks_driver,
               api.cuptiActivityEnableDriverApi, on);
}

// The tags pushed on a thread.
enum { DEPTH = 32 };
static __thread struct {
  uint32_t depth;
  uint32_t correlated;  // a bit for each level that was pushed to CUPTI too
  uint64_t tags[DEPTH];
} pushed;

static int32_t failed(gs_cupti_error *error, const char *call, CUptiResult code, int32_t kind) {
  const char *text = NULL;
  error->code = (int32_t)code;
  error->kind = kind;
  snprintf(error->call, sizeof(error->call), "%s", call);
  if (api.cuptiGetResultString) api.cuptiGetResultString(code, &text);
  snprintf(error->text, sizeof(error->text), "%s", text ? text : "");
  return -1;
}

// Buffers.

// make_buffer adds a buffer of zeros to the pool. The caller holds the mutex.
static buffer *make_buffer(int touch) {
  if (s.made == s.options.buffers) return NULL;
  uint8_t *data = mmap(NULL, s.options.buffer_size, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | (touch ? MAP_POPULATE : 0), -1, 0);
  if (data == MAP_FAILED) return NULL;
  buffer *b = &s.buffers[s.made++];
  b->data = data;
  return b;
}

static void CUPTIAPI requested(uint8_t **data, size_t *size, size_t *records) {
  *data = NULL;  // without a buffer CUPTI drops records and counts them
  *size = 0;
  *records = 0;  // no limit but the size
  pthread_mutex_lock(&s.mutex);
  if (s.opened) {
    buffer *b = s.free;
    if (b) {
      s.free = b->next;
    } else {
      b = make_buffer(0);
    }
    if (b) {
      b->out = 1;
      b->next = NULL;
      *data = b->data;
      *size = s.options.buffer_size;
    }
  }
  pthread_mutex_unlock(&s.mutex);
}

static void CUPTIAPI completed(CUcontext context, uint32_t stream, uint8_t *data, size_t size, size_t valid) {
  (void)context, (void)stream;
  pthread_mutex_lock(&s.mutex);
  uint32_t i = 0;
  while (i < s.made && s.buffers[i].data != data) i++;
  if (i == s.made) {
    munmap(data, size);  // of a recorder that has been closed
  } else {
    buffer *b = &s.buffers[i];
    b->out = 0;
    b->valid = valid < size ? valid : size;
    b->next = NULL;
    if (s.last) {
      s.last->next = b;
    } else {
      s.first = b;
    }
    s.last = b;
  }
  pthread_mutex_unlock(&s.mutex);
}

// Graph nodes.

static void note_node(const CUpti_GraphData *graph, int cloned) {
  gs_cupti_record r = {.kind = GS_CUPTI_NODE};
  if (!graph || api.cuptiGetGraphNodeId(graph->node, &r.node) != CUPTI_SUCCESS) return;
  if (cloned && api.cuptiGetGraphNodeId(graph->originalNode, &r.origin) != CUPTI_SUCCESS) return;
  api.cuptiGetTimestamp(&r.start);
  r.end = r.start;
  r.process = (uint32_t)getpid();
  r.thread = (uint32_t)syscall(SYS_gettid);
  r.graph = (uint32_t)graph->nodeType;
  if (pushed.depth > 0 && pushed.depth <= DEPTH) {
    r.tagged = 1;
    r.tag = pushed.tags[pushed.depth - 1];
  }
  pthread_mutex_lock(&s.mutex);
  if (s.nodes && s.node_count < s.options.nodes) {
    s.nodes[s.node_count++] = r;
  } else {
    s.lost_nodes++;
  }
  pthread_mutex_unlock(&s.mutex);
}

static void CUPTIAPI called_back(void *user, CUpti_CallbackDomain domain, CUpti_CallbackId id, const void *data) {
  (void)user;
  if (domain == CUPTI_CB_DOMAIN_RESOURCE &&
      (id == CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED || id == CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED)) {
    note_node(((const CUpti_ResourceData *)data)->resourceDescriptor, id == CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED);
  }
  if (domain == CUPTI_CB_DOMAIN_STATE && id == CUPTI_CBID_STATE_FATAL_ERROR) {
    pthread_mutex_lock(&s.mutex);
    s.fatal = (int32_t)((const CUpti_StateData *)data)->notification.result;
    pthread_mutex_unlock(&s.mutex);
  }
}

// Open and close.

// find opens libcupti and looks up its functions.
static int32_t find(const char *path, gs_cupti_error *error) {
  s.library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!s.library) {
    const char *text = dlerror();
    snprintf(error->text, sizeof(error->text), "%s", text ? text : "");
    return -1;
  }
  const char *missing = NULL;
#define FIND(f) \
  if (!(api.f = (__typeof__(api.f))dlsym(s.library, #f))) missing = #f;
  REQUIRED(FIND)
#undef FIND
  if (missing) {
    snprintf(error->text, sizeof(error->text), "it has no %s", missing);
    return -1;
  }
#define MAYBE(f) api.f = (__typeof__(api.f))dlsym(s.library, #f);
  MAYBE(cuptiActivityEnableAllSyncRecords)
  MAYBE(cuptiActivityEnableRuntimeApi)
  MAYBE(cuptiActivityEnableDriverApi)
  MAYBE(cuptiActivityRegisterTimestampCallback)
#if CUPTI_API_VERSION >= 130000
  MAYBE(cuptiSubscribe_v2)
#endif
#undef MAYBE
  return 0;
}

static int32_t check_version(uint32_t *version, gs_cupti_error *error) {
  CUptiResult r = api.cuptiGetVersion(version);
  if (r) return failed(error, "cuptiGetVersion", r, 0);
  if (*version >= OLDEST) return 0;
  snprintf(error->text, sizeof(error->text), "it is version %u; CUDA 12.4, which has version %d, or later is needed",
           *version, OLDEST);
  return -1;
}

// load opens libcupti once: after a subscription it stays open. One that is too old is closed, so that another can be
// tried.
static int32_t load(const char *path, uint32_t *version, gs_cupti_error *error) {
  if (s.library) return check_version(version, error);
  if (!find(path, error) && !check_version(version, error)) return 0;
  if (s.library) dlclose(s.library);
  s.library = NULL;
  memset(&api, 0, sizeof(api));
  return -1;
}

// release frees the list of nodes and all buffers but those that CUPTI still holds.
static void release(void) {
  pthread_mutex_lock(&s.mutex);
  for (uint32_t i = 0; i < s.made; i++)
    if (!s.buffers[i].out) munmap(s.buffers[i].data, s.options.buffer_size);
  free(s.buffers);
  free(s.nodes);
  free(s.taken);
  s.buffers = s.free = s.first = s.last = s.reading = NULL;
  s.record = NULL;
  s.nodes = s.taken = NULL;
  s.made = s.node_count = s.taken_count = s.taken_next = 0;
  pthread_mutex_unlock(&s.mutex);
}

// allocate makes the pool and the list of nodes.
static int allocate(const gs_cupti_options *options) {
  pthread_mutex_lock(&s.mutex);
  s.options = *options;
  s.buffers = calloc(options->buffers, sizeof(*s.buffers));
  s.nodes = calloc(options->nodes, sizeof(*s.nodes));
  s.taken = calloc(options->nodes, sizeof(*s.taken));
  const int ok = s.buffers && s.nodes && s.taken;
  for (uint32_t i = 0; ok && i < options->ready; i++) {
    buffer *b = make_buffer(1);
    if (!b) break;
    b->next = s.free;
    s.free = b;
  }
  pthread_mutex_unlock(&s.mutex);
  return ok;
}

// attribute sets one of CUPTI's attributes, which it may refuse.
static void attribute(CUpti_ActivityAttribute which, size_t size, void *value) {
  api.cuptiActivitySetAttribute(which, &size, value);
}

// name_subscriber replaces the text by the name of CUPTI's subscriber, if it has one.
static void name_subscriber(gs_cupti_error *error) {
  error->text[0] = 0;
#if CUPTI_API_VERSION >= 130000
  if (!api.cuptiSubscribe_v2) return;
  char name[CUPTI_OLD_SUBSCRIBER_NAME_MIN_LEN] = "";
  CUpti_SubscriberParams params = {
      .structSize = CUpti_SubscriberParams_STRUCT_SIZE, .oldSubscriberName = name, .oldSubscriberSize = sizeof(name)};
  CUpti_SubscriberHandle subscriber;
  if (api.cuptiSubscribe_v2(&subscriber, called_back, NULL, &params) == CUPTI_SUCCESS) api.cuptiUnsubscribe(subscriber);
  snprintf(error->text, sizeof(error->text), "%.*s", (int)sizeof(name) - 1, name);
#endif
}

static int64_t now(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static uint64_t CUPTIAPI monotonic(void) { return (uint64_t)now(CLOCK_MONOTONIC); }

static int32_t open_one(const char *path, const gs_cupti_options *options, gs_cupti_error *error) {
  memset(error, 0, sizeof(*error));
  uint32_t version = 0;
  if (s.opened) return failed(error, "cuptiSubscribe", CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED, 0);
  if (load(path, &version, error)) return -1;
  memset(&s.state, 0, sizeof(s.state));
  s.lost_records = s.damaged = s.lost_nodes = 0;
  s.lost_pushes = 0;
  s.fatal = 0;
  s.state.version = version;
  s.state.known = CUPTI_API_VERSION;

  CUptiResult r = api.cuptiSubscribe(&s.subscriber, called_back, NULL);
  if (r) {
    failed(error, "cuptiSubscribe", r, 0);
    if (r == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED) name_subscriber(error);
    return -1;
  }
  if (!allocate(options)) {
    api.cuptiUnsubscribe(s.subscriber);
    release();
    snprintf(error->text, sizeof(error->text), "there is no memory for its buffers");
    snprintf(error->call, sizeof(error->call), "malloc");
    return -1;
  }

  // Thread ids are the system's, as in other recorders.
  r = api.cuptiSetThreadIdType(CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM);
  const char *call = "cuptiSetThreadIdType";
  if (!r) {
    uint8_t zeroed = 1;  // else CUPTI fills each buffer with zeros on the thread that launches
    attribute(CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER, sizeof(zeroed), &zeroed);
    size_t size = options->device_buffer, count = options->device_buffers;
    if (size) attribute(CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_SIZE, sizeof(size), &size);
    if (count) attribute(CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_PRE_ALLOCATE_VALUE, sizeof(count), &count);
    // By its own clock launches were 10 to 30 % slower on an H100.
    if (api.cuptiActivityRegisterTimestampCallback) api.cuptiActivityRegisterTimestampCallback(monotonic);
    call = "cuptiActivityRegisterCallbacks";
    r = api.cuptiActivityRegisterCallbacks(requested, completed);
  }
  if (!r && options->kinds >> GS_CUPTI_NODE & 1) {
    call = "cuptiEnableCallback";
    r = api.cuptiEnableCallback(1, s.subscriber, CUPTI_CB_DOMAIN_RESOURCE, CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED);
    if (!r)
      r = api.cuptiEnableCallback(1, s.subscriber, CUPTI_CB_DOMAIN_RESOURCE, CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED);
  }
  if (r) {
    api.cuptiUnsubscribe(s.subscriber);
    release();
    return failed(error, call, r, 0);
  }
  // older versions refuse it
  api.cuptiEnableCallback(1, s.subscriber, CUPTI_CB_DOMAIN_STATE, CUPTI_CBID_STATE_FATAL_ERROR);
  pthread_mutex_lock(&s.mutex);
  s.opened = 1;
  pthread_mutex_unlock(&s.mutex);
  return 0;
}

static int32_t open_recorder(const char *paths, const gs_cupti_options *options, gs_cupti_error *error) {
  char *list = strdup(paths), *rest = NULL;
  gs_cupti_error unfit = {0};  // of the first that is there but cannot be opened
  int32_t status = -1;
  for (char *path = strtok_r(list, "\n", &rest); path && status; path = strtok_r(NULL, "\n", &rest)) {
    status = open_one(path, options, error);
    if (error->call[0]) break;  // it is there and refuses
    if (status && !unfit.text[0] && strchr(path, '/'))
      snprintf(unfit.text, sizeof(unfit.text), "%.200s: %.300s", path, error->text);
  }
  if (status && !error->call[0]) *error = unfit;
  free(list);
  return status;
}

static void disable(void) {
  atomic_store(&s.recording, 0);
  for (int k = 1; k < GS_CUPTI_KINDS; k++)
    if (s.enabled >> k & 1) api.cuptiActivityDisable(kinds[k]);
  if (one_by_one()) switch_all_calls(0);
  s.enabled = 0;
}

static int32_t start(gs_cupti_error *error) {
  memset(error, 0, sizeof(*error));
  if (atomic_load(&s.recording)) return 0;
  s.state.refused = 0;
  for (int k = 1; k < GS_CUPTI_KINDS; k++) {
    if (!kinds[k] || !wants(k)) continue;
    if ((k == GS_CUPTI_RUNTIME || k == GS_CUPTI_DRIVER) && one_by_one()) continue;
    CUptiResult r = api.cuptiActivityEnable(kinds[k]);
    if (!r) {
      s.enabled |= 1ull << k;
    } else if ((r == CUPTI_ERROR_NOT_COMPATIBLE || r == CUPTI_ERROR_INVALID_KIND || r == CUPTI_ERROR_NOT_SUPPORTED) &&
               !(essential >> k & 1)) {
      s.state.refused |= 1ull << k;
    } else {
      disable();
      return failed(error, "cuptiActivityEnable", r, k);
    }
  }
  switch_all_calls(1);
  // Else a loop that polls an event would fill the buffers.
  if (api.cuptiActivityEnableAllSyncRecords) api.cuptiActivityEnableAllSyncRecords(0);
  atomic_store(&s.recording, s.enabled >> GS_CUPTI_EXTERNAL & 1 ? 2 : 1);
  return 0;
}

static void count_lost(void) {
  size_t n = 0;
  if (!api.cuptiActivityGetNumDroppedRecords(NULL, 0, &n)) s.lost_records += n;  // since the last call
}

static int32_t flush(int32_t forced, gs_cupti_error *error) {
  memset(error, 0, sizeof(*error));
  CUptiResult r = api.cuptiActivityFlushAll(forced ? CUPTI_ACTIVITY_FLAG_FLUSH_FORCED : 0);
  count_lost();
  return r ? failed(error, "cuptiActivityFlushAll", r, 0) : 0;
}

// stop flushes before it disables the kinds, as records of a disabled kind may be lost.
static int32_t stop(gs_cupti_error *error) {
  int32_t status = flush(1, error);
  disable();
  gs_cupti_error second;
  return flush(1, status ? &second : error) || status ? -1 : 0;
}

static int32_t close_recorder(gs_cupti_error *error) {
  memset(error, 0, sizeof(*error));
  if (!s.opened) return 0;
  int32_t status = 0;
  if (atomic_load(&s.recording)) status = stop(error);
  pthread_mutex_lock(&s.mutex);
  s.opened = 0;
  pthread_mutex_unlock(&s.mutex);
  // Not cuptiFinalize: it is safe only at the exit of a CUDA call while nothing runs, and has crashed with graphs
  // (release notes of CUDA 12.4 Update 1).
  CUptiResult r = api.cuptiUnsubscribe(s.subscriber);
  release();
  return r && !status ? failed(error, "cuptiUnsubscribe", r, 0) : status;
}

// Tags.

static void push(uint64_t tag) {
  uint32_t at = pushed.depth++;
  if (at >= DEPTH) {
    atomic_fetch_add_explicit(&s.lost_pushes, 1, memory_order_relaxed);
    return;
  }
  pushed.tags[at] = tag;
  pushed.correlated &= ~(1u << at);
  if (atomic_load_explicit(&s.recording, memory_order_relaxed) == 2 &&
      api.cuptiActivityPushExternalCorrelationId(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, tag) == CUPTI_SUCCESS)
    pushed.correlated |= 1u << at;
}

static void pop(void) {
  if (!pushed.depth) return;
  uint32_t at = --pushed.depth;
  if (at < DEPTH && pushed.correlated >> at & 1)
    api.cuptiActivityPopExternalCorrelationId(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, NULL);
}

// Reading records.

// Each later struct of a kind begins like that of CUDA 12.4, whose types these are: compared up to CUDA 13.5.

#define READ_WORK(a, r)                                                                                              \
  r->start = a->start, r->end = a->end, r->device = a->deviceId, r->context = a->contextId, r->stream = a->streamId, \
  r->correlation = a->correlationId, r->node = a->graphNodeId, r->graph = a->graphId

static void name_record(gs_cupti_record *r, const char *name) {
  r->name = name;
  r->name_length = name ? (uint32_t)strlen(name) : 0;
}

static void read_kernel(const CUpti_ActivityKernel9 *a, gs_cupti_record *r) {
  r->kind = GS_CUPTI_KERNEL;
  READ_WORK(a, r);
  memcpy(r->grid, &a->gridX, sizeof(r->grid));
  memcpy(r->block, &a->blockX, sizeof(r->block));
  r->registers = a->registersPerThread;
  r->static_shared = a->staticSharedMemory;
  r->dynamic_shared = a->dynamicSharedMemory;
  name_record(r, a->name);
}

#define READ_KINDS(a, r) r->copy_kind = a->copyKind, r->from = a->srcKind, r->to = a->dstKind

static void read_copy(const CUpti_ActivityMemcpy5 *a, gs_cupti_record *r) {
  r->kind = GS_CUPTI_MEMCPY;
  READ_WORK(a, r);
  READ_KINDS(a, r);
  r->bytes = a->bytes;
}

static void read_peer_copy(const CUpti_ActivityMemcpyPtoP4 *a, gs_cupti_record *r) {
  r->kind = GS_CUPTI_MEMCPY_PEER;
  READ_WORK(a, r);
  READ_KINDS(a, r);
  r->bytes = a->bytes;
}

static void read_set(const CUpti_ActivityMemset4 *a, gs_cupti_record *r) {
  r->kind = GS_CUPTI_MEMSET;
  READ_WORK(a, r);
  r->to = (uint8_t)a->memoryKind;
  r->bytes = a->bytes;
}

static void read_call(const CUpti_ActivityAPI *a, gs_cupti_record *r) {
  const char *name = NULL;
  CUpti_CallbackDomain domain =
      a->kind == CUPTI_ACTIVITY_KIND_RUNTIME ? CUPTI_CB_DOMAIN_RUNTIME_API : CUPTI_CB_DOMAIN_DRIVER_API;
  if (api.cuptiGetCallbackName(domain, a->cbid, &name) == CUPTI_SUCCESS) name_record(r, name);
  r->kind = a->kind == CUPTI_ACTIVITY_KIND_RUNTIME ? GS_CUPTI_RUNTIME : GS_CUPTI_DRIVER;
  r->detail = a->cbid;
  r->start = a->start;
  r->end = a->end;
  r->process = a->processId;
  r->thread = a->threadId;
  r->correlation = a->correlationId;
}

static void read_sync(const CUpti_ActivitySynchronization *a, gs_cupti_record *r) {
  r->kind = GS_CUPTI_SYNC;
  r->start = a->start;
  r->end = a->end;
  r->correlation = a->correlationId;
  r->context = a->contextId;
  r->stream = a->streamId;
  r->detail = a->type;
}

static void read_overhead(const CUpti_ActivityOverhead3 *a, gs_cupti_record *r) {
  r->kind = GS_CUPTI_OVERHEAD;
  r->start = a->start;
  r->end = a->end;
  r->correlation = a->correlationId;
  r->detail = a->overheadKind;
  const int thread = a->objectKind == CUPTI_ACTIVITY_OBJECT_THREAD;
  if (thread || a->objectKind == CUPTI_ACTIVITY_OBJECT_PROCESS) r->process = a->objectId.pt.processId;
  if (thread) r->thread = a->objectId.pt.threadId;
}

static void read_graph(const CUpti_ActivityGraphTrace *a, gs_cupti_record *r) {
  r->kind = GS_CUPTI_GRAPH;
  r->start = a->start;
  r->end = a->end;
  r->device = a->deviceId;
  r->context = a->contextId;
  r->stream = a->streamId;
  r->correlation = a->correlationId;
  r->graph = a->graphId;
}

static void read_memory(const CUpti_ActivityMemory3 *a, gs_cupti_record *r) {
  r->kind = GS_CUPTI_MEMORY;
  r->start = r->end = a->timestamp;
  r->device = a->deviceId;
  r->process = a->processId;
  r->bytes = a->bytes;
  r->from = (uint8_t)a->memoryKind;
  r->detail = a->memoryOperationType;
}

// read_device puts what a GPU is into fields that are of other things in other records.
static void read_device(const CUpti_ActivityDevice4 *a, gs_cupti_record *r) {
  r->kind = GS_CUPTI_DEVICE;
  name_record(r, a->name);
  r->device = a->id;
  r->bytes = a->globalMemorySize;
  r->tag = a->globalMemoryBandwidth;  // kB/s
  r->correlation = a->coreClockRate;  // kHz
  r->grid[0] = (int32_t)a->numMultiprocessors;
  r->grid[1] = (int32_t)a->maxWarpsPerMultiprocessor;
  r->grid[2] = (int32_t)a->maxBlocksPerMultiprocessor;
  r->block[0] = (int32_t)a->computeCapabilityMajor;
  r->block[1] = (int32_t)a->computeCapabilityMinor;
  r->registers = a->maxRegistersPerMultiprocessor;
  r->static_shared = (int32_t)a->maxSharedMemoryPerMultiprocessor;
  memcpy(&r->node, &a->uuid.bytes[0], 8);
  memcpy(&r->origin, &a->uuid.bytes[8], 8);
}

static int read_external(const CUpti_ActivityExternalCorrelation *a, gs_cupti_record *r) {
  r->kind = GS_CUPTI_EXTERNAL;
  r->correlation = a->correlationId;
  r->tag = a->externalId;
  return a->externalKind == CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0;
}

// read_record returns 0 for a record of a kind that is not used.
static int read_record(const void *a, gs_cupti_record *r) {
  memset(r, 0, sizeof(*r));
  switch (((const CUpti_Activity *)a)->kind) {
    case CUPTI_ACTIVITY_KIND_KERNEL:
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: return read_kernel(a, r), 1;
    case CUPTI_ACTIVITY_KIND_MEMCPY: return read_copy(a, r), 1;
    case CUPTI_ACTIVITY_KIND_MEMCPY2: return read_peer_copy(a, r), 1;
    case CUPTI_ACTIVITY_KIND_MEMSET: return read_set(a, r), 1;
    case CUPTI_ACTIVITY_KIND_RUNTIME:
    case CUPTI_ACTIVITY_KIND_DRIVER: return read_call(a, r), 1;
    case CUPTI_ACTIVITY_KIND_SYNCHRONIZATION: return read_sync(a, r), 1;
    case CUPTI_ACTIVITY_KIND_OVERHEAD: return read_overhead(a, r), 1;
    case CUPTI_ACTIVITY_KIND_GRAPH_TRACE: return read_graph(a, r), 1;
    case CUPTI_ACTIVITY_KIND_MEMORY2: return read_memory(a, r), 1;
    case CUPTI_ACTIVITY_KIND_DEVICE: return read_device(a, r), 1;
    case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION: return read_external(a, r);
    default: return 0;
  }
}

// recycle zeroes the buffer that was read and returns it to the pool.
static void recycle(void) {
  buffer *b = s.reading;
  memset(b->data, 0, b->valid);
  s.reading = NULL;
  s.record = NULL;
  pthread_mutex_lock(&s.mutex);
  b->valid = 0;
  b->next = s.free;
  s.free = b;
  pthread_mutex_unlock(&s.mutex);
}

static int32_t drain(gs_cupti_record *records, int32_t max) {
  int32_t n = 0;
  if (!s.opened) return 0;
  if (s.taken_next == s.taken_count) {
    s.taken_next = 0;
    pthread_mutex_lock(&s.mutex);
    gs_cupti_record *taken = s.nodes;
    s.nodes = s.taken;
    s.taken = taken;
    s.taken_count = s.node_count;
    s.node_count = 0;
    pthread_mutex_unlock(&s.mutex);
  }
  while (n < max && s.taken_next < s.taken_count) records[n++] = s.taken[s.taken_next++];
  while (n < max) {
    if (!s.reading) {
      pthread_mutex_lock(&s.mutex);
      s.reading = s.first;
      if (s.first && !(s.first = s.first->next)) s.last = NULL;
      pthread_mutex_unlock(&s.mutex);
      if (!s.reading) break;
    }
    CUptiResult r = CUPTI_ERROR_MAX_LIMIT_REACHED;
    if (s.reading->valid) r = api.cuptiActivityGetNextRecord(s.reading->data, s.reading->valid, &s.record);
    if (r == CUPTI_SUCCESS) {
      n += read_record(s.record, &records[n]);
      continue;
    }
    if (r != CUPTI_ERROR_MAX_LIMIT_REACHED) s.damaged++;
    recycle();
  }
  return n;
}

static void losses(gs_cupti_losses *l) {
  if (s.opened) count_lost();
  l->records = s.lost_records;
  l->damaged = s.damaged;
  l->pushes = atomic_load(&s.lost_pushes);
  pthread_mutex_lock(&s.mutex);
  l->nodes = s.lost_nodes;
  pthread_mutex_unlock(&s.mutex);
}

static void state(gs_cupti_state *out) {
  *out = s.state;
  pthread_mutex_lock(&s.mutex);
  out->fatal = s.fatal;
  pthread_mutex_unlock(&s.mutex);
}

// clocks reads CUPTI's clock between two readings of each of the host's clocks, several times, and keeps the shortest.
static int32_t clocks(gs_cupti_clock *best, gs_cupti_error *error) {
  memset(error, 0, sizeof(*error));
  best->uncertainty = INT64_MAX;
  for (int i = 0; i < 32; i++) {
    uint64_t t;
    int64_t mono = now(CLOCK_MONOTONIC), real = now(CLOCK_REALTIME);
    CUptiResult r = api.cuptiGetTimestamp(&t);
    int64_t real_after = now(CLOCK_REALTIME), mono_after = now(CLOCK_MONOTONIC);
    if (r) return failed(error, "cuptiGetTimestamp", r, 0);
    if (mono_after - mono >= best->uncertainty) continue;
    *best = (gs_cupti_clock){t, mono + (mono_after - mono) / 2, real + (real_after - real) / 2, mono_after - mono};
  }
  return 0;
}

GS_CUPTI_API const gs_cupti_table *gs_cupti(void) {
  static const gs_cupti_table table = {
      .version = GS_CUPTI_ABI_VERSION,
      .open = open_recorder,
      .start = start,
      .stop = stop,
      .flush = flush,
      .close = close_recorder,
      .push = push,
      .pop = pop,
      .drain = drain,
      .losses = losses,
      .state = state,
      .clock = clocks,
  };
  return &table;
}

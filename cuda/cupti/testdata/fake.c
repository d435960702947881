// A libcupti for tests, without CUDA: the functions that csrc/cupti.c uses, with
// the prototypes of NVIDIA's headers, and others by which a test says what "happens"
// on the GPU. Records have the structs of the version that it is told to be; what a
// test does not give is filled with a pattern, so that a field read at a wrong place
// shows. Built by package fake.
#define _GNU_SOURCE
#include <cupti_activity.h>
#include <cupti_callbacks.h>
#include <cupti_version.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "fake/fake.h"

#define EXPORT __attribute__((visibility("default")))

// The structs by the version from which on they are used, as NVIDIA's release notes
// of CUPTI have it, and what they have more than those before. Structs that the
// headers lack are never chosen.
#define CORRELATION k.correlationId = (uint32_t)r->correlation
#if CUPTI_API_VERSION < 26
typedef CUpti_ActivityMemcpy5 CUpti_ActivityMemcpy6;
typedef CUpti_ActivitySynchronization CUpti_ActivitySynchronization2;
#endif
#if CUPTI_API_VERSION < 130000
typedef CUpti_ActivityKernel9 CUpti_ActivityKernel10;
#endif
#if CUPTI_API_VERSION < 130200
typedef CUpti_ActivityKernel10 CUpti_ActivityKernel11;
#endif
#if CUPTI_API_VERSION < 130300
typedef CUpti_ActivityKernel11 CUpti_ActivityKernel12;
#endif
#if CUPTI_API_VERSION < 130400
typedef CUpti_ActivityKernel12 CUpti_ActivityKernel13;
typedef CUpti_ActivityMemcpy6 CUpti_ActivityMemcpy7;
typedef CUpti_ActivityMemset4 CUpti_ActivityMemset5;
#endif

#define KERNELS(ROW)                                                                                              \
  ROW(18, CUpti_ActivityKernel8, ) ROW(19, CUpti_ActivityKernel9, ) ROW(130000, CUpti_ActivityKernel10, )         \
  ROW(130200, CUpti_ActivityKernel11, ) ROW(130300, CUpti_ActivityKernel12, ) ROW(130400, CUpti_ActivityKernel13, )
#define COPIES(ROW) ROW(18, CUpti_ActivityMemcpy5, ) ROW(26, CUpti_ActivityMemcpy6, ) ROW(130400, CUpti_ActivityMemcpy7, )
#define PEER_COPIES(ROW) ROW(18, CUpti_ActivityMemcpyPtoP4, )
#define SETS(ROW) ROW(18, CUpti_ActivityMemset4, ) ROW(130400, CUpti_ActivityMemset5, )
#define SYNCS(ROW) ROW(18, CUpti_ActivitySynchronization, ) ROW(26, CUpti_ActivitySynchronization2, )
#define OVERHEADS(ROW) ROW(18, CUpti_ActivityOverhead, ) ROW(20, CUpti_ActivityOverhead2, CORRELATION) ROW(22, CUpti_ActivityOverhead3, CORRELATION)
#define GRAPHS(ROW) ROW(18, CUpti_ActivityGraphTrace, )
#define MEMORIES(ROW) ROW(18, CUpti_ActivityMemory3, )
#define DEVICES(ROW) ROW(18, CUpti_ActivityDevice4, )
// The kinds of records in recorder.h, with CUPTI's names of them. Later structs of the last three begin alike.
#define KINDS(KIND)                                                                                                  \
  KIND(KERNEL, CONCURRENT_KERNEL, KERNELS) KIND(MEMCPY, MEMCPY, COPIES) KIND(MEMCPY_PEER, MEMCPY2, PEER_COPIES)      \
  KIND(MEMSET, MEMSET, SETS) KIND(SYNC, SYNCHRONIZATION, SYNCS) KIND(OVERHEAD, OVERHEAD, OVERHEADS)                  \
  KIND(GRAPH, GRAPH_TRACE, GRAPHS) KIND(MEMORY, MEMORY2, MEMORIES) KIND(DEVICE, DEVICE, DEVICES)
#define CHOOSE(since, T, more) \
  if (since <= f.version && since <= CUPTI_API_VERSION) chosen = since;

enum { PATTERN = 0xa5, FUTURE = 140000, LATER = 24 /* bytes that a struct of the future has more */ };

struct CUpti_Subscriber_st {
  int dummy;
};

static struct {
  pthread_mutex_t mutex;
  uint32_t version;
  char failing[64];
  CUptiResult failure;
  struct CUpti_Subscriber_st subscriber;
  CUpti_CallbackFunc callback;
  int node_created, node_cloned;
  int enabled[CUPTI_ACTIVITY_KIND_COUNT];
  uint8_t call_on[2][1024], call_off[2][1024];  // of the runtime and the driver API, by id: recorded whatever the kind, not recorded
  CUpti_BuffersCallbackRequestFunc request;
  CUpti_BuffersCallbackCompleteFunc complete;
  uint8_t *buffer;
  size_t size, valid;
  int incomplete;  // records of the buffer whose end is not known
  size_t dropped;
  int zeroed;  // the program gives buffers of zeros
  uint32_t correlation;
} f = {.mutex = PTHREAD_MUTEX_INITIALIZER};

EXPORT gs_fake fake;  // below

static __thread uint64_t stack[64];
static __thread int depth;

static CUptiResult failing(const char *call) { return strcmp(f.failing, call) ? CUPTI_SUCCESS : f.failure; }

// Controls.

// reset forgets everything but buffers that the program still waits for.
static void reset(uint32_t version) {
  pthread_mutex_lock(&f.mutex);
  f.version = version;
  f.failing[0] = 0;
  f.node_created = f.node_cloned = f.incomplete = f.zeroed = 0;
  fake.seen = (fake_seen){.all_syncs = 1, .names_subscriber = fake.seen.names_subscriber};
  f.dropped = f.valid = 0;
  f.buffer = NULL;
  f.correlation = 1000;
  memset(f.enabled, 0, sizeof(f.enabled));
  memset(f.call_on, 0, sizeof(f.call_on));
  memset(f.call_off, 0, sizeof(f.call_off));
  pthread_mutex_unlock(&f.mutex);
}

// fail makes a function fail; "cuptiActivityEnable 38" only for that kind.
static void fail(const char *call, int code) {
  snprintf(f.failing, sizeof(f.failing), "%s", call);
  f.failure = (CUptiResult)code;
}


// Buffers are given back on a thread of CUPTI's own.
static void *give_back(void *unused) {
  (void)unused;
  f.complete(NULL, 0, f.buffer, f.size, f.valid);
  return NULL;
}

static void complete(void) {
  if (!f.buffer) return;
  pthread_t thread;
  pthread_create(&thread, NULL, give_back, NULL);
  pthread_join(thread, NULL);
  f.buffer = NULL;
  f.valid = 0;
  f.incomplete = 0;
}

static void complete_now(void) {
  pthread_mutex_lock(&f.mutex);
  complete();
  pthread_mutex_unlock(&f.mutex);
}

static void put(const void *record, size_t size, int incomplete) {
  if (f.buffer && f.valid + size > f.size) complete();
  if (!f.buffer) {
    size_t most = 0;
    f.request(&f.buffer, &f.size, &most);
    for (size_t i = 0; f.buffer && f.zeroed && i < f.size; i++)
      if (f.buffer[i]) {
        fake.seen.dirty++;
        break;
      }
  }
  if (!f.buffer || size > f.size) {
    f.dropped++;
    return;
  }
  memcpy(f.buffer + f.valid, record, size);
  f.valid += size;
  f.incomplete += incomplete;
}

// The structs by version. Each fills what a record of the test has.

#define PUT(since, T, activity, ...)                         \
  if (since == chosen) {                                     \
    struct {                                                 \
      T k;                                                   \
      uint8_t later[LATER];                                  \
    } u;                                                     \
    memset(&u, PATTERN, sizeof(u));                          \
    T k = u.k;                                               \
    k.kind = CUPTI_ACTIVITY_KIND_##activity;                 \
    __VA_ARGS__;                                             \
    u.k = k;                                                 \
    put(&u, size_of(k.kind), incomplete);                    \
  }

#define FILL_TIMES \
  k.start = r->start, k.end = r->end, k.correlationId = (uint32_t)r->correlation, k.contextId = r->context, \
  k.streamId = r->stream
#define FILL_GRAPH FILL_TIMES, k.deviceId = r->device, k.graphId = r->graph
#define FILL_WORK FILL_GRAPH, k.graphNodeId = r->node, incomplete = !r->end
#define FILL_COPY FILL_WORK, k.bytes = r->bytes, k.copyKind = r->copy_kind, k.srcKind = r->from, k.dstKind = r->to

#define PUT_KERNEL(since, T, more)                                                                                \
  PUT(since, T, CONCURRENT_KERNEL, FILL_WORK, k.gridX = r->grid[0], k.gridY = r->grid[1], k.gridZ = r->grid[2],   \
      k.blockX = r->block[0], k.blockY = r->block[1], k.blockZ = r->block[2],                                     \
      k.registersPerThread = (uint16_t)r->registers, k.staticSharedMemory = r->static_shared,                     \
      k.dynamicSharedMemory = r->dynamic_shared, k.name = r->name; more)
#define PUT_MEMCPY(since, T, more) PUT(since, T, MEMCPY, FILL_COPY; more)
#define PUT_MEMCPY_PEER(since, T, more) PUT(since, T, MEMCPY2, FILL_COPY; more)
#define PUT_MEMSET(since, T, more) PUT(since, T, MEMSET, FILL_WORK, k.bytes = r->bytes, k.memoryKind = r->to; more)
#define PUT_SYNC(since, T, more) \
  PUT(since, T, SYNCHRONIZATION, FILL_TIMES, k.type = (CUpti_ActivitySynchronizationType)r->detail; more)
#define PUT_OVERHEAD(since, T, more)                                                                              \
  PUT(since, T, OVERHEAD, k.overheadKind = (CUpti_ActivityOverheadKind)r->detail,                                 \
      k.objectKind = CUPTI_ACTIVITY_OBJECT_THREAD, k.objectId.pt.processId = r->process,                          \
      k.objectId.pt.threadId = r->thread, k.start = r->start, k.end = r->end; more)
#define PUT_GRAPH(since, T, more) PUT(since, T, GRAPH_TRACE, FILL_GRAPH)
#define PUT_MEMORY(since, T, more)                                                                                \
  PUT(since, T, MEMORY2, k.memoryOperationType = (CUpti_ActivityMemoryOperationType)r->detail,                    \
      k.memoryKind = (CUpti_ActivityMemoryKind)r->from, k.bytes = r->bytes, k.timestamp = r->start,               \
      k.deviceId = r->device)
#define PUT_DEVICE(since, T, more)                                                                                \
  PUT(since, T, DEVICE, k = (T){.kind = k.kind, .id = r->device, .name = r->name, .globalMemorySize = r->bytes,   \
      .numMultiprocessors = 132, .computeCapabilityMajor = 9, .uuid = {.bytes = {1, 2, 3}}})

#define SIZE(since, T, more) \
  if (since == chosen) size = sizeof(T) + (f.version >= FUTURE ? LATER : 0);
#define SIZE_KIND(of, activity, structs)            \
  if (kind == CUPTI_ACTIVITY_KIND_##activity) {     \
    structs(CHOOSE) structs(SIZE)                   \
  }

// size_of gives how long a record in a buffer is, 0 where it is none.
static size_t size_of(CUpti_ActivityKind kind) {
  uint32_t chosen = 0;
  size_t size = 0;
  KINDS(SIZE_KIND)
  if (kind == CUPTI_ACTIVITY_KIND_RUNTIME || kind == CUPTI_ACTIVITY_KIND_DRIVER) size = sizeof(CUpti_ActivityAPI);
  if (kind == CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION) size = sizeof(CUpti_ActivityExternalCorrelation);
  return size;
}

#define PUT_KIND(of, activity, structs)                                          \
  if (r->kind == GS_CUPTI_##of && f.enabled[CUPTI_ACTIVITY_KIND_##activity]) {   \
    structs(CHOOSE) structs(PUT_##of)                                            \
  }

// record puts a record of work into the buffers, if its kind is recorded.
static void record(const gs_cupti_record *r) {
  pthread_mutex_lock(&f.mutex);
  uint32_t chosen = 0;
  int incomplete = 0;
  KINDS(PUT_KIND)
  pthread_mutex_unlock(&f.mutex);
}

// call is an API call of this thread, and returns its correlation id.
static uint32_t call(int driver, uint32_t id, uint64_t start, uint64_t end) {
  pthread_mutex_lock(&f.mutex);
  uint32_t correlation = ++f.correlation;
  CUpti_ActivityKind kind = driver ? CUPTI_ACTIVITY_KIND_DRIVER : CUPTI_ACTIVITY_KIND_RUNTIME;
  if (f.call_on[!!driver][id] || (f.enabled[kind] && !f.call_off[!!driver][id])) {
    if (depth && f.enabled[CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION]) {
      CUpti_ActivityExternalCorrelation e = {CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION, CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, stack[depth - 1], correlation, 0};
      put(&e, sizeof(e), 0);
      e.externalKind = CUPTI_EXTERNAL_CORRELATION_KIND_OPENACC;  // another's, which must not be taken for ours
      e.externalId = 77;
      put(&e, sizeof(e), 0);
    }
    CUpti_ActivityAPI a = {kind, id, start, end, (uint32_t)getpid(), (uint32_t)syscall(SYS_gettid), correlation, 0};
    put(&a, sizeof(a), 0);
  }
  pthread_mutex_unlock(&f.mutex);
  return correlation;
}

// node makes a node of a graph, or clones one.
static void node(uint64_t node, uint64_t origin) {
  CUpti_GraphData g = {.node = (CUgraphNode)node, .originalNode = (CUgraphNode)origin, .nodeType = CU_GRAPH_NODE_TYPE_KERNEL};
  CUpti_ResourceData data = {.resourceDescriptor = &g};
  // Instantiation tells of the clone twice, made and cloned.
  if (f.node_created) f.callback(NULL, CUPTI_CB_DOMAIN_RESOURCE, CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED, &data);
  if (origin && f.node_cloned) f.callback(NULL, CUPTI_CB_DOMAIN_RESOURCE, CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED, &data);
}

// damage makes the buffer's next record one of no kind, and those after it lost.
static void damage(void) {
  pthread_mutex_lock(&f.mutex);
  CUpti_ActivityAPI a = {0};
  put(&a, sizeof(a), 0);
  pthread_mutex_unlock(&f.mutex);
}

static void fatal(int code) {
  CUpti_StateData data = {.notification = {(CUptiResult)code, "it is over"}};
  f.callback(NULL, CUPTI_CB_DOMAIN_STATE, CUPTI_CBID_STATE_FATAL_ERROR, &data);
}

gs_fake fake = {{.names_subscriber = CUPTI_API_VERSION >= 130000}, reset, fail, record, call, node, damage, complete_now, fatal};

// CUPTI.

EXPORT CUptiResult cuptiGetVersion(uint32_t *version) {
  *version = f.version;
  return failing(__func__);
}

EXPORT CUptiResult cuptiGetResultString(CUptiResult result, const char **text) {
  *text = result == CUPTI_ERROR_UNKNOWN ? "CUPTI_ERROR_UNKNOWN" : "CUPTI_ERROR_OTHER";
  return CUPTI_SUCCESS;
}

// 7 s behind CLOCK_MONOTONIC.
EXPORT CUptiResult cuptiGetTimestamp(uint64_t *timestamp) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  *timestamp = (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec - 7000000000;
  return failing(__func__);
}

EXPORT CUptiResult cuptiSubscribe(CUpti_SubscriberHandle *subscriber, CUpti_CallbackFunc callback, void *user) {
  (void)user;
  CUptiResult r = failing(__func__);
  if (r) return r;
  if (fake.seen.subscribed) return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
  fake.seen.subscribed = 1;
  f.callback = callback;
  *subscriber = &f.subscriber;
  return CUPTI_SUCCESS;
}

EXPORT CUptiResult cuptiUnsubscribe(CUpti_SubscriberHandle subscriber) {
  if (subscriber != &f.subscriber || !fake.seen.subscribed) return CUPTI_ERROR_INVALID_PARAMETER;
  fake.seen.subscribed = f.node_created = f.node_cloned = 0;
  return failing(__func__);
}

EXPORT CUptiResult cuptiEnableCallback(uint32_t enable, CUpti_SubscriberHandle subscriber, CUpti_CallbackDomain domain, CUpti_CallbackId id) {
  if (subscriber != &f.subscriber) return CUPTI_ERROR_INVALID_PARAMETER;
  if (domain == CUPTI_CB_DOMAIN_RESOURCE && id == CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED) f.node_created = (int)enable;
  if (domain == CUPTI_CB_DOMAIN_RESOURCE && id == CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED) f.node_cloned = (int)enable;
  return failing(__func__);
}

EXPORT CUptiResult cuptiGetCallbackName(CUpti_CallbackDomain domain, uint32_t id, const char **name) {
  if (domain == CUPTI_CB_DOMAIN_RUNTIME_API && id == 211) *name = "cudaLaunchKernel_v7000";
  else if (domain == CUPTI_CB_DOMAIN_RUNTIME_API && id == 311) *name = "cudaGraphLaunch_v10000";
  else if (domain == CUPTI_CB_DOMAIN_RUNTIME_API && id == 502) *name = "__cudaPushCallConfiguration_v13000";
  else if (domain == CUPTI_CB_DOMAIN_DRIVER_API && id == 307) *name = "cuLaunchKernel";
  else return CUPTI_ERROR_INVALID_PARAMETER;
  return CUPTI_SUCCESS;
}

EXPORT CUptiResult cuptiGetGraphNodeId(CUgraphNode node, uint64_t *id) {
  *id = (uint64_t)node;
  return failing(__func__);
}

EXPORT CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc requested, CUpti_BuffersCallbackCompleteFunc completed) {
  f.request = requested;
  f.complete = completed;
  return failing(__func__);
}

EXPORT CUptiResult cuptiActivityEnable(CUpti_ActivityKind kind) {
  char with[64];
  snprintf(with, sizeof(with), "%s %d", __func__, kind);
  CUptiResult r = failing(with);
  if (!r && size_of(kind) == 0) r = CUPTI_ERROR_INVALID_KIND;
  if (!r) fake.seen.enabled += !f.enabled[kind], f.enabled[kind] = 1;
  if (kind == CUPTI_ACTIVITY_KIND_RUNTIME || kind == CUPTI_ACTIVITY_KIND_DRIVER)
    memset(f.call_off[kind == CUPTI_ACTIVITY_KIND_DRIVER], 0, sizeof(f.call_off[0]));
  return r;
}

EXPORT CUptiResult cuptiActivityDisable(CUpti_ActivityKind kind) {
  if (!f.enabled[kind]) return CUPTI_ERROR_INVALID_KIND;
  f.enabled[kind] = 0;
  fake.seen.enabled--;
  return CUPTI_SUCCESS;
}

static CUptiResult switch_call(int driver, CUpti_CallbackId id, uint8_t enable) {
  if (id >= sizeof(f.call_off[0])) return CUPTI_ERROR_INVALID_PARAMETER;
  f.call_on[driver][id] = enable;
  f.call_off[driver][id] = !enable;
  return CUPTI_SUCCESS;
}
EXPORT CUptiResult cuptiActivityEnableRuntimeApi(CUpti_CallbackId id, uint8_t enable) { return switch_call(0, id, enable); }
EXPORT CUptiResult cuptiActivityEnableDriverApi(CUpti_CallbackId id, uint8_t enable) { return switch_call(1, id, enable); }

EXPORT CUptiResult cuptiActivityFlushAll(uint32_t flag) {
  pthread_mutex_lock(&f.mutex);
  if (flag == CUPTI_ACTIVITY_FLAG_FLUSH_FORCED || !f.incomplete) complete();
  pthread_mutex_unlock(&f.mutex);
  return failing(__func__);
}

EXPORT CUptiResult cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid, CUpti_Activity **record) {
  uint8_t *next = *record ? (uint8_t *)*record + size_of((*record)->kind) : buffer;
  if (next + sizeof(CUpti_Activity) > buffer + valid) return CUPTI_ERROR_MAX_LIMIT_REACHED;
  size_t size = size_of(((CUpti_Activity *)next)->kind);
  if (!size || next + size > buffer + valid) return CUPTI_ERROR_INVALID_KIND;
  *record = (CUpti_Activity *)next;
  return CUPTI_SUCCESS;
}

EXPORT CUptiResult cuptiActivityGetNumDroppedRecords(CUcontext context, uint32_t stream, size_t *dropped) {
  (void)context, (void)stream;
  *dropped = f.dropped;
  f.dropped = 0;
  return CUPTI_SUCCESS;
}

EXPORT CUptiResult cuptiActivitySetAttribute(CUpti_ActivityAttribute attribute, size_t *size, void *value) {
  size_t want = attribute == CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER ? 1 : sizeof(size_t);
  if (*size != want) return CUPTI_ERROR_INVALID_PARAMETER;
  if (attribute == CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER) f.zeroed = *(uint8_t *)value;
  return failing(__func__);
}

EXPORT CUptiResult cuptiActivityPushExternalCorrelationId(CUpti_ExternalCorrelationKind kind, uint64_t id) {
  if (kind != CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0 || depth == 64) return CUPTI_ERROR_INVALID_PARAMETER;
  stack[depth++] = id;
  return CUPTI_SUCCESS;
}

EXPORT CUptiResult cuptiActivityPopExternalCorrelationId(CUpti_ExternalCorrelationKind kind, uint64_t *last) {
  if (kind != CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0) return CUPTI_ERROR_INVALID_PARAMETER;
  if (!depth) return CUPTI_ERROR_QUEUE_EMPTY;
  depth--;
  if (last) *last = stack[depth];
  return CUPTI_SUCCESS;
}

EXPORT CUptiResult cuptiSetThreadIdType(CUpti_ActivityThreadIdType type) {
  fake.seen.system_threads = type == CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM;
  return failing(__func__);
}

#if CUPTI_API_VERSION >= 130000
// Only tells who the subscriber is.
EXPORT CUptiResult cuptiSubscribe_v2(CUpti_SubscriberHandle *subscriber, CUpti_CallbackFunc callback, void *user, CUpti_SubscriberParams *params) {
  (void)subscriber, (void)callback, (void)user;
  if (params->structSize != CUpti_SubscriberParams_STRUCT_SIZE) return CUPTI_ERROR_INVALID_PARAMETER;
  snprintf(params->oldSubscriberName, params->oldSubscriberSize, "CUPTI for a profiler");
  return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
}
#endif

EXPORT CUptiResult cuptiActivityEnableAllSyncRecords(uint8_t enable);  // older headers lack it
CUptiResult cuptiActivityEnableAllSyncRecords(uint8_t enable) {
  fake.seen.all_syncs = enable;
  return CUPTI_SUCCESS;
}

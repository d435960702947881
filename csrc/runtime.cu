// Everything of the library that is not an operation: errors, devices, memory,
// streams, events, copies, graphs, modules.

#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <dlfcn.h>
#include <mutex>
#include <new>
#include <nvrtc.h>
#include <string>

#include "common.cuh"

namespace {
thread_local char message[512];
thread_local int current_device = -1;

// Makes a device the calling thread's current one.
int use(int device) {
  if (device == current_device) return GS_OK;
  const int status = gs_check(cudaSetDevice(device), "choosing the device");
  if (status == GS_OK) current_device = device;
  return status;
}
}  // namespace

#define GS_TRY(call)                            \
  do {                                          \
    const int gs_status_ = (call);              \
    if (gs_status_ != GS_OK) return gs_status_; \
  } while (0)

int gs_fail(int status, const char *format, ...) {
  va_list args;
  va_start(args, format);
  vsnprintf(message, sizeof message, format, args);
  va_end(args);
  return status;
}

int gs_check(cudaError_t e, const char *what) {
  if (e == cudaSuccess) return GS_OK;
  cudaGetLastError();  // an error that does not stay is not met again by the next call
  return gs_fail(int(e), "%s: %s (%s)", what, cudaGetErrorString(e), cudaGetErrorName(e));
}

extern "C" {

uint32_t gs_abi_version(void) { return GS_ABI_VERSION; }
const char *gs_error(void) { return message; }

int gs_versions(int *driver, int *runtime) {
  *driver = 0;
  cudaDriverGetVersion(driver);
  return gs_check(cudaRuntimeGetVersion(runtime), "asking for the CUDA version");
}

const char *gs_variant(int op, int n) {
  const char *const *const tables[GS_OPS] = {gs_embed_variants,     gs_layernorm_variants, gs_linear_variants, gs_attention_variants,
                                             gs_activation_variants, gs_add_variants,       gs_sample_variants};
  if (op < 0 || op >= GS_OPS || n < 0) return nullptr;
  for (int i = 0; i < n; i++)
    if (!tables[op][i]) return nullptr;
  return tables[op][n];
}

// ---------------------------------------------------------------- device

int gs_device_count(int *count) {
  *count = 0;
  return gs_check(cudaGetDeviceCount(count), "counting devices");
}

int gs_device_get(int device, gs_device_info *info) {
  GS_CHECK_SIZE(info);
  cudaDeviceProp p;
  GS_TRY(gs_check(cudaGetDeviceProperties(&p, device), "asking for the device's properties"));
  info->major = p.major, info->minor = p.minor;
  info->processors = p.multiProcessorCount;
  info->threads_per_processor = p.maxThreadsPerMultiProcessor;
  info->blocks_per_processor = p.maxBlocksPerMultiProcessor;
  info->registers_per_processor = p.regsPerMultiprocessor;
  info->shared_per_processor = int32_t(p.sharedMemPerMultiprocessor);
  info->shared_per_block = int32_t(p.sharedMemPerBlockOptin);
  GS_TRY(gs_check(cudaDeviceGetAttribute(&info->clock_khz, cudaDevAttrClockRate, device), "asking for the clock"));
  GS_TRY(gs_check(cudaDeviceGetAttribute(&info->memory_clock_khz, cudaDevAttrMemoryClockRate, device), "asking for the memory clock"));
  info->memory_bus_bits = p.memoryBusWidth;
  info->l2_bytes = p.l2CacheSize;
  info->pci_domain = p.pciDomainID, info->pci_bus = p.pciBusID, info->pci_device = p.pciDeviceID;
  info->memory_bytes = p.totalGlobalMem;
  snprintf(info->name, sizeof info->name, "%s", p.name);
  return GS_OK;
}

int gs_device_memory(int device, uint64_t *free_bytes, uint64_t *total_bytes) {
  GS_TRY(use(device));
  size_t free_now, total;
  GS_TRY(gs_check(cudaMemGetInfo(&free_now, &total), "asking for free memory"));
  *free_bytes = free_now, *total_bytes = total;
  return GS_OK;
}

// ---------------------------------------------------------------- memory

int gs_alloc(int device, uint64_t bytes, gs_ptr *out) {
  GS_TRY(use(device));
  void *p = nullptr;
  const cudaError_t e = cudaMalloc(&p, bytes);
  *out = gs_ptr(p);
  if (e == cudaSuccess) return GS_OK;
  cudaGetLastError();
  return gs_fail(int(e), "allocating %.1f MiB on device %d: %s", bytes / 1048576.0, device, cudaGetErrorString(e));
}

int gs_free(int device, gs_ptr p) {
  GS_TRY(use(device));
  return gs_check(cudaFree((void *)p), "freeing device memory");
}

int gs_alloc_host(int device, uint64_t bytes, void **out, gs_ptr *device_address) {
  GS_TRY(use(device));
  const cudaError_t e = cudaHostAlloc(out, bytes, cudaHostAllocMapped | cudaHostAllocPortable);
  if (e != cudaSuccess) {
    cudaGetLastError();
    return gs_fail(int(e), "allocating %.1f MiB of pinned host memory: %s", bytes / 1048576.0, cudaGetErrorString(e));
  }
  void *p = nullptr;
  const int status = gs_check(cudaHostGetDevicePointer(&p, *out, 0), "mapping host memory");
  if (status != GS_OK) cudaFreeHost(*out);
  *device_address = gs_ptr(p);
  return status;
}

int gs_free_host(int device, void *p) {
  GS_TRY(use(device));
  return gs_check(cudaFreeHost(p), "freeing pinned host memory");
}

// ---------------------------------------------------------------- stream, event

struct gs_event {
  int device;
  cudaEvent_t event;
};

struct gs_graph {
  int device;
  cudaGraph_t graph;
  cudaGraphExec_t instance;
};

int gs_stream_create(int device, gs_stream **out) {
  GS_TRY(use(device));
  gs_stream *s = new (std::nothrow) gs_stream();
  if (!s) return gs_fail(GS_NO_MEMORY, "no host memory for a stream");
  s->device = device;
  int status = gs_check(cudaDeviceGetAttribute(&s->major, cudaDevAttrComputeCapabilityMajor, device), "asking for the compute capability");
  if (status == GS_OK) status = gs_check(cudaDeviceGetAttribute(&s->minor, cudaDevAttrComputeCapabilityMinor, device), "asking for the compute capability");
  if (status == GS_OK) status = gs_check(cudaDeviceGetAttribute(&s->processors, cudaDevAttrMultiProcessorCount, device), "counting SMs");
  if (status == GS_OK)
    status = gs_check(cudaDeviceGetAttribute(&s->shared_per_block, cudaDevAttrMaxSharedMemoryPerBlockOptin, device), "asking for shared memory");
  if (status == GS_OK) status = gs_check(cudaStreamCreateWithFlags(&s->stream, cudaStreamNonBlocking), "making a stream");
  if (status != GS_OK) {
    delete s;
    return status;
  }
  s->overlap = s->major >= 9;
  *out = s;
  return GS_OK;
}

int gs_stream_destroy(gs_stream *s) {
  GS_TRY(use(s->device));
  gs_blas_release(s);
  const int status = gs_check(cudaStreamDestroy(s->stream), "closing a stream");
  delete s;
  return status;
}

int gs_stream_synchronize(gs_stream *s) {
  GS_TRY(use(s->device));
  return gs_check(cudaStreamSynchronize(s->stream), "waiting for a stream");
}

int gs_stream_query(gs_stream *s, int *done) {
  GS_TRY(use(s->device));
  const cudaError_t e = cudaStreamQuery(s->stream);
  *done = e == cudaSuccess;
  return e == cudaErrorNotReady ? GS_OK : gs_check(e, "asking a stream");
}

int gs_stream_overlap(gs_stream *s, int on) {
  s->overlap = on && s->major >= 9;
  return GS_OK;
}

int gs_stream_handle(gs_stream *s, void **out) {
  *out = s->stream;
  return GS_OK;
}

int gs_event_create(int device, int timing, gs_event **out) {
  GS_TRY(use(device));
  cudaEvent_t e;
  GS_TRY(gs_check(cudaEventCreateWithFlags(&e, timing ? cudaEventDefault : cudaEventDisableTiming), "making an event"));
  *out = new (std::nothrow) gs_event{device, e};
  if (*out) return GS_OK;
  cudaEventDestroy(e);
  return gs_fail(GS_NO_MEMORY, "no host memory for an event");
}

int gs_event_destroy(gs_event *e) {
  GS_TRY(use(e->device));
  const int status = gs_check(cudaEventDestroy(e->event), "closing an event");
  delete e;
  return status;
}

int gs_event_record(gs_event *e, gs_stream *s) {
  GS_TRY(use(s->device));
  return gs_check(cudaEventRecord(e->event, s->stream), "recording an event");
}

int gs_event_synchronize(gs_event *e) {
  GS_TRY(use(e->device));
  return gs_check(cudaEventSynchronize(e->event), "waiting for an event");
}

int gs_event_query(gs_event *e, int *done) {
  GS_TRY(use(e->device));
  const cudaError_t status = cudaEventQuery(e->event);
  *done = status == cudaSuccess;
  return status == cudaErrorNotReady ? GS_OK : gs_check(status, "asking an event");
}

int gs_event_elapsed(gs_event *start, gs_event *end, float *milliseconds) {
  GS_TRY(use(end->device));
  return gs_check(cudaEventElapsedTime(milliseconds, start->event, end->event), "the time between events");
}

int gs_stream_wait(gs_stream *s, gs_event *e) {
  GS_TRY(use(s->device));
  return gs_check(cudaStreamWaitEvent(s->stream, e->event, 0), "waiting for an event on a stream");
}

// ---------------------------------------------------------------- copy

static cudaMemcpyKind kind_of(int direction) {
  return direction == GS_TO_DEVICE ? cudaMemcpyHostToDevice : direction == GS_TO_HOST ? cudaMemcpyDeviceToHost : cudaMemcpyDeviceToDevice;
}

int gs_copy(gs_stream *s, uint64_t dst, uint64_t src, uint64_t bytes, int direction) {
  GS_TRY(use(s->device));
  return gs_check(cudaMemcpyAsync((void *)dst, (const void *)src, bytes, kind_of(direction), s->stream), "copying");
}

int gs_copy_now(int device, uint64_t dst, uint64_t src, uint64_t bytes, int direction) {
  GS_TRY(use(device));
  return gs_check(cudaMemcpy((void *)dst, (const void *)src, bytes, kind_of(direction)), "copying");
}

int gs_set(gs_stream *s, gs_ptr p, int byte, uint64_t bytes) {
  GS_TRY(use(s->device));
  return gs_check(cudaMemsetAsync((void *)p, byte, bytes, s->stream), "filling memory");
}

// ---------------------------------------------------------------- graph

int gs_capture_begin(gs_stream *s) {
  GS_TRY(use(s->device));
  return gs_check(cudaStreamBeginCapture(s->stream, cudaStreamCaptureModeThreadLocal), "beginning to record a graph");
}

int gs_capture_end(gs_stream *s, gs_graph **out) {
  GS_TRY(use(s->device));
  cudaGraph_t graph = nullptr;
  GS_TRY(gs_check(cudaStreamEndCapture(s->stream, &graph), "recording a graph"));
  cudaGraphExec_t instance = nullptr;
  int status = gs_check(cudaGraphInstantiate(&instance, graph, 0), "instantiating a graph");
  if (status == GS_OK) status = gs_check(cudaGraphUpload(instance, s->stream), "uploading a graph");
  if (status == GS_OK) {
    *out = new (std::nothrow) gs_graph{s->device, graph, instance};
    if (*out) return GS_OK;
    status = gs_fail(GS_NO_MEMORY, "no host memory for a graph");
  }
  if (instance) cudaGraphExecDestroy(instance);
  cudaGraphDestroy(graph);
  return status;
}

int gs_capture_abandon(gs_stream *s) {
  GS_TRY(use(s->device));
  cudaGraph_t graph = nullptr;
  cudaStreamEndCapture(s->stream, &graph);  // it may be invalid already, which is why it is abandoned
  cudaGetLastError();
  if (graph) cudaGraphDestroy(graph);
  return GS_OK;
}

int gs_graph_launch(gs_graph *g, gs_stream *s) {
  GS_TRY(use(s->device));
  return gs_check(cudaGraphLaunch(g->instance, s->stream), "launching a graph");
}

int gs_graph_nodes(gs_graph *g, uint64_t *count) {
  size_t n = 0;
  GS_TRY(gs_check(cudaGraphGetNodes(g->graph, nullptr, &n), "counting a graph's nodes"));
  *count = n;
  return GS_OK;
}

int gs_graph_destroy(gs_graph *g) {
  GS_TRY(use(g->device));
  const int status = gs_check(cudaGraphExecDestroy(g->instance), "closing a graph");
  cudaGraphDestroy(g->graph);
  delete g;
  return status;
}

int gs_profiler(int on) { return gs_check(on ? cudaProfilerStart() : cudaProfilerStop(), on ? "starting the profiler" : "stopping the profiler"); }

}  // extern "C"

// Everything but operations: the library itself, devices, memory, streams, events, copies, graphs, modules compiled at
// run time, the profiler's switch. Each is a thin layer over the CUDA runtime that converts failures to a status and a
// message. No call before gs_device_get creates a context.

#include <cuda.h>
#include <dlfcn.h>
#include <glob.h>
#include <nvrtc.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <mutex>
#include <new>

#include "common.cuh"

// ---------------------------------------------------------------- errors

static thread_local char error_text[1024];

int gs_fail(int status, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(error_text, sizeof error_text, format, arguments);
  va_end(arguments);
  return status;
}

int gs_check(cudaError_t e, const char *what) {
  if (e == cudaSuccess) return GS_OK;
  cudaGetLastError();  // clears the error, which would else be returned by a later call too
  return gs_fail((int)e, "%s: %s (%s)", what, cudaGetErrorString(e), cudaGetErrorName(e));
}

extern "C" const char *gs_error(void) { return error_text; }

#define TRY(call)                                    \
  do {                                               \
    if (int status_ = (call)) return status_;        \
  } while (0)

// The calling thread's current device, to save calls of cudaSetDevice. Nobody else in the process sets the device on
// threads that call this library.
static thread_local int current_device = -1;

int gs_use(int device) {
  if (device == current_device) return GS_OK;
  TRY(gs_check(cudaSetDevice(device), "cudaSetDevice"));
  current_device = device;
  return GS_OK;
}

// ---------------------------------------------------------------- library

extern "C" uint32_t gs_abi_version(void) { return GS_ABI_VERSION; }

extern "C" int gs_versions(int *driver, int *runtime) {
  *driver = 0;
  *runtime = CUDART_VERSION;
  cudaError_t e = cudaDriverGetVersion(driver);
  if (e == cudaErrorInsufficientDriver) {  // the driver is so old that the runtime does not return its version
    cudaGetLastError();
    return GS_OK;
  }
  return gs_check(e, "cudaDriverGetVersion");
}

extern "C" const char *gs_variant(int op, int n) {
  const char *const *names = nullptr;
  switch (op) {
    case GS_OP_EMBED: names = gs_embed_variants; break;
    case GS_OP_LAYERNORM: names = gs_layernorm_variants; break;
    case GS_OP_LINEAR: names = gs_linear_variants; break;
    case GS_OP_ATTENTION: names = gs_attention_variants; break;
    case GS_OP_ACTIVATION: names = gs_activation_variants; break;
    case GS_OP_ADD: names = gs_add_variants; break;
    case GS_OP_SAMPLE: names = gs_sample_variants; break;
  }
  if (!names || n < 0) return nullptr;
  for (int i = 0; i < n; i++)
    if (!names[i]) return nullptr;
  return names[n];
}

// ---------------------------------------------------------------- device

extern "C" int gs_device_count(int *count) {
  *count = 0;
  cudaError_t e = cudaGetDeviceCount(count);
  if (e == cudaErrorNoDevice) {
    cudaGetLastError();
    *count = 0;
    return GS_OK;
  }
  return gs_check(e, "cudaGetDeviceCount");
}

extern "C" int gs_device_get(int device, gs_device_info *info) {
  GS_CHECK_SIZE(info);
  cudaDeviceProp p;
  TRY(gs_check(cudaGetDeviceProperties(&p, device), "cudaGetDeviceProperties"));
  int clock = 0, memory_clock = 0;  // no longer among the properties in CUDA 13
  TRY(gs_check(cudaDeviceGetAttribute(&clock, cudaDevAttrClockRate, device), "cudaDeviceGetAttribute"));
  TRY(gs_check(cudaDeviceGetAttribute(&memory_clock, cudaDevAttrMemoryClockRate, device), "cudaDeviceGetAttribute"));
  info->major = p.major, info->minor = p.minor;
  info->processors = p.multiProcessorCount, info->threads_per_processor = p.maxThreadsPerMultiProcessor;
  info->blocks_per_processor = p.maxBlocksPerMultiProcessor, info->registers_per_processor = p.regsPerMultiprocessor;
  info->shared_per_processor = (int32_t)p.sharedMemPerMultiprocessor;
  info->shared_per_block = (int32_t)p.sharedMemPerBlockOptin;
  info->clock_khz = clock, info->memory_clock_khz = memory_clock, info->memory_bus_bits = p.memoryBusWidth;
  info->pci_domain = p.pciDomainID, info->pci_bus = p.pciBusID, info->pci_device = p.pciDeviceID;
  info->l2_bytes = p.l2CacheSize, info->memory_bytes = p.totalGlobalMem;
  snprintf(info->name, sizeof info->name, "%.*s", (int)sizeof info->name - 1, p.name);
  return GS_OK;
}

extern "C" int gs_device_memory(int device, uint64_t *free_bytes, uint64_t *total_bytes) {
  TRY(gs_use(device));
  size_t f = 0, t = 0;
  TRY(gs_check(cudaMemGetInfo(&f, &t), "cudaMemGetInfo"));
  *free_bytes = f, *total_bytes = t;
  return GS_OK;
}

// ---------------------------------------------------------------- memory

extern "C" int gs_alloc(int device, uint64_t bytes, gs_ptr *out) {
  TRY(gs_use(device));
  void *p = nullptr;
  TRY(gs_check(cudaMalloc(&p, bytes), "cudaMalloc"));
  *out = (gs_ptr)p;
  return GS_OK;
}

extern "C" int gs_free(int device, gs_ptr p) {
  TRY(gs_use(device));
  return gs_check(cudaFree((void *)p), "cudaFree");
}

extern "C" int gs_alloc_host(int device, uint64_t bytes, void **out, gs_ptr *device_address) {
  TRY(gs_use(device));
  void *host = nullptr, *mapped = nullptr;
  TRY(gs_check(cudaHostAlloc(&host, bytes, cudaHostAllocMapped | cudaHostAllocPortable), "cudaHostAlloc"));
  if (int status = gs_check(cudaHostGetDevicePointer(&mapped, host, 0), "cudaHostGetDevicePointer")) {
    cudaFreeHost(host);
    return status;
  }
  *out = host, *device_address = (gs_ptr)mapped;
  return GS_OK;
}

extern "C" int gs_free_host(int device, void *p) {
  TRY(gs_use(device));
  return gs_check(cudaFreeHost(p), "cudaFreeHost");
}

// ---------------------------------------------------------------- stream

// Lowers a GPU's compute capability to that of the library's code for it: the driver translates code for older GPUs.
static void lower_to_code(int *major, int *minor) {
  int code = 0;
  for (int built : {__CUDA_ARCH_LIST__})
    if (built <= 100 * *major + 10 * *minor && built > code) code = built;
  *major = code / 100, *minor = code / 10 % 10;
}

extern "C" int gs_stream_create(int device, gs_stream **out) {
  TRY(gs_use(device));
  gs_stream *s = new (std::nothrow) gs_stream();
  if (!s) return gs_fail(GS_NO_MEMORY, "no host memory for a stream");
  s->device = device;
  const struct {
    int *value;
    cudaDeviceAttr of;
  } attributes[] = {{&s->major, cudaDevAttrComputeCapabilityMajor},
                    {&s->minor, cudaDevAttrComputeCapabilityMinor},
                    {&s->processors, cudaDevAttrMultiProcessorCount},
                    {&s->shared_per_block, cudaDevAttrMaxSharedMemoryPerBlockOptin},
                    {&s->l2_bytes, cudaDevAttrL2CacheSize}};
  int status = GS_OK;
  for (auto &a : attributes)
    if (!status) status = gs_check(cudaDeviceGetAttribute(a.value, a.of, device), "cudaDeviceGetAttribute");
  if (!status)
    status = gs_check(cudaStreamCreateWithFlags(&s->stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  if (status) {
    delete s;
    return status;
  }
  lower_to_code(&s->major, &s->minor);
  s->overlap = s->major >= 9;
  *out = s;
  return GS_OK;
}

extern "C" int gs_stream_destroy(gs_stream *s) {
  TRY(gs_use(s->device));
  // Kernels that still run use what is freed here.
  int status = gs_check(cudaStreamSynchronize(s->stream), "cudaStreamSynchronize");
  gs_blas_release(s);
  delete[] s->stamps.taken;
  int destroyed = gs_check(cudaStreamDestroy(s->stream), "cudaStreamDestroy");
  delete s;
  return status ? status : destroyed;
}

extern "C" int gs_stream_synchronize(gs_stream *s) {
  TRY(gs_use(s->device));
  return gs_check(cudaStreamSynchronize(s->stream), "cudaStreamSynchronize");
}

extern "C" int gs_stream_query(gs_stream *s, int *done) {
  TRY(gs_use(s->device));
  const cudaError_t e = cudaStreamQuery(s->stream);
  *done = e == cudaSuccess;
  if (e != cudaErrorNotReady) return gs_check(e, "cudaStreamQuery");
  cudaGetLastError();
  return GS_OK;
}

extern "C" int gs_stream_overlap(gs_stream *s, int on) {
  s->overlap = on && s->major >= 9;
  return GS_OK;
}

// ---------------------------------------------------------------- event

struct gs_event {
  int device;
  cudaEvent_t event;
};

extern "C" int gs_event_create(int device, gs_event **out) {
  TRY(gs_use(device));
  gs_event *e = new (std::nothrow) gs_event();
  if (!e) return gs_fail(GS_NO_MEMORY, "no host memory for an event");
  e->device = device;
  int status = gs_check(cudaEventCreate(&e->event), "cudaEventCreate");
  if (status)
    delete e;
  else
    *out = e;
  return status;
}

extern "C" int gs_event_destroy(gs_event *e) {
  TRY(gs_use(e->device));
  int status = gs_check(cudaEventDestroy(e->event), "cudaEventDestroy");
  delete e;
  return status;
}

extern "C" int gs_event_record(gs_event *e, gs_stream *s) {
  TRY(gs_use(s->device));
  return gs_check(cudaEventRecord(e->event, s->stream), "cudaEventRecord");
}

extern "C" int gs_event_synchronize(gs_event *e) {
  TRY(gs_use(e->device));
  return gs_check(cudaEventSynchronize(e->event), "cudaEventSynchronize");
}

extern "C" int gs_event_elapsed(gs_event *start, gs_event *end, float *milliseconds) {
  TRY(gs_use(end->device));
  return gs_check(cudaEventElapsedTime(milliseconds, start->event, end->event), "cudaEventElapsedTime");
}

extern "C" int gs_stream_wait(gs_stream *s, gs_event *e) {
  TRY(gs_use(s->device));
  return gs_check(cudaStreamWaitEvent(s->stream, e->event, 0), "cudaStreamWaitEvent");
}

// ---------------------------------------------------------------- copy

static cudaMemcpyKind kind(int direction) {
  switch (direction) {
    case GS_TO_DEVICE: return cudaMemcpyHostToDevice;
    case GS_TO_HOST: return cudaMemcpyDeviceToHost;
    default: return cudaMemcpyDeviceToDevice;
  }
}

extern "C" int gs_copy(gs_stream *s, uint64_t dst, uint64_t src, uint64_t bytes, int direction) {
  TRY(gs_use(s->device));
  return gs_check(cudaMemcpyAsync((void *)dst, (const void *)src, bytes, kind(direction), s->stream),
                  "cudaMemcpyAsync");
}

extern "C" int gs_copy_now(int device, uint64_t dst, uint64_t src, uint64_t bytes, int direction) {
  TRY(gs_use(device));
  TRY(gs_check(cudaMemcpy((void *)dst, (const void *)src, bytes, kind(direction)), "cudaMemcpy"));
  // A copy from pageable memory may return before its last part has arrived, and non-blocking streams would not wait
  // for it.
  if (direction == GS_TO_HOST) return GS_OK;
  return gs_check(cudaStreamSynchronize(cudaStreamLegacy), "cudaStreamSynchronize");
}

extern "C" int gs_set(gs_stream *s, gs_ptr p, int byte, uint64_t bytes) {
  TRY(gs_use(s->device));
  return gs_check(cudaMemsetAsync((void *)p, byte, bytes, s->stream), "cudaMemsetAsync");
}

// ---------------------------------------------------------------- graph

struct gs_graph {
  int device;
  cudaGraph_t graph;      // as captured, with the nodes that profilers refer to
  cudaGraphExec_t ready;  // instantiated
};

extern "C" int gs_capture_begin(gs_stream *s) {
  TRY(gs_use(s->device));
  return gs_check(cudaStreamBeginCapture(s->stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
}

extern "C" int gs_capture_end(gs_stream *s, gs_graph **out) {
  TRY(gs_use(s->device));
  cudaGraph_t graph = nullptr;
  TRY(gs_check(cudaStreamEndCapture(s->stream, &graph), "cudaStreamEndCapture"));
  cudaGraphExec_t ready = nullptr;
  int status = gs_check(cudaGraphInstantiate(&ready, graph, 0), "cudaGraphInstantiate");
  if (!status) status = gs_check(cudaGraphUpload(ready, s->stream), "cudaGraphUpload");
  gs_graph *g = status ? nullptr : new (std::nothrow) gs_graph{s->device, graph, ready};
  if (!status && !g) status = gs_fail(GS_NO_MEMORY, "no host memory for a graph");
  if (status) {
    if (ready) cudaGraphExecDestroy(ready);
    cudaGraphDestroy(graph);
  }
  *out = g;
  return status;
}

extern "C" int gs_capture_abandon(gs_stream *s) {
  TRY(gs_use(s->device));
  cudaGraph_t graph = nullptr;
  cudaError_t e = cudaStreamEndCapture(s->stream, &graph);
  if (graph) cudaGraphDestroy(graph);
  if (e == cudaErrorStreamCaptureInvalidated) {  // no failure, as the graph is discarded
    cudaGetLastError();
    return GS_OK;
  }
  return gs_check(e, "cudaStreamEndCapture");
}

extern "C" int gs_graph_launch(gs_graph *g, gs_stream *s) {
  TRY(gs_use(s->device));
  return gs_check(cudaGraphLaunch(g->ready, s->stream), "cudaGraphLaunch");
}

extern "C" int gs_graph_destroy(gs_graph *g) {
  TRY(gs_use(g->device));
  int status = gs_check(cudaGraphExecDestroy(g->ready), "cudaGraphExecDestroy");
  int destroyed = gs_check(cudaGraphDestroy(g->graph), "cudaGraphDestroy");
  delete g;
  return status ? status : destroyed;
}

// ---------------------------------------------------------------- module

// NVRTC is opened by path, and the driver's functions come from the runtime, so that this library can be built and
// loaded without either.
#define NVRTC(F)                                                                              \
  F(nvrtcGetErrorString) F(nvrtcCreateProgram) F(nvrtcDestroyProgram)                         \
  F(nvrtcCompileProgram) F(nvrtcGetProgramLogSize) F(nvrtcGetProgramLog) F(nvrtcGetCUBINSize) \
  F(nvrtcGetCUBIN)
#define DRIVER(F)                                                                                     \
  F(cuModuleLoadData) F(cuModuleUnload) F(cuModuleGetFunction) F(cuLaunchKernel) F(cuFuncGetAttribute) \
  F(cuFuncSetAttribute) F(cuOccupancyMaxActiveBlocksPerMultiprocessor) F(cuGetErrorString)
#define MEMBER(f) decltype(&::f) f;
static struct {
  void *handle;
  NVRTC(MEMBER)
} nvrtc;
static struct { DRIVER(MEMBER) } driver;
#undef MEMBER

static std::mutex module_mutex;  // held while the two tables are filled
static bool driver_ready;

int gs_driver_function(const char *name, void **out) {
  cudaDriverEntryPointQueryResult found;
#if CUDART_VERSION >= 12050
  cudaError_t e = cudaGetDriverEntryPointByVersion(name, out, 12000, cudaEnableDefault, &found);
#else
  cudaError_t e = cudaGetDriverEntryPoint(name, out, cudaEnableDefault, &found);
#endif
  TRY(gs_check(e, name));
  return found == cudaDriverEntryPointSuccess ? (int)GS_OK : gs_fail(GS_UNSUPPORTED, "the driver lacks %s", name);
}

static int open_driver(void) {
  std::lock_guard<std::mutex> hold(module_mutex);
  if (driver_ready) return GS_OK;
#define FIND(f) TRY(gs_driver_function(#f, (void **)&driver.f));
  DRIVER(FIND)
#undef FIND
  driver_ready = true;
  return GS_OK;
}

static int check_driver(CUresult r, const char *what) {
  if (r == CUDA_SUCCESS) return GS_OK;
  const char *message = nullptr;
  driver.cuGetErrorString(r, &message);
  return gs_fail((int)r, "%s: %s", what, message ? message : "unknown error");
}

static int check_nvrtc(nvrtcResult r, const char *what) {
  if (r == NVRTC_SUCCESS) return GS_OK;
  return gs_fail(GS_NVRTC + (int)r, "%s: %s", what, nvrtc.nvrtcGetErrorString(r));
}

extern "C" int gs_nvrtc_open(const char *path) {
  std::lock_guard<std::mutex> hold(module_mutex);
  if (!nvrtc.handle) {
    // NVRTC opens its builtins by name when it compiles. They are loaded here, so that it finds them even if their
    // folder, NVRTC's own, is not on the loader's path.
    if (const char *slash = strrchr(path, '/')) {
      char pattern[4096];
      snprintf(pattern, sizeof pattern, "%.*s/libnvrtc-builtins.so.*", (int)(slash - path), path);
      glob_t found;
      if (glob(pattern, 0, nullptr, &found) == 0) {
        for (size_t i = 0; i < found.gl_pathc; i++) dlopen(found.gl_pathv[i], RTLD_LAZY | RTLD_GLOBAL);
        globfree(&found);
      }
    }
    void *handle = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
    if (!handle) return gs_fail(GS_NVRTC, "%s", dlerror());
    const char *missing = nullptr;
#define FIND(f) \
  if (!(nvrtc.f = (decltype(nvrtc.f))dlsym(handle, #f))) missing = #f;
    NVRTC(FIND)
#undef FIND
    if (missing) {
      dlclose(handle);
      return gs_fail(GS_NVRTC, "%s lacks %s", path, missing);
    }
    nvrtc.handle = handle;
  }
  return GS_OK;
}

struct gs_module {
  int device;
  CUmodule module;
};

extern "C" int gs_module_compile(int device, const char *source, const char *name, char *log, uint64_t log_bytes,
                                 gs_module **out) {
  if (!nvrtc.handle) return gs_fail(GS_NVRTC, "NVRTC is not open");
  TRY(gs_use(device));
  TRY(gs_check(cudaFree(nullptr), "cudaFree"));  // creates the context, which the driver's functions need
  TRY(open_driver());
  int major = 0, minor = 0;
  TRY(gs_check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "cudaDeviceGetAttribute"));
  TRY(gs_check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device), "cudaDeviceGetAttribute"));
  char architecture[64];
  snprintf(architecture, sizeof architecture, "--gpu-architecture=sm_%d%d", major, minor);
  const char *options[] = {architecture};
  nvrtcProgram program = nullptr;
  int status = check_nvrtc(nvrtc.nvrtcCreateProgram(&program, source, name, 0, nullptr, nullptr), "nvrtcCreateProgram");
  if (!status) {
    nvrtcResult compiled = nvrtc.nvrtcCompileProgram(program, 1, options);
    size_t size = 0;
    if (compiled != NVRTC_SUCCESS && log && log_bytes > 0 &&
        nvrtc.nvrtcGetProgramLogSize(program, &size) == NVRTC_SUCCESS) {
      char *text = (char *)malloc(size + 1);
      if (text && nvrtc.nvrtcGetProgramLog(program, text) == NVRTC_SUCCESS)
        snprintf(log, log_bytes, "%.*s", (int)size, text);
      free(text);
    }
    status = check_nvrtc(compiled, "nvrtcCompileProgram");
  }
  size_t size = 0;
  if (!status) status = check_nvrtc(nvrtc.nvrtcGetCUBINSize(program, &size), "nvrtcGetCUBINSize");
  char *cubin = nullptr;
  if (!status && !(cubin = (char *)malloc(size)))
    status = gs_fail(GS_NO_MEMORY, "no host memory for a module of %zu bytes", size);
  if (!status) status = check_nvrtc(nvrtc.nvrtcGetCUBIN(program, cubin), "nvrtcGetCUBIN");
  gs_module *m = nullptr;
  if (!status && !(m = new (std::nothrow) gs_module())) status = gs_fail(GS_NO_MEMORY, "no host memory for a module");
  if (!status) status = check_driver(driver.cuModuleLoadData(&m->module, cubin), "cuModuleLoadData");
  free(cubin);
  if (program) nvrtc.nvrtcDestroyProgram(&program);
  if (status) {
    delete m;
    return status;
  }
  m->device = device;
  *out = m;
  return GS_OK;
}

extern "C" int gs_module_destroy(gs_module *m) {
  TRY(gs_use(m->device));
  int status = check_driver(driver.cuModuleUnload(m->module), "cuModuleUnload");
  delete m;
  return status;
}

extern "C" int gs_module_function(gs_module *m, const char *name, void **out) {
  TRY(gs_use(m->device));
  CUfunction f = nullptr;
  TRY(check_driver(driver.cuModuleGetFunction(&f, m->module, name), "cuModuleGetFunction"));
  *out = f;
  return GS_OK;
}

// Allows a function more than 48 KiB of dynamic shared memory.
static int allow_shared(void *function, uint32_t bytes) {
  if (bytes <= 48 * 1024) return GS_OK;
  return check_driver(
      driver.cuFuncSetAttribute((CUfunction)function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, (int)bytes),
      "cuFuncSetAttribute");
}

extern "C" int gs_function_launch(void *function, gs_stream *s, const uint32_t grid[3], const uint32_t block[3],
                                  uint32_t shared_bytes, void **arguments) {
  TRY(gs_use(s->device));
  TRY(allow_shared(function, shared_bytes));
  return check_driver(driver.cuLaunchKernel((CUfunction)function, grid[0], grid[1], grid[2], block[0], block[1],
                                            block[2], shared_bytes, (CUstream)s->stream, arguments, nullptr),
                      "cuLaunchKernel");
}

extern "C" int gs_function_occupancy(int device, void *function, int block_threads, uint32_t shared_bytes,
                                     gs_occupancy *out) {
  GS_CHECK_SIZE(out);
  TRY(gs_use(device));
  TRY(allow_shared(function, shared_bytes));
  CUfunction f = (CUfunction)function;
  TRY(check_driver(driver.cuFuncGetAttribute(&out->registers, CU_FUNC_ATTRIBUTE_NUM_REGS, f), "cuFuncGetAttribute"));
  TRY(check_driver(driver.cuFuncGetAttribute(&out->local_bytes, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, f),
                   "cuFuncGetAttribute"));
  return check_driver(
      driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(&out->blocks_per_processor, f, block_threads, shared_bytes),
      "cuOccupancyMaxActiveBlocksPerMultiprocessor");
}

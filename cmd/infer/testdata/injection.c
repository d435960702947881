// A tool in the place of Nsight Systems: NVTX loads it by NVTX_INJECTION64_PATH.
// It writes each event as a line of tab-separated fields to the file that
// GPT2SCOPE_NVTX_RECORD names.
#define _GNU_SOURCE
#include <nvtx3/nvToolsExt.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static FILE *record;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uintptr_t domains;
static nvtxRangeId_t ranges;

static long thread(void) { return syscall(SYS_gettid); }

// Writes an event: kind, thread, domain, name, colour, category, payload ("-": none).
static void event(const char *kind, nvtxDomainHandle_t d, const nvtxEventAttributes_t *a) {
  const char *name = a->messageType == NVTX_MESSAGE_TYPE_REGISTERED ? (const char *)a->message.registered : a->message.ascii;
  char payload[32] = "-";
  if (a->payloadType == NVTX_PAYLOAD_TYPE_INT64) snprintf(payload, sizeof payload, "%lld", (long long)a->payload.llValue);
  pthread_mutex_lock(&lock);
  fprintf(record, "%s\t%ld\t%d\t%s\t%08x\t%u\t%s\n", kind, thread(), (int)(uintptr_t)d, name, a->color, a->category, payload);
  fflush(record);
  pthread_mutex_unlock(&lock);
}

static void other(const char *kind, uintptr_t a, const char *text) {
  pthread_mutex_lock(&lock);
  fprintf(record, "%s\t%ld\t%d\t%s\n", kind, thread(), (int)a, text);
  fflush(record);
  pthread_mutex_unlock(&lock);
}

static nvtxDomainHandle_t NVTX_API domain_create(const char *name) {
  uintptr_t d = __atomic_add_fetch(&domains, 1, __ATOMIC_RELAXED);
  other("domain", d, name);
  return (nvtxDomainHandle_t)d;
}

static nvtxStringHandle_t NVTX_API register_string(nvtxDomainHandle_t d, const char *text) {
  static int registered;
  other("string", (uintptr_t)d, text);
  // The first handle is 0, as Nsight Compute's is.
  return __atomic_fetch_add(&registered, 1, __ATOMIC_RELAXED) ? (nvtxStringHandle_t)strdup(text) : NULL;
}

static void NVTX_API name_category(nvtxDomainHandle_t d, uint32_t id, const char *name) {
  (void)d;
  other("category", id, name);
}

static int NVTX_API push(nvtxDomainHandle_t d, const nvtxEventAttributes_t *a) { return event("push", d, a), 0; }
static int NVTX_API pop(nvtxDomainHandle_t d) { return other("pop", (uintptr_t)d, ""), 0; }
static void NVTX_API mark(nvtxDomainHandle_t d, const nvtxEventAttributes_t *a) { event("mark", d, a); }

static nvtxRangeId_t NVTX_API start(nvtxDomainHandle_t d, const nvtxEventAttributes_t *a) {
  event("start", d, a);
  return __atomic_add_fetch(&ranges, 1, __ATOMIC_RELAXED);
}

static void NVTX_API end(nvtxDomainHandle_t d, nvtxRangeId_t range) {
  (void)d;
  other("end", (uintptr_t)range, "");
}

static void NVTX_API name_thread(uint32_t id, const char *name) { other("thread", id, name); }

__attribute__((visibility("default"))) int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get) {
  const char *path = getenv("GPT2SCOPE_NVTX_RECORD");
  const NvtxExportTableCallbacks *callbacks = get(NVTX_ETID_CALLBACKS);
  NvtxFunctionTable core, core2;
  unsigned int n = 0, n2 = 0;
  if (!path || !callbacks || !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &core, &n) ||
      !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &core2, &n2) || n <= NVTX_CBID_CORE_NameOsThreadA ||
      n2 <= NVTX_CBID_CORE2_DomainCreateA)
    return 0;
  if (!(record = fopen(path, "a"))) return 0;
  *core[NVTX_CBID_CORE_NameOsThreadA] = (NvtxFunctionPointer)name_thread;
  *core2[NVTX_CBID_CORE2_DomainMarkEx] = (NvtxFunctionPointer)mark;
  *core2[NVTX_CBID_CORE2_DomainRangeStartEx] = (NvtxFunctionPointer)start;
  *core2[NVTX_CBID_CORE2_DomainRangeEnd] = (NvtxFunctionPointer)end;
  *core2[NVTX_CBID_CORE2_DomainRangePushEx] = (NvtxFunctionPointer)push;
  *core2[NVTX_CBID_CORE2_DomainRangePop] = (NvtxFunctionPointer)pop;
  *core2[NVTX_CBID_CORE2_DomainNameCategoryA] = (NvtxFunctionPointer)name_category;
  *core2[NVTX_CBID_CORE2_DomainRegisterStringA] = (NvtxFunctionPointer)register_string;
  *core2[NVTX_CBID_CORE2_DomainCreateA] = (NvtxFunctionPointer)domain_create;
  return 1;
}

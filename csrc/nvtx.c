// NVTX for the Go program: the functions of nvtx/nvtx.h by NVIDIA's header-only NVTX v3. It does not need CUDA, so that
// Nsight Systems shows CPU runs too. csrc/build-nvtx.sh builds it.
#include "../nvtx/nvtx.h"

#include <nvtx3/nvToolsExt.h>

static nvtxEventAttributes_t attributes(const gs_nvtx_event *e) {
  nvtxEventAttributes_t a = {0};
  a.version = NVTX_VERSION;
  a.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  a.category = e->category;
  a.colorType = NVTX_COLOR_ARGB;
  a.color = e->color;
  if (e->has_payload) {
    a.payloadType = NVTX_PAYLOAD_TYPE_INT64;
    a.payload.llValue = e->payload;
  }
  if (e->string) {
    a.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
    a.message.registered = e->string;
  } else {
    a.messageType = NVTX_MESSAGE_TYPE_ASCII;
    a.message.ascii = e->text;
  }
  return a;
}

static void *domain(const char *name) { return nvtxDomainCreateA(name); }

static void *string(void *d, const char *text) { return nvtxDomainRegisterStringA(d, text); }

static void category(void *d, uint32_t id, const char *name) { nvtxDomainNameCategoryA(d, id, name); }

static void push(void *d, const gs_nvtx_event *e) {
  nvtxEventAttributes_t a = attributes(e);
  nvtxDomainRangePushEx(d, &a);
}

static void pop(void *d) { nvtxDomainRangePop(d); }

GS_NVTX_API const gs_nvtx_table *gs_nvtx(void) {
  static const gs_nvtx_table table = {
      .version = GS_NVTX_ABI_VERSION,
      .domain = domain,
      .string = string,
      .category = category,
      .push = push,
      .pop = pop,
  };
  return &table;
}

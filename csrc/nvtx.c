// NVTX for the Go program: the functions of nvtx/nvtx.h by NVIDIA's header-only NVTX v3. It does not need CUDA, so that
// Nsight Systems shows CPU runs too. csrc/build-nvtx.sh builds it.
#include "../nvtx/nvtx.h"

#include <nvtx3/nvToolsExt.h>

static nvtxDomainHandle_t domain;

static void category(uint32_t id, const char *name) { nvtxDomainNameCategoryA(domain, id, name); }

static void push(const gs_nvtx_range *r) {
  nvtxEventAttributes_t a = {0};
  a.version = NVTX_VERSION;
  a.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  a.category = r->category;
  a.colorType = NVTX_COLOR_ARGB;
  a.color = r->color;
  if (r->payload != GS_NVTX_NO_PAYLOAD) {
    a.payloadType = NVTX_PAYLOAD_TYPE_INT64;
    a.payload.llValue = r->payload;
  }
  a.messageType = NVTX_MESSAGE_TYPE_ASCII;
  a.message.ascii = r->name;
  nvtxDomainRangePushEx(domain, &a);
}

static void pop(void) { nvtxDomainRangePop(domain); }

// The program calls it once.
GS_NVTX_API const gs_nvtx_table *gs_nvtx(void) {
  static const gs_nvtx_table table = {GS_NVTX_ABI_VERSION, category, push, pop};
  domain = nvtxDomainCreateA("gpt2scope");
  return &table;
}

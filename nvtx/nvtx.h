// The C interface between package nvtx and libgpt2scope_nvtx, which csrc/nvtx.c
// makes from NVIDIA's NVTX headers. The Go program needs neither to build.
//
// * Nothing here fails: NVTX has no errors, and without a tool its calls do
//   nothing.
// * Push and pop belong to the calling OS thread.

#ifndef GPT2SCOPE_NVTX_H
#define GPT2SCOPE_NVTX_H

#include <stdint.h>

// Raised by whatever changes this file; library and program must agree.
#define GS_NVTX_ABI_VERSION 4

#define GS_NVTX_API __attribute__((visibility("default")))

#define GS_NVTX_NO_PAYLOAD INT64_MIN

// The attributes of a range.
typedef struct {
  const char *name;   // valid during the call
  uint32_t color;     // 0xAARRGGBB
  uint32_t category;  // 0 for none
  int64_t payload;    // GS_NVTX_NO_PAYLOAD for none
} gs_nvtx_range;

// All is of the domain gpt2scope.
typedef struct {
  uint32_t version;  // GS_NVTX_ABI_VERSION of the library
  void (*category)(uint32_t id, const char *name);
  void (*push)(const gs_nvtx_range *range);
  void (*pop)(void);
} gs_nvtx_table;

// The only symbol of the library.
GS_NVTX_API const gs_nvtx_table *gs_nvtx(void);

#endif

// The launches of the decode kernels of each width.
#pragma once

#include <cstdint>

#include "../cuda/abi.h"

// gs_decode_work, gs_decode and gs_decode_one of a width.
struct gs_decode_width {
  int (*work)(gs_stream *s, const gs_decode_args *a, uint64_t *bytes, int32_t *tokens);
  int (*run)(gs_stream *s, const gs_decode_args *a);
  int (*run_one)(gs_stream *s, const gs_decode_args *a, int step, int tail, uint32_t epoch);
};

// Each is in the file of its name, so that a process loads the kernels of its width only.
extern const gs_decode_width gs_decode_384, gs_decode_768, gs_decode_1024, gs_decode_1280, gs_decode_1600;

// The launches of the decode kernels of each width.
#pragma once

#include <cstdint>

#include "../cuda/abi.h"

// gs_persistent_work, gs_persistent and gs_persistent_one of a width.
struct gs_persistent_width {
  int (*work)(gs_stream *s, const gs_persistent_args *a, uint64_t *bytes, int32_t *tokens);
  int (*run)(gs_stream *s, const gs_persistent_args *a);
  int (*run_one)(gs_stream *s, const gs_persistent_args *a, int step, int tail, uint32_t epoch);
};

// Each is in the file of its name, so that a process loads the kernels of its width and type only.
extern const gs_persistent_width gs_persistent_384, gs_persistent_768, gs_persistent_1024, gs_persistent_1280,
    gs_persistent_1600, gs_persistent_q8_384, gs_persistent_q8_768, gs_persistent_q8_1024, gs_persistent_q8_1280,
    gs_persistent_q8_1600;

// The launches of the decode kernels of each width.
#pragma once

#include <cstdint>

#include "../cuda/abi.h"

// Of a width: gs_persistent_work, and gs_persistent without stamps; of one that is watched, gs_persistent with stamps,
// and gs_persistent_one. The others are null.
struct gs_persistent_width {
  int (*work)(gs_stream *s, const gs_persistent_args *a, uint64_t *bytes, int32_t *tokens);
  int (*run)(gs_stream *s, const gs_persistent_args *a);
  int (*run_one)(gs_stream *s, const gs_persistent_args *a, int step, int tail, uint32_t epoch);
};

// Each is in the file of its name, so that a process loads the kernels of its width and type only; those that stamp or
// run a single step, which few processes need, are in files of their own.
#define GS_PERSISTENT_WIDTHS(F) F(384) F(768) F(1024) F(1280) F(1600)
#define GS_PERSISTENT_WIDTH(C)                                            \
  extern const gs_persistent_width gs_persistent_##C, gs_persistent_##C##_watched, \
      gs_persistent_q8_##C, gs_persistent_q8_##C##_watched;
GS_PERSISTENT_WIDTHS(GS_PERSISTENT_WIDTH)

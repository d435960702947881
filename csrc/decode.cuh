// The launches of the decode kernels of each width.
#pragma once

#include <cstdint>

#include "../cuda/abi.h"

// What the host must know of a kernel: values of its Traits, and what follows from them.
struct gs_persistent_kernel {
  bool PROMPT, VERIFY, BATCHED, MANY, HALVES, READS_BACK, WIDE;
  int C, ROWS, GROUP, SMALL, LARGE, ROW_BYTES, TILE_ROWS, PAD, CHUNK_PITCH, CHUNKS, CHUNK, TOKENS, THREADS, PROMPT_ROWS,
      X_VALUES;
  int X_LANES, H_LANES;  // packets that a warp has of its part of the residual stream, and of the hidden layer, at most
  int FIXED;             // bytes of shared memory whatever the program
  const void *kernel;    // null if there is none
  uint64_t *allowed;
};

// The kernels in the file of a width; of one that is watched those that stamp or run a single step.
struct gs_persistent_width {
  gs_persistent_kernel one[2], batched[2], verify[2];  // whether tokens are sampled
  gs_persistent_kernel prompt, one_step;
  int (*launch)(gs_stream *s, const gs_persistent_kernel &k, const void *params, int blocks, size_t shared);
};

// Each is in the file of its name, so that a process loads the kernels of its width only, and of most of its type; those
// that stamp or run a single step, which few processes need, are in files of their own, of both types.
#define GS_PERSISTENT_WIDTHS(F) F(384) F(768) F(1024) F(1280) F(1600)
#define GS_PERSISTENT_WIDTH(C)                                            \
  extern const gs_persistent_width gs_persistent_##C, gs_persistent_##C##_watched, \
      gs_persistent_q8_##C, gs_persistent_q8_##C##_watched;
GS_PERSISTENT_WIDTHS(GS_PERSISTENT_WIDTH)

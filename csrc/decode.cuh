// Of gs_decode: the beginning of its work area, and its part for float32.
#pragma once

#include <cstdint>

#include "../cuda/abi.h"

struct gs_decode_header {
  uint32_t epoch;    // of the last step that ran
  uint32_t expired;  // 0, or 2^31 + 65536 * step + GS_DECODE_FOR_WEIGHTS or 0 + block: which block waited too long, where, and for what
};

// The parts of gs_decode, gs_decode_one and gs_decode_work for weights in float32 (decode_f32.cu).
int gs_decode_f32(gs_stream *s, const gs_decode_args *a);
int gs_decode_f32_one(gs_stream *s, const gs_decode_args *a, int step, int tail, uint32_t epoch);
int gs_decode_f32_work(gs_stream *s, const gs_decode_args *a, uint64_t *bytes, int32_t *tokens);

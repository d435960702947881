// Of gs_decode: its part for float32.
#pragma once

#include <cstdint>

#include "../cuda/abi.h"

// The parts of gs_decode, gs_decode_one and gs_decode_work for weights in float32 (decode_f32.cu).
int gs_decode_f32(gs_stream *s, const gs_decode_args *a);
int gs_decode_f32_one(gs_stream *s, const gs_decode_args *a, int step, int tail, uint32_t epoch);
int gs_decode_f32_work(gs_stream *s, const gs_decode_args *a, uint64_t *bytes, int32_t *tokens);

// gs_persistent: decode steps in one kernel. decode_kernel.cuh has the kernel; each width is compiled in a file of its
// own, and here one is chosen.

#include "common.cuh"
#include "decode.cuh"

namespace {

// The launches for the width and type, null if there are none.
const gs_persistent_width *width_of(const gs_persistent_args *a) {
  const bool q8 = a->dtype == GS_Q8;
  switch (a->C) {
    case 384: return q8 ? &gs_persistent_q8_384 : &gs_persistent_384;
    case 768: return q8 ? &gs_persistent_q8_768 : &gs_persistent_768;
    case 1024: return q8 ? &gs_persistent_q8_1024 : &gs_persistent_1024;
    case 1280: return q8 ? &gs_persistent_q8_1280 : &gs_persistent_1280;
    case 1600: return q8 ? &gs_persistent_q8_1600 : &gs_persistent_1600;
  }
  return nullptr;
}

int width_unsupported(const gs_persistent_args *a) {
  return gs_fail(GS_UNSUPPORTED,
                 "decoding in one kernel takes a width of 384, 768, 1024, 1280 or 1600; this model's is %d", a->C);
}

}  // namespace

extern "C" int gs_persistent_work(gs_stream *s, const gs_persistent_args *a, uint64_t *bytes, int32_t *tokens) {
  GS_ENTER(s, a);
  const gs_persistent_width *width = width_of(a);
  return width ? width->work(s, a, bytes, tokens) : width_unsupported(a);
}

extern "C" int gs_persistent(gs_stream *s, const gs_persistent_args *a) {
  GS_ENTER(s, a);
  const gs_persistent_width *width = width_of(a);
  return width ? width->run(s, a) : width_unsupported(a);
}

extern "C" int gs_persistent_one(gs_stream *s, const gs_persistent_args *a, int step, int tail, uint32_t epoch) {
  GS_ENTER(s, a);
  const gs_persistent_width *width = width_of(a);
  return width ? width->run_one(s, a, step, tail, epoch) : width_unsupported(a);
}

// gs_persistent: decode steps in one kernel. decode_kernel.cuh has the kernel; each width is compiled in files of its
// own, and here one is chosen.

#include "common.cuh"
#include "decode.cuh"

namespace {

// The launches for the width and type, null if there are none; if watched, those of kernels that stamp or run a single
// step.
const gs_persistent_width *width_of(const gs_persistent_args *a, bool watched) {
  const bool q8 = a->dtype == GS_Q8;
  switch (a->C) {
#define WIDTH(C)                                                                  \
  case C:                                                                         \
    return q8 ? watched ? &gs_persistent_q8_##C##_watched : &gs_persistent_q8_##C \
              : watched ? &gs_persistent_##C##_watched : &gs_persistent_##C;
    GS_PERSISTENT_WIDTHS(WIDTH)
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
  const gs_persistent_width *width = width_of(a, false);
  return width ? width->work(s, a, bytes, tokens) : width_unsupported(a);
}

extern "C" int gs_persistent(gs_stream *s, const gs_persistent_args *a) {
  GS_ENTER(s, a);
  const gs_persistent_width *width = width_of(a, a->stamps != 0);
  return width ? width->run(s, a) : width_unsupported(a);
}

extern "C" int gs_persistent_one(gs_stream *s, const gs_persistent_args *a, int step, int tail, uint32_t epoch) {
  GS_ENTER(s, a);
  const gs_persistent_width *width = width_of(a, true);
  return width ? width->run_one(s, a, step, tail, epoch) : width_unsupported(a);
}

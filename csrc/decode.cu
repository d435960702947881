// gs_persistent: decode steps in one kernel. decode_kernel.cuh has the kernel; each width is compiled in files of its
// own, and here one is chosen.

#include "common.cuh"
#include "decode_host.cuh"

namespace {

// Calls f with the kernel for the arguments and those of its width: of those that are watched if it stamps or runs a
// single step.
template <typename F> int with_kernel(const gs_persistent_args *a, bool single, F f) {
  const bool q8 = a->dtype == GS_Q8, draws = !single && a->candidates > 0, watched = single || a->stamps != 0;
  const gs_persistent_width *width = nullptr;
  switch (a->C) {
#define WIDTH(C)                                                                  \
  case C:                                                                         \
    width = q8 ? watched ? &gs_persistent_q8_##C##_watched : &gs_persistent_q8_##C \
               : watched ? &gs_persistent_##C##_watched : &gs_persistent_##C;      \
    break;
    GS_PERSISTENT_WIDTHS(WIDTH)
  }
  if (!width || !width->launch)
    return gs_fail(GS_UNSUPPORTED,
                   "decoding in one kernel takes a width of 384, 768, 1024, 1280 or 1600; this model's is %d", a->C);
  if (a->B < 1 || a->B > GS_PERSISTENT_SEQUENCES)
    return gs_fail(GS_UNSUPPORTED, "decoding in one kernel takes 1 to %d sequences; there are %d",
                   GS_PERSISTENT_SEQUENCES, a->B);
  if (a->rows > width->prompt.PROMPT_ROWS)
    return gs_fail(GS_UNSUPPORTED,
                   "decoding in one kernel of a width of %d takes prompts of up to %d rows; this one has %d", a->C,
                   width->prompt.PROMPT_ROWS, a->rows);
  const Kernel &k = a->rows > 0 ? width->prompt
                    : a->B > 1  ? width->batched[draws]
                    : a->verify ? width->verify[draws]
                    : single    ? width->one_step
                                : width->one[draws];
  if (!k.kernel)
    return gs_fail(GS_UNSUPPORTED, "no kernel %s of a width of %d",
                   a->B > 1 ? "decodes several sequences in bfloat16" : "verifies drafts", a->C);
  return f(k, *width);
}

int launch(const Kernel &k, const gs_persistent_width &width, gs_stream *s, const gs_persistent_args *a, Params &p) {
  p.ring_bytes = ring_of(k, s, p, p.tokens);
  return width.launch(s, k, &p, blocks_of(s, a), shared_before_ring(p, p.tokens) + p.ring_bytes);
}

}  // namespace

extern "C" int gs_persistent_work(gs_stream *s, const gs_persistent_args *a, uint64_t *bytes, int32_t *tokens) {
  GS_ENTER(s, a);
  return with_kernel(a, false, [&](const Kernel &k, const gs_persistent_width &) -> int {
    Params p = {};
    size_t n = 0;
    int most = 0;
    if (int status = prepare(k, s, a, &p, &n, &most)) return status;
    *bytes = n, *tokens = most;
    return GS_OK;
  });
}

extern "C" int gs_persistent(gs_stream *s, const gs_persistent_args *a) {
  GS_ENTER(s, a);
  return with_kernel(a, false, [&](const Kernel &k, const gs_persistent_width &width) -> int {
    Params p = {};
    if (int status = fill(k, s, a, a->tokens, &p)) return status;
    p.stamps = (uint64_t *)a->stamps, p.only_step = -1;
    p.logits_only = a->logits_only, p.candidates = a->candidates;
    return launch(k, width, s, a, p);
  });
}

extern "C" int gs_persistent_one(gs_stream *s, const gs_persistent_args *a, int step, int tail, uint32_t epoch) {
  GS_ENTER(s, a);
  return with_kernel(a, true, [&](const Kernel &k, const gs_persistent_width &width) -> int {
    if (k.VERIFY) return gs_fail(GS_ARGUMENT, "decode: single steps verify no drafts");
    Params p = {};
    if (int status = fill(k, s, a, tail + 1, &p)) return status;
    p.only_step = step, p.epoch = epoch, p.stamp = gs_next_stamp(s, "decode_one", blocks_of(s, a));
    return launch(k, width, s, a, p);
  });
}

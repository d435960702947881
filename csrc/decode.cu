// gs_decode: decode steps in one kernel. decode_kernel.cuh has the kernel; each width is compiled in a file of its own,
// and here one is chosen.

#include "common.cuh"
#include "decode.cuh"

namespace {

// The launches for the width, null if there are none.
const gs_decode_width *width_of(const gs_decode_args *a) {
  switch (a->C) {
    case 384: return &gs_decode_384;
    case 768: return &gs_decode_768;
    case 1024: return &gs_decode_1024;
    case 1280: return &gs_decode_1280;
    case 1600: return &gs_decode_1600;
  }
  return nullptr;
}

int width_unsupported(const gs_decode_args *a) {
  return gs_fail(GS_UNSUPPORTED,
                 "decoding in one kernel takes a width of 384, 768, 1024, 1280 or 1600; this model's is %d", a->C);
}

int check_prompt(const gs_decode_args *a) {
  if (a->rows == 0) return GS_OK;
  if (a->rows < 2 || a->rows > GS_DECODE_ROWS || a->B != 1)
    return gs_fail(GS_ARGUMENT, "decode: %d rows of a prompt of %d sequences; 2 to %d of one are possible", a->rows,
                   a->B, GS_DECODE_ROWS);
  if (a->draw)
    return gs_fail(GS_ARGUMENT, "decode: a prompt, and a token from %d candidates; only the argmax is possible",
                   a->draw);
  return GS_OK;
}

}  // namespace

extern "C" int gs_decode_work(gs_stream *s, const gs_decode_args *a, uint64_t *bytes, int32_t *tokens) {
  GS_ENTER(s, a);
  if (int status = check_prompt(a)) return status;
  const gs_decode_width *width = width_of(a);
  return width ? width->work(s, a, bytes, tokens) : width_unsupported(a);
}

extern "C" int gs_decode(gs_stream *s, const gs_decode_args *a) {
  GS_ENTER(s, a);
  if (int status = check_prompt(a)) return status;
  if (a->rows && a->tokens != 1)
    return gs_fail(GS_ARGUMENT, "decode: a prompt, and %d tokens; one is possible", a->tokens);
  if (a->logits_only && a->tokens != 1)
    return gs_fail(GS_ARGUMENT, "decode: the logits of %d steps; those of one are possible", a->tokens);
  if (a->draw &&
      (a->logits_only || a->draw < 0 || a->draw > a->V || (a->draw > GS_DECODE_DRAW && a->V > GS_DECODE_DRAW_ALL)))
    return gs_fail(GS_ARGUMENT, "decode: a token from %d candidates; up to %d are possible, or all of up to %d",
                   a->draw, GS_DECODE_DRAW, GS_DECODE_DRAW_ALL);
  const gs_decode_width *width = width_of(a);
  return width ? width->run(s, a) : width_unsupported(a);
}

extern "C" int gs_decode_one(gs_stream *s, const gs_decode_args *a, int step, int tail, uint32_t epoch) {
  GS_ENTER(s, a);
  if (step < 0 || step >= a->count) return gs_fail(GS_ARGUMENT, "decode: step %d of a program of %d", step, a->count);
  if (int status = check_prompt(a)) return status;
  if (a->rows && tail)
    return gs_fail(GS_ARGUMENT, "decode: a prompt after %d tokens of a launch; none are possible", tail);
  const gs_decode_width *width = width_of(a);
  return width ? width->run_one(s, a, step, tail, epoch) : width_unsupported(a);
}

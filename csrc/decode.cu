// gs_decode: decode steps in one kernel. decode_bf16.cuh and decode_f32.cuh have the kernels, each
// width and type of weights is compiled in a file of its own, and here one is chosen.

#include "common.cuh"
#include "decode.cuh"

namespace {

// The launches for the width and the type of weights, null if there are none.
const gs_decode_width *width_of(const gs_decode_args *a) {
  const bool f32 = a->dtype == GS_F32;
  switch (a->C) {
    case 384: return f32 ? &gs_decode_f32_384 : &gs_decode_bf16_384;
    case 768: return f32 ? &gs_decode_f32_768 : &gs_decode_bf16_768;
    case 1024: return f32 ? &gs_decode_f32_1024 : &gs_decode_bf16_1024;
    case 1280: return f32 ? &gs_decode_f32_1280 : &gs_decode_bf16_1280;
    case 1600: return f32 ? &gs_decode_f32_1600 : &gs_decode_bf16_1600;
  }
  return nullptr;
}

int width_unsupported(const gs_decode_args *a) {
  return gs_fail(GS_UNSUPPORTED, "decoding in one kernel takes a width of 384, 768, 1024, 1280 or 1600; this model's is %d", a->C);
}

int check_prompt(const gs_decode_args *a) {
  if (a->rows == 0) return GS_OK;
  if (a->rows < 2 || a->rows > GS_DECODE_ROWS || a->B != 1) return gs_fail(GS_ARGUMENT, "decode: %d rows of a prompt of %d sequences; 2 to %d of one are possible", a->rows, a->B, GS_DECODE_ROWS);
  if (a->draw) return gs_fail(GS_ARGUMENT, "decode: a prompt, and a token from %d candidates; only the argmax is possible", a->draw);
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
  if (a->rows && a->tokens != 1) return gs_fail(GS_ARGUMENT, "decode: a prompt, and %d tokens; one is possible", a->tokens);
  if (a->logits_only && a->tokens != 1) return gs_fail(GS_ARGUMENT, "decode: the logits of %d steps; those of one are possible", a->tokens);
  if (a->draw && (a->logits_only || a->draw < 0 || a->draw > a->V || (a->draw > GS_DECODE_DRAW && a->V > GS_DECODE_DRAW_ALL)))
    return gs_fail(GS_ARGUMENT, "decode: a token from %d candidates; up to %d are possible, or all of up to %d", a->draw, GS_DECODE_DRAW,
                   GS_DECODE_DRAW_ALL);
  const gs_decode_width *width = width_of(a);
  return width ? width->run(s, a) : width_unsupported(a);
}

extern "C" int gs_decode_one(gs_stream *s, const gs_decode_args *a, int step, int tail, uint32_t epoch) {
  GS_ENTER(s, a);
  if (step < 0 || step >= a->count) return gs_fail(GS_ARGUMENT, "decode: step %d of a program of %d", step, a->count);
  if (int status = check_prompt(a)) return status;
  if (a->rows && tail) return gs_fail(GS_ARGUMENT, "decode: a prompt after %d tokens of a launch; none are possible", tail);
  const gs_decode_width *width = width_of(a);
  return width ? width->run_one(s, a, step, tail, epoch) : width_unsupported(a);
}

// gs_decode runs whole decode steps in one cooperative kernel. It is not built yet: the
// functions say so, and callers use launches of single operations.

#include "common.cuh"

int gs_fold(gs_stream *, const gs_fold_args *a) {
  if (a->size != sizeof *a) return gs_fail(GS_ARGUMENT, "gs_fold: size %u", a->size);
  return gs_fail(GS_UNSUPPORTED, "the kernel of whole decode steps is not built yet");
}

int gs_decode(gs_stream *, const gs_decode_args *a) {
  if (a->size != sizeof *a) return gs_fail(GS_ARGUMENT, "gs_decode: size %u", a->size);
  return gs_fail(GS_UNSUPPORTED, "the kernel of whole decode steps is not built yet");
}

int gs_decode_work(gs_stream *, const gs_decode_args *a, uint64_t *) {
  if (a->size != sizeof *a) return gs_fail(GS_ARGUMENT, "gs_decode_work: size %u", a->size);
  return gs_fail(GS_UNSUPPORTED, "the kernel of whole decode steps is not built yet");
}

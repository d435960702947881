// What the host code of the decode kernels takes of csrc/runtime.cu and csrc/stamp.cu, and
// launchers for a library that runs the kernels on CPUs: cuda/testdata/stub.c with STUB_EMULATES.
#include <stdarg.h>
#include <stdio.h>

#include "../common.cuh"
#include "../decode.cuh"

static thread_local char text[256];

int gs_fail(int status, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  return status;
}
int gs_use(int) { return GS_OK; }
int gs_check(cudaError_t e, const char *what) { return e == cudaSuccess ? GS_OK : gs_fail(e, "%s: error %d", what, e); }
gs_stamp gs_next_stamp(gs_stream *, const char *, dim3) { return {nullptr}; }

// Widths that the emulator is built without.
#define WIDTH(name) __attribute__((weak)) extern const gs_persistent_width name = {}
#define WIDTHS(C) \
  WIDTH(gs_persistent_##C); WIDTH(gs_persistent_##C##_watched); \
  WIDTH(gs_persistent_q8_##C); WIDTH(gs_persistent_q8_##C##_watched);
GS_PERSISTENT_WIDTHS(WIDTHS)

// The launchers of csrc/decode.cu by other names, with which it is compiled.
extern "C" int emulated_persistent(gs_stream *, const gs_persistent_args *);
extern "C" int emulated_persistent_one(gs_stream *, const gs_persistent_args *, int step, int tail, uint32_t epoch);
extern "C" int emulated_persistent_work(gs_stream *, const gs_persistent_args *, uint64_t *bytes, int32_t *tokens);

// A stream of an H200, but for the number of SMs.
static gs_stream *stream(int blocks) {
  static thread_local gs_stream s;
  s = {};
  s.major = 9, s.processors = blocks, s.shared_per_block = 227 << 10, s.l2_bytes = 50 << 20;
  return &s;
}

extern "C" {
const char *emulator_error() { return text; }
int emulator_persistent(int blocks, const gs_persistent_args *a) { return emulated_persistent(stream(blocks), a); }
int emulator_persistent_one(int blocks, const gs_persistent_args *a, int step, int tail, uint32_t epoch) {
  return emulated_persistent_one(stream(blocks), a, step, tail, epoch);
}
int emulator_persistent_work(int blocks, const gs_persistent_args *a, uint64_t *bytes, int32_t *tokens) {
  return emulated_persistent_work(stream(blocks), a, bytes, tokens);
}
}

// How Go calls the CUDA library: a table of its functions, found by name, and a trampoline for each. A trampoline
// returns the message of a failure in the same call, as the message belongs to the OS thread that made the call.

#ifndef GPT2SCOPE_CUDA_SHIM_H
#define GPT2SCOPE_CUDA_SHIM_H

#include <stdlib.h>
#include <string.h>

#include "abi.h"

// Go holds only pointers to these, but needs complete types.
struct gs_stream { char opaque; };
struct gs_event { char opaque; };
struct gs_graph { char opaque; };
struct gs_module { char opaque; };

// Every function of abi.h, once. A test compares this list with the header.
#define GS_SYMBOLS(X)                                                                                                \
  X(gs_abi_version) X(gs_error) X(gs_versions) X(gs_blas_open)                                                       \
  X(gs_device_count) X(gs_device_get) X(gs_device_memory)                                                            \
  X(gs_alloc) X(gs_free) X(gs_alloc_host) X(gs_free_host)                                                            \
  X(gs_stream_create) X(gs_stream_destroy) X(gs_stream_synchronize) X(gs_stream_query)                               \
  X(gs_stream_overlap) X(gs_stream_wait)                                                                             \
  X(gs_event_create) X(gs_event_destroy) X(gs_event_record) X(gs_event_synchronize)                                  \
  X(gs_event_elapsed) X(gs_copy) X(gs_copy_now) X(gs_set)                                                            \
  X(gs_capture_begin) X(gs_capture_end) X(gs_capture_abandon)                                                        \
  X(gs_graph_launch) X(gs_graph_destroy)                                                                             \
  X(gs_nvrtc_open) X(gs_module_compile) X(gs_module_destroy) X(gs_module_function)                                   \
  X(gs_function_launch) X(gs_function_occupancy) X(gs_variant)                                                       \
  X(gs_embed) X(gs_layernorm) X(gs_linear) X(gs_linear_variant) X(gs_linear_tune)                                    \
  X(gs_attention) X(gs_attention_work) X(gs_activate) X(gs_add) X(gs_sample) X(gs_sample_work) X(gs_pack)            \
  X(gs_fold) X(gs_persistent) X(gs_persistent_one) X(gs_persistent_work)                                             \
  X(gs_stamps_into) X(gs_stamps_used) X(gs_stamp_taken_by) X(gs_stamp_mark) X(gs_stamps_collect) X(gs_clock_compare) \
  X(gs_empty_kernel) X(gs_hops) X(gs_read) X(gs_read_again) X(gs_copy_kernel)

typedef struct {
  void *handle;  // of dlopen
#define X(f) __typeof__(&f) f;
  GS_SYMBOLS(X)
#undef X
} gs_table;

// A status, and of a failure the function and its message, which the caller frees.
typedef struct {
  int status;
  const char *call;
  char *text;
} gs_result;

// A stream with the table of its library.
typedef struct {
  const gs_table *t;
  gs_stream *s;
} gs_on;

// Opens a library. If that fails, *error is the loader's message, which the caller frees, or *missing is the name of
// the function that the library lacks.
gs_table *gs_table_open(const char *path, char **error, const char **missing);
void gs_table_close(gs_table *t);

// The runtime of Go needs SA_ONSTACK on all handlers of signals: its own end the program with a fatal error if they run
// on the stack of a goroutine. gs_signals_keep notes the handlers that have the flag; gs_signals_restore puts back
// those that were since replaced by one without it, or were set again without it, as signal() does.
void gs_signals_keep(void);
void gs_signals_restore(void);

static inline gs_result gs_result_of(const gs_table *t, const char *call, int status) {
  gs_result r = {status, call, NULL};
  if (__builtin_expect(status != GS_OK, 0)) {
    const char *text = t->gs_error();
    r.text = strdup(text ? text : "");
  }
  return r;
}

// The result of a call with an object that is NULL, since Go freed it; the text says what it was.
#define GS_FREED (-1)
static inline gs_result gs_freed(const char *call, const char *what) {
  gs_result r = {GS_FREED, call, strdup(what)};
  return r;
}

#define GS_CALL(f, parameters, arguments) GS_WITH(f, NULL, parameters, arguments)
#define GS_WITH(f, freed, parameters, arguments)                            \
  static inline gs_result call_##f parameters {                             \
    const char *what = freed;                                               \
    return what ? gs_freed(#f, what) : gs_result_of(t, #f, t->f arguments); \
  }
#define GS_ON(f, parameters, arguments) GS_ON_ALSO(f, o.s, "stream", parameters, arguments)
#define GS_ON_ALSO(f, object, name, parameters, arguments)                     \
  static inline gs_result call_##f parameters {                                \
    gs_stream *s = o.s;                                                        \
    if (!s || !(object)) return gs_freed(#f, s ? name : "stream");             \
    return gs_result_of(o.t, #f, o.t->f arguments);                            \
  }
// Arguments of an operation, with their size.
#define GS_SIZED(a) ((a)->size = sizeof *(a), (a))

static inline uint32_t call_gs_abi_version(const gs_table *t) { return t->gs_abi_version(); }
static inline const char *call_gs_variant(const gs_table *t, int op, int n) { return t->gs_variant(op, n); }

GS_CALL(gs_versions, (const gs_table *t, int *driver, int *runtime), (driver, runtime))
GS_CALL(gs_blas_open, (const gs_table *t, const char *path, uint64_t *version), (path, version))
GS_CALL(gs_device_count, (const gs_table *t, int *count), (count))
GS_CALL(gs_device_get, (const gs_table *t, int device, gs_device_info *info), (device, info))
GS_CALL(gs_device_memory, (const gs_table *t, int device, uint64_t *f, uint64_t *total), (device, f, total))
GS_CALL(gs_alloc, (const gs_table *t, int device, uint64_t bytes, gs_ptr *out), (device, bytes, out))
GS_CALL(gs_free, (const gs_table *t, int device, gs_ptr p), (device, p))
GS_CALL(gs_alloc_host, (const gs_table *t, int device, uint64_t bytes, void **out, gs_ptr *address),
        (device, bytes, out, address))
GS_CALL(gs_free_host, (const gs_table *t, int device, void *p), (device, p))
GS_CALL(gs_stream_create, (const gs_table *t, int device, gs_stream **out), (device, out))
GS_CALL(gs_stream_destroy, (const gs_table *t, gs_stream *s), (s))
GS_ON(gs_stream_synchronize, (gs_on o), (s))
GS_ON(gs_stream_query, (gs_on o, int *done), (s, done))
GS_ON(gs_stream_overlap, (gs_on o, int on), (s, on))
GS_ON_ALSO(gs_stream_wait, e, "event", (gs_on o, gs_event *e), (s, e))
GS_CALL(gs_event_create, (const gs_table *t, int device, gs_event **out), (device, out))
GS_CALL(gs_event_destroy, (const gs_table *t, gs_event *e), (e))
GS_ON_ALSO(gs_event_record, e, "event", (gs_on o, gs_event *e), (e, s))
GS_WITH(gs_event_synchronize, e ? NULL : "event", (const gs_table *t, gs_event *e), (e))
GS_WITH(gs_event_elapsed, start && end ? NULL : "event",
        (const gs_table *t, gs_event *start, gs_event *end, float *ms), (start, end, ms))
GS_ON(gs_copy, (gs_on o, uint64_t dst, uint64_t src, uint64_t bytes, int direction), (s, dst, src, bytes, direction))
GS_ON(gs_set, (gs_on o, gs_ptr p, int byte, uint64_t bytes), (s, p, byte, bytes))
GS_ON(gs_capture_begin, (gs_on o), (s))
GS_ON(gs_capture_end, (gs_on o, gs_graph **out), (s, out))
GS_ON(gs_capture_abandon, (gs_on o), (s))
GS_ON_ALSO(gs_graph_launch, g, "graph", (gs_on o, gs_graph *g), (g, s))
GS_CALL(gs_graph_destroy, (const gs_table *t, gs_graph *g), (g))
GS_CALL(gs_nvrtc_open, (const gs_table *t, const char *path), (path))
GS_CALL(gs_module_compile,
        (const gs_table *t, int device, const char *source, const char *name, char *log, uint64_t log_bytes,
         gs_module **out),
        (device, source, name, log, log_bytes, out))
GS_CALL(gs_module_destroy, (const gs_table *t, gs_module *m), (m))
GS_WITH(gs_module_function, m ? NULL : "module",
        (const gs_table *t, gs_module *m, const char *name, void **out), (m, name, out))
GS_CALL(gs_function_occupancy,
        (const gs_table *t, int device, void *f, int threads, uint32_t shared, gs_occupancy *out),
        (device, f, threads, shared, out))

// Host memory of synchronous copies may be Go's. It is passed as a pointer, not as a number, so that Go does not move
// it during the call.
static inline gs_result call_write(const gs_table *t, int device, gs_ptr dst, const void *src, uint64_t bytes) {
  return gs_result_of(t, "gs_copy_now", t->gs_copy_now(device, dst, (uint64_t)(uintptr_t)src, bytes, GS_TO_DEVICE));
}
static inline gs_result call_read(const gs_table *t, int device, void *dst, gs_ptr src, uint64_t bytes) {
  return gs_result_of(t, "gs_copy_now", t->gs_copy_now(device, (uint64_t)(uintptr_t)dst, src, bytes, GS_TO_HOST));
}
static inline gs_result call_write_async(gs_on o, gs_ptr dst, const void *src, uint64_t bytes) {
  return call_gs_copy(o, dst, (uint64_t)(uintptr_t)src, bytes, GS_TO_DEVICE);
}
static inline gs_result call_read_async(gs_on o, void *dst, gs_ptr src, uint64_t bytes) {
  return call_gs_copy(o, (uint64_t)(uintptr_t)dst, src, bytes, GS_TO_HOST);
}

// A kernel's arguments are values of up to 8 bytes, each in a word of its own.
static inline gs_result call_function_launch(gs_on o, void *f, uint32_t gx, uint32_t gy, uint32_t gz, uint32_t bx,
                                             uint32_t by, uint32_t bz, uint32_t shared, uint64_t *words, int count) {
  uint32_t grid[3] = {gx, gy, gz}, block[3] = {bx, by, bz};
  void *arguments[64];
  for (int i = 0; i < count; i++) arguments[i] = &words[i];
  if (!o.s) return gs_freed("gs_function_launch", "stream");
  return gs_result_of(o.t, "gs_function_launch", o.t->gs_function_launch(f, o.s, grid, block, shared, arguments));
}

#define GS_LAUNCH(f, args) GS_ON(f, (gs_on o, args *a), (s, GS_SIZED(a)))
GS_LAUNCH(gs_embed, gs_embed_args)
GS_LAUNCH(gs_layernorm, gs_layernorm_args)
GS_LAUNCH(gs_linear, gs_linear_args)
GS_LAUNCH(gs_attention, gs_attention_args)
GS_LAUNCH(gs_activate, gs_activation_args)
GS_LAUNCH(gs_add, gs_add_args)
GS_LAUNCH(gs_sample, gs_sample_args)
GS_LAUNCH(gs_pack, gs_pack_args)
GS_LAUNCH(gs_fold, gs_fold_args)
GS_LAUNCH(gs_persistent, gs_persistent_args)
GS_ON(gs_persistent_one, (gs_on o, gs_persistent_args *a, int step, int tail, uint32_t epoch),
        (s, GS_SIZED(a), step, tail, epoch))
GS_ON(gs_attention_work, (gs_on o, gs_attention_args *a, uint64_t *bytes), (s, GS_SIZED(a), bytes))
GS_ON(gs_sample_work, (gs_on o, gs_sample_args *a, uint64_t *bytes), (s, GS_SIZED(a), bytes))
GS_ON(gs_persistent_work, (gs_on o, gs_persistent_args *a, uint64_t *bytes, int32_t *tokens),
        (s, GS_SIZED(a), bytes, tokens))
GS_ON(gs_linear_variant, (gs_on o, gs_linear_args *a, int *variant), (s, GS_SIZED(a), variant))
GS_ON(gs_linear_tune, (gs_on o, gs_linear_args *a, int candidates), (s, GS_SIZED(a), candidates))
GS_ON(gs_stamps_into, (gs_on o, gs_ptr areas, uint32_t count), (s, areas, count))
GS_ON(gs_stamps_used, (gs_on o, uint32_t *used), (s, used))
GS_ON(gs_stamp_taken_by, (gs_on o, uint32_t area, const char **name, uint32_t *blocks), (s, area, name, blocks))
GS_ON(gs_stamp_mark, (gs_on o), (s))
GS_LAUNCH(gs_stamps_collect, gs_collect_args)
GS_ON(gs_clock_compare, (gs_on o, void *host, gs_ptr address, gs_clock_pair *out), (s, host, address, out))
GS_ON(gs_empty_kernel, (gs_on o), (s))
GS_ON(gs_hops, (gs_on o, gs_ptr work, int packets, int rounds), (s, work, packets, rounds))
GS_ON(gs_read, (gs_on o, gs_ptr p, uint64_t bytes, gs_ptr out), (s, p, bytes, out))
GS_ON(gs_read_again, (gs_on o, gs_ptr p, uint32_t turns, uint32_t passes, gs_ptr out), (s, p, turns, passes, out))
GS_ON(gs_copy_kernel, (gs_on o, gs_ptr dst, gs_ptr src, uint64_t bytes), (s, dst, src, bytes))

#undef GS_CALL
#undef GS_ON
#undef GS_ON_ALSO
#undef GS_SIZED
#undef GS_WITH
#undef GS_LAUNCH
#endif

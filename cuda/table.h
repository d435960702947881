// The functions of the library, found at run time: a table of their addresses, and
// for each a call through it. gs_table lists abi.h's functions once; gs_open says
// which of them a library lacks.
#ifndef GPT2SCOPE_CUDA_TABLE_H
#define GPT2SCOPE_CUDA_TABLE_H

#include <string.h>

#include "abi.h"

// Every function of abi.h that returns a status: name, parameters, arguments.
#define GS_FUNCTIONS(F) \
  F(gs_versions, (int *driver, int *runtime), (driver, runtime)) \
  F(gs_blas_open, (const char *path, uint64_t *version), (path, version)) \
  F(gs_device_count, (int *count), (count)) \
  F(gs_device_get, (int device, gs_device_info *info), (device, info)) \
  F(gs_device_memory, (int device, uint64_t *free_bytes, uint64_t *total_bytes), (device, free_bytes, total_bytes)) \
  F(gs_alloc, (int device, uint64_t bytes, gs_ptr *out), (device, bytes, out)) \
  F(gs_free, (int device, gs_ptr p), (device, p)) \
  F(gs_alloc_host, (int device, uint64_t bytes, void **out, gs_ptr *device_address), (device, bytes, out, device_address)) \
  F(gs_free_host, (int device, void *p), (device, p)) \
  F(gs_stream_create, (int device, gs_stream **out), (device, out)) \
  F(gs_stream_destroy, (gs_stream *s), (s)) \
  F(gs_stream_synchronize, (gs_stream *s), (s)) \
  F(gs_stream_query, (gs_stream *s, int *done), (s, done)) \
  F(gs_stream_overlap, (gs_stream *s, int on), (s, on)) \
  F(gs_stream_handle, (gs_stream *s, void **out), (s, out)) \
  F(gs_event_create, (int device, int timing, gs_event **out), (device, timing, out)) \
  F(gs_event_destroy, (gs_event *e), (e)) \
  F(gs_event_record, (gs_event *e, gs_stream *s), (e, s)) \
  F(gs_event_synchronize, (gs_event *e), (e)) \
  F(gs_event_query, (gs_event *e, int *done), (e, done)) \
  F(gs_event_elapsed, (gs_event *start, gs_event *end, float *milliseconds), (start, end, milliseconds)) \
  F(gs_stream_wait, (gs_stream *s, gs_event *e), (s, e)) \
  F(gs_copy, (gs_stream *s, uint64_t dst, uint64_t src, uint64_t bytes, int direction), (s, dst, src, bytes, direction)) \
  F(gs_copy_now, (int device, uint64_t dst, uint64_t src, uint64_t bytes, int direction), (device, dst, src, bytes, direction)) \
  F(gs_set, (gs_stream *s, gs_ptr p, int byte, uint64_t bytes), (s, p, byte, bytes)) \
  F(gs_capture_begin, (gs_stream *s), (s)) \
  F(gs_capture_end, (gs_stream *s, gs_graph **out), (s, out)) \
  F(gs_capture_abandon, (gs_stream *s), (s)) \
  F(gs_graph_launch, (gs_graph *g, gs_stream *s), (g, s)) \
  F(gs_graph_nodes, (gs_graph *g, uint64_t *count), (g, count)) \
  F(gs_graph_destroy, (gs_graph *g), (g)) \
  F(gs_nvrtc_open, (const char *path, int *version), (path, version)) \
  F(gs_module_compile, (int device, const char *source, const char *name, const char *const *options, int option_count, char *log, uint64_t log_bytes, gs_module **out), (device, source, name, options, option_count, log, log_bytes, out)) \
  F(gs_module_destroy, (gs_module *m), (m)) \
  F(gs_module_function, (gs_module *m, const char *name, void **out), (m, name, out)) \
  F(gs_function_launch, (void *function, gs_stream *s, const uint32_t grid[3], const uint32_t block[3], uint32_t shared_bytes, void **arguments), (function, s, grid, block, shared_bytes, arguments)) \
  F(gs_function_occupancy, (int device, void *function, int block_threads, uint32_t shared_bytes, gs_occupancy *out), (device, function, block_threads, shared_bytes, out)) \
  F(gs_profiler, (int on), (on)) \
  F(gs_embed, (gs_stream *s, const gs_embed_args *a), (s, a)) \
  F(gs_layernorm, (gs_stream *s, const gs_layernorm_args *a), (s, a)) \
  F(gs_linear, (gs_stream *s, const gs_linear_args *a), (s, a)) \
  F(gs_linear_plan_get, (gs_stream *s, const gs_linear_args *a, gs_linear_plan *out), (s, a, out)) \
  F(gs_linear_plan_set, (gs_stream *s, const gs_linear_args *a, const gs_linear_plan *in), (s, a, in)) \
  F(gs_linear_tune, (gs_stream *s, const gs_linear_args *a, int candidates, gs_linear_plan *out), (s, a, candidates, out)) \
  F(gs_attention, (gs_stream *s, const gs_attention_args *a), (s, a)) \
  F(gs_attention_work, (gs_stream *s, const gs_attention_args *a, uint64_t *bytes), (s, a, bytes)) \
  F(gs_activate, (gs_stream *s, const gs_activation_args *a), (s, a)) \
  F(gs_add, (gs_stream *s, const gs_add_args *a), (s, a)) \
  F(gs_sample, (gs_stream *s, const gs_sample_args *a), (s, a)) \
  F(gs_sample_work, (gs_stream *s, const gs_sample_args *a, uint64_t *bytes), (s, a, bytes)) \
  F(gs_pack, (gs_stream *s, const gs_pack_args *a), (s, a)) \
  F(gs_nothing, (gs_stream *s), (s)) \
  F(gs_barriers, (gs_stream *s, gs_ptr counter, int rounds), (s, counter, rounds)) \
  F(gs_read, (gs_stream *s, gs_ptr p, uint64_t bytes, gs_ptr out), (s, p, bytes, out)) \
  F(gs_copy_kernel, (gs_stream *s, gs_ptr dst, gs_ptr src, uint64_t bytes), (s, dst, src, bytes))

typedef struct {
  void *handle;  // of dlopen
  uint32_t (*gs_abi_version)(void);
  const char *(*gs_error)(void);
  const char *(*gs_variant)(int op, int n);
#define GS_FIELD(name, parameters, arguments) int(*name) parameters;
  GS_FUNCTIONS(GS_FIELD)
#undef GS_FIELD
} gs_table;

// What a call gave. On failure text is a copy of gs_error(), to be freed.
typedef struct {
  int status;
  char *text;
} gs_result;

static inline gs_result gs_result_of(const gs_table *t, int status) {
  gs_result r = {status, status == GS_OK ? 0 : strdup(t->gs_error())};
  return r;
}

#define GS_STRIP(...) __VA_ARGS__
#define GS_CALL(name, parameters, arguments) \
  static inline gs_result call_##name(const gs_table *t, GS_STRIP parameters) { return gs_result_of(t, t->name arguments); }
GS_FUNCTIONS(GS_CALL)
#undef GS_CALL

static inline const char *call_gs_variant(const gs_table *t, int op, int n) { return t->gs_variant(op, n); }

// Opens a library and fills the table. Where that fails, the return value is:
typedef enum {
  GS_OPENED = 0,
  GS_NOT_OPENED = 1,  // text says why
  GS_MISSING = 2,     // text is the function that the library lacks
  GS_VERSION = 3      // *version is the library's
} gs_opening;
int gs_table_open(const char *path, gs_table *t, uint32_t *version, char *text, size_t text_bytes);
void gs_table_close(gs_table *t);

#endif

// The whole C interface between the Go program and the CUDA library that is built from csrc/.
//
// Conventions
//
// * Functions return a status: 0, or one of gs_status. gs_error() returns the message of the calling thread's last
//   failure.
// * Nothing here throws, exits or prints. Launchers (gs_embed and below) neither synchronise nor allocate; they can be
//   captured in a graph.
// * Callers check shapes; C assumes valid input.
// * Device addresses are gs_ptr, so that structs have the same layout in C and Go. Argument structs begin with their
//   own size, which launchers check.
// * Shape letters: B sequences, T new rows of each, M rows, C channels, NH heads, HS head size, V vocabulary, Vp padded
//   vocabulary, P positions. Matrices are row-major; ld is the distance between rows, in elements.
// * Weight matrices are (N, K) for every kernel: one row per output.

#ifndef GPT2SCOPE_CUDA_ABI_H
#define GPT2SCOPE_CUDA_ABI_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Increased by every change of this interface; library and program must have the same.
#define GS_ABI_VERSION 18

#define GS_API __attribute__((visibility("default")))

typedef uint64_t gs_ptr;  // a device address, 0 for none

typedef enum {
  GS_OK = 0,
  // 1 to 9999: a cudaError_t
  GS_BLAS = 10000,   // plus a cublasStatus_t
  GS_NVRTC = 11000,  // plus an nvrtcResult
  GS_ARGUMENT = 20000,     // a struct of an unexpected size, an unknown enum value
  GS_UNSUPPORTED = 20001,  // no kernel for this shape or type on this device
  GS_NO_BLAS = 20002,      // a product needs cuBLASLt, and gs_blas_open was not called
  GS_NO_MEMORY = 20003     // host memory
} gs_status;

// GS_Q8 is for weight matrices, whose columns are a multiple of 32: a row has groups of up to GS_Q8_GROUP weights, each
// GS_Q8_SCALES bytes of scales in bfloat16, one for 32 weights, then an int8 for each weight. A weight is the integer
// times the scale, and may be rounded to bfloat16; what else has this type, such as activations, is bfloat16.
typedef enum { GS_F32 = 0, GS_BF16 = 1, GS_F16 = 2, GS_Q8 = 3 } gs_dtype;
#define GS_Q8_GROUP 256
#define GS_Q8_SCALES 16
// Bytes of a row.
#define GS_Q8_ROW(columns) ((columns) + ((columns) + GS_Q8_GROUP - 1) / GS_Q8_GROUP * GS_Q8_SCALES)
typedef enum { GS_ACT_NONE = 0, GS_GELU_TANH = 1, GS_GELU_ERF = 2, GS_RELU = 3 } gs_activation;

// ---------------------------------------------------------------- library

GS_API uint32_t gs_abi_version(void);
GS_API const char *gs_error(void);

// The CUDA version that the driver supports and the one that the library was built with, as 1000 * major + 10 * minor;
// *driver is 0 if there is no driver.
GS_API int gs_versions(int *driver, int *runtime);

// Opens cuBLASLt; *version is cublasLtGetVersion(). To be called before the first gs_linear whose
// gs_linear_variant is blas.
GS_API int gs_blas_open(const char *path, uint64_t *version);

// ---------------------------------------------------------------- device

typedef struct {
  uint32_t size;
  int32_t major, minor;         // compute capability
  int32_t processors;           // streaming multiprocessors (SMs)
  int32_t threads_per_processor, blocks_per_processor, registers_per_processor;
  int32_t shared_per_processor, shared_per_block;  // bytes; per block: the most that a kernel can be allowed
  int32_t clock_khz, memory_clock_khz;             // maximum
  int32_t memory_bus_bits, l2_bytes;
  int32_t pci_domain, pci_bus, pci_device;
  uint64_t memory_bytes;
  char name[256];
} gs_device_info;

GS_API int gs_device_count(int *count);
GS_API int gs_device_get(int device, gs_device_info *info);
GS_API int gs_device_memory(int device, uint64_t *free_bytes, uint64_t *total_bytes);

// ---------------------------------------------------------------- memory

GS_API int gs_alloc(int device, uint64_t bytes, gs_ptr *out);
GS_API int gs_free(int device, gs_ptr p);
// Pinned host memory, mapped: *device_address is its address for kernels.
GS_API int gs_alloc_host(int device, uint64_t bytes, void **out, gs_ptr *device_address);
GS_API int gs_free_host(int device, void *p);

// ---------------------------------------------------------------- stream, event

// A stream and what its launches need: the workspace of cuBLASLt, the algorithms of its products, whether launches
// overlap (programmatic dependent launch).
typedef struct gs_stream gs_stream;
typedef struct gs_event gs_event;
typedef struct gs_graph gs_graph;

GS_API int gs_stream_create(int device, gs_stream **out);
GS_API int gs_stream_destroy(gs_stream *s);
GS_API int gs_stream_synchronize(gs_stream *s);
GS_API int gs_stream_query(gs_stream *s, int *done);
// Whether kernels may start while the one before them ends, from compute capability 9.0 on. On by default.
GS_API int gs_stream_overlap(gs_stream *s, int on);

GS_API int gs_event_create(int device, gs_event **out);
GS_API int gs_event_destroy(gs_event *e);
GS_API int gs_event_record(gs_event *e, gs_stream *s);
GS_API int gs_event_synchronize(gs_event *e);
GS_API int gs_event_elapsed(gs_event *start, gs_event *end, float *milliseconds);
GS_API int gs_stream_wait(gs_stream *s, gs_event *e);

// ---------------------------------------------------------------- copy

typedef enum { GS_TO_DEVICE = 1, GS_TO_HOST = 2, GS_ON_DEVICE = 3 } gs_direction;

// Asynchronous. Host memory must come from gs_alloc_host.
GS_API int gs_copy(gs_stream *s, uint64_t dst, uint64_t src, uint64_t bytes, int direction);
// Returns when the copy is done. Host memory may be any.
GS_API int gs_copy_now(int device, uint64_t dst, uint64_t src, uint64_t bytes, int direction);
GS_API int gs_set(gs_stream *s, gs_ptr p, int byte, uint64_t bytes);

// ---------------------------------------------------------------- graph

// Launches between begin and end become nodes of a graph (thread-local capture).
GS_API int gs_capture_begin(gs_stream *s);
GS_API int gs_capture_end(gs_stream *s, gs_graph **out);   // instantiated and uploaded
GS_API int gs_capture_abandon(gs_stream *s);
GS_API int gs_graph_launch(gs_graph *g, gs_stream *s);
GS_API int gs_graph_destroy(gs_graph *g);

// ---------------------------------------------------------------- module (NVRTC)

typedef struct gs_module gs_module;

GS_API int gs_nvrtc_open(const char *path);
// Compiles CUDA C++ for the device. If that fails, log receives the compiler's log.
GS_API int gs_module_compile(int device, const char *source, const char *name, char *log, uint64_t log_bytes,
                             gs_module **out);
GS_API int gs_module_destroy(gs_module *m);
GS_API int gs_module_function(gs_module *m, const char *name, void **out);
GS_API int gs_function_launch(void *function, gs_stream *s, const uint32_t grid[3], const uint32_t block[3],
                              uint32_t shared_bytes, void **arguments);

typedef struct {
  uint32_t size;
  int32_t registers, local_bytes;
  int32_t blocks_per_processor;  // resident blocks of that many threads and shared bytes
} gs_occupancy;
GS_API int gs_function_occupancy(int device, void *function, int block_threads, uint32_t shared_bytes,
                                 gs_occupancy *out);

// ---------------------------------------------------------------- operations

typedef enum {
  GS_OP_EMBED,
  GS_OP_LAYERNORM,
  GS_OP_LINEAR,
  GS_OP_ATTENTION,
  GS_OP_ACTIVATION,
  GS_OP_ADD,
  GS_OP_SAMPLE,
  GS_OPS
} gs_op;

// The name of an op's n-th kernel variant, null past the last. Variant 0 is "auto", which chooses by shape; 1 is
// "naive", the simplest kernel.
GS_API const char *gs_variant(int op, int n);

// Rows of a pass: row r of sequence b is at position pos[b] + r - *pad of its text; pos[b] is the number of tokens in
// the KV cache. If a captured pass has more rows than the prompt, the first *pad rows of each sequence are idle.

// x = wte[id] + wpe[position]; idle rows become 0.
typedef struct {
  uint32_t size;
  int32_t dtype;     // of wte and wpe; with GS_Q8 wpe is bfloat16
  gs_ptr ids;        // (B, T) int32
  gs_ptr pos;        // (B) int32
  gs_ptr pad;        // (1) int32, or 0 for none
  gs_ptr wte, wpe;   // (V, C), (P, C)
  gs_ptr x;          // (B, T, C) float32
  int32_t B, T, C, P;
} gs_embed_args;
GS_API int gs_embed(gs_stream *s, const gs_embed_args *a);

// x = x + add, if add is given; y = (x - mean) / sqrt(var + eps) * gain + bias.
typedef struct {
  uint32_t size;
  int32_t variant;
  gs_ptr x;              // (M, C) float32; written only if add is given
  gs_ptr add;            // (M, C) of add_type, or 0
  gs_ptr gain, bias;     // (C) float32
  gs_ptr y;              // (M, C) of y_type
  int32_t M, C, ldx, ldadd, ldy;
  int32_t add_type, y_type;
  float eps;
} gs_layernorm_args;
GS_API int gs_layernorm(gs_stream *s, const gs_layernorm_args *a);

// y = act(norm(x) W^T + bias), or y += norm(x) W^T + bias.
typedef struct {
  uint32_t size;
  int32_t variant;
  gs_ptr x;              // (M, K) of dtype; float32 if gain is given
  gs_ptr w;              // (N, K) of dtype; GS_Q8 for variants gemv and rows only
  gs_ptr bias;           // (N) float32, or 0
  gs_ptr bias_bf16;      // (N) the same in bfloat16, or 0: cuBLASLt takes it for bfloat16 outputs
  gs_ptr gain, shift;    // (K) float32: gain and bias of a LayerNorm of x, or 0. Only up to GS_GEMV_ROWS rows
  gs_ptr y;              // (M, N) of y_type
  int32_t M, N, K, ldx, ldy;
  int32_t dtype, y_type;
  int32_t act;           // gs_activation
  int32_t accumulate;    // y += ...: y is float32, act is GS_ACT_NONE
  float eps;
} gs_linear_args;
GS_API int gs_linear(gs_stream *s, const gs_linear_args *a);
// The variant that gs_linear takes: another one than the arguments' if that is "auto". Of pointers only the alignment
// counts.
GS_API int gs_linear_variant(gs_stream *s, const gs_linear_args *a, int *variant);

// The most rows for which "auto" uses matrix-vector kernels.
#define GS_GEMV_ROWS 8
// The most rows of variant rows.
#define GS_FEW_ROWS 32
// The most rows for which it uses kernels of our own for tensor cores, where the GPU has those, instead of cuBLASLt,
// also for sums in float32; into bfloat16 there is no limit.
#define GS_WGMMA_ROWS 2048
// The device memory of a stream for cuBLASLt, in bytes: what NVIDIA recommends for Hopper.
#define GS_BLAS_WORKSPACE (32 << 20)

// Makes the stream keep an algorithm of cuBLASLt for a product, of which only shape and types count: the first of the
// heuristic where it keeps none. With candidates it runs the product with up to so many, which synchronises and
// overwrites y, and keeps the fastest.
GS_API int gs_linear_tune(gs_stream *s, const gs_linear_args *a, int candidates);

// Stores K and V of the T new rows in the cache; y = softmax(scale q k^T, causal) v for the last Q rows of each
// sequence. Q is T, 1 or 0.
typedef struct {
  uint32_t size;
  int32_t variant;
  gs_ptr qkv;                // (B*T, 3*C) of dtype: q, k, v, each head after head
  gs_ptr k_cache, v_cache;   // (B, NH, P, HS) of dtype; with wide int8, then float32 scales (B, NH, P)
  gs_ptr wide;               // 0, or for a cache in 8 bits room for k_cache and then v_cache in dtype
  gs_ptr pos, pad;           // as in gs_embed
  gs_ptr y;                  // (B*Q, C) of dtype, rows ldy apart; idle rows become 0
  gs_ptr work;               // gs_attention_work bytes, zeroed once by the caller, shared by all launches of a stream
  int32_t B, T, Q, NH, HS, P;
  int32_t ldqkv, ldy;
  int32_t dtype;
  float scale;
} gs_attention_args;
GS_API int gs_attention(gs_stream *s, const gs_attention_args *a);
GS_API int gs_attention_work(gs_stream *s, const gs_attention_args *a, uint64_t *bytes);

// y = act(x + bias); y may be x.
typedef struct {
  uint32_t size;
  int32_t variant;
  gs_ptr x, y;        // (M, N) of dtype
  gs_ptr bias;        // (N) float32, or 0
  int32_t M, N, ldx, ldy;
  int32_t dtype, act;
} gs_activation_args;
GS_API int gs_activate(gs_stream *s, const gs_activation_args *a);

// x = x + z.
typedef struct {
  uint32_t size;
  int32_t variant;
  gs_ptr x;           // (M, N) float32
  gs_ptr z;           // (M, N) of dtype
  int32_t M, N, ldx, ldz;
  int32_t dtype;
} gs_add_args;
GS_API int gs_add(gs_stream *s, const gs_add_args *a);

// How to sample, in device memory, so that a captured step never changes. Order and arithmetic are those of
// gpt2.Sampler: temperature, top-k, top-p, then the token at u of the cumulative distribution in order of descending
// logit (ascending id among equals). u is from Philox4x32-10 with key seed and counter (position low, position high,
// sequence, 0).
typedef struct {
  double temperature;   // 0: greedy
  double top_p;         // 0 or 1: all
  uint64_t seed;
  uint64_t offset;      // added to positions
  uint64_t step;        // number of launches, increased by gs_sample
  int32_t top_k;        // 0: all
  int32_t log_probs;    // whether slots get the log-probability
} gs_sampling;

// The result of a launch, one per sequence, in pinned host memory.
typedef struct {
  uint64_t sequence;     // step + 1, written last
  int32_t token;         // -1: the logits were not finite
  float log_probability; // at temperature 1; NaN if not requested
  int64_t position;      // of the token in its text, offset included
  uint64_t time;         // %globaltimer, nanoseconds
  // with verify, of the pass, in the slot of its first token, -1 in those of others; else left as it was
  int32_t rows;
  int32_t verify;        // and ns since the last draft was made by exit layers, 0 if none was
} gs_slot;

// token = sample(logits); pos[b] += T - *pad; step += 1. If the logits are those of a gs_persistent in which a block
// waited too long, slots say so as those of gs_persistent do.
typedef struct {
  uint32_t size;
  int32_t variant;
  gs_ptr logits;      // (B, V) float32, rows ld apart
  gs_ptr sampling;    // gs_sampling
  gs_ptr pos;         // (B) int32
  gs_ptr pad;         // (1) int32, or 0
  gs_ptr tokens;      // (B) int32
  gs_ptr slots;       // (count, B) gs_slot; step s writes row s % count
  gs_ptr work;        // gs_sample_work bytes, zeroed once by the caller
  int32_t B, V, ld, T;
  int32_t count;
  gs_ptr persistent_work; // the work area of the gs_persistent that wrote the logits, or 0
} gs_sample_args;
GS_API int gs_sample(gs_stream *s, const gs_sample_args *a);
GS_API int gs_sample_work(gs_stream *s, const gs_sample_args *a, uint64_t *bytes);

// Converts (rows, cols) of src_type, dense, to dst_type, GS_F32 or GS_BF16; transposed: dst is (cols, rows). dst rows
// are lddst apart. Or to GS_Q8, in rows of lddst weights, from column `first` of dst on: a scale is the largest
// magnitude of 32 weights over 127. GS_Q8 is converted to GS_BF16 only, not transposed.
typedef struct {
  uint32_t size;
  int32_t transpose;
  gs_ptr src, dst;
  int32_t rows, cols, lddst;
  int32_t src_type, dst_type;
  int32_t first;       // with GS_Q8: a multiple of 32, else 0
} gs_pack_args;
GS_API int gs_pack(gs_stream *s, const gs_pack_args *a);

// ---------------------------------------------------------------- decode steps in one kernel
//
// gs_persistent runs whole decode steps, one after another, in one cooperative kernel of a block per SM: it interprets
// a program, an array of steps in device memory, five a layer (a Linear, attention, three Linears) and the logits. 1 to
// GS_PERSISTENT_SEQUENCES sequences, weights in bfloat16 or 8 bits, cache in bfloat16. Or it runs a prompt of up to
// GS_PERSISTENT_ROWS tokens of one sequence. docs/persistent.md describes how.

typedef enum { GS_PERSISTENT_LINEAR = 0, GS_PERSISTENT_ATTENTION = 1 } gs_persistent_kind;

// What a Linear of the program reads and writes.
typedef enum {
  GS_PERSISTENT_EMBEDDING = 0,  // in: wte[token] + wpe[position], normalised
  GS_PERSISTENT_RESIDUAL = 1,   // in: the residual stream, normalised; out: added to it
  GS_PERSISTENT_HIDDEN = 2,     // in, out: between the two products of an MLP, in bfloat16
  GS_PERSISTENT_ATTENDED = 3,   // in: the output of attention
  GS_PERSISTENT_QKV = 4,        // out: the input of attention, in bfloat16
  GS_PERSISTENT_LOGITS = 5      // out: float32; the last step of the program
} gs_persistent_data;

typedef struct {
  int32_t kind;        // gs_persistent_kind
  int32_t in, out;     // gs_persistent_data; of a Linear
  int32_t act;         // gs_activation of a Linear: GS_ACT_NONE or GS_GELU_TANH
  int32_t N, K;        // of a Linear
  gs_ptr w;            // (N, K), of the type of gs_persistent_args
  gs_ptr bias;         // (N) float32, or 0; if the input is normalised, that of gs_fold
  gs_ptr gain;         // (K) float32 if the input is normalised, else 0
  gs_ptr sums;         // (N) float32 of gs_fold if the input is normalised, else 0
  gs_ptr k_cache, v_cache;  // (B, NH, P, HS) bfloat16, of an attention step
} gs_persistent_step;

// What a LayerNorm before a product W adds to each output, so that it is done after the product: with n = (x - mean) /
// deviation,
// W (n gain + shift) + bias = (W (x gain) - mean sums) / deviation + folded.
typedef struct {
  uint32_t size;
  int32_t N, K;
  gs_ptr w;            // (N, K) of dtype, GS_BF16 or GS_Q8
  gs_ptr gain, shift;  // (K) float32
  gs_ptr bias;         // (N) float32, or 0
  gs_ptr sums;         // (N) float32: W gain
  gs_ptr folded;       // (N) float32: W shift + bias
  int32_t dtype;
} gs_fold_args;
GS_API int gs_fold(gs_stream *s, const gs_fold_args *a);

// token = argmax of the logits of each of `tokens` steps: pos += tokens, gs_sampling.step += tokens, and slots per
// step, as by gs_sample. At most GS_PERSISTENT_TOKENS. If candidates is not 0, the token that gs_sample samples from
// the same logits, and its log-probability: candidates is 1 for the argmax, else top_k or V. Or, if logits_only is not
// 0, the logits of one step, which a gs_sample then samples from. If rows is not 0, tokens is 1 and the step is that of
// a prompt: all its rows at the positions from pos on, the logits and the token of the last one; pos += rows.
// candidates is then 0. If a block waits longer than `timeout` for another one, or 7/8 of that for weights, the slots
// of this launch get the token GS_SLOT_TIMEOUT and the position 65536 * step of the program + block, and
// GS_PERSISTENT_FOR_WEIGHTS in it; the caller then sets the work area to zero.
typedef struct {
  uint32_t size;
  int32_t count;       // steps of the program
  gs_ptr steps;        // (count) gs_persistent_step
  gs_ptr wte, wpe;     // (V, C) of dtype, (P, C) bfloat16
  gs_ptr sampling;     // gs_sampling, of which step is increased; top_k is not read
  gs_ptr pos;          // (B) int32
  gs_ptr tokens_io;    // (B) int32: the tokens to begin with, then the last ones
  gs_ptr slots;        // (slot_count, B) gs_slot
  gs_ptr logits;       // (B, V) float32, of the last step, rows ld apart
  gs_ptr work;         // gs_persistent_work bytes, zeroed once by the caller; of one stream
  int32_t C, NH, P, V;
  int32_t B, ld;
  int32_t slot_count;
  int32_t tokens;      // steps to run, at most as many as gs_persistent_work says; 0: the kernel is loaded, not run
  int32_t timeout;     // milliseconds
  float eps;           // of LayerNorm
  int32_t logits_only;
  int32_t blocks;      // of the grid; 0: one per SM
  // (passes, count + 1, blocks, 4) uint64, zeroed by the caller, or 0: see gs_persistent_stamp. There are `tokens`
  // passes at most, with exit `verify` times as many.
  gs_ptr stamps;
  // 0: the argmax, without a log-probability; else up to GS_PERSISTENT_CANDIDATES, or V <= GS_PERSISTENT_CANDIDATES_ALL
  int32_t candidates;
  int32_t rows;        // 0, or the tokens of a prompt, 2 to GS_PERSISTENT_ROWS
  gs_ptr ids;          // (rows) int32: the prompt
  int32_t dtype;       // of weights: GS_BF16 or GS_Q8
  // 0, or 2 to GS_PERSISTENT_VERIFY: passes of up to so many rows verify drafts: without exit, the tokens that followed
  // the last ones where they occurred in the text before. Tokens are those of steps of one row; logits are so many
  // rows, ld apart.
  int32_t verify;
  int32_t exit;        // with verify: so many layers draft instead, with the logits after them; 0: none do
  // with exit: they draft no more in a launch after so many passes whose first draft was wrong; 0: they go on
  int32_t trial;
  gs_ptr text;         // (P + 1) int32: the tokens up to the last one, to which launches add theirs; 0: without verify
} gs_persistent_args;
// When a block did what in a step of the program, by %globaltimer; 0 if it has no part in the step. Row `count` is the
// choice of the token.
typedef enum {
  // its first warp has the weights, or the keys and values, that it needs first; may be 0 if it did not wait for them
  GS_PERSISTENT_READY = 0,
  GS_PERSISTENT_ARRIVED = 1,    // and the inputs
  // of the choice of the token, of a pass that verifies drafts: its rows, and 256 times the tokens that it made, which
  // are 0 of a pass that drafts
  GS_PERSISTENT_MADE = 2,
  GS_PERSISTENT_PUBLISHED = 3,  // the last outputs were stored for the other blocks
} gs_persistent_stamp;
#define GS_PERSISTENT_TOKENS 16
#define GS_PERSISTENT_SEQUENCES 8
#define GS_PERSISTENT_ROWS 8
#define GS_PERSISTENT_VERIFY 4
#define GS_PERSISTENT_CANDIDATES 128
#define GS_PERSISTENT_CANDIDATES_ALL 320
#define GS_SLOT_TIMEOUT (-2)
#define GS_PERSISTENT_FOR_WEIGHTS 0x8000
typedef struct {     // the first bytes of work
  uint32_t epoch;    // of the last step that ran
  uint32_t expired;  // 0, or 2^31 + what slots get as the position: a block waited too long
} gs_persistent_header;
GS_API int gs_persistent(gs_stream *s, const gs_persistent_args *a);
// One step of the program in a launch of its own, its results bit by bit those of gs_persistent. Launches of all steps
// in order are the decode step of the tokens at *pos up to their logits; a gs_sample takes the tokens. `tail` is how
// many tokens before this one a launch of gs_persistent would have begun, less than as many as gs_persistent_work says:
// attention divides keys by where that is. `epoch` is the same for all steps of a token, and that of the next token is
// `count` more. So it is of a prompt, where tail is 0. Of the arguments slots, stamps, tokens and logits_only are not
// read.
GS_API int gs_persistent_one(gs_stream *s, const gs_persistent_args *a, int step, int tail, uint32_t epoch);
// The bytes of the work area, and how many steps a launch may run: at most GS_PERSISTENT_TOKENS, half of that of
// several sequences or a width above 768, and 1 of a prompt; fewer if candidates is not 0, since to sample takes shared
// memory. The bytes are the same. GS_UNSUPPORTED, with the reason as message, if the device or the model's shape has no
// such kernel; of the arguments only count, C, NH, P, V, B, blocks, candidates, rows, dtype and verify are read.
GS_API int gs_persistent_work(gs_stream *s, const gs_persistent_args *a, uint64_t *bytes, int32_t *tokens);

// ---------------------------------------------------------------- stamps
//
// A kernel of this library can record when it ran, by %globaltimer: a thread of each block writes when the block had
// waited for the kernels before it, and when it was done. An area holds the stamps of one kernel: GS_STAMP_SLOTS pairs
// of start and end (uint64). If there are more blocks, the first and the last GS_STAMP_SLOTS/2 write theirs.

#define GS_STAMP_SLOTS 2048
#define GS_STAMP_AREA (16 * GS_STAMP_SLOTS)

// From now on each kernel launched on the stream takes the next of `count` areas, which the caller has zeroed once.
// Kernels take none if areas is 0; kernels of NVIDIA's libraries never take one.
GS_API int gs_stamps_into(gs_stream *s, gs_ptr areas, uint32_t count);
// How many areas kernels have needed since then; if that is more than count, some got none.
GS_API int gs_stamps_used(gs_stream *s, uint32_t *used);
// The kernel that took an area, such as "gemv", null past the last; and its blocks.
GS_API int gs_stamp_taken_by(gs_stream *s, uint32_t area, const char **name, uint32_t *blocks);
// The marker kernel: it only takes an area.
GS_API int gs_stamp_mark(gs_stream *s);

// ring[passes[i], i] = the least start and the greatest end in area i; passes[i] += 1. The ring is (rows, count) pairs
// of uint64; later passes than it has rows are not stored. passes is (count) uint64, blocks (count) uint32: the blocks
// of the areas' kernels.
typedef struct {
  uint32_t size;
  uint32_t count, rows;
  gs_ptr areas, blocks, ring, passes;
} gs_collect_args;
GS_API int gs_stamps_collect(gs_stream *s, const gs_collect_args *a);

// A comparison of %globaltimer with the host's CLOCK_MONOTONIC, in ns.
typedef struct {
  int64_t host, device;   // the same moment on both clocks
  int64_t uncertainty;    // the most by which host and device differ
  int64_t resolution;     // least step of %globaltimer that was observed
} gs_clock_pair;
// Waits for the stream, then compares the clocks through at least 64 bytes of host memory from gs_alloc_host.
GS_API int gs_clock_compare(gs_stream *s, void *host, gs_ptr device_address, gs_clock_pair *out);

// ---------------------------------------------------------------- ceilings

// An empty kernel of one block, to measure a launch.
GS_API int gs_empty_kernel(gs_stream *s);
// `rounds` hops between all SMs, in a grid of one block per SM: in each, every block publishes `packets` packets of 16
// bytes, 12 of values and an epoch, and then waits until it has read those of all blocks. work is GS_HOP_HEADER + 2 *
// 16 * packets * SMs bytes, zeros before the first launch; epochs go on from launch to launch. GS_UNSUPPORTED below
// compute capability 9.0, and for more packets than the threads of a block read at once.
//
// With N = 3 * packets * SMs values x of 32 bits, x = 0 before the first round of a launch: in round r = 1, 2, ... x[i]
// becomes i + x[(i + 3 * packets * (r-1)) % N], modulo 2^32.
#define GS_HOP_HEADER 256
typedef struct {   // the first bytes of work
  uint32_t epoch;  // rounds of all launches; packets of epoch e are in the buffer e % 2
  uint32_t late;   // 1 if a block waited a second for a unit: the rounds did not complete
} gs_hop_header;
GS_API int gs_hops(gs_stream *s, gs_ptr work, int packets, int rounds);
// Reads bytes once, with the loads that the kernels here use; out is 4 bytes.
GS_API int gs_read(gs_stream *s, gs_ptr p, uint64_t bytes, gs_ptr out);
// Reads turns * GS_CACHE_TURN bytes, passes times, in one kernel with a block for each turn; out is 4 bytes. With so
// few bytes that the L2 cache holds them, that is the cache's rate.
#define GS_CACHE_TURN 16384
GS_API int gs_read_again(gs_stream *s, gs_ptr p, uint32_t turns, uint32_t passes, gs_ptr out);
// dst = src, 16 bytes per access of a thread.
GS_API int gs_copy_kernel(gs_stream *s, gs_ptr dst, gs_ptr src, uint64_t bytes);

#ifdef __cplusplus
}
#endif
#endif

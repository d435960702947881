// The C interface between package cupti and libgpt2scope_cupti, made of csrc/cupti.c and inject.c with the headers of
// NVIDIA's CUPTI. The Go program needs neither to build.
//
// * CUPTI calls back on threads of its own and on those that call CUDA. There the library only puts records aside;
//   drain() takes them from there.
// * There is one recorder in a process, since CUPTI has one subscriber.
// * push() and pop() belong to the calling OS thread. drain(), flush() and the others must not be called at the same
//   time as one another.

#ifndef GPT2SCOPE_CUPTI_RECORDER_H
#define GPT2SCOPE_CUPTI_RECORDER_H

#include <stddef.h>
#include <stdint.h>

// Raised by whatever changes this file; library and program must agree.
#define GS_CUPTI_ABI_VERSION 5

#define GS_CUPTI_API __attribute__((visibility("default")))

// What a record is of.
enum {
  GS_CUPTI_QUERIES,  // only in options.kinds: of the calls also those that only ask
  GS_CUPTI_KERNEL,
  GS_CUPTI_MEMCPY,
  GS_CUPTI_MEMCPY_PEER,
  GS_CUPTI_MEMSET,
  GS_CUPTI_RUNTIME,
  GS_CUPTI_DRIVER,
  GS_CUPTI_SYNC,
  GS_CUPTI_OVERHEAD,
  GS_CUPTI_EXTERNAL,  // ties the tag of a push to a correlation id
  GS_CUPTI_NODE,      // a graph node was made
  GS_CUPTI_GRAPH,     // a graph ran, in place of its nodes
  GS_CUPTI_MEMORY,    // memory was allocated (detail 1) or freed (2)
  GS_CUPTI_DEVICE,    // what a GPU is: see read_device in cupti.c
  GS_CUPTI_KINDS,
  // Only in spools:
  GS_SPOOL_RANGE = GS_CUPTI_KINDS,  // NVTX; detail is one of gs_range, times are of CLOCK_MONOTONIC
  GS_SPOOL_TEXT,                    // name_length bytes follow, padded to 8; records have the hash in name as its name
};

// A record, whatever CUPTI's struct for it is in the version that was loaded. What does not belong to its kind is 0.
typedef struct {
  int32_t kind;
  uint32_t device, context, stream;  // stream 0xffffffff: all of the context
  uint64_t start, end;               // ns, by CUPTI's clock; 0: not known
  uint64_t correlation;
  uint64_t tag;                      // of an EXTERNAL; of a NODE, what was pushed on its thread
  uint64_t node, origin;             // graph node; of a NODE, what it was cloned from
  uint64_t bytes;
  const char *name;                  // of a kernel, mangled, or call; valid until the process ends
  uint32_t name_length;
  uint32_t graph;                    // graph that ran; of a NODE, its type (CUgraphNodeType)
  int32_t grid[3], block[3];
  uint32_t registers;                // per thread
  int32_t static_shared, dynamic_shared;  // bytes per block
  uint32_t process, thread;
  uint32_t detail;                   // callback id of a call, type of a sync, kind of an overhead
  uint8_t copy_kind, from, to;       // of copies and sets (to): CUpti_ActivityMemcpyKind, CUpti_ActivityMemoryKind
  uint8_t tagged;                    // of a NODE: something was pushed
} gs_cupti_record;

typedef struct {
  uint64_t kinds;           // 1 << GS_CUPTI_KERNEL and so on: what to record
  uint64_t buffer_size;     // bytes of an activity buffer
  uint32_t buffers;         // at most
  uint32_t ready;           // how many of them are made at once
  uint32_t nodes;           // graph nodes that are kept until they are drained
  uint64_t device_buffer;   // bytes of a buffer on the device; 0: CUPTI's default
  uint32_t device_buffers;  // how many are made with a context; 0: CUPTI's default
} gs_cupti_options;

// A call of CUPTI that failed.
typedef struct {
  int32_t code;       // CUptiResult; 0 where it was not a call of CUPTI's
  int32_t kind;       // that was enabled, 0 where it was another call
  char call[64];      // "" where libcupti could not be opened
  char text[512];     // the library's words; of another subscriber, its name
} gs_cupti_error;

// What was lost so far.
typedef struct {
  uint64_t records;   // CUPTI had no buffer for them
  uint64_t nodes;     // there was no room for them
  uint64_t damaged;   // buffers whose rest could not be read
  uint64_t pushes;    // that were nested too deeply to be noted
} gs_cupti_losses;

typedef struct {
  uint32_t version;        // cuptiGetVersion
  uint32_t known;          // the newest version that the library knows structs of
  uint64_t refused;        // bit of each kind that could not be recorded
  int32_t fatal;           // CUptiResult with which CUPTI detached itself; 0: it did not
} gs_cupti_state;

// One moment by three clocks, in ns.
typedef struct {
  uint64_t cupti;
  int64_t monotonic, realtime;
  int64_t uncertainty;  // how far they may be apart
} gs_cupti_clock;

// All that return int32_t give 0, or -1 and what went wrong in error.
typedef struct {
  uint32_t version;  // GS_CUPTI_ABI_VERSION of the library
  // Opens the first libcupti that can be, of paths and names that the loader finds, each after a newline, and subscribes:
  // from here on graph nodes are noted. An error without call and text says that there is none.
  int32_t (*open)(const char *paths, const gs_cupti_options *options, gs_cupti_error *error);
  int32_t (*start)(gs_cupti_error *error);
  int32_t (*stop)(gs_cupti_error *error);
  int32_t (*flush)(int32_t forced, gs_cupti_error *error);
  int32_t (*close)(gs_cupti_error *error);
  void (*push)(uint64_t tag);
  void (*pop)(void);
  // Takes up to max records, and returns how many there were.
  int32_t (*drain)(gs_cupti_record *records, int32_t max);
  void (*losses)(gs_cupti_losses *losses);
  void (*state)(gs_cupti_state *state);
  int32_t (*clock)(gs_cupti_clock *clock, gs_cupti_error *error);
} gs_cupti_table;

GS_CUPTI_API const gs_cupti_table *gs_cupti(void);

// Recording a program that knows nothing of it: CUDA loads the library that CUDA_INJECTION64_PATH names and calls
// InitializeInjection, NVTX likewise by NVTX_INJECTION64_PATH. GS_SPOOL_ENV names a folder with a file "control", from
// which all processes take what to do; each writes a spool PROCESS.N beside it: a header, then records.
#define GS_SPOOL_ENV "GPT2SCOPE_RECORD"

typedef struct {
  uint32_t version;          // GS_CUPTI_ABI_VERSION
  int32_t on;                // 1: record, 0: do not, -1: end
  int64_t limit;             // bytes of all spools together
  int64_t used;              // bytes that were written and not yet given back
  gs_cupti_options options;  // their kinds say what to record
  char libraries[8192];      // paths of libcupti to try, each after a newline
} gs_spool_control;

typedef struct {
  uint32_t version, process;
  int32_t state;             // one of gs_spool_states
  int32_t cuda;              // 1: CUDA was started
  int64_t size;              // bytes of the spool that hold whole records
  gs_cupti_clock first, last;
  gs_cupti_state cupti;      // version 0: CUPTI was not opened
  gs_cupti_losses losses;
  uint64_t unspooled;        // records for which the spool had no room
  int32_t failure;           // errno of a write
  int32_t refused;           // 1: CUPTI could not be opened
  gs_cupti_error error;      // why CUPTI could not be used, or a call of it failed
  char command[256];         // arguments, each with a zero byte at its end
} gs_spool_header;

enum gs_spool_states { GS_SPOOL_RUNS, GS_SPOOL_EXITED, GS_SPOOL_STOPPED };

// tag is the payload of a push, start or mark where tagged is 1, device the colour, origin and node are the texts of
// domain and category; correlation ties a start to its end.
enum gs_range { GS_RANGE_PUSH, GS_RANGE_POP, GS_RANGE_START, GS_RANGE_END, GS_RANGE_MARK };

#endif

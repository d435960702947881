// What a test tells the stub of the CUDA library, and what the stub tells the test, under its mutex.

#ifndef GPT2SCOPE_CUDA_STUB_H
#define GPT2SCOPE_CUDA_STUB_H

#include <pthread.h>
#include <stdint.h>

typedef struct {
  pthread_mutex_t mutex;
  long live;              // allocations and objects not yet freed
  char *calls;            // names, each followed by a newline
  size_t calls_length;
  char failing[64];       // what is to fail: a function, "alloc", "launch"; "lost" is every call from the n-th on
  int failing_in;         // at the n-th call from now
  int lost;               // the device is
  uint64_t memory_limit;  // bytes that may be allocated on all devices together; 0: any
  uint64_t memory_used;
  int not_finite_in;      // at the n-th sampling from now the logits of the last sequence are not finite
  char refusal[200];      // the message of gs_persistent_work, "" if there is a kernel
  int decode_status;      // of gs_persistent, without a launch, if it is not 0
  int timeout_in;         // at the n-th gs_persistent from now a block waits too long
  int timeout_at;         // the position that its slots get
  int spoiled_op, spoiled_variant;  // the variant of an operation that is computed wrong; -1 for none
} gs_stub;

#endif

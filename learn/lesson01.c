#include "lesson01.h"

#include <string.h>

#ifdef __clang__
#define ONE_BY_ONE
#define NO_VECTORS _Pragma("clang loop vectorize(disable) interleave(disable)")
#else
#define ONE_BY_ONE __attribute__((optimize("no-tree-vectorize")))
#define NO_VECTORS
#endif

ONE_BY_ONE void learn_add(float *restrict z, const float *restrict x, const float *restrict y, long n) {
  NO_VECTORS
  for (long i = 0; i < n; i++) z[i] = x[i] + y[i];
}

typedef float vector __attribute__((vector_size(64), aligned(4)));

void learn_add_vectors(float *restrict z, const float *restrict x, const float *restrict y, long n) {
  for (long i = 0; i < n; i += 16) *(vector *)(z + i) = *(const vector *)(x + i) + *(const vector *)(y + i);
}

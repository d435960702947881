#include "lesson06.h"

#include <math.h>

static float square(float a) { return a * a; }

void learn_multiply(float *restrict y, const float *restrict x, long n) {
  for (long i = 0; i < n; i++) y[i] = x[i] * x[i];
}

void learn_square(float *restrict y, const float *restrict x, long n) {
  for (long i = 0; i < n; i++) y[i] = square(x[i]);
}

// Compilers make one multiplication of it.
void learn_power(float *restrict y, const float *restrict x, long n) {
  for (long i = 0; i < n; i++) y[i] = powf(x[i], 2.0f);
}

// As many bytes, without a multiplication. Of a plain copy compilers make a call of memcpy, whose
// stores pass by the cache.
void learn_negate(float *restrict y, const float *restrict x, long n) {
  for (long i = 0; i < n; i++) y[i] = -x[i];
}

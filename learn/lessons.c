#include "lessons.h"

#include <dlfcn.h>
#include <features.h>
#include <math.h>
#include <stddef.h>

#ifdef __clang__
#define NO_VECTORS
#else
#define NO_VECTORS __attribute__((optimize("no-tree-vectorize", "no-tree-slp-vectorize")))
#endif

// The widest vectors of the processor, where the C library chooses between versions of a function.
#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__clang__)
#define WIDEST __attribute__((target_clones("avx512f", "avx2,fma", "default")))
#else
#define WIDEST
#endif

NO_VECTORS float learn_chain(long steps) {
  float x = 2;  // 1 would stay 1, which compilers know
  for (long i = 0; i < steps; i++) x = x * 0.999f + 0.001f;
  return x;
}

NO_VECTORS float learn_chains(long steps) {
  float a = 2, b = 3, c = 4, d = 5, e = 6, f = 7, g = 8, h = 9;
  for (long i = 0; i < steps; i++) {
    a = a * 0.999f + 0.001f, b = b * 0.999f + 0.001f, c = c * 0.999f + 0.001f, d = d * 0.999f + 0.001f;
    e = e * 0.999f + 0.001f, f = f * 0.999f + 0.001f, g = g * 0.999f + 0.001f, h = h * 0.999f + 0.001f;
  }
  return a + b + c + d + e + f + g + h;
}

typedef float vector __attribute__((vector_size(64)));

WIDEST float learn_vectors(long steps) {
  vector a = {2}, b = {3}, c = {4}, d = {5};
  for (long i = 0; i < steps; i++) {
    a = a * 0.999f + 0.001f;
    b = b * 0.999f + 0.001f;
    c = c * 0.999f + 0.001f;
    d = d * 0.999f + 0.001f;
  }
  a += b + c + d;
  float sum = 0;
  for (int i = 0; i < 16; i++) sum += a[i];
  return sum;
}

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

// The calls of the driver that lesson 14 makes, each in the context that the CUDA library works in.
static struct {
  int (*retain)(void **, int), (*release)(int), (*push)(void *), (*pop)(void **), (*wait)(void);
  int (*allocate)(unsigned long long *, size_t, unsigned), (*prefetch)(unsigned long long, size_t, int, void *);
  int (*release_memory)(unsigned long long);
} cu;

static const char *open_driver(void) {
  void *lib = dlopen("libcuda.so.1", RTLD_NOW);
  if (!lib) return "the driver's libcuda.so.1 cannot be opened";
  const char *names[] = {"cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRelease_v2", "cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2",
                         "cuCtxSynchronize", "cuMemAllocManaged", "cuMemPrefetchAsync", "cuMemFree_v2"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (!(((void **)&cu)[i] = dlsym(lib, names[i]))) return names[i];
  return NULL;
}

static int enter(int device) {
  void *context;
  const int failed = cu.retain(&context, device);
  return failed ? failed : cu.push(context);
}

static int leave(int device, int failed) {
  void *context;
  cu.pop(&context);
  cu.release(device);
  return failed;
}

void *learn_managed(int device, long bytes, const char **why) {
  const unsigned global = 1;  // CU_MEM_ATTACH_GLOBAL
  unsigned long long p = 0;
  if ((*why = open_driver())) return NULL;
  *why = "the driver gives no unified memory";
  return enter(device) || leave(device, cu.allocate(&p, (size_t)bytes, global)) ? NULL : (void *)p;
}

int learn_prefetch(void *p, long bytes, int device) {
  const int failed = enter(device);
  if (failed) return failed;
  const int moved = cu.prefetch((unsigned long long)p, (size_t)bytes, device, NULL);
  return leave(device, moved ? moved : cu.wait());
}

void learn_unmanage(void *p, int device) {
  if (!enter(device)) leave(device, cu.release_memory((unsigned long long)p));
}

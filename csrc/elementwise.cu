// gs_activate and gs_add, in float32 arithmetic. A thread computes 16 bytes of y or x, or one element if rows are not
// aligned or in the variant naive.

#include "rows.cuh"

const char *const gs_activation_variants[] = {"auto", "naive", nullptr};
const char *const gs_add_variants[] = {"auto", "naive", nullptr};

namespace {

constexpr int THREADS = 256;

// A row has `per_row` groups of WIDTH elements, the matrix `groups`. A thread computes one group.
template <typename T, int WIDTH, int ACT, typename S>
__global__ void __launch_bounds__(THREADS) activate_kernel(const S stamp, const T *x, T *y, const float *bias,
                                                           unsigned groups, unsigned per_row, int ldx, int ldy) {
  gs_let_next();
  const unsigned g = blockIdx.x * THREADS + threadIdx.x;
  const unsigned row = g / per_row, col = (g - row * per_row) * WIDTH;
  const gs_stamped<S> stamped(stamp);
  gs_wait();
  stamped.start();
  if (g >= groups) return;
  const T *from = x + (size_t)row * ldx + col;
  T *to = y + (size_t)row * ldy + col;
  if (WIDTH == 1) {
    *to = from_float<T>(activate(to_float(*from) + (bias ? bias[col] : 0.0f), ACT));
    return;
  }
  uint4 raw[WIDTH * sizeof(T) / 16 ? WIDTH * sizeof(T) / 16 : 1];
  raw[0] = *reinterpret_cast<const uint4 *>(from);
  float v[WIDTH];
  T *in = reinterpret_cast<T *>(raw);
  for (int i = 0; i < WIDTH; i++) v[i] = to_float(in[i]);
  if (bias) {
    for (int i = 0; i < WIDTH / 4; i++) {
      const float4 b = load4(bias + col + 4 * i);
      v[4 * i] += b.x, v[4 * i + 1] += b.y, v[4 * i + 2] += b.z, v[4 * i + 3] += b.w;
    }
  }
  for (int i = 0; i < WIDTH; i++) in[i] = from_float<T>(activate(v[i], ACT));
  *reinterpret_cast<uint4 *>(to) = raw[0];
}

template <typename Z, int WIDTH, typename S>
__global__ void __launch_bounds__(THREADS)
    add_kernel(const S stamp, float *x, const Z *z, unsigned groups, unsigned per_row, int ldx, int ldz) {
  gs_let_next();
  const unsigned g = blockIdx.x * THREADS + threadIdx.x;
  const unsigned row = g / per_row, col = (g - row * per_row) * WIDTH;
  const gs_stamped<S> stamped(stamp);
  gs_wait();
  stamped.start();
  if (g >= groups) return;
  float *to = x + (size_t)row * ldx + col;
  const Z *from = z + (size_t)row * ldz + col;
  if (WIDTH == 1)
    *to += to_float(*from);
  else
    store4(to, load4(to) + load4(from));
}

template <typename T, int WIDTH, int ACT, typename S> int activate_launch(gs_stream *s, const gs_activation_args *a) {
  const unsigned per_row = a->N / WIDTH, groups = a->M * per_row;
  return gs_launch(s, "activate", activate_kernel<T, WIDTH, ACT, S>, dim3((groups + THREADS - 1) / THREADS), THREADS, 0,
                   (const T *)a->x, (T *)a->y, (const float *)a->bias, groups, per_row, a->ldx, a->ldy);
}

template <typename T, int ACT, typename S> int activate_width(gs_stream *s, const gs_activation_args *a) {
  constexpr int WIDTH = 16 / sizeof(T);
  const bool wide = a->variant == 0 && a->N % WIDTH == 0 && gs_wide(a->x, a->ldx, sizeof(T), WIDTH) &&
                    gs_wide(a->y, a->ldy, sizeof(T), WIDTH) && gs_aligned(a->bias, 16);
  return wide ? activate_launch<T, WIDTH, ACT, S>(s, a) : activate_launch<T, 1, ACT, S>(s, a);
}

template <typename T, typename S> int activate_type(gs_stream *s, const gs_activation_args *a) {
  switch (a->act) {
    case GS_GELU_TANH: return activate_width<T, GS_GELU_TANH, S>(s, a);
    case GS_GELU_ERF: return activate_width<T, GS_GELU_ERF, S>(s, a);
    case GS_RELU: return activate_width<T, GS_RELU, S>(s, a);
    default: return activate_width<T, GS_ACT_NONE, S>(s, a);
  }
}

template <typename Z, typename S> int add_type(gs_stream *s, const gs_add_args *a) {
  const bool wide =
      a->variant == 0 && a->N % 4 == 0 && gs_wide(a->x, a->ldx, 4, 4) && gs_wide(a->z, a->ldz, sizeof(Z), 4);
  const unsigned per_row = wide ? a->N / 4 : a->N, groups = a->M * per_row;
  return gs_launch(s, "add", wide ? add_kernel<Z, 4, S> : add_kernel<Z, 1, S>, dim3((groups + THREADS - 1) / THREADS),
                   THREADS, 0, (float *)a->x, (const Z *)a->z, groups, per_row, a->ldx, a->ldz);
}

}  // namespace

extern "C" int gs_activate(gs_stream *s, const gs_activation_args *a) {
  GS_ENTER(s, a);
  if (a->variant < 0 || a->variant > 1) return gs_fail(GS_ARGUMENT, "activate: no variant %d", a->variant);
  return gs_with_stamps(s, [&](auto stamp) {
    using S = decltype(stamp);
    return a->dtype == GS_F32 ? activate_type<float, S>(s, a) : activate_type<__nv_bfloat16, S>(s, a);
  });
}

extern "C" int gs_add(gs_stream *s, const gs_add_args *a) {
  GS_ENTER(s, a);
  if (a->variant < 0 || a->variant > 1) return gs_fail(GS_ARGUMENT, "add: no variant %d", a->variant);
  return gs_with_stamps(s, [&](auto stamp) {
    using S = decltype(stamp);
    return a->dtype == GS_F32 ? add_type<float, S>(s, a) : add_type<__nv_bfloat16, S>(s, a);
  });
}

// gs_embed, a CTA a row; gs_activate and gs_add, in float32 arithmetic. A thread computes 16 bytes of y or x, or one
// element if rows are not aligned or in the variant naive.

#include "q8.cuh"
#include "rows.cuh"

// Both names stand for the same kernel, and the arguments have no variant.
const char *const gs_embed_variants[] = {"auto", "naive", nullptr};
const char *const gs_activation_variants[] = {"auto", "naive", nullptr};
const char *const gs_add_variants[] = {"auto", "naive", nullptr};

namespace {

constexpr int THREADS = 256;

// A row has `per_row` groups of WIDTH elements, the matrix `groups`. A thread computes one group.
template <typename T, int WIDTH, int ACT>
__global__ void __launch_bounds__(THREADS) activate_kernel(const gs_stamp stamp, const T *x, T *y, const float *bias,
                                                           unsigned groups, unsigned per_row, int ldx, int ldy) {
  gs_let_next();
  const unsigned g = blockIdx.x * THREADS + threadIdx.x;
  const unsigned row = g / per_row, col = (g - row * per_row) * WIDTH;
  const gs_stamped stamped(stamp);
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

template <typename Z, int WIDTH>
__global__ void __launch_bounds__(THREADS)
    add_kernel(const gs_stamp stamp, float *x, const Z *z, unsigned groups, unsigned per_row, int ldx, int ldz) {
  gs_let_next();
  const unsigned g = blockIdx.x * THREADS + threadIdx.x;
  const unsigned row = g / per_row, col = (g - row * per_row) * WIDTH;
  const gs_stamped stamped(stamp);
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

template <typename T, int WIDTH, int ACT> int activate_launch(gs_stream *s, const gs_activation_args *a) {
  const unsigned per_row = a->N / WIDTH, groups = a->M * per_row;
  return gs_launch(s, "activate", activate_kernel<T, WIDTH, ACT>, dim3((groups + THREADS - 1) / THREADS), THREADS, 0,
                   (const T *)a->x, (T *)a->y, (const float *)a->bias, groups, per_row, a->ldx, a->ldy);
}

template <typename T, int ACT> int activate_width(gs_stream *s, const gs_activation_args *a) {
  constexpr int WIDTH = 16 / sizeof(T);
  const bool wide = a->variant == 0 && a->N % WIDTH == 0 && gs_wide(a->x, a->ldx, sizeof(T), WIDTH) &&
                    gs_wide(a->y, a->ldy, sizeof(T), WIDTH) && gs_aligned(a->bias, 16);
  return wide ? activate_launch<T, WIDTH, ACT>(s, a) : activate_launch<T, 1, ACT>(s, a);
}

template <typename T> int activate_type(gs_stream *s, const gs_activation_args *a) {
  switch (a->act) {
    case GS_GELU_TANH: return activate_width<T, GS_GELU_TANH>(s, a);
    case GS_GELU_ERF: return activate_width<T, GS_GELU_ERF>(s, a);
    case GS_RELU: return activate_width<T, GS_RELU>(s, a);
    default: return activate_width<T, GS_ACT_NONE>(s, a);
  }
}

template <typename Z> int add_type(gs_stream *s, const gs_add_args *a) {
  const bool wide =
      a->variant == 0 && a->N % 4 == 0 && gs_wide(a->x, a->ldx, 4, 4) && gs_wide(a->z, a->ldz, sizeof(Z), 4);
  const unsigned per_row = wide ? a->N / 4 : a->N, groups = a->M * per_row;
  return gs_launch(s, "add", wide ? add_kernel<Z, 4> : add_kernel<Z, 1>, dim3((groups + THREADS - 1) / THREADS),
                   THREADS, 0, (float *)a->x, (const Z *)a->z, groups, per_row, a->ldx, a->ldz);
}

}  // namespace

extern "C" int gs_activate(gs_stream *s, const gs_activation_args *a) {
  GS_ENTER(s, a);
  if (a->variant < 0 || a->variant > 1) return gs_fail(GS_ARGUMENT, "activate: no variant %d", a->variant);
  return a->dtype == GS_F32 ? activate_type<float>(s, a) : activate_type<bf16>(s, a);
}

extern "C" int gs_add(gs_stream *s, const gs_add_args *a) {
  GS_ENTER(s, a);
  if (a->variant < 0 || a->variant > 1) return gs_fail(GS_ARGUMENT, "add: no variant %d", a->variant);
  return a->dtype == GS_F32 ? add_type<float>(s, a) : add_type<bf16>(s, a);
}

namespace {

// wte may have 8 bits: Q8.
template <typename W, bool WIDE, bool Q8>
__global__ void embed_kernel(const gs_stamp stamp, const int *ids, const int *pos, const int *pad, const char *wte,
                             const W *wpe, float *x, int T, int C) {
  gs_let_next();
  const gs_stamped stamped(stamp);
  gs_wait();
  stamped.start();
  const int t = blockIdx.x, b = blockIdx.y;
  const size_t row = (size_t)b * T + t;
  const int live = t - (pad ? *pad : 0);
  float *out = x + row * C;
  const char *token = nullptr;
  const W *position = nullptr;
  if (live >= 0) {
    token = wte + (size_t)ids[row] * (Q8 ? GS_Q8_ROW(C) : C * (int)sizeof(W));
    position = wpe + (size_t)(pos[b] + live) * C;
  }
  const W *const values = reinterpret_cast<const W *>(token);
  if (WIDE && !Q8) {
    for (int c = 4 * threadIdx.x; c < C; c += 4 * blockDim.x)
      store4(out + c, live >= 0 ? load4(values + c) + load4(position + c) : make_float4(0, 0, 0, 0));
  } else {
    for (int c = threadIdx.x; c < C; c += blockDim.x)
      out[c] = live >= 0 ? (Q8 ? q8_at(token, c) : to_float(values[c])) + to_float(position[c]) : 0.0f;
  }
}

template <typename W, bool Q8> int embed(gs_stream *s, const gs_embed_args *a) {
  const bool wide =
      gs_wide(a->wte, a->C, sizeof(W), 4) && gs_wide(a->wpe, a->C, sizeof(W), 4) && gs_wide(a->x, a->C, 4, 4);
  const int work = wide ? a->C / 4 : a->C;
  const int threads = work >= 256 ? 256 : (work + 31) / 32 * 32;
  return gs_launch_as(s, "embed", wide ? embed_kernel<W, true, Q8> : embed_kernel<W, false, Q8>, dim3(a->T, a->B),
                      threads, 0, {1, a->T == 1}, (const int *)a->ids, (const int *)a->pos, (const int *)a->pad,
                      (const char *)a->wte, (const W *)a->wpe, (float *)a->x, a->T, a->C);
}

}  // namespace

extern "C" int gs_embed(gs_stream *s, const gs_embed_args *a) {
  GS_ENTER(s, a);
  if (a->dtype == GS_Q8) return embed<bf16, true>(s, a);
  return a->dtype == GS_F32 ? embed<float, false>(s, a) : embed<bf16, false>(s, a);
}

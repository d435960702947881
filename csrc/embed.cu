// gs_embed. One CTA computes one row.

#include "q8.cuh"
#include "rows.cuh"

// Both names stand for the same kernel, and the arguments have no variant.
const char *const gs_embed_variants[] = {"auto", "naive", nullptr};

namespace {

// wte may have 8 bits: Q8.
template <typename W, bool WIDE, bool Q8, typename S>
__global__ void embed_kernel(const S stamp, const int *ids, const int *pos, const int *pad, const char *wte,
                             const W *wpe, float *x, int T, int C) {
  gs_let_next();
  const gs_stamped<S> stamped(stamp);
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

template <typename W, bool Q8, typename S> int embed(gs_stream *s, const gs_embed_args *a) {
  const bool wide =
      gs_wide(a->wte, a->C, sizeof(W), 4) && gs_wide(a->wpe, a->C, sizeof(W), 4) && gs_wide(a->x, a->C, 4, 4);
  const int work = wide ? a->C / 4 : a->C;
  const int threads = work >= 256 ? 256 : (work + 31) / 32 * 32;
  return gs_launch_as(s, "embed", wide ? embed_kernel<W, true, Q8, S> : embed_kernel<W, false, Q8, S>, dim3(a->T, a->B),
                      threads, 0, {1, a->T == 1}, (const int *)a->ids, (const int *)a->pos, (const int *)a->pad,
                      (const char *)a->wte, (const W *)a->wpe, (float *)a->x, a->T, a->C);
}

}  // namespace

extern "C" int gs_embed(gs_stream *s, const gs_embed_args *a) {
  GS_ENTER(s, a);
  return gs_with_stamps(s, [&](auto stamp) {
    using S = decltype(stamp);
    if (a->dtype == GS_Q8) return embed<__nv_bfloat16, true, S>(s, a);
    return a->dtype == GS_F32 ? embed<float, false, S>(s, a) : embed<__nv_bfloat16, false, S>(s, a);
  });
}

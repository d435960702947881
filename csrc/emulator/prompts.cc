// Runs Hopper's kernels of prompts, and of products of few rows, on CPUs and compares what they give with plain sums.
#include <stdio.h>

namespace {
alignas(1024) thread_local unsigned char shared[232 << 10];  // before the kernels, which use it
}

#include "../linear_wgmma.cu"

#include "../attention_wgmma.cu"
#include "../linear_rows.cu"

namespace {
unsigned char *emulator_dynamic() { return shared; }

// Arrivals at the barriers of clusters of two, and the memory of their blocks.
constexpr int BLOCKS = 1024;
std::atomic<int> arrived[BLOCKS];
std::atomic<unsigned char *> memory[BLOCKS];

uint32_t random_state = 1;
float draw() {  // a bfloat16 from -1 to 1
  random_state = random_state * 1664525 + 1013904223;
  return (float)((int)(random_state >> 24) - 128) / 128;
}
std::vector<bf16> drawn(size_t n, float scale) {
  std::vector<bf16> v(n + 8);
  for (auto &x : v) x = from_float<bf16>(scale * draw());
  return v;
}
// Aligned as allocations on a device are.
template <typename T> T *at16(std::vector<T> &v) { return (T *)(((uintptr_t)v.data() + 15) & ~(uintptr_t)15); }

int failed;
void check(const char *what, float got, double want, double bound) {
  if (std::abs(got - want) <= bound) return;
  if (failed++ < 20) printf("%s: %g, should be %g\n", what, got, want);
}

// A product by a tile of linear_wgmma.cu, or by linear_rows.cu (-1).
void linear(gs_stream *s, int tile, int M, int N, int K, bool f32, int act, bool add) {
  for (auto &a : arrived) a = 0;
  const int ldy = N + 8;
  auto x = drawn((size_t)M * K, 1), w = drawn((size_t)N * K, 0.1f);
  std::vector<float> bias(N), y(M * ldy + 8, 7);
  std::vector<bf16> half(M * ldy + 8, from_float<bf16>(7));
  for (auto &b : bias) b = draw();
  gs_linear_args a = {};
  a.x = (gs_ptr)at16(x), a.w = (gs_ptr)at16(w), a.bias = (gs_ptr)bias.data();
  a.y = f32 ? (gs_ptr)at16(y) : (gs_ptr)at16(half);
  a.M = M, a.N = N, a.K = K, a.ldx = K, a.ldy = ldy, a.dtype = GS_BF16, a.y_type = f32 ? GS_F32 : GS_BF16, a.act = act;
  a.accumulate = add;
  char what[200];
  snprintf(what, sizeof what, "linear, tile %d, M %d N %d K %d", tile, M, N, K);
  if ((tile < 0 ? gs_linear_rows(s, &a) : tiles[tile].launch[f32](s, &a)) != GS_OK) check(what, 1, 0, 0);
  for (int m = 0; m < M; m++)
    for (int n = 0; n < ldy; n++) {
      const float got = f32 ? at16(y)[m * ldy + n] : to_float(at16(half)[m * ldy + n]);
      double want = 7;  // between rows nothing is written
      if (n < N) {
        want = bias[n];
        for (int k = 0; k < K; k++) want += to_float(at16(x)[m * K + k]) * to_float(at16(w)[n * K + k]);
        want = activate((float)want, act) + (add ? 7 : 0);
      }
      check(what, got, want, (f32 ? 1e-5 : 1.0 / 256) * std::abs(want) + (act ? 1e-3 : 1e-5));
    }
}

void attention(gs_stream *s, bool queue, int B, int NH, int T, int past, int pad) {
  const int C = NH * HEAD, P = past + T + 3;
  auto qkv = drawn((size_t)B * T * 3 * C, 1), k = drawn((size_t)B * NH * P * HEAD, 1), v = drawn(k.size(), 1),
       y = drawn((size_t)B * T * C, 1);
  std::vector<int> pos(B, past);
  unsigned taken = 0;
  gs_attention_args a = {};
  a.qkv = (gs_ptr)at16(qkv), a.k_cache = (gs_ptr)at16(k), a.v_cache = (gs_ptr)at16(v), a.y = (gs_ptr)at16(y);
  a.pos = (gs_ptr)pos.data(), a.pad = (gs_ptr)&pad, a.work = (gs_ptr)&taken;
  a.B = B, a.T = a.Q = T, a.NH = NH, a.HS = HEAD, a.P = P, a.ldqkv = 3 * C, a.ldy = C, a.dtype = GS_BF16, a.scale = 0.125f;
  char what[200];
  snprintf(what, sizeof what, "attention, queue %d B %d NH %d T %d past %d pad %d", queue, B, NH, T, past, pad);
  if (gs_attention_wgmma(s, &a, queue) != GS_OK || taken != 0) check(what, 1, 0, 0);
  for (int b = 0; b < B; b++)
    for (int h = 0; h < NH; h++)
      for (int r = pad; r < T; r++) {
        const auto in = [&](int row, int part, int d) {
          return to_float(at16(qkv)[((size_t)b * T + row) * 3 * C + part * C + h * HEAD + d]);
        };
        const size_t cache = (size_t)(b * NH + h) * P * HEAD;
        double sum = 0, out[HEAD] = {};
        for (int i = 0; i <= past + r - pad; i++) {
          const bool old = i < past;
          double dot = 0;
          for (int d = 0; d < HEAD; d++)
            dot += in(r, 0, d) * (old ? to_float(at16(k)[cache + i * HEAD + d]) : in(i - past + pad, 1, d));
          const double e = std::exp(dot * 0.125);
          sum += e;
          for (int d = 0; d < HEAD; d++)
            out[d] += e * (old ? to_float(at16(v)[cache + i * HEAD + d]) : in(i - past + pad, 2, d));
        }
        for (int d = 0; d < HEAD; d++) {
          check(what, to_float(at16(y)[((size_t)b * T + r) * C + h * HEAD + d]), out[d] / sum, 0.01);
          const size_t at = cache + (size_t)(past + r - pad) * HEAD + d;
          check(what, to_float(at16(k)[at]), in(r, 1, d), 0);
          check(what, to_float(at16(v)[at]), in(r, 2, d), 0);
        }
      }
}
}  // namespace

namespace emulator {
int cluster = 2;
unsigned char *tiles() { return shared; }
unsigned char *cluster_tiles(int block) { return memory[blockIdx.x / cluster * cluster + (unsigned)block]; }
void cluster_barrier(bool wait) {
  static thread_local int waits[1024];
  static thread_local unsigned of = ~0u;
  if (of != blockIdx.x) of = blockIdx.x, memset(waits, 0, sizeof waits);
  memory[blockIdx.x] = shared;
  std::atomic<int> &a = arrived[blockIdx.x / cluster];
  if (!wait) {
    a++;
    return;
  }
  const int all = ++waits[threadIdx.x] * cluster * (int)blockDim.x;
  while (a < all) yield();
}
}  // namespace emulator

CUresult cuTensorMapEncodeTiled(CUtensorMap *m, CUtensorMapDataType, cuuint32_t, void *from, const cuuint64_t *sizes,
                                const cuuint64_t *strides, const cuuint32_t *boxes, const cuuint32_t *,
                                CUtensorMapInterleave, CUtensorMapSwizzle permuted, CUtensorMapL2promotion,
                                CUtensorMapFloatOOBfill) {
  *m = {(const char *)from, {}, {2}, {}, permuted == CU_TENSOR_MAP_SWIZZLE_128B};
  for (int i = 0; i < 3; i++) m->sizes[i] = (int64_t)sizes[i], m->boxes[i] = (int)boxes[i];
  for (int i = 1; i < 3; i++) m->strides[i] = (int64_t)strides[i - 1];
  return (uintptr_t)from % 16 || strides[0] % 16 || strides[1] % 16;
}
int gs_driver_function(const char *, void **out) { return *out = (void *)cuTensorMapEncodeTiled, GS_OK; }

int main() {
  gs_stream s = {};
  s.major = 9, s.processors = 3;
  for (int tile = 0; tile < (int)(sizeof tiles / sizeof *tiles); tile++)
    for (int f32 = 0; f32 < 2; f32++) {
      const Tile &t = tiles[tile];
      if (!t.launch[f32]) continue;
      s.processors = t.turns ? 1 : 3;
      emulator::cluster = t.split > 1 ? t.split : 2;
      linear(&s, tile, t.rows + 9, t.columns + 8, 328, f32, f32 ? GS_ACT_NONE : GS_GELU_TANH, f32);
      linear(&s, tile, 2 * t.rows, 2 * t.columns - 8, 64 * t.split, f32, GS_ACT_NONE, false);
    }
  emulator::cluster = 1;
  linear(&s, -1, 5, 40, 96, true, GS_ACT_NONE, true);
  linear(&s, -1, 32, 33, 736, false, GS_GELU_TANH, false);
  emulator::cluster = 2;
  linear(&s, -1, 30, 40, 1376, true, GS_ACT_NONE, true);
  emulator::cluster = 4;
  linear(&s, -1, 18, 16, 2080, false, GS_ACT_NONE, false);
  emulator::cluster = 2;
  attention(&s, false, 2, 2, 70, 0, 0);
  s.processors = 2;
  attention(&s, false, 1, 2, 130, 67, 5);
  attention(&s, true, 2, 2, 330, 0, 0);
  attention(&s, true, 1, 3, 257, 130, 70);
  s.processors = 132;
  attention(&s, false, 1, 2, 200, 3, 0);
  printf("%d values are wrong\n", failed);
  return failed > 0;
}

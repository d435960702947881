// y = act(x W^T + bias), or y += that, by cuBLASLt: products of many rows.
//
// cuBLASLt is column-major. It computes D (N x M) = op(A) B with
//   A = W as (K x N), ld K, transposed;  B = x as (K x M), ld ldx;  D = y, ld ldy.
// float32 inputs are multiplied as float32, not as TF32. Partial sums of split-K are added in float32 in a fixed order.
// The descriptors and the algorithm of a product are made once for each combination of shape, types and epilogue, and
// kept in the stream. Bias and activation that the epilogue of cuBLASLt cannot do are left to gs_activate.

#include <cublasLt.h>
#include <dlfcn.h>
#include <string.h>

#include <map>
#include <mutex>
#include <new>
#include <tuple>
#include <vector>

#include "linear.cuh"

namespace {

constexpr size_t kWorkspace = GS_BLAS_WORKSPACE;

// ---------------------------------------------------------------- the library

// The functions of cuBLASLt that are used.
#define FUNCTIONS(F)                                                                                                   \
  F(cublasLtGetVersion)                                                                                                \
  F(cublasLtCreate) F(cublasLtDestroy) F(cublasLtMatmul) F(cublasLtMatmulDescCreate) F(cublasLtMatmulDescDestroy)      \
      F(cublasLtMatmulDescSetAttribute) F(cublasLtMatrixLayoutCreate) F(cublasLtMatrixLayoutDestroy)                   \
          F(cublasLtMatmulPreferenceCreate) F(cublasLtMatmulPreferenceDestroy) F(cublasLtMatmulPreferenceSetAttribute) \
              F(cublasLtMatmulAlgoGetHeuristic) F(cublasLtMatmulAlgoCheck)

struct library {
#define MEMBER(f) decltype(&::f) f;
  FUNCTIONS(MEMBER)
#undef MEMBER
};

std::mutex opening;  // held while `opened` and `ready` are read or written
library opened;
bool ready;

const library *get_library() {
  std::lock_guard<std::mutex> lock(opening);
  return ready ? &opened : nullptr;
}

int blas_check(cublasStatus_t e, const char *what) {
  return e == CUBLAS_STATUS_SUCCESS ? (int)GS_OK : gs_fail(GS_BLAS + (int)e, "%s: cuBLAS status %d", what, (int)e);
}

// ---------------------------------------------------------------- products

// M, N, K, ldx, ldy, dtype, y_type, act, accumulate, bias_kind, alignment of all pointers in bytes, at most 16.
using key = std::tuple<int, int, int, int, int, int, int, int, int, int, int>;

struct product {
  cublasLtMatmulDesc_t desc = nullptr;
  cublasLtMatrixLayout_t w = nullptr, x = nullptr, y = nullptr;
  bool bias = false;        // added by the epilogue
  bool later_bias = false;  // added by gs_activate
  int later_act = 0;        // applied by gs_activate
  bool later = false;       // whether gs_activate runs
  cublasLtMatmulAlgo_t algorithm;
  size_t workspace = 0;
};

}  // namespace

struct gs_blas_state {
  const library *lt;
  cublasLtHandle_t handle;
  void *workspace;
  std::map<key, product> products;
};

namespace {

void destroy_descriptors(const library *lt, product &p) {
  if (p.desc) lt->cublasLtMatmulDescDestroy(p.desc);
  if (p.w) lt->cublasLtMatrixLayoutDestroy(p.w);
  if (p.x) lt->cublasLtMatrixLayoutDestroy(p.x);
  if (p.y) lt->cublasLtMatrixLayoutDestroy(p.y);
}

// The stream's handle and workspace, allocated at the first use.
int get_state(gs_stream *s, gs_blas_state **out) {
  if (s->blas) return *out = s->blas, GS_OK;
  const library *lt = get_library();
  if (!lt) return gs_fail(GS_NO_BLAS, "a product of many rows needs cuBLASLt, which was not opened");
  cudaStreamCaptureStatus capturing;
  if (int e = gs_check(cudaStreamIsCapturing(s->stream, &capturing), "cudaStreamIsCapturing")) return e;
  if (capturing != cudaStreamCaptureStatusNone)
    return gs_fail(GS_UNSUPPORTED,
                   "the first cuBLASLt product of a stream cannot be prepared during capture: call "
                   "gs_linear_tune before");
  if (int e = gs_check(cudaSetDevice(s->device), "cudaSetDevice")) return e;
  gs_blas_state *b = new (std::nothrow) gs_blas_state{};
  if (!b) return gs_fail(GS_NO_MEMORY, "no host memory for the state of cuBLASLt");
  b->lt = lt;
  int e = gs_check(cudaMalloc(&b->workspace, kWorkspace), "the workspace of cuBLASLt (32 MiB)");
  if (!e) e = blas_check(lt->cublasLtCreate(&b->handle), "cublasLtCreate");
  if (e) {
    if (b->workspace) cudaFree(b->workspace);
    delete b;
    return e;
  }
  *out = s->blas = b;
  return GS_OK;
}

int alignment(const gs_linear_args *a) {
  // 0, an algorithm chosen without buffers, counts as aligned.
  const uint64_t all = a->x | a->w | a->y | a->bias | a->bias_bf16;
  int n = 16;
  while (n > 1 && all % n) n /= 2;
  return n;
}

// The bias that is given; cuBLASLt adds one of the output's type. 0: none, 1: float32, 2: bfloat16 for the epilogue and
// float32 for gs_activate, 3: bfloat16.
int bias_kind(const gs_linear_args *a) {
  if (a->y_type == GS_BF16 && a->bias_bf16) return a->bias ? 2 : 3;
  return a->bias ? 1 : 0;
}

key key_of(const gs_linear_args *a) {
  return key(a->M, a->N, a->K, a->ldx, a->ldy, a->dtype, a->y_type, a->act, a->accumulate != 0, bias_kind(a),
             alignment(a));
}

// Creates p's descriptors. level 0: bias and activation in the epilogue; 1: activation by gs_activate; 2: bias and
// activation by gs_activate. *possible becomes false if the level equals the one before it or cannot be expressed.
int describe(gs_blas_state *b, const gs_linear_args *a, int level, product &p, bool *possible) {
  const library *lt = b->lt;
  const int kind = bias_kind(a);
  const bool inner_bias = level < 2 && kind != 0;
  const bool inner_act = level < 1 && a->act != GS_ACT_NONE;
  *possible =
      !(level == 0 && a->act == GS_GELU_ERF) && !(level == 1 && a->act == GS_ACT_NONE) && !(level == 2 && kind == 0);
  // For a bfloat16 output cuBLASLt takes only a bfloat16 bias.
  if (inner_bias && a->y_type == GS_BF16 && kind == 1) *possible = false;
  // gs_activate takes only a float32 bias.
  if (!inner_bias && kind != 0 && !a->bias) *possible = false;
  if (!*possible) return GS_OK;

  const cudaDataType_t in = a->dtype == GS_BF16 ? CUDA_R_16BF : CUDA_R_32F,
                       out = a->y_type == GS_BF16 ? CUDA_R_16BF : CUDA_R_32F;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  if (inner_act && a->act == GS_GELU_TANH) epilogue = inner_bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
  else if (inner_act && a->act == GS_RELU) epilogue = inner_bias ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU;
  else if (inner_bias) epilogue = CUBLASLT_EPILOGUE_BIAS;
  p.bias = inner_bias;
  p.later_bias = kind != 0 && !inner_bias;
  p.later_act = inner_act ? (int)GS_ACT_NONE : a->act;
  p.later = p.later_bias || p.later_act != GS_ACT_NONE;

  const cublasOperation_t transposed = CUBLAS_OP_T;
  cublasStatus_t e = lt->cublasLtMatmulDescCreate(&p.desc, CUBLAS_COMPUTE_32F, CUDA_R_32F);
  if (!e) e = lt->cublasLtMatmulDescSetAttribute(p.desc, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed);
  if (!e) e = lt->cublasLtMatmulDescSetAttribute(p.desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
  if (!e && inner_bias) {
    // The heuristic uses only the alignment of the address.
    const void *any = reinterpret_cast<const void *>((uintptr_t)b->workspace + alignment(a) % 16);
    e = lt->cublasLtMatmulDescSetAttribute(p.desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &any, sizeof any);
    if (!e) e = lt->cublasLtMatmulDescSetAttribute(p.desc, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &out, sizeof out);
  }
  if (!e) e = lt->cublasLtMatrixLayoutCreate(&p.w, in, a->K, a->N, a->K);
  if (!e) e = lt->cublasLtMatrixLayoutCreate(&p.x, in, a->K, a->M, a->ldx);
  if (!e) e = lt->cublasLtMatrixLayoutCreate(&p.y, out, a->N, a->M, a->ldy);
  return blas_check(e, "a cuBLASLt descriptor");
}

// Gets up to `most` algorithms from the heuristic, by its estimate fastest first. *found may be 0, which is not a
// failure.
int ask(gs_blas_state *b, const gs_linear_args *a, const product &p, int most, cublasLtMatmulHeuristicResult_t *results,
        int *found) {
  const library *lt = b->lt;
  *found = 0;
  cublasLtMatmulPreference_t want;
  int e = blas_check(lt->cublasLtMatmulPreferenceCreate(&want), "cublasLtMatmulPreferenceCreate");
  if (e) return e;
  const size_t workspace = kWorkspace;
  // Split-K sums in float32, not in the output's type, which may be bfloat16, nor in place.
  const uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  const uint32_t bytes = alignment(a);
  cublasStatus_t c = lt->cublasLtMatmulPreferenceSetAttribute(want, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                              &workspace, sizeof workspace);
  if (!c)
    c = lt->cublasLtMatmulPreferenceSetAttribute(want, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes,
                                                 sizeof schemes);
  for (int i = CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES; !c && i <= CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES; i++)
    c = lt->cublasLtMatmulPreferenceSetAttribute(want, (cublasLtMatmulPreferenceAttributes_t)i, &bytes, sizeof bytes);
  e = blas_check(c, "cublasLtMatmulPreferenceSetAttribute");
  if (!e) {
    c = lt->cublasLtMatmulAlgoGetHeuristic(b->handle, p.desc, p.w, p.x, p.y, p.y, want, most, results, found);
    if (c == CUBLAS_STATUS_NOT_SUPPORTED || c == CUBLAS_STATUS_INVALID_VALUE) *found = 0;
    else e = blas_check(c, "cublasLtMatmulAlgoGetHeuristic");
  }
  lt->cublasLtMatmulPreferenceDestroy(want);
  int kept = 0;
  for (int i = 0; i < *found; i++)
    if (results[i].state == CUBLAS_STATUS_SUCCESS && results[i].workspaceSize <= kWorkspace)
      results[kept++] = results[i];
  *found = kept;
  return e;
}

// Returns what the stream keeps of a product, made with the heuristic's first algorithm if there is nothing yet.
int get_product(gs_stream *s, const gs_linear_args *a, gs_blas_state **state, product **out) {
  if (a->gain)
    return gs_fail(GS_UNSUPPORTED, "cuBLASLt does not normalise its input: up to %d rows only", GS_GEMV_ROWS);
  if (a->dtype == GS_F32 && a->y_type == GS_BF16)
    return gs_fail(GS_UNSUPPORTED, "cuBLASLt does not multiply float32 into bfloat16");
  int e = get_state(s, state);
  if (e) return e;
  gs_blas_state *b = *state;
  auto at = b->products.find(key_of(a));
  if (at != b->products.end()) return *out = &at->second, GS_OK;
  for (int level = 0; level < 3; level++) {
    product p;
    bool possible;
    cublasLtMatmulHeuristicResult_t best;
    int found = 0;
    e = describe(b, a, level, p, &possible);
    if (!e && possible) e = ask(b, a, p, 1, &best, &found);
    if (e || !found) {
      destroy_descriptors(b->lt, p);
      if (e) return e;
      continue;
    }
    p.algorithm = best.algo, p.workspace = best.workspaceSize;
    *out = &(b->products[key_of(a)] = p);
    return GS_OK;
  }
  return gs_fail(GS_UNSUPPORTED, "cuBLASLt knows no algorithm for a product of (%d, %d) by (%d, %d), types %d and %d",
                 a->M, a->K, a->N, a->K, a->dtype, a->y_type);
}

int run(gs_stream *s, gs_blas_state *b, product &p, const gs_linear_args *a, const cublasLtMatmulAlgo_t *algorithm,
        size_t workspace) {
  if (p.bias) {
    const void *bias = reinterpret_cast<const void *>(a->y_type == GS_BF16 ? a->bias_bf16 : a->bias);
    if (int e = blas_check(b->lt->cublasLtMatmulDescSetAttribute(p.desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias,
                                                                 sizeof bias), "cublasLtMatmulDescSetAttribute"))
      return e;
  }
  const float one = 1, beta = a->accumulate ? 1 : 0;
  void *y = reinterpret_cast<void *>(a->y);
  int e = blas_check(b->lt->cublasLtMatmul(b->handle, p.desc, &one, reinterpret_cast<const void *>(a->w), p.w,
                                           reinterpret_cast<const void *>(a->x), p.x, &beta, y, p.y, y, p.y, algorithm,
                                           b->workspace, workspace, s->stream),
                     "cublasLtMatmul");
  if (e || !p.later) return e;
  gs_activation_args next = {};
  next.size = sizeof next, next.x = next.y = a->y, next.bias = p.later_bias ? a->bias : 0, next.dtype = a->y_type;
  next.M = a->M, next.N = a->N, next.ldx = next.ldy = a->ldy, next.act = p.later_act;
  return gs_activate(s, &next);
}

// Measures the microseconds of a run: the least mean of three series. The matrices stay in L2 as far as they fit.
int measure(gs_stream *s, gs_blas_state *b, product &p, const gs_linear_args *a,
            const cublasLtMatmulHeuristicResult_t &c, cudaEvent_t from, cudaEvent_t to, float *microseconds) {
  int runs = 3;
  *microseconds = 0;
  for (int series = 0; series < 4; series++) {  // the first is warm-up and sets the number of runs that take 0.5 ms
    int e = gs_check(cudaEventRecord(from, s->stream), "cudaEventRecord");
    for (int i = 0; i < runs && !e; i++) e = run(s, b, p, a, &c.algo, c.workspaceSize);
    if (!e) e = gs_check(cudaEventRecord(to, s->stream), "cudaEventRecord");
    if (!e) e = gs_check(cudaEventSynchronize(to), "cudaEventSynchronize");
    float ms = 0;
    if (!e) e = gs_check(cudaEventElapsedTime(&ms, from, to), "cudaEventElapsedTime");
    if (e) return e;
    const float each = ms * 1000 / runs;
    if (series == 0) runs = each < 5 ? 100 : each > 100 ? 5 : (int)(500 / each);
    else if (series == 1 || each < *microseconds) *microseconds = each;
  }
  return GS_OK;
}

}  // namespace

extern "C" int gs_blas_open(const char *path, uint64_t *version) {
  std::lock_guard<std::mutex> lock(opening);
  if (!ready) {
    void *so = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!so) return gs_fail(GS_NO_BLAS, "cannot open cuBLASLt: %s", dlerror());
    library lt = {};
    const char *missing = nullptr;
#define FIND(f) \
  if (!(lt.f = (decltype(lt.f))dlsym(so, #f))) missing = #f;
    FUNCTIONS(FIND)
#undef FIND
    if (missing) {
      dlclose(so);
      return gs_fail(GS_NO_BLAS, "%s has no %s: it is not cuBLASLt of CUDA 12 or later", path, missing);
    }
    opened = lt;
    ready = true;
  }
  if (version) *version = opened.cublasLtGetVersion();
  return GS_OK;
}

void gs_blas_release(gs_stream *s) {
  gs_blas_state *b = s->blas;
  if (!b) return;
  for (auto &each : b->products) destroy_descriptors(b->lt, each.second);
  b->lt->cublasLtDestroy(b->handle);
  cudaFree(b->workspace);
  delete b;
  s->blas = nullptr;
}

int gs_linear_blas(gs_stream *s, const gs_linear_args *a) {
  gs_blas_state *b;
  product *p;
  const int e = get_product(s, a, &b, &p);
  return e ? e : run(s, b, *p, a, &p->algorithm, p->workspace);
}

extern "C" int gs_linear_tune(gs_stream *s, const gs_linear_args *a, int candidates) {
  GS_ENTER(s, a);
  gs_blas_state *b;
  product *p;
  int e = get_product(s, a, &b, &p);
  if (e || candidates < 1) return e;
  if (candidates > 1024) candidates = 1024;
  std::vector<cublasLtMatmulHeuristicResult_t> results(candidates);
  int found;
  e = ask(b, a, *p, candidates, results.data(), &found);
  if (e) return e;
  cudaEvent_t from = nullptr, to = nullptr;
  e = gs_check(cudaEventCreate(&from), "cudaEventCreate");
  if (!e) e = gs_check(cudaEventCreate(&to), "cudaEventCreate");
  int best = -1;
  float least = 0;
  for (int i = 0; i < found && !e; i++) {
    cublasLtMatmulHeuristicResult_t checked = {};
    if (b->lt->cublasLtMatmulAlgoCheck(b->handle, p->desc, p->w, p->x, p->y, p->y, &results[i].algo, &checked) !=
        CUBLAS_STATUS_SUCCESS)
      continue;
    float microseconds;
    e = measure(s, b, *p, a, results[i], from, to, &microseconds);
    if (e) break;
    if (best < 0 || microseconds < least) best = i, least = microseconds;
  }
  if (from) cudaEventDestroy(from);
  if (to) cudaEventDestroy(to);
  if (e) return e;
  if (best >= 0) p->algorithm = results[best].algo, p->workspace = results[best].workspaceSize;
  return GS_OK;
}

// The kernels of a decode step of GPT-2: four products of cuBLASLt and eight kernels of our own in each of twelve
// layers. They are captured in a CUDA graph, which is replayed; says how long that took in ms.
// layers REPLAYS TIMES [LAUNCHES that are awaited together]
#include <cublasLt.h>
#include <cuda_fp16.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>

__global__ void each(__half *x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] = __hadd(x[i], __float2half(0.5f));
}

enum { C = 768, T = 8, LAYERS = 12 };
static cublasLtHandle_t lt;
static cudaStream_t stream;
static __half *x, *w;

static void product(int in, int out) {
  cublasLtMatmulDesc_t d;
  cublasLtMatrixLayout_t a, b, c;
  cublasLtMatmulDescCreate(&d, CUBLAS_COMPUTE_32F, CUDA_R_32F);
  cublasLtMatrixLayoutCreate(&a, CUDA_R_16F, out, in, out);
  cublasLtMatrixLayoutCreate(&b, CUDA_R_16F, in, T, in);
  cublasLtMatrixLayoutCreate(&c, CUDA_R_16F, out, T, out);
  const float one = 1, zero = 0;
  cublasLtMatmul(lt, d, &one, w, a, x, b, &zero, x + 4 * C * T, c, x + 4 * C * T, c, nullptr, nullptr, 0, stream);
  cublasLtMatrixLayoutDestroy(a), cublasLtMatrixLayoutDestroy(b), cublasLtMatrixLayoutDestroy(c);
  cublasLtMatmulDescDestroy(d);
}

static void step() {
  for (int l = 0; l < LAYERS; l++) {
    const int shapes[4][2] = {{C, 3 * C}, {C, C}, {C, 4 * C}, {4 * C, C}};
    for (auto &s : shapes) {
      each<<<C * T / 256, 256, 0, stream>>>(x, C * T);
      product(s[0], s[1]);
      each<<<C * T / 256, 256, 0, stream>>>(x, C * T);
    }
  }
}

int main(int argc, char **argv) {
  const int together = argc > 3 ? atoi(argv[3]) : 1;
  cublasLtCreate(&lt);
  cudaStreamCreate(&stream);
  cudaMalloc(&x, 8 * C * T * sizeof(__half)), cudaMalloc(&w, 4 * C * C * sizeof(__half));
  cudaMemset(x, 0, 8 * C * T * sizeof(__half)), cudaMemset(w, 0, 4 * C * C * sizeof(__half));
  step();
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
  step();
  cudaStreamEndCapture(stream, &graph);
  cudaGraphInstantiate(&exec, graph, 0);
  for (int i = 0; i < 20; i++) cudaGraphLaunch(exec, stream);
  cudaStreamSynchronize(stream);
  for (int k = 0; k < atoi(argv[2]); k++) {
    auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < atoi(argv[1]); i++) {
      cudaGraphLaunch(exec, stream);
      if ((i + 1) % together == 0) cudaStreamSynchronize(stream);
    }
    cudaStreamSynchronize(stream);
    printf("ms %.3f\n", std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count());
  }
  return cudaGetLastError() != cudaSuccess;
}

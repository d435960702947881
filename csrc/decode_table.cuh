// The kernels of decode_kernel.cuh for a width, as csrc/decode.cu launches them.
#pragma once

#include "decode_kernel.cuh"

namespace {

template <typename Of> uint64_t allowed;  // devices on which its shared memory is allowed
template <typename Of>
constexpr int fixed_shared = (sizeof(Shared<Of>) + 127) / 128 * 128 + (sizeof(Work<Of>) + 127) / 128 * 128 + 1024;

// A kernel, or if it is to draw tokens one that can.
template <typename Of, bool DRAWS = false> gs_persistent_kernel kernel_of() {
  if constexpr (DRAWS && !Of::SAMPLES) return kernel_of<typename Of::Sampling>();
  else
    return {Of::PROMPT,      Of::VERIFY, Of::BATCHED, Of::MANY,   Of::HALVES,  Of::READS_BACK, Of::WIDE,
            Of::C,           Of::ROWS,   Of::GROUP,   Of::SMALL,  Of::LARGE,   Of::ROW_BYTES, Of::TILE_ROWS, Of::PAD,
            Of::CHUNK_PITCH, Of::CHUNKS, Of::CHUNK,   Of::TOKENS, Of::THREADS, Of::PROMPT_ROWS, Of::X_VALUES,
            Of::MANY ? Of::ROW_LANES * Of::XP - Of::VERIFY : 32 * Of::XU,
            (Of::MANY ? 8 * Of::HP : 32 * Of::HU) / (Of::HALVES ? 2 : 1),
            fixed_shared<Of>, (const void *)decode_kernel<Of>, &allowed<Of>};
}
template <typename Of, bool DRAWS> gs_persistent_kernel verifying() {
  if constexpr (Of::NB <= 2 || Of::NB == 5) return kernel_of<typename Of::Verify, DRAWS>();
  else return {};
}

int launch(gs_stream *s, const gs_persistent_kernel &k, const void *params, int blocks, size_t shared) {
  const Params &p = *static_cast<const Params *>(params);
  if (int status = gs_allow_shared(s, k.kernel, k.allowed, s->shared_per_block - k.FIXED)) return status;
  if (p.tokens == 0) {
    cudaFuncAttributes loaded;  // to ask for them loads the kernel
    return gs_check(cudaFuncGetAttributes(&loaded, k.kernel), "cudaFuncGetAttributes");
  }
  return gs_launch_as(s, "decode", (void (*)(Params))k.kernel, blocks, k.THREADS, shared, {1, false, p.only_step < 0},
                      p);
}

// Of the widest models in bfloat16 a block has too little shared memory for several sequences.
template <typename Of, bool DRAWS> gs_persistent_kernel batched() {
  if constexpr (Of::NB < 5 || Of::Q8) return kernel_of<typename Of::Batched, DRAWS>();
  else return {};
}

template <typename Of> gs_persistent_width kernels_of() {
  return {{kernel_of<Of>(), kernel_of<Of, true>()},
          {batched<Of, false>(), batched<Of, true>()},
          {verifying<Of, false>(), verifying<Of, true>()},
          kernel_of<typename Of::Prompt>(),
          {},
          launch};
}
// Those that stamp, or run a single step.
template <typename Of> gs_persistent_width watched_kernels_of() {
  gs_persistent_width w = kernels_of<typename Of::Stamping>();
  w.one_step = kernel_of<SingleStep<Of>>();
  return w;
}

}  // namespace

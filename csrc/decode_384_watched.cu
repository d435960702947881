#include "decode_table.cuh"
const gs_persistent_width gs_persistent_384_watched = watched_kernels_of<decode::Narrow<false>>();
const gs_persistent_width gs_persistent_q8_384_watched = watched_kernels_of<decode::Narrow<true>>();

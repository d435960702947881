#include "decode_table.cuh"
const gs_persistent_width gs_persistent_q8_384 = kernels_of<decode::Narrow<true>>();

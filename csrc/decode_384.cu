#include "decode_table.cuh"
const gs_persistent_width gs_persistent_384 = kernels_of<decode::Narrow<false>>();

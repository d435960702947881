#include "decode_table.cuh"
const gs_persistent_width gs_persistent_q8_1600 = kernels_of<Traits<10, 5, true>>();

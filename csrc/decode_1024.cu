#include "decode_table.cuh"
const gs_persistent_width gs_persistent_1024 = kernels_of<Traits<8, 4>>();
const gs_persistent_width gs_persistent_q8_1024 = kernels_of<Traits<8, 4, true>>();

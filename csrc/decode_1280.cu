#include "decode_table.cuh"
const gs_persistent_width gs_persistent_1280 = kernels_of<Traits<10, 4>>();
const gs_persistent_width gs_persistent_q8_1280 = kernels_of<Traits<10, 4, true>>();

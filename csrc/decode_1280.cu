#include "decode_table.cuh"
const gs_persistent_width gs_persistent_1280 = kernels_of<Traits<10, 4>>();

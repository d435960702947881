#include "decode_table.cuh"
const gs_persistent_width gs_persistent_1600 = kernels_of<Traits<10, 5>>();

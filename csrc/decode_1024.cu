#include "decode_table.cuh"
const gs_persistent_width gs_persistent_1024 = kernels_of<Traits<8, 4>>();

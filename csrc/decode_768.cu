#include "decode_table.cuh"
const gs_persistent_width gs_persistent_768 = kernels_of<Traits<12, 2>>();

#include "decode_table.cuh"
const gs_persistent_width gs_persistent_1600_watched = watched_kernels_of<Traits<10, 5>>();
const gs_persistent_width gs_persistent_q8_1600_watched = watched_kernels_of<Traits<10, 5, true>>();

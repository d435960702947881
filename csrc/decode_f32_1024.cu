// The decode kernels of a width of 1024, with weights in float32.

#include "decode_f32.cuh"

const gs_decode_width gs_decode_f32_1024 = launches_of<Cut<8, 4, 1, 3, 4, 24>>;

// The decode kernels of a width of 1600, with weights in float32.

#include "decode_f32.cuh"

const gs_decode_width gs_decode_f32_1600 = launches_of<Cut<10, 5, 1, 2, 3, 24>>;

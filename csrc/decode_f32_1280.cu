// The decode kernels of a width of 1280, with weights in float32.

#include "decode_f32.cuh"

const gs_decode_width gs_decode_f32_1280 = launches_of<Cut<10, 4, 1, 3, 5, 24>>;

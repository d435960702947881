// The decode kernels of a width of 384, with weights in float32.

#include "decode_f32.cuh"

const gs_decode_width gs_decode_f32_384 = launches_of<Cut<12, 1, 2, 3, 3, 24>>;

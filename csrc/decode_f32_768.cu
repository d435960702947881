// The decode kernels of a width of 768, with weights in float32.

#include "decode_f32.cuh"

const gs_decode_width gs_decode_f32_768 = launches_of<Cut<12, 2, 2, 3, 6, 24>>;

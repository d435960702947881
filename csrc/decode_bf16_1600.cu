// The decode kernels of a width of 1600, with weights in bfloat16.

#include "decode_bf16.cuh"

const gs_decode_width gs_decode_bf16_1600 = launches_of<Cut<10, 5>>;

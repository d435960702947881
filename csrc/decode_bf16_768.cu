// The decode kernels of a width of 768, with weights in bfloat16.

#include "decode_bf16.cuh"

const gs_decode_width gs_decode_bf16_768 = launches_of<Cut<12, 2>>;

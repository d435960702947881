#include "decode_host.cuh"

const gs_decode_width gs_decode_384 = launches_of<Traits<12, 1>>;

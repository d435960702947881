#include "decode_host.cuh"

const gs_decode_width gs_decode_768 = launches_of<Traits<12, 2>>;

#include "decode_host.cuh"

const gs_decode_width gs_decode_1024 = launches_of<Traits<8, 4>>;

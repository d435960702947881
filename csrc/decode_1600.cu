#include "decode_host.cuh"

const gs_decode_width gs_decode_1600 = launches_of<Traits<10, 5>>;

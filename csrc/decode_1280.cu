#include "decode_host.cuh"

const gs_decode_width gs_decode_1280 = launches_of<Traits<10, 4>>;

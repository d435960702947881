#include "decode_host.cuh"
const gs_persistent_width gs_persistent_q8_1024 = launches_of<Traits<8, 4, true>>;

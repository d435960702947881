#include "decode_host.cuh"
const gs_persistent_width gs_persistent_q8_384 = launches_of<decode::Narrow<true>>;

#include "decode_host.cuh"
const gs_persistent_width gs_persistent_384 = launches_of<decode::Narrow<false>>;

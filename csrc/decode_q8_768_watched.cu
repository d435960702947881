#include "decode_host.cuh"
const gs_persistent_width gs_persistent_q8_768_watched = watched_launches_of<Traits<12, 2, true>>;

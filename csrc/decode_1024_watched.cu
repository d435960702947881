#include "decode_host.cuh"
const gs_persistent_width gs_persistent_1024_watched = watched_launches_of<Traits<8, 4>>;

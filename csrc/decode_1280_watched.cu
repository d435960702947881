#include "decode_host.cuh"
const gs_persistent_width gs_persistent_1280_watched = watched_launches_of<Traits<10, 4>>;

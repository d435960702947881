// The kernels of gemv.cu that stamp.
#define GS_WATCHED
#include "gemv.cu"

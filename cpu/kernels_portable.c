// The kernels for any processor of the compiler: vectors of 4 floats (SSE2 on x86-64), a register tile of 4 x 8.
#define GS_TABLE gs_kernels_portable
#define GS_VB 16
#define GS_MR 4
#define GS_NV 2
#define GS_GP 1
#define GS_GU 1
#include "kernels_impl.h"

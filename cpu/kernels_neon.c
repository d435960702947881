// The kernels for 64-bit Arm: NEON and FMA are part of its base. 32 registers of 4 floats, a register tile of 6 x 16.
#if defined(__aarch64__)
#define GS_TABLE gs_kernels_neon
#define GS_NAME "neon"
#define GS_VB 16
#define GS_MR 6
#define GS_NV 4
#define GS_GP 1
#define GS_GU 2
#define GS_PREFETCH 512
#include "kernels_impl.h"
#endif

// The parameters of kernels_impl.h for AVX-512: 32 registers of 16 floats, a register tile of 12 x 32.
#ifndef GS_AVX512_H
#define GS_AVX512_H

#define GS_VB 64
#define GS_MR 12
#define GS_NV 2
#define GS_GP 4
#define GS_GU 2

#endif

// Included first into llama.cpp's C++ (run.sh). GCC 12's own _tile_loadconfig tells the compiler that the instruction
// reads 8 of the 64 bytes, so that the rest of llama.cpp's configuration is never written and its first tile
// instruction stops with SIGILL.
#include <immintrin.h>
#define _tile_loadconfig(config) __asm__ volatile("ldtilecfg %0" ::"m"(*(const char(*)[64])(config)))

// No decode kernel takes half precision: what csrc/common.cuh names of it.
#pragma once

#include "cuda_runtime.h"

struct __half {
  uint16_t bits;
};
float __half2float(__half);
__half __float2half_rn(float);

// The beginning of the work area of gs_decode.
#pragma once

#include <cstdint>

struct gs_decode_header {
  uint32_t epoch;    // of the last step that ran
  uint32_t expired;  // 0, or 2^31 + 65536 * step + block: which block waited too long, and where
};

// The decode kernels of a width.
#include "../decode_384.cu"
#include "../decode_384_watched.cu"
#include "../decode_q8_384.cu"

namespace {
alignas(128) thread_local unsigned char dynamic[232 << 10];
unsigned char *emulator_dynamic() { return dynamic; }
}  // namespace

// The decode kernels of a width and a type of weights, EMULATED being their file: "../decode_bf16_384.cu".
#include EMULATED

namespace {
alignas(128) thread_local unsigned char dynamic[232 << 10];
unsigned char *emulator_dynamic() { return dynamic; }
}  // namespace

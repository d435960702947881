// The decode kernels of a width, EMULATED being their file: "../decode_384.cu".
#include EMULATED

namespace {
alignas(128) thread_local unsigned char dynamic[232 << 10];
unsigned char *emulator_dynamic() { return dynamic; }
}  // namespace

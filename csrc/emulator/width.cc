// The decode kernels of a width, EMULATED and WATCHED being their files: "../decode_384.cu", "../decode_384_watched.cu".
#include EMULATED
#include WATCHED

namespace {
alignas(128) thread_local unsigned char dynamic[232 << 10];
unsigned char *emulator_dynamic() { return dynamic; }
}  // namespace

#include "../decode.cu"

namespace {
alignas(128) thread_local unsigned char dynamic[232 << 10];
unsigned char *emulator_dynamic() { return dynamic; }
}  // namespace

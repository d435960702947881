package record

// #include <stdint.h>
// #include <time.h>
//
// static inline int64_t gs_monotonic(void) {
// 	struct timespec t;
// 	clock_gettime(CLOCK_MONOTONIC, &t);
// 	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
// }
//
// #cgo noescape gs_monotonic
// #cgo nocallback gs_monotonic
import "C"

// monotonic reads CLOCK_MONOTONIC in the way that the C code of this process does, by which kernels of the CPU and the
// GPU's clock are timed. Go's clock should be the same, but in sandboxes they differed by microseconds and more.
func monotonic() int64 { return int64(C.gs_monotonic()) }

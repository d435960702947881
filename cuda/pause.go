package cuda

/*
#include <time.h>

static inline void pause_core(void) {
	for (int i = 0; i < 8; i++) {
#if defined(__x86_64__) || defined(__i386__)
		__builtin_ia32_pause();
#elif defined(__aarch64__)
		__asm__ volatile("isb" ::: "memory");
#endif
	}
}

static void nap(long ns) {
	struct timespec t = {0, ns};
	nanosleep(&t, 0);
}

#cgo noescape pause_core
#cgo nocallback pause_core
*/
import "C"

import "time"

// Pause waits for some 0.1 to 0.5 us on the core of the calling thread, between two looks at what a GPU writes. It
// leaves more of the core to its other hyperthread than a loop does, and does not yield: a goroutine that is locked to
// its thread and yields wakes another thread, which wakes this one again, some 10 us later.
func Pause() { C.pause_core() }

// Nap lets the calling thread sleep for at least d, which is less than a second: on Linux some 60 us longer.
// [time.Sleep] waits in whole milliseconds if the program has nothing else to do.
func Nap(d time.Duration) { C.nap(C.long(d)) }

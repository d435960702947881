// Memory for weights, caches and activations: anonymous mappings, so that it is zero, is committed only as it is touched, and goes
// back to the system when freed.
#if defined(__linux__)
#define _GNU_SOURCE
#endif
#include "kernels.h"
#include <sys/mman.h>

#define HUGE_PAGE ((size_t)2 << 20)
#define PAGE ((size_t)16384) // a multiple of every common page size

static size_t mapped(size_t bytes) {
	size_t unit = bytes >= 2 * HUGE_PAGE ? HUGE_PAGE : PAGE;
	return (bytes + unit - 1) / unit * unit;
}

void *gs_alloc(size_t bytes) {
	if (bytes == 0 || bytes > SIZE_MAX / 2) return NULL;
	size_t size = mapped(bytes), slack = size >= 2 * HUGE_PAGE ? HUGE_PAGE : 0;
	char *p = mmap(NULL, size + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED) return NULL;
	if (slack) { // align to huge pages: cut both ends off
		size_t head = (HUGE_PAGE - (uintptr_t)p % HUGE_PAGE) % HUGE_PAGE;
		if (head) munmap(p, head);
		if (slack - head) munmap(p + head + size, slack - head);
		p += head;
#ifdef MADV_HUGEPAGE
		madvise(p, size, MADV_HUGEPAGE); // fewer TLB misses; only a hint
#endif
	}
	return p;
}

void gs_free(void *p, size_t bytes) {
	if (p) munmap(p, mapped(bytes));
}

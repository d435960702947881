// Memory for weights, caches and activations. It comes from anonymous mappings: the system fills them with zeros,
// commits a page when it is first written, and gets the memory back when it is freed.
#if defined(__linux__)
#define _GNU_SOURCE
#endif
#include "pool.h"
#include <sys/mman.h>

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
	if (slack) { // align to huge pages: unmap what is too much at both ends
		size_t head = (HUGE_PAGE - (uintptr_t)p % HUGE_PAGE) % HUGE_PAGE;
		if (head) munmap(p, head);
		if (slack - head) munmap(p + head + size, slack - head);
		p += head;
#ifdef MADV_HUGEPAGE
		madvise(p, size, MADV_HUGEPAGE); // a hint, for fewer TLB misses
#endif
	}
	return p;
}

void gs_free(void *p, size_t bytes) {
	if (p) munmap(p, mapped(bytes));
}

void gs_huge_pages(void *p, size_t bytes, int on) {
	(void)p, (void)bytes, (void)on;
#ifdef MADV_HUGEPAGE
	enum { COLLAPSE = 25 }; // MADV_COLLAPSE, since Linux 6.1
	const size_t size = on ? bytes / HUGE_PAGE * HUGE_PAGE : mapped(bytes);
	madvise(p, size, on ? MADV_HUGEPAGE : MADV_NOHUGEPAGE); // hints, which a system may not know
	if (on) madvise(p, size, COLLAPSE);
#endif
}

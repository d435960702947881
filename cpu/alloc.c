// Memory for weights, caches and activations: anonymous mappings, so that it is zero, is committed only as it is touched, and goes
// back to the system when freed. And giving back what the program's own file takes.
#if defined(__linux__)
#define _GNU_SOURCE
#endif
#include "kernels.h"
#include <sys/mman.h>
#if defined(__linux__)
#include <fcntl.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#endif

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

void gs_small_pages(void *p, size_t bytes) {
	(void)p, (void)bytes;
#ifdef MADV_NOHUGEPAGE
	madvise(p, mapped(bytes), MADV_NOHUGEPAGE); // only a hint
#endif
}

#if defined(__linux__)
// traced tells whether a debugger is attached: a line of proc(5)'s status, "TracerPid:\t0" where none is.
static int traced(void) {
	char text[2048];
	int file = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
	ssize_t n = file < 0 ? -1 : read(file, text, sizeof text - 1);
	if (file >= 0) close(file);
	if (n <= 0) return 1;
	text[n] = 0;
	const char *line = strstr(text, "\nTracerPid:");
	return !line || atoi(line + sizeof "\nTracerPid:" - 1) != 0;
}

static int drop_segments(struct dl_phdr_info *object, size_t size, void *unused) {
	(void)size;
	(void)unused;
	const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	for (int i = 0; i < object->dlpi_phnum; i++) {
		const ElfW(Phdr) *h = &object->dlpi_phdr[i];
		if (h->p_type != PT_LOAD || (h->p_flags & PF_W)) continue;
		uintptr_t from = (object->dlpi_addr + h->p_vaddr) / page * page, to = object->dlpi_addr + h->p_vaddr + h->p_memsz;
#ifdef MADV_NOHUGEPAGE
		madvise((void *)from, to - from, MADV_NOHUGEPAGE); // else 2 MiB come back at a time, where the file is cached so
#endif
		madvise((void *)from, to - from, MADV_DONTNEED); // hints, both of them
	}
	return 1; // the first object is the program
}

int gs_drop_program(void) { return !traced() && dl_iterate_phdr(drop_segments, NULL); }
#else
int gs_drop_program(void) { return 0; }
#endif

// Memory for weights, caches and activations. It comes from anonymous mappings: the system fills them with zeros,
// commits a page when it is first written, and gets the memory back when it is freed. Also: releasing the pages of the
// program's own file.
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

void gs_small_pages(void *p, size_t bytes) {
	(void)p, (void)bytes;
#ifdef MADV_NOHUGEPAGE
	madvise(p, mapped(bytes), MADV_NOHUGEPAGE); // a hint
#endif
}

#if defined(__linux__)
// traced returns 1 if a debugger is attached, or if that cannot be read. /proc/self/status has the line "TracerPid:\t0"
// if none is (proc(5)).
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
		madvise((void *)from, to - from, MADV_NOHUGEPAGE); // else the next use may map 2 MiB of the file at once
#endif
		madvise((void *)from, to - from, MADV_DONTNEED);
	}
	return 1; // the first object is the program
}

int gs_drop_program(void) { return !traced() && dl_iterate_phdr(drop_segments, NULL); }
#else
int gs_drop_program(void) { return 0; }
#endif

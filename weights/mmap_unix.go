//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package weights

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// mapFile maps the first size bytes of f, read-only.
func mapFile(f *os.File, size int64) ([]byte, error) {
	if size == 0 || int64(int(size)) != size {
		return nil, errors.New("cannot be mapped")
	}
	return unix.Mmap(int(f.Fd()), 0, int(size), unix.PROT_READ, unix.MAP_SHARED)
}

func unmapFile(data []byte) error { return unix.Munmap(data) }

// dropPages gives back the pages of a mapping that [off, off+n) touches. It is a
// hint: a page that is needed after all is read again.
func dropPages(data []byte, off, n int64) {
	start := off &^ int64(os.Getpagesize()-1)
	_ = unix.Madvise(data[start:off+n], unix.MADV_DONTNEED)
}

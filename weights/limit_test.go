//go:build linux

package weights

import (
	"os/signal"
	"syscall"
)

// limitFileSize makes writes beyond the limit fail with EFBIG, in this process.
func limitFileSize(limit uint64) {
	signal.Ignore(syscall.SIGXFSZ)
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: limit, Max: limit}); err != nil {
		panic(err)
	}
}

//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package weights

import (
	"errors"
	"os"
)

// Elsewhere files are read at offsets, a piece at a time.
func mapFile(*os.File, int64) ([]byte, error) { return nil, errors.ErrUnsupported }
func unmapFile([]byte) error                  { return nil }
func dropPages([]byte, int64, int64)          {}

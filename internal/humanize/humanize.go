// Package humanize writes numbers and errors for people, for all output alike.
package humanize

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"
)

// Thousands writes a whole number with separators: 1,234,567.
func Thousands(n int64) string {
	s := strconv.FormatInt(n, 10)
	first := 0
	if n < 0 {
		first = 1
	}
	for i := len(s) - 3; i > first; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Count writes a number of things: "1 pass", "2 passes", "1,024 passes".
func Count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return Thousands(int64(n)) + " " + many
}

// Size writes bytes in a unit that fits: "12.5 KiB", "1.17 GiB".
func Size(bytes int64) string {
	switch b := float64(bytes); {
	case b >= 1<<40:
		return fmt.Sprintf("%.2f TiB", b/(1<<40))
	case b >= 1<<30:
		return fmt.Sprintf("%.2f GiB", b/(1<<30))
	case b >= 1<<20:
		return fmt.Sprintf("%.1f MiB", b/(1<<20))
	case b >= 1<<10 || bytes == 0:
		return fmt.Sprintf("%.1f KiB", b/(1<<10))
	}
	return fmt.Sprintf("%d B", bytes)
}

// Cause returns what an error of a file says beside the path, for sentences that name
// the file already.
func Cause(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}

// Package humanize writes numbers and errors for people, for all output alike.
package humanize

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Thousands writes a whole number with separators: 1,234,567.
func Thousands(n int64) string { return Separate(strconv.FormatInt(n, 10)) }

// Separate puts separators between the thousands of a written number, which may have a sign and decimals.
func Separate(number string) string {
	sign := ""
	if strings.HasPrefix(number, "-") {
		sign, number = "-", number[1:]
	}
	digits, rest, found := strings.Cut(number, ".")
	if found {
		rest = "." + rest
	}
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return sign + digits + rest
}

// Count writes a number of things: "1 pass", "2 passes", "1,024 passes".
func Count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return Thousands(int64(n)) + " " + many
}

// Plural writes a noun, or a name that is used as one, for several: "passes", "copies", "prefills".
func Plural(noun string) string {
	stem, isY := strings.CutSuffix(noun, "y")
	switch {
	case isY && stem != "" && !strings.ContainsAny(stem[len(stem)-1:], "aeiou"):
		return stem + "ies"
	case strings.HasSuffix(noun, "s"), strings.HasSuffix(noun, "x"), strings.HasSuffix(noun, "ch"), strings.HasSuffix(noun, "sh"):
		return noun + "es"
	}
	return noun + "s"
}

// Milliseconds writes a time given in milliseconds: 0.049 as "49 us", 1.13 as "1.1 ms".
func Milliseconds(ms float64) string {
	switch us := 1000 * ms; {
	case us > 0 && us < 9.95:
		return fmt.Sprintf("%.1f us", us)
	case us > 0 && us < 999.5:
		return fmt.Sprintf("%.0f us", us)
	}
	return fmt.Sprintf("%.1f ms", ms)
}

// InMilliseconds writes nanoseconds in milliseconds, for one unit in all lines: 2,434.068; in more digits below a
// microsecond: 0.000300.
func InMilliseconds[T int64 | float64](ns T) string {
	digits := 3
	if 0 < ns && ns < 1000 {
		digits = 6
	}
	return Separate(strconv.FormatFloat(float64(ns)/1e6, 'f', digits, 64))
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

// Cause returns what an error of a file says beside the paths, for sentences that name the file already.
func Cause(err error) error {
	var path *fs.PathError
	var link *os.LinkError
	switch {
	case errors.As(err, &path):
		return path.Err
	case errors.As(err, &link):
		return link.Err
	}
	return err
}

// First returns the first texts of a list, at most so many of them, and a last one, "and 3 more", if there are more.
func First(texts []string, most int) []string {
	if len(texts) <= most {
		return texts
	}
	return append(slices.Clone(texts[:most]), fmt.Sprintf("and %d more", len(texts)-most))
}

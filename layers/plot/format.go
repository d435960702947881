package plot

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"gpt2scope/internal/humanize"
	"gpt2scope/layers"
)

// none is written if a value is not known.
const none = "-"

// nbsp keeps a number and its unit on one line.
const nbsp = "\u00a0"

// decimals is how many of them show v with four significant digits.
func decimals(v float64) int {
	v = math.Abs(v)
	if v == 0 || math.IsNaN(v) || math.IsInf(v, 0) {
		return 0
	}
	return min(max(3-int(math.Floor(math.Log10(v))), 0), 12)
}

// number writes a value with four significant digits, or all of those before the
// point.
func number(v float64) string { return fixed(v, decimals(v)) }

// fixed writes a value with a number of decimals, and very large or small ones with an
// exponent.
func fixed(v float64, decimals int) string {
	switch size := math.Abs(v); {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return none
	case size >= 1e15, size > 0 && size < 1e-6:
		return strconv.FormatFloat(v, 'g', 4, 64)
	}
	s := strconv.FormatFloat(v, 'f', decimals, 64)
	if strings.Trim(s, "-0.") == "" {
		s = strings.TrimPrefix(s, "-")
	}
	return humanize.Separate(s)
}

// whole writes a count.
func whole(v float64) string { return fixed(v, 0) }

// equation writes a fit as a formula.
func equation(f *layers.Fit) string {
	sign := "+"
	if f.B < 0 {
		sign = "-"
	}
	return fmt.Sprintf("%s %s %s L %s", number(f.A), sign, number(math.Abs(f.B)), clean(f.Unit))
}

// scaled is a unit that suits the largest of some values, and what they are divided by.
// That of counts and shares, which files write as 1, is not written.
func scaled(unit string, largest float64) (string, float64) {
	largest = math.Abs(largest)
	prefixes, base := []string(nil), 1000.0
	switch strings.ToLower(unit) {
	case "b", "byte", "bytes":
		prefixes, base = []string{"bytes", "KiB", "MiB", "GiB", "TiB"}, 1024
	case "flop", "flops":
		prefixes = []string{"FLOPs", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP"}
	case "1":
		return "", 1
	default:
		return unit, 1
	}
	divisor := 1.0
	for len(prefixes) > 1 && largest >= base*divisor {
		divisor *= base
		prefixes = prefixes[1:]
	}
	return prefixes[0], divisor
}

// clean makes a text drawable on one line: control characters, which XML can't
// hold, become spaces.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsControl(r), r == '\u2028', r == '\u2029':
			return ' '
		case r == utf8.RuneError, r >= 0xfffe && r <= 0xffff:
			return '\ufffd'
		}
		return r
	}, s)
}

// maxLabel is how many characters of a label are drawn.
const maxLabel = 26

// shortLabel is a label as it is drawn beside a mark.
func shortLabel(s string) string {
	r := []rune(strings.TrimSpace(clean(s)))
	if len(r) > maxLabel {
		return string(r[:maxLabel-1]) + "…"
	}
	return string(r)
}

// capital writes the first letter of a text as a capital.
func capital(s string) string {
	r, n := utf8.DecodeRuneInString(s)
	if n == 0 {
		return s
	}
	return string(unicode.ToUpper(r)) + s[n:]
}

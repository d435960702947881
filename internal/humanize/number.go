package humanize

import (
	"math"
	"strconv"
	"strings"
)

// Fixed writes a value with a number of decimals, and very large or small ones with an exponent; "-" is no number.
func Fixed(v float64, decimals int) string {
	switch size := math.Abs(v); {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return "-"
	case size >= 1e15, size > 0 && size < 1e-6:
		return strconv.FormatFloat(v, 'g', 4, 64)
	}
	s := strconv.FormatFloat(v, 'f', decimals, 64)
	if strings.Trim(s, "-0.") == "" {
		s = strings.TrimPrefix(s, "-")
	}
	return Separate(s)
}

// Decimals is how many of them show v with a number of significant digits.
func Decimals(v float64, digits int) int {
	v = math.Abs(v)
	if v == 0 || math.IsNaN(v) || math.IsInf(v, 0) {
		return 0
	}
	return min(max(digits-1-int(math.Floor(math.Log10(v))), 0), 12)
}

// Significant writes a value with a number of significant digits, or all of those before the point.
func Significant(v float64, digits int) string {
	return Fixed(v, Decimals(v, digits))
}

// Short writes a value with three significant digits and few letters: 20k for 20,000.
func Short(v float64) string {
	suffix := ""
	for _, u := range []struct {
		size   float64
		suffix string
	}{{1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
		if size := math.Abs(v); size >= u.size*0.9995 && size < 1e12 {
			v, suffix = v/u.size, u.suffix
			break
		}
	}
	if v, err := strconv.ParseFloat(strconv.FormatFloat(v, 'g', 3, 64), 64); err == nil {
		return strconv.FormatFloat(v, 'g', 4, 64) + suffix
	}
	return "-"
}

// Multiple is a unit that suits the largest of some values, and what they are divided by: GiB and 1 << 30 for bytes.
// That of counts and shares, which files write as 1, is not shown.
func Multiple(unit string, largest float64) (string, float64) {
	units, base := []string(nil), 1000.0
	switch strings.ToLower(unit) {
	case "b", "byte", "bytes":
		units, base = []string{"bytes", "KiB", "MiB", "GiB", "TiB"}, 1024
	case "us":
		units = []string{"us", "ms", "s"}
	case "1":
		return "", 1
	default:
		return unit, 1
	}
	divisor := 1.0
	for len(units) > 1 && math.Abs(largest) >= base*divisor {
		divisor, units = divisor*base, units[1:]
	}
	return units[0], divisor
}

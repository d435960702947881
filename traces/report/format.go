package report

import (
	"fmt"
	"strconv"
)

// micros writes ns as microseconds with three decimals.
func micros(ns int64) string { return strconv.FormatFloat(float64(ns)/1e3, 'f', 3, 64) }

// nbsp is a no-break space: it keeps a number and its unit on one line.
const nbsp = "\u00a0"

// duration writes ns with a unit that suits its size, for sentences.
func duration(ns int64) string {
	switch v := float64(ns); {
	case ns >= 1e9:
		return fmt.Sprintf("%.3f"+nbsp+"s", v/1e9)
	case ns >= 1e6:
		return fmt.Sprintf("%.3f"+nbsp+"ms", v/1e6)
	case ns >= 1e3:
		return fmt.Sprintf("%.1f"+nbsp+"µs", v/1e3)
	}
	return fmt.Sprintf("%d"+nbsp+"ns", ns)
}

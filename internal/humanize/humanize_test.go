package humanize

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"strings"
	"testing"
)

func TestHumanize(t *testing.T) {
	for got, want := range map[string]string{
		Thousands(0): "0", Thousands(999): "999", Thousands(1000): "1,000", Thousands(-123456): "-123,456", Thousands(-999): "-999",
		Thousands(math.MaxInt64): "9,223,372,036,854,775,807",
		Separate("-1234.5678"):   "-1,234.5678", Separate("100.25"): "100.25",
		Count(1, "pass", "passes"): "1 pass", Count(0, "pass", "passes"): "0 passes", Count(4096, "pass", "passes"): "4,096 passes",
		Milliseconds(0): "0.0 ms", Milliseconds(0.0004): "0.4 us", Milliseconds(0.00996): "10 us", Milliseconds(0.049): "49 us", Milliseconds(0.9994): "999 us", Milliseconds(0.9996): "1.0 ms", Milliseconds(1.13): "1.1 ms", Milliseconds(2500): "2500.0 ms",
		Size(0): "0.0 KiB", Size(512): "512 B", Size(1536): "1.5 KiB", Size(3 << 20): "3.0 MiB", Size(5 << 28): "1.25 GiB", Size(1 << 41): "2.00 TiB",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	plain := errors.New("plain")
	if err := Cause(fmt.Errorf("wrapped: %w", &fs.PathError{Op: "open", Path: "/x", Err: plain})); err != plain {
		t.Error(err)
	}
	if err := Cause(plain); err != plain {
		t.Error(err)
	}
}

func TestFirst(t *testing.T) {
	all := []string{"a", "b", "c"}
	for most, want := range map[int]string{3: "a, b, c", 4: "a, b, c", 2: "a, b, and 1 more", 0: "and 3 more"} {
		if got := strings.Join(First(all, most), ", "); got != want {
			t.Errorf("the first %d: %q, want %q", most, got, want)
		}
	}
}

package cpu

import (
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Others counts the time of allowed processors that is neither idle nor this program's.
func TestOthers(t *testing.T) {
	file := filepath.Join(t.TempDir(), "stat")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	mine := time.Duration(0)
	o := &Others{stat: file, allowed: []int{1, 2}, own: func() time.Duration { return mine }}
	if _, ok := o.Cores(); ok {
		t.Error("known without a file")
	}
	write("cpu  9 9 9 9 9 9 9 9 9 9\ncpu0 7000 0 0 0 0 0 0 0 0 0\ncpu1 100 10 20 5000 300 1 2 3 0 0\ncpu2 0 0 0 0 0 0 0 0 0 0\nintr 5\n")
	if _, ok := o.Cores(); ok {
		t.Error("known by one reading")
	}
	write("cpu  9 9 9 9 9 9 9 9 9 9\ncpu0 9000 0 0 0 0 0 0 0 0 0\ncpu1 200 20 30 9000 400 11 12 13 0 0\ncpu2 50 0 0 100 0 0 0 0 0 0\nintr 5\n")
	o.at = o.at.Add(-time.Second)
	elapsed := time.Since(o.at)
	mine = 400 * time.Millisecond
	// 1.5 s on processor 1, 0.5 on 2, less 0.4 of its own, in about a second.
	if cores, ok := o.Cores(); !ok || math.Abs(cores*float64(elapsed)/float64(time.Second)-1.6) > 0.1 {
		t.Errorf("others keep %.2f cores busy, %v; expected about 1.6", cores, ok)
	}
	// Where all processors are allowed the line of all is read.
	if sum, ok := busyTime([]byte("cpu 11 2 3 50 6 0 0 0 0 0\ncpu1 5 0 1 20 3 0 0 0 0 0\ncpu2 5 1 1 30 3 0 0 0 0 0\n"), []int{1, 2}); !ok || sum != 160*time.Millisecond {
		t.Errorf("all processors were busy for %v, %v; expected 160 ms", sum, ok)
	}
	for _, bad := range []string{"", "cpu1 1 2 3\n", "cpu1 1 2 3 x 5 6 7 8 9\n", "cpux 1 2 3 4 5 6 7 8 9\n"} {
		write(bad)
		if _, ok := o.Cores(); ok {
			t.Errorf("%q is read", bad)
		}
	}
}

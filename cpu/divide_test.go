package cpu

import "testing"

// How products are divided by versions that may not run here, reckoned by hand from linear.h, bf16.h and split.h.
func TestDivideElsewhere(t *testing.T) {
	for _, c := range []struct {
		version          string
		threads, m, n, k int
		bf16             bool
		kernel           Kernel
		tasks            int
	}{
		{"amx", 16, 12, 384, 384, true, FewRows, 12},
		{"amx", 16, 13, 384, 1536, false, ManyRows, 3}, // tasks of four panels at least
		// Nine tasks of columns, then two of rows are 18, not a multiple of 16, and more would have less than 24 rows.
		{"amx", 16, 95, 1152, 384, false, ManyRows, 16},
		{"amx", 16, 128, 1536, 384, false, Units, 96}, // of 64 rows and a panel
		{"amx", 16, 13, 1536, 384, true, Units, 48},   // three tasks of a panel for each worker
		{"amx", 2, 1024, 1152, 384, true, Units, 16},
		{"neon-dot", 2, 6, 33, 384, false, FewRows, 2},
	} {
		if kernel, tasks := Divide(c.version, c.threads, c.m, c.n, c.k, c.bf16); kernel != c.kernel || tasks != c.tasks {
			t.Errorf("%+v: kernel %d, %d tasks", c, kernel, tasks)
		}
	}
}

package cpu

import (
	"math/rand/v2"
	"testing"
)

// Divide says what the kernels of each version that runs here do: into how many tasks they divide products of random shapes.
func TestDivideIsWhatKernelsDo(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 5))
	for _, isa := range supportedISAs() {
		kernels := map[Kernel]int{}
		for _, threads := range []int{1, 2, 3, 5, 8, 16} {
			p, err := newPool(threads, isa)
			if err != nil {
				t.Fatal(err)
			}
			for i := range 60 {
				// As many of few rows as of many; the last ones have sums of several blocks, or many columns.
				m, n, k, bf16 := 1+r.IntN(16<<(i%5)), 1+r.IntN(2000), 1+r.IntN(200), i%2 == 0
				switch i % 10 {
				case 8:
					k = 700 + r.IntN(1200)
				case 9:
					n = 8000 + r.IntN(12000)
					m, k = 1+m/8, 1+k/4
				}
				tasks := tasksOf(t, p, m, n, k, bf16)
				kernel, want := Divide(isa.String(), threads, m, n, k, bf16)
				if kernels[kernel]++; tasks != want {
					t.Errorf("%s, %d threads, %d x %d x %d, bfloat16 %v: Divide says %d tasks, the kernels have %d", isa, threads, m, n, k, bf16, want, tasks)
				}
			}
			p.close()
		}
		for _, kernel := range []Kernel{FewRows, ManyRows, Units} {
			if kernels[kernel] == 0 && (kernel != Units || isa.multipliesBF16()) {
				t.Errorf("%s: no shape takes kernel %d", isa, kernel)
			}
		}
	}
}

// tasksOf multiplies, and returns the number of tasks.
func tasksOf(t *testing.T, p *pool, m, n, k int, bf16 bool) int {
	d := float32Type
	if bf16 {
		d = bfloat16Type
	}
	w, err := newWeight(arenaFor(t, k, n, d, false), k, n, d)
	if err != nil {
		t.Fatal(err)
	}
	x, err := alloc[float32](m * k)
	if err != nil {
		t.Fatal(err)
	}
	defer x.free()
	y, err := alloc[float32](m * n)
	if err != nil {
		t.Fatal(err)
	}
	defer y.free()
	program, err := newProgram(p, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer program.free()
	if err := program.linear(linearStep{x: matrix(x, k), y: matrix(y, n), w: w, M: m}); err != nil {
		t.Fatal(err)
	}
	if done, err := program.run(0, 1, mem[int64]{}); !done || err != nil {
		t.Fatal(done, err)
	}
	return p.parts()
}

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
		{"amx", 16, 13, 384, 1536, false, ManyRows, 3},  // tasks of four panels at least
		{"amx", 16, 95, 1152, 384, false, ManyRows, 16}, // nine tasks of columns, then two of rows are 18, not a multiple of 16, and more would have less than 24 rows
		{"amx", 16, 128, 1536, 384, false, Units, 10},
		{"amx", 16, 13, 1536, 384, true, Units, 25},
		{"amx", 2, 1024, 1152, 384, true, Units, 16},
		{"neon-dot", 2, 6, 33, 384, false, FewRows, 2},
	} {
		if kernel, tasks := Divide(c.version, c.threads, c.m, c.n, c.k, c.bf16); kernel != c.kernel || tasks != c.tasks {
			t.Errorf("%+v: kernel %d, %d tasks", c, kernel, tasks)
		}
	}
}

package cpu

import (
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"testing"
)

func benchPool(b *testing.B) *pool {
	b.Helper()
	version, err := chooseISA(os.Getenv("GPT2SCOPE_CPU"))
	must(b, err)
	return testPool(b, min(runtime.NumCPU(), 64), version)
}

func benchFloats(b *testing.B, n int) mem[float32] {
	b.Helper()
	m, err := alloc[float32](n)
	must(b, err)
	b.Cleanup(m.free)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range m.slice() {
		m.slice()[i] = r.Float32() - 0.5
	}
	return m
}

// bench runs a program and reports its rate.
func bench(b *testing.B, p *pool, work float64, unit string, build func(prog *program) error) {
	b.Helper()
	prog := testProgram(b, p, 1)
	must(b, build(prog))
	for b.Loop() {
		if _, err := prog.run(0, prog.n, mem[int64]{}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(work*float64(b.N)/b.Elapsed().Seconds()*1e-9, unit)
}

// Products of gpt2's shapes, with weights in panels and, of the last, by rows.
func BenchmarkLinear(b *testing.B) {
	p := benchPool(b)
	for _, d := range []dtype{float32Type, bfloat16Type, q8Type} {
		for _, M := range []int{1, 4, 64, 1024} {
			for _, s := range [][2]int{{768, 2304}, {768, 768}, {768, 3072}, {3072, 768}, {768, 50257}} {
				K, N := s[0], s[1]
				b.Run(fmt.Sprintf("%s/M=%d/K=%d/N=%d", weightTypes[d], M, K, N), func(b *testing.B) {
					table := N == 50257 && d != q8Type
					w := testWeight(b, K, N, d, table)
					x, y := benchFloats(b, M*K), benchFloats(b, M*N)
					bench(b, p, 2*float64(M)*float64(K)*float64(N), "GFLOP/s", func(prog *program) error {
						return prog.linear(linearStep{x: matrix(x, K), y: matrix(y, N), w: w, M: M})
					})
				})
			}
		}
	}
}

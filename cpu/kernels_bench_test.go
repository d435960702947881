package cpu

import (
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"
)

// Each benchmark of a kernel measures its ceiling in the same process: of products the register tile on data in the first-level cache, of
// streams a plain read of as many bytes. Times are medians, on which other programs that run now and then have little effect.

func benchPool(b *testing.B) *pool {
	b.Helper()
	version, err := chooseISA(os.Getenv("GPT2SCOPE_CPU"))
	if err != nil {
		b.Fatal(err)
	}
	p, err := newPool(min(runtime.NumCPU(), 64), version)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(p.close)
	return p
}

func benchFloats(b *testing.B, n int) mem[float32] {
	b.Helper()
	m, err := alloc[float32](n)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(m.free)
	r := rand.New(rand.NewPCG(1, 2))
	s := m.slice()
	for i := range s {
		s[i] = r.Float32() - 0.5
	}
	return m
}

func benchWeight(b *testing.B, s benchShape, d dtype) *weight {
	b.Helper()
	w, err := makeWeight(arenaFor(b, s.K, s.N, d, s.table), s.K, s.N, d, s.table)
	if err != nil {
		b.Fatal(err)
	}
	values := w.data.slice()
	if d == float32Type {
		r := rand.New(rand.NewPCG(1, 2))
		for i := range values {
			values[i] = r.Float32() - 0.5
		}
	} else {
		for i := range values {
			values[i] = 1.0 / 3 // as two bfloat16 values: small ones
		}
	}
	return w
}

// measure runs the program b.N times, each time followed by `ceiling`, which returns the highest rate that the machine reaches at that
// moment; work is the amount that a run does, in the unit of that rate. It reports the median time, the rate, and the median share of
// the ceiling. They are measured in pairs because the speed of a shared machine can double from one second to the next.
func measure(b *testing.B, p *program, work float64, unit string, ceiling func(seconds float64) float64) {
	b.Helper()
	var times, shares []float64
	for b.Loop() {
		start := time.Now()
		if _, err := p.run(0, p.n, mem[int64]{}); err != nil {
			b.Fatal(err)
		}
		t := time.Since(start).Seconds()
		times = append(times, t)
		if ceiling != nil {
			shares = append(shares, work/t/ceiling(t))
		}
	}
	slices.Sort(times)
	t := times[len(times)/2]
	b.ReportMetric(t*1e6, "us")
	if unit != "" {
		b.ReportMetric(work/t*1e-9, unit)
	}
	if ceiling != nil {
		slices.Sort(shares)
		b.ReportMetric(100*shares[len(shares)/2], "%ceiling")
	}
	b.ReportMetric(0, "ns/op")
}

// flops measures the ceiling of float32 products, for about the given time: the register tile alone, on data in the first-level cache.
func (p *pool) flops(seconds float64) float64 {
	const perTile = 2 * 12 * 256 * 32
	return registerTile.measure(p)(1 + int(min(seconds, 0.05)*1e11/perTile))
}

// flopsBF16 measures the ceiling of bfloat16 products likewise.
func (p *pool) flopsBF16(seconds float64) float64 {
	const perTile = 2 * 12 * 384 * 32
	return registerTileBF16.measure(p)(1 + int(min(seconds, 0.05)*4e11/perTile))
}

// benchShape is a weight (K, N), in panels or by rows.
type benchShape struct {
	K, N  int
	table bool
}

func (s benchShape) String() string {
	layout := ""
	if s.table {
		layout = "/rows"
	}
	return fmt.Sprintf("K=%d/N=%d%s", s.K, s.N, layout)
}

var benchShapes = []benchShape{{384, 1152, false}, {384, 384, false}, {384, 1536, false}, {1536, 384, false}, {384, 257, true}, {768, 2304, false},
	{768, 768, false}, {768, 3072, false}, {3072, 768, false}, {768, 50257, false}, {768, 50257, true}}

func BenchmarkGEMM(b *testing.B) {
	p := benchPool(b)
	for _, d := range []dtype{float32Type, bfloat16Type} {
		for _, M := range []int{16, 64, 256, 1024} {
			for _, s := range benchShapes {
				K, N := s.K, s.N
				b.Run(fmt.Sprintf("%s/M=%d/%s", []string{"f32", "bf16"}[d], M, s), func(b *testing.B) {
					x, y := benchFloats(b, M*K), benchFloats(b, M*N)
					prog, err := newProgram(p, 1)
					if err != nil {
						b.Fatal(err)
					}
					defer prog.free()
					if err := prog.linear(linearStep{x: matrix(x, K), y: matrix(y, N), w: benchWeight(b, s, d), M: M}); err != nil {
						b.Fatal(err)
					}
					ceiling := p.flops
					if d == bfloat16Type && p.isa.multipliesBF16() {
						ceiling = p.flopsBF16
					}
					measure(b, prog, 2*float64(M)*float64(K)*float64(N), "GFLOP/s", ceiling)
				})
			}
		}
	}
}

// A product with one row reads copies of the weight that together exceed the caches (cold), or the same weight each time (warm).
func BenchmarkGEMV(b *testing.B) {
	p := benchPool(b)
	for _, cold := range []bool{false, true} {
		for _, d := range []dtype{float32Type, bfloat16Type} {
			for _, M := range []int{1, 4} {
				for _, s := range benchShapes {
					K, N := s.K, s.N
					b.Run(fmt.Sprintf("cold=%v/%s/M=%d/%s", cold, []string{"f32", "bf16"}[d], M, s), func(b *testing.B) {
						copies := 1
						bytes := K * N * d.size()
						if cold {
							copies = 1 + 1<<30/bytes
						}
						x, y := benchFloats(b, M*K), benchFloats(b, M*N)
						prog, err := newProgram(p, copies)
						if err != nil {
							b.Fatal(err)
						}
						defer prog.free()
						var weights []mem[float32]
						for range copies {
							w := benchWeight(b, s, d)
							weights = append(weights, w.data)
							if err := prog.linear(linearStep{x: matrix(x, K), y: matrix(y, N), w: w, M: M}); err != nil {
								b.Fatal(err)
							}
						}
						measure(b, prog, float64(copies*bytes), "GB/s", func(float64) float64 {
							start := time.Now()
							for _, w := range weights {
								p.measureRead(w, false)
							}
							return float64(copies*bytes) / time.Since(start).Seconds()
						})
					})
				}
			}
		}
	}
}

func BenchmarkAttention(b *testing.B) {
	p := benchPool(b)
	const NH, HS = 12, 64
	for _, held := range []dtype{float32Type, bfloat16Type} {
		for _, c := range []struct{ T, past, nq int }{{256, 0, 256}, {1024, 0, 1024}, {1024, 0, 1}, {1, 128, 1}, {1, 512, 1}, {1, 1000, 1}} {
			b.Run(fmt.Sprintf("%s/T=%d/past=%d/nq=%d", []string{"f32", "bf16"}[held], c.T, c.past, c.nq), func(b *testing.B) {
				kv, err := newCache(1, 1024, NH, HS, held)
				if err != nil {
					b.Fatal(err)
				}
				defer kv.free()
				qkv, y, work := benchFloats(b, c.T*3*NH*HS), benchFloats(b, c.nq*NH*HS), benchFloats(b, attentionWork(kv))
				pos, err := alloc[int32](1)
				if err != nil {
					b.Fatal(err)
				}
				defer pos.free()
				pos.slice()[0] = int32(c.past)
				prog, err := newProgram(p, 1)
				if err != nil {
					b.Fatal(err)
				}
				defer prog.free()
				if err := prog.attention(attentionStep{qkv: matrix(qkv, 3*NH*HS), y: matrix(y, NH*HS), cache: kv, pos: pos, work: work, B: 1, T: c.T,
					nq: c.nq, scale: 0.125, append: true, bf16: true}); err != nil {
					b.Fatal(err)
				}
				pairs := 0 // of a query and a key it sees
				for i := range c.nq {
					pairs += c.past + c.T - c.nq + i + 1
				}
				if c.nq > 1 {
					measure(b, prog, float64(pairs)*4*NH*HS, "GFLOP/s", p.flops)
				} else {
					measure(b, prog, float64(pairs)*2*NH*HS*float64(held.size()), "GB/s", nil)
				}
			})
		}
	}
}

// Sums, squares and the sum of all values of arrays that no cache holds, beside the ceilings that bound them: of reads, and of copies,
// which count the bytes that they read and those that they write. Each run is followed by one of each ceiling. The share is that of the
// median rates, of the way to read or to copy that is the fastest. Each array is twice as large as the last cache, which may be shared
// with other machines: else tasks and ceilings find different parts of their data there.
func BenchmarkArrays(b *testing.B) {
	p := benchPool(b)
	levels := caches("/sys", allowedCPUs(), p.threads)
	team := &Team{pool: p, past: pastCaches(levels)}
	n := 1 << 25
	if len(levels) > 0 {
		n = max(n, int(2*levels[len(levels)-1].Bytes)/4)
	}
	n = (n + SumBlock - 1) / SumBlock * SumBlock
	array := func(n int) mem[float32] {
		m, err := alloc[float32](n)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(m.free)
		p.fill(m)
		return m
	}
	x, y, z, both := array(n), array(n), array(n), array(2*n)
	partial := make([]float32, n/SumBlock)
	reads := map[string]func() float64{"read": func() float64 { return p.measureRead(x, false) }, "read, in chunks": func() float64 { return p.measureRead(x, true) }}
	copies := map[string]func() float64{}
	for _, w := range copyWays {
		copies["copy, "+w.name] = func() float64 { return p.measureCopy(w.way, both) }
	}
	for _, c := range []struct {
		name     string
		bytes    float64
		ceilings map[string]func() float64
		run      func() error
	}{
		{"add", 12 * float64(n), copies, func() error { return team.Add(z.slice(), x.slice(), y.slice()) }},
		{"square", 8 * float64(n), copies, func() error { return team.Square(z.slice(), x.slice(), Multiply) }},
		{"sum", 4 * float64(n), reads, func() error { _, err := team.Sum(x.slice(), partial); return err }},
	} {
		b.Run(c.name, func(b *testing.B) {
			rates := map[string][]float64{}
			for b.Loop() {
				start := time.Now()
				if err := c.run(); err != nil {
					b.Fatal(err)
				}
				rates[c.name] = append(rates[c.name], c.bytes/time.Since(start).Seconds())
				for name, ceiling := range c.ceilings {
					rates[name] = append(rates[name], ceiling())
				}
			}
			median := func(name string) float64 {
				slices.Sort(rates[name])
				return rates[name][len(rates[name])/2]
			}
			best := 0.0
			for name := range c.ceilings {
				best = max(best, median(name))
				b.Logf("%s: %.1f GB/s", name, median(name)*1e-9)
			}
			b.ReportMetric(median(c.name)*1e-9, "GB/s")
			b.ReportMetric(best*1e-9, "GB/s-ceiling")
			b.ReportMetric(100*median(c.name)/best, "%ceiling")
			b.ReportMetric(0, "ns/op")
		})
	}
}

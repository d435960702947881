package cpu

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"gpt2scope/gpt2"
	"gpt2scope/internal/require"
	"gpt2scope/reference"
)

// The kernels are compared, in every version that this processor runs, with the float64 functions of package reference.
// Outputs and the guards around them are filled with a NaN of a known pattern, which reveals values that were not
// written and values written outside. Every case runs on 1, 2 and 3 threads, and the results must be equal bit for bit.

const (
	poison = 0x7fc0dead // a NaN that no computation makes
	eps32  = 1.0 / (1 << 23)
)

var threadCounts = []int{1, 2, 3}

var must = require.NoError

// testPool starts threads that end with the test.
func testPool(t testing.TB, threads int, i isa) *pool {
	t.Helper()
	p, err := newPool(threads, i)
	must(t, err)
	t.Cleanup(p.close)
	return p
}

// testProgram is an empty program that is freed after the test.
func testProgram(t testing.TB, p *pool, steps int) *program {
	t.Helper()
	prog, err := newProgram(p, steps)
	must(t, err)
	t.Cleanup(prog.free)
	return prog
}

// eachISA runs a test for each version of the kernels, with a pool for each of threadCounts.
func eachISA(t *testing.T, f func(t *testing.T, pools []*pool)) {
	for _, i := range supportedISAs() {
		t.Run(i.String(), func(t *testing.T) {
			var pools []*pool
			for _, n := range threadCounts {
				pools = append(pools, testPool(t, n, i))
			}
			f(t, pools)
		})
	}
}

// guarded is memory with guards around it. It starts at an odd element, so that kernels meet unaligned rows.
type guarded struct {
	mem[float32]
	all mem[float32]
}

const guard = 67

func newGuarded(t testing.TB, n int) guarded {
	t.Helper()
	all, err := alloc[float32](n + 2*guard)
	must(t, err)
	t.Cleanup(all.free)
	g := guarded{all.part(guard, n), all}
	g.poison()
	return g
}

func (g guarded) poison() {
	for i := range g.all.slice() {
		g.all.slice()[i] = math.Float32frombits(poison)
	}
}

func (g guarded) check(t *testing.T, name string) {
	t.Helper()
	s := g.all.slice()
	for i := range guard {
		if math.Float32bits(s[i]) != poison || math.Float32bits(s[len(s)-1-i]) != poison {
			t.Fatalf("%s: wrote outside its buffer", name)
		}
	}
}

func (g guarded) random(r *rand.Rand, scale float64) guarded {
	for i := range g.slice() {
		g.slice()[i] = float32(r.NormFloat64() * scale)
	}
	return g
}

func ints(t *testing.T, values ...int) mem[int32] {
	t.Helper()
	m, err := alloc[int32](len(values))
	must(t, err)
	t.Cleanup(m.free)
	for i, v := range values {
		m.slice()[i] = int32(v)
	}
	return m
}

// onAll runs a program that `build` fills on each pool, and returns the first pool's output; the others' must be the
// same bits. Each run starts from a poisoned y; then `before` is called, if given.
func onAll(t *testing.T, pools []*pool, y guarded, before func(), build func(p *program) error) []float32 {
	t.Helper()
	var first []float32
	for _, pool := range pools {
		y.poison()
		if before != nil {
			before()
		}
		p, err := newProgram(pool, 8)
		must(t, err)
		must(t, build(p))
		done, err := p.run(0, p.n, mem[int64]{})
		if !done || err != nil {
			t.Fatalf("run: done %v, error %v", done, err)
		}
		p.free()
		y.check(t, "y")
		got := append([]float32(nil), y.slice()...)
		if first == nil {
			first = got
		}
		for i := range got {
			if math.Float32bits(got[i]) != math.Float32bits(first[i]) {
				t.Fatalf("%d threads: y[%d] = %v, with %d threads %v", pool.threads, i, got[i], pools[0].threads, first[i])
			}
		}
	}
	return first
}

// near fails unless |got - want| <= tol; a NaN fails.
func near(t *testing.T, got float32, want, tol float64, format string, args ...any) {
	t.Helper()
	if d := math.Abs(float64(got) - want); !(d <= tol) {
		t.Fatalf("%s: got %v, want %v, difference %.3g exceeds %.3g", fmt.Sprintf(format, args...), got, want, d, tol)
	}
}

func untouched(t *testing.T, got float32, format string, args ...any) {
	t.Helper()
	if math.Float32bits(got) != poison {
		t.Fatalf("%s: was written (%v)", fmt.Sprintf(format, args...), got)
	}
}

// toBF16 rounds to the nearest bfloat16, ties to even.
func toBF16(f float32) uint16 {
	u := math.Float32bits(f)
	if f != f {
		return uint16(u>>16) | 0x40
	}
	return uint16((u + 0x7fff + u>>16&1) >> 16)
}

func fromBF16(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }

// testWeight makes a weight in an arena of its own, until the test ends.
func testWeight(t testing.TB, K, N int, held dtype, table bool) *weight {
	t.Helper()
	a, err := newArena(weightBytes(K, N, held, table))
	must(t, err)
	t.Cleanup(a.free)
	w, err := newWeight(a, K, N, held, table)
	must(t, err)
	return w
}

// packed makes a weight (K, N) of random values in panels, from a source of the given type and layout, packed in random
// slices. It returns the weight and the values (K, N) that it should hold.
func packed(t *testing.T, r *rand.Rand, p *pool, K, N int, held, source dtype, transposed bool) (*weight, []float32) {
	t.Helper()
	return filled(t, r, p, testWeight(t, K, N, held, false), source, transposed)
}

// table does the same for a weight held by rows.
func table(t *testing.T, r *rand.Rand, p *pool, K, N int, held, source dtype) (*weight, []float32) {
	t.Helper()
	return filled(t, r, p, testWeight(t, K, N, held, true), source, true)
}

func filled(t *testing.T, r *rand.Rand, p *pool, w *weight, source dtype, transposed bool) (*weight, []float32) {
	t.Helper()
	K, N, held := w.K, w.N, w.dtype
	for i := range w.data.slice() {
		w.data.slice()[i] = math.Float32frombits(poison)
	}
	rows, cols, unit := K, N, 2
	if held == q8Type {
		unit = 32
	}
	if transposed {
		rows, cols, unit = N, K, 32
	}
	values := make([]float32, K*N)
	src := make([]byte, 0, rows*cols*4)
	for i := range rows {
		for j := range cols {
			v := float32(r.NormFloat64())
			switch source {
			case float32Type:
				src = binary.LittleEndian.AppendUint32(src, math.Float32bits(v))
			case bfloat16Type:
				src = binary.LittleEndian.AppendUint16(src, toBF16(v))
				v = fromBF16(toBF16(v))
			case float16Type:
				h := uint16(r.IntN(1 << 16))
				if h>>10&31 == 31 {
					h ^= 1 << 14 // finite
				}
				src = binary.LittleEndian.AppendUint16(src, h)
				v = float16(h)
			}
			if held == bfloat16Type {
				v = fromBF16(toBF16(v))
			}
			if transposed {
				values[j*N+i] = v
			} else {
				values[i*N+j] = v
			}
		}
	}
	for r0 := 0; r0 < rows; {
		r1 := min(rows, r0+unit*(1+r.IntN(8)))
		bad, err := w.pack(p, src[r0*cols*source.size():r1*cols*source.size()], source, transposed, r0, r1)
		if err != nil || bad != 0 {
			t.Fatalf("pack: %d bad values, error %v", bad, err)
		}
		r0 = r1
	}
	if held == q8Type {
		quantised(t, w, values)
	}
	return w, values
}

func float16(h uint16) float32 {
	e, m := int(h>>10&31), float64(h&1023)
	v := math.Ldexp(1+m/1024, e-15)
	if e == 0 {
		v = math.Ldexp(m/1024, -14)
	}
	if h>>15 != 0 {
		v = -v
	}
	return float32(v)
}

// at reads a packed weight's value by the layout that kernels.h documents.
func (w *weight) at(k, n int) float32 {
	if w.dtype == q8Type {
		d, q := w.block(k, n)
		return d * float32(q)
	}
	if w.dtype == float32Type {
		if w.table {
			return w.data.slice()[n*roundUp(w.K)+k]
		}
		return w.data.slice()[(n/32*w.K+k)*32+n%32]
	}
	word := (n/32*((w.K+1)/2)+k/2)*32 + n%32
	if w.table {
		word = (n*roundUp(w.K) + k) / 2
	}
	pair := math.Float32bits(w.data.slice()[word])
	if k%2 == 0 {
		return math.Float32frombits(pair << 16)
	}
	return math.Float32frombits(pair & 0xffff0000)
}

func TestPack(t *testing.T) {
	eachISA(t, func(t *testing.T, pools []*pool) {
		r := rand.New(rand.NewPCG(1, 1))
		for _, held := range []dtype{float32Type, bfloat16Type, q8Type} {
			for _, source := range []dtype{float32Type, bfloat16Type, float16Type} {
				for _, layout := range []string{"columns", "transposed", "table"} {
					if layout == "table" && held == q8Type {
						continue
					}
					for _, shape := range [][2]int{{1, 1}, {7, 33}, {64, 96}, {129, 257}, {50, 31}} {
						K, N := shape[0], shape[1]
						p := pools[r.IntN(len(pools))]
						w, values := packed(t, r, p, K, N, held, source, layout == "transposed")
						if layout == "table" {
							w, values = table(t, r, p, K, N, held, source)
						}
						for k := range K {
							for n := range N {
								if got, want := w.at(k, n), values[k*N+n]; math.Float32bits(got) != math.Float32bits(want) {
									t.Fatalf("held %v, source %v, %s, %v: W[%d][%d] = %v, want %v", held, source, layout, shape, k, n, got, want)
								}
							}
							for n := N; n < roundUp(N); n++ {
								if w.at(k, n) != 0 {
									t.Fatalf("%v: padding W[%d][%d] = %v", shape, k, n, w.at(k, n))
								}
							}
						}
					}
				}
			}
		}
	})
}

func TestPackCountsNonFinite(t *testing.T) {
	eachISA(t, func(t *testing.T, pools []*pool) {
		const K, N = 6, 40
		for _, source := range []struct {
			dtype    dtype
			nan, inf uint32 // NaN and -Inf
		}{{float32Type, 0x7fc00000, 0xff800000}, {bfloat16Type, 0x7fc0, 0xff80}, {float16Type, 0x7e00, 0xfc00}} {
			size := source.dtype.size()
			src := make([]byte, K*N*size)
			put := func(i int, bits uint32) { // little-endian
				for b := range size {
					src[i*size+b] = byte(bits >> (8 * b))
				}
			}
			for _, i := range []int{0, 39, 40, 239} {
				put(i, source.nan)
			}
			put(77, source.inf)
			for _, held := range []dtype{float32Type, bfloat16Type, q8Type} {
				w := testWeight(t, K, N, held, false)
				bad, err := w.pack(pools[1], src, source.dtype, false, 0, K)
				if bad != 5 || err != nil {
					t.Errorf("source %d: %d bad values, error %v; want 5", source.dtype, bad, err)
				}
				if v := w.at(0, 0); v == v {
					t.Errorf("source %d: NaN became %v", source.dtype, v)
				}
				if v := w.at(1, 37); !math.IsInf(float64(v), -1) && (held != q8Type || v == v) { // a block with one is NaN
					t.Errorf("source %d: -Inf became %v", source.dtype, v)
				}
			}
		}
	})
}

// activationFormulas are the formulas of the kernels' activations.
var activationFormulas = map[activation]func(float64) float64{
	none:     func(x float64) float64 { return x },
	geluTanh: reference.GELUTanh, geluErf: reference.GELUErf, relu: reference.ReLU,
	silu: reference.SiLU, quickGELU: reference.QuickGELU,
}

// actTolerance is the error allowed of act at x itself. An error in x adds at most 1.13 times as much, the steepest
// slope of any activation.
func actTolerance(act activation, x float64) float64 {
	switch act {
	case geluTanh, silu, quickGELU:
		return 1e-6 * math.Abs(x)
	case geluErf:
		return 4e-7 * math.Abs(x)
	}
	return 0
}

func TestLayerNorm(t *testing.T) {
	eachISA(t, func(t *testing.T, pools []*pool) {
		r := rand.New(rand.NewPCG(2, 1))
		for _, C := range []int{1, 2, 5, 16, 31, 33, 64, 100, 384, 768, 1601} {
			for _, M := range []int{1, 2, 7, 40} {
				ldx, ldy := C+r.IntN(5), C+r.IntN(5)
				x := newGuarded(t, M*ldx).random(r, 3)
				for i := range x.slice() {
					x.slice()[i] += 10 // with such a mean, a one-pass variance loses digits
				}
				y := newGuarded(t, M*ldy)
				gain, bias := newGuarded(t, C).random(r, 1), newGuarded(t, C).random(r, 1)
				got := onAll(t, pools, y, nil, func(p *program) error {
					return p.layerNorm(layerNormStep{x: matrix(x.mem, ldx), y: matrix(y.mem, ldy),
						norm: norm{gain.mem, bias.mem, 1e-5}, M: M, C: C})
				})
				for m := range M {
					want := reference.LayerNorm(x.slice()[m*ldx:][:C], gain.slice(), bias.slice(), 1e-5)
					for c := range C {
						// The rounding error of x - mean is in proportion to x, about 16, and is divided by the deviation, about 3. With
						// 1 or 2 channels the deviation may be 0, and sqrt(eps) is the divisor.
						tol := eps32 * (16*math.Abs(float64(gain.slice()[c])) + math.Abs(want[c]) + 1)
						if C < 5 {
							tol *= 1 / math.Sqrt(1e-5)
						}
						near(t, got[m*ldy+c], want[c], tol, "C %d, M %d: y[%d][%d]", C, M, m, c)
					}
					for c := C; c < ldy && m*ldy+c < len(got); c++ {
						untouched(t, got[m*ldy+c], "C %d, M %d: y[%d][%d]", C, M, m, c)
					}
				}
			}
		}
	})
}

func TestLinear(t *testing.T) {
	type shape struct{ M, K, N int }
	var shapes []shape
	for _, K := range []int{1, 3, 31, 64, 257} {
		for _, N := range []int{1, 31, 32, 33, 257} {
			shapes = append(shapes, shape{1, K, N}, shape{2, K, N}, shape{5, K, N})
		}
	}
	for M := 1; M <= 70; M++ {
		shapes = append(shapes, shape{M, 40, 65})
	}
	shapes = append(shapes, shape{1, 768, 1000}, shape{12, 515, 100}, shape{13, 600, 449}, shape{25, 513, 64},
		shape{300, 270, 96}, shape{700, 33, 480}, shape{27, 1601, 70}, shape{500, 800, 70}, shape{7, 1601, 70})
	for i, K := range []int{31, 40, 64, 257, 770, 1601} { // each type, in rows and in panels
		for j := range 6 {
			shapes = append(shapes, shape{96 + 7*i + 17*j, K, 65 + 31*j})
		}
	}
	eachISA(t, func(t *testing.T, pools []*pool) {
		r := rand.New(rand.NewPCG(3, 1))
		for i, s := range shapes {
			testLinear(t, r, pools, s.M, s.K, s.N, i)
		}
		for i := range 6 { // bfloat16, in panels and in rows: several tasks of rows by several of panels
			testLinear(t, r, pools, 300, 70+161*(i%2), 300, 1+3*i)
		}
	})
}

// A float32 product is as exact as float32 sums are, whatever the numbers, also if kernels compute it from bfloat16
// parts: omitting one of the six products of parts would exceed the bound many times, most of all in sums of few terms.
func TestLinearExact(t *testing.T) {
	const M, N = 128, 64
	sums := map[isa][]float32{}
	defer func() {
		if a, b := sums[amx], sums[avx512]; a != nil && !t.Failed() && slices.Equal(a, b) {
			t.Error("kernels amx give the bits of avx512: they do not multiply float32 in parts")
		}
	}()
	signs := func(r *rand.Rand) float64 { return float64(2*r.IntN(2) - 1) }
	for _, c := range []struct {
		name string
		x, w func(*rand.Rand) float64
	}{
		{"normal", (*rand.Rand).NormFloat64, (*rand.Rand).NormFloat64},
		{"positive", (*rand.Rand).Float64, (*rand.Rand).Float64},
		{"of many sizes", func(r *rand.Rand) float64 { return signs(r) * math.Exp(3*r.NormFloat64()) },
			func(r *rand.Rand) float64 { return signs(r) * math.Exp(3*r.NormFloat64()) }},
		{"large by small", func(r *rand.Rand) float64 { return 1e30 * r.NormFloat64() },
			func(r *rand.Rand) float64 { return 1e-25 * r.NormFloat64() }},
	} {
		t.Run(c.name, func(t *testing.T) {
			eachISA(t, func(t *testing.T, pools []*pool) {
				// In short sums, rounding does not hide an omitted part.
				for K, bound := range map[int]float64{33: 2.5, 768: 10, 1601: 10} {
					r := rand.New(rand.NewPCG(3, 7))
					values := make([]float32, K*N)
					var src []byte
					for i := range values {
						values[i] = float32(c.w(r))
						src = binary.LittleEndian.AppendUint32(src, math.Float32bits(values[i]))
					}
					w := testWeight(t, K, N, float32Type, false)
					if bad, err := w.pack(pools[0], src, float32Type, false, 0, K); err != nil || bad != 0 {
						t.Fatalf("pack: %d bad values, error %v", bad, err)
					}
					x, y := newGuarded(t, M*K), newGuarded(t, M*N)
					for i := range x.slice() {
						x.slice()[i] = float32(c.x(r))
					}
					got := onAll(t, pools, y, nil, func(p *program) error {
						return p.linear(linearStep{x: matrix(x.mem, K), y: matrix(y.mem, N), w: w, M: M, n1: N})
					})
					if c.name == "normal" && K == 768 {
						sums[pools[0].isa] = slices.Clone(got)
					}
					var squares float64
					for m := range M {
						for n := range N {
							var sum, size float64
							for k := range K {
								v := float64(x.slice()[m*K+k]) * float64(values[k*N+n])
								sum, size = sum+v, size+math.Abs(v)
							}
							e := (float64(got[m*N+n]) - sum) / size * 0x1p24
							if squares += e * e; !(math.Abs(e) < 64) {
								t.Fatalf("K %d: y[%d][%d] is off by %.1f x 2^-24 of the sum of sizes", K, m, n, e)
							}
						}
					}
					if rms := math.Sqrt(squares / (M * N)); !(rms < bound) {
						t.Errorf("K %d: the root of the mean square error is %.2f x 2^-24 of the sum of sizes", K, rms)
					} else {
						t.Logf("K %d: %.2f x 2^-24", K, rms)
					}
				}
			})
		})
	}
}

// Logits of many rows are written past the caches (non-temporal stores), in other blocks than those of few rows. The
// numbers must be the same, and nothing else may be written.
func TestLinearPastCaches(t *testing.T) {
	if testing.Short() {
		t.Skip("short: 200 MB of logits")
	}
	const M, N, first = 335, 50257, 5
	eachISA(t, func(t *testing.T, pools []*pool) {
		r := rand.New(rand.NewPCG(3, 3))
		for i, held := range []dtype{float32Type, bfloat16Type, float32Type, float32Type, bfloat16Type, bfloat16Type} {
			K := 7
			if i > 1 { // several blocks of K, for the fast versions
				K = 770
				if held == float32Type && pools[0].isa != avx512 && pools[0].isa != amx || held == bfloat16Type &&
					!pools[0].isa.multipliesBF16() {
					continue
				}
			}
			var w *weight
			if i%2 == 0 {
				w, _ = packed(t, r, pools[0], K, N, held, held, false)
			} else {
				w, _ = table(t, r, pools[0], K, N, held, held)
			}
			x := newGuarded(t, M*K).random(r, 1)
			product := func(from, rows int) []float32 {
				y := newGuarded(t, rows*N)
				return onAll(t, pools, y, nil, func(p *program) error {
					return p.linear(linearStep{x: matrix(x.mem.from(from*K), K), y: matrix(y.mem, N), w: w, M: rows, n0: first, n1: N})
				})
			}
			const few = 112 // rows that are written through the caches, and fill the tiles of AMX
			got := product(0, M)
			for from := 0; from < M; from += few {
				rows := min(few, M-from)
				want := product(from, rows)
				for m := range rows {
					row := got[(from+m)*N:][:N]
					for n := range first {
						untouched(t, row[n], "%v: y[%d][%d]", held, from+m, n)
					}
					if !slices.Equal(row[first:], want[m*N+first:][:N-first]) {
						t.Fatalf("%v: row %d of %d differs from that of a product of %d rows", held, from+m, M, rows)
					}
				}
			}
		}
	})
}

// multipliesBF16 tells whether a product of M rows multiplies bfloat16 numbers. It does if the weights are bfloat16,
// there are more rows than the register tile of AVX-512 has, and the kernels have the instructions.
func multipliesBF16(p *pool, held dtype, M int) bool {
	return held == bfloat16Type && M > 12 && p.isa.multipliesBF16()
}

func testLinear(t *testing.T, r *rand.Rand, pools []*pool, M, K, N, variant int) {
	held := []dtype{float32Type, bfloat16Type, q8Type}[variant%3]
	source := held
	if held == q8Type {
		source = float32Type
	}
	w, values := packed(t, r, pools[0], K, N, held, source, variant/3%2 == 1)
	if held != q8Type && variant%2 == 1 {
		w, values = table(t, r, pools[0], K, N, held, source)
	}
	if held == q8Type && roundsTo(pools[0], M) > 32 {
		values = w.grouped()
	}
	o := linearStep{w: w, M: M, n1: N}
	name := fmt.Sprintf("M %d, K %d, N %d, %v, table %v", M, K, N, held, w.table)
	// x: one row after another, or some rows of each of several sequences.
	ldx := K + r.IntN(3)
	o.x = view{ld: ldx}
	rows := M
	if r.IntN(2) == 0 {
		o.x.per = 1 + r.IntN(3)
		o.x.stride = o.x.per + r.IntN(3)
		rows = (M + o.x.per - 1) / o.x.per * o.x.stride
	}
	x := newGuarded(t, rows*ldx).random(r, 1)
	o.x.data = x.mem
	rowX := func(m int) []float32 {
		if o.x.per > 0 {
			m = m/o.x.per*o.x.stride + m%o.x.per
		}
		return x.slice()[m*ldx:][:K]
	}
	ldy := N + r.IntN(3)
	y := newGuarded(t, M*ldy)
	o.y = matrix(y.mem, ldy)
	if r.IntN(3) > 0 {
		o.bias = newGuarded(t, N).random(r, 1).mem
	}
	if r.IntN(2) == 0 {
		o.norm = norm{newGuarded(t, K).random(r, 1).mem, newGuarded(t, K).random(r, 1).mem, 1e-5}
	}
	if r.IntN(4) == 0 {
		o.n0 = r.IntN(N)
		o.n1 = o.n0 + 1 + r.IntN(N-o.n0)
	}
	var before func()
	var res []float32
	switch r.IntN(4) {
	case 0:
		o.act = []activation{geluTanh, geluErf, relu, silu, quickGELU}[r.IntN(5)]
	case 1: // y = residual + ...
		g := newGuarded(t, M*ldy).random(r, 5)
		o.residual = matrix(g.mem, ldy)
		res = g.slice()
	case 2: // y += ...
		o.residual = o.y
		res = make([]float32, M*ldy)
		for i := range res {
			res[i] = float32(r.NormFloat64())
		}
		before = func() {
			for m := range M {
				copy(y.slice()[m*ldy+o.n0:m*ldy+o.n1], res[m*ldy+o.n0:])
			}
		}
	}
	got := onAll(t, pools, y, before, func(p *program) error { return p.linear(o) })
	some := 1 + M*K*N>>20 // of products of more than a million terms, whose time would be that of their reference
	for m := r.IntN(min(some, M)); m < M; m += some {
		in := make([]float64, K)
		for k, v := range rowX(m) {
			in[k] = float64(v)
		}
		var inError float64 // of the normalised row, relative to gain
		if o.norm.gain.p != nil {
			in = reference.LayerNorm(rowX(m), o.norm.gain.slice(), o.norm.bias.slice(), 1e-5)
			inError = 8 * eps32
			if K < 5 {
				inError /= math.Sqrt(1e-5)
			}
		}
		// If the product rounds x to bfloat16, so does the expected value. A normalised value near a tie may be rounded
		// either way.
		either := make([]float64, K)
		if multipliesBF16(pools[0], held, M) {
			for k, v := range in {
				e := inError * (math.Abs(v) + 3)
				either[k] = float64(fromBF16(toBF16(float32(v+e)))) - float64(fromBF16(toBF16(float32(v-e))))
				in[k] = float64(fromBF16(toBF16(float32(v))))
			}
			inError = 0
		}
		for n := range N {
			if n < o.n0 || n >= o.n1 {
				untouched(t, got[m*ldy+n], "%s: y[%d][%d]", name, m, n)
				continue
			}
			var sum, squares, abs, flips float64
			for k := range K {
				v := in[k] * float64(values[k*N+n])
				sum += v
				squares += v * v
				abs += math.Abs(float64(values[k*N+n])) * (math.Abs(in[k]) + 3)
				flips += math.Abs(float64(values[k*N+n])) * either[k]
			}
			var rounded float64 // error allowed if an activation lies near a tie of two integers
			if held == q8Type && roundsRows(pools[0], M) {
				var q []float64
				q, rounded = roundedRow(in, roundsTo(pools[0], M), inError,
					func(k int) float64 { return math.Abs(float64(values[k*N+n])) })
				sum, squares = 0, 0
				for k := range K {
					v := q[k] * float64(values[k*N+n])
					sum += v
					squares += v * v
				}
			}
			// Partial sums grow as a random walk, to about sqrt(squares), and each of K additions rounds one.
			tol := 2*eps32*math.Sqrt(float64(K)*squares) + inError*abs/math.Sqrt(float64(K))*4 + flips + rounded
			if o.bias.p != nil {
				sum += float64(o.bias.slice()[n])
			}
			tol += 2 * eps32 * math.Abs(sum)
			tol = 1.13*tol + actTolerance(o.act, sum)
			want := activationFormulas[o.act](sum)
			if res != nil {
				want += float64(res[m*ldy+n])
			}
			near(t, got[m*ldy+n], want, tol+eps32*math.Abs(want), "%s, case %d: y[%d][%d]", name, variant, m, n)
		}
	}
	x.check(t, "x")
}

func TestActivations(t *testing.T) {
	eachISA(t, func(t *testing.T, pools []*pool) {
		var xs []float32
		for x := -14.0; x <= 14; x += 0.0007 {
			xs = append(xs, float32(x))
		}
		for e := -126; e < 30; e++ {
			xs = append(xs, float32(math.Ldexp(1.3, e)), float32(-math.Ldexp(1.3, e)))
		}
		n := len(xs)
		x, y, w := newGuarded(t, 1), newGuarded(t, n), testWeight(t, 1, n, float32Type, false)
		x.slice()[0] = 1
		_, err := w.pack(pools[0], bytesOf(xs), float32Type, false, 0, 1)
		must(t, err)
		for _, act := range []activation{none, geluTanh, geluErf, relu, silu, quickGELU} {
			got := onAll(t, pools, y, nil, func(p *program) error {
				return p.linear(linearStep{x: matrix(x.mem, 1), y: matrix(y.mem, n), w: w, M: 1, act: act})
			})
			for i, x := range xs {
				near(t, got[i], activationFormulas[act](float64(x)), actTolerance(act, float64(x)), "activation %d at %v", act, x)
			}
			if act == geluTanh { // the left tail is right relative to its own size
				for i, x := range xs {
					if x > -5 && x < 0 {
						want := reference.GELUTanh(float64(x))
						near(t, got[i], want, 4e-6*math.Abs(want), "gelu_new at %v", x)
					}
				}
			}
		}
	})
}

func TestEmbed(t *testing.T) {
	eachISA(t, func(t *testing.T, pools []*pool) {
		r := rand.New(rand.NewPCG(5, 1))
		const V, positions = 77, 40
		for _, C := range []int{1, 2, 33, 100, 1500} {
			for variant := range 9 {
				held := []dtype{float32Type, bfloat16Type}[variant%2]
				if variant == 8 {
					held = q8Type
				}
				var wte *weight
				var values []float32 // (C, V)
				if held == q8Type {
					wte, values = packed(t, r, pools[0], C, V, held, float32Type, true)
				} else {
					wte, values = table(t, r, pools[0], C, V, held, []dtype{float32Type, bfloat16Type}[variant/2%2])
				}
				wpe, positional := table(t, r, pools[0], C, positions, []dtype{float32Type, bfloat16Type}[variant/4%2], float32Type)
				B, T := 1+r.IntN(3), 1+r.IntN(40) // more than 64 tokens are read in another order
				var ids, pos []int
				for range B * T {
					ids = append(ids, r.IntN(V))
				}
				for range B {
					pos = append(pos, r.IntN(positions-T+1))
				}
				y := newGuarded(t, B*T*C)
				cids, cpos := ints(t, ids...), ints(t, pos...)
				got := onAll(t, pools, y, nil, func(p *program) error {
					return p.embed(embedStep{y: matrix(y.mem, C), ids: cids, pos: cpos, wte: wte, wpe: wpe, B: B, T: T})
				})
				for i := range B * T {
					for c := range C {
						want := values[c*V+ids[i]] + positional[c*positions+pos[i/T]+i%T]
						if got[i*C+c] != want {
							t.Fatalf("C %d, variant %d: y[%d][%d] = %v, want %v", C, variant, i, c, got[i*C+c], want)
						}
					}
				}
			}
		}
	})
}

// Weights cut from an arena are aligned, do not overlap, and together fill the size that weightBytes gives.
func TestArena(t *testing.T) {
	total := weightBytes(7, 33, float32Type, false) + weightBytes(5, 9, bfloat16Type, true) +
		weightBytes(9, 64, bfloat16Type, false)
	a, err := newArena(total)
	must(t, err)
	defer a.free()
	x, errX := newWeight(a, 7, 33, float32Type, false)
	y, errY := newWeight(a, 5, 9, bfloat16Type, true)
	z, errZ := newWeight(a, 9, 64, bfloat16Type, false)
	if errX != nil || errY != nil || errZ != nil {
		t.Fatal(errX, errY, errZ)
	}
	for i, w := range []*weight{x, y, z} {
		if uintptr(w.data.void())%64 != 0 {
			t.Errorf("weight %d is not aligned", i)
		}
		for j := range w.data.slice() {
			if w.data.slice()[j] != 0 {
				t.Fatalf("weight %d overlaps one before", i)
			}
			w.data.slice()[j] = 1
		}
	}
	if _, err := newWeight(a, 1, 1, float32Type, true); err == nil {
		t.Error("a full arena gave a table")
	}
}

func TestAttention(t *testing.T) {
	type attn struct{ B, past, T, nq, NH, HS int }
	cases := []attn{
		{1, 0, 1, 1, 1, 1}, {1, 0, 1, 1, 2, 64}, {1, 5, 1, 1, 3, 64}, {2, 31, 1, 1, 2, 33}, {1, 255, 1, 1, 2, 64}, {1, 256,
			1, 1, 2, 64},
		{2, 700, 1, 1, 2, 80}, {1, 0, 2, 2, 1, 8}, {1, 0, 13, 13, 2, 64}, {3, 7, 5, 5, 2, 20}, {1, 0, 70, 70, 2, 64}, {1,
			100, 49, 49, 1, 256}, {1, 40, 37, 37, 1, 512}, {1, 70, 1, 1, 1, 500},
		{2, 0, 300, 300, 1, 64}, {1, 250, 30, 30, 2, 40}, {1, 0, 50, 1, 2, 64}, {2, 300, 40, 1, 2, 16}, {1, 3, 40, 17, 2,
			64}, {1, 500, 100, 3, 1, 31},
	}
	eachISA(t, func(t *testing.T, pools []*pool) {
		r := rand.New(rand.NewPCG(6, 1))
		for i, c := range cases {
			for _, fused := range []bool{true, false} {
				for _, held := range []dtype{float32Type, bfloat16Type} {
					for _, bf16 := range []bool{false, true} {
						name := fmt.Sprintf("case %d %+v, append fused %v, cache %v, bf16 %v", i, c, fused, held, bf16)
						testAttention(t, r, pools, c.B, c.past, c.T, c.nq, c.NH, c.HS, 1, fused, held, bf16, name)
						if i%6 == 0 { // scores that differ by hundreds: their maximum must be subtracted in time
							testAttention(t, r, pools, c.B, c.past, c.T, c.nq, c.NH, c.HS, 16, fused, held, bf16, name+", large scores")
						}
					}
				}
			}
		}
	})
}

func newCache(B, S, NH, HS int, d dtype) (*cache, error) {
	caches, err := newCaches(1, B, S, NH, HS, d)
	return append(caches, nil)[0], err
}

func testAttention(t *testing.T, r *rand.Rand, pools []*pool, B, past, T, nq, NH, HS int, size float64, fused bool,
	held dtype, bf16 bool, name string) {
	C := NH * HS
	total := past + T
	scale := 1 / math.Sqrt(float64(HS))
	kv, err := newCache(B, total+r.IntN(40), NH, HS, held)
	must(t, err)
	defer kv.data.free()
	// Sequences may have different lengths; the first has `past` tokens.
	pasts := make([]int, B)
	for b := range B {
		pasts[b] = past
		if b > 0 && past > 0 {
			pasts[b] = r.IntN(past + 1)
		}
	}
	all := newGuarded(t, B*total*3*C).random(r, size) // (B, total, 3C): the history, then the new tokens
	row := func(b, i int) []float32 { return all.slice()[(b*total+i)*3*C:][:3*C] }
	y := newGuarded(t, B*nq*C)
	work := newGuarded(t, attentionWork(kv, B))
	pos := ints(t, make([]int, B)...)
	fresh := newGuarded(t, B*T*3*C)
	for b := range B {
		for i := range T {
			copy(fresh.slice()[(b*T+i)*3*C:], row(b, pasts[b]+i))
		}
	}
	history := newGuarded(t, total*3*C)
	before := func() {
		// Unused slots are NaN: nothing may depend on them.
		for i := range kv.data.slice() {
			kv.data.slice()[i] = math.Float32frombits(0x7fc07fc0) // NaN as two bfloat16 values too
		}
		for b := range B { // the history is appended in two parts
			copy(history.slice(), all.slice()[b*total*3*C:][:total*3*C])
			one := &cache{kv.data.from(b * kv.words(256) / B), kv.stride, 1, kv.S, NH, HS, held, 0}
			for from, to := 0, pasts[b]/3; from < pasts[b]; from, to = to, pasts[b] {
				if from == to {
					continue
				}
				at := ints(t, from)
				p, err := newProgram(pools[1], 1)
				must(t, err)
				if err := p.appendKV(attentionStep{qkv: matrix(history.from(from*3*C), 3*C), cache: one, pos: at, B: 1,
					T: to - from}); err != nil {
					t.Fatal(err)
				}
				if done, err := p.run(0, 1, mem[int64]{}); !done || err != nil {
					t.Fatal(done, err)
				}
				p.free()
			}
			pos.slice()[b] = int32(pasts[b])
		}
	}
	got := onAll(t, pools, y, before, func(p *program) error {
		o := attentionStep{qkv: matrix(fresh.mem, 3*C), y: matrix(y.mem, C), cache: kv, pos: pos, work: work.mem, B: B,
			T: T, nq: nq,
			scale: float32(scale), append: fused, bf16: bf16}
		if !fused {
			if err := p.appendKV(o); err != nil {
				return err
			}
		}
		return p.attention(o)
	})
	work.check(t, "work")
	// A bfloat16 cache rounds keys and values. Kernels that multiply bfloat16 also round queries (scaled, in units of log
	// 2) and exponentials.
	round := func(v float32) float64 { return float64(v) }
	if held == bfloat16Type {
		round = func(v float32) float64 { return float64(fromBF16(toBF16(v))) }
	}
	rounding := 0.0
	scaled := func(v float32) float64 { return scale * math.Log2E * float64(v) }
	if held == bfloat16Type && bf16 && nq > 12 && pools[0].isa.multipliesBF16() {
		scaled = func(v float32) float64 { return round(v * (float32(scale) * float32(math.Log2E))) }
		rounding = 0x1p-8 + 2*0x1p-13 // of an exponential, and of the polynomial in both sums
	}
	for b := range B {
		for i := range nq {
			at := pasts[b] + T - nq + i
			for h := range NH {
				q := row(b, at)[h*HS:][:HS]
				scores, terms := make([]float64, at+1), 0.0 // the largest sum of absolute terms of a score
				for j := range scores {
					sum := 0.0
					for d, k := range row(b, j)[C+h*HS:][:HS] {
						term := scaled(q[d]) * round(k) * math.Ln2
						scores[j] += term
						sum += math.Abs(term)
					}
					terms = max(terms, sum)
				}
				top, p := slices.Max(scores), reference.Softmax(scores)
				for d := range HS {
					var want, abs float64
					for j := range p {
						v := round(row(b, j)[2*C+h*HS+d])
						want += p[j] * v
						abs += p[j] * math.Abs(v)
					}
					// A score is off by a few eps of its terms, and its exponential by as large a share of itself; weights sum to 1.
					tol := eps32*abs*(8+2*terms+math.Sqrt(float64(len(p)))+2*math.Abs(top)) + rounding*abs
					near(t, got[(b*nq+i)*C+h*HS+d], want, tol, "%s: y[%d][%d], head %d, channel %d", name, b, i, h, d)
				}
			}
		}
	}
}

// NaN in an input must show in the output: a product or softmax that hides it hides a broken checkpoint.
func TestNaNPropagates(t *testing.T) {
	eachISA(t, func(t *testing.T, pools []*pool) {
		r := rand.New(rand.NewPCG(7, 1))
		nan := float32(math.NaN())
		const K, N = 50, 40
		w, _ := packed(t, r, pools[0], K, N, float32Type, float32Type, false)
		for i, act := range []activation{none, geluTanh, geluErf, relu, none, geluTanh} {
			M := []int{15, 15, 15, 15, 100, 100}[i] // few rows, and enough for products of parts
			x, y := newGuarded(t, M*K).random(r, 1), newGuarded(t, M*N)
			for _, bad := range []float32{nan, float32(math.Inf(1))} {
				x.slice()[3*K+7] = bad
				got := onAll(t, pools, y, nil, func(p *program) error {
					return p.linear(linearStep{x: matrix(x.mem, K), y: matrix(y.mem, N), w: w, M: M, act: act})
				})
				for i, v := range got {
					row := i/N == 3
					ok := (v != v) == row
					if bad == bad { // infinite: the row is not finite, unless an activation turns -Inf into 0
						ok = row && act != none || (v-v != 0) == row
					}
					if !ok {
						t.Fatalf("activation %d, %v in row 3 of %d: y[%d][%d] = %v", act, bad, M, i/N, i%N, v)
					}
				}
			}
		}
		for _, nq := range []int{1, 20, -20} { // -20: 20 queries, which may be rounded to bfloat16
			const T, C = 20, 16
			bf16 := nq < 0
			nq := max(nq, -nq)
			held := float32Type
			if bf16 {
				held = bfloat16Type
			}
			kv, err := newCache(1, T, 1, C, held)
			must(t, err)
			qkv, y, work := newGuarded(t, T*3*C).random(r, 1), newGuarded(t, nq*C), newGuarded(t, attentionWork(kv, 1))
			qkv.slice()[5*3*C+C+2] = nan // a key
			pos := ints(t, 0)
			got := onAll(t, pools, y, nil, func(p *program) error {
				return p.attention(attentionStep{qkv: matrix(qkv.mem, 3*C), y: matrix(y.mem, C), cache: kv, pos: pos,
					work: work.mem, B: 1, T: T, nq: nq, scale: 0.25, append: true, bf16: bf16})
			})
			for i, v := range got {
				if (v != v) != (T-nq+i/C >= 5) {
					t.Fatalf("%d queries: y[%d][%d] = %v", nq, i/C, i%C, v)
				}
			}
			kv.data.free()
		}
	})
}

// counting returns zeros, and a program of steps that add 1 to each, in n panels.
func counting(t testing.TB, p *pool, n, steps int) (guarded, *program) {
	t.Helper()
	n *= 32
	x, one, w, prog := newGuarded(t, n), newGuarded(t, 1), testWeight(t, 1, n, float32Type, false), testProgram(t, p, steps)
	clear(x.slice())
	one.slice()[0] = 1
	_, err := w.pack(p, bytesOf(slices.Repeat(one.slice(), n)), float32Type, false, 0, 1)
	must(t, err)
	for range steps {
		must(t, prog.linear(linearStep{x: matrix(one.mem, 1), y: matrix(x.mem, n), residual: matrix(x.mem, n), w: w, M: 1}))
	}
	return x, prog
}

// A program of several steps runs over and over with time stamps, on more threads than there may be cores, and is then
// interrupted.
func TestProgram(t *testing.T) {
	for _, threads := range []int{1, 2, 3, 8} {
		p := testPool(t, threads, supportedISAs()[len(supportedISAs())-1])
		const n, steps = 64, 50
		x, prog := counting(t, p, n, steps)
		if _, err := prog.push(0); err == nil {
			t.Error("a full program accepted another step")
		}
		stamps, err := alloc[int64](steps * threads * 2)
		must(t, err)
		defer stamps.free()
		for range 20 {
			if done, err := prog.run(0, steps, stamps); !done || err != nil {
				t.Fatal(done, err)
			}
		}
		if done, err := prog.run(10, 15, mem[int64]{}); !done || err != nil {
			t.Fatal(done, err)
		}
		for i, v := range x.slice() {
			if v != 20*steps+5 {
				t.Fatalf("%d threads: x[%d] = %v, want %d", threads, i, v, 20*steps+5)
			}
		}
		s := stamps.slice()
		for i := range steps {
			for w := range threads {
				start, end := s[(i*threads+w)*2], s[(i*threads+w)*2+1]
				if start > end || start == 0 {
					t.Fatalf("step %d, worker %d: from %d to %d", i, w, start, end)
				}
				for v := range threads { // a barrier lies between steps
					if i > 0 && start < s[((i-1)*threads+v)*2+1] {
						t.Fatalf("step %d starts before step %d ended", i, i-1)
					}
				}
			}
		}
		prog.interrupt()
		if done, err := prog.run(0, steps, mem[int64]{}); done || err != nil {
			t.Fatalf("an interrupted program ran to its end (error %v)", err)
		}
		prog.resume()
		if done, err := prog.run(0, steps, mem[int64]{}); !done || err != nil {
			t.Fatal(done, err)
		}
		if a := testing.AllocsPerRun(10, func() { _, _ = prog.run(0, steps, mem[int64]{}) }); a != 0 {
			t.Errorf("a run allocates %v times", a)
		}
	}
}

// Packing from a file gives the same bits as packing from memory, and is false where that has to say what is wrong.
func TestPackFile(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 2))
	p := testPool(t, 3, supportedISAs()[len(supportedISAs())-1])
	const K, N, at = 70, 100, 3
	sources := make([]source, 1)
	for _, held := range []dtype{float32Type, bfloat16Type, q8Type} {
		for _, source := range []dtype{float32Type, bfloat16Type, float16Type} {
			for _, transposed := range []bool{false, true} {
				src := make([]byte, at+K*N*source.size())
				for i := range src {
					if src[i] = byte(r.Uint32()); (i-at)%source.size() == source.size()-1 {
						src[i] &^= 0x40 // numbers below 2
					}
				}
				rows := K
				if transposed {
					rows = N
				}
				path := filepath.Join(t.TempDir(), "source")
				from := func(src []byte) (*weight, bool) {
					must(t, os.WriteFile(path, src, 0o666))
					f, err := os.Open(path)
					must(t, err)
					defer f.Close()
					w := testWeight(t, K, N, held, false)
					sources[0] = w.source(at, source, transposed)
					p.packFile(f.Fd(), sources)
					return w, sources[0].bad == 0
				}
				want := testWeight(t, K, N, held, false)
				if bad, err := want.pack(p, src[at:], source, transposed, 0, rows); bad != 0 || err != nil {
					t.Fatal(bad, err)
				}
				if got, ok := from(src); !ok || !bytes.Equal(bytesOf(got.data.slice()), bytesOf(want.data.slice())) {
					t.Errorf("%d from %d, transposed %v: read %v, or other bits", held, source, transposed, ok)
				}
				if _, ok := from(src[:len(src)-1]); ok {
					t.Error("a file that is too short was packed")
				}
				src[len(src)-1] |= 0x7f
				src[len(src)-2] |= 0x80
				if _, ok := from(src); ok {
					t.Error("a number that is not finite was packed")
				}
			}
		}
	}
}

// Interrupting from another goroutine ends a long step early.
func TestInterrupt(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 1))
	p := testPool(t, 2, portable)
	const M, K, N, repeats = 512, 512, 512, 2000 // about a minute
	w, _ := packed(t, r, p, K, N, float32Type, float32Type, false)
	x, y := newGuarded(t, M*K).random(r, 1), newGuarded(t, M*N)
	prog := testProgram(t, p, repeats)
	for range repeats {
		must(t, prog.linear(linearStep{x: matrix(x.mem, K), y: matrix(y.mem, N), w: w, M: M}))
	}
	time.AfterFunc(time.Millisecond, prog.interrupt)
	done, err := prog.run(0, repeats, mem[int64]{})
	if done || err != nil {
		t.Errorf("done %v, error %v", done, err)
	}
}

// Several pools at once, each busy with its own program.
func TestPoolsAtOnce(t *testing.T) {
	var done sync.WaitGroup
	for g := range 4 {
		p := testPool(t, 2+g%2, portable)
		x, prog := counting(t, p, 100, 3)
		for range 2 { // and two goroutines take turns on each
			done.Add(1)
			go func() {
				defer done.Done()
				for range 200 {
					if ok, err := prog.run(0, 3, mem[int64]{}); !ok || err != nil {
						t.Errorf("done %v, error %v", ok, err)
						return
					}
				}
			}()
		}
		defer func() {
			for i, v := range x.slice() {
				if v != 1200 {
					t.Fatalf("pool %d: x[%d] = %v, want 1200", g, i, v)
				}
			}
		}()
	}
	done.Wait()
}

// After its last job a pool uses no processor time: its threads sleep.
func TestPoolSleeps(t *testing.T) {
	p := testPool(t, 4, portable)
	for range 3 { // asleep, it wakes again
		if s := p.measureBarrier(10); !(s > 0) {
			t.Fatalf("a barrier took %v s", s)
		}
		for began := time.Now(); ; { // until its threads sleep, which they need a core for
			before := processTime()
			time.Sleep(20 * time.Millisecond)
			used := processTime() - before
			if used < 4*time.Millisecond {
				break
			}
			if time.Since(began) > time.Minute {
				t.Fatalf("an idle pool of 4 threads used %v of processor time in 20 ms", used)
			}
		}
	}
}

// While one worker works, the others sleep at the barrier: they leave their cores to other programs.
func TestPoolWaits(t *testing.T) {
	const C, steps = 2 << 20, 4 // one row, which one worker normalizes
	x, y, gain := newGuarded(t, C), newGuarded(t, C), newGuarded(t, C)
	used := func(threads int) (least time.Duration) {
		p := testPool(t, threads, portable)
		defer p.close()
		prog := testProgram(t, p, steps)
		for range steps {
			if err := prog.layerNorm(layerNormStep{x: matrix(x.mem, C), y: matrix(y.mem, C),
				norm: norm{gain.mem, gain.mem, 1e-5}, M: 1, C: C}); err != nil {
				t.Fatal(err)
			}
		}
		least = time.Hour
		for range 20 { // other programs make cores slower
			before := processTime()
			if done, err := prog.run(0, steps, mem[int64]{}); !done || err != nil {
				t.Fatalf("done %v, error %v", done, err)
			}
			least = min(least, processTime()-before)
		}
		return least
	}
	one, four := used(1), used(4)
	if four > one*3/2 {
		t.Errorf("4 threads used %v of processor time for what one thread does in %v", four, one)
	}
}

func TestStepErrors(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 1))
	p := testPool(t, 1, portable)
	w, _ := packed(t, r, p, 8, 40, float32Type, float32Type, false)
	prog := testProgram(t, p, 4)
	x, y := newGuarded(t, 3*8), newGuarded(t, 3*40)
	kv, err := newCache(1, 10, 2, 4, float32Type)
	must(t, err)
	defer kv.data.free()
	pos := ints(t, 0)
	rows, _ := table(t, r, p, 8, 5, float32Type, float32Type)
	for name, err := range map[string]error{
		"x too short":    prog.linear(linearStep{x: matrix(x.mem, 8), y: matrix(y.mem, 40), w: w, M: 4}),
		"y too short":    prog.linear(linearStep{x: matrix(x.mem, 8), y: matrix(y.mem.part(0, 100), 40), w: w, M: 3}),
		"column range":   prog.linear(linearStep{x: matrix(x.mem, 8), y: matrix(y.mem, 40), w: w, M: 3, n0: 8, n1: 41}),
		"no weight":      prog.linear(linearStep{x: matrix(x.mem, 8), y: matrix(y.mem, 40), M: 3}),
		"bias too short": prog.linear(linearStep{x: matrix(x.mem, 8), y: matrix(y.mem, 40), w: w, M: 3, bias: x.mem}),
		"norm too short": prog.linear(linearStep{x: matrix(x.mem, 8), y: matrix(y.mem, 40), w: w, M: 3,
			norm: norm{x.mem, x.mem.part(0, 7), 0}}),
		"act and residual": prog.linear(linearStep{x: matrix(x.mem, 8), y: matrix(y.mem, 40), residual: matrix(y.mem, 40),
			act: relu, w: w, M: 3}),
		"overlapping rows": prog.linear(linearStep{x: matrix(x.mem, 8), y: matrix(y.mem, 39), w: w, M: 3}),
		"too many queries": prog.attention(attentionStep{qkv: matrix(y.mem, 24), y: matrix(x.mem, 8), cache: kv, pos: pos,
			B: 1, T: 2, nq: 3}),
		"work missing": prog.attention(attentionStep{qkv: matrix(y.mem, 24), y: matrix(x.mem, 8), cache: kv, pos: pos,
			B: 1, T: 2, nq: 1}),
		"too many tokens": prog.attention(attentionStep{qkv: matrix(y.mem, 0), y: matrix(x.mem, 8), cache: kv, pos: pos,
			B: 1, T: 33, nq: 1}),
		"ids too short": prog.embed(embedStep{y: matrix(x.mem, 8), ids: pos, pos: pos, wte: rows, wpe: rows, B: 1, T: 2}),
		"packed wpe":    prog.embed(embedStep{y: matrix(x.mem, 8), ids: pos, pos: pos, wte: rows, wpe: w, B: 1, T: 1}),
		"packed wte":    prog.embed(embedStep{y: matrix(x.mem, 8), ids: pos, pos: pos, wte: w, wpe: rows, B: 1, T: 1}),
		"columns of table": func() error {
			_, err := rows.pack(p, make([]byte, 5*4), float32Type, false, 0,
				1)
			return err
		}(),
		"rows out of range": func() error { _, err := rows.pack(p, make([]byte, 32), float32Type, true, 5, 6); return err }(),
		"run out of range":  func() error { _, err := prog.run(0, 1, mem[int64]{}); return err }(),
		"odd slice":         func() error { _, err := w.pack(p, make([]byte, 40*4), float32Type, false, 1, 2); return err }(),
		"short slice":       func() error { _, err := w.pack(p, make([]byte, 40*4), float32Type, false, 0, 2); return err }(),
		"zero threads":      func() error { _, err := newPool(-1, portable); return err }(),
		"huge weight":       func() error { _, err := newWeight(&arena{}, 1<<30, 1<<30, float32Type, false); return err }(),
		"unknown version":   func() error { _, err := chooseISA("mmx"); return err }(),
	} {
		if err == nil {
			t.Errorf("%s: no error", name)
		} else {
			t.Logf("%s: %v", name, err)
		}
	}
}

// What /proc/cpuinfo says of processors; virtual machines give several of them one name.
func TestCPUInfo(t *testing.T) {
	for _, c := range []struct{ text, name, model, extensions string }{
		{"processor\t: 0\ncpu family\t: 26\nmodel\t\t: 17\nmodel name\t: AMD EPYC\nflags\t\t: fpu avx2 fma vme\n\n" +
			"processor\t: 1\ncpu family\t: 1\nmodel\t\t: 2\n", "AMD EPYC", "family 26, model 17", "avx2 fma"},
		{"processor\t: 0\nmodel name\t: Cortex\nFeatures\t: asimd crc32\nCPU architecture: 8\n", "Cortex", "", "asimd"},
		{"", runtime.GOARCH, "", ""},
	} {
		if name, model, extensions := parseCPUInfo(strings.NewReader(c.text)); name != c.name || model != c.model ||
			strings.Join(extensions, " ") != c.extensions {
			t.Errorf("%q, %q, %q; expected %q, %q, %q", name, model, extensions, c.name, c.model, c.extensions)
		}
	}
}

func TestFeatures(t *testing.T) {
	t.Setenv("GPT2SCOPE_CPU", "")
	f, err := DetectFeatures()
	if err != nil || len(f.Versions) == 0 || f.Versions[0] != "portable" || f.Version != f.Versions[len(f.Versions)-1] {
		t.Errorf("%+v, error %v", f, err)
	}
	want, wantF32 := "widened to float32", "multiply-adds"
	switch f.Version {
	case "amx":
		want, wantF32 = "AMX tiles", "AMX tiles"
	case "avx512-bf16":
		want = "AVX-512 dot products"
	}
	if !strings.HasPrefix(f.BF16, want) {
		t.Errorf("version %s multiplies bfloat16 by %q", f.Version, f.BF16)
	}
	if !strings.HasPrefix(f.F32, wantF32) {
		t.Errorf("version %s multiplies float32 by %q", f.Version, f.F32)
	}
	t.Logf("%+v", f)
	t.Setenv("GPT2SCOPE_CPU", "portable")
	if f, err = DetectFeatures(); err != nil || f.Version != "portable" ||
		!strings.HasPrefix(f.BF16, "widened to float32, ") {
		t.Errorf("forced to portable: %+v, error %v", f, err)
	}
	t.Setenv("GPT2SCOPE_CPU", "sse9")
	if f, err = DetectFeatures(); err == nil || f.Version != "" || len(f.Versions) == 0 {
		t.Errorf("forced to sse9: %+v, error %v", f, err)
	}
}

// Maxima of blocks equal those of plain Go, at whatever place the largest value, a NaN or an infinity is.
func TestMaxima(t *testing.T) {
	for _, i := range supportedISAs() {
		r := rand.New(rand.NewPCG(9, 1))
		for range 300 {
			x := make([]float32, 1+r.IntN(300))
			for j := range x {
				x[j] = float32(r.NormFloat64())
			}
			for _, v := range []float64{math.NaN(), math.Copysign(math.NaN(), -1), math.Inf(1), math.Inf(-1)} {
				if r.IntN(3) == 0 {
					x[r.IntN(len(x))] = float32(v)
				}
			}
			n := (len(x) + gpt2.MaximaBlock - 1) / gpt2.MaximaBlock
			got, want := make([]float32, n), make([]float32, n)
			i.maxima(got, x)
			gpt2.BlockMaxima(want, x)
			for j := range want {
				if got[j] != want[j] && (got[j] == got[j] || want[j] == want[j]) {
					t.Fatalf("%s: block %d of %d values: %v, want %v", i, j, len(x), got[j], want[j])
				}
			}
		}
	}
}

// What blocks hold stays when they are moved to huge pages.
func TestFillKeepsWhatIsThere(t *testing.T) {
	caches, err := newCaches(8, 1, 600, 12, 64, float32Type)
	must(t, err)
	c := caches[0]
	defer c.data.free()
	for i := range c.data.slice() {
		c.data.slice()[i] = float32(i % 1021)
	}
	for _, n := range []int{255, 256, 300, 700} {
		if c.fill(n); c.moved != n/256 {
			t.Fatalf("%d tokens: %d blocks are on huge pages", n, c.moved)
		}
		for i, v := range c.data.slice() {
			if v != float32(i%1021) {
				t.Fatalf("%d tokens: word %d is %g", n, i, v)
			}
		}
	}
}

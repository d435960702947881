package cuda_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"

	"gpt2scope/cuda"
	"gpt2scope/internal/require"
	"gpt2scope/reference"
)

// Linear against y = act(norm(x) W^T + bias) in float64: every variant, type, activation and way out. Inputs are
// rounded to their type first, so that what is left is the arithmetic. Between rows stand NaN (x) and a mark (y) which
// no kernel may use or change.

const linearMark = 3.5 // between the rows of y

const linearEps = 1e-5

// linearData is a matrix, rows to multiply it with, and the exact products.
type linearData struct {
	dt                cuda.DType
	rows, N, K        int
	x, w              []float32 // (rows, K), (N, K), of dt
	xf                []float32 // (rows, K) float32: what is normalised
	bias, gain, shift []float32 // (N), (K), (K); bias is a bfloat16, too
	plain, norm       []float64 // (rows, N), (min(rows, GEMVRows), N)
}

func newLinearData(dt cuda.DType, rows, N, K int) *linearData {
	d := &linearData{dt: dt, rows: rows, N: N, K: K}
	draw := func(n int, seed uint64, scale, shift float32, round bool) []float32 {
		v := make([]float32, n)
		linearParallel((n+65535)/65536, func(part int) {
			r := rand.New(rand.NewPCG(seed, uint64(part)))
			for i := part * 65536; i < min(n, (part+1)*65536); i++ {
				v[i] = (2*r.Float32()-1)*scale + shift
				if round {
					v[i] = bf16(v[i])
				}
			}
		})
		return v
	}
	half := dt == cuda.BF16
	d.x = draw(rows*K, 1, 1.7, 0, half)
	d.w = draw(N*K, 2, float32(2/math.Sqrt(float64(K))), 0, half)
	d.xf = draw(rows*K, 3, 2, 5, false) // a mean far from 0, against one-pass variances
	d.bias = draw(N, 4, 1, 0, true)
	d.gain = draw(K, 5, 0.5, 1, false)
	d.shift = draw(K, 6, 0.5, 0, false)

	some := min(rows, cuda.GEMVRows)
	normed := make([]float64, some*K)
	for m := range some {
		copy(normed[m*K:], reference.LayerNorm(d.xf[m*K:(m+1)*K], d.gain, d.shift, linearEps))
	}
	d.plain, d.norm = make([]float64, rows*N), make([]float64, some*N)
	linearParallel(N, func(n int) {
		w := d.w[n*K : (n+1)*K]
		for m := range rows {
			d.plain[m*N+n] = reference.Dot(d.x[m*K:(m+1)*K], w)
		}
		for m := range some {
			d.norm[m*N+n] = reference.Dot(normed[m*K:(m+1)*K], w)
		}
	})
	return d
}

// linearParallel calls f(0) to f(n-1) on all processors.
func linearParallel(n int, f func(i int)) {
	var wait sync.WaitGroup
	workers := min(n, runtime.NumCPU())
	for worker := range workers {
		wait.Add(1)
		go func() {
			defer wait.Done()
			for i := worker; i < n; i += workers {
				f(i)
			}
		}()
	}
	wait.Wait()
}

// linearWay is how a product leaves: everything but shape and type of the inputs.
type linearWay struct {
	yt         cuda.DType
	act        cuda.Activation
	bias       bool
	accumulate bool
	norm       bool
}

func (w linearWay) String() string {
	return fmt.Sprintf("%s_act%d_bias%t_accumulate%t_norm%t", map[cuda.DType]string{cuda.F32: "f32", cuda.BF16: "bf16"}[w.yt], w.act, w.bias, w.accumulate, w.norm)
}

// linearWays lists all ways, or those that a model takes.
func linearWays(all bool) []linearWay {
	if !all {
		return []linearWay{
			{yt: cuda.F32}, {yt: cuda.BF16, bias: true, act: cuda.GELUTanh}, {yt: cuda.F32, bias: true, accumulate: true},
			{yt: cuda.BF16, bias: true, norm: true}, {yt: cuda.F32, bias: true, act: cuda.GELUErf},
		}
	}
	var ways []linearWay
	for _, norm := range []bool{false, true} {
		for _, bias := range []bool{false, true} {
			for _, yt := range []cuda.DType{cuda.F32, cuda.BF16} {
				for _, act := range []cuda.Activation{cuda.ActNone, cuda.GELUTanh, cuda.GELUErf, cuda.ReLU} {
					ways = append(ways, linearWay{yt: yt, act: act, bias: bias, norm: norm})
				}
			}
			ways = append(ways, linearWay{yt: cuda.F32, bias: bias, accumulate: true, norm: norm})
		}
	}
	return ways
}

// linearDevice is a linearData on the device.
type linearDevice struct {
	t                           *testing.T
	g                           *gpu
	d                           *linearData
	ldx, ldy                    int
	x, xf, w                    *guarded
	bias, biasBF16, gain, shift *guarded
}

func newLinearDevice(t *testing.T, g *gpu, d *linearData, gapX, gapY int) *linearDevice {
	at := func(v []float32) func(int) float32 { return func(i int) float32 { return v[i] } }
	l := &linearDevice{t: t, g: g, d: d, ldx: d.K + gapX, ldy: d.N + gapY}
	rows := func(v []float32) func(int) float32 {
		return func(i int) float32 {
			if i%l.ldx < d.K {
				return v[i/l.ldx*d.K+i%l.ldx]
			}
			return float32(math.NaN())
		}
	}
	l.x = g.floats(d.rows*l.ldx, d.dt, rows(d.x))
	l.xf = g.floats(d.rows*l.ldx, cuda.F32, rows(d.xf))
	l.w = g.floats(d.N*d.K, d.dt, at(d.w))
	l.bias, l.biasBF16 = g.floats(d.N, cuda.F32, at(d.bias)), g.floats(d.N, cuda.BF16, at(d.bias))
	l.gain, l.shift = g.floats(d.K, cuda.F32, at(d.gain)), g.floats(d.K, cuda.F32, at(d.shift))
	return l
}

// before is what y (m, n) holds where a product is added to it.
func (l *linearDevice) before(m, n int) float32 { return float32((m*31+n*17)%64)/16 - 2 }

func (l *linearDevice) output(M int, way linearWay) *guarded {
	return l.g.floats(M*l.ldy, way.yt, func(i int) float32 {
		switch {
		case i%l.ldy >= l.d.N:
			return linearMark
		case way.accumulate:
			return l.before(i/l.ldy, i%l.ldy)
		}
		return float32(math.NaN())
	})
}

func (l *linearDevice) args(variant, M int, way linearWay, y *guarded) cuda.LinearArgs {
	a := cuda.LinearArgs{Variant: int32(variant), X: l.x.ptr(), W: l.w.ptr(), Y: y.ptr(), M: int32(M), N: int32(l.d.N), K: int32(l.d.K),
		LDX: int32(l.ldx), LDY: int32(l.ldy), DType: l.d.dt, YType: way.yt, Act: way.act, Eps: linearEps}
	if way.bias {
		a.Bias, a.BiasBF16 = l.bias.ptr(), l.biasBF16.ptr()
	}
	if way.norm {
		a.X, a.Gain, a.Shift = l.xf.ptr(), l.gain.ptr(), l.shift.ptr()
	}
	if way.accumulate {
		a.Accumulate = 1
	}
	return a
}

// check compares y with the formula. A library may round bfloat16 outputs before bias and activation, and take the tanh
// of the hardware, right to 2^-11.
func (l *linearDevice) check(name string, M int, way linearWay, got []float32, library, tanh bool) {
	l.t.Helper()
	d := l.d
	product := d.plain
	if way.norm {
		product = d.norm
	}
	want := make([]float64, M*d.N)
	scale := 0.0
	for m := range M {
		for n := range d.N {
			v := product[m*d.N+n]
			if way.bias {
				v += float64(d.bias[n])
			}
			scale = max(scale, math.Abs(v))
			v = activations[way.act](v)
			if way.accumulate {
				v += float64(l.before(m, n))
			}
			want[m*d.N+n] = v
		}
	}
	relative, absolute := 0.0, 1e-5*scale
	if tanh && way.act == cuda.GELUTanh {
		absolute = scale / 2048
	}
	if way.yt == cuda.BF16 {
		relative = 1.0 / 256
		if library && (way.bias || way.act != cuda.ActNone) {
			absolute = scale / 256
		}
	}
	for m := range M {
		for n := range l.ldy {
			v := float64(got[m*l.ldy+n])
			if n >= d.N {
				if v != linearMark {
					l.t.Fatalf("%s: (%d, %d), between rows, is %v: it was %v", name, m, n, v, linearMark)
				}
				continue
			}
			if w := want[m*d.N+n]; !(math.Abs(v-w) <= absolute+relative*math.Abs(w)) { // NaN fails
				l.t.Fatalf("%s: (%d, %d) is %v, should be %v", name, m, n, v, w)
			}
		}
	}
}

// linearBLAS opens cuBLASLt; where there is none, the test goes on without it unless a GPU machine must have
// everything.
func linearBLAS(t *testing.T, g *gpu) bool {
	err := g.lib.OpenBLAS()
	if err != nil && os.Getenv("GPT2SCOPE_REQUIRE_GPU") == "1" {
		t.Fatal(err)
	}
	if err != nil {
		t.Logf("variant blas is not tested: %v", err)
	}
	return err == nil
}

func TestLinear(t *testing.T) {
	names := open(t).lib.Variants(cuda.OpLinear)
	if want := "auto naive gemv blas wgmma rows"; strings.Join(names, " ") != want {
		t.Fatalf("variants %q are not %s", names, want)
	}
	few, many := []int{1, 2, 3, 5, 8}, []int{9, 16, 32, 64, 129}
	both := append(append([]int{}, few...), many...)
	for _, c := range []struct {
		N, K, gapX, gapY int
		rows             []int
		all              bool
	}{
		{257, 384, 0, 0, both, true},
		{257, 384, 8, 7, both, true},
		{64, 37, 3, 0, both, true},
		{1, 384, 0, 0, both, false},
		{5, 37, 0, 3, both, false},
		{384, 768, 4, 8, both, false},
		{768, 3072, 4, 0, both, false},
		{2304, 768, 0, 16, both, false},
		{3072, 768, 0, 0, []int{1, 4, 8, 65}, false},
		{1000, 200, 8, 24, []int{3, 72, 333}, true}, // parts of tiles
		{768, 3072, 0, 0, []int{5, 9, 129, 1000}, false},
		{768, 768, 0, 0, []int{8, 72, 1024}, false},
		{2304, 768, 0, 0, []int{2900}, false}, // more tiles than SMs
		{140, 8, 0, 0, few, false},            // a chunk or two per row
		{300, 1024, 0, 0, few, false},
		{133, 8192, 16, 0, few, false},
		{4800, 1600, 0, 0, []int{1, 2, 7, 33}, false},
		{6400, 1600, 0, 0, []int{1, 3, 8}, false},
		{1600, 6400, 0, 0, []int{1, 2, 4, 8, 17}, false},
		{50304, 768, 0, 0, []int{1, 2, 4, 8, 17}, false},
		{50257, 768, 0, 47, []int{1}, false},
		{50304, 1600, 4, 0, []int{1, 8}, false}, // rows that the bulk kernel does not take
	} {
		for _, dt := range []cuda.DType{cuda.F32, cuda.BF16} {
			t.Run(fmt.Sprintf("type%d/N%d_K%d_gaps%d_%d", dt, c.N, c.K, c.gapX, c.gapY), func(t *testing.T) {
				g := open(t)
				blas := linearBLAS(t, g)
				largest := c.rows[len(c.rows)-1]
				l := newLinearDevice(t, g, newLinearData(dt, largest, c.N, c.K), c.gapX, c.gapY)
				for _, M := range c.rows {
					for _, way := range linearWays(c.all) {
						for variant, name := range names {
							if way.norm && M > cuda.GEMVRows {
								continue
							}
							args := l.args(variant, M, way, l.x)
							taken := require.Value(g.stream.LinearVariant(args))(t)
							library := names[taken] == "blas"
							switch {
							case name == "wgmma" && !linearOnHopper(g, args):
								if g.stream.Linear(args) == nil {
									t.Fatalf("wgmma took a product that it is not for: %+v", args)
								}
								continue
							case name == "rows" && !linearOfRows(g, args):
								if g.stream.Linear(args) == nil {
									t.Fatalf("variant rows took a product that it is not for: %+v", args)
								}
								continue
							case library && (!blas || way.norm || dt == cuda.F32 && way.yt == cuda.BF16):
								continue // cuBLASLt does not
							case name == "gemv" && (M > cuda.GEMVRows || args.K%8 != 0 || args.LDX%4 != 0):
								if g.stream.Linear(args) == nil {
									t.Fatalf("gemv took a product that it is not for: %+v", args)
								}
								continue
							case name == "naive" && c.N > 10000 && M > 1:
								continue // slow, and nothing new
							}
							title := fmt.Sprintf("%s, %d rows, %s", name, M, way)
							var first []float32
							for range 2 {
								y := l.output(M, way)
								if err := g.stream.Linear(l.args(variant, M, way, y)); err != nil {
									t.Fatalf("%s: %v", title, err)
								}
								if err := g.stream.Synchronize(); err != nil {
									t.Fatalf("%s: %v", title, err)
								}
								got := y.get()
								if first == nil {
									l.check(title, M, way, got, library, library || names[taken] == "wgmma")
									first = got
									if c.N > 10000 {
										break
									}
									continue
								}
								for i := range got {
									if math.Float32bits(got[i]) != math.Float32bits(first[i]) {
										t.Fatalf("%s: element %d is %v, was %v in the first run", title, i, got[i], first[i])
									}
								}
							}
						}
					}
				}
			})
		}
	}
}

// The naive kernel takes no 8-bit weights: of an x that is not aligned the matrix-vector kernels say what they need.
func TestLinearOf8BitsNotAligned(t *testing.T) {
	a := cuda.LinearArgs{X: 8, W: 16, Y: 16, M: 1, N: 8, K: 32, LDX: 32, LDY: 8, DType: cuda.Q8, YType: cuda.F32}
	if err := open(t).stream.Linear(a); !errors.Is(err, cuda.ErrNoKernel) || !strings.Contains(err.Error(), "variant gemv") {
		t.Errorf("%v", err)
	}
}

// linearOnHopper says whether variant wgmma is for a product; the launcher must refuse exactly the others.
func linearOnHopper(g *gpu, a cuda.LinearArgs) bool {
	store := int32(4)
	if a.YType == cuda.BF16 {
		store = 8
	}
	act := a.Act == cuda.ActNone || a.Act == cuda.GELUTanh && a.YType == cuda.BF16
	return g.hopper() && a.DType == cuda.BF16 && act && a.Gain == 0 && a.K%8 == 0 && a.LDX%8 == 0 && a.N%store == 0 &&
		a.LDY%store == 0
}

// linearOfRows says the same of variant rows, whose registers hold longer rows of W if those of x are few.
func linearOfRows(g *gpu, a cuda.LinearArgs) bool {
	return g.hopper() && a.DType == cuda.BF16 && a.Gain == 0 && a.M <= cuda.FewRows && a.K%32 == 0 && (a.K <= 6144 || a.M <= 16 && a.K <= 8192) &&
		a.LDX%8 == 0
}

// An algorithm can be read and tuned; products are right with each, and the same algorithm gives the same bits.
func TestLinearAlgorithm(t *testing.T) {
	g := open(t)
	if !linearBLAS(t, g) {
		t.Skip("algorithms are those of cuBLASLt")
	}
	const M, N, K = 129, 768, 384
	for _, dt := range []cuda.DType{cuda.F32, cuda.BF16} {
		l := newLinearDevice(t, g, newLinearData(dt, M, N, K), 0, 0)
		for _, way := range []linearWay{
			{yt: cuda.F32}, {yt: cuda.F32, bias: true, accumulate: true}, {yt: dt, bias: true, act: cuda.GELUTanh},
			{yt: dt, bias: true, act: cuda.GELUErf}, {yt: dt, act: cuda.ReLU},
		} {
			title := fmt.Sprintf("type %d, %s", dt, way)
			run := func() []float32 {
				y := l.output(M, way)
				if err := g.stream.Linear(l.args(3, M, way, y)); err != nil {
					t.Fatalf("%s: %v", title, err)
				}
				if err := g.stream.Synchronize(); err != nil {
					t.Fatalf("%s: %v", title, err)
				}
				got := y.get()
				l.check(title, M, way, got, true, true)
				return got
			}
			args := l.args(3, M, way, l.output(M, way))
			for _, candidates := range []int{0, 16} {
				if err := g.stream.TuneLinear(args, candidates); err != nil {
					t.Fatalf("%s: %v", title, err)
				}
				run()
			}
			fast := run()
			if err := g.stream.TuneLinear(args, 0); err != nil {
				t.Fatalf("%s: %v", title, err)
			}
			for i, v := range run() {
				if math.Float32bits(v) != math.Float32bits(fast[i]) {
					t.Fatalf("%s: element %d is %v, was %v with the same algorithm", title, i, v, fast[i])
				}
			}
		}
	}
}

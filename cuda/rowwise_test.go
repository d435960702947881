package cuda_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"gpt2scope/cuda"
	"gpt2scope/internal/require"
	"gpt2scope/reference"
)

// The kernels that work row by row are compared with package reference: every variant that the library lists, on every
// shape. Rows are further apart than they are long where ld allows it, and the gaps between them must stay as they
// were.

// spread lays dense rows of n elements ld apart; the gaps hold gap.
func spread(rows, n, ld int, at func(i int) float32, gap float32) func(i int) float32 {
	return func(i int) float32 {
		if r, c := i/ld, i%ld; r < rows && c < n {
			return at(r*n + c)
		}
		return gap
	}
}

// gather takes the dense rows out again and fails where a gap is not what it was.
func gather(t *testing.T, name string, x []float32, rows, n, ld int, gap float32) []float32 {
	t.Helper()
	dense := make([]float32, 0, rows*n)
	for r := range rows {
		dense = append(dense, x[r*ld:r*ld+n]...)
		for c := n; c < ld; c++ {
			if math.Float32bits(x[r*ld+c]) != math.Float32bits(gap) {
				t.Fatalf("%s: the gap after row %d was overwritten at column %d with %g", name, r, c, x[r*ld+c])
			}
		}
	}
	return dense
}

// values are random, rounded to what dt can hold.
func values(r *rand.Rand, n int, dt cuda.DType, scale, shift float32) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64())*scale + shift
		if dt == cuda.BF16 {
			x[i] = bf16(x[i])
		}
	}
	return x
}

func from(x []float32) func(i int) float32 { return func(i int) float32 { return x[i] } }

// tolerance is relative to the largest value: one rounding of the type, and the arithmetic in float32.
func tolerance(dt cuda.DType) float64 {
	if dt == cuda.BF16 {
		return 1.0 / 256 // half a unit in the last of 8 bits
	}
	return 2e-6
}

var typeNames = map[cuda.DType]string{cuda.F32: "f32", cuda.BF16: "bf16", cuda.F16: "f16"}

func TestEmbed(t *testing.T) {
	g := open(t)
	r := rand.New(rand.NewPCG(1, 2))
	for _, dt := range []cuda.DType{cuda.F32, cuda.BF16} {
		for _, c := range []struct{ B, T, C, V, P, pad int }{
			{1, 1, 768, 257, 64, -1}, {1, 1, 384, 257, 64, 0}, {3, 7, 37, 50, 32, 3}, {2, 33, 1600, 257, 64, 32},
			{1, 128, 768, 1000, 128, 5}, {3, 5, 6, 11, 16, 4}, {2, 4, 1280, 300, 16, 4},
		} {
			t.Run(fmt.Sprintf("%s/%+v", typeNames[dt], c), func(t *testing.T) {
				wte, wpe := values(r, c.V*c.C, dt, 1, 0), values(r, c.P*c.C, dt, 1, 0)
				pad := max(c.pad, 0)
				ids, pos := make([]int32, c.B*c.T), make([]int32, c.B)
				for b := range pos {
					pos[b] = int32(r.IntN(c.P - (c.T - pad) + 1))
				}
				want := make([]float64, c.B*c.T*c.C)
				for i := range ids {
					ids[i] = int32(r.IntN(c.V))
					b, live := i/c.T, i%c.T-pad
					if live < 0 {
						ids[i] = -1 // idle: not to be looked up
						continue
					}
					copy(want[i*c.C:], reference.Embed(wte, wpe, int(ids[i]), int(pos[b])+live, c.C))
				}
				x := g.floats(c.B*c.T*c.C, cuda.F32, nil)
				args := cuda.EmbedArgs{DType: dt, IDs: g.ints(ids).ptr(), Pos: g.ints(pos).ptr(),
					WTE: g.floats(len(wte), dt, from(wte)).ptr(), WPE: g.floats(len(wpe), dt, from(wpe)).ptr(), X: x.ptr(),
					B: int32(c.B), T: int32(c.T), C: int32(c.C), P: int32(c.P)}
				if c.pad >= 0 {
					args.Pad = g.ints([]int32{int32(c.pad)}).ptr()
				}
				must(t, g.stream.Embed(args))
				got := x.get()
				for i := range want { // one addition, rounded once
					if got[i] != float32(want[i]) {
						t.Fatalf("row %d, channel %d: %g, not %g", i/c.C, i%c.C, got[i], want[i])
					}
				}
			})
		}
	}
}

func TestLayerNorm(t *testing.T) {
	g := open(t)
	r := rand.New(rand.NewPCG(3, 4))
	const gap = 12345
	type add struct {
		given bool
		dt    cuda.DType
	}
	for _, c := range []struct{ M, C, wider int }{
		{1, 384, 0}, {1, 768, 0}, {1, 1024, 0}, {1, 1280, 0}, {1, 1600, 0}, {1, 37, 0}, {3, 768, 16}, {3, 37, 3}, {3, 1, 1},
		{3, 4, 4}, {65, 100, 4}, {5, 1600, 4}, {3, 2048, 0}, {3, 4096, 4}, {2, 4100, 0}, {3, 768, 1},
		{1024, 384, 0}, {1024, 768, 0}, {129, 1024, 0}, {129, 1280, 0}, {129, 1600, 8}, {70, 4096, 0}, {1024, 37, 0},
	} {
		for _, a := range []add{{}, {true, cuda.F32}, {true, cuda.BF16}} {
			for _, yt := range []cuda.DType{cuda.F32, cuda.BF16} {
				for variant := range g.variants(cuda.OpLayerNorm) {
					name := fmt.Sprintf("M=%d/C=%d/ld+%d/add=%v/y=%s/variant=%d", c.M, c.C, c.wider, a, typeNames[yt], variant)
					if c.M*c.C > 200_000 && variant == 1 {
						continue
					}
					// A mean far from 0 shows cancellation in the variance.
					x, z := values(r, c.M*c.C, cuda.F32, 2, 30), values(r, c.M*c.C, a.dt, 1, 0)
					gain, bias := values(r, c.C, cuda.F32, 0.2, 1), values(r, c.C, cuda.F32, 0.2, 0)
					ld := c.C + c.wider
					xb, yb := g.floats(c.M*ld, cuda.F32, spread(c.M, c.C, ld, from(x), gap)), g.floats(c.M*ld, yt, spread(c.M, c.C, ld, func(int) float32 { return float32(math.NaN()) }, 2))
					args := cuda.LayerNormArgs{Variant: variant, X: xb.ptr(), Gain: g.floats(c.C, cuda.F32, from(gain)).ptr(), Bias: g.floats(c.C, cuda.F32, from(bias)).ptr(),
						Y: yb.ptr(), M: int32(c.M), C: int32(c.C), LDX: int32(ld), LDY: int32(ld), YType: yt, Eps: 1e-5}
					if a.given {
						args.Add, args.AddType, args.LDAdd = g.floats(c.M*ld, a.dt, spread(c.M, c.C, ld, from(z), 3)).ptr(), a.dt, int32(ld)
					}
					if !g.ran(name, cuda.OpLayerNorm, variant, g.stream.LayerNorm(args)) {
						continue
					}
					sum, want := make([]float32, c.M*c.C), make([]float64, c.M*c.C)
					for m := range c.M {
						row := sum[m*c.C : (m+1)*c.C]
						for i := range row {
							row[i] = x[m*c.C+i]
							if a.given {
								row[i] += z[m*c.C+i] // in float32, as the residual stream is
							}
						}
						copy(want[m*c.C:], reference.LayerNorm(row, gain, bias, 1e-5))
					}
					gotX := gather(t, name+" x", xb.get(), c.M, c.C, ld, gap)
					for i := range sum {
						if gotX[i] != sum[i] {
							t.Fatalf("%s: x[%d] = %g, not %g", name, i, gotX[i], sum[i])
						}
					}
					// x near 30 has an error of 2e-6, and so has its mean; where C is 1 the result is bias plus what eps makes of
					// nothing.
					tol := tolerance(yt)
					if yt == cuda.F32 {
						tol = 1e-5
					}
					closeTo(t, name, gather(t, name+" y", yb.get(), c.M, c.C, ld, 2), want, tol)
				}
			}
		}
	}
}

// activations are the formulas of the kernels' activations.
var activations = map[cuda.Activation]func(float64) float64{
	cuda.ActNone: func(x float64) float64 { return x }, cuda.GELUTanh: reference.GELUTanh, cuda.GELUErf: reference.GELUErf, cuda.ReLU: reference.ReLU,
}

func TestActivate(t *testing.T) {
	g := open(t)
	r := rand.New(rand.NewPCG(5, 6))
	const gap = 7
	for _, c := range []struct{ M, N, wider int }{{1, 3072, 0}, {3, 37, 0}, {3, 1536, 8}, {5, 100, 3}, {129, 257, 7}, {64, 6400, 0}, {40, 1, 0}} {
		for _, dt := range []cuda.DType{cuda.F32, cuda.BF16} {
			for _, act := range []cuda.Activation{cuda.ActNone, cuda.GELUTanh, cuda.GELUErf, cuda.ReLU} {
				for i := range 4 * g.variants(cuda.OpActivation) {
					mode := struct {
						place, bias bool
						variant     int32
					}{i%2 == 0, i/2%2 == 0, i / 4}
					name := fmt.Sprintf("%+v/%s/act=%d/%+v", c, typeNames[dt], act, mode)
					ld := c.N + c.wider
					x, bias := values(r, c.M*c.N, dt, 3, 0), values(r, c.N, cuda.F32, 1, 0)
					xb := g.floats(c.M*ld, dt, spread(c.M, c.N, ld, from(x), gap))
					yb := xb
					if !mode.place {
						yb = g.floats(c.M*ld, dt, spread(c.M, c.N, ld, func(int) float32 { return float32(math.NaN()) }, gap))
					}
					args := cuda.ActivationArgs{Variant: mode.variant, X: xb.ptr(), Y: yb.ptr(), M: int32(c.M), N: int32(c.N), LDX: int32(ld), LDY: int32(ld), DType: dt, Act: act}
					if mode.bias {
						args.Bias = g.floats(c.N, cuda.F32, from(bias)).ptr()
					}
					if !g.ran(name, cuda.OpActivation, mode.variant, g.stream.Activate(args)) {
						continue
					}
					want := make([]float64, len(x))
					largest, kept := 0.0, 0.0
					for i := range x {
						v := float64(x[i])
						if mode.bias {
							v += float64(bias[i%c.N])
						}
						want[i] = activations[act](v)
						largest, kept = math.Max(largest, math.Abs(v)), math.Max(kept, math.Abs(want[i]))
					}
					// Where GELU is nearly 0, 1 + tanh (or erf) cancels: its error is a share of the input, which the GPU rounds in
					// float32.
					tol := tolerance(dt)
					if kept > 0 {
						tol = math.Max(tol, 1e-7*largest/kept)
					}
					closeTo(t, name, gather(t, name, yb.get(), c.M, c.N, ld, gap), want, tol)
				}
			}
		}
	}
}

func TestAdd(t *testing.T) {
	g := open(t)
	r := rand.New(rand.NewPCG(7, 8))
	const gap = 7
	for _, c := range []struct{ M, N, wider int }{{1, 768, 0}, {3, 37, 0}, {3, 384, 4}, {5, 100, 3}, {1024, 768, 0}, {1, 1, 0}} {
		for _, dt := range []cuda.DType{cuda.F32, cuda.BF16} {
			for variant := range g.variants(cuda.OpAdd) {
				name := fmt.Sprintf("%+v/%s/variant=%d", c, typeNames[dt], variant)
				ld := c.N + c.wider
				x, z := values(r, c.M*c.N, cuda.F32, 1, 0), values(r, c.M*c.N, dt, 1, 0)
				xb := g.floats(c.M*ld, cuda.F32, spread(c.M, c.N, ld, from(x), gap))
				zb := g.floats(c.M*ld, dt, spread(c.M, c.N, ld, from(z), gap))
				args := cuda.AddArgs{Variant: variant, X: xb.ptr(), Z: zb.ptr(), M: int32(c.M), N: int32(c.N), LDX: int32(ld), LDZ: int32(ld), DType: dt}
				if !g.ran(name, cuda.OpAdd, variant, g.stream.Add(args)) {
					continue
				}
				for i, v := range gather(t, name, xb.get(), c.M, c.N, ld, gap) {
					if v != x[i]+z[i] {
						t.Fatalf("%s: element %d is %g, not %g", name, i, v, x[i]+z[i])
					}
				}
			}
		}
	}
}

// roundTo rounds to nearest even at dt's precision.
func roundTo(x float32, dt cuda.DType) float32 {
	b := make([]byte, 4)
	put(b, dt, x)
	return take(b, dt)
}

func TestPack(t *testing.T) {
	g := open(t)
	r := rand.New(rand.NewPCG(9, 10))
	const gap = 3
	for _, c := range []struct {
		rows, cols, wider int
		transpose         int32
	}{
		{5, 37, 0, 0}, {64, 768, 0, 0}, {3, 768, 8, 0}, {257, 384, 1, 0}, {1, 1, 0, 0},
		{5, 37, 0, 1}, {64, 768, 0, 1}, {768, 100, 8, 1}, {129, 66, 1, 1}, {130, 63, 0, 1}, {131, 64, 1, 1}, {1, 1, 0, 1}, {384, 257, 0, 1},
	} {
		for _, st := range []cuda.DType{cuda.F32, cuda.BF16, cuda.F16} {
			for _, dt := range []cuda.DType{cuda.F32, cuda.BF16} {
				name := fmt.Sprintf("%+v/%s-%s", c, typeNames[st], typeNames[dt])
				x := make([]float32, c.rows*c.cols)
				for i := range x {
					x[i] = roundTo(float32(r.IntN(2)*2-1)*(0.01+r.Float32()), st)
				}
				height, width := c.rows, c.cols
				if c.transpose != 0 {
					height, width = width, height
				}
				ld := width + c.wider
				src := g.floats(len(x), st, from(x))
				dst := g.floats(height*ld, dt, spread(height, width, ld, func(int) float32 { return float32(math.NaN()) }, gap))
				if err := g.stream.Pack(cuda.PackArgs{Transpose: c.transpose, Src: src.ptr(), Dst: dst.ptr(), Rows: int32(c.rows), Cols: int32(c.cols), LDDst: int32(ld), SrcType: st, DstType: dt}); err != nil {
					t.Fatal(name, err)
				}
				for i, v := range gather(t, name, dst.get(), height, width, ld, gap) {
					from := i
					if c.transpose != 0 {
						from = i%width*c.cols + i/width
					}
					if want := roundTo(x[from], dt); v != want {
						t.Fatalf("%s: element %d, %d is %g, not %g", name, i/width, i%width, v, want)
					}
				}
			}
		}
	}
}

// TestPackQ8: 8-bit weights are the nearest multiples of a scale for 32, which is the largest of them over 127 in
// bfloat16, of matrices in either layout and of parts of one.
func TestPackQ8(t *testing.T) {
	g := open(t)
	r := rand.New(rand.NewPCG(11, 12))
	for _, c := range []struct{ height, width, first int }{{5, 32, 0}, {33, 256, 0}, {7, 416, 96}, {40, 1600, 256}, {3, 800, 768}} {
		for _, st := range []cuda.DType{cuda.F32, cuda.BF16, cuda.F16} {
			for _, transpose := range []int32{0, 1} {
				name := fmt.Sprintf("%+v/%s/%d", c, typeNames[st], transpose)
				part := c.width - c.first
				x := make([]float32, c.height*part) // as rows of dst
				for i := range x {
					x[i] = roundTo(float32(r.NormFloat64()), st)
				}
				clear(x[:32]) // a block of zeros
				raw := slices.Clone(x)
				a := cuda.PackArgs{Rows: int32(c.height), Cols: int32(part), LDDst: int32(c.width), SrcType: st, DstType: cuda.Q8, First: int32(c.first), Transpose: transpose}
				if transpose != 0 {
					a.Rows, a.Cols = a.Cols, a.Rows
					for i, v := range x {
						raw[i%part*c.height+i/part] = v
					}
				}
				src, wide := g.floats(len(x), st, from(raw)), g.floats(c.height*c.width, cuda.BF16, func(int) float32 { return 0 })
				packed := g.floats(c.height*cuda.Q8.RowBytes(c.width)/2, cuda.BF16, func(int) float32 { return 0 })
				a.Src, a.Dst = src.ptr(), packed.ptr()
				must(t, g.stream.Pack(a))
				must(t, g.stream.Pack(cuda.PackArgs{Src: packed.ptr(), Dst: wide.ptr(), Rows: int32(c.height), Cols: int32(c.width), LDDst: int32(c.width), SrcType: cuda.Q8, DstType: cuda.BF16}))
				for i, got := range wide.get() {
					var want float32
					if column := i%c.width - c.first; column >= 0 {
						at := i/c.width*part + column
						var most float32
						for _, v := range x[at-column%32:][:32] {
							most = max(most, v, -v)
						}
						if d := roundTo(most/127, cuda.BF16); d > 0 {
							want = roundTo(float32(math.RoundToEven(float64(x[at]*(1/d))))*d, cuda.BF16)
						}
					}
					if got != want {
						t.Fatalf("%s: element %d is %g, not %g", name, i, got, want)
					}
				}
			}
		}
	}
}

// Hops exchange the values that the formula of gs_hops gives, launch after launch, and stay within their memory. They
// are measured among the ceilings.
func TestHops(t *testing.T) {
	g := open(t)
	if info := g.dev.Info(); info.Major < 9 {
		t.Skipf("%s has no kernel for hops", info.Name)
	}
	processors := g.dev.Info().Processors
	for _, packets := range []int{1, 2, 3, 4} {
		n := int(cuda.HopBytes(packets, processors))
		work := require.Value(g.dev.Alloc(int64(n + guard)))(t)
		defer work.Free()
		must(t, work.Write(0, append(make([]byte, n), bytes.Repeat([]byte{0xff}, guard)...)))
		got, epoch := make([]byte, n+guard), 0
		for _, rounds := range []int{1, 2, 299, 300} {
			must(t, errors.Join(g.stream.Hops(work, packets, rounds), g.stream.Synchronize(), cuda.HopsCompleted(work), work.Read(0, got)))
			epoch += rounds
			if e := int(binary.NativeEndian.Uint32(got)); e != epoch {
				t.Errorf("%d packets: epoch %d, expected %d", packets, e, epoch)
			}
			want := make([]uint32, 3*packets*processors)
			for r := range rounds {
				from := slices.Clone(want)
				for i := range want {
					want[i] = uint32(i) + from[(i+3*packets*r)%len(want)]
				}
			}
			unit := got[int(cuda.HopBytes(0, 0))+epoch%2*16*packets*processors:]
			for i, w := range want {
				at := unit[i/3*16:]
				if v, e := binary.NativeEndian.Uint32(at[i%3*4:]), binary.NativeEndian.Uint32(at[12:]); v != w || int(e) != epoch {
					t.Fatalf("%d packets, %d rounds: value %d is %d of epoch %d, expected %d of %d", packets, rounds, i, v, e, w, epoch)
				}
			}
			if !bytes.Equal(got[n:], bytes.Repeat([]byte{0xff}, guard)) {
				t.Fatalf("%d packets: the kernel wrote beyond its %d bytes", packets, n)
			}
		}
	}

	set := require.Value(g.dev.MeasureCeilings(context.Background()))(t)
	hops := 0
	for _, v := range set.Values {
		if v.Name == "hop" {
			t.Logf("a hop of %d bytes takes %.3f us", v.Size, v.Value)
			if hops++; !(v.Value > 0.2 && v.Value < 20) {
				t.Errorf("a hop of %d bytes takes %g us", v.Size, v.Value)
			}
		}
	}
	if hops != 2 {
		t.Errorf("%d hops were measured: %+v", hops, set.Values)
	}
}

func TestCeilings(t *testing.T) {
	g := open(t)
	must(t, g.stream.EmptyKernel())
	r := rand.New(rand.NewPCG(11, 12))
	for _, n := range []int{1, 15, 16, 17, 100, 65536, 65536*3 + 7, 5<<20 + 13, 20<<20 + 16} {
		src, dst := g.unset(n), g.unset(n)
		data := make([]byte, n)
		for i := range data {
			data[i] = byte(r.Uint32())
		}
		src.write(data)
		must(t, g.stream.CopyKernel(dst.ptr(), src.ptr(), int64(n)))
		if got := dst.bytes(); string(got) != string(data) {
			t.Errorf("copying %d bytes: they differ", n)
		}
		out := g.unset(4)
		out.write(make([]byte, 4))
		must(t, g.stream.ReadKernel(src.ptr(), int64(n), out.ptr()))
		want := uint32(0)
		for i, b := range data {
			want ^= uint32(b) << (8 * (i % 4))
		}
		if got := binary.LittleEndian.Uint32(out.bytes()); got != want {
			t.Errorf("reading %d bytes gives %#x, not %#x", n, got, want)
		}
		// Each of an odd number of passes reads every turn once.
		turns := n / cuda.CacheTurn
		if turns == 0 {
			continue
		}
		out.write(make([]byte, 4))
		must(t, g.stream.ReadAgain(src.ptr(), turns, 75, out.ptr()))
		want = 0
		for i, b := range data[:turns*cuda.CacheTurn] {
			want ^= uint32(b) << (8 * (i % 4))
		}
		if got := binary.LittleEndian.Uint32(out.bytes()); got != want {
			t.Errorf("reading %d turns 75 times gives %#x, not %#x", turns, got, want)
		}
	}
}

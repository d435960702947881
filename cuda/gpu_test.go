package cuda_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"os"
	"testing"

	"gpt2scope/cuda"
)

// What the tests of kernels share. They need a GPU and are skipped where there is none, unless GPT2SCOPE_REQUIRE_GPU=1
// says that there must be.

// gpu is the first GPU, with a stream on it.
type gpu struct {
	t      *testing.T
	lib    *cuda.Library
	dev    *cuda.Device
	stream *cuda.Stream

	launched map[string]bool // variants, by ran
}

// hopper reports whether the GPU has the kernels of compute capability 9.0.
func (g *gpu) hopper() bool { return g.dev.Info().Major == 9 && g.dev.Info().Minor == 0 }

// open opens the first GPU and cuBLASLt. What is missing skips the test.
func open(t *testing.T) *gpu {
	t.Helper()
	must := os.Getenv("GPT2SCOPE_REQUIRE_GPU") == "1"
	need := func(err error) {
		t.Helper()
		var missing *cuda.UnavailableError
		switch {
		case err == nil:
		case errors.As(err, &missing) && !must:
			t.Skipf("needs a GPU: %v", err)
		default:
			t.Fatal(err)
		}
	}
	lib, err := cuda.Open()
	need(err)
	dev, err := lib.Device(0)
	need(err)
	need(lib.OpenBLAS())
	stream, err := dev.NewStream()
	need(err)
	t.Cleanup(func() {
		if err := stream.Close(); err != nil {
			t.Error(err)
		}
	})
	return &gpu{t: t, lib: lib, dev: dev, stream: stream}
}

// variants returns how many kernels the library has for an operation. Tests run all of them, so that a new one is
// tested where it is added.
func (g *gpu) variants(op cuda.Op) int32 { return int32(len(g.lib.Variants(op))) }

// ran tells whether a launch of a variant ran. One past auto and naive may refuse a shape; it must run at another.
func (g *gpu) ran(name string, op cuda.Op, variant int32, err error) bool {
	g.t.Helper()
	const unsupported = 20001 // GS_UNSUPPORTED
	var refused *cuda.Error
	if variant > 1 && errors.As(err, &refused) && refused.Status == unsupported {
		return false
	}
	if err != nil {
		g.t.Fatal(name, err)
	}
	if g.launched == nil {
		g.launched = map[string]bool{}
		g.t.Cleanup(func() {
			for variant, name := range g.lib.Variants(op) {
				if !g.launched[name] && !g.t.Failed() {
					g.t.Errorf("variant %d, %s, refused every shape", variant, name)
				}
			}
		})
	}
	g.launched[g.lib.Variants(op)[variant]] = true
	return true
}

// guard is how many bytes on either side of an array must stay as they were.
const guard = 1024

// guarded is an array on the device between guard bytes.
type guarded struct {
	g     *gpu
	b     *cuda.Buffer
	n     int
	size  int // bytes of an element
	dtype cuda.DType
}

// array puts data on the device, between guard bytes.
func (g *gpu) array(data []byte, size int, dtype cuda.DType) *guarded {
	g.t.Helper()
	b, err := g.dev.Alloc(int64(len(data) + 2*guard))
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() {
		if err := b.Free(); err != nil {
			g.t.Error(err)
		}
	})
	all := bytes.Repeat([]byte{0xa5}, len(data)+2*guard)
	copy(all[guard:], data)
	if err := b.Write(0, all); err != nil {
		g.t.Fatal(err)
	}
	return &guarded{g, b, len(data) / size, size, dtype}
}

// unset makes an array of bytes that nothing has written.
func (g *gpu) unset(n int) *guarded { return g.array(bytes.Repeat([]byte{0xff}, n), 1, cuda.F32) }

// write writes the whole array when the stream is done.
func (a *guarded) write(data []byte) {
	a.g.t.Helper()
	must(a.g.t, a.g.stream.Synchronize())
	must(a.g.t, a.b.Write(guard, data))
}

// floats makes an array of n numbers; no fill poisons it with NaN.
func (g *gpu) floats(n int, dt cuda.DType, fill func(i int) float32) *guarded {
	g.t.Helper()
	data := bytes.Repeat([]byte{0xff}, n*dt.Size())
	if fill != nil {
		for i := range n {
			put(data[i*dt.Size():], dt, fill(i))
		}
	}
	return g.array(data, dt.Size(), dt)
}

// ints makes an array of int32.
func (g *gpu) ints(v []int32) *guarded {
	g.t.Helper()
	var data []byte
	for _, x := range v {
		data = binary.LittleEndian.AppendUint32(data, uint32(x))
	}
	return g.array(data, 4, cuda.F32)
}

// ptr is the address of the first element.
func (a *guarded) ptr() cuda.Ptr { return a.b.Ptr() + guard }

// bytes waits for the stream, reads the array back and checks its guards.
func (a *guarded) bytes() []byte {
	a.g.t.Helper()
	if err := a.g.stream.Synchronize(); err != nil {
		a.g.t.Fatal(err)
	}
	all := make([]byte, a.b.Size())
	if err := a.b.Read(0, all); err != nil {
		a.g.t.Fatal(err)
	}
	n := a.n * a.size
	for i, v := range all {
		if (i < guard || i >= guard+n) && v != 0xa5 {
			a.g.t.Fatalf("byte %d of an array of %d bytes was written", i-guard, n)
		}
	}
	return all[guard : guard+n]
}

// get reads numbers back.
func (a *guarded) get() []float32 {
	a.g.t.Helper()
	data := a.bytes()
	v := make([]float32, a.n)
	for i := range v {
		v[i] = take(data[i*a.size:], a.dtype)
	}
	return v
}

// put writes a number as a type, rounded to the nearest.
func put(b []byte, dt cuda.DType, x float32) {
	switch dt {
	case cuda.F32:
		binary.LittleEndian.PutUint32(b, math.Float32bits(x))
	case cuda.BF16:
		binary.LittleEndian.PutUint16(b, uint16(math.Float32bits(bf16(x))>>16))
	case cuda.F16:
		binary.LittleEndian.PutUint16(b, f16bits(x))
	}
}

// take reads a number of a type.
func take(b []byte, dt cuda.DType) float32 {
	switch dt {
	case cuda.F32:
		return math.Float32frombits(binary.LittleEndian.Uint32(b))
	case cuda.BF16:
		return math.Float32frombits(uint32(binary.LittleEndian.Uint16(b)) << 16)
	}
	return f16value(binary.LittleEndian.Uint16(b))
}

// bf16 rounds to the nearest bfloat16, ties to even.
func bf16(x float32) float32 {
	if x != x {
		return x
	}
	u := math.Float32bits(x)
	return math.Float32frombits((u + 0x7fff + u>>16&1) &^ 0xffff)
}

// f16bits rounds to the nearest float16, ties to even.
func f16bits(x float32) uint16 {
	sign := uint16(math.Float32bits(x) >> 16 & 0x8000)
	a := math.Abs(float64(x))
	switch {
	case a != a:
		return 0x7e00
	case a >= 65520:
		return sign | 0x7c00
	case a < 0x1p-14: // subnormal: a multiple of 2^-24
		return sign | uint16(math.RoundToEven(a*0x1p24))
	}
	fraction, exponent := math.Frexp(a) // a = fraction * 2^exponent, fraction from 1/2 to 1
	m := uint16(math.RoundToEven(fraction * 0x1p11))
	return sign | (uint16(exponent+13)<<10 + m) // m has the leading bit, which adds 1 to the exponent
}

// f16value is the value of a float16.
func f16value(h uint16) float32 {
	sign := float32(1)
	if h&0x8000 != 0 {
		sign = -1
	}
	m, e := float64(h&0x3ff), int(h>>10&0x1f)
	switch e {
	case 0:
		return sign * float32(m*0x1p-24)
	case 31:
		if m != 0 {
			return float32(math.NaN())
		}
		return sign * float32(math.Inf(1))
	}
	return sign * float32(math.Ldexp(1+m/1024, e-15))
}

// closeTo fails where the largest difference is more than tol times the largest magnitude wanted, or a number is not
// finite.
func closeTo[F float32 | float64](t *testing.T, name string, got []float32, want []F, tol float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d numbers, want %d", name, len(got), len(want))
	}
	var worst, largest float64
	at := 0
	for i, g := range got {
		w := float64(want[i])
		d := math.Abs(float64(g) - w)
		if d != d || math.IsInf(d, 0) {
			t.Fatalf("%s: number %d is %v, want %v", name, i, g, w)
		}
		if d > worst {
			worst, at = d, i
		}
		largest = max(largest, math.Abs(w))
	}
	if worst > tol*largest {
		t.Fatalf("%s: number %d is %v, want %v; the difference %.3g is more than %.3g of the largest, %.3g", name, at, got[at], want[at], worst, tol, largest)
	}
}

// TestConversions checks the conversions that the tests themselves rely on.
func TestConversions(t *testing.T) {
	for h := range 1 << 16 {
		v := f16value(uint16(h))
		if v == v && f16bits(v) != uint16(h) {
			t.Fatalf("float16 %#04x is %v, which is %#04x", h, v, f16bits(v))
		}
	}
	for x, want := range map[float32]uint16{1: 0x3c00, -2: 0xc000, 65504: 0x7bff, 65520: 0x7c00, 1 + 0x1p-11: 0x3c00, 1 + 3*0x1p-11: 0x3c02, 2047.9: 0x6800, 0x1p-25: 0} {
		if got := f16bits(x); got != want {
			t.Errorf("%v as float16 is %#04x, want %#04x", x, got, want)
		}
	}
	for x, want := range map[float32]float32{1: 1, 1 + 0x1p-8: 1, 1 + 3*0x1p-8: 1 + 0x1p-6, -3.14159: -3.140625} {
		if got := bf16(x); got != want {
			t.Errorf("%v as bfloat16 is %v, want %v", x, got, want)
		}
	}
}

package cuda_test

import (
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"testing"

	"gpt2scope/cuda"
)

// Tests of kernels need a GPU and the library. Without they are skipped, or fail
// where GPT2SCOPE_REQUIRE_GPU is 1.

// gpu is a device to test on.
type gpu struct {
	t      testing.TB
	lib    *cuda.Library
	dev    *cuda.Device
	stream *cuda.Stream
}

// open opens the first device, until the test ends.
func open(t testing.TB) *gpu {
	t.Helper()
	lib, err := cuda.Open()
	if err == nil {
		t.Cleanup(lib.Close)
	}
	var dev *cuda.Device
	if err == nil {
		dev, err = lib.Device(0)
	}
	if err != nil {
		var missing *cuda.UnavailableError
		if os.Getenv("GPT2SCOPE_REQUIRE_GPU") != "1" && errors.As(err, &missing) {
			t.Skip(err)
		}
		t.Fatal(err)
	}
	s, err := dev.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(s.Synchronize(), s.Close()); err != nil {
			t.Error(err)
		}
	})
	return &gpu{t, lib, dev, s}
}

func (g *gpu) random(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 1)) }

// guardBytes stand before and after an array.
const guardBytes = 512

// guardValue is what they hold.
const guardValue = 0xA5

// guarded is an array on the device between guard bytes.
type guarded struct {
	g     *gpu
	b     *cuda.Buffer
	dtype cuda.DType
	n     int
}

// array allocates an array with given bytes.
func (g *gpu) array(data []byte, dtype cuda.DType, n int) *guarded {
	g.t.Helper()
	b, err := g.dev.Alloc(int64(len(data)) + 2*guardBytes)
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { b.Free() })
	all := make([]byte, b.Size())
	for i := range all {
		all[i] = guardValue
	}
	copy(all[guardBytes:], data)
	if err := b.Write(0, all); err != nil {
		g.t.Fatal(err)
	}
	return &guarded{g, b, dtype, n}
}

// floats makes an array of n values; without fill they are NaN, so that what a
// kernel does not write shows.
func (g *gpu) floats(n int, dtype cuda.DType, fill func(i int) float32) *guarded {
	g.t.Helper()
	size := dtype.Size()
	data := make([]byte, n*size)
	for i := range data {
		data[i] = 0xFF
	}
	for i := 0; fill != nil && i < n; i++ {
		switch v := fill(i); dtype {
		case cuda.F32:
			binary.LittleEndian.PutUint32(data[4*i:], math.Float32bits(v))
		case cuda.BF16:
			binary.LittleEndian.PutUint16(data[2*i:], bf16Bits(v))
		case cuda.F16:
			binary.LittleEndian.PutUint16(data[2*i:], f16Bits(v))
		}
	}
	return g.array(data, dtype, n)
}

// ints makes an array of int32.
func (g *gpu) ints(v []int32) *guarded {
	g.t.Helper()
	data := make([]byte, 4*len(v))
	for i, x := range v {
		binary.LittleEndian.PutUint32(data[4*i:], uint32(x))
	}
	return g.array(data, cuda.F32, len(v))
}

func (a *guarded) ptr() cuda.Ptr { return a.b.Ptr() + guardBytes }

// bytes waits for the stream, checks the guards and returns what lies between.
func (a *guarded) bytes() []byte {
	a.g.t.Helper()
	if err := a.g.stream.Synchronize(); err != nil {
		a.g.t.Fatal(err)
	}
	all := make([]byte, a.b.Size())
	if err := a.b.Read(0, all); err != nil {
		a.g.t.Fatal(err)
	}
	for i := range guardBytes {
		if all[i] != guardValue || all[len(all)-1-i] != guardValue {
			a.g.t.Fatalf("a kernel wrote outside an array of %d values", a.n)
		}
	}
	return all[guardBytes : len(all)-guardBytes]
}

// get returns the values as float32.
func (a *guarded) get() []float32 {
	a.g.t.Helper()
	data := a.bytes()
	out := make([]float32, a.n)
	for i := range out {
		switch a.dtype {
		case cuda.F32:
			out[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
		case cuda.BF16:
			out[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(data[2*i:])) << 16)
		case cuda.F16:
			out[i] = f16Value(binary.LittleEndian.Uint16(data[2*i:]))
		}
	}
	return out
}

// bf16Bits rounds to bfloat16, to nearest even.
func bf16Bits(x float32) uint16 {
	u := math.Float32bits(x)
	if x != x {
		return uint16(u>>16) | 0x40
	}
	return uint16((u + 0x7fff + u>>16&1) >> 16)
}

func bf16(x float32) float32 { return math.Float32frombits(uint32(bf16Bits(x)) << 16) }

// f16Value widens an IEEE half.
func f16Value(h uint16) float32 {
	sign, e, m := 1.0, int(h>>10&31), float64(h&1023)
	if h&0x8000 != 0 {
		sign = -1
	}
	switch e {
	case 0:
		return float32(sign * m * 0x1p-24)
	case 31:
		if m != 0 {
			return float32(math.NaN())
		}
		return float32(sign * math.Inf(1))
	}
	return float32(sign * math.Ldexp(1+m/1024, e-15))
}

// f16Bits rounds to an IEEE half, to nearest even.
func f16Bits(x float32) uint16 {
	sign := uint16(math.Float32bits(x) >> 16 & 0x8000)
	a := math.Abs(float64(x))
	switch {
	case x != x:
		return sign | 0x7e00
	case a >= 65520:
		return sign | 0x7c00
	case a < 0x1p-14:
		return sign | uint16(math.RoundToEven(a*0x1p24))
	}
	_, e := math.Frexp(a)
	m := uint16(math.RoundToEven(math.Ldexp(a, 11-e))) // 1024 to 2048
	return sign | uint16(e+14-1)<<10 + m
}

// closeTo fails where values differ by more than tol times the largest.
func closeTo[W float32 | float64](t testing.TB, name string, got []float32, want []W, tol float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d values, want %d", name, len(got), len(want))
	}
	worst, largest, at := 0.0, 0.0, 0
	for i := range got {
		d := math.Abs(float64(got[i]) - float64(want[i]))
		if math.IsNaN(d) {
			t.Errorf("%s: value %d is %g, want %g", name, i, got[i], want[i])
			return
		}
		if d > worst {
			worst, at = d, i
		}
		largest = math.Max(largest, math.Abs(float64(want[i])))
	}
	if worst > tol*largest {
		t.Errorf("%s: value %d is %g, want %g: off by %.2g of the largest, allowed is %.2g", name, at, got[at], want[at], worst/largest, tol)
	}
}

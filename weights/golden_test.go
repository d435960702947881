package weights

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"gpt2scope/internal/require"
)

// golden is what PyTorch and NumPy make of the files in testdata/golden; see testdata/make_golden.py.
type golden struct {
	Files map[string]map[string]struct {
		DType   string
		Shape   []int
		Float32 bits32
	}
	Rounding struct {
		Float32  bits32
		BFloat16 bits16
	}
	Float16SHA256 string `json:"float16_sha256"`
}

// bits32 and bits16 are lists of numbers as hexadecimal text.
type (
	bits32 []uint32
	bits16 []uint16
)

func (b *bits32) UnmarshalText(text []byte) error { return parseHex((*[]uint32)(b), text, 32) }
func (b *bits16) UnmarshalText(text []byte) error { return parseHex((*[]uint16)(b), text, 16) }

func parseHex[T uint16 | uint32](list *[]T, text []byte, bits int) error {
	for digits := bits / 4; len(text) > 0; text = text[digits:] {
		n, err := strconv.ParseUint(string(text[:digits]), 16, bits)
		if err != nil {
			return err
		}
		*list = append(*list, T(n))
	}
	return nil
}

func readGolden(t *testing.T) golden {
	t.Helper()
	var g golden
	must(t, json.Unmarshal([]byte(text(t, "testdata/golden/golden.json")), &g))
	if len(g.Files) != 3 || len(g.Rounding.Float32) < 1000 {
		t.Fatal("golden.json is incomplete")
	}
	return g
}

// same32 reports whether two numbers are equal bit for bit, or both NaN: the bits of a NaN are free.
func same32(got float32, want uint32) bool {
	w := math.Float32frombits(want)
	return math.Float32bits(got) == want || got != got && w != w
}

func same16(got, want, inf uint16) bool {
	return got == want || got&0x7fff > inf && want&0x7fff > inf
}

const bfloat16Inf = 0x7f80

// opened opens a file until the test ends.
func opened(t testing.TB, open func(path string) (*Checkpoint, error), path string) *Checkpoint {
	t.Helper()
	c := require.Value(open(path))(t)
	t.Cleanup(func() { c.Close() })
	return c
}

// openers opens a file in every way there is.
var openers = map[string]func(path string) (*Checkpoint, error){
	"OpenFile": OpenFile,
	"OpenFS": func(path string) (*Checkpoint, error) {
		s, err := openFS(os.DirFS(filepath.Dir(path)), filepath.Base(path), path)
		if err != nil {
			return nil, err
		}
		return fromFiles(s)
	},
}

// TestGolden reads the files that the safetensors library wrote, and compares with what PyTorch read.
func TestGolden(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for file, tensors := range readGolden(t).Files {
		for how, open := range openers {
			t.Run(file+"/"+how, func(t *testing.T) {
				c := opened(t, open, filepath.Join("testdata/golden", file))
				if got, want := c.Names(), slices.Sorted(maps.Keys(tensors)); !slices.Equal(got, want) {
					t.Fatalf("names %q, want %q", got, want)
				}
				for name, want := range tensors {
					got, _ := c.Tensor(name)
					if got.Name != name || got.DType.String() != want.DType || !slices.Equal(got.Shape, want.Shape) {
						t.Fatalf("%q: got %q %v %v, want %v %v", name, got.Name, got.DType, got.Shape, want.DType, want.Shape)
					}
					n := len(want.Float32)
					if got.Elements() != n || got.Bytes() != int64(n*got.DType.Bits()/8) {
						t.Fatalf("%q: %d elements, %d bytes; want %d elements", name, got.Elements(), got.Bytes(), n)
					}
					checkReads(t, rng, got, want.Float32)
				}
			})
		}
	}
}

// checkReads reads the whole tensor and random parts of it.
func checkReads(t *testing.T, rng *rand.Rand, tensor Tensor, want []uint32) {
	t.Helper()
	n := len(want)
	for try := range 20 {
		lo, hi := 0, n
		if try > 0 {
			lo = rng.IntN(n + 1)
			hi = lo + rng.IntN(n-lo+1)
		}
		got := make([]float32, hi-lo)
		for i := range got {
			got[i] = -123.5 // poison
		}
		must(t, tensor.ReadFloat32(got, lo))
		for i := range got {
			if !same32(got[i], want[lo+i]) {
				t.Fatalf("%q: element %d = %#x, want %#x", tensor.Name, lo+i, math.Float32bits(got[i]), want[lo+i])
			}
		}
	}
}

// TestRounding compares every narrowing conversion with PyTorch's and NumPy's.
func TestRounding(t *testing.T) {
	g := readGolden(t).Rounding
	for i, u := range g.Float32 {
		x := math.Float32frombits(u)
		if got := Float32ToBFloat16(x); !same16(got, g.BFloat16[i], bfloat16Inf) {
			t.Errorf("%#x to bfloat16: %#x, want %#x", u, got, g.BFloat16[i])
		}
	}
}

// TestHalf widens every float16 number, and compares with the definition of the format and with NumPy by a digest.
func TestHalf(t *testing.T) {
	src, dst := make([]byte, 2<<16), make([]float32, 1<<16)
	for h := range dst {
		src[2*h], src[2*h+1] = byte(h), byte(h>>8)
	}
	float32FromF16(dst, src)
	sum := sha256.New()
	for h, x := range dst {
		exponent, fraction := h>>10&0x1f, float64(h&0x3ff)
		want := math.Ldexp(1+fraction/1024, exponent-15)
		switch {
		case exponent == 0:
			want = math.Ldexp(fraction/1024, -14)
		case exponent == 31 && fraction == 0:
			want = math.Inf(1)
		case exponent == 31:
			want = math.NaN()
		}
		if h >= 0x8000 {
			want = -want
		}
		if !same32(x, math.Float32bits(float32(want))) {
			t.Fatalf("%#x: %g, want %g", h, x, want)
		}
		u := math.Float32bits(x)
		if x != x {
			u = 0x7fc00000
		}
		sum.Write([]byte{byte(u), byte(u >> 8), byte(u >> 16), byte(u >> 24)})
	}
	if got, want := hex.EncodeToString(sum.Sum(nil)), readGolden(t).Float16SHA256; got != want {
		t.Errorf("digest %s, want NumPy's %s", got, want)
	}
}

// TestMixed opens a file that holds types which cannot be read as floats.
func TestMixed(t *testing.T) {
	c := opened(t, OpenFile, "testdata/golden/mixed.safetensors")
	for name, want := range map[string]DType{"wte": F32, "h.0.attn.bias": "BOOL", "ids": "I64", "f64": "F64",
		"f8": "F8_E4M3"} {
		tensor, ok := c.Tensor(name)
		if !ok || tensor.DType != want {
			t.Fatalf("%s: %v %v, want %v", name, ok, tensor.DType, want)
		}
		err := tensor.ReadFloat32(make([]float32, 1), 0)
		if want.IsFloat() {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		checkError(t, err, "mixed.safetensors", strconv.Quote(name), want.String(), "only F32, F16, BF16 and F64", "convert")
	}
	ids, _ := c.Tensor("ids")
	got := make([]byte, 24)
	must(t, ids.ReadBytes(got, 0))
	if want := "000000000000000001000000000000000200000000000000"; hex.EncodeToString(got) != want {
		t.Errorf("ids: %x, want %s", got, want)
	}
	if err := ids.ReadBytes(got[:8], 8); err != nil || got[0] != 1 {
		t.Errorf("ids from byte 8: %x, %v", got[:8], err)
	}
}

// TestSharded opens shards through their index.
func TestSharded(t *testing.T) {
	const dir = "testdata/golden/sharded"
	for how, open := range map[string]func() (*Checkpoint, error){
		"Open":   func() (*Checkpoint, error) { return Open(dir) },
		"OpenFS": func() (*Checkpoint, error) { return OpenFS(os.DirFS(dir)) },
	} {
		c, err := open()
		if err != nil {
			t.Fatal(how, err)
		}
		if got, want := fmt.Sprint(c.Names()), "[ln_f.bias ln_f.weight wte.weight]"; got != want {
			t.Errorf("%s: names %s, want %s", how, got, want)
		}
		for name, want := range map[string][]float32{
			"wte.weight": {1, 1, 1, 1, 1, 1}, "ln_f.weight": {0, 1, 2, 3}, "ln_f.bias": {0, 0, 0, 0},
		} {
			tensor, _ := c.Tensor(name)
			got := []float32{-1, -1, -1, -1, -1, -1}[:tensor.Elements()]
			if err := tensor.ReadFloat32(got, 0); err != nil || !slices.Equal(got, want) {
				t.Errorf("%s: %s: %v, %v; want %v", how, name, got, err, want)
			}
		}
		if err := c.Close(); err != nil {
			t.Error(how, err)
		}
	}
}

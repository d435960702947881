package weights

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io/fs"
	"math"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"gpt2scope/internal/ggufwrite"
	"gpt2scope/internal/require"
)

// numbers returns n normal numbers.
func numbers(n int) []float32 {
	r := rand.New(rand.NewPCG(1, uint64(n)))
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	return x
}

// ggufSample is a file with a value of each kind and a matrix (40, 64) of each type.
func ggufSample(alignment int) (*ggufwrite.File, map[string][]float32) {
	f := &ggufwrite.File{Alignment: alignment}
	f.Value("general.architecture", "gpt2")
	f.Value("a.uint32", uint32(7))
	f.Value("a.int32", int32(-7))
	f.Value("a.float32", float32(1e-5))
	f.Value("a.bool", true)
	f.Value("a.strings", []string{"x", "", "Ġy"})
	f.Value("a.ints", []int32{3, -1})
	f.Value("a.floats", []float32{1, 2})
	x := numbers(40 * 64)
	want := map[string][]float32{}
	for name, kind := range map[string]uint32{"f32": ggufwrite.F32, "f16": ggufwrite.F16, "bf16": ggufwrite.BF16,
		"q8": ggufwrite.Q8_0} {
		data := encoded(kind, x)
		f.Tensor(name, kind, []int{40, 64}, data)
		want[name] = decoded(kind, data)
	}
	f.Tensor("bias", ggufwrite.F32, []int{40}, encoded(ggufwrite.F32, x[:40]))
	want["bias"] = x[:40]
	return f, want
}

// TestGGUFScalars: a value of each type is what was written, with its sign.
func TestGGUFScalars(t *testing.T) {
	for v, want := range map[any]any{
		uint8(200): uint64(200), int8(-5): int64(-5), uint16(60000): uint64(60000), int16(-300): int64(-300), uint32(1 << 31): uint64(1 << 31), int32(-7): int64(-7),
		uint64(1 << 63): uint64(1 << 63), int64(-1 << 40): int64(-1 << 40), float32(1.5): float32(1.5), 2.25: 2.25, true: true, false: false,
	} {
		f := &ggufwrite.File{}
		f.Value("key", v)
		g := require.Value(ggufOf(f.Bytes()))(t)
		if got := g.Values["key"]; got != want {
			t.Errorf("%T %v is read as %T %v", v, v, got, got)
		}
	}
}

// ggufOf opens the bytes of a GGUF file.
func ggufOf(data []byte) (*GGUF, error) {
	s, err := inMemory("file", data)
	if err != nil {
		return nil, err
	}
	return readGGUF(s)
}

// encoded is numbers as a file has them. Those of F16 and Q8_0 are not these, but any.
func encoded(kind uint32, x []float32) (b []byte) {
	random := rand.New(rand.NewPCG(2, uint64(len(x))))
	for i, v := range x {
		switch bits := math.Float32bits(v); {
		case kind == ggufwrite.F32:
			b = binary.LittleEndian.AppendUint32(b, bits)
		case kind == ggufwrite.BF16:
			b = binary.LittleEndian.AppendUint16(b, uint16(bits>>16))
		case kind == ggufwrite.F16:
			b = binary.LittleEndian.AppendUint16(b, uint16(random.Uint32()&^0x4000)) // below 2: neither infinite nor NaN
		case i%32 == 0:
			b = binary.LittleEndian.AppendUint16(b, uint16(0x2000|random.Uint32()&0x93ff)) // a normal scale
			fallthrough
		default:
			b = append(b, byte(random.Uint32()))
		}
	}
	return b
}

// decoded widens what a file stores by the formulas of the types.
func decoded(kind uint32, b []byte) []float32 {
	var x []float32
	scale := func(h uint16) float64 { // of a normal float16, or zero
		if h == 0 {
			return 0
		}
		return math.Copysign(1, -float64(h>>15)+0.5) * (1 + float64(h&0x3ff)/1024) * math.Exp2(float64(h>>10&31)-15)
	}
	switch kind {
	case ggufwrite.F32:
		for ; len(b) > 0; b = b[4:] {
			x = append(x, math.Float32frombits(binary.LittleEndian.Uint32(b)))
		}
	case ggufwrite.F16:
		for ; len(b) > 0; b = b[2:] {
			h := binary.LittleEndian.Uint16(b)
			if h&0x7c00 == 0 { // subnormal
				x = append(x, float32(math.Copysign(float64(h&0x3ff)*0x1p-24, -float64(h>>15)+0.5)))
				continue
			}
			x = append(x, float32(scale(h)))
		}
	case ggufwrite.BF16:
		for ; len(b) > 0; b = b[2:] {
			x = append(x, math.Float32frombits(uint32(binary.LittleEndian.Uint16(b))<<16))
		}
	case ggufwrite.Q8_0:
		for ; len(b) > 0; b = b[34:] {
			for _, q := range b[2:34] {
				x = append(x, float32(scale(binary.LittleEndian.Uint16(b))*float64(int8(q))))
			}
		}
	}
	return x
}

// Every type is read as its format says: whole, in ranges, and transposed, from memory and from a file.
func TestGGUF(t *testing.T) {
	for _, alignment := range []int{0, 8, 4096} {
		file, want := ggufSample(alignment)
		path := filepath.Join(t.TempDir(), "model.gguf")
		put(t, path, file.Bytes())
		if !IsGGUF(path) {
			t.Error("IsGGUF says that the file is none")
		}
		g := require.Value(OpenGGUF(path))(t)
		values := map[string]any{"general.architecture": "gpt2", "a.uint32": uint64(7), "a.int32": int64(-7),
			"a.float32": float32(1e-5),
			"a.bool":    true, "a.strings": []string{"x", "", "Ġy"}, "a.ints": []int64{3, -1}, "a.floats": nil}
		if alignment != 0 {
			values["general.alignment"] = uint64(alignment)
		}
		if !reflect.DeepEqual(g.Values, values) {
			t.Errorf("values %v, expected %v", g.Values, values)
		}
		if g.Type("q8") != "Q8_0" || g.Type("none") != "" {
			t.Errorf("types %q and %q", g.Type("q8"), g.Type("none"))
		}
		for name, want := range want {
			x, ok := g.Tensor(name)
			if !ok {
				t.Fatalf("no tensor %s", name)
			}
			checkElements(t, x, want)
			if name == "bias" {
				if _, err := x.Transposed(); err == nil {
					t.Error("a vector was transposed")
				}
				continue
			}
			turned := make([]float32, len(want))
			for i, v := range want {
				turned[i%64*40+i/64] = v
			}
			y, err := x.Transposed()
			if err != nil || !slices.Equal(y.Shape, []int{64, 40}) {
				t.Fatalf("%s: transposed to shape %v: %v", name, y.Shape, err)
			}
			checkElements(t, y, turned)
		}
		q8, _ := g.Tensor("q8")
		g.Close()
		if err := q8.ReadFloat32(make([]float32, 1), 0); !errors.Is(err, fs.ErrClosed) {
			t.Errorf("reading after Close: %v", err)
		}
	}
}

// TestGGUFBlocks: packed types are widened bit by bit as the gguf package widens them (gpt2/testdata/make_gguf.py).
func TestGGUFBlocks(t *testing.T) {
	g := require.Value(OpenGGUF("testdata/blocks.gguf"))(t)
	defer g.Close()
	n := 0
	for x := range g.All() {
		expected, ok := g.Tensor(x.Name + ".expected")
		if !ok {
			continue
		}
		n++
		got, want := make([]float32, x.Elements()), make([]float32, x.Elements())
		must(t, errors.Join(x.ReadFloat32(got, 0), expected.ReadFloat32(want, 0)))
		for i := range want {
			if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
				t.Fatalf("%s: element %d is %g, expected %g", x.Name, i, got[i], want[i])
			}
		}
		checkElements(t, x, want)
	}
	if n != 9 {
		t.Errorf("%d types, expected 9", n)
	}
}

// checkElements compares a tensor with its elements, whole and in many ranges, as floats and as bytes.
func checkElements(t *testing.T, x Tensor, want []float32) {
	t.Helper()
	r := rand.New(rand.NewPCG(2, 3))
	for i := range 60 {
		from, to := r.IntN(len(want)), 0
		to = from + r.IntN(len(want)-from+1)
		if i == 0 {
			from, to = 0, len(want)
		}
		got := make([]float32, to-from)
		if err := x.ReadFloat32(got, from); err != nil || !slices.Equal(got, want[from:to]) {
			t.Fatalf("%s[%d:%d] differs (%v)", x.Name, from, to, err)
		}
		b := make([]byte, 4*len(got))
		if err := x.ReadBytes(b, int64(4*from)); x.DType == F32 && (err != nil || !bytes.Equal(b, float32Bytes(got))) {
			t.Fatalf("bytes of %s[%d:%d] differ (%v)", x.Name, from, to, err)
		}
	}
}

// A file that is damaged or that cannot be read is refused in one sentence that names what was found.
func TestGGUFErrors(t *testing.T) {
	valid, _ := ggufSample(0)
	whole := valid.Bytes()
	patched := func(at int, b ...byte) []byte {
		c := slices.Clone(whole)
		copy(c[at:], b)
		return c
	}
	made := func(make func(f *ggufwrite.File)) []byte {
		f := &ggufwrite.File{}
		make(f)
		return f.Bytes()
	}
	key := 24 // of the first key's length
	for name, c := range map[string]struct {
		file []byte
		want []string
	}{
		"empty":          {nil, []string{"0 are left"}},
		"another format": {append([]byte("PK\x03\x04"), whole...), []string{"zip archive"}},
		"safetensors":    {append(make([]byte, 8), `{"a":`...), []string{"safetensors", SingleFile}},
		"nothing known":  {[]byte("abcdefghij"), []string{"not a GGUF file"}},
		"version 1":      {patched(4, 1, 0, 0, 0), []string{"version 1", "versions 2 and 3"}},
		"version 4":      {patched(4, 4, 0, 0, 0), []string{"version 4"}},
		"big-endian":     {patched(4, 0, 0, 0, 3), []string{"big-endian"}},
		"tensors":        {patched(8, 255, 255, 255, 255, 255, 255, 255, 255), []string{"number of tensors is 18446744073709551615"}},
		"values":         {patched(16, 0, 0, 0, 0, 1), []string{"number of metadata values is 4294967296"}},
		"key":            {patched(key, 0, 0, 1), []string{"a metadata key has 65536 bytes"}},
		"kind":           {patched(key+8+20, 99), []string{`"general.architecture"`, "unknown type 99"}},
		"length":         {patched(key+8+20+4, 255, 255, 255, 255, 255, 255, 255, 127), []string{"at most 100000000"}},
		"duplicate key": {made(func(f *ggufwrite.File) { f.Value("a", uint32(1)); f.Value("a", uint32(2)) }),
			[]string{`"a" occurs twice`}},
		"alignment": {made(func(f *ggufwrite.File) { f.Value("general.alignment", uint32(24)) }), []string{"general.alignment is 24", "power of two"}},
		"split":     {made(func(f *ggufwrite.File) { f.Value("split.count", uint32(3)) }), []string{"split into 3 files", "llama-gguf-split"}},
		"quantised": {made(func(f *ggufwrite.File) { f.Info("w", 10, []int{1, 256}, 0) }), []string{`"w"`, "Q2_K", "Q5_1, Q8_0, Q4_K", "llama-quantize"}},
		"withdrawn": {made(func(f *ggufwrite.File) { f.Info("w", 4, []int{1, 32}, 0) }), []string{"unknown (number 4)"}},
		"far":       {made(func(f *ggufwrite.File) { f.Info("w", 1<<31, []int{1, 32}, 0) }), []string{"unknown (number 2147483648)"}},
		"block":     {made(func(f *ggufwrite.File) { f.Info("w", ggufwrite.Q8_0, []int{32, 33}, 0) }), []string{"rows of 33", "packs 32"}},
		"scalar":    {made(func(f *ggufwrite.File) { f.Info("w", ggufwrite.Q8_0, nil, 0) }), []string{"rows of 1 elements"}},
		"offset":    {made(func(f *ggufwrite.File) { f.Info("w", ggufwrite.F32, []int{1}, 4) }), []string{"offset 4", "multiple of the alignment"}},
		"truncated": {whole[:len(whole)-40], []string{"reach beyond the end of the file", "truncated"}},
		"far away":  {made(func(f *ggufwrite.File) { f.Info("w", ggufwrite.F32, []int{1}, 1<<63) }), []string{"reach beyond"}},
		"large":     {made(func(f *ggufwrite.File) { f.Info("w", ggufwrite.F32, []int{1 << 40, 1 << 40}, 0) }), []string{"too many elements"}},
		"dims":      {made(func(f *ggufwrite.File) { f.Info("w", ggufwrite.F32, []int{1, 1, 1, 1, 1}, 0) }), []string{"5 dimensions"}},
		"name":      {made(func(f *ggufwrite.File) { f.Info(strings.Repeat("w", 65), ggufwrite.F32, []int{1}, 0) }), []string{"65 bytes", "at most 64"}},
		"overlap": {made(func(f *ggufwrite.File) {
			f.Tensor("a", ggufwrite.F32, []int{64}, encoded(ggufwrite.F32, numbers(64)))
			f.Info("b", ggufwrite.F32, []int{2}, 32)
		}), []string{`"b"`, "overlap", `"a"`}},
		"twice": {made(func(f *ggufwrite.File) {
			f.Tensor("a", ggufwrite.F32, []int{1}, encoded(ggufwrite.F32, numbers(1)))
			f.Tensor("a", ggufwrite.F32, []int{1}, encoded(ggufwrite.F32, numbers(1)))
		}), []string{`"a"`}},
	} {
		g, err := ggufOf(c.file)
		if err == nil {
			g.Close()
			t.Errorf("%s: no error", name)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: error %q, want one that says %q", name, err, want)
			}
		}
	}
	// Wherever a file ends, an error says so.
	for n := range len(whole) - 1 {
		if _, err := ggufOf(whole[:n]); err == nil {
			t.Fatalf("%d of %d bytes are no error", n, len(whole))
		}
	}
}

// FuzzGGUF: no file makes the reader panic or take more memory than the file's size justifies; what it
// accepts can be read.
func FuzzGGUF(f *testing.F) {
	file, _ := ggufSample(0)
	f.Add(file.Bytes())
	nested := ggufwrite.File{}
	nested.Value("a", []string{strings.Repeat("b", 300)})
	nested.Value("general.alignment", uint32(8))
	nested.Tensor("w", ggufwrite.Q8_0, []int{2, 32}, encoded(ggufwrite.Q8_0, numbers(64)))
	f.Add(nested.Bytes())
	f.Fuzz(func(t *testing.T, data []byte) {
		g, err := ggufOf(data)
		if (g == nil) == (err == nil) {
			t.Fatalf("%v, %v", g, err)
		}
		if err != nil {
			var e *Error
			if !errors.As(err, &e) || e.Problem == "" || strings.ContainsAny(err.Error(), "\r\n") || len(err.Error()) > 2000 {
				t.Errorf("not a good error: %q", err)
			}
			return
		}
		for x := range g.All() {
			if x.Bytes() > 8*int64(len(data)) {
				t.Fatalf("tensor %q of %d bytes in a file of %d", x.Name, x.Bytes(), len(data))
			}
			if err := x.ReadFloat32(make([]float32, x.Elements()), 0); err != nil {
				t.Error(err)
			}
			if len(x.Shape) == 2 {
				y := require.Value(x.Transposed())(t)
				if err := y.ReadFloat32(make([]float32, y.Elements()), 0); err != nil {
					t.Error(err)
				}
			}
		}
	})
}

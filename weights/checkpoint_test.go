package weights

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
)

// TestMisaligned reads tensors that begin at every alignment, in pieces that end everywhere.
func TestMisaligned(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for pad := range 9 {
		for _, dtype := range []DType{F32, F16, BF16} {
			const n = 100
			size := dtype.Bits() / 8
			header := fmt.Sprintf(`{"pad":{"dtype":"U8","shape":[%d],"data_offsets":[0,%d]},"x":{"dtype":%q,"shape":[%d],"data_offsets":[%d,%d]}}`,
				pad, pad, dtype.String(), n, pad, pad+n*size)
			data := make([]byte, pad+n*size)
			var want32 []uint32
			for i := range n {
				b := data[pad+i*size:]
				x := float32(rng.NormFloat64())
				switch dtype {
				case F32:
					copy(b, float32Bytes([]float32{x}))
				case F16:
					h := uint16(rng.Uint32()) &^ 0x4000 // finite
					b[0], b[1] = byte(h), byte(h>>8)
					x = float32FromHalf(h)
				case BF16:
					bf16FromFloat32(b, []float32{x})
					x = BFloat16ToFloat32(Float32ToBFloat16(x))
				}
				want32 = append(want32, math.Float32bits(x))
			}
			path := filepath.Join(t.TempDir(), "x")
			put(t, path, safetensorsFile(header, data))
			for _, open := range openers {
				c := opened(t, open, path)
				x, _ := c.Tensor("x")
				checkReads(t, rng, x, want32)
				c.Close()
			}
		}
	}
}

// TestLarge reads a tensor of several pieces, as every source reads it.
func TestLarge(t *testing.T) {
	const n = 300_001 // more than 1 MiB
	rng := rand.New(rand.NewPCG(5, 6))
	data := make([]byte, 4*n)
	want := make([]uint32, n)
	for i := range want {
		x := float32(rng.NormFloat64())
		want[i] = math.Float32bits(x)
		copy(data[4*i:], float32Bytes([]float32{x}))
	}
	path := filepath.Join(t.TempDir(), "x")
	header := fmt.Sprintf(`{"x":{"dtype":"F32","shape":[%d],"data_offsets":[0,%d]}}`, n, 4*n)
	put(t, path, safetensorsFile(header, data))
	for how, open := range openers {
		c := opened(t, open, path)
		x, _ := c.Tensor("x")
		checkReads(t, rng, x, want)
		got := make([]byte, 4*n)
		if err := x.ReadBytes(got, 0); err != nil || !bytes.Equal(got, data) {
			t.Errorf("%s: wrong bytes, %v", how, err)
		}
		c.Close()
	}
}

func TestReadRange(t *testing.T) {
	generated := computed(t, "x", []int{7}, func(dst []float32, off int) error { return nil })
	stored, err := fromBytes("some", safetensorsFile(`{"x":{"dtype":"BF16","shape":[7],"data_offsets":[0,14]}}`,
		make([]byte, 14)))
	must(t, err)
	inFile, _ := stored.Tensor("x")
	for _, x := range []Tensor{generated, inFile} {
		for _, r := range []struct{ off, n int }{{0, 8}, {7, 1}, {-1, 1}, {8, 0}, {math.MaxInt, 1}, {math.MinInt, 1},
			{1, 7}} {
			checkError(t, x.ReadFloat32(make([]float32, r.n), r.off), `tensor "x"`,
				fmt.Sprintf("cannot read %d from offset %d of 7", r.n, r.off))
		}
		checkError(t, x.ReadBytes(make([]byte, 1), x.Bytes()), `tensor "x"`, "cannot read 1")
		if err := x.ReadFloat32(nil, 7); err != nil {
			t.Error(err)
		}
	}
}

// TestClose: after Close, reading is an error, however the file was opened; closing again is not.
func TestClose(t *testing.T) {
	const path = "testdata/golden/f32.safetensors"
	for how, open := range openers {
		c, err := open(path)
		if err != nil {
			t.Fatal(how, err)
		}
		x, ok := c.Tensor("matrix")
		if !ok {
			t.Fatal(how, "no matrix")
		}
		if err := x.ReadFloat32(make([]float32, 15), 0); err != nil {
			t.Fatal(how, err)
		}
		for range 3 {
			if err := c.Close(); err != nil {
				t.Error(how, err)
			}
		}
		again, _ := c.Tensor("matrix")
		for _, err := range []error{
			x.ReadFloat32(make([]float32, 1), 0), again.ReadFloat32(make([]float32, 1), 0), x.ReadBytes(make([]byte, 1), 0),
		} {
			checkError(t, err, "matrix", "closed")
			if !errors.Is(err, fs.ErrClosed) {
				t.Errorf("%s: %v is not fs.ErrClosed", how, err)
			}
		}
		if len(c.Names()) == 0 {
			t.Errorf("%s: names are gone", how)
		}
	}
}

// TestCloseWhileReading closes under readers: each read works or fails, none crashes.
func TestCloseWhileReading(t *testing.T) {
	n := 1 << 20
	path := filepath.Join(t.TempDir(), "x")
	header := fmt.Sprintf(`{"x":{"dtype":"F32","shape":[%d],"data_offsets":[0,%d]}}`, n, 4*n)
	data := bytes.Repeat([]byte{0, 0, 0x80, 0x3f}, n)
	put(t, path, safetensorsFile(header, data))
	for range 5 {
		c := opened(t, OpenFile, path)
		x, _ := c.Tensor("x")
		var wg sync.WaitGroup
		started := make(chan bool, 3)
		for range cap(started) {
			wg.Go(func() {
				dst := make([]float32, n)
				for {
					clear(dst)
					err := x.ReadFloat32(dst, 0)
					if err == nil && (dst[0] != 1 || dst[n-1] != 1) {
						t.Error("a read that succeeded read something else")
					}
					select {
					case started <- true:
					default:
					}
					if err != nil {
						if !errors.Is(err, fs.ErrClosed) {
							t.Error(err)
						}
						return
					}
				}
			})
		}
		<-started
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		wg.Wait()
	}
}

func TestGenerated(t *testing.T) {
	count := func(dst []float32, off int) error {
		for i := range dst {
			dst[i] = float32(off + i)
		}
		return nil
	}
	shape := []int{100, 200}
	x := computed(t, "x", shape, count)
	shape[0] = 7 // the tensor has its own
	y := tensorOf(t, "y", nil, []float32{math.Pi})
	boom := errors.New("boom")
	z := computed(t, "z", []int{3}, func([]float32, int) error { return boom })
	c, err := Generated(z, x, y)
	must(t, err)
	if got := c.Names(); !slices.Equal(got, []string{"x", "y", "z"}) {
		t.Errorf("names %q", got)
	}
	x, _ = c.Tensor("x")
	if !slices.Equal(x.Shape, []int{100, 200}) || x.DType != F32 || x.Elements() != 20000 || x.Bytes() != 80000 {
		t.Errorf("x: %v %v", x.DType, x.Shape)
	}
	want32 := make([]uint32, 20000)
	for i := range want32 {
		want32[i] = math.Float32bits(float32(i))
	}
	checkReads(t, rand.New(rand.NewPCG(7, 8)), x, want32)
	z, _ = c.Tensor("z")
	for _, err := range []error{
		z.ReadFloat32(make([]float32, 1), 0), z.ReadBytes(make([]byte, 4), 0),
	} {
		checkError(t, err, `tensor "z"`, "boom")
		if !errors.Is(err, boom) {
			t.Errorf("%v hides its cause", err)
		}
	}

	_, err = Generated(x, y, x)
	checkError(t, err, `tensor "x"`, "two tensors")
	_, err = NewTensor("n", []int{2, -1}, count)
	checkError(t, err, `tensor "n"`, "[2 -1]", "too many")
	_, err = NewTensor("n", []int{math.MaxInt, math.MaxInt}, count)
	checkError(t, err, `tensor "n"`, "too many")
}

// TestBadIndex: each directory is refused with a sentence.
func TestBadIndex(t *testing.T) {
	shard := func(names ...string) *fstest.MapFile {
		var entries []string
		for i, name := range names {
			entries = append(entries, fmt.Sprintf(`%q:{"dtype":"U8","shape":[1],"data_offsets":[%d,%d]}`, name, i, i+1))
		}
		return &fstest.MapFile{Data: safetensorsFile("{"+strings.Join(entries, ",")+"}", make([]byte, len(names)))}
	}
	two := fstest.MapFS{"1.safetensors": shard("a"), "2.safetensors": shard("b")}
	big := strings.Repeat(" ", maxHeader)

	for name, test := range map[string]struct {
		index  string
		shards fstest.MapFS
		want   []string
	}{
		"empty":          {``, two, []string{"is empty"}},
		"not JSON":       {`{"weight_map":{`, two, []string{"not valid JSON", "at byte 15"}},
		"not UTF-8":      {"{\"\xff\":1}", two, []string{"invalid UTF-8"}},
		"huge":           {"{}" + big, two, []string{"100000002 bytes long"}},
		"no map":         {`{"metadata":{"total_size":2}}`, two, []string{"weight_map is missing or empty"}},
		"map of numbers": {`{"weight_map":{"a":1}}`, two, []string{`"/weight_map/a"`}},
		"null map":       {`{"weight_map":null}`, two, []string{"weight_map is missing"}},
		"duplicate":      {`{"weight_map":{"a":"1.safetensors","b":"2.safetensors","a":"2.safetensors"}}`, two, []string{`the key "a" twice`}},
		"missing shard":  {`{"weight_map":{"a":"1.safetensors","b":"3.safetensors"}}`, two, []string{"3.safetensors: no such file", "incomplete"}},
		"missing tensor": {`{"weight_map":{"a":"1.safetensors","c":"2.safetensors"}}`, two, []string{`tensor "c"`, "expected in 2.safetensors", "found in no shard"}},
		"wrong shard":    {`{"weight_map":{"a":"2.safetensors","b":"1.safetensors"}}`, two, []string{`tensor "a"`, "expected in 2.safetensors", "found in 1.safetensors"}},
		"in two shards": {`{"weight_map":{"a":"1.safetensors","b":"2.safetensors"}}`,
			fstest.MapFS{"1.safetensors": shard("a"), "2.safetensors": shard("a", "b")}, []string{`tensor "a"`, "1.safetensors",
				"2.safetensors"}},
		"bad shard": {`{"weight_map":{"a":"1.safetensors","b":"2.safetensors"}}`,
			fstest.MapFS{"1.safetensors": shard("a"),
				"2.safetensors": {Data: []byte("version https://git-lfs.github.com/spec/v1")}}, []string{"2.safetensors", "git lfs pull"}},
		"directory as shard": {`{"weight_map":{"a":"d"}}`, fstest.MapFS{"d/x": shard("a")}, []string{"d: is a directory"}},
		"itself":             {`{"weight_map":{"a":"model.safetensors.index.json"}}`, two, []string{"index.json", "JSON file"}},
		"parent":             {`{"weight_map":{"a":"../1.safetensors"}}`, two, []string{`tensor "a"`, `"../1.safetensors"`, "not the name of a file"}},
		"absolute":           {`{"weight_map":{"a":"/etc/passwd"}}`, two, []string{`"/etc/passwd"`, "not the name of a file"}},
		"backslash":          {`{"weight_map":{"a":"..\\1.safetensors"}}`, two, []string{"not the name of a file"}},
		"drive":              {`{"weight_map":{"a":"C:1.safetensors"}}`, two, []string{"not the name of a file"}},
		"dot dot":            {`{"weight_map":{"a":".."}}`, two, []string{"not the name of a file"}},
		"NUL":                {`{"weight_map":{"a":"1.safetensors\u0000"}}`, two, []string{"not the name of a file"}},
	} {
		t.Run(name, func(t *testing.T) {
			fsys := fstest.MapFS{IndexFile: {Data: []byte(test.index)}}
			dir := t.TempDir()
			for file, content := range test.shards {
				fsys[file] = content
			}
			for file, content := range fsys {
				path := filepath.Join(dir, file)
				must(t, errors.Join(os.MkdirAll(filepath.Dir(path), 0o777), os.WriteFile(path, content.Data, 0o666)))
			}
			_, err := OpenFS(fsys)
			checkError(t, err, test.want...)
			_, err = Open(dir)
			if err != nil { // without the directory, the sentence is the same
				text := strings.ReplaceAll(err.Error(), dir+string(filepath.Separator), "")
				checkError(t, &Error{Offset: -1, Problem: text}, test.want...)
			} else {
				t.Error("opened")
			}
		})
	}
}

// TestUnindexed: what a shard has beyond the index is kept; a single file is
// preferred to an index, as transformers does.
func TestUnindexed(t *testing.T) {
	file := func(names ...string) *fstest.MapFile {
		header := []string{}
		for i, name := range names {
			header = append(header, fmt.Sprintf(`%q:{"dtype":"U8","shape":[1],"data_offsets":[%d,%d]}`, name, i, i+1))
		}
		return &fstest.MapFile{Data: safetensorsFile("{"+strings.Join(header, ",")+"}", make([]byte, len(names)))}
	}
	fsys := fstest.MapFS{
		IndexFile: {Data: []byte(`{"metadata":{"total_size":{"a":[]}},"weight_map":{"a":"s"}}`)},
		"s":       file("a", "b"),
	}
	c, err := OpenFS(fsys)
	must(t, err)
	if got := c.Names(); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("names %q", got)
	}
	fsys[SingleFile] = file("single")
	if c, err = OpenFS(fsys); err != nil {
		t.Fatal(err)
	}
	if got := c.Names(); !slices.Equal(got, []string{"single"}) {
		t.Errorf("names %q", got)
	}
}

func TestFirstNonFinite(t *testing.T) {
	for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		x := []float32{0, math.MaxFloat32, -math.SmallestNonzeroFloat32, float32(bad), 1, float32(bad)}
		if at, none := FirstNonFinite(x), FirstNonFinite(x[:3]); at != 3 || none != -1 {
			t.Errorf("%g: at %d, expected at 3; and %d without it", bad, at, none)
		}
	}
}

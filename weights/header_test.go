package weights

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"gpt2scope/internal/require"
)

// safetensorsFile assembles a file from its header and data.
func safetensorsFile(header string, data []byte) []byte {
	file := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(file, header...), data...)
}

// inMemory opens bytes as a file.
func inMemory(name string, data []byte) (*storage, error) {
	return openFS(fstest.MapFS{"file": {Data: data}}, "file", name)
}

// fromBytes makes a checkpoint of the bytes of a safetensors file.
func fromBytes(name string, data []byte) (*Checkpoint, error) {
	s, err := inMemory(name, data)
	if err != nil {
		return nil, err
	}
	return fromFiles(s)
}

// tensorOf makes a tensor of elements in memory.
func tensorOf(t testing.TB, name string, shape []int, data []float32) Tensor {
	t.Helper()
	return computed(t, name, shape, func(dst []float32, off int) error {
		copy(dst, data[off:])
		return nil
	})
}

// computed is [NewTensor] of what it must make.
func computed(t testing.TB, name string, shape []int, read ReadFunc) Tensor {
	t.Helper()
	x := require.Value(NewTensor(name, shape, read))(t)
	return x
}

// checkError fails unless err says all of the given words, in one line.
func checkError(t *testing.T, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("no error, want one that says %q", words)
		return
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("error %q does not say %q", err, word)
		}
	}
	if strings.ContainsAny(err.Error(), "\n\r") || len(err.Error()) > 1000 {
		t.Errorf("error is not one sentence: %q", err)
	}
	var e *Error
	if !errors.As(err, &e) {
		t.Errorf("error %q is a %T, want an *Error", err, err)
	}
}

// TestBadFile: each file is refused with a sentence that names it, the tensor,
// the place, and what to do, however it is opened.
func TestBadFile(t *testing.T) {
	tensor := func(dtype, shape, offsets string) string {
		return fmt.Sprintf(`{"dtype":%q,"shape":%s,"data_offsets":%s}`, dtype, shape, offsets)
	}
	one := func(name, dtype, shape, offsets string) string {
		return fmt.Sprintf(`{%q:%s}`, name, tensor(dtype, shape, offsets))
	}
	ok := tensor("F32", "[2]", "[0,8]")
	data := make([]byte, 8)
	withLength := func(n uint64, rest string) []byte { return append(binary.LittleEndian.AppendUint64(nil, n), rest...) }

	for name, test := range map[string]struct {
		file []byte
		want []string
	}{
		"empty":              {[]byte{}, []string{"is empty", "download it again"}},
		"a few bytes":        {[]byte{1, 2, 3}, []string{"3 bytes long", "too short", "download it again"}},
		"length only":        {withLength(100, ""), []string{"truncated", "100 bytes", "only 0 follow"}},
		"truncated header":   {withLength(100, `{"a":`), []string{"truncated", "100 bytes", "only 5 follow", "download"}},
		"absurd header":      {withLength(1<<63, "{}"), []string{"not a safetensors file", "header of 9223372036854775808 bytes", "100000000"}},
		"no header":          {withLength(0, ""), []string{"no header"}},
		"header not object":  {safetensorsFile(`["a"]`, nil), []string{"no header, a JSON object, begins at byte 8"}},
		"header starts late": {safetensorsFile(` {"a":1}`, nil), []string{"no header, a JSON object, begins at byte 8"}},
		"invalid JSON":       {safetensorsFile(`{"a":{"dtype":"F32",,}}`, nil), []string{"not valid JSON", "damaged", "at byte 28"}},
		"two JSON values":    {safetensorsFile(`{}{}`, nil), []string{"not valid JSON", "at byte 10"}},
		"deep JSON":          {safetensorsFile(`{"a":{"note":`+strings.Repeat("[", 20000), nil), []string{"not valid JSON", "depth"}},
		"not UTF-8":          {safetensorsFile("{\"a\xff\":1}", nil), []string{"invalid UTF-8", "at byte 11"}},
		"NUL padding":        {safetensorsFile("{}\x00\x00", nil), []string{"not valid JSON"}},

		"duplicate tensor": {safetensorsFile(`{"a":`+ok+`,"a":`+ok+`}`, data), []string{`the key "a" twice`, "at byte"}},
		"duplicate field":  {safetensorsFile(`{"a":{"dtype":"F32","dtype":"F16","shape":[2],"data_offsets":[0,8]}}`, data), []string{`the key "dtype" twice`}},

		"metadata number": {safetensorsFile(`{"__metadata__":{"step":3},"a":`+ok+`}`, data), []string{`"/__metadata__/step"`, "another kind"}},
		"metadata text":   {safetensorsFile(`{"__metadata__":"pt"}`, nil), []string{`"/__metadata__"`, "another kind"}},

		"tensor not object":  {safetensorsFile(`{"a":3}`, nil), []string{`"/a"`, "another kind"}},
		"no dtype":           {safetensorsFile(`{"a":{"shape":[2],"data_offsets":[0,8]}}`, data), []string{`tensor "a"`, "dtype is missing"}},
		"no shape":           {safetensorsFile(`{"a":{"dtype":"F32","data_offsets":[0,8]}}`, data), []string{`tensor "a"`, "shape is missing"}},
		"no offsets":         {safetensorsFile(`{"a":{"dtype":"F32","shape":[2]}}`, data), []string{`tensor "a"`, "0 numbers instead of 2"}},
		"wrong case":         {safetensorsFile(`{"a":{"Dtype":"F32","shape":[2],"data_offsets":[0,8]}}`, data), []string{"dtype is missing"}},
		"unknown dtype":      {safetensorsFile(one("a", "F33", "[2]", "[0,8]"), data), []string{`tensor "a"`, `"F33" is not known`}},
		"numeric dtype":      {safetensorsFile(`{"a":{"dtype":1,"shape":[2],"data_offsets":[0,8]}}`, data), []string{`"/a/dtype"`}},
		"shape of text":      {safetensorsFile(one("a", "F32", `["2"]`, "[0,8]"), data), []string{`"/a/shape/0"`}},
		"negative shape":     {safetensorsFile(one("a", "F32", "[-2]", "[0,8]"), data), []string{`"/a/shape/0"`, `"-2"`}},
		"huge dimension":     {safetensorsFile(one("a", "F32", "[99999999999999999999]", "[0,8]"), data), []string{`"99999999999999999999"`}},
		"shape overflow":     {safetensorsFile(one("a", "F32", "[4294967296,4294967296]", "[0,0]"), nil), []string{"shape [4294967296 4294967296] has too many elements"}},
		"size overflow":      {safetensorsFile(one("a", "F32", "[4611686018427387904]", "[0,0]"), nil), []string{"too many elements"}},
		"dimension beside 0": {safetensorsFile(one("a", "F32", "[0,9223372036854775807]", "[0,0]"), nil), []string{"too many elements"}},
		"negative offset":    {safetensorsFile(one("a", "F32", "[2]", "[-8,0]"), data), []string{`"/a/data_offsets/0"`, `"-8"`}},
		"reversed offsets":   {safetensorsFile(one("a", "F32", "[2]", "[8,0]"), data), []string{`tensor "a"`, "[8 0] are reversed"}},
		"three offsets":      {safetensorsFile(one("a", "F32", "[2]", "[0,8,8]"), data), []string{"3 numbers instead of 2"}},
		"out of range":       {safetensorsFile(one("a", "F32", "[4]", "[0,16]"), data), []string{`tensor "a"`, "[0 16] reach beyond", "8 bytes of data", "truncated"}},
		"far out of range":   {safetensorsFile(one("a", "F32", "[2]", "[9223372036854775799,9223372036854775807]"), data), []string{"reach beyond"}},
		"size mismatch":      {safetensorsFile(one("a", "F16", "[2]", "[0,8]"), data), []string{`tensor "a"`, "hold 8 bytes", "shape [2] of F16 takes 4"}},
		"half a byte":        {safetensorsFile(one("a", "F4", "[3]", "[0,2]"), data[:2]), []string{"whole bytes"}},
		"overlap":            {safetensorsFile(`{"a":`+ok+`,"b":`+tensor("F32", "[2]", "[4,12]")+`}`, make([]byte, 12)), []string{`tensor "b"`, `overlap those of tensor "a"`, "at byte"}},
		"empty inside":       {safetensorsFile(`{"a":`+ok+`,"b":`+tensor("F32", "[0]", "[4,4]")+`}`, data), []string{`tensor "b"`, "overlap"}},
		"hole":               {safetensorsFile(`{"a":`+ok+`,"b":`+tensor("F32", "[1]", "[12,16]")+`}`, make([]byte, 16)), []string{`tensor "b"`, "a hole of 4 bytes", "forbids", "at byte"}},
		"trailing bytes":     {safetensorsFile(`{"a":`+ok+`}`, make([]byte, 11)), []string{"3 bytes", "follow the data", "at byte"}},
		"no tensors, data":   {safetensorsFile(`{}`, data), []string{"8 bytes", "follow the data"}},
		"long name":          {safetensorsFile(one(strings.Repeat("x", 100000), "F33", "[2]", "[0,8]"), data), []string{"xxx\"...", "F33"}},
		"long shape":         {safetensorsFile(one("a", "F32", "["+strings.Repeat("2,", 10000)+"2]", "[0,8]"), data), []string{"[2 2 2 2 2 2 2 2 ...] has too many elements"}},

		"zip":            {[]byte("PK\x03\x04\x14\x00\x00\x08\x08\x00archive/data.pkl"), []string{"zip archive", "truncated"}},
		"pickle":         {[]byte("\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M"), []string{"pickle", "torch.save", "1.6"}},
		"GGUF":           {[]byte("GGUF\x03\x00\x00\x00\x94\x00\x00\x00\x00\x00\x00\x00"), []string{"GGUF", "llama.cpp", "give the file itself"}},
		"HDF5":           {[]byte("\x89HDF\r\n\x1a\n\x00\x00\x00\x00\x00\x08\x08\x00"), []string{"HDF5", "convert"}},
		"NumPy":          {[]byte("\x93NUMPY\x01\x00v\x00{'descr': '<f4'"), []string{"NumPy"}},
		"gzip":           {[]byte("\x1f\x8b\x08\x08\x00\x00\x00\x00\x00\x03model"), []string{"compressed", "decompress"}},
		"Git LFS":        {[]byte("version https://git-lfs.github.com/spec/v1\noid sha256:0123\n"), []string{"Git LFS pointer", "git lfs pull"}},
		"web page":       {[]byte("\n<!DOCTYPE html><html><body>not found</body></html>"), []string{"web page", "download the file itself"}},
		"JSON":           {[]byte(`{"model_type": "gpt2"}`), []string{"JSON file"}},
		"something else": {[]byte("Entry not found, and nothing else"), []string{"not a safetensors file", "download it again"}},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "some.safetensors")
			put(t, path, test.file)
			for how, open := range openers {
				c, err := open(path)
				if c != nil {
					t.Fatalf("%s: opened", how)
				}
				checkError(t, err, append(test.want, "some.safetensors: ")...)
			}
		})
	}
}

// TestGoodFile: what looks odd but is allowed is accepted.
func TestGoodFile(t *testing.T) {
	for name, test := range map[string]struct {
		header  string
		data    int
		tensors int
	}{
		"no tensors":      {`{}`, 0, 0},
		"metadata only":   {`{"__metadata__":{"a":"b"}}`, 0, 0},
		"padded":          {"{}   \n ", 0, 0},
		"unordered":       {`{"b":{"dtype":"U8","shape":[3],"data_offsets":[5,8]},"a":{"dtype":"U8","shape":[5],"data_offsets":[0,5]}}`, 8, 2},
		"empty tensors":   {`{"a":{"dtype":"F32","shape":[0,7],"data_offsets":[0,0]},"b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"c":{"dtype":"F32","shape":[0],"data_offsets":[1,1]}}`, 1, 3},
		"scalar":          {`{"a":{"dtype":"F64","shape":[],"data_offsets":[0,8]}}`, 8, 1},
		"other fields":    {`{"a":{"note":[{"x":[1,2]}],"dtype":"BF16","shape":[2],"data_offsets":[0,4]}}`, 4, 1},
		"fields in a row": {`{"a":{"data_offsets":[0,4],"shape":[2],"dtype":"BF16"}}`, 4, 1},
		"odd names":       {`{"":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"\ud83d\ude00 ":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}`, 2, 2},
		"packed":          {`{"a":{"dtype":"F4","shape":[2,3],"data_offsets":[0,3]},"b":{"dtype":"F6_E2M3","shape":[4],"data_offsets":[3,6]}}`, 6, 2},
	} {
		c, err := fromBytes(name, safetensorsFile(test.header, make([]byte, test.data)))
		if err != nil {
			t.Error(err)
			continue
		}
		if n := len(c.Names()); n != test.tensors {
			t.Errorf("%s: %d tensors, want %d", name, n, test.tensors)
		}
		var size int64
		for tensor := range c.All() {
			size += tensor.Bytes()
		}
		if size != int64(test.data) {
			t.Errorf("%s: %d bytes, want %d", name, size, test.data)
		}
	}
}

// TestDTypes: the size of each type is that in its name, but for BOOL; those of F8_E5M2 and the like say it first.
func TestDTypes(t *testing.T) {
	for d := range dtypes {
		want := 8
		if d != "BOOL" {
			fmt.Sscan(strings.TrimLeft(strings.SplitN(string(d), "_", 2)[0], "BFUIC"), &want)
		}
		if d.Bits() != want {
			t.Errorf("%v has %d bits, want %d", d, d.Bits(), want)
		}
	}
}

func TestMissing(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	put(t, file, "")

	_, err := OpenFile(filepath.Join(dir, "none"))
	checkError(t, err, "none: no such file")
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v is not fs.ErrNotExist", err)
	}
	_, err = OpenFile(dir)
	checkError(t, err, dir, "is a directory")

	_, err = Open(filepath.Join(dir, "none"))
	checkError(t, err, "none: no such directory", SingleFile)
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v is not fs.ErrNotExist", err)
	}
	_, err = Open(file)
	checkError(t, err, "is a file", SingleFile)
	_, err = Open(dir)
	checkError(t, err, "holds neither model.safetensors nor another checkpoint", "give a Hugging Face")
	_, err = OpenFS(os.DirFS(dir))
	checkError(t, err, "holds neither")

	for _, other := range []string{"pytorch_model-1.bin", "gpt2.gguf", "tf_model.h5", "weights.safetensors"} {
		dir := t.TempDir()
		put(t, filepath.Join(dir, other), "")
		_, err := Open(dir)
		checkError(t, err, "holds neither", other)
	}
	for _, name := range []string{SingleFile, IndexFile} {
		dir := t.TempDir()
		if err := os.Symlink("nowhere", filepath.Join(dir, name)); err == nil {
			_, err := Open(dir)
			checkError(t, err, name, "link to a file that does not exist")
		}
		dir = t.TempDir()
		must(t, os.Mkdir(filepath.Join(dir, name), 0o777))
		_, err = Open(dir)
		checkError(t, err, name, "is a directory")
	}
}

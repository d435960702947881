package weights

import (
	"encoding/binary"
	"errors"
	"maps"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
)

// FuzzSafetensors: no file makes the reader panic; what it accepts covers the data exactly and can be read. A file is given in parts, so that the fuzzer need not keep its length right: the file
// is tried with the length given, and with that of the header.
func FuzzSafetensors(f *testing.F) {
	paths, err := filepath.Glob("testdata/golden/*.safetensors")
	if err != nil || len(paths) == 0 {
		f.Fatal("no golden files: ", err)
	}
	for _, path := range paths {
		file := []byte(text(f, path))
		n := binary.LittleEndian.Uint64(file)
		f.Add(n, file[8:8+n], file[8+n:])
	}
	for _, header := range []string{
		`{}`,
		`{"__metadata__":{"format":"pt","a":""}}`,
		`{"a":{"dtype":"F32","shape":[1,1],"data_offsets":[0,4]},"b":{"dtype":"BF16","shape":[2],"data_offsets":[4,8]}}`,
		`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"BF16","shape":[2],"data_offsets":[2,6]}}`,
		`{"a":{"dtype":"U8","shape":[0,9223372036854775807],"data_offsets":[0,0]},"\u0061\ud800":{"dtype":"F4","shape":[16],"data_offsets":[0,8]}}`,
		`{"a":{"dtype":"I64","shape":[-1],"data_offsets":[8,0]}}`,
	} {
		f.Add(uint64(len(header)), []byte(header), []byte("\x00\x00\x80\x7f\xff\xff\x01\x80"))
	}
	f.Add(uint64(1)<<63, []byte("GGUF"), []byte{})

	f.Fuzz(func(t *testing.T, n uint64, header, data []byte) {
		for _, n := range []uint64{n, uint64(len(header))} {
			file := binary.LittleEndian.AppendUint64(nil, n)
			file = append(append(file, header...), data...)
			c, err := fromBytes("file", file)
			checkAnswer(t, c, err)
			if err != nil {
				continue
			}
			size := int64(0)
			for x := range c.All() {
				size += x.Bytes()
				if x.DType.IsFloat() {
					if err := x.ReadFloat32(make([]float32, x.Elements()), 0); err != nil {
						t.Error(err)
					}
				}
			}
			if want := int64(len(file)) - 8 - int64(n); size != want {
				t.Errorf("tensors of %d bytes in %d bytes of data", size, want)
			}
		}
	})
}

// checkAnswer fails unless there is either a checkpoint or a one-line error.
func checkAnswer(t *testing.T, c *Checkpoint, err error) {
	t.Helper()
	if (c == nil) == (err == nil) {
		t.Fatalf("%v, %v", c, err)
	}
	var e *Error
	if err != nil && (!errors.As(err, &e) || e.Problem == "" || strings.ContainsAny(err.Error(), "\r\n") ||
		len(err.Error()) > 2000) {
		t.Errorf("not a good error: %q", err)
	}
}

// FuzzIndex: no index makes the reader panic, or open a file outside its
// directory; what it accepts has every tensor where the index says.
func FuzzIndex(f *testing.F) {
	shards := fstest.MapFS{}
	for _, name := range []string{"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"} {
		shards[name] = &fstest.MapFile{Data: []byte(text(f, filepath.Join("testdata/golden/sharded", name)))}
	}
	f.Add([]byte(text(f, "testdata/golden/sharded/"+IndexFile)))
	for _, index := range []string{
		``, `{}`, `[]`, `{"weight_map":{}}`, `{"weight_map":{"wte.weight":"../model-00001-of-00002.safetensors"}}`,
		`{"weight_map":{"wte.weight":"model-00001-of-00002.safetensors"}}`,
		`{"weight_map":{"wte.weight":"model-00002-of-00002.safetensors","wte.weight":"/etc/passwd"}}`,
		`{"weight_map":{"wte.weight":"model.safetensors.index.json"},"metadata":[[[]]]}`,
		`{"weight_map":{"a":"C:\\a","b":"a/b","c":".","d":"..","e":"","f":"\u0000"}}`,
	} {
		f.Add([]byte(index))
	}
	f.Fuzz(func(t *testing.T, index []byte) {
		fsys := maps.Clone(shards)
		fsys[IndexFile] = &fstest.MapFile{Data: index}
		c, err := OpenFS(fsys)
		checkAnswer(t, c, err)
		shardOf, parseErr := parseIndex(IndexFile, index)
		for _, shard := range shardOf {
			if shard != filepath.Base(shard) || strings.ContainsAny(shard, `/\:`) || shard == "." || shard == ".." {
				t.Errorf("shard %q", shard)
			}
		}
		if err != nil {
			return
		}
		if parseErr != nil {
			t.Errorf("opened, though %v", parseErr)
		}
		for name, shard := range shardOf {
			if x, ok := c.Tensor(name); !ok || x.file.name != shard {
				t.Errorf("%q is not in %q", name, shard)
			}
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

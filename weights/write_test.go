package weights

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"gpt2scope/internal/require"
)

// writeString returns a function for WriteFile.
func writeString(s string) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := io.WriteString(w, s)
		return err
	}
}

// checkOnly fails unless the file at path has the given content and is alone in
// its directory: no temporary file was left.
func checkOnly(t *testing.T, path, content string) {
	t.Helper()
	if got := names(t, filepath.Dir(path)); !slices.Equal(got, []string{filepath.Base(path)}) {
		t.Errorf("the directory has %v, want %s only", got, filepath.Base(path))
	}
	if got := text(t, path); got != content {
		t.Errorf("the file has %.100q; want %q", got, content)
	}
}

// TestWriteRoundTrip writes the golden files again in each type, and reads what was written.
func TestWriteRoundTrip(t *testing.T) {
	for _, file := range []string{"f32", "f16", "bf16"} {
		c := opened(t, OpenFile, "testdata/golden/"+file+".safetensors")
		for _, dtype := range []DType{F32, BF16} {
			t.Run(file+" to "+dtype.String(), func(t *testing.T) {
				var tensors []Tensor
				for x := range c.All() {
					if x.Name == "special" && dtype == BF16 && x.DType == F32 {
						continue
					}
					tensors = append(tensors, x)
				}
				path := filepath.Join(t.TempDir(), "out.safetensors")
				var last, size int64
				err := Write(t.Context(), path, tensors, WriteOptions{
					DType: dtype,
					Progress: func(written, all int64) {
						if written < last || written > all {
							t.Errorf("progress from %d to %d of %d", last, written, all)
						}
						last, size = written, all
					},
				})
				must(t, err)
				checkLayout(t, path)
				if info, err := os.Stat(path); err != nil || info.Size() != last || last != size {
					t.Errorf("size %v, progress ended at %d of %d", info, last, size)
				}
				got := opened(t, OpenFile, path)
				if len(got.Names()) != len(tensors) {
					t.Errorf("names %q", got.Names())
				}
				for _, x := range tensors {
					y, ok := got.Tensor(x.Name)
					if !ok || y.DType != dtype || !slices.Equal(y.Shape, x.Shape) {
						t.Fatalf("%q: %v %v, want %v %v", x.Name, y.DType, y.Shape, dtype, x.Shape)
					}
					a, b := make([]float32, x.Elements()), make([]float32, x.Elements())
					must(t, errors.Join(x.ReadFloat32(a, 0), y.ReadFloat32(b, 0)))
					for i := range a {
						if dtype == BF16 {
							a[i] = BFloat16ToFloat32(Float32ToBFloat16(a[i]))
						}
						if !same32(b[i], math.Float32bits(a[i])) {
							t.Fatalf("%q: element %d = %g, want %g", x.Name, i, b[i], a[i])
						}
					}
				}
			})
		}
	}
}

// checkLayout checks what the format asks of a writer: the header begins with
// '{', is padded with spaces, and the data are aligned to 8 bytes.
func checkLayout(t *testing.T, path string) {
	t.Helper()
	file := []byte(text(t, path))
	n := binary.LittleEndian.Uint64(file)
	header := file[8 : 8+n]
	if n%8 != 0 || header[0] != '{' || bytes.TrimRight(header, " ")[len(bytes.TrimRight(header, " "))-1] != '}' {
		t.Errorf("header of %d bytes: %q", n, header)
	}
}

// TestWriteOverflow: a number that the type cannot hold is not made infinite.
func TestWriteOverflow(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out")
	put(t, path, "old")
	data := make([]float32, 300_000)
	data[299_999] = float32(math.Inf(1)) // infinite before is infinite after
	x := tensorOf(t, "x", []int{len(data)}, data)
	data[280_000] = math.MaxFloat32
	err := Write(t.Context(), path, []Tensor{x}, WriteOptions{DType: BF16})
	checkError(t, err, `tensor "x"`, "element 280000", "BF16 cannot hold")
	checkOnly(t, path, "old")
	data[280_000] = BFloat16ToFloat32(0x7f7f)
	if err := Write(t.Context(), filepath.Join(t.TempDir(), "other"), []Tensor{x}, WriteOptions{DType: BF16}); err != nil {
		t.Error(err)
	}
}

func TestWriteRefuses(t *testing.T) {
	dir := t.TempDir()
	write := func(path string, x Tensor) error {
		return Write(t.Context(), path, []Tensor{x}, WriteOptions{DType: F32})
	}
	mixed := opened(t, OpenFile, "testdata/golden/mixed.safetensors")
	f8, _ := mixed.Tensor("f8")
	checkError(t, write(filepath.Join(dir, "out"), f8), `tensor "f8"`, "F8_E4M3")
	if entries, _ := os.ReadDir(dir); len(entries) > 0 {
		t.Errorf("left behind: %v", entries)
	}

	x := tensorOf(t, "x", nil, []float32{1})
	checkError(t, write(filepath.Join(dir, "none", "out"), x), "cannot be written", "no directory", "none")
	checkError(t, write(dir, x), "is a directory")
	checkError(t, write("", x), "does not name a file")
	checkError(t, write(filepath.Join(dir, "x")+"/", x), "does not name a file")
	if err := write(filepath.Join(dir, strings.Repeat("x", 255)), x); err != nil {
		t.Error(err)
	}
	checkError(t, write(filepath.Join(dir, strings.Repeat("x", 256)), x), "was not written")
}

// TestWriteStreams writes a tensor of 256 MiB, of which only a piece ever exists.
func TestWriteStreams(t *testing.T) {
	x := computed(t, "x", []int{64 << 20}, func(dst []float32, off int) error { return nil })
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for _, dtype := range []DType{F32, BF16} {
		plan := planWrite([]Tensor{x}, WriteOptions{DType: dtype})
		var counter countingWriter
		if err := plan.write(&counter); err != nil || int64(counter) != plan.size {
			t.Errorf("%v: wrote %d of %d, %v", dtype, counter, plan.size, err)
		}
	}
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; got > 8<<20 {
		t.Errorf("%d bytes were allocated", got)
	}
}

type countingWriter int64

func (c *countingWriter) Write(p []byte) (int, error) {
	*c += countingWriter(len(p))
	return len(p), nil
}

// TestInterrupt cancels in mid-file.
func TestInterrupt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out")
	put(t, path, "old")
	ctx, cancel := context.WithCancel(t.Context())
	reads := 0
	x := computed(t, "x", []int{8 << 20}, func(dst []float32, off int) error {
		if reads++; off > 4<<20 {
			cancel()
		}
		return nil
	})
	for range 2 { // the second time before the first byte
		err := Write(ctx, path, []Tensor{x}, WriteOptions{DType: BF16})
		checkError(t, err, path, "interrupted")
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%v is not context.Canceled", err)
		}
		checkOnly(t, path, "old")
	}
	if reads > 25 {
		t.Errorf("%d pieces were read after all", reads)
	}
}

// TestWriteFile: a file is replaced as a whole or not at all.
func TestWriteFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	must(t, WriteFile(t.Context(), path, writeString("first")))
	checkOnly(t, path, "first")
	plain := filepath.Join(t.TempDir(), "plain")
	put(t, plain, "")
	mode := func(path string) fs.FileMode {
		info := require.Value(os.Stat(path))(t)
		return info.Mode()
	}
	if got, want := mode(path), mode(plain); got != want {
		t.Errorf("mode %v, want that of any new file, %v", got, want)
	}
	must(t, os.Chmod(path, 0o600))
	must(t, WriteFile(t.Context(), path, writeString("second")))
	checkOnly(t, path, "second")
	if runtime.GOOS != "windows" && mode(path) != 0o600 {
		t.Errorf("mode %v, want that of the file before", mode(path))
	}

	boom := errors.New("boom")
	for name, write := range map[string]func(io.Writer) error{
		"before": func(io.Writer) error { return boom },
		"after":  func(w io.Writer) error { return errors.Join(writeString(strings.Repeat("x", 3<<20))(w), boom) },
	} {
		if err := WriteFile(t.Context(), path, write); !errors.Is(err, boom) {
			t.Errorf("%s: %v", name, err)
		}
		checkOnly(t, path, "second")
	}
	func() {
		defer func() {
			if r := recover(); r != boom {
				t.Errorf("recovered %v", r)
			}
		}()
		WriteFile(t.Context(), path, func(w io.Writer) error { panic(boom) })
	}()
	checkOnly(t, path, "second")
}

func TestWriteFileLinks(t *testing.T) {
	dir, links := t.TempDir(), t.TempDir()
	path, link, dangling := filepath.Join(dir, "file"), filepath.Join(links, "link"), filepath.Join(links, "dangling")
	if err := errors.Join(os.WriteFile(path, []byte("old"), 0o666), os.Symlink(path, link),
		os.Symlink("nowhere", dangling)); err != nil {
		t.Skip(err)
	}
	must(t, WriteFile(t.Context(), link, writeString("new")))
	checkOnly(t, path, "new")
	if info, err := os.Lstat(link); err != nil || info.Mode()&fs.ModeSymlink == 0 {
		t.Errorf("the link was replaced: %v, %v", info, err)
	}
	checkError(t, WriteFile(t.Context(), dangling, writeString("new")), "dangling",
		"symbolic link to a file that does not exist")
}

// TestNPY: headers are as NumPy itself writes them, and elements follow.
func TestNPY(t *testing.T) {
	rng := rand.New(rand.NewPCG(13, 14))
	for shape, text := range map[[2]int]string{{2, 3}: "(2, 3)", {0, 4}: "(0, 4)", {100, 350}: "(100, 350)"} {
		data := make([]float32, shape[0]*shape[1])
		for i := range data {
			data[i] = float32(rng.NormFloat64())
		}
		var b bytes.Buffer
		must(t, WriteNPY(&b, shape[0], shape[1], data))
		header := "\x93NUMPY\x01\x00\x76\x00{'descr': '<f4', 'fortran_order': False, 'shape': " + text + ", }"
		want := append([]byte(header+strings.Repeat(" ", 127-len(header))+"\n"), float32Bytes(data)...)
		if !bytes.Equal(b.Bytes(), want) {
			t.Errorf("%s: %q", text, b.Bytes()[:min(b.Len(), 140)])
		}
	}
	boom := errors.New("boom")
	if err := WriteNPY(failingWriter{boom}, 0, 0, nil); !errors.Is(err, boom) {
		t.Error(err)
	}
}

type failingWriter struct{ err error }

func (w failingWriter) Write([]byte) (int, error) { return 0, w.err }

// Of writers of one name at once one wins whole.
func TestWritersAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out")
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			for range 20 {
				if err := WriteFile(t.Context(), path, writeString(strings.Repeat(strconv.Itoa(i), 9))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	if data, err := os.ReadFile(path); err != nil || len(data) != 9 || strings.Trim(string(data), string(data[:1])) != "" {
		t.Errorf("%q, %v", data, err)
	}
}

// The reader of a pipe is waited for until the context ends.
func TestPipeOut(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Skip(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := WriteFile(ctx, path, writeString("text")); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

package weights

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"gpt2scope/internal/require"
)

// onesFile writes a file with one tensor x of n ones of a type, F32 or BF16, and opens
// it. It returns the offset of the elements.
func onesFile(t *testing.T, dtype DType, n int) (path string, x Tensor, begin int64) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "model.safetensors")
	one := []byte{0, 0, 0x80, 0x3f}
	if dtype == BF16 {
		one = one[2:]
	}
	header := fmt.Sprintf(`{"x":{"dtype":%q,"shape":[%d],"data_offsets":[0,%d]}}`, dtype.String(), n, len(one)*n)
	data := bytes.Repeat(one, n)
	put(t, path, safetensorsFile(header, data))
	c := opened(t, OpenFile, path)
	x, _ = c.Tensor("x")
	return path, x, int64(8 + len(header))
}

// stored are the types that are read at once, as they are stored, and in pieces.
var stored = []DType{F32, BF16}

// TestShrink truncates a file: every way of reading returns an error, wherever it is cut.
func TestShrink(t *testing.T) {
	const n = 1 << 20
	for name, size := range map[string]func(begin, end int64) int64{
		"to nothing":        func(_, _ int64) int64 { return 0 },
		"in the header":     func(_, _ int64) int64 { return 5 },
		"between pieces":    func(begin, _ int64) int64 { return begin + 20*pieceBytes },
		"inside a piece":    func(begin, _ int64) int64 { return begin + 20*pieceBytes + 17 },
		"by the last bytes": func(begin, end int64) int64 { return end - 3 },
	} {
		for _, dtype := range stored {
			t.Run(fmt.Sprintf("%v/%s", dtype, name), func(t *testing.T) {
				path, x, begin := onesFile(t, dtype, n)
				end := begin + x.Bytes()
				must(t, os.Truncate(path, size(begin, end)))
				for range 2 { // the checkpoint stays what it was
					for how, err := range map[string]error{
						"ReadFloat32": x.ReadFloat32(make([]float32, n), 0),
						"ReadBytes":   x.ReadBytes(make([]byte, x.Bytes()), 0),
						"the end":     x.ReadFloat32(make([]float32, 3), n-3),
					} {
						t.Run(how, func(t *testing.T) {
							checkError(t, err, path, `tensor "x"`, fmt.Sprintf("shrank from %d to %d bytes", end, size(begin, end)),
								"open it again")
						})
					}
				}
			})
		}
	}
}

// TestShrinkWhileReading truncates the file under a reader, of all of it at once and in pieces.
func TestShrinkWhileReading(t *testing.T) {
	const n = 1 << 20
	for _, dtype := range stored {
		t.Run(dtype.String(), func(t *testing.T) {
			path, x, _ := onesFile(t, dtype, n)
			go os.Truncate(path, 123456)
			dst := make([]float32, n)
			for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
				clear(dst)
				if err := x.ReadFloat32(dst, 0); err != nil {
					checkError(t, err, "shrank")
					return
				}
				for i, v := range dst {
					if v != 1 {
						t.Fatalf("element %d is %v, and no error", i, v)
					}
				}
			}
			t.Error("no read failed")
		})
	}
}

// badDisk is a file system whose files cannot be read from a byte on.
type badDisk struct {
	fs.FS
	from int64
}

func (b badDisk) Open(name string) (fs.File, error) {
	f, err := b.FS.Open(name)
	if err != nil {
		return nil, err
	}
	return badFile{f, name, b.from}, nil
}

type badFile struct {
	fs.File
	name string
	from int64
}

func (f badFile) ReadAt(p []byte, off int64) (int, error) {
	good := min(max(f.from-off, 0), int64(len(p)))
	n, err := f.File.(io.ReaderAt).ReadAt(p[:good], off)
	if err == nil && n < len(p) {
		err = &fs.PathError{Op: "read", Path: f.name, Err: syscall.EIO}
	}
	return n, err
}

// TestBadDisk: the error names file, tensor, place and cause, each once.
func TestBadDisk(t *testing.T) {
	const n = 1 << 18
	for _, dtype := range stored {
		path, _, begin := onesFile(t, dtype, n)
		from := begin + 5*pieceBytes + 3
		c := require.Value(OpenFS(badDisk{os.DirFS(filepath.Dir(path)), from}))(t)
		defer c.Close()
		x, _ := c.Tensor("x")
		for how, err := range map[string]error{
			"ReadFloat32": x.ReadFloat32(make([]float32, n), 0),
			"ReadBytes":   x.ReadBytes(make([]byte, x.Bytes()), 0),
		} {
			want := fmt.Sprintf(`model.safetensors: tensor "x": cannot be read, check the disk it is on (at byte %d): input/output error`, from)
			if err == nil || err.Error() != want || !errors.Is(err, syscall.EIO) {
				t.Errorf("%v, %s: %v, want %s", dtype, how, err, want)
			}
		}
		if err := x.ReadFloat32(make([]float32, 5*pieceBytes/(dtype.Bits()/8)), 0); err != nil {
			t.Errorf("%v before that byte: %v", dtype, err)
		}
	}
}

// TestOverwrite: so does reading a file that was overwritten in place.
func TestOverwrite(t *testing.T) {
	path, x, begin := onesFile(t, F32, 1000)
	f := require.Value(os.OpenFile(path, os.O_WRONLY, 0))(t)
	defer f.Close()
	time.Sleep(20 * time.Millisecond) // beyond the grain of the file's clock
	if _, err := f.WriteAt([]byte{1, 2, 3, 4}, begin); err != nil {
		t.Fatal(err)
	}
	checkError(t, x.ReadFloat32(make([]float32, 1000), 0), path, `tensor "x"`, "was changed while it was in use")
}

// TestReplace: a file that is replaced by rename, as WriteFile does, stays readable as it was.
func TestReplace(t *testing.T) {
	path, x, _ := onesFile(t, F32, 1000)
	must(t, WriteFile(t.Context(), path, writeString("something else")))
	dst := make([]float32, 1000)
	if err := x.ReadFloat32(dst, 0); err != nil || dst[999] != 1 {
		t.Errorf("%v, %v", dst[999], err)
	}
}

// TestFileDescriptors: opening and closing, with and without success, leaves none open.
func TestFileDescriptors(t *testing.T) {
	count := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skip(err)
		}
		return len(entries)
	}
	bad := filepath.Join(t.TempDir(), "bad")
	put(t, bad, "bad")
	before := count()
	for range 20 {
		for _, open := range []func() (*Checkpoint, error){
			func() (*Checkpoint, error) { return Open("testdata/golden/sharded") },
			func() (*Checkpoint, error) { return OpenFS(os.DirFS("testdata/golden/sharded")) },
			func() (*Checkpoint, error) { return OpenFile(bad) },
		} {
			if c, err := open(); err == nil {
				c.Close()
			}
		}
	}
	if after := count(); after > before+2 { // the runtime may open one of its own
		t.Errorf("%d files open, before it were %d", after, before)
	}
}

// TestFIFO: opening a named pipe fails at once, instead of waiting for a writer.
func TestFIFO(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o666); err != nil {
		t.Skip(err)
	}
	_, err := OpenFile(path)
	checkError(t, err, "not a regular file")
}

// limitFileSize makes writes beyond the limit fail with EFBIG, in this process.
func limitFileSize(limit uint64) {
	signal.Ignore(syscall.SIGXFSZ)
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: limit, Max: limit}); err != nil {
		panic(err)
	}
}

// TestFileSizeLimit lets the system refuse to write on, in mid-file: nothing is left behind, and the old file is as it
// was. It runs in a process of its own, because the limit, which stands in for a full disk, is the process's.
func TestFileSizeLimit(t *testing.T) {
	if path := os.Getenv("WEIGHTS_TEST_LIMITED"); path != "" {
		limitFileSize(1 << 20)
		x, err := NewTensor("x", []int{1 << 20}, func([]float32, int) error { return nil })
		if err == nil {
			err = Write(t.Context(), path, []Tensor{x}, WriteOptions{})
		}
		fmt.Printf("error: %v\n", err)
		if !errors.Is(err, syscall.EFBIG) {
			os.Exit(3)
		}
		os.Exit(0)
	}
	path := filepath.Join(t.TempDir(), "model.safetensors")
	put(t, path, "old")
	cmd := exec.Command(os.Args[0], "-test.run=^TestFileSizeLimit$")
	cmd.Env = append(os.Environ(), "WEIGHTS_TEST_LIMITED="+path)
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "larger than files may be") {
		t.Errorf("%v: %s", err, out)
	}
	checkOnly(t, path, "old")
}

// TestFullDevice: the sentence for a full disk.
func TestFullDevice(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip(err)
	}
	err := WriteFile(t.Context(), "/dev/full", writeString("text"))
	checkError(t, err, "/dev/full: was not written", "full", "make room")
	if !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("%v hides its cause", err)
	}
	// Devices are written to, never replaced.
	if info, err := os.Stat("/dev/full"); err != nil || info.Mode()&os.ModeCharDevice == 0 {
		t.Fatalf("/dev/full is gone: %v, %v", info, err)
	}
	if err := WriteFile(t.Context(), os.DevNull, writeString("text")); err != nil {
		t.Error(err)
	}
}

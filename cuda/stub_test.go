package cuda_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"gpt2scope/cuda"
	"gpt2scope/internal/require"
	"gpt2scope/internal/stub"
)

// The Go side, without a GPU: against the stub library.

func openStub(t *testing.T, defines ...string) (*cuda.Library, *cuda.Device, *stub.Control) {
	t.Helper()
	path := stub.Build(t, defines...)
	t.Setenv("GPT2SCOPE_CUDA_LIB", path)
	lib := require.Value(cuda.Open())(t)
	dev := require.Value(lib.Device(0))(t)
	c := stub.Open(t, path)
	c.Reset()
	return lib, dev, c
}

var must = require.NoError

// stream makes one that is closed at the test's end.
func stream(t *testing.T, dev *cuda.Device) *cuda.Stream {
	t.Helper()
	s := require.Value(dev.NewStream())(t)
	t.Cleanup(func() { s.Close() })
	return s
}

func TestUnavailable(t *testing.T) {
	cases := []struct {
		define string
		device int
		words  string
	}{
		{"STUB_ABI=77", 0, "ABI version 77, this program needs"},
		{"STUB_WITHOUT_PACK", 0, "lacks gs_pack"},
		{"STUB_DRIVER=0", 0, "no NVIDIA driver"},
		{"STUB_DRIVER=12040", 0, "supports CUDA 12.4, the CUDA library needs 13.0"},
		{"STUB_DEVICES=0", 0, "CUDA sees none"},
		{"STUB_DEVICES=2", 2, "there are 2, numbered 0 to 1"},
		{"STUB_DEVICES=1", -1, "there is no GPU -1"},
		{"STUB_MAJOR=7", 0, "compute capability 7.0; 7.5 or later"},
	}
	for _, c := range cases {
		t.Run(c.define, func(t *testing.T) {
			lib, err := cuda.OpenFile(stub.Build(t, c.define))
			if err == nil {
				_, err = lib.Device(c.device)
			}
			var missing *cuda.UnavailableError
			if !errors.As(err, &missing) || !strings.Contains(err.Error(), c.words) {
				t.Fatalf("error %q; want %q", err, c.words)
			}
		})
	}
	t.Run("not built", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "none.so")
		t.Setenv("GPT2SCOPE_CUDA_LIB", path)
		_, err := cuda.Open()
		var missing *cuda.UnavailableError
		if !errors.As(err, &missing) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "make cuda") {
			t.Fatal(err)
		}
	})
	t.Run("no library", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "text.so")
		must(t, os.WriteFile(path, []byte("text"), 0o644))
		_, err := cuda.OpenFile(path)
		var missing *cuda.UnavailableError
		if !errors.As(err, &missing) {
			t.Fatal(err)
		}
	})
	t.Run("cuBLASLt", func(t *testing.T) {
		lib, _, _ := openStub(t)
		t.Setenv("GPT2SCOPE_CUBLASLT", "/nowhere/libcublasLt.so.13")
		err := lib.OpenBLAS()
		var missing *cuda.UnavailableError
		if !errors.As(err, &missing) || !strings.Contains(err.Error(), "/nowhere/libcublasLt.so.13") {
			t.Fatal(err)
		}
		stub.BLAS(t)
		if err := lib.OpenBLAS(); err != nil || lib.BLASVersion() != 130002 {
			t.Fatal(err, lib.BLASVersion())
		}
	})
}

// Each function of abi.h stands in the list of shim.h, once.
func TestSymbolsComplete(t *testing.T) {
	header, err := os.ReadFile("abi.h")
	if err != nil {
		t.Skip("needs the source")
	}
	shim := require.Value(os.ReadFile("shim.h"))(t)
	names := func(pattern string, text []byte) (out []string) {
		for _, m := range regexp.MustCompile(pattern).FindAllSubmatch(text, -1) {
			out = append(out, string(m[1]))
		}
		slices.Sort(out)
		return out
	}
	want := names(`(?m)^GS_API [^(]*?(gs_\w+)\(`, header)
	got := names(`X\((gs_\w+)\)`, shim)
	if len(want) < 40 || !slices.Equal(got, want) {
		t.Fatalf("shim.h lists %v; abi.h declares %v", got, want)
	}
}

func TestOwnership(t *testing.T) {
	_, dev, c := openStub(t)
	b := require.Value(dev.Alloc(16))(t)
	h := require.Value(dev.AllocHost(16))(t)
	s := require.Value(dev.NewStream())(t)
	e := require.Value(dev.NewEvent())(t)
	g := require.Value(s.Capture(s.EmptyKernel))(t)
	copy(h.Bytes(), "sixteen bytes ok")
	got := make([]byte, 16)
	if err := errors.Join(s.CopyToDevice(b, 0, h, 0, 16), s.Synchronize(), b.Read(0, got)); err != nil || !bytes.Equal(got, h.Bytes()) {
		t.Fatal(err, got)
	}
	var shape *cuda.ShapeError
	if err := s.CopyToDevice(b, 8, h, 0, 9); !errors.As(err, &shape) {
		t.Fatalf("a copy past the end: %v", err)
	}
	copy(h.Bytes(), "another sixteen!")
	if err := errors.Join(s.Write(b, 0, h.Bytes()), s.Synchronize(), b.Read(0, got)); err != nil || string(got) != "another sixteen!" {
		t.Fatalf("a copy of any memory to the device: %v, %q", err, got)
	}
	copy(h.Bytes(), "nothing of this.")
	if err := errors.Join(s.Read(b, 4, h.Bytes()[:12]), s.Synchronize()); err != nil || string(h.Bytes()) != "her sixteen!his." {
		t.Fatalf("a copy to any memory: %v, %q", err, h.Bytes())
	}
	for name, err := range map[string]error{"write": s.Write(b, 8, h.Bytes()[:9]), "read": s.Read(b, 16, h.Bytes()[:1])} {
		if !errors.As(err, &shape) {
			t.Fatalf("%s past the end: %v", name, err)
		}
	}
	if c.Live() != 5 {
		t.Fatalf("%d objects, want 5", c.Live())
	}
	for range 2 { // again, it does nothing
		must(t, errors.Join(b.Free(), h.Free(), g.Free(), e.Close(), s.Close()))
		if c.Live() != 0 {
			t.Fatalf("%d objects live", c.Live())
		}
	}
	s2 := stream(t, dev)
	for name, err := range map[string]error{"read": b.Read(0, got), "host": s2.CopyToDevice(b, 0, h, 0, 1), "any": s2.Write(b, 0, got), "to any": s2.Read(b, 0, got), "graph": g.Launch(s2), "event": s2.Record(e),
		"stream": s.Synchronize(), "launch": s.EmptyKernel(), "capture": func() error { _, err := s.Capture(s.EmptyKernel); return err }()} {
		if !errors.Is(err, cuda.ErrFreed) {
			t.Errorf("%s after free: %v", name, err)
		}
	}
}

// Whichever allocation fails, the others are freed and the error says so.
func TestFailures(t *testing.T) {
	_, dev, c := openStub(t)
	for n := 1; n <= 3; n++ {
		c.Fail("alloc", n)
		var held []*cuda.Buffer
		var failure error
		for range 3 {
			b, err := dev.Alloc(64)
			if err != nil {
				failure = err
				break
			}
			held = append(held, b)
		}
		if !errors.Is(failure, cuda.ErrOutOfMemory) || !strings.Contains(failure.Error(), "64 bytes") || len(held) != n-1 {
			t.Fatalf("allocation %d: %v after %d", n, failure, len(held))
		}
		for _, b := range held {
			must(t, b.Free())
		}
		if c.Live() != 0 {
			t.Fatalf("%d objects live", c.Live())
		}
	}
	s := stream(t, dev)
	c.Fail("launch", 2)
	var failure *cuda.Error
	must(t, s.EmptyKernel())
	if err := s.EmptyKernel(); !errors.As(err, &failure) || failure.Call != "gs_empty_kernel" || failure.Status != 719 || errors.Is(err, cuda.ErrOutOfMemory) {
		t.Fatal(err)
	}
	c.Fail("gs_capture_end", 1)
	if _, err := s.Capture(s.EmptyKernel); !errors.Is(err, cuda.ErrOutOfMemory) {
		t.Fatal(err)
	}
	why := errors.New("why")
	if _, err := s.Capture(func() error { return why }); err != why {
		t.Fatal(err)
	}
	if err := s.Synchronize(); err != nil { // the capture was dropped
		t.Fatal(err)
	}
}

func TestShapesChecked(t *testing.T) {
	_, dev, c := openStub(t)
	s := stream(t, dev)
	c.Reset()
	attention := cuda.AttentionArgs{QKV: 1, KCache: 1, VCache: 1, Pos: 1, Y: 1, B: 1, T: 3, Q: 3, NH: 2, HS: 64, P: 8, LDQKV: 384, LDY: 128}
	wide, some, long := attention, attention, attention
	wide.HS, some.Q, long.T, long.Q = 129, 2, 9, 9
	linear := cuda.LinearArgs{X: 1, W: 1, Y: 1, M: 2, N: 3, K: 4, LDX: 4, LDY: 3}
	narrow, both := linear, linear
	narrow.LDX, both.Accumulate, both.Act = 3, 1, cuda.ReLU
	for name, err := range map[string]error{"HS": s.Attention(wide), "Q": s.Attention(some), "T": s.Attention(long), "ld": s.Linear(narrow), "act": s.Linear(both),
		"M": s.Add(cuda.AddArgs{X: 1, Z: 1, N: 1}), "type": s.Pack(cuda.PackArgs{Src: 1, Dst: 1, Rows: 1, Cols: 1, LDDst: 1, DstType: 3})} {
		var shape *cuda.ShapeError
		if !errors.As(err, &shape) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if calls := c.Calls(); len(calls) != 0 {
		t.Fatalf("crossed into C: %v", calls)
	}
	must(t, errors.Join(s.Attention(attention), s.Linear(linear)))
	if calls := c.Calls(); !slices.Equal(calls, []string{"gs_attention", "gs_linear"}) {
		t.Fatal(calls)
	}
	must(t, s.TuneLinear(linear, 0))
}

func TestConcurrent(t *testing.T) {
	_, dev, c := openStub(t)
	var wait sync.WaitGroup
	for range 8 {
		wait.Go(func() {
			for range 50 {
				b, err := dev.Alloc(32)
				if err != nil {
					t.Error(err)
					return
				}
				if err := errors.Join(b.Write(0, make([]byte, 32)), b.Free()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wait.Wait()
	if c.Live() != 0 {
		t.Fatalf("%d live", c.Live())
	}
}

// Package stub builds and controls a CUDA library without CUDA, for tests: see cuda/testdata/stub.c.
package stub

// #cgo linux LDFLAGS: -ldl
// #include <dlfcn.h>
// #include <stdlib.h>
// #include "../../cuda/testdata/stub.h"
// static gs_stub *control(void *f) { return ((gs_stub *(*)(void))f)(); }
import "C"

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"gpt2scope/internal/checkout"
)

// Build returns a stub of the test's own, with macros such as "STUB_DRIVER=0" defined.
func Build(t testing.TB, defines ...string) string {
	t.Helper()
	folder := checkout.Path("cuda")
	flags := []string{"-I", folder}
	for _, d := range defines {
		flags = append(flags, "-D"+d)
	}
	return Copied(t, Compiled(t, folder, []string{"testdata/stub.c"}, []string{"testdata/compute.h", "testdata/stub.h", "abi.h"}, flags...))
}

// Use builds a stub that computes, makes it the test's CUDA library, with NVRTC and cuBLASLt beside it, and controls
// it.
func Use(t testing.TB) *Control {
	t.Helper()
	path := Build(t, "STUB_COMPUTES")
	t.Setenv("GPT2SCOPE_CUDA_LIB", path)
	NVRTC(t)
	BLAS(t)
	c := Open(t, path)
	c.Reset()
	return c
}

// NVRTC makes the stub find its compiler.
func NVRTC(t testing.TB) {
	t.Helper()
	library(t, "GPT2SCOPE_NVRTC", "stub-nvrtc.so")
}

// BLAS makes the stub find its cuBLASLt.
func BLAS(t testing.TB) {
	t.Helper()
	library(t, "GPT2SCOPE_CUBLASLT", "stub-blas.so")
}

// library makes an empty file that the stub takes for a library, and names it in an environment variable.
func library(t testing.TB, variable, name string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv(variable, file)
}

// Control is the other side of a stub: what it saw, and what it is to do.
type Control struct{ c *C.gs_stub }

// Open controls the stub at a path. The program under test opens the same file, and so the same instance.
func Open(t testing.TB, path string) *Control {
	t.Helper()
	return &Control{C.control(Symbol(t, path, "gs_stub_control"))}
}

// Symbol returns what a library exports by a name.
func Symbol(t testing.TB, path, name string) unsafe.Pointer {
	t.Helper()
	file, symbol := C.CString(path), C.CString(name)
	defer C.free(unsafe.Pointer(file))
	defer C.free(unsafe.Pointer(symbol))
	handle := C.dlopen(file, C.RTLD_NOW|C.RTLD_LOCAL)
	if handle == nil {
		t.Fatalf("opening a library for tests: %s", C.GoString(C.dlerror()))
	}
	at := C.dlsym(handle, symbol)
	if at == nil {
		t.Fatalf("%s lacks %s", path, name)
	}
	return at
}

// locked holds the stub's mutex.
func (c *Control) locked(f func(s *C.gs_stub)) {
	C.pthread_mutex_lock(&c.c.mutex)
	defer C.pthread_mutex_unlock(&c.c.mutex)
	f(c.c)
}

// put writes a text for C, which ends in 0.
func put(to []C.char, text string) {
	clear(to)
	for i := range min(len(text), len(to)-1) {
		to[i] = C.char(text[i])
	}
}

// Reset forgets the calls so far, and failures to come.
func (c *Control) Reset() {
	c.locked(func(s *C.gs_stub) {
		s.calls_length, s.failing_in, s.lost, s.memory_limit, s.not_finite_in = 0, 0, 0, 0, 0
		s.refusal[0], s.decode_status, s.timeout_in = 0, 0, 0
	})
}

// Fail makes the n-th call from now fail, of a function of abi.h, or of a group: "alloc" is whatever allocates,
// "launch" whatever launches. With "lost" the n-th call of any fails and all later ones, those that free among them, as
// on a device where a kernel went wrong.
func (c *Control) Fail(what string, n int) {
	c.locked(func(s *C.gs_stub) { put(s.failing[:], what); s.failing_in = C.int(n) })
}

// Memory leaves so many bytes to be allocated on the devices from now on, until Reset; 0 is any.
func (c *Control) Memory(bytes int64) {
	c.locked(func(s *C.gs_stub) {
		s.memory_limit = 0
		if bytes > 0 {
			s.memory_limit = s.memory_used + C.uint64_t(bytes)
		}
	})
}

// Spoil makes a variant of an operation (gs_op) compute its last element wrong, of a stub built with STUB_COMPUTES; -1
// spoils none.
func (c *Control) Spoil(op, variant int) {
	c.locked(func(s *C.gs_stub) { s.spoiled_op, s.spoiled_variant = C.int(op), C.int(variant) })
}

// NotFinite makes the n-th sampling from now find logits of its last sequence that are not finite: its token is -1.
func (c *Control) NotFinite(n int) { c.locked(func(s *C.gs_stub) { s.not_finite_in = C.int(n) }) }

// Decode says what becomes of whole decode steps (gs_persistent).
type Decode struct {
	Refusal string // why gs_persistent_work says that there is no kernel; "" if there is one
	Status  int    // what gs_persistent returns in place of a launch, if it is not 0
	Timeout int    // at which gs_persistent from now a block waits too long; 0 for none
	At      int    // the position that the slots get then
}

// Decode sets what becomes of whole decode steps, until Reset.
func (c *Control) Decode(d Decode) {
	c.locked(func(s *C.gs_stub) {
		put(s.refusal[:], d.Refusal)
		s.decode_status, s.timeout_in, s.timeout_at = C.int(d.Status), C.int(d.Timeout), C.int(d.At)
	})
}

// Live returns how many allocations and objects are not freed.
func (c *Control) Live() (n int) {
	c.locked(func(s *C.gs_stub) { n = int(s.live) })
	return n
}

// Calls returns the names of the functions called since Reset, in order.
func (c *Control) Calls() (names []string) {
	c.locked(func(s *C.gs_stub) { names = strings.Fields(C.GoStringN(s.calls, C.int(s.calls_length))) })
	return names
}

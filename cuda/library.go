package cuda

/*
#cgo linux LDFLAGS: -ldl
#include <stdlib.h>
#include "table.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"unsafe"
)

// LibraryName is the file that `make cuda` builds.
const LibraryName = "libgpt2scope_cuda.so"

// minimum is the least compute capability of a device, in tenths.
const minimum = 80

// Reason is why CUDA cannot be used.
type Reason uint8

// The reasons.
const (
	NotBuilt      Reason = iota // the library was not found
	NotLoadable                 // it was found, and could not be opened
	WrongVersion                // it has another ABI version
	MissingSymbol               // it lacks a function
	NoDriver                    // there is no NVIDIA driver
	OldDriver                   // the driver is older than the library's CUDA
	NoDevice                    // there is no such device
	OldDevice                   // its compute capability is below 8.0
	NoBLAS                      // cuBLASLt was not found
	NoNVRTC                     // the run-time compiler was not found
)

// UnavailableError says what is missing, in one sentence.
type UnavailableError struct {
	Reason Reason
	Text   string
}

// Error gives the sentence.
func (e *UnavailableError) Error() string { return e.Text }

func unavailable(r Reason, format string, args ...any) error {
	return &UnavailableError{r, fmt.Sprintf(format, args...)}
}

// Error is a failure that the library reports.
type Error struct {
	Op     string // what was asked for
	Status int    // gs_status: a cudaError_t below 10000
	Text   string // the library's words
}

// Error gives one sentence.
func (e *Error) Error() string { return e.Op + ": " + e.Text }

// ErrFreed is returned by the use of an object after it was freed or closed.
var ErrFreed = errors.New("it was freed")

// outOfMemory is cudaErrorMemoryAllocation.
const outOfMemory = 2

// IsOutOfMemory tells whether an allocation failed for lack of memory.
func IsOutOfMemory(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Status == outOfMemory
}

// Library is the CUDA library, opened at run time. It may be used from several
// goroutines.
type Library struct {
	path  string
	table *C.gs_table // in C memory: calls hold it

	mu    sync.Mutex
	blas  uint64 // cublasLtGetVersion(); 0 before OpenBLAS
	nvrtc bool
}

// check turns a result into an error. Its text comes with it, since the library
// keeps texts by OS thread.
func check(op string, r C.gs_result) error {
	if r.status == C.GS_OK {
		return nil
	}
	text := C.GoString(r.text)
	C.free(unsafe.Pointer(r.text))
	return &Error{op, int(r.status), text}
}

// Open finds and opens the library: the file named by GPT2SCOPE_CUDA_LIB, or
// LibraryName beside the program, in lib beside it, in ../lib, or in ./lib.
func Open() (*Library, error) {
	if path := os.Getenv("GPT2SCOPE_CUDA_LIB"); path != "" {
		if _, err := os.Stat(path); err != nil {
			return nil, unavailable(NotBuilt, "GPT2SCOPE_CUDA_LIB names %s, which is not there; build it with `make cuda`", path)
		}
		return OpenFile(path)
	}
	places := LibraryPlaces(LibraryName)
	for _, path := range places {
		if _, err := os.Stat(path); err == nil {
			return OpenFile(path)
		}
	}
	return nil, unavailable(NotBuilt, "the CUDA library is not built: run `make cuda` (looked for %s)", strings.Join(places, ", "))
}

// LibraryPlaces returns where a library of this project may lie.
func LibraryPlaces(name string) []string {
	var places []string
	if exe, err := os.Executable(); err == nil {
		if real, err := filepath.EvalSymlinks(exe); err == nil {
			exe = real
		}
		dir := filepath.Dir(exe)
		places = append(places, filepath.Join(dir, name), filepath.Join(dir, "lib", name), filepath.Join(filepath.Dir(dir), "lib", name))
	}
	if wd, err := os.Getwd(); err == nil {
		if p := filepath.Join(wd, "lib", name); len(places) == 0 || p != places[len(places)-1] {
			places = append(places, p)
		}
	}
	return places
}

// OpenFile opens the library at a path, and checks that a driver is there that can
// run it.
func OpenFile(path string) (*Library, error) {
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	table := (*C.gs_table)(C.calloc(1, C.size_t(unsafe.Sizeof(C.gs_table{}))))
	var version C.uint32_t
	var text [512]C.char
	status := C.gs_table_open(name, table, &version, &text[0], C.size_t(len(text)))
	words := C.GoString(&text[0])
	switch status {
	case C.GS_OPENED:
	case C.GS_NOT_OPENED:
		C.free(unsafe.Pointer(table))
		return nil, unavailable(NotLoadable, "the CUDA library cannot be opened: %s", words)
	case C.GS_MISSING:
		C.free(unsafe.Pointer(table))
		return nil, unavailable(MissingSymbol, "the CUDA library %s lacks %s; build it again with `make cuda`", path, words)
	default:
		C.free(unsafe.Pointer(table))
		return nil, unavailable(WrongVersion, "the CUDA library %s has ABI version %d and this program needs %d; build it again with `make cuda`", path, version, C.GS_ABI_VERSION)
	}
	l := &Library{path: path, table: table}
	driver, runtime, err := l.Versions()
	switch {
	case err != nil:
	case driver == 0:
		err = unavailable(NoDriver, "no NVIDIA driver was found; install one that supports CUDA %s, or use --device cpu", versionName(runtime))
	case driver/1000 < runtime/1000:
		err = unavailable(OldDriver, "the NVIDIA driver supports CUDA %s, and the library needs %d.0 or later; update the driver", versionName(driver), runtime/1000)
	}
	if err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

func versionName(v int) string { return fmt.Sprintf("%d.%d", v/1000, v%1000/10) }

// Close closes the library. What was made with it must be freed before.
func (l *Library) Close() {
	if l.table != nil {
		C.gs_table_close(l.table)
		C.free(unsafe.Pointer(l.table))
		l.table = nil
	}
}

// Path returns the library's file.
func (l *Library) Path() string { return l.path }

// Versions returns the CUDA version that the driver supports and the one that the
// library was built with, as 1000 * major + 10 * minor; driver is 0 without one.
func (l *Library) Versions() (driver, runtime int, err error) {
	var d, r C.int
	err = check("CUDA versions", C.call_gs_versions(l.table, &d, &r))
	return int(d), int(r), err
}

// DeviceCount returns how many CUDA devices there are.
func (l *Library) DeviceCount() (int, error) {
	var n C.int
	err := check("counting devices", C.call_gs_device_count(l.table, &n))
	return int(n), err
}

// Op is an operation of the library, as in gs_op.
type Op int

// The operations.
const (
	OpEmbed Op = iota
	OpLayerNorm
	OpLinear
	OpAttention
	OpActivation
	OpAdd
	OpSample
)

// Variants returns the names of an operation's kernels; the index is what Variant
// fields take. The first is "auto", which chooses, the second "naive", the plain
// one.
func (l *Library) Variants(op Op) []string {
	var names []string
	for n := 0; ; n++ {
		name := C.call_gs_variant(l.table, C.int(op), C.int(n))
		if name == nil {
			return names
		}
		names = append(names, C.GoString(name))
	}
}

// Profiler starts (or stops) the collection of a profiler that was told to wait
// for it: cudaProfilerStart, cudaProfilerStop.
func (l *Library) Profiler(on bool) error {
	v := C.int(0)
	if on {
		v = 1
	}
	return check("profiler", C.call_gs_profiler(l.table, v))
}

// OpenBLAS finds and opens cuBLASLt, once.
func (l *Library) OpenBLAS() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.blas != 0 {
		return nil
	}
	_, runtime, err := l.Versions()
	if err != nil {
		return err
	}
	major := runtime / 1000
	var version C.uint64_t
	return openFirst(NoBLAS, "cuBLASLt", "GPT2SCOPE_CUBLASLT", fmt.Sprintf("libcublasLt.so.%d", major), major, func(path *C.char) error {
		err := check("opening cuBLASLt", C.call_gs_blas_open(l.table, path, &version))
		l.blas = uint64(version)
		return err
	})
}

// BLASVersion returns cublasLtGetVersion(), 0 before OpenBLAS.
func (l *Library) BLASVersion() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.blas
}

// openFirst opens the first of the places where one of NVIDIA's libraries may lie:
// the file that a variable names, CUDA_HOME, where the dynamic loader looks, and
// Python's packages.
func openFirst(reason Reason, what, variable, file string, major int, open func(path *C.char) error) error {
	try := func(path string) error {
		p := C.CString(path)
		defer C.free(unsafe.Pointer(p))
		return open(p)
	}
	if path := os.Getenv(variable); path != "" {
		if err := try(path); err != nil {
			return unavailable(reason, "%s: %s names %s: %v", what, variable, path, err)
		}
		return nil
	}
	var looked []string
	for _, pattern := range nvidiaPlaces(major) {
		looked = append(looked, pattern)
		if pattern == "" { // the dynamic loader's own way
			looked[len(looked)-1] = "the dynamic loader's path"
			if try(file) == nil {
				return nil
			}
			continue
		}
		matches, _ := filepath.Glob(filepath.Join(pattern, file))
		for _, path := range matches {
			if try(path) == nil {
				return nil
			}
		}
	}
	return unavailable(reason, "%s was not found: no %s in %s; install it, or name it by %s", what, file, strings.Join(looked, ", "), variable)
}

// nvidiaPlaces returns folders, as patterns; "" is the dynamic loader's path.
func nvidiaPlaces(major int) []string {
	var places []string
	if home := os.Getenv("CUDA_HOME"); home != "" {
		places = append(places, filepath.Join(home, "lib64"))
	}
	places = append(places, "", "/usr/local/cuda/lib64")
	packages := []string{"build/cuda"}
	if exe, err := os.Executable(); err == nil {
		packages = append(packages, filepath.Join(filepath.Dir(filepath.Dir(exe)), "build/cuda"))
	}
	for _, root := range []string{os.Getenv("VIRTUAL_ENV"), ".venv", "/usr", "/usr/local", "/opt/*", "/opt/*/.venv", filepath.Join(os.Getenv("HOME"), ".local")} {
		if root != "" {
			packages = append(packages, filepath.Join(root, "lib/python3*/site-packages"), filepath.Join(root, "lib/python3*/dist-packages"))
		}
	}
	for _, p := range packages {
		places = append(places, filepath.Join(p, "nvidia", fmt.Sprintf("cu%d", major), "lib"), filepath.Join(p, "nvidia/cublas/lib"), filepath.Join(p, "nvidia/cuda_nvrtc/lib"))
	}
	return places
}

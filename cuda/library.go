package cuda

// #cgo linux LDFLAGS: -ldl
// #cgo CFLAGS: -std=gnu11 -O2 -Wall -Werror
// #include "shim.h"
import "C"

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"unsafe"

	"gpt2scope/internal/place"
)

// ABIVersion is that of abi.h; library and program must agree.
const ABIVersion = C.GS_ABI_VERSION

// FileName is what the library is called.
const FileName = "libgpt2scope_cuda.so"

// Library is the opened CUDA library. It stays open until the process ends.
type Library struct {
	path            string
	table           *C.gs_table
	driver, runtime int

	mutex sync.Mutex // of what follows
	blas  uint64
	nvrtc bool
}

// Op is an operation that has kernels, as in gs_op.
type Op int32

const (
	OpEmbed Op = iota
	OpLayerNorm
	OpLinear
	OpAttention
	OpActivation
	OpAdd
	OpSample
)

var opened struct {
	sync.Mutex
	byPath map[string]*Library
}

// Open finds and opens the library: the file that the environment variable GPT2SCOPE_CUDA_LIB names, else
// libgpt2scope_cuda.so beside the program, in lib/ beside it, in ../lib from there. An error is an
// *UnavailableError. A library is opened once; opening it again gives the same.
func Open() (*Library, error) {
	path := place.Library("GPT2SCOPE_CUDA_LIB", FileName)
	if place.IsFile(path) {
		return OpenFile(path)
	}
	looked := []string{path}
	if path == "" {
		looked = nil
		for _, folder := range place.Folders() {
			looked = append(looked, filepath.Join(folder, FileName))
		}
		if noGPU("/") {
			return nil, &UnavailableError{NoGPU: true, text: "this machine has no NVIDIA GPU"}
		}
	}
	return nil, unavailable(looked, "the CUDA library is not built (make cuda builds it)")
}

// HasDriver reports whether files below a root, "/" but for tests, tell of NVIDIA's driver, on Linux or below Windows.
func HasDriver(root string) bool {
	paths := []string{"dev/nvidiactl", "dev/nvmap", "dev/dxg", "proc/driver/nvidia/version"}
	return slices.ContainsFunc(paths, func(path string) bool {
		_, err := os.Stat(filepath.Join(root, path))
		return err == nil
	})
}

// noGPU reports whether files below a root tell that there is no GPU of NVIDIA: no driver, and none on the PCI bus.
func noGPU(root string) bool {
	vendors, _ := filepath.Glob(filepath.Join(root, "sys/bus/pci/devices/*/vendor"))
	return !HasDriver(root) && !slices.ContainsFunc(vendors, func(path string) bool {
		id, _ := os.ReadFile(path) // what cannot be read is not NVIDIA's
		return strings.TrimSpace(string(id)) == "0x10de"
	})
}

// OpenFile opens the library at a path.
func OpenFile(path string) (*Library, error) {
	absolute, err := filepath.Abs(path)
	if err != nil {
		return nil, unavailable(nil, "the CUDA library %s cannot be opened: %v", path, err)
	}
	opened.Lock()
	defer opened.Unlock()
	if l := opened.byPath[absolute]; l != nil {
		return l, nil
	}
	if opened.byPath == nil {
		opened.byPath = map[string]*Library{}
		C.gs_signals_keep()
	}
	l, err := load(absolute)
	if err != nil {
		return nil, err
	}
	opened.byPath[absolute] = l
	return l, nil
}

func load(path string) (*Library, error) {
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	var text, missing *C.char
	table := C.gs_table_open(name, &text, &missing)
	switch {
	case text != nil:
		defer C.free(unsafe.Pointer(text))
		return nil, unavailable(nil, "the CUDA library cannot be loaded: %s", C.GoString(text))
	case table == nil && missing == nil:
		return nil, unavailable(nil, "the CUDA library %s cannot be opened: no memory", path)
	case table == nil:
		return nil, unavailable(nil, "the CUDA library %s lacks %s; build it again with make cuda", path,
			C.GoString(missing))
	}
	l := &Library{path: path, table: table}
	if err := l.check(missing); err != nil {
		C.gs_table_close(table)
		return nil, err
	}
	return l, nil
}

// check reports whether the library can be used with this program and driver. No context is created.
func (l *Library) check(missing *C.char) error {
	if v := uint32(C.call_gs_abi_version(l.table)); v != ABIVersion {
		return unavailable(nil,
			"the CUDA library %s has ABI version %d, this program needs %d; build both again with make cuda build", l.path, v,
			ABIVersion)
	}
	if missing != nil {
		return unavailable(nil, "the CUDA library %s lacks %s; build it again with make cuda", l.path,
			C.GoString(missing))
	}
	var driver, runtime C.int
	if err := failed(C.call_gs_versions(l.table, &driver, &runtime)); err != nil {
		return err
	}
	l.driver, l.runtime = int(driver), int(runtime)
	switch {
	case l.driver == 0:
		return &UnavailableError{Runtime: l.runtime,
			text: "there is no NVIDIA driver on this machine (libcuda.so.1)"}
	case l.driver/1000 < l.runtime/1000:
		return &UnavailableError{Runtime: l.runtime,
			text: fmt.Sprintf("the NVIDIA driver supports CUDA %s, the CUDA library needs %d.0; "+
				"update the driver, or build the library with that CUDA_HOME", VersionText(l.driver), l.runtime/1000)}
	}
	return nil
}

// VersionText writes 13020 as 13.2.
func VersionText(v int) string { return fmt.Sprintf("%d.%d", v/1000, v%1000/10) }

// Path returns the library's file.
func (l *Library) Path() string { return l.path }

// Versions returns the CUDA version that the driver supports, and the one that the library was built with, as 1000 *
// major + 10 * minor.
func (l *Library) Versions() (driver, runtime int) { return l.driver, l.runtime }

// DeviceCount returns how many GPUs CUDA sees.
func (l *Library) DeviceCount() (int, error) {
	var n C.int
	if err := failed(C.call_gs_device_count(l.table, &n)); err != nil {
		return 0, err
	}
	return int(n), nil
}

// Variants returns the names of an op's kernels by their numbers: the Variant of its arguments. 0 is "auto", which
// chooses by shape, 1 "naive", the plain kernel.
func (l *Library) Variants(op Op) []string {
	var names []string
	for {
		name := C.call_gs_variant(l.table, C.int(op), C.int(len(names)))
		if name == nil {
			return names
		}
		names = append(names, C.GoString(name))
	}
}

// OpenBLAS finds and opens cuBLASLt, of the major version the library was built with, once. Products of more than
// GEMVRows rows need it. It looks at the file that GPT2SCOPE_CUBLASLT names, else in CUDA_HOME, where the dynamic
// loader does, and where NVIDIA's installer and PyPI packages put it.
func (l *Library) OpenBLAS() error {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if l.blas != 0 {
		return nil
	}
	var v C.uint64_t
	err := l.find("GPT2SCOPE_CUBLASLT", "cublasLt", "cuBLASLt", func(path *C.char) error {
		return failed(C.call_gs_blas_open(l.table, path, &v))
	})
	l.blas = uint64(v)
	return err
}

// BLASVersion returns the version of cuBLASLt, as cublasLtGetVersion gives it; 0 before OpenBLAS.
func (l *Library) BLASVersion() uint64 {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.blas
}

// openNVRTC finds and opens the run-time compiler, once.
func (l *Library) openNVRTC() error {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if l.nvrtc {
		return nil
	}
	err := l.find("GPT2SCOPE_NVRTC", "nvrtc", "NVRTC", func(path *C.char) error {
		return failed(C.call_gs_nvrtc_open(l.table, path))
	})
	l.nvrtc = err == nil
	return err
}

// find opens the first of NVIDIA's libraries that there is.
func (l *Library) find(variable, stem, title string, open func(*C.char) error) error {
	var looked []string
	var first error
	for _, candidate := range place.NVIDIA(variable, fmt.Sprintf("lib%s.so.%d", stem, l.runtime/1000)) {
		looked = append(looked, candidate)
		if filepath.Base(candidate) != candidate { // a bare name is the loader's to find
			if _, err := os.Stat(candidate); err != nil {
				continue
			}
		}
		path := C.CString(candidate)
		err := open(path)
		C.free(unsafe.Pointer(path))
		if err == nil {
			return nil
		}
		if first == nil && filepath.Base(candidate) != candidate {
			first = err
		}
	}
	var cause *Error
	if errors.As(first, &cause) {
		return unavailable(looked, "%s of CUDA %d cannot be opened: %s", title, l.runtime/1000, cause.Text)
	}
	return unavailable(looked, "%s of CUDA %d was not found (set %s or CUDA_HOME, or install NVIDIA's package)",
		title, l.runtime/1000, variable)
}

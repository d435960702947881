package cupti

/*
#cgo CFLAGS: -std=gnu11 -Wall
#cgo linux LDFLAGS: -ldl
#include <dlfcn.h>
#include <stdlib.h>
#include "recorder.h"

static const gs_cupti_table *table_of(void *symbol) { return ((const gs_cupti_table *(*)(void))symbol)(); }
*/
import "C"

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unsafe"

	"gpt2scope/internal/place"
)

// Library is the file name of the recorder's own library, which make cupti builds.
const Library = "libgpt2scope_cupti.so"

// Environment variables that name libraries.
const (
	LibraryEnv = "GPT2SCOPE_CUPTI_RECORDER" // the recorder's own
	CUPTIEnv   = "GPT2SCOPE_CUPTI_LIB"      // NVIDIA's libcupti, instead of all other places
)

// openTable finds and opens the recorder's library.
func openTable() (*C.gs_cupti_table, error) {
	path, err := find()
	if err != nil {
		return nil, err
	}
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	symbol := C.CString("gs_cupti")
	defer C.free(unsafe.Pointer(symbol))
	handle := C.dlopen(name, C.RTLD_NOW|C.RTLD_LOCAL)
	if handle == nil {
		return nil, failure("the cupti recorder is not there: %s cannot be opened: %s", path,
			C.GoString(C.dlerror()))
	}
	at := C.dlsym(handle, symbol)
	if at == nil {
		return nil, failure(
			"the cupti recorder is not there: %s is not the library that make cupti builds: it has no gs_cupti", path)
	}
	t := C.table_of(at)
	if t.version != C.GS_CUPTI_ABI_VERSION {
		return nil, failure(
			"the cupti recorder is not there: %s has interface version %d, the program needs %d; "+
				"build both again (make build cupti)", path, t.version, C.GS_CUPTI_ABI_VERSION)
	}
	return t, nil
}

// find returns the path of the recorder's library.
func find() (string, error) {
	path := place.Library(LibraryEnv, Library)
	switch {
	case path == "":
		return "", failure(
			"the cupti recorder is not there: no %s in %s; build it with make cupti, or name it by %s", Library,
			strings.Join(place.Folders(), ", "), LibraryEnv)
	case !place.IsFile(path):
		return "", failure("the cupti recorder is not there: %s names %s, which is no file", LibraryEnv, path)
	}
	return path, nil
}

// cuptiPaths lists where libcupti may be, newest first, each after a newline. Until CUDA 12 its name had the minor version
// too.
func cuptiPaths() string {
	named := os.Getenv(CUPTIEnv)
	paths := place.NVIDIA(CUPTIEnv, "libcupti.so.13", "libcupti.so.12", "libcupti.so")
	return strings.Join(slices.DeleteFunc(paths, func(path string) bool {
		return path != named && filepath.Base(path) != path && !place.IsFile(path)
	}), "\n")
}

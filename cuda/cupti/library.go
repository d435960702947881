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
		return nil, failure(ErrAbsent, "the cupti recorder is not there: %s cannot be opened: %s", path,
			C.GoString(C.dlerror()))
	}
	at := C.dlsym(handle, symbol)
	if at == nil {
		return nil, failure(ErrAbsent,
			"the cupti recorder is not there: %s is not the library that make cupti builds: it has no gs_cupti", path)
	}
	t := C.table_of(at)
	if t.version != C.GS_CUPTI_ABI_VERSION {
		return nil, failure(ErrAbsent,
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
		return "", failure(ErrAbsent,
			"the cupti recorder is not there: no %s in %s; build it with make cupti, or name it by %s", Library,
			strings.Join(place.Folders(), ", "), LibraryEnv)
	case !place.IsFile(path):
		return "", failure(ErrAbsent, "the cupti recorder is not there: %s names %s, which is no file", LibraryEnv, path)
	}
	return path, nil
}

// The names of libcupti, newest first. Until CUDA 12 it had the minor version too.
var cuptiNames = []string{"libcupti.so.13", "libcupti.so.12", "libcupti.so"}

// cuptiPaths lists where libcupti is looked for: only the path that the environment names, or, in this order,
// CUDA_HOME, the folder of the recorder's own library, NVIDIA's wheel where make cuda puts it, the dynamic loader,
// /usr/local/cuda, and NVIDIA's wheels as pip installs them, for CUDA 13 and then 12.
func cuptiPaths() []string {
	if path := os.Getenv(CUPTIEnv); path != "" {
		return []string{path}
	}
	toolkit := func(root string) []string {
		return []string{filepath.Join(root, "extras", "CUPTI", "lib64"), filepath.Join(root, "lib64"),
			filepath.Join(root, "lib")}
	}
	var folders []string
	if root := os.Getenv("CUDA_HOME"); root != "" {
		folders = toolkit(root)
	}
	for _, folder := range place.Folders() {
		folders = append(folders, folder, filepath.Join(filepath.Dir(folder), "build", "cuda", "nvidia", "cu13", "lib"))
	}
	paths := append(existing(folders), cuptiNames...) // for the loader, which knows LD_LIBRARY_PATH and ld.so.conf
	folders = toolkit("/usr/local/cuda")
	for _, wheel := range []string{"cu13", "cuda_cupti"} {
		for _, pattern := range place.SitePackages() {
			found, _ := filepath.Glob(filepath.Join(pattern, "nvidia", wheel, "lib"))
			folders = append(folders, found...)
		}
	}
	return append(paths, existing(folders)...)
}

// existing returns the libcuptis in folders, each once.
func existing(folders []string) []string {
	var paths []string
	seen := map[string]bool{}
	for _, folder := range folders {
		for _, name := range cuptiNames {
			if path := filepath.Join(folder, name); !seen[path] && place.IsFile(path) {
				paths = append(paths, path)
				seen[path] = true
			}
		}
	}
	return paths
}

// lookedFor lists where libcupti was looked for.
func lookedFor() string {
	root := os.Getenv("CUDA_HOME")
	if root == "" {
		root = "CUDA_HOME, which is not set"
	}
	return root + ", the program's lib/, build/cuda, the loader's folders as " + strings.Join(cuptiNames, ", ") +
		", /usr/local/cuda, and the packages of pip"
}

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
)

// Library is the file name of the recorder's own library, which make cupti builds.
const Library = "libgpt2scope_cupti.so"

// Environment variables that name libraries.
const (
	LibraryEnv = "GPT2SCOPE_CUPTI_RECORDER" // the recorder's own
	CUPTIEnv   = "GPT2SCOPE_CUPTI_LIB"      // NVIDIA's libcupti; nothing else is tried then
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
		return nil, failure(ErrAbsent, "the cupti recorder is not there: %s cannot be opened: %s", path, C.GoString(C.dlerror()))
	}
	at := C.dlsym(handle, symbol)
	if at == nil {
		return nil, failure(ErrAbsent, "the cupti recorder is not there: %s is not the library that make cupti builds: it has no gs_cupti", path)
	}
	t := C.table_of(at)
	if t.version != C.GS_CUPTI_ABI_VERSION {
		return nil, failure(ErrAbsent, "the cupti recorder is not there: %s has interface version %d, the program needs %d; build both anew (make build cupti)", path, t.version, C.GS_CUPTI_ABI_VERSION)
	}
	return t, nil
}

// find returns the path of the recorder's library: what the environment names, or
// the first that is there of the places beside the program.
func find() (string, error) {
	if path := os.Getenv(LibraryEnv); path != "" {
		if !isFile(path) {
			return "", failure(ErrAbsent, "the cupti recorder is not there: %s names %s, which is no file", LibraryEnv, path)
		}
		return path, nil
	}
	folders := ownFolders()
	for _, folder := range folders {
		if path := filepath.Join(folder, Library); isFile(path) {
			return path, nil
		}
	}
	return "", failure(ErrAbsent, "the cupti recorder is not there: no %s in %s; build it with make cupti, or name it by %s", Library, strings.Join(folders, ", "), LibraryEnv)
}

// ownFolders are those of the project's libraries: beside the program, in lib/
// there, in ../lib from there, in ./lib.
func ownFolders() []string {
	var folders []string
	if program, err := os.Executable(); err == nil {
		if real, err := filepath.EvalSymlinks(program); err == nil {
			program = real
		}
		at := filepath.Dir(program)
		folders = append(folders, at, filepath.Join(at, "lib"), filepath.Join(filepath.Dir(at), "lib"))
	}
	if here, err := filepath.Abs("lib"); err == nil {
		folders = append(folders, here)
	}
	return folders
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// The names of libcupti, newest first. Until CUDA 12 it had the minor version too.
var cuptiNames = []string{"libcupti.so.13", "libcupti.so.12", "libcupti.so", "libcupti.so.11.8"}

// cuptiPaths is where libcupti is looked for, in this order: what the environment
// names and nothing else; CUDA_HOME; NVIDIA's wheels, as make cuda puts them beside
// lib/, and as pip does in a virtual environment; what the loader finds by name;
// the usual place of a toolkit.
func cuptiPaths() []string {
	if path := os.Getenv(CUPTIEnv); path != "" {
		return []string{path}
	}
	var folders []string
	toolkit := func(root string) {
		folders = append(folders, filepath.Join(root, "extras", "CUPTI", "lib64"), filepath.Join(root, "lib64"), filepath.Join(root, "lib"))
	}
	if root := os.Getenv("CUDA_HOME"); root != "" {
		toolkit(root)
	}
	for _, folder := range ownFolders() {
		folders = append(folders, filepath.Join(filepath.Dir(folder), "build", "cuda", "nvidia", "cu13", "lib"))
	}
	if venv := os.Getenv("VIRTUAL_ENV"); venv != "" {
		for _, wheel := range []string{"cu13", "cuda_cupti"} { // of CUDA 13, of CUDA 12
			found, _ := filepath.Glob(filepath.Join(venv, "lib", "python3*", "site-packages", "nvidia", wheel, "lib"))
			folders = append(folders, found...)
		}
	}
	paths := existing(folders)
	paths = append(paths, cuptiNames...) // for the loader, which knows LD_LIBRARY_PATH and ld.so.conf
	folders = nil
	toolkit("/usr/local/cuda")
	return append(paths, existing(folders)...)
}

// existing returns the libcuptis in folders, each once.
func existing(folders []string) []string {
	var paths []string
	seen := map[string]bool{}
	for _, folder := range folders {
		for _, name := range cuptiNames {
			if path := filepath.Join(folder, name); !seen[path] && isFile(path) {
				paths = append(paths, path)
				seen[path] = true
			}
		}
	}
	return paths
}

// lookedFor says in words where libcupti was looked for.
func lookedFor() string {
	root := os.Getenv("CUDA_HOME")
	if root == "" {
		root = "CUDA_HOME, which is not set"
	}
	return root + ", build/cuda, the loader's folders as " + strings.Join(cuptiNames, ", ") + ", and /usr/local/cuda"
}

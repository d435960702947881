// Package place finds shared libraries: the project's own, and NVIDIA's as pip installs them.
package place

// #cgo linux LDFLAGS: -ldl
// #include <dlfcn.h>
// #include <stdint.h>
// #include <stdlib.h>
// static uint32_t *table_of(void *symbol) { return ((uint32_t *(*)(void))symbol)(); }
import "C"

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"unsafe"
)

// Program returns the folder of the running program, behind symbolic links; "" where that is not known.
func Program() string {
	program, err := os.Executable()
	if err != nil {
		return ""
	}
	if resolved, err := filepath.EvalSymlinks(program); err == nil {
		program = resolved
	}
	return filepath.Dir(program)
}

// Folders are those of the project's libraries: beside the program, in lib/ there, and in ../lib from there. The folder
// in which one stands is none: who wrote what is in it is not known.
func Folders() []string {
	at := Program()
	if at == "" {
		return nil
	}
	return []string{at, filepath.Join(at, "lib"), filepath.Join(filepath.Dir(at), "lib")}
}

// Library returns the path of one of the project's libraries: what an environment variable names, which is not checked,
// or the first file of that name in Folders. It is "" if there is none.
func Library(variable, name string) string {
	if path := os.Getenv(variable); path != "" {
		return path
	}
	for _, folder := range Folders() {
		if path := filepath.Join(folder, name); IsFile(path) {
			return path
		}
	}
	return ""
}

// Find is [Library] of a library that there must be, which make builds by a target.
func Find(variable, name, target string) (string, error) {
	path := Library(variable, name)
	switch {
	case path == "":
		return "", fmt.Errorf("no %s in %s; build it with make %s, or name it by %s", name, strings.Join(Folders(), ", "),
			target, variable)
	case !IsFile(path):
		return "", fmt.Errorf("%s names %s: there is no such file", variable, path)
	}
	return path, nil
}

// Table opens the library that [Find] finds and returns what a function of it gives: a table that begins with a version,
// which must be the program's.
func Table(variable, name, target, function string, version uint32) (unsafe.Pointer, error) {
	path, err := Find(variable, name, target)
	if err != nil {
		return nil, err
	}
	file, symbol := C.CString(path), C.CString(function)
	defer C.free(unsafe.Pointer(file))
	defer C.free(unsafe.Pointer(symbol))
	handle := C.dlopen(file, C.RTLD_NOW|C.RTLD_LOCAL)
	if handle == nil {
		return nil, fmt.Errorf("%s cannot be opened: %s", path, C.GoString(C.dlerror()))
	}
	at := C.dlsym(handle, symbol)
	if at == nil {
		return nil, fmt.Errorf("%s is not the library that make %s builds: it has no %s", path, target, function)
	}
	table := C.table_of(at)
	if have := uint32(*table); have != version {
		return nil, fmt.Errorf("%s has interface version %d, the program needs %d; build both again (make build %s)", path,
			have, version, target)
	}
	return unsafe.Pointer(table), nil
}

// SitePackages are the folders in which pip puts packages, as patterns of [filepath.Glob]: of the virtual environment
// that is active, of the user, of this checkout, of the system, and of common images.
func SitePackages() []string {
	var patterns []string
	if venv := os.Getenv("VIRTUAL_ENV"); venv != "" {
		patterns = append(patterns, filepath.Join(venv, "lib/python3*/site-packages"))
	}
	if home, err := os.UserHomeDir(); err == nil {
		patterns = append(patterns, filepath.Join(home, ".local/lib/python3*/site-packages"))
	}
	if at := Program(); at != "" {
		patterns = append(patterns, filepath.Join(filepath.Dir(at), ".venv/lib/python3*/site-packages"))
	}
	return append(patterns, "/usr/lib/python3*/*-packages",
		"/usr/local/lib/python3*/*-packages",
		"/opt/*/.venv/lib/python3*/site-packages", "/opt/*/lib/python3*/site-packages")
}

// NVIDIA lists where one of NVIDIA's libraries may be, by its names: only what an environment variable names, or in this
// order CUDA_HOME, beside the program and where make puts wheels, where the dynamic loader looks, the toolkit's usual
// folder, and pip's packages. A pattern says where nothing was found.
func NVIDIA(variable string, names ...string) (paths []string) {
	if path := os.Getenv(variable); path != "" {
		return []string{path}
	}
	in := func(folders ...string) {
		for _, folder := range folders {
			for _, name := range names {
				found, err := filepath.Glob(filepath.Join(folder, name))
				if err != nil || len(found) == 0 {
					found = []string{filepath.Join(folder, name)}
				}
				paths = append(paths, found...)
			}
		}
	}
	toolkit := func(root string) { in(root+"/extras/CUPTI/lib64", root+"/lib64", root+"/lib") }
	if root := os.Getenv("CUDA_HOME"); root != "" {
		toolkit(root)
	}
	in(Folders()...)
	if at := Program(); at != "" {
		in(at+"/../build/cuda/nvidia/*/lib", at+"/../cuda/nvidia/*/lib")
	}
	paths = append(paths, names...)
	toolkit("/usr/local/cuda")
	for _, site := range SitePackages() {
		in(site + "/nvidia/*/lib")
	}
	return paths
}

// IsFile reports whether there is a regular file at a path.
func IsFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

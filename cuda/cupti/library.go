package cupti

/*
#cgo CFLAGS: -std=gnu11 -Wall
#include "recorder.h"
*/
import "C"

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gpt2scope/internal/place"
)

// Library is the file name of the recorder's own library, which make cupti builds.
const Library = "libgpt2scope_cupti.so"

const target = "cupti" // of make

// Environment variables that name libraries.
const (
	LibraryEnv = "GPT2SCOPE_CUPTI_RECORDER" // the recorder's own
	CUPTIEnv   = "GPT2SCOPE_CUPTI_LIB"      // NVIDIA's libcupti, instead of all other places
)

// openTable finds and opens the recorder's library.
func openTable() (*C.gs_cupti_table, error) {
	t, err := place.Table(LibraryEnv, Library, target, "gs_cupti", C.GS_CUPTI_ABI_VERSION)
	if err != nil {
		return nil, absent(err)
	}
	return (*C.gs_cupti_table)(t), nil
}

func absent(err error) error { return failure("the cupti recorder is not there: %v", err) }

// cuptiPaths lists where libcupti may be, newest first, each after a newline. Until CUDA 12 its name had the minor version
// too.
func cuptiPaths() string {
	named := os.Getenv(CUPTIEnv)
	paths := place.NVIDIA(CUPTIEnv, "libcupti.so.13", "libcupti.so.12", "libcupti.so")
	return strings.Join(slices.DeleteFunc(paths, func(path string) bool {
		return path != named && filepath.Base(path) != path && !place.IsFile(path)
	}), "\n")
}

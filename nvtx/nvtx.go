// Package nvtx annotates what the program does, for Nsight Systems and Nsight Compute: ranges with a name, a colour, a
// category and a payload, in the domain "gpt2scope". It follows NVTX version 3 (github.com/NVIDIA/NVTX).
//
// A tool is recognised by environment variables that it sets for the program it starts ([Tool]). Only then is
// libgpt2scope_nvtx opened; else every function here returns after one comparison and allocates nothing.
//
//	runtime.LockOSThread() // push and pop belong to an OS thread
//	nvtx.Push(nvtx.Range{Name: "copy", Color: nvtx.Yellow, Payload: 3})
//	...
//	nvtx.Pop()
//	runtime.UnlockOSThread()
package nvtx

/*
#cgo CFLAGS: -std=gnu11 -Wall
#include <stdlib.h>
#include "nvtx.h"

// Go cannot call through a pointer to a function. Ranges travel as numbers, so that none need be allocated.
static void name_category(const gs_nvtx_table *t, uint32_t id, const char *name) { t->category(id, name); }
static void push(const gs_nvtx_table *t, const char *name, uint32_t color, uint32_t category, int64_t payload) {
	gs_nvtx_range r = {name, color, category, payload};
	t->push(&r);
}
static void pop(const gs_nvtx_table *t) { t->pop(); }
static void leave(int status) { exit(status); }
*/
import "C"

import (
	"fmt"
	"os"
	"unsafe"

	"gpt2scope/internal/place"
)

// Color is 0xAARRGGBB.
type Color uint32

// The colours, by what is done.
const (
	Blue   Color = 0xff3b6fd4 // CPU work
	Green  Color = 0xff2fa14f // GPU work
	Yellow Color = 0xffe0bc1d // transfers
	Red    Color = 0xffd23b3b // measurement and profiling
	Cyan   Color = 0xff1fb5c4 // allocation
)

// NoPayload as a [Range.Payload] sends none.
const NoPayload int64 = C.GS_NVTX_NO_PAYLOAD

// Range has the attributes of a range.
type Range struct {
	Name     string
	Color    Color
	Category uint32 // one that was named, 0 for none
	Payload  int64  // such as a layer or token index; NoPayload for none
}

// Library is the file name of the library that [Active] looks for.
const Library = "libgpt2scope_nvtx.so"

// LibraryEnv names the environment variable that gives the library's path.
const LibraryEnv = "GPT2SCOPE_NVTX_LIB"

// toolVariables are set by tools for the programs that they start. NVTX itself
// follows the first; Nsight Systems and Compute set more of them.
var toolVariables = []string{"NVTX_INJECTION64_PATH", "CUDA_INJECTION64_PATH", "NSYS_PROFILING_SESSION_ID",
	"NV_COMPUTE_PROFILER_PERFWORKS_DIR", "NV_NSIGHT_INJECTION_TRANSPORT_TYPE"}

// The state is made once, before main, and never changed: so it needs no lock.
var (
	table  *C.gs_nvtx_table // nil: not active
	status error
)

func init() {
	if Tool() == "" {
		return
	}
	t, err := place.Table(LibraryEnv, Library, "nvtx", "gs_nvtx", C.GS_NVTX_ABI_VERSION)
	if table = (*C.gs_nvtx_table)(t); err != nil {
		status = fmt.Errorf("NVTX ranges are off, though a tool is attached (%s is set): %w", Tool(), err)
	}
}

// Tool returns the environment variable that shows that a tool, such as nsys or
// ncu, started the program: "" where none did.
func Tool() string {
	for _, name := range toolVariables {
		if os.Getenv(name) != "" {
			return name
		}
	}
	return ""
}

// Exit ends the process. Where a tool is attached it goes the way of C's exit, which runs what the tool left to be done
// at the end: os.Exit would lose what the tool has recorded and not yet written.
func Exit(status int) {
	if Tool() != "" {
		C.leave(C.int(status))
	}
	os.Exit(status)
}

// Active reports whether a tool is attached and the library is open.
func Active() bool { return table != nil }

// Status returns one sentence on why an attached tool sees no ranges. It is nil if the
// tool sees them, or if there is no tool.
func Status() error { return status }

// NameCategory gives a category its name.
func NameCategory(id uint32, name string) {
	if table != nil {
		c := C.CString(name)
		defer C.free(unsafe.Pointer(c))
		C.name_category(table, C.uint32_t(id), c)
	}
}

// Push opens a range inside those open on this OS thread. The goroutine must be locked to its thread until Pop.
func Push(r Range) {
	if table != nil {
		r.push()
	}
}

// push is not inlined, so that the check before it is.
func (r Range) push() {
	name := C.CString(r.Name)
	C.push(table, name, C.uint32_t(r.Color), C.uint32_t(r.Category), C.int64_t(r.Payload))
	C.free(unsafe.Pointer(name))
}

// Pop closes the range that was pushed last on this OS thread.
func Pop() {
	if table != nil {
		C.pop(table)
	}
}

// Package nvtx annotates what the program does, for Nsight Systems and Nsight Compute: ranges with a name, a
// colour, a category and a payload, in a domain of one's own. It follows NVTX version 3 (github.com/NVIDIA/NVTX).
//
// A tool is recognised by environment variables that it sets for the program it starts ([Tool]). Only then is
// libgpt2scope_nvtx opened; else every function here returns after one comparison and allocates nothing. A domain made
// with no tool attached is nil, and all its methods do nothing.
//
//	d := nvtx.NewDomain("mine")
//	name := d.Register("copy")
//	runtime.LockOSThread() // push and pop belong to an OS thread
//	d.Push(nvtx.Event{Message: name, Color: nvtx.Yellow, Payload: 3})
//	...
//	d.Pop()
//	runtime.UnlockOSThread()
package nvtx

/*
#cgo CFLAGS: -std=gnu11 -Wall
#cgo linux LDFLAGS: -ldl
#include <dlfcn.h>
#include <stdlib.h>
#include "nvtx.h"

// Go cannot call through a pointer to a function. Events travel as numbers, so that none need be allocated. So do
// handles: a tool may number them, and to Go's runtime a small number in the place of a pointer is a fault.
static const gs_nvtx_table *table_of(void *symbol) { return ((const gs_nvtx_table *(*)(void))symbol)(); }
static uintptr_t domain_create(const gs_nvtx_table *t, const char *name) { return (uintptr_t)t->domain(name); }
static uintptr_t register_string(const gs_nvtx_table *t, uintptr_t d, const char *text) {
	return (uintptr_t)t->string((void *)d, text);
}
static void name_category(const gs_nvtx_table *t, uintptr_t d, uint32_t id, const char *name) {
	t->category((void *)d, id, name);
}
static void push(const gs_nvtx_table *t, uintptr_t d, uintptr_t s, const char *text, uint32_t color, uint32_t category,
	int64_t payload, int32_t has) {
	gs_nvtx_event e = {(void *)s, text, color, category, payload, has};
	t->push((void *)d, &e);
}
static void pop(const gs_nvtx_table *t, uintptr_t d) { t->pop((void *)d); }
static void leave(int status) { exit(status); }
*/
import "C"

import (
	"fmt"
	"math"
	"os"
	"strings"
	"sync"
	"unsafe"

	"gpt2scope/internal/humanize"
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

// NoPayload as an [Event.Payload] sends none.
const NoPayload int64 = math.MinInt64

// String is a text registered with a domain: cheaper to send than the text.
type String struct {
	handle C.uintptr_t // not a pointer to Go: Nsight Compute counts handles from 0, Nsight Systems from a small number
	text   string
}

// Event has the attributes of a range.
type Event struct {
	Message  String // from Register; where it is zero, Text counts
	Text     string
	Color    Color
	Category uint32 // from Category, 0 for none
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
	if Tool() != "" {
		table, status = open()
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

// open finds and opens the library.
func open() (*C.gs_nvtx_table, error) {
	path, err := find()
	if err != nil {
		return nil, err
	}
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	symbolName := C.CString("gs_nvtx")
	defer C.free(unsafe.Pointer(symbolName))
	handle := C.dlopen(name, C.RTLD_NOW|C.RTLD_LOCAL)
	if handle == nil {
		return nil, fmt.Errorf("NVTX ranges are off: %s cannot be opened: %s", path, C.GoString(C.dlerror()))
	}
	symbol := C.dlsym(handle, symbolName)
	if symbol == nil {
		return nil, fmt.Errorf("NVTX ranges are off: %s is not the library that make nvtx builds: it has no gs_nvtx", path)
	}
	t := C.table_of(symbol)
	if t.version != C.GS_NVTX_ABI_VERSION {
		return nil, fmt.Errorf("NVTX ranges are off: %s has interface version %d, the program needs %d; build both again "+
			"(make build nvtx)", path, t.version, C.GS_NVTX_ABI_VERSION)
	}
	return t, nil
}

// find returns the library's path.
func find() (string, error) {
	path := place.Library(LibraryEnv, Library)
	if path == "" {
		return "", fmt.Errorf("NVTX ranges are off: a tool is attached (%s is set), but there is no %s in %s; build it "+
			"with make nvtx, or name it by %s",
			Tool(), Library, strings.Join(place.Folders(), ", "), LibraryEnv)
	}
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("NVTX ranges are off: %s names %s: %w", LibraryEnv, path, humanize.Cause(err))
	}
	return path, nil
}

// Domain groups ranges under a name. Its methods may be called from several goroutines, and do nothing on a nil domain.
type Domain struct {
	handle C.uintptr_t

	mu         sync.Mutex
	strings    map[string]String
	categories map[string]uint32
}

// NewDomain makes a domain: nil where no tool is attached.
func NewDomain(name string) *Domain {
	if table == nil {
		return nil
	}
	text := C.CString(name)
	defer C.free(unsafe.Pointer(text))
	return &Domain{handle: C.domain_create(table, text), strings: map[string]String{}, categories: map[string]uint32{}}
}

// Register makes a text known to the tool, the first time that it is called with it.
func (d *Domain) Register(text string) String {
	if d == nil {
		return String{}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	s, ok := d.strings[text]
	if !ok {
		c := C.CString(text)
		defer C.free(unsafe.Pointer(c))
		s = String{C.register_string(table, d.handle, c), text}
		d.strings[text] = s
	}
	return s
}

// Category returns the number of a category, which it names the first time.
func (d *Domain) Category(name string) uint32 {
	if d == nil {
		return 0
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	id, ok := d.categories[name]
	if !ok {
		id = uint32(len(d.categories) + 1)
		c := C.CString(name)
		defer C.free(unsafe.Pointer(c))
		C.name_category(table, d.handle, C.uint32_t(id), c)
		d.categories[name] = id
	}
	return id
}

// Push opens a range inside those open on this OS thread. The goroutine must be locked to its thread until Pop.
func (d *Domain) Push(e Event) {
	if d != nil {
		d.push(e)
	}
}

// Pop closes the range that was pushed last on this OS thread.
func (d *Domain) Pop() {
	if d != nil {
		C.pop(table, d.handle)
	}
}

// push is not inlined, so that the check before it is.
func (d *Domain) push(e Event) {
	text := e.text()
	C.push(table, d.handle, e.Message.handle, text, C.uint32_t(e.Color), C.uint32_t(e.Category), C.int64_t(e.Payload),
		e.hasPayload())
	C.free(unsafe.Pointer(text))
}

// text returns a copy of the text for C, nil where a handle is sent in its place.
func (e Event) text() *C.char {
	switch {
	case e.Message.handle != 0:
		return nil
	case e.Message.text != "":
		return C.CString(e.Message.text)
	default:
		return C.CString(e.Text)
	}
}

func (e Event) hasPayload() C.int32_t {
	if e.Payload == NoPayload {
		return 0
	}
	return 1
}

// Package fake builds and controls a libcupti without CUDA, for tests: see cuda/cupti/testdata/fake.c.
package fake

/*
#cgo CFLAGS: -std=gnu11 -Wall
#cgo linux LDFLAGS: -ldl
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>
#include "fake.h"

static void f_reset(gs_fake *f, uint32_t version) { f->reset(version); }
static void f_fail(gs_fake *f, const char *call, int code) { f->fail(call, code); }
static void f_record(gs_fake *f, const gs_cupti_record *r) { f->record(r); }
static uint32_t f_call(gs_fake *f, int driver, uint32_t id, uint64_t start, uint64_t end) { return f->call(driver, id, start, end); }
static void f_node(gs_fake *f, uint64_t node, uint64_t origin) { f->node(node, origin); }
static void f_damage(gs_fake *f) { f->damage(); }
static void f_complete(gs_fake *f) { f->complete(); }
static void f_fatal(gs_fake *f, int code) { f->fatal(code); }

// The program's side of NVTX, without NVIDIA's header: slots that a tool fills.
static void (*slots[2][16])(void);
static void (**table[2][16])(void);
static int module(int32_t id, void (****out)(void), uint32_t *size) {
  const int m = id == 5;
  for (int i = 0; i < 16; i++) table[m][i] = &slots[m][i];
  *out = table[m], *size = 16;
  return id == 1 || id == 5;
}
static const void *export_table(uint32_t id) {
  static const struct {
    size_t size;
    int (*module)(int32_t, void (****)(void), uint32_t *);
  } t = {sizeof(t), module};
  return id == 1 ? &t : NULL;
}
static int inject(const char *path, int nvtx) {
  void *l = dlopen(path, RTLD_NOW);
  void *f = l ? dlsym(l, nvtx ? "InitializeInjectionNvtx2" : "InitializeInjection") : NULL;
  if (!f) return 0;
  return nvtx ? ((int (*)(const void *(*)(uint32_t)))f)(export_table) : ((int (*)(void))f)();
}
static void push(const char *name) { if (slots[0][9]) ((int (*)(const char *))slots[0][9])(name); }
static void pop(void) { if (slots[0][11]) ((int (*)(void))slots[0][11])(); }
// What NVTX's header calls nvtxEventAttributes_t.
typedef struct {
  uint16_t version, size;
  uint32_t category;
  int32_t color_type, color, payload_type, reserved;
  uint64_t payload;
  int32_t message_type;
  const void *message;
} attributes;
static void wide(const wchar_t *text) {
  ((int (*)(const wchar_t *))slots[0][10])(text);
  void *domain = ((void *(*)(const wchar_t *))slots[1][13])(text);
  attributes a = {.message_type = 3, .message = ((void *(*)(void *, const wchar_t *))slots[1][11])(domain, text)};
  ((void (*)(void *, const attributes *))slots[1][1])(domain, &a);
  pop();
}
static void forked(const char *name) {
  if (fork()) return;
  push(name), pop();
  exit(0);
}
*/
import "C"

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"gpt2scope/cuda/cupti"
	"gpt2scope/internal/checkout"
	"gpt2scope/internal/require"
	"gpt2scope/internal/stub"
)

// Libraries are what a test opens.
type Libraries struct {
	CUPTI    string // the fake
	Recorder string // the program's own
}

// required is a test that fails where it would be skipped.
type required struct{ testing.TB }

func (t required) Skipf(format string, args ...any) { t.Fatalf(format, args...) }

// Build builds both libraries. The test is skipped where there is no C compiler, or no source, or the headers of CUPTI are
// not on the machine; with GPT2SCOPE_REQUIRE_CUPTI it fails there.
func Build(t testing.TB) Libraries {
	t.Helper()
	if os.Getenv("GPT2SCOPE_REQUIRE_CUPTI") != "" {
		t = required{t}
	}
	out, err := headers()
	if err != nil {
		t.Skipf("the headers of CUPTI are not on this machine (%v): set CUDA_HOME, or run make cupti, which fetches them", err)
	}
	flags, folder := strings.Fields(string(out)), checkout.Path("cuda/cupti")
	version := require.Value(filepath.Rel(folder, filepath.Join(flags[1], "cupti_version.h")))(t)
	return Libraries{stub.Compiled(t, folder, []string{"testdata/fake.c"}, []string{"testdata/fake/fake.h", "recorder.h", version}, flags...),
		stub.Compiled(t, folder, []string{"../../csrc/cupti.c", "../../csrc/inject.c"}, []string{"recorder.h", version}, flags...)}
}

// headers prints the flags for the headers of CUPTI.
var headers = sync.OnceValues(func() ([]byte, error) {
	return exec.Command(checkout.Path("csrc/build-cupti.sh"), "--headers").Output()
})

// Control is the other side of the fake: what happens, and what CUPTI saw.
type Control struct {
	fake *C.gs_fake
	*Seen
}

// Seen is what CUPTI saw of the program, 1 for yes: fake.h says more.
type Seen struct{ Dirty, Subscribed, Enabled, SystemThreads, AllSyncs, NamesSubscriber int32 }

// Open controls the fake at a path, and makes it a version. The program under test opens the same file, and so the same
// instance.
func Open(t testing.TB, path string, version uint32) *Control {
	t.Helper()
	f := (*C.gs_fake)(stub.Symbol(t, path, "fake"))
	C.f_reset(f, C.uint32_t(version))
	return &Control{f, (*Seen)(unsafe.Pointer(&f.seen))}
}

// Fail makes a function of CUPTI fail with a CUptiResult; "cuptiActivityEnable 38" only for that kind of activity. ""
// ends it.
func (c *Control) Fail(call string, code int) {
	name := C.CString(call)
	defer C.free(unsafe.Pointer(name))
	C.f_fail(c.fake, name, C.int(code))
}

var names struct {
	sync.Mutex
	kept map[string]*C.char
}

// Record puts a record of work of the GPU, or another that is not of a call, into CUPTI's buffers, if its kind is
// enabled. CUPTI keeps names forever.
func (c *Control) Record(w cupti.Record) {
	names.Lock()
	if names.kept == nil {
		names.kept = map[string]*C.char{}
	}
	name := names.kept[w.Name]
	if name == nil && w.Name != "" {
		name = C.CString(w.Name)
		names.kept[w.Name] = name
	}
	names.Unlock()
	r := C.gs_cupti_record{
		kind: C.int32_t(w.Kind), device: C.uint32_t(w.Device), context: C.uint32_t(w.Context), stream: C.uint32_t(w.Stream),
		start: C.uint64_t(w.Start), end: C.uint64_t(w.End), correlation: C.uint64_t(w.Correlation), node: C.uint64_t(w.Node),
		bytes: C.uint64_t(w.Bytes), name: name, registers: C.uint32_t(w.Registers),
		static_shared: C.int32_t(w.StaticShared), dynamic_shared: C.int32_t(w.DynamicShared),
		process: C.uint32_t(w.Process), thread: C.uint32_t(w.Thread), detail: C.uint32_t(w.Detail),
		copy_kind: C.uint8_t(w.CopyKind), from: C.uint8_t(w.From), to: C.uint8_t(w.To),
	}
	for i := range 3 {
		r.grid[i], r.block[i] = C.int32_t(w.Grid[i]), C.int32_t(w.Block[i])
	}
	C.f_record(c.fake, &r)
}

// Call is an API call of this OS thread, with what is pushed on it, and returns its correlation id. Of the runtime 211
// is cudaLaunchKernel_v7000 and 311 cudaGraphLaunch_v10000, of the driver 307 is cuLaunchKernel.
func (c *Control) Call(driver bool, id uint32, start, end int64) uint64 {
	d := C.int(0)
	if driver {
		d = 1
	}
	return uint64(C.f_call(c.fake, d, C.uint32_t(id), C.uint64_t(start), C.uint64_t(end)))
}

// Node makes a node of a graph on this OS thread, or clones one.
func (c *Control) Node(node, origin uint64) {
	C.f_node(c.fake, C.uint64_t(node), C.uint64_t(origin))
}

// Damage puts a record of no kind into the buffer.
func (c *Control) Damage() { C.f_damage(c.fake) }

// Complete gives the buffer back that CUPTI has.
func (c *Control) Complete() { C.f_complete(c.fake) }

// Fatal makes CUPTI tell of a fatal error.
func (c *Control) Fatal(code int) { C.f_fatal(c.fake, C.int(code)) }

// Program is a program that uses CUDA and NVTX, which load what the environment names, as NVIDIA's libraries do.
type Program struct{}

// Begin starts CUDA.
func (Program) Begin() { inject("CUDA_INJECTION64_PATH", 0) }

// NVTX uses NVTX for the first time.
func (Program) NVTX() { inject("NVTX_INJECTION64_PATH", 1) }

func inject(variable string, nvtx C.int) {
	if os.Getenv(variable) == "" {
		return
	}
	path := C.CString(os.Getenv(variable))
	defer C.free(unsafe.Pointer(path))
	if C.inject(path, nvtx) == 0 {
		panic(variable + ": its library cannot be used")
	}
}

// Range does something in a range of this OS thread.
func (Program) Range(name string, do func()) {
	text := C.CString(name)
	defer C.free(unsafe.Pointer(text))
	C.push(text)
	do()
	C.pop()
}

// Wide makes a range in wide characters, and within it a mark of such a text, registered in such a domain.
func (Program) Wide(text string) {
	list := append([]rune(text), 0)
	C.wide((*C.wchar_t)(unsafe.Pointer(&list[0])))
}

// Fork forks without exec; the child makes a range and exits.
func (Program) Fork(name string) { C.forked(C.CString(name)) }

// Exit ends the process as C programs do.
func (Program) Exit(status int) { C.exit(C.int(status)) }

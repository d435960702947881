package nvtx_test

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"gpt2scope/nvtx"
)

const sayStatus = "GPT2SCOPE_NVTX_TEST_STATUS"

func TestMain(m *testing.M) {
	if os.Getenv(sayStatus) != "" { // a process of its own: what is attached is decided at the start
		if err := nvtx.Status(); err != nil {
			os.Stdout.WriteString(err.Error())
		}
		d := nvtx.NewDomain("test")
		d.Push(event(d))
		d.Pop()
		deep(d, 100)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func event(d *nvtx.Domain) nvtx.Event {
	return nvtx.Event{Message: d.Register("range"), Text: "range", Color: nvtx.Blue, Category: d.Category("Op"),
		Payload: 1}
}

// deep pushes ranges inside one another, under so many calls that the stack is moved on the way.
//
//go:noinline
func deep(d *nvtx.Domain, calls int) byte {
	var frame [1024]byte
	name := d.Register("range")
	if calls > 0 {
		frame[calls] = deep(d, calls-1)
	}
	d.Push(nvtx.Event{Message: name, Payload: 1})
	d.Pop()
	return frame[calls/2]
}

// status returns the status of a process that a tool seems to have started.
func status(t *testing.T, env ...string) string {
	t.Helper()
	c := exec.Command(os.Args[0])
	c.Dir = t.TempDir()
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "GPT2SCOPE_") && !strings.HasPrefix(e, "NVTX_") {
			c.Env = append(c.Env, e)
		}
	}
	c.Env = append(append(c.Env, sayStatus+"=1"), env...)
	var said strings.Builder
	c.Stderr = &said
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%v: %.300s", err, said.String())
	}
	return string(out)
}

func TestStatus(t *testing.T) {
	text := filepath.Join(t.TempDir(), "text.so")
	if err := os.WriteFile(text, []byte("no library"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		env  []string
		want []string // nil: nothing to say
	}{
		{"no tool", nil, nil},
		{"library missing", []string{"NVTX_INJECTION64_PATH=/x.so"}, []string{"NVTX_INJECTION64_PATH", nvtx.Library, "make nvtx"}},
		{"Nsight Systems without NVTX", []string{"NSYS_PROFILING_SESSION_ID=1"}, []string{"NSYS_PROFILING_SESSION_ID"}},
		{"named library missing", []string{"NVTX_INJECTION64_PATH=/x.so", nvtx.LibraryEnv + "=/nowhere.so"}, []string{"/nowhere.so", "no such file"}},
		{"no library", []string{"CUDA_INJECTION64_PATH=/x.so", nvtx.LibraryEnv + "=" + text}, []string{text, "cannot be opened"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := status(t, c.env...)
			if (got == "") != (c.want == nil) || strings.Contains(got, "\n") {
				t.Fatalf("status is %q", got)
			}
			for _, want := range c.want {
				if !strings.Contains(got, want) {
					t.Errorf("status %q does not say %q", got, want)
				}
			}
		})
	}
}

// numbering is a library whose handles are numbers, and its tool's complaints.
const numbering = `#include "nvtx.h"
#include <stdio.h>
#include <stdlib.h>

static void check(int right, const char *what) {
	if (!right) fprintf(stderr, "%s\n", what), exit(7);
}
static int strings;
static void *domain(const char *name) { return (void *)12; }
static void *string(void *d, const char *text) { return check(d == (void *)12, "string: domain"), (void *)(uintptr_t)++strings; }
static void category(void *d, uint32_t id, const char *name) { check(d == (void *)12 && id == 1, "category"); }
static void push(void *d, const gs_nvtx_event *e) { check(d == (void *)12 && e->string == (void *)1 && !e->text && e->payload == 1, "push"); }
static void pop(void *d) { check(d == (void *)12, "pop"); }

GS_NVTX_API const gs_nvtx_table *gs_nvtx(void) {
	static const gs_nvtx_table table = {GS_NVTX_ABI_VERSION, domain, string, category, push, pop};
	return &table;
}
`

// TestNumbers: handles that are small numbers, as Nsight Systems gives, come back as
// they are, and the Go runtime does not take them for pointers.
func TestNumbers(t *testing.T) {
	cc := cmp.Or(os.Getenv("CC"), "cc")
	if _, err := exec.LookPath(cc); err != nil {
		t.Skip(err)
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	source, library := filepath.Join(t.TempDir(), "numbering.c"), filepath.Join(t.TempDir(), "numbering.so")
	if err := os.WriteFile(source, []byte(numbering), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(cc, "-shared", "-fPIC", "-I", here, "-o", library, source).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if got := status(t, "NVTX_INJECTION64_PATH=/x.so", nvtx.LibraryEnv+"="+library); got != "" {
		t.Error(got)
	}
}

// The variable keeps calls from being removed.
var domain = nvtx.NewDomain("benchmark")

func BenchmarkOff(b *testing.B) {
	if nvtx.Active() {
		b.Skip("a tool is attached")
	}
	e := event(domain)
	for b.Loop() {
		domain.Push(e)
		domain.Pop()
	}
}

// TestOffAllocatesNothing: with no tool a range allocates nothing; BenchmarkOff measures its time.
func TestOffAllocatesNothing(t *testing.T) {
	if nvtx.Active() {
		t.Skip("a tool is attached")
	}
	e := event(domain)
	if n := testing.AllocsPerRun(100, func() {
		domain.Push(e)
		domain.Pop()
	}); n != 0 {
		t.Errorf("a range allocates %v times", n)
	}
}

package nvtx_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"gpt2scope/internal/checkout"
	"gpt2scope/internal/require"
	"gpt2scope/internal/stub"
	"gpt2scope/nvtx"
)

const sayStatus = "GPT2SCOPE_NVTX_TEST_STATUS"

func TestMain(m *testing.M) {
	if os.Getenv(sayStatus) != "" { // a process of its own: what is attached is decided at the start
		if err := nvtx.Status(); err != nil {
			os.Stdout.WriteString(err.Error())
		}
		nvtx.NameCategory(2, "Op")
		nvtx.Push(event)
		nvtx.Pop()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

var event = nvtx.Range{Name: "range", Color: nvtx.Blue, Category: 2, Payload: 1}

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
	require.NoError(t, os.WriteFile(text, []byte("no library"), 0o600))
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

// strict is a library that ends the process if a range is not the test's.
const strict = `#include "nvtx.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(int right, const char *what) {
	if (!right) fprintf(stderr, "%s\n", what), exit(7);
}
static int open_ranges;
static void category(uint32_t id, const char *name) { check(id == 2 && !strcmp(name, "Op"), "category"); }
static void push(const gs_nvtx_range *r) {
	check(!open_ranges++ && !strcmp(r->name, "range") && r->color == 0xff3b6fd4 && r->category == 2 && r->payload == 1, "push");
}
static void pop(void) { check(!--open_ranges, "pop"); }

GS_NVTX_API const gs_nvtx_table *gs_nvtx(void) {
	static const gs_nvtx_table table = {GS_NVTX_ABI_VERSION, category, push, pop};
	return &table;
}
`

// TestLibrary: what is pushed comes to the library as it is.
func TestLibrary(t *testing.T) {
	folder := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(folder, "strict.c"), []byte(strict), 0o600))
	library := stub.Compiled(t, folder, []string{"strict.c"}, nil, "-I", checkout.Path("nvtx"))
	if got := status(t, "NVTX_INJECTION64_PATH=/x.so", nvtx.LibraryEnv+"="+library); got != "" {
		t.Error(got)
	}
}

func BenchmarkOff(b *testing.B) {
	if nvtx.Active() {
		b.Skip("a tool is attached")
	}
	for b.Loop() {
		nvtx.Push(event)
		nvtx.Pop()
	}
}

// TestOffAllocatesNothing: with no tool a range allocates nothing; BenchmarkOff measures its time.
func TestOffAllocatesNothing(t *testing.T) {
	if nvtx.Active() {
		t.Skip("a tool is attached")
	}
	if n := testing.AllocsPerRun(100, func() {
		nvtx.Push(event)
		nvtx.Pop()
	}); n != 0 {
		t.Errorf("a range allocates %v times", n)
	}
}

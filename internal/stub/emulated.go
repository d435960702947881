package stub

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"gpt2scope/internal/checkout"
)

// Emulated builds a stub that computes and runs the decode kernels of a width themselves on the CPU
// (csrc/emulator), on so many SMs, with macros such as "GS_DECODE_STUCK" defined, and makes it the test's CUDA
// library. The test is skipped where there is no C++ compiler or no source, or the processor is another one than
// x86-64.
func Emulated(t testing.TB, width, blocks int, defines ...string) {
	t.Helper()
	if runtime.GOARCH != "amd64" {
		t.Skip("the emulator of kernels is for x86-64")
	}
	cxx := strings.Fields(os.Getenv("CXX"))
	if len(cxx) == 0 {
		cxx = []string{"c++"}
	}
	for _, compiler := range []string{cxx[0], "cc"} {
		if _, err := exec.LookPath(compiler); err != nil {
			t.Skipf("the emulator of kernels needs a C and a C++ compiler: %v", err)
		}
	}
	csrc := checkout.Path("csrc")
	if _, err := os.Stat(filepath.Join(csrc, "emulator")); err != nil {
		t.Skipf("the emulator of kernels needs its source: %v", err)
	}
	folder := t.TempDir()
	// Kernels have unrolled loops and attributes that only nvcc knows.
	flags := []string{"-std=c++17", "-O2", "-g1", "-Wall", "-Wno-unknown-pragmas", "-Wno-attributes", "-Wno-unused", "-fPIC", "-fvisibility=hidden", "-fno-strict-aliasing",
		"-DGS_EMULATED", "-I", filepath.Join(csrc, "emulator")}
	for _, d := range defines {
		flags = append(flags, "-D"+d)
	}
	kernels := func(types string) []string {
		return []string{fmt.Sprintf(`-DEMULATED="../decode_%s_%d.cu"`, types, width), "-c", "emulator/width.cc"}
	}
	jobs := [][]string{
		kernels("bf16"), kernels("f32"), {"-c", "emulator/emulator.cc"}, {"-c", "emulator/runtime.cc"},
		{"-Dgs_decode=emulated_decode", "-Dgs_decode_one=emulated_decode_one", "-Dgs_decode_work=emulated_decode_work", "-x", "c++", "-c", "decode.cu"},
	}
	var objects []string
	var all sync.WaitGroup
	for i, job := range jobs {
		object := filepath.Join(folder, fmt.Sprint(i, ".o"))
		objects = append(objects, object)
		all.Go(func() {
			c := exec.Command(cxx[0], append(append(append(cxx[1:len(cxx):len(cxx)], flags...), job...), "-o", object)...)
			c.Dir = csrc
			if text, err := c.CombinedOutput(); err != nil {
				t.Errorf("building the emulator: %v\n%s", err, text)
			}
		})
	}
	all.Wait()
	if t.Failed() {
		t.FailNow()
	}
	library := filepath.Join(folder, "libgpt2scope_cuda.so")
	stub := filepath.Join(folder, "stub.o")
	run := func(name string, args ...string) {
		if text, err := exec.Command(name, args...).CombinedOutput(); err != nil {
			t.Fatalf("building the emulator: %v\n%s", err, text)
		}
	}
	run("cc", "-std=gnu11", "-O2", "-g1", "-Wall", "-Wextra", "-Werror", "-fPIC", "-fvisibility=hidden", "-I", checkout.Path("cuda"), "-DSTUB_COMPUTES", "-DSTUB_EMULATES",
		fmt.Sprintf("-DSTUB_BLOCKS=%d", blocks), "-c", checkout.Path("cuda/testdata/stub.c"), "-o", stub)
	run(cxx[0], append(append(append(cxx[1:len(cxx):len(cxx)], "-shared", "-Wl,-z,defs", "-o", library, stub), objects...), "-lpthread", "-lm")...)
	t.Setenv("GPT2SCOPE_CUDA_LIB", library)
	NVRTC(t)
	BLAS(t)
	Open(t, library).Reset()
}

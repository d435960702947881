package exec

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"gpt2scope/internal/checkout"
	"gpt2scope/internal/stub"
)

// emulator returns the C++ compiler for kernels on the CPU, with its flags, the folder of their sources, and all of
// them. The test is skipped where there is no C++ compiler or no source, or the processor is another one than x86-64.
func emulator(t testing.TB) (cxx []string, csrc string, sources []string) {
	t.Helper()
	if runtime.GOARCH != "amd64" {
		t.Skip("the emulator of kernels is for x86-64")
	}
	if cxx = strings.Fields(os.Getenv("CXX")); len(cxx) == 0 {
		cxx = []string{"c++"}
	}
	for _, compiler := range []string{cxx[0], "cc"} {
		if _, err := exec.LookPath(compiler); err != nil {
			t.Skipf("the emulator of kernels needs a C and a C++ compiler: %v", err)
		}
	}
	csrc = checkout.Path("csrc")
	if _, err := os.Stat(filepath.Join(csrc, "emulator")); err != nil {
		t.Skipf("the emulator of kernels needs its source: %v", err)
	}
	sources = []string{checkout.Path("cuda/testdata/stub.c"), checkout.Path("cuda/testdata/compute.h"), checkout.Path("cuda/testdata/stub.h"),
		checkout.Path("cuda/abi.h")}
	for _, pattern := range []string{"*.cuh", "decode*.cu", "*_wgmma.cu", "linear_rows.cu", "emulator/*"} {
		files, err := filepath.Glob(filepath.Join(csrc, pattern))
		must(t, err)
		sources = append(sources, files...)
	}
	// Kernels have unrolled loops and attributes that only nvcc knows.
	cxx = append(cxx, "-std=c++17", "-O1", "-Wall", "-Wno-unknown-pragmas", "-Wno-attributes", "-Wno-unused", "-fPIC",
		"-fvisibility=hidden", "-fno-strict-aliasing",
		"-DGS_EMULATED", "-I", "emulator")
	return slices.Clip(cxx), csrc, sources
}

// TestEmulatedPrompts: the kernels of prompts for Hopper's tensor cores give what plain sums do, on CPUs: every tile,
// with edges, and attention to a prompt and to what is cached.
func TestEmulatedPrompts(t *testing.T) {
	cxx, csrc, sources := emulator(t)
	program := stub.Built(t, ".exe", csrc, append(cxx, "-fno-extern-tls-init", "-ffunction-sections", "-Wl,--gc-sections",
		"emulator/prompts.cc", "emulator/emulator.cc", "emulator/runtime.cc", "-lpthread", "-lm"), sources)
	if text, err := exec.Command(program).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, text)
	}
}

// emulated builds a stub that computes and runs the decode kernels of a width of 384 themselves on the CPU
// (csrc/emulator), on so many SMs, and makes it the test's CUDA library.
func emulated(t testing.TB, blocks int) {
	t.Helper()
	cxx, csrc, sources := emulator(t)
	source := sources[0]
	cc := []string{"cc", "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-fPIC", "-fvisibility=hidden", "-I",
		"../cuda", "-DSTUB_COMPUTES", "-DSTUB_EMULATES",
		fmt.Sprintf("-DSTUB_BLOCKS=%d", blocks), "-c", source}
	var objects []string
	for _, job := range [][]string{
		append(cxx, "-c", "emulator/width.cc"),
		append(cxx, "-c", "emulator/emulator.cc"),
		append(cxx, "-c", "emulator/runtime.cc"),
		append(cxx, "-Dgs_persistent=emulated_persistent", "-Dgs_persistent_one=emulated_persistent_one",
			"-Dgs_persistent_work=emulated_persistent_work", "-x", "c++", "-c", "decode.cu"),
		cc,
	} {
		objects = append(objects, stub.Built(t, ".o", csrc, job, sources))
	}
	link := append(append(append(cxx, "-shared", "-Wl,-z,defs"), objects...), "-lpthread", "-lm")
	library := stub.Copied(t, stub.Built(t, ".so", csrc, link, nil))
	t.Setenv("GPT2SCOPE_CUDA_LIB", library)
	stub.NVRTC(t)
	stub.BLAS(t)
	stub.Open(t, library).Reset()
}

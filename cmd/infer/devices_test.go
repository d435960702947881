package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func textOf(d devices) string { var b bytes.Buffer; d.write(&b); return b.String() }

func contains(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("lacks %q:\n%s", part, text)
		}
	}
}

// Without a library: one sentence, and the CPU all the same.
func TestDevicesWithoutCUDA(t *testing.T) {
	path := filepath.Join(t.TempDir(), "none.so")
	t.Setenv("GPT2SCOPE_CUDA_LIB", path)
	t.Setenv("GPT2SCOPE_CPU", "portable")
	e := mustInfer(t, "devices")
	if e.stderr != "" {
		t.Errorf("stderr %q", e.stderr)
	}
	contains(t, e.stdout, "CUDA cannot be used: the CUDA library is not built (make cuda builds it); looked at "+path, "\ncpu     ", "kernels       portable (of portable",
		"--dtype bf16  decode widened to float32; prefill widened to float32, ", "--dtype q8    decode by PMADDWD, or plain C; prefill widened")
	var d devices
	unmarshal(t, mustInfer(t, "devices", "--json").stdout, &d)
	if !strings.Contains(d.Lacks, path) || d.CPU.Processor == "" || d.CPU.Cores < 1 || d.CPU.Version != "portable" || d.CPU.Versions[0] != "portable" || d.BLAS != 0 {
		t.Errorf("%+v", d)
	}
	t.Setenv("GPT2SCOPE_CPU", "abacus")
	contains(t, mustInfer(t, "devices").stdout, `cannot be used kernel version "abacus"`)
}

// NVIDIA's tools are named with their versions, or with where they are to be had.
func TestDevicesTools(t *testing.T) {
	dir := t.TempDir()
	for name, says := range map[string]string{"nsys": "NVIDIA Nsight Systems version 2025.3.2.474-253236389321v0", "ncu": "Copyright 2018\nVersion 2025.3.1.0 (build 36398880)",
		"nvcc": "broken"} {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\necho '"+says+"'\n"), 0o755))
	}
	t.Setenv("PATH", dir+":/bin:/usr/bin")
	contains(t, mustInfer(t, "devices").stdout, "\ntools\n", "nsys          2025.3.2.474 "+dir+"/nsys\n", "ncu           2025.3.1.0 "+dir, "does not say its version")
	t.Setenv("PATH", t.TempDir())
	t.Setenv("CUDA_HOME", "")
	t.Chdir(t.TempDir())
	linked := os.Symlink(dir, "bin") // which is nobody's toolkit
	if got := findTool(t.Context(), "nsys", "get it there"); linked != nil || got.Path == "bin/nsys" || got.Path == "" && got.Lacks != "not found; get it there" {
		t.Errorf("%+v, %v", got, linked)
	}
}

func TestDevicesOfCUDA(t *testing.T) {
	withStub(t, "STUB_DEVICES=2")
	d := findDevices()
	if len(d.GPUs) != 2 || d.GPUs[1].Device != "cuda:1" || d.GPUs[1].PCI != "0000:1a:00.0" || d.CUDA != "13.0" || d.Library != "13.0" || d.Lacks != "" || d.BLAS != 130002 {
		t.Errorf("%+v", d)
	}
	contains(t, textOf(d), "cuda:0  Stub 0\n", "cuda:1  Stub 1\n", "compute capability 9.0, 4 SMs, L2 50.0 MiB\n", "512.0 MiB free of 1.00 GiB\n",
		"CUDA of the driver 13.0, of the library 13.0, cuBLASLt 130002\n")
	t.Setenv("GPT2SCOPE_CUBLASLT", "/nowhere/lt.so")
	stubBLAS := os.Getenv("GPT2SCOPE_CUBLASLT")
	withStub(t)
	t.Setenv("GPT2SCOPE_CUBLASLT", stubBLAS)
	contains(t, textOf(findDevices()), "no matrix products of more than 8 rows, but those of prompts on Hopper: cuBLASLt of CUDA 13 was not found", "/nowhere/lt.so")
}

// GPUs that CUDA cannot use are shown with the reason.
func TestDevicesUnusable(t *testing.T) {
	withStub(t, "STUB_MAJOR=7")
	d := findDevices()
	if len(d.GPUs) != 1 || !strings.Contains(d.GPUs[0].Lacks, "7.0; 7.5 or later") {
		t.Errorf("%+v", d)
	}
	contains(t, textOf(d), "cannot be used GPU 0 (Stub 0) has compute capability 7.0")
	withStub(t, "STUB_DEVICES=0")
	contains(t, textOf(findDevices()), "CUDA cannot be used: there is no GPU 0: CUDA sees none\n")
}

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gpt2scope/cuda/nvml"
)

// fakeNVML sees these GPUs.
type fakeNVML struct {
	gpus   []nvml.GPU
	closed int
}

func (f *fakeNVML) Driver() string   { return "580.95.05" }
func (f *fakeNVML) CUDA() int        { return 13020 }
func (f *fakeNVML) GPUs() []nvml.GPU { return f.gpus }
func (f *fakeNVML) Close()           { f.closed++ }
func noNVML() (management, error)    { return nil, errors.New("there is no NVML here") }
func textOf(d devices) string        { var b bytes.Buffer; d.write(&b); return b.String() }
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
	if err := json.Unmarshal([]byte(mustInfer(t, "devices", "--json").stdout), &d); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(d.Lacks, path) || d.CPU.Name == "" || d.CPU.Cores < 1 || d.CPU.InUse != "portable" || d.CPU.Kernels[0] != "portable" || d.BLAS != 0 {
		t.Errorf("%+v", d)
	}
	t.Setenv("GPT2SCOPE_CPU", "abacus")
	contains(t, mustInfer(t, "devices").stdout, `cannot be used kernel version "abacus"`)
}

// With CUDA and without NVML.
func TestDevicesOfCUDA(t *testing.T) {
	withStub(t, "STUB_DEVICES=2")
	d := findDevices(noNVML)
	if len(d.GPUs) != 2 || d.GPUs[1].Device != "cuda:1" || d.GPUs[1].PCI != "0000:1a:00.0" || d.CUDA != "13.0" || d.Library != "13.0" || d.Lacks != "" || d.BLAS != 130002 {
		t.Errorf("%+v", d)
	}
	contains(t, textOf(d), "cuda:0  Stub 0\n", "cuda:1  Stub 1\n", "compute capability 9.0, 4 SMs, L2 50.0 MiB\n", "512.0 MiB free of 1.00 GiB\n",
		"no clocks, link, power and temperature: there is no NVML here\n", "CUDA of the driver 13.0, CUDA of the library 13.0, cuBLASLt 130002\n")
	for _, absent := range []string{"SM clock", "PCIe link", "power  ", "held down", "CUDA cannot"} {
		if strings.Contains(textOf(d), absent) {
			t.Errorf("%q is shown and not known:\n%s", absent, textOf(d))
		}
	}
	t.Setenv("GPT2SCOPE_CUBLASLT", "/nowhere/lt.so")
	stubBLAS := os.Getenv("GPT2SCOPE_CUBLASLT")
	withStub(t)
	t.Setenv("GPT2SCOPE_CUBLASLT", stubBLAS)
	contains(t, textOf(findDevices(noNVML)), "no matrix products of more than 8 rows: cuBLASLt of CUDA 13 was not found", "/nowhere/lt.so")
}

// Readings of NVML are joined by PCI address, in whichever order they come.
func TestDevicesOfBoth(t *testing.T) {
	withStub(t, "STUB_DEVICES=2")
	full := nvml.GPU{PCI: "0000:1a:00.0", Name: "Other", Major: 9, MemoryTotal: 5, SMClock: 345, SMClockMax: 1980, MemClock: 2619, MemClockMax: 3201, Throttle: []string{"idle", "power cap"},
		LinkGen: 1, LinkGenMax: 5, LinkWidth: 8, LinkWidthMax: 16, Power: 75.4, PowerLimit: 700, Temperature: 31}
	first, hidden := nvml.GPU{PCI: "0000:19:00.0", SMClock: 1755, Throttle: []string{}}, nvml.GPU{PCI: "0000:4c:00.0", Name: "Hidden", Major: 8, Minor: 6, MemoryTotal: 1 << 34, MemoryFree: 1 << 33}
	fake := &fakeNVML{gpus: []nvml.GPU{full, hidden, first}}
	d := findDevices(func() (management, error) { return fake, nil })
	if len(d.GPUs) != 3 || fake.closed != 1 {
		t.Fatalf("%d GPUs, closed %d times", len(d.GPUs), fake.closed)
	}
	if g := d.GPUs[0]; g.Device != "cuda:0" || g.SMClock != 1755 || g.SMs != 4 {
		t.Errorf("%+v", g)
	}
	if g := d.GPUs[1]; g.Name != "Stub 1" || g.MemoryTotal != 1<<30 || g.Temperature != 31 || g.Capability != "9.0" || g.L2 != 50<<20 {
		t.Errorf("%+v", g)
	}
	if g := d.GPUs[2]; g.Device != "" || g.Name != "Hidden" || g.Capability != "8.6" || g.SMs != 0 {
		t.Errorf("%+v", g)
	}
	contains(t, textOf(d), "GPU     Hidden\n", "345 MHz now, 1980 MHz at most\n", "2619 MHz now, 3201 MHz at most\n", "held down by  idle, power cap\n", "held down by  none\n",
		"generation 1 x8 now, generation 5 x16 at most\n", "75 W now, 700 W at most\n", "31 °C\n", "NVIDIA driver 580.95.05, CUDA of the driver 13.0, CUDA of the library 13.0")
}

// GPUs that CUDA cannot use are shown with the reason.
func TestDevicesUnusable(t *testing.T) {
	withStub(t, "STUB_MAJOR=7")
	d := findDevices(noNVML)
	if len(d.GPUs) != 1 || !strings.Contains(d.GPUs[0].Lacks, "7.0; 8.0 or later") {
		t.Errorf("%+v", d)
	}
	contains(t, textOf(d), "cannot be used GPU 0 (Stub 0) has compute capability 7.0")
	withStub(t, "STUB_DEVICES=0")
	contains(t, textOf(findDevices(noNVML)), "CUDA cannot be used: there is no GPU 0: CUDA sees none\n")
	withStub(t, "STUB_DRIVER=0")
	d = findDevices(func() (management, error) {
		return &fakeNVML{gpus: []nvml.GPU{{PCI: "0000:19:00.0", Name: "Alone", Major: 9}}}, nil
	})
	if len(d.GPUs) != 1 || d.GPUs[0].Name != "Alone" || d.CUDA != "13.2" || d.Library != "13.0" || !strings.Contains(d.Lacks, "no NVIDIA driver") {
		t.Errorf("%+v", d)
	}
}

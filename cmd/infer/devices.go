//go:build cgo

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"gpt2scope/cmd/infer/cli"
	"gpt2scope/cpu"
	"gpt2scope/cuda"
	"gpt2scope/internal/humanize"
	"gpt2scope/internal/lazyregexp"
)

func newDevices() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "devices",
		Short: "Show the GPUs and the CPU, and what is missing to use them",
		Long: `devices shows each GPU with its memory, processors and clocks, and the CPU with its vector extensions and
kernels, what is missing if CUDA cannot be used, and whether nsys, ncu and nvcc are there.`,
		Example:     `  infer devices --json`,
		Annotations: map[string]string{cli.UsesKey: "quiet"},
		RunE: func(c *cobra.Command, _ []string) error {
			d := findDevices()
			for _, t := range tools {
				d.Tools = append(d.Tools, findTool(c.Context(), t[0], t[1]))
			}
			return cli.Print(c, asJSON, d, d.write)
		},
	}
	cli.AddJSON(c, &asJSON)
	return c
}

// devices is what a machine has.
type devices struct {
	GPUs    []gpuDevice `json:"gpus"`
	CUDA    string      `json:"driver_cuda,omitempty"`          // the newest CUDA that it supports
	Library string      `json:"library_cuda,omitempty"`         // the one that our library was built with
	Lacks   string      `json:"cuda_unavailable,omitempty"`     // why it cannot be used
	BLAS    uint64      `json:"cublaslt,omitempty"`             // cublasLtGetVersion
	NoBLAS  string      `json:"cublaslt_unavailable,omitempty"` // why it cannot be used
	CPU     cpuDevice   `json:"cpu"`
	Tools   []tool      `json:"tools"` // of NVIDIA
}

// tool is a program of NVIDIA that records or compiles.
type tool struct {
	Name    string `json:"name"`
	Path    string `json:"path,omitempty"`
	Version string `json:"version,omitempty"`
	Lacks   string `json:"unavailable,omitempty"` // why it cannot be used, and where it is to be had
}

// tools are the names of NVIDIA's programs, and where they are to be had.
var tools = [][2]string{
	{"nsys", "Nsight Systems records runs: developer.nvidia.com/nsight-systems"},
	{"ncu", "Nsight Compute counts in kernels: developer.nvidia.com/nsight-compute"},
	{"nvcc", "the CUDA toolkit compiles kernels; 'make cuda' gets it by itself"},
}

var versionOf = lazyregexp.New(`(?i)(?:version|release) (\d+(?:\.\d+)+)`)

// findTool asks a tool in PATH, in CUDA_HOME or in the usual place of the toolkit for its version.
func findTool(ctx context.Context, name, source string) tool {
	t := tool{Name: name}
	const usual = "/usr/local/cuda"
	for _, path := range []string{name, filepath.Join(cmp.Or(os.Getenv("CUDA_HOME"), usual), "bin", name), filepath.Join(usual, "bin", name)} {
		if found, err := exec.LookPath(path); err == nil {
			t.Path = found
			break
		}
	}
	if t.Path == "" {
		t.Lacks = "not found; " + source
		return t
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	said, err := exec.CommandContext(ctx, t.Path, "--version").CombinedOutput()
	if m := versionOf().FindStringSubmatch(string(said)); m != nil {
		t.Version = m[1]
	} else {
		t.Lacks = fmt.Sprintf("does not say its version (%v)", cmp.Or(err, errors.New("no number")))
	}
	return t
}

// gpuDevice is one GPU.
type gpuDevice struct {
	Device      string `json:"device"`                // for --device
	Lacks       string `json:"unavailable,omitempty"` // why it cannot be used
	Name        string `json:"name,omitempty"`
	Capability  string `json:"compute_capability,omitempty"`
	PCI         string `json:"pci,omitempty"` // address: "0000:19:00.0"
	SMs         int    `json:"sms,omitempty"`
	L2          int    `json:"l2_bytes,omitempty"`
	MemoryTotal uint64 `json:"memory_bytes,omitempty"`
	MemoryFree  uint64 `json:"memory_free_bytes,omitempty"`
	SMClock     int    `json:"sm_clock_max_mhz,omitempty"`
	MemClock    int    `json:"memory_clock_max_mhz,omitempty"`
}

// cpuDevice is the CPU.
type cpuDevice struct {
	cpu.Features
	Cores int    `json:"physical_cores"`        // that this process may use
	Lacks string `json:"unavailable,omitempty"` // why it cannot be used
}

func findDevices() devices {
	d := devices{GPUs: []gpuDevice{}, CPU: findCPU()}
	var lib *cuda.Library
	if lib, d.Library, d.Lacks = openCUDA(); lib != nil {
		if err := d.ask(lib); err != nil {
			d.Lacks = err.Error()
		}
	}
	return d
}

// openCUDA opens the CUDA library. It returns the CUDA version that the library was built with, if that is known, and
// otherwise what is missing.
func openCUDA() (lib *cuda.Library, version, lacks string) {
	lib, err := cuda.Open()
	if err == nil {
		_, runtime := lib.Versions()
		return lib, cudaVersion(runtime), ""
	}
	if missing := new(cuda.UnavailableError); errors.As(err, &missing) {
		version = cudaVersion(missing.Runtime)
	}
	return nil, version, err.Error()
}

// ask adds what CUDA reports.
func (d *devices) ask(lib *cuda.Library) error {
	driver, _ := lib.Versions()
	d.CUDA = cudaVersion(driver)
	n, err := lib.DeviceCount()
	if err != nil {
		return err
	}
	if n == 0 {
		_, err := lib.Device(0) // says so
		return err
	}
	for i := range n {
		g := gpuDevice{Device: fmt.Sprintf("cuda:%d", i)}
		dev, err := lib.Device(i)
		if err != nil {
			g.Lacks = err.Error()
			d.GPUs = append(d.GPUs, g)
			continue
		}
		info := dev.Info()
		g.Name, g.PCI, g.Capability = info.Name, info.PCI, fmt.Sprintf("%d.%d", info.Major, info.Minor)
		g.SMs, g.L2, g.SMClock, g.MemClock = info.Processors, info.L2Bytes, info.ClockKHz/1000, info.MemoryClockKHz/1000
		if g.MemoryFree, g.MemoryTotal, err = dev.Memory(); err != nil {
			g.Lacks, g.MemoryTotal = err.Error(), info.MemoryBytes
		}
		d.GPUs = append(d.GPUs, g)
	}
	if err := lib.OpenBLAS(); err != nil {
		d.NoBLAS = err.Error()
	}
	d.BLAS = lib.BLASVersion()
	return nil
}

func findCPU() cpuDevice {
	f, err := cpu.DetectFeatures()
	f.Processor = cmp.Or(f.Processor, runtime.GOARCH)
	f.Extensions = slices.Concat([]string{}, f.Extensions)
	c := cpuDevice{Features: f, Cores: cpu.Threads(0)}
	if err != nil {
		c.Lacks = err.Error()
	}
	return c
}

func (d devices) write(w io.Writer) {
	for _, g := range d.GPUs {
		fmt.Fprintf(w, "%-7s %s\n", g.Device, cmp.Or(g.Name, "a GPU"))
		fact(w, "cannot be used", g.Lacks)
		if g.SMs > 0 {
			fact(w, "processor", fmt.Sprintf("compute capability %s, %d SMs, L2 %s", g.Capability, g.SMs,
				humanize.Size(int64(g.L2))))
			fact(w, "memory", humanize.Size(int64(g.MemoryFree))+" free of "+humanize.Size(int64(g.MemoryTotal)))
			fact(w, "clocks", fmt.Sprintf("at most %d MHz of the SMs, %d MHz of the memory", g.SMClock, g.MemClock))
			fact(w, "PCI address", g.PCI)
		}
		fmt.Fprintln(w)
	}
	if d.Lacks != "" {
		fmt.Fprintf(w, "CUDA cannot be used: %s\n", d.Lacks)
	}
	if d.NoBLAS != "" {
		fmt.Fprintf(w, "no matrix products of more than %d rows, but those of prompts on Hopper: %s\n", cuda.GEMVRows, d.NoBLAS)
	}
	if d.CUDA != "" {
		fmt.Fprintf(w, "CUDA of the driver %s, of the library %s, cuBLASLt %d\n", d.CUDA, d.Library, d.BLAS)
	}
	c := d.CPU
	fmt.Fprintf(w, "\ncpu     %s\n", c.Processor)
	fact(w, "model", c.Model)
	fact(w, "cores", fmt.Sprint(c.Cores))
	fact(w, "extensions", cmp.Or(strings.Join(c.Extensions, ", "), "none"))
	fact(w, "cannot be used", c.Lacks)
	if c.Lacks == "" {
		fact(w, "kernels", fmt.Sprintf("%s (of %s)", c.Version, strings.Join(c.Versions, ", ")))
		fact(w, "--dtype f32", "few rows, as in decode, multiply-adds; prefill "+c.F32)
		fact(w, "--dtype bf16", "decode widened to float32; prefill "+c.BF16)
		q8 := "decode and prefill by " + c.Q8
		if c.Q8Widened {
			q8 = "decode by " + c.Q8 + "; prefill widened to float32"
		}
		fact(w, "--dtype q8", q8)
	}
	fmt.Fprintln(w, "\ntools")
	for _, t := range d.Tools {
		fact(w, t.Name, cmp.Or(strings.TrimSpace(t.Version+" "+t.Path), t.Lacks))
		if t.Path != "" {
			fact(w, "", t.Lacks)
		}
	}
}

// fact writes a line about a device, if it is known.
func fact(w io.Writer, name, value string) {
	if value != "" {
		fmt.Fprintf(w, "  %-13s %s\n", name, value)
	}
}

// cudaVersion is [cuda.VersionText], but writes 0 as "".
func cudaVersion(v int) string {
	if v == 0 {
		return ""
	}
	return cuda.VersionText(v)
}

// versionJSON is what "infer version --json" prints.
type versionJSON struct {
	cli.BuildInfo
	CUDA      string `json:"cuda_library,omitempty"`      // the CUDA version that the library was built with
	CUDALacks string `json:"cuda_unavailable,omitempty"`  // why the library cannot be used
	CUDAABI   int    `json:"cuda_library_abi,omitempty"`  // of the interface between program and library
	CUDAPath  string `json:"cuda_library_path,omitempty"` // of the library in use
}

func newVersion() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "version",
		Short: "Show which build this is: commit, date, Go, and the CUDA library",
		Long: `version shows the commit that the program was built from, when it was built and by which Go, and the CUDA
version of the library beside it. The first line is also in recordings and results.`,
		Example:     `  infer version --json`,
		Annotations: map[string]string{cli.UsesKey: "quiet"},
		RunE: func(c *cobra.Command, _ []string) error {
			v := versionJSON{BuildInfo: cli.ThisBuild(), CUDAABI: int(cuda.ABIVersion)}
			var lib *cuda.Library
			if lib, v.CUDA, v.CUDALacks = openCUDA(); lib != nil {
				v.CUDAPath = lib.Path()
			}
			return cli.Print(c, asJSON, v, func(w io.Writer) {
				fmt.Fprintf(w, "infer %s\n", cli.Version())
				for _, line := range [][2]string{{"commit", v.Commit}, {"commit time", v.CommitTime}, {"built", v.Built},
					{"CUDA library", v.CUDA}, {"library file", v.CUDAPath}, {"no CUDA", v.CUDALacks}} {
					if line[1] != "" {
						fmt.Fprintf(w, "%-13s %s\n", line[0], line[1])
					}
				}
			})
		},
	}
	cli.AddJSON(c, &asJSON)
	return c
}

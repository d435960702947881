package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"gpt2scope/auto"
	"gpt2scope/cmd/infer/cli"
	"gpt2scope/cpu"
	"gpt2scope/cuda"
	"gpt2scope/cuda/nvml"
	"gpt2scope/internal/humanize"
)

// newDevices makes "infer devices".
func newDevices(m *cli.ModelFlags) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "devices",
		Short: "Show the GPUs and the CPU, and what is missing to use them",
		Long: `devices shows each GPU with its memory, its clocks now and what limits them, its
PCIe link, power and temperature, and the CPU with its vector extensions and the version
of the kernels that runs on it. If CUDA cannot be used, a line says what is missing.
Below stands what earlier runs on this machine took, by which a run chooses its device.

Clocks, link and power are those of this moment: an idle GPU lowers all three.`,
		Example: `  infer devices
  infer devices --json`,
		Annotations: map[string]string{cli.UsesKey: "quiet"},
		RunE: func(c *cobra.Command, _ []string) error {
			d := findDevices(openManagement)
			d.findHistory(m)
			if asJSON {
				return cli.WriteJSON(c.OutOrStdout(), d)
			}
			var b bytes.Buffer
			d.write(&b)
			return cli.WriteOutput(c.OutOrStdout(), b.Bytes())
		},
	}
	cli.AddFlags(c.Flags(), "Output", func(f *pflag.FlagSet) {
		f.BoolVar(&asJSON, "json", false, "print one JSON object")
	})
	return c
}

// management is what is used of NVML.
type management interface {
	Driver() string
	CUDA() int
	GPUs() []nvml.GPU
	Close()
}

func openManagement() (management, error) {
	n, err := nvml.Open()
	if err != nil {
		return nil, err
	}
	return n, nil
}

// devices is what a machine has.
type devices struct {
	GPUs    []gpuDevice `json:"gpus"`
	Driver  string      `json:"driver,omitempty"`       // its version
	CUDA    string      `json:"driver_cuda,omitempty"`  // the newest CUDA that it supports
	Library string      `json:"library_cuda,omitempty"` // the one that our library was built with
	Lacks   string      `json:"cuda_unavailable,omitempty"`
	BLAS    uint64      `json:"cublaslt,omitempty"` // cublasLtGetVersion
	NoBLAS  string      `json:"cublaslt_unavailable,omitempty"`
	NoNVML  string      `json:"nvml_unavailable,omitempty"`
	CPU     cpuDevice   `json:"cpu"`
	History historyJSON `json:"history"`
}

// historyJSON is what earlier runs told.
type historyJSON struct {
	Path    string       `json:"path,omitempty"`
	Lacks   string       `json:"unavailable,omitempty"` // why it, or a part of it, does not count
	Devices []auto.Known `json:"devices"`
}

// gpuDevice is one GPU, as CUDA and NVML see it. Unknown fields are zero.
type gpuDevice struct {
	Device     string `json:"device,omitempty"` // for --device; "" if CUDA does not see it
	Lacks      string `json:"unavailable,omitempty"`
	Capability string `json:"compute_capability,omitempty"`
	SMs        int    `json:"sms,omitempty"`
	L2         int    `json:"l2_bytes,omitempty"`
	nvml.GPU
}

// cpuDevice is the CPU.
type cpuDevice struct {
	Name       string   `json:"name"`
	Model      string   `json:"model,omitempty"` // family and model, by which processors of one name differ
	Cores      int      `json:"physical_cores"`  // that this process may use
	Extensions []string `json:"extensions"`
	Kernels    []string `json:"kernels"` // versions that run here, slowest first
	InUse      string   `json:"kernels_in_use,omitempty"`
	Q8         string   `json:"q8_products,omitempty"`   // by which instructions a decode step multiplies 8-bit weights
	F32        string   `json:"f32_products,omitempty"`  // how float32 weights are multiplied with many rows
	BF16       string   `json:"bf16_products,omitempty"` // how weights held as bfloat16 are multiplied with many rows
	Lacks      string   `json:"unavailable,omitempty"`
}

// findDevices asks CUDA, NVML and the processor.
func findDevices(openNVML func() (management, error)) devices {
	d := devices{GPUs: []gpuDevice{}, CPU: findCPU()}
	var readings []nvml.GPU
	if n, err := openNVML(); err != nil {
		d.NoNVML = err.Error()
	} else {
		defer n.Close()
		readings, d.Driver = n.GPUs(), n.Driver()
		if v := n.CUDA(); v > 0 {
			d.CUDA = cudaVersion(v)
		}
	}
	if lib, err := cuda.Open(); err != nil {
		d.Lacks = err.Error()
		var missing *cuda.UnavailableError
		if errors.As(err, &missing) && missing.Runtime > 0 {
			d.Library = cudaVersion(missing.Runtime)
		}
	} else if err := d.ask(lib); err != nil {
		d.Lacks = err.Error()
	}
	for _, r := range readings {
		i := slices.IndexFunc(d.GPUs, func(g gpuDevice) bool { return g.PCI != "" && g.PCI == r.PCI })
		if i < 0 { // hidden from CUDA, or CUDA cannot be used
			d.GPUs = append(d.GPUs, gpuDevice{GPU: r, Capability: capability(r.Major, r.Minor)})
			continue
		}
		// What both know is CUDA's: that is what a program gets.
		g := d.GPUs[i].GPU
		r.Name, r.MemoryTotal, r.MemoryFree = g.Name, g.MemoryTotal, g.MemoryFree
		r.SMClockMax, r.MemClockMax = cmp.Or(r.SMClockMax, g.SMClockMax), cmp.Or(r.MemClockMax, g.MemClockMax)
		d.GPUs[i].GPU = r
	}
	return d
}

// findHistory adds what earlier runs told.
func (d *devices) findHistory(m *cli.ModelFlags) {
	d.History.Devices = []auto.Known{}
	path, err := auto.Path()
	if err != nil {
		d.History.Lacks = err.Error()
		return
	}
	h, err := auto.Read(path, m.Time())
	if err != nil {
		d.History.Lacks = err.Error()
	}
	d.History.Path = path
	d.History.Devices = append(d.History.Devices, h.Known()...)
}

// ask adds what CUDA reports.
func (d *devices) ask(lib *cuda.Library) error {
	driver, runtime, err := lib.Versions()
	if err != nil {
		return err
	}
	d.CUDA, d.Library = cudaVersion(driver), cudaVersion(runtime)
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
		g.Capability, g.SMs, g.L2 = capability(info.Major, info.Minor), info.Processors, info.L2Bytes
		g.Name, g.PCI, g.SMClockMax, g.MemClockMax = info.Name, info.PCI, info.ClockKHz/1000, info.MemoryClockKHz/1000
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

func capability(major, minor int) string {
	if major == 0 {
		return ""
	}
	return fmt.Sprintf("%d.%d", major, minor)
}

func findCPU() cpuDevice {
	f, err := cpu.DetectFeatures()
	c := cpuDevice{Name: f.Processor, Model: f.Model, Cores: cpu.Threads(0), Extensions: f.Extensions, Kernels: f.Versions, InUse: f.Version, F32: f.F32, BF16: f.BF16, Q8: f.Q8}
	if c.Name == "" {
		c.Name = runtime.GOARCH
	}
	if c.Extensions == nil {
		c.Extensions = []string{}
	}
	if err != nil {
		c.Lacks = err.Error()
	}
	return c
}

// write writes all for people: a heading for each device, a line for each fact.
func (d devices) write(w io.Writer) {
	fact := func(name, format string, args ...any) {
		fmt.Fprintf(w, "  %-13s %s\n", name, fmt.Sprintf(format, args...))
	}
	for i, g := range d.GPUs {
		if i > 0 {
			fmt.Fprintln(w)
		}
		name := g.Name
		if name == "" {
			name = "a GPU"
		}
		if g.Device == "" {
			fmt.Fprintf(w, "GPU     %s\n", name)
		} else {
			fmt.Fprintf(w, "%-7s %s\n", g.Device, name)
		}
		if g.Lacks != "" {
			fact("cannot be used", "%s", g.Lacks)
		}
		g.write(fact)
	}
	if len(d.GPUs) > 0 {
		fmt.Fprintln(w)
	}
	if d.Lacks != "" {
		fmt.Fprintf(w, "CUDA cannot be used: %s\n", d.Lacks)
	}
	if d.NoBLAS != "" {
		fmt.Fprintf(w, "no matrix products of more than %d rows: %s\n", cuda.GEMVRows, d.NoBLAS)
	}
	if d.NoNVML != "" {
		fmt.Fprintf(w, "no clocks, link, power and temperature: %s\n", d.NoNVML)
	}
	var versions []string
	for _, v := range []struct{ name, version string }{{"NVIDIA driver", d.Driver}, {"CUDA of the driver", d.CUDA}, {"CUDA of the library", d.Library}} {
		if v.version != "" {
			versions = append(versions, v.name+" "+v.version)
		}
	}
	if d.BLAS > 0 {
		versions = append(versions, fmt.Sprintf("cuBLASLt %d", d.BLAS))
	}
	if len(versions) > 0 {
		fmt.Fprintln(w, strings.Join(versions, ", "))
	}
	c := d.CPU
	fmt.Fprintf(w, "\ncpu     %s\n", c.Name)
	if c.Model != "" {
		fact("model", "%s", c.Model)
	}
	fact("cores", "%d", c.Cores)
	fact("extensions", "%s", orNone(c.Extensions))
	if c.Lacks != "" {
		fact("cannot be used", "%s", c.Lacks)
	} else {
		fact("kernels", "%s (of %s)", c.InUse, strings.Join(c.Kernels, ", "))
		fact("--dtype f32", "few rows, as in decode, multiply-adds; prefill %s", c.F32)
		fact("--dtype bf16", "decode widened to float32; prefill %s", c.BF16)
		fact("--dtype q8", "decode by %s; prefill widened to float32", c.Q8)
	}
	d.History.write(w)
}

// write writes what earlier runs told, a line for each device; nothing if there were none.
func (h historyJSON) write(w io.Writer) {
	if h.Lacks != "" {
		fmt.Fprintf(w, "\n%s\n", h.Lacks)
	}
	if len(h.Devices) == 0 {
		return
	}
	fmt.Fprintln(w, "\nearlier runs, from which --device auto predicts; weights, prompt and tokens: their times over those that it predicts without earlier runs")
	for _, k := range h.Devices {
		facts := []string{cli.Count(k.Runs, "run"), "last " + k.Last.Format(time.DateOnly)}
		for _, f := range []struct {
			name, format string
			value        float64
		}{{"start", "%s %.3g ms", k.Open}, {"first start", "%s %.3g ms", k.First}, {"weights", "%s x %.2f", k.Load}, {"prompt", "%s x %.2f", k.Prefill}, {"tokens", "%s x %.2f", k.Decode}} {
			if f.value > 0 {
				facts = append(facts, fmt.Sprintf(f.format, f.name, f.value))
			}
		}
		if k.Busy > 0 {
			facts = append(facts, fmt.Sprintf("%d on a busy machine, which count little", k.Busy))
		}
		fmt.Fprintf(w, "  %s: %s\n", k.Device, strings.Join(facts, ", "))
	}
}

// write writes what is known of a GPU.
func (g gpuDevice) write(fact func(name, format string, args ...any)) {
	var kind []string
	if g.Capability != "" {
		kind = append(kind, "compute capability "+g.Capability)
	}
	if g.SMs > 0 {
		kind = append(kind, cli.Count(g.SMs, "SM"))
	}
	if g.L2 > 0 {
		kind = append(kind, "L2 "+humanize.Size(int64(g.L2)))
	}
	if len(kind) > 0 {
		fact("processor", "%s", strings.Join(kind, ", "))
	}
	if g.PCI != "" {
		fact("PCI address", "%s", g.PCI)
	}
	if g.MemoryTotal > 0 {
		fact("memory", "%s free of %s", humanize.Size(int64(g.MemoryFree)), humanize.Size(int64(g.MemoryTotal)))
	}
	pair := func(name, format string, now, most any, known, limited bool) {
		switch {
		case known && limited:
			fact(name, format+" now, "+format+" at most", now, most)
		case known:
			fact(name, format+" now", now)
		case limited:
			fact(name, format+" at most", most)
		}
	}
	pair("SM clock", "%d MHz", g.SMClock, g.SMClockMax, g.SMClock > 0, g.SMClockMax > 0)
	pair("memory clock", "%d MHz", g.MemClock, g.MemClockMax, g.MemClock > 0, g.MemClockMax > 0)
	if g.Throttle != nil {
		fact("held down by", "%s", orNone(g.Throttle))
	}
	link := func(generation, width int) string { return fmt.Sprintf("generation %d x%d", generation, width) }
	pair("PCIe link", "%s", link(g.LinkGen, g.LinkWidth), link(g.LinkGenMax, g.LinkWidthMax), g.LinkGen > 0, g.LinkGenMax > 0)
	pair("power", "%.0f W", g.Power, g.PowerLimit, g.Power > 0, g.PowerLimit > 0)
	if g.Temperature > 0 {
		fact("temperature", "%d °C", g.Temperature)
	}
}

// orNone joins words.
func orNone(words []string) string {
	if len(words) == 0 {
		return "none"
	}
	return strings.Join(words, ", ")
}

// cudaVersion writes 13000 as 13.0.
func cudaVersion(v int) string { return fmt.Sprintf("%d.%d", v/1000, v%1000/10) }

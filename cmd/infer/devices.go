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
	"gpt2scope/internal/table"
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
	Driver  string      `json:"driver,omitempty"`               // its version
	CUDA    string      `json:"driver_cuda,omitempty"`          // the newest CUDA that it supports
	Library string      `json:"library_cuda,omitempty"`         // the one that our library was built with
	Lacks   string      `json:"cuda_unavailable,omitempty"`     // why it cannot be used
	BLAS    uint64      `json:"cublaslt,omitempty"`             // cublasLtGetVersion
	NoBLAS  string      `json:"cublaslt_unavailable,omitempty"` // why it cannot be used
	NoNVML  string      `json:"nvml_unavailable,omitempty"`     // why it cannot be used
	CPU     cpuDevice   `json:"cpu"`
	History historyJSON `json:"history"` // what earlier runs told --device auto
}

// historyJSON is what earlier runs told.
type historyJSON struct {
	Path    string       `json:"path,omitempty"`        // of the file
	Lacks   string       `json:"unavailable,omitempty"` // why it, or a part of it, does not count
	Devices []auto.Known `json:"devices"`               // those used last first
}

// gpuDevice is one GPU, as CUDA and NVML see it. Unknown fields are zero.
type gpuDevice struct {
	Device     string `json:"device,omitempty"`      // for --device; "" if CUDA does not see it
	Lacks      string `json:"unavailable,omitempty"` // why it cannot be used
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
	Extensions []string `json:"extensions"`      // of the instruction set
	Kernels    []string `json:"kernels"`         // versions that run here, slowest first
	InUse      string   `json:"kernels_in_use,omitempty"`
	Q8         string   `json:"q8_products,omitempty"`   // by which instructions a decode step multiplies 8-bit weights
	F32        string   `json:"f32_products,omitempty"`  // how float32 weights are multiplied with many rows
	BF16       string   `json:"bf16_products,omitempty"` // how weights held as bfloat16 are multiplied with many rows
	Lacks      string   `json:"unavailable,omitempty"`   // why it cannot be used
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
	for _, g := range d.GPUs {
		fmt.Fprintf(w, "%-7s %s\n", cmp.Or(g.Device, "GPU"), table.Plain(cmp.Or(g.Name, "a GPU")))
		g.write(w)
		fmt.Fprintln(w)
	}
	for _, l := range []struct{ what, why string }{
		{"CUDA cannot be used", d.Lacks}, {fmt.Sprintf("no matrix products of more than %d rows", cuda.GEMVRows), d.NoBLAS},
		{"no clocks, link, power and temperature", d.NoNVML},
	} {
		if l.why != "" {
			fmt.Fprintf(w, "%s: %s\n", l.what, l.why)
		}
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
	fact(w, c.Model != "", "model", c.Model)
	fact(w, true, "cores", c.Cores)
	fact(w, true, "extensions", orNone(c.Extensions))
	fact(w, c.Lacks != "", "cannot be used", c.Lacks)
	if c.Lacks == "" {
		fact(w, true, "kernels", fmt.Sprintf("%s (of %s)", c.InUse, strings.Join(c.Kernels, ", ")))
		fact(w, true, "--dtype f32", "few rows, as in decode, multiply-adds; prefill "+c.F32)
		fact(w, true, "--dtype bf16", "decode widened to float32; prefill "+c.BF16)
		fact(w, true, "--dtype q8", "decode by "+c.Q8+"; prefill widened to float32")
	}
	d.History.write(w)
}

// fact writes a line about a device, if the value is known.
func fact(w io.Writer, known bool, name string, value any) {
	if known {
		fmt.Fprintf(w, "  %-13s %v\n", name, value)
	}
}

// write writes what earlier runs told, a row for each device; nothing if there were none.
func (h historyJSON) write(w io.Writer) {
	if h.Lacks != "" {
		fmt.Fprintf(w, "\n%s\n", h.Lacks)
	}
	if len(h.Devices) == 0 {
		return
	}
	fmt.Fprintln(w, "\nHistory used by --device auto; weights, prompt and tokens: measured / predicted time")
	known := func(v float64, format string) string {
		if v == 0 {
			return "-"
		}
		return fmt.Sprintf(format, v)
	}
	table.Lines(w, table.LeftFirst, "device\truns\tof them busy\tlast\tstart ms\tfirst start ms\tweights\tprompt\ttokens", h.Devices, func(k auto.Known) string {
		return fmt.Sprintf("%s\t%d\t%d\t%s\t%s\t%s\t%s\t%s\t%s", k.Device, k.Runs, k.Busy, k.Last.Format(time.DateOnly),
			known(k.Open, "%.3g"), known(k.First, "%.3g"), known(k.Load, "%.2f"), known(k.Prefill, "%.2f"), known(k.Decode, "%.2f"))
	})
}

// write writes what is known of a GPU.
func (g gpuDevice) write(w io.Writer) {
	fact(w, g.Lacks != "", "cannot be used", g.Lacks)
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
	fact(w, len(kind) > 0, "processor", strings.Join(kind, ", "))
	fact(w, g.PCI != "", "PCI address", g.PCI)
	fact(w, g.MemoryTotal > 0, "memory", humanize.Size(int64(g.MemoryFree))+" free of "+humanize.Size(int64(g.MemoryTotal)))
	pair := func(name, now, most string, known, limited bool) {
		var parts []string
		if known {
			parts = append(parts, now+" now")
		}
		if limited {
			parts = append(parts, most+" at most")
		}
		fact(w, known || limited, name, strings.Join(parts, ", "))
	}
	clock := func(mhz int) string { return fmt.Sprintf("%d MHz", mhz) }
	link := func(generation, width int) string { return fmt.Sprintf("generation %d x%d", generation, width) }
	watts := func(w float64) string { return fmt.Sprintf("%.0f W", w) }
	pair("SM clock", clock(g.SMClock), clock(g.SMClockMax), g.SMClock > 0, g.SMClockMax > 0)
	pair("memory clock", clock(g.MemClock), clock(g.MemClockMax), g.MemClock > 0, g.MemClockMax > 0)
	fact(w, g.Throttle != nil, "held down by", orNone(g.Throttle))
	pair("PCIe link", link(g.LinkGen, g.LinkWidth), link(g.LinkGenMax, g.LinkWidthMax), g.LinkGen > 0, g.LinkGenMax > 0)
	pair("power", watts(g.Power), watts(g.PowerLimit), g.Power > 0, g.PowerLimit > 0)
	fact(w, g.Temperature > 0, "temperature", fmt.Sprintf("%d °C", g.Temperature))
}

// orNone joins words.
func orNone(words []string) string { return cmp.Or(strings.Join(words, ", "), "none") }

// cudaVersion writes 13000 as 13.0.
func cudaVersion(v int) string { return fmt.Sprintf("%d.%d", v/1000, v%1000/10) }

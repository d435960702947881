// Package nvml reads what NVIDIA's management library reports of GPUs: clocks and why they are low, the PCIe link,
// power, temperature, versions. The library comes with the driver; it is opened at run time through
// github.com/NVIDIA/go-nvml, and needs neither CUDA nor a context on the GPU.
//
//	n, err := nvml.Open()
//	if err != nil { ... } // one sentence: what is missing
//	defer n.Close()
//	for _, g := range n.GPUs() {
//		fmt.Println(g.Name, g.SMClock, "of", g.SMClockMax, "MHz")
//	}
//
// GPUs are known by their PCI address, as cuda.DeviceInfo gives it: NVML counts them in another order than CUDA, and
// ignores CUDA_VISIBLE_DEVICES.
package nvml

import (
	"fmt"
	"slices"
	"strings"
	"sync"
)

// GPU is what was read of one GPU. A reading that the GPU or the driver does not have is 0, or "" or nil.
type GPU struct {
	PCI         string `json:"pci"` // "0000:19:00.0"
	Name        string `json:"name"`
	UUID        string `json:"-"` // "GPU-12345678-..."
	Major       int    `json:"-"` // compute capability
	Minor       int    `json:"-"`
	MemoryTotal uint64 `json:"memory_bytes,omitempty"`
	MemoryFree  uint64 `json:"memory_free_bytes,omitempty"`
	SMClock     int    `json:"sm_clock_mhz,omitempty"` // now
	SMClockMax  int    `json:"sm_clock_max_mhz,omitempty"`
	MemClock    int    `json:"memory_clock_mhz,omitempty"` // now
	MemClockMax int    `json:"memory_clock_max_mhz,omitempty"`
	// why the clocks are lower than they could be; empty: nothing holds them, nil: not known
	Throttle     []string `json:"throttle_reasons"`
	LinkGen      int      `json:"pcie_generation,omitempty"`     // now: an idle GPU may lower it
	LinkGenMax   int      `json:"pcie_generation_max,omitempty"` // of this GPU in this machine
	LinkWidth    int      `json:"pcie_lanes,omitempty"`
	LinkWidthMax int      `json:"pcie_lanes_max,omitempty"`
	Power        float64  `json:"power_w,omitempty"`
	PowerLimit   float64  `json:"power_limit_w,omitempty"`
	Temperature  int      `json:"temperature_c,omitempty"`
	Processes    int      `json:"-"` // that compute on the GPU now, as far as the system shows them
}

// NVML is the opened library. It may be used from any goroutine.
type NVML struct {
	api     api
	devices []device

	use    sync.RWMutex // held to read while the library is called; Close waits for calls of other goroutines
	closed bool
}

// api is the part of the library that is used; tests have another.
type api interface {
	open() error
	close()
	driver() string // its version, "" where not known
	cuda() int      // 1000 * major + 10 * minor, 0 where not known
	devices() ([]device, error)
}

// device is one GPU. A reading that fails returns false.
type device interface {
	pci() (domain, bus, device uint32, ok bool)
	name() (name, uuid string, ok bool)
	capability() (major, minor int, ok bool)
	memory() (free, total uint64, ok bool)
	number(reading) (uint64, bool)
}

// reading is one of the numbers read of a GPU.
type reading int

const (
	smClock     reading = iota // MHz
	smClockMax                 // MHz
	memClock                   // MHz
	memClockMax                // MHz
	throttle                   // a set of throttles
	linkGen
	linkGenMax
	linkWidth
	linkWidthMax
	power       // mW
	powerLimit  // mW
	temperature // degrees Celsius
	energy      // mJ since the driver was loaded
	powerNow    // mW at this moment, where power is an average of the last second
	utilisation // percent of the time of the last sample in which a kernel ran
	memoryUsed  // bytes
	processes   // that have a CUDA context
	readings
)

// throttles are the words for the bits of nvmlClocksEventReasons, which nvml.h explains.
var throttles = []struct {
	bit  uint64
	word string
}{
	{1 << 0, "idle"},
	{1 << 1, "application clocks"},
	{1 << 2, "power cap"},
	{1 << 3, "hardware slowdown"},
	{1 << 4, "sync boost"},
	{1 << 5, "thermal slowdown"},
	{1 << 6, "hardware thermal slowdown"},
	{1 << 7, "power brake"},
	{1 << 8, "display clocks"},
	{1 << 9, "board limit"},
	{1 << 10, "reliability"},
}

// Slows tells whether a reason of [GPU.Throttle] means that work takes longer than it could: heat, power or a fault,
// but neither idleness nor clocks that somebody chose.
func Slows(reason string) bool {
	switch reason {
	case "idle", "application clocks", "sync boost", "display clocks":
		return false
	}
	return true
}

// throttleWords writes a set of reasons in words, unknown bits as a number.
func throttleWords(set uint64) []string {
	words := []string{}
	for _, t := range throttles {
		if set&t.bit != 0 {
			words = append(words, t.word)
			set &^= t.bit
		}
	}
	if set != 0 {
		words = append(words, fmt.Sprintf("reason 0x%x", set))
	}
	return words
}

// Open opens the library and finds the GPUs. An error says in one sentence what is missing.
func Open() (*NVML, error) { return open(newLibrary()) }

func open(a api) (*NVML, error) {
	if err := a.open(); err != nil {
		return nil, err
	}
	devices, err := a.devices()
	if err != nil {
		a.close()
		return nil, err
	}
	return &NVML{api: a, devices: devices}, nil
}

// Close ends the use of the library. Readings that are under way end first; later ones find no GPU.
func (n *NVML) Close() {
	n.use.Lock()
	defer n.use.Unlock()
	if !n.closed {
		n.closed, n.devices = true, nil
		n.api.close()
	}
}

// Driver returns the driver's version, such as "580.95.05", "" where it is not known.
func (n *NVML) Driver() string {
	n.use.RLock()
	defer n.use.RUnlock()
	if n.closed {
		return ""
	}
	return n.api.driver()
}

// CUDA returns the newest CUDA version that the driver supports, as 1000 * major + 10 * minor, 0 where it is not known.
func (n *NVML) CUDA() int {
	n.use.RLock()
	defer n.use.RUnlock()
	if n.closed {
		return 0
	}
	return n.api.cuda()
}

// GPUs reads all GPUs.
func (n *NVML) GPUs() []GPU {
	n.use.RLock()
	defer n.use.RUnlock()
	out := make([]GPU, 0, len(n.devices))
	for _, d := range n.devices {
		out = append(out, read(d))
	}
	return out
}

// GPU reads the GPU at a PCI address, as cuda.DeviceInfo.PCI gives it.
func (n *NVML) GPU(pci string) (GPU, bool) {
	n.use.RLock()
	defer n.use.RUnlock()
	d, ok := n.at(pci)
	if !ok {
		return GPU{}, false
	}
	return read(d), true
}

// at returns the GPU at a PCI address, none after Close. Its caller holds use.
func (n *NVML) at(pci string) (device, bool) {
	i := slices.IndexFunc(n.devices, func(d device) bool { return strings.EqualFold(address(d), pci) })
	if i < 0 {
		return nil, false
	}
	return n.devices[i], true
}

// address is written as cuda.DeviceInfo.PCI is; "" where it is not known.
func address(d device) string {
	domain, bus, dev, ok := d.pci()
	if !ok {
		return ""
	}
	return fmt.Sprintf("%04x:%02x:%02x.0", domain, bus, dev)
}

func number(d device, r reading) int {
	v, ok := d.number(r)
	if !ok {
		return 0
	}
	return int(v)
}

func read(d device) GPU {
	g := GPU{
		PCI:     address(d),
		SMClock: number(d, smClock), SMClockMax: number(d, smClockMax), MemClock: number(d, memClock),
		MemClockMax: number(d, memClockMax),
		LinkGen:     number(d, linkGen), LinkGenMax: number(d, linkGenMax), LinkWidth: number(d, linkWidth),
		LinkWidthMax: number(d, linkWidthMax),
		Power:        float64(number(d, power)) / 1000, PowerLimit: float64(number(d, powerLimit)) / 1000,
		Temperature: number(d, temperature), Processes: number(d, processes),
	}
	g.Name, g.UUID, _ = d.name()
	g.Major, g.Minor, _ = d.capability()
	g.MemoryFree, g.MemoryTotal, _ = d.memory()
	if set, ok := d.number(throttle); ok {
		g.Throttle = throttleWords(set)
	}
	return g
}

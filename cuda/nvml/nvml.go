// Package nvml reads what NVIDIA's management library reports of GPUs: clocks and why they are low, memory, power,
// energy, utilisation. The library comes with the driver; it is opened at run time through github.com/NVIDIA/go-nvml,
// and needs neither CUDA nor a context on the GPU.
//
//	n, err := nvml.Open()
//	if err != nil { ... } // one sentence: what is missing
//	defer n.Close()
//	for _, g := range n.GPUs() {
//		fmt.Println(g.PCI, g.SMClock, "of", g.SMClockMax, "MHz")
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
	PCI         string // "0000:19:00.0"
	UUID        string // "GPU-12345678-..."
	MemoryTotal uint64
	MemoryFree  uint64
	SMClock     int // MHz, now
	SMClockMax  int
	Throttle    []string // why the clocks are lower than they could be; empty: nothing holds them, nil: not known
	Processes   int      // that compute on the GPU now, as far as the system shows them
}

// NVML is the opened library. It may be used from any goroutine.
type NVML struct {
	devices  []device
	shutdown func()

	use    sync.RWMutex // held to read while the library is called; Close waits for calls of other goroutines
	closed bool
}

// device is one GPU. A reading that fails returns false.
type device struct {
	pci, uuid string
	number    func(reading) (uint64, bool)
}

// reading is one of the numbers read of a GPU.
type reading int

const (
	smClock     reading = iota // MHz
	smClockMax                 // MHz
	throttle                   // a set of throttles
	power                      // mW
	powerNow                   // mW at this moment, where power is an average of the last second
	energy                     // mJ since the driver was loaded
	utilisation                // percent of the time of the last sample in which a kernel ran
	memoryTotal                // bytes
	memoryFree
	memoryUsed
	processes // that have a CUDA context
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

// Close ends the use of the library. Readings that are under way end first; later ones find no GPU.
func (n *NVML) Close() {
	n.use.Lock()
	defer n.use.Unlock()
	if !n.closed {
		n.closed, n.devices = true, nil
		n.shutdown()
	}
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
	i := slices.IndexFunc(n.devices, func(d device) bool { return strings.EqualFold(d.pci, pci) })
	if i < 0 {
		return device{}, false
	}
	return n.devices[i], true
}

// get returns a reading, 0 where there is none.
func (d device) get(r reading) uint64 {
	v, _ := d.number(r)
	return v
}

func read(d device) GPU {
	g := GPU{PCI: d.pci, UUID: d.uuid, SMClock: int(d.get(smClock)), SMClockMax: int(d.get(smClockMax)),
		MemoryTotal: d.get(memoryTotal), MemoryFree: d.get(memoryFree), Processes: int(d.get(processes))}
	if set, ok := d.number(throttle); ok {
		g.Throttle = throttleWords(set)
	}
	return g
}

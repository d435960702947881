package predict

import (
	"fmt"
	"slices"
	"strings"
)

// Memory says where the data of work lie before it runs, and so which transfers it needs.
type Memory uint8

// The places of data.
const (
	Host     Memory = iota // work of the CPU
	Pageable               // in ordinary host memory; the GPU copies it in and out
	Pinned                 // in page-locked host memory; the GPU copies it in and out
	Resident               // on the device
	memories
)

var memoryNames = [memories]string{"host", "pageable", "pinned", "resident"}

// String returns the name that [ParseMemory] reads.
func (m Memory) String() string {
	if m < memories {
		return memoryNames[m]
	}
	return fmt.Sprintf("Memory(%d)", uint8(m))
}

// ParseMemory reads the name of a place of data.
func ParseMemory(name string) (Memory, error) {
	for m, n := range memoryNames {
		if n == name {
			return Memory(m), nil
		}
	}
	return 0, fmt.Errorf("memory is %q; expected host, pageable, pinned or resident", name)
}

// Work is what is known of work before it runs on a device.
type Work struct {
	Task, DType string

	FLOPs    float64
	Bytes    float64 // read and written by the computation
	BytesIn  float64 // moved from host to device before it
	BytesOut float64 // moved from device to host after it
	Steps    float64 // kernel launches, or steps of a plan
	Rows     float64 // of the largest product; 1 for work on vectors
	Inner    float64 // length of the sums of a product; 0 for other work
	Threads  float64 // of the processor that runs it; 0 if it is a GPU, or not known
	Kernel   float64 // which of the engine's kernels multiplies on a CPU, from 1 on; 0 for other work
	Idle     float64 // threads of a CPU for each part of a product that has fewer parts than there are threads; else 1, and 0 without products
	FloorUs  float64 // the least time on this device, by its ceilings; microseconds

	Memory Memory
	Cold   bool // the process has not used the device yet
}

// Rates of the standard CPU, for each microsecond: 100 GB/s, and 1 TFLOP/s in float32, twice as many in bfloat16.
const (
	standardBytes = 1e5
	standardFLOPs = 1e6
)

// normalized returns work with the floor that laws go by.
func (w *Work) normalized() Work {
	n := *w
	n.FloorUs = w.floor()
	return n
}

// floor returns the floor that laws go by, on a CPU idle floor + standard. Ceilings are of all threads: a product that has fewer parts than there
// are threads takes longer by the idle ones. standard is the floor of the same FLOPs and bytes on the standard CPU. It stands for what does not go with a processor's ceilings,
// such as latencies and what the ceilings' loops do not do: on a processor with high ceilings most of the time is of that kind, on one with low ceilings little. The floor of work on a
// GPU stays as it is.
func (w *Work) floor() float64 {
	if w.Memory != Host || !(w.FloorUs > 0) {
		return w.FloorUs
	}
	rate := standardFLOPs
	if w.DType == "bfloat16" {
		rate *= 2
	}
	floor := w.FloorUs * max(1, w.Idle)
	if standard := max(w.FLOPs/rate, w.Bytes/standardBytes); standard > 0 {
		floor += standard
	}
	return floor
}

// Row is a measured time of work.
type Row struct {
	Machine string // a name of the computer: what runs on the same one has the same
	Key     string // names the device with its versions; "" if it is not known
	Device  string // "cpu", "cuda:0"
	Shape   string // such as "n=1048576": rows of one shape are repeats
	Work
	Us float64 // wall time
	At int64   // when it was measured, in seconds since 1970; 0 is not known

	// Parts of Us, 0 if they were not measured.
	H2DUs, D2HUs float64

	chance float64 // of a median: its standard error by the repeats, in logarithm
}

// Case is what the repeats of a measurement have in common.
type Case struct {
	Machine, Device, Task, DType, Shape string
	Memory                              Memory
	Cold                                bool
}

// Case returns that of a row.
func (r *Row) Case() Case {
	return Case{r.Machine, r.Device, r.Task, r.DType, r.Shape, r.Memory, r.Cold}
}

// Processor names the processor of a row by its key but for the number of threads: machines may have one with different numbers of cores, and
// processors of one name differ by the kernels that they can run. Without a key it is the machine's name.
func (r *Row) Processor() string {
	if r.Key == "" {
		return r.Machine
	}
	return processorOf(r.Key)
}

// processorOf returns the key of a device without its number of threads.
func processorOf(key string) string {
	parts := strings.Split(key, ", ")
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return strings.HasSuffix(s, " thread") || strings.HasSuffix(s, " threads") }), ", ")
}

// nameOf returns the key of a device without the family and model number of its processor, as "P (family 6, model 207), 2 threads" has them.
func nameOf(key string) string {
	name, rest, ok := strings.Cut(key, " (family ")
	_, rest, closed := strings.Cut(rest, ")")
	if !ok || !closed {
		return key
	}
	return name + rest
}

// Estimate is a predicted time.
type Estimate struct {
	Us        float64 // the median
	Low, High float64 // nine of ten times lie between
	InDomain  bool    // such work was measured on the device, smaller and larger
}

package predict

import (
	"fmt"
	"slices"
)

// Memory says where the data of work lie before it runs, and so which transfers it needs.
type Memory string

const (
	Host     Memory = "host"     // work of the CPU
	Pageable Memory = "pageable" // in ordinary host memory; the GPU copies it in and out
	Pinned   Memory = "pinned"   // in page-locked host memory; the GPU copies it in and out
	Resident Memory = "resident" // on the device
)

// Work is what is known of work before it runs on a device.
type Work struct {
	Task  string `json:"task"`
	DType string `json:"dtype"`

	FLOPs    float64 `json:"flops,omitempty"`
	Bytes    float64 `json:"bytes,omitempty"`     // read and written by the computation
	BytesIn  float64 `json:"bytes_in,omitempty"`  // moved from host to device before it
	BytesOut float64 `json:"bytes_out,omitempty"` // moved from device to host after it
	Steps    float64 `json:"steps,omitempty"`     // kernel launches, or steps of a plan
	Rows     float64 `json:"rows,omitempty"`      // of a product's first matrix; tokens of all sequences of a pass; else 0
	Inner    float64 `json:"inner,omitempty"`     // length of the sums of a product; 0 for other work
	Threads  float64 `json:"threads,omitempty"`   // of the processor that runs it; 0 if it is a GPU, or not known
	Kernel   float64 `json:"kernel,omitempty"`    // which of a CPU's kernels multiplies, from 1 on; 0 for other work
	Idle     float64 `json:"idle,omitempty"`      // a CPU's threads for each part of a product, at least 1; 0: no products
	FloorUs  float64 `json:"floor_us"`            // the least time on this device, by its ceilings; microseconds

	Memory Memory `json:"memory"`
	Cold   bool   `json:"cold,omitempty"` // the process has not used the device yet
}

// Rates of the standard CPU, for each microsecond: 100 GB/s, and 1 TFLOP/s in float32, twice as many in bfloat16.
const (
	standardBytes = 1e5
	standardFLOPs = 1e6
)

// floor returns the floor that laws take: of a CPU idle floor + standard. Ceilings are those of all threads: a product
// that has fewer parts takes longer by the idle ones. standard is the floor of the same work on the standard CPU, and
// stands for what does not go with ceilings: times of work differ less from one CPU to another than ceilings do.
func (w *Work) floor() float64 {
	if w.Memory != Host || !(w.FloorUs > 0) {
		return w.FloorUs
	}
	rate := standardFLOPs
	if w.DType == "bfloat16" {
		rate *= 2
	}
	return w.FloorUs*max(1, w.Idle) + max(w.FLOPs/rate, w.Bytes/standardBytes)
}

// check finds values that no work has.
func (w *Work) check() error {
	for _, v := range []float64{
		w.FLOPs, w.Bytes, w.BytesIn, w.BytesOut, w.Steps, w.Rows, w.Inner, w.Threads, w.Kernel, w.Idle, w.FloorUs,
	} {
		if !(v >= 0 && v < maxNumber) {
			return fmt.Errorf("the work holds %g, which no measurement gives", v)
		}
	}
	return w.Memory.Check()
}

// Check finds a place that is none.
func (m Memory) Check() error {
	if !slices.Contains([]Memory{Host, Pageable, Pinned, Resident}, m) {
		return fmt.Errorf("memory is %q; expected host, pageable, pinned or resident", string(m))
	}
	return nil
}

// Row is a measured time of work.
type Row struct {
	Machine   string `json:"machine"`   // a name of the computer: what runs on the same one has the same
	Processor string `json:"processor"` // of which machines may have different numbers of cores; "" if it is not known
	Device    string `json:"device"`    // "cpu", "cuda:0"
	Shape     string `json:"shape"`     // such as "n=1048576": rows of one shape are repeats
	Work
	Us float64 `json:"wall_us"` // the whole time, microseconds

	// Parts of Us, 0 if they were not measured.
	H2DUs float64 `json:"h2d_us,omitempty"`
	D2HUs float64 `json:"d2h_us,omitempty"`
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

// Estimate is a predicted time.
type Estimate struct {
	Us        float64 // the median
	InUs      float64 // the part of it that copies data to the device
	OutUs     float64 // the part of it that copies data back
	Low, High float64 // us: nine of ten times lie between
	InDomain  bool    // such work was measured on the device
}

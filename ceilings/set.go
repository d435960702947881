package ceilings

import (
	"context"
	"fmt"
	"math"
	"time"

	"gpt2scope/cpu"
	"gpt2scope/cuda"
	"gpt2scope/gpt2"
	"gpt2scope/traces"
)

// The units of values: bytes by 1e9, operations by 1e12, microseconds.
const (
	gbs    = "GB/s"
	tflops = "TFLOP/s"
	us     = "us"
)

// Value is one thing that was measured.
type Value struct {
	Name  string  `json:"name"` // "read", "copy"; of products the type, "f32" or "bf16"; "launch", "barrier"
	Unit  string  `json:"unit"` // "GB/s", "TFLOP/s", "us"
	Value float64 `json:"value"`
	P10   float64 `json:"p10"`
	P90   float64 `json:"p90"`
	Size  int64   `json:"size,omitempty"`  // of a bandwidth: for data of up to so many bytes; 0 for any
	Where string  `json:"where,omitempty"` // of a bandwidth: where the data is, "memory" or "L2 cache"
	How   string  `json:"how,omitempty"`   // what gave the value
}

// Set is what was measured of a device.
type Set struct {
	Key    string    `json:"key"`    // device and versions, as KeyGPU or KeyCPU gives them
	Device string    `json:"device"` // its name
	Time   time.Time `json:"time"`   // of the measurement, UTC
	Values []Value   `json:"values"`

	// Disturbed says what ran on the device meanwhile, "" where nothing did. Store
	// refuses such a set: its values are too low.
	Disturbed string `json:"disturbed,omitempty"`
}

// KeyGPU names a GPU and the versions of what ran on it.
func KeyGPU(lib *cuda.Library, dev *cuda.Device) (string, error) {
	driver, runtime, err := lib.Versions()
	if err != nil {
		return "", err
	}
	if err := lib.OpenBLAS(); err != nil { // its version counts, and only then it is known
		return "", err
	}
	info := dev.Info()
	return fmt.Sprintf("%s, compute capability %d.%d, CUDA %d of the driver, %d of the library, cuBLASLt %d",
		info.Name, info.Major, info.Minor, driver, runtime, lib.BLASVersion()), nil
}

// KeyCPU names the processor, and how many threads run which kernels on it.
func KeyCPU(b *cpu.Backend) string {
	f, _ := cpu.DetectFeatures() // what an error tells of is not used here
	threads := fmt.Sprintf("%d threads", b.Threads())
	if b.Threads() == 1 {
		threads = "1 thread"
	}
	return fmt.Sprintf("%s, %s, kernels %s", f.Processor, threads, b.ISA())
}

// MeasureCPU measures the threads of a backend, with nothing else running on them.
// Where data is positive, only what matters to data of so many bytes is measured,
// which takes less time and memory; such a set is not one to [Store].
func MeasureCPU(ctx context.Context, b *cpu.Backend, data int64) (Set, error) {
	var c cpu.Ceilings
	var err error
	for range attempts { // other work may come and go
		again, failed := b.Ceilings(ctx, data)
		if err = failed; err != nil {
			break
		}
		if again.Had > c.Had {
			c = again
		}
		if c.Had >= leastTime {
			break
		}
	}
	if ctx.Err() != nil {
		return Set{}, context.Cause(ctx)
	}
	if err != nil {
		return Set{}, fmt.Errorf("the ceilings of the CPU cannot be measured: %w", err)
	}
	f, _ := cpu.DetectFeatures()
	s := Set{Key: KeyCPU(b), Device: f.Processor, Time: time.Now().UTC().Truncate(time.Second)}
	value := func(name, unit string, r cpu.Rate, scale float64) Value {
		return Value{Name: name, Unit: unit, Value: r.Value / scale, P10: r.P10 / scale, P90: r.P90 / scale, How: r.How}
	}
	for _, r := range c.Read {
		v := value("read", gbs, r.Rate, 1e9)
		v.Size, v.Where = r.Bound, r.Name
		s.Values = append(s.Values, v)
	}
	if c.Had < leastTime {
		s.Disturbed = fmt.Sprintf("the threads had %.0f%% of the processor time of as many cores, the rest went to other work", 100*c.Had)
	}
	s.Values = append(s.Values, value("f32", tflops, c.F32, 1e12))
	if c.BF16.Value > 0 {
		s.Values = append(s.Values, value("bf16", tflops, c.BF16, 1e12))
	}
	s.Values = append(s.Values, value("barrier", us, c.Barrier, 1e-6))
	return s, nil
}

// leastTime is the share of the processor time that the threads have where nothing
// else runs; what they wait for, such as pages that are cleared, is less.
const leastTime = 0.9

// attempts is how often a CPU that other work uses is measured; the attempt with the
// most processor time counts.
const attempts = 3

// Record returns bandwidths and arithmetic rates as a trace's header has them. device
// is the GPU's index, -1 for the CPU.
func (s Set) Record(device int) []traces.Ceiling {
	var out []traces.Ceiling
	for _, v := range s.Values {
		if v.Unit == gbs || v.Unit == tflops {
			out = append(out, traces.Ceiling{Device: device, Name: v.Name, Unit: v.Unit, Value: v.Value, Size: v.Size})
		}
	}
	return out
}

// find returns a value by name, for data in memory; 0 where it was not measured.
func (s Set) find(name string) float64 {
	for _, v := range s.Values {
		if v.Name == name && v.Size == 0 {
			return v.Value
		}
	}
	return 0
}

// GPU returns a GPU's values as floors need them.
func (s Set) GPU() Ceilings {
	c := Ceilings{Copy: s.find("copy"), Read: s.find("read"), BF16: s.find("bf16"), F32: s.find("f32"), Launch: s.find("launch"), Barrier: s.find("barrier")}
	for _, v := range s.Values {
		if v.Name == "read" && v.Size > 0 {
			c.L2Read = v.Value
		}
	}
	return c
}

// Bandwidth returns the highest bandwidth, in bytes per second, for data of so many
// bytes that is used over and over: that of the smallest cache that may hold it, else
// of memory. It is 0 where none was measured.
func (s Set) Bandwidth(data int64) float64 {
	best, size := 0.0, int64(math.MaxInt64)
	for _, v := range s.Values {
		if v.Unit != gbs {
			continue
		}
		bound := v.Size
		if bound == 0 {
			bound = math.MaxInt64
		}
		if bound >= data && (bound < size || bound == size && v.Value > best) {
			best, size = v.Value, bound
		}
	}
	return best * 1e9
}

// PlanFloor returns the least time of a pass on the CPU: the sum over its steps of
// what their bytes or their operations take, whichever is more. Weights and KV cache
// come from where all data of a pass fits, since pass follows pass; activations from
// where those of the step do, which were just written. Arithmetic is float32, in
// whichever type weights are held, but for products and attention with weights held as
// bfloat16 where the kernels multiply that type.
func (s Set) PlanFloor(p *gpt2.Plan, past int, sizes gpt2.Sizes) time.Duration {
	var sum time.Duration
	for _, f := range s.StepFloors(p, past, sizes) {
		sum += f.Time
	}
	return sum
}

// StepFloor is the least time of a step.
type StepFloor struct {
	Time  time.Duration
	Bytes bool // bytes take longer than operations
}

// StepFloors returns what [Set.PlanFloor] is the sum of, for each step of the plan.
func (s Set) StepFloors(p *gpt2.Plan, past int, sizes gpt2.Sizes) []StepFloor {
	floors := make([]StepFloor, len(p.Steps))
	data := p.Cost(past).Bytes(sizes)
	for i, step := range p.Steps {
		rate := s.find("f32")
		if op := step.Op(); (op == gpt2.OpLinear || op == gpt2.OpAttention) && sizes.Weight == 2 {
			rate = max(rate, s.find("bf16"))
		}
		floors[i] = s.stepFloor(step.Cost(past), sizes, data, rate*1e12)
	}
	return floors
}

// stepFloor is the floor of a step in a pass over data of so many bytes, at a rate of
// operations per second; 0 where that was not measured.
func (s Set) stepFloor(cost gpt2.Cost, sizes gpt2.Sizes, data int64, rate float64) StepFloor {
	near := gpt2.Cost{Activations: cost.Activations}.Bytes(sizes)
	far := cost.Bytes(sizes) - near
	bytes, flops := 0.0, 0.0
	if b := s.Bandwidth(data); far > 0 && b > 0 {
		bytes = float64(far) / b
	}
	if b := s.Bandwidth(near); near > 0 && b > 0 {
		bytes += float64(near) / b
	}
	if rate > 0 {
		flops = float64(cost.FLOPs) / rate
	}
	return StepFloor{seconds(max(bytes, flops)), bytes >= flops}
}

// WithBarriers adds to a plan's floor a barrier of all threads between steps.
func (s Set) WithBarriers(p *gpt2.Plan, floor time.Duration) time.Duration {
	return Ceilings{Barrier: s.find("barrier")}.WithBarriers(p, floor)
}

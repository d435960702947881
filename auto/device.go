package auto

import (
	"gpt2scope/ceilings"
	"gpt2scope/cuda"
	"gpt2scope/cuda/exec"
	"gpt2scope/gpt2"
	"gpt2scope/internal/lazyregexp"
	"gpt2scope/weights"
)

// CPU describes the executor on the host.
func CPU(b gpt2.Backend, model *gpt2.Model) (Device, error) {
	d := b.Describe()
	name := d.Processor
	if m, ok := b.(gpt2.CeilingMeasurer); ok {
		key, err := m.CeilingsKey() // with threads and kernels
		if err != nil {
			return Device{}, err
		}
		name = key
	}
	set, ok, _ := ceilings.Load(name)
	if !ok {
		set = CPUCeilings(name, d.Threads, d.Kernels)
	}
	return Device{Name: name, DType: d.WeightType, Sizes: b.Sizes(model), Fuse: b.Fuse, Ceilings: set}, nil
}

// GPU describes a GPU that need not be open. The name is the driver's, "" if it is not known.
func GPU(name string, dtype weights.DType) Device {
	sizes, fuse := exec.Unopened(dtype)
	set, ok := ceilings.Newest(name)
	if !ok {
		set = GPUCeilings(name)
	}
	d := Device{GPU: true, Name: name, DType: "bf16", OwnRows: cuda.GEMVRows, Sizes: sizes, Fuse: fuse, Ceilings: set}
	if dtype == weights.F32 {
		d.DType = "f32"
	} else if hopper().MatchString(name) {
		d.OwnRows = cuda.WGMMARows
	}
	return d
}

// hopper matches the names of GPUs of compute capability 9.0.
var hopper = lazyregexp.New(`\bG?H(20|100|200|800)\b`)

// Of describes the device of an executor; ok is false for one whose runs tell nothing of those that a choice is about:
// the reference, mode eager, other kernels than the usual ones, 8-bit weights or caches on a GPU.
func Of(b gpt2.Backend, model *gpt2.Model) (d Device, ok bool) {
	is := b.Describe()
	switch {
	case is.GPU:
		dtype := weights.BF16
		if is.WeightType == "f32" {
			dtype = weights.F32
		}
		return GPU(is.Processor, dtype), is.Mode != exec.Eager.String() && len(is.Variants) == 0 && is.WeightType != "q8"
	case is.Name == "cpu":
		d, err := CPU(b, model)
		return d, err == nil
	}
	return Device{}, false
}

package cpu

import (
	"gpt2scope/gpt2"
	"gpt2scope/traces"
)

// The optional interfaces of runners.
var (
	_ gpt2.Recordable = (*runner)(nil)
)

// weightTypes names the types in which weights are held.
var weightTypes = map[dtype]string{float32Type: "f32", bfloat16Type: "bf16", q8Type: "q8"}

// Describe says which processor this is, and how passes run on it.
func (b *Backend) Describe() gpt2.Description {
	name, _, _ := processor()
	return gpt2.Description{Name: b.Name(), Processor: name, WeightType: weightTypes[b.dtype], Threads: b.Threads(),
		Kernels: b.ISA(), Recorder: traces.RecorderHost}
}

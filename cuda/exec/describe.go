package exec

import (
	"fmt"

	"gpt2scope/cuda"
	"gpt2scope/gpt2"
)

// What a backend and its runners can do besides.
var (
	_ gpt2.Surveyor        = (*Backend)(nil)
	_ gpt2.CeilingMeasurer = (*Backend)(nil)
	_ gpt2.Recordable      = (*Runner)(nil)
	_ gpt2.OnDevice        = (*Runner)(nil)
)

// Describe says which GPU this is, and how passes run on it.
func (b *Backend) Describe() gpt2.Description {
	info := b.dev.Info()
	mode, why := b.Mode()
	d := gpt2.Description{
		Name: b.Name(), Processor: info.Name, GPU: true, Index: info.Index, PCI: info.PCI,
		WeightType: typeName(b.held), Mode: mode.String(), ModeReason: why, Fallback: b.fellBack(), Variants: b.Variants(),
		Recorder: b.Recorder(), Versions: map[string]string{},
	}
	driver, runtime := b.lib.Versions()
	d.Versions["CUDA of the driver"], d.Versions["CUDA of the library"] = cuda.VersionText(driver),
		cuda.VersionText(runtime)
	if v := b.lib.BLASVersion(); v > 0 { // known once the library is loaded
		d.Versions["cuBLASLt"] = fmt.Sprint(v)
	}
	return d
}

package main

import (
	"gpt2scope/cuda/nvml"
)

// smClock returns the present clock in MHz of the SMs of the GPU at a PCI address, or 0 if
// it cannot be read.
func smClock(pci string) int {
	n, err := nvml.Open()
	if err != nil {
		return 0
	}
	defer n.Close()
	return n.SMClock(pci)
}

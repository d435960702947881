package main

import (
	"gpt2scope/cuda"
	"gpt2scope/cuda/nvml"
)

// smClock returns the clock of the SMs now, in MHz, or 0 where it cannot be read.
func smClock(d *cuda.Device) int {
	n, err := nvml.Open()
	if err != nil {
		return 0
	}
	defer n.Close()
	return n.SMClock(d.Info().PCI)
}

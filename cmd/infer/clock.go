package main

import "gpt2scope/cuda"

// smClock returns the clock of the SMs now, in MHz, or 0 where it cannot be read.
func smClock(*cuda.Device) int { return 0 }

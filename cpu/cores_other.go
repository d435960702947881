//go:build !linux

package cpu

import "runtime"

// physicalCores counts processors; only Linux tells hardware threads apart here.
func physicalCores() int { return runtime.NumCPU() }

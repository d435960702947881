//go:build !linux

package cpu

import "runtime"

// physicalCores counts processors; only Linux tells hardware threads apart here.
func physicalCores() int { return runtime.NumCPU() }

// allowedCPUs is for sysfs, which only Linux has.
func allowedCPUs() []int { return nil }

package tasks

import (
	"slices"
	"strings"
	"syscall"

	"gpt2scope/cuda/nvml"
)

// interruptions returns how often this process has lost a processor to another one; 0 if that is not known.
func interruptions() int64 {
	var u syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return int64(u.Nivcsw)
}

// noteGPUs fills in what NVML says of the GPUs that samples are of: their clock, and whether others use them.
func (m *Machine) noteGPUs(samples []Sample) {
	gpus := map[string]nvml.GPU{}
	for i := range samples {
		s := &samples[i]
		g := m.gpu(s.Device)
		if g == nil || m.nvml == nil {
			continue
		}
		is, known := gpus[s.Device]
		if !known {
			is, _ = m.nvml.GPU(g.Device.Info().PCI)
			gpus[s.Device] = is
		}
		s.SMClockMHz = float64(max(0, is.SMClock))
		s.Throttle = strings.Join(is.Throttle, ", ")
		s.UsedByOthers = is.Processes > 1
		s.Disturbed = s.UsedByOthers || slices.ContainsFunc(is.Throttle, nvml.Slows)
	}
}

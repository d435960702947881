package tasks

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"gpt2scope/cuda/nvml"
)

// watch is what had happened on a machine when the cases of a turn began to run.
type watch struct {
	began     time.Time
	busy, own float64 // seconds of processor time of all processes, and of this one
}

func newWatch() watch {
	own, _ := ownSeconds()
	return watch{time.Now(), busySeconds(), own}
}

// otherLoad is the load of others, in processors, from which on samples of the CPU count as disturbed.
const otherLoad = 0.5

// finish fills in what is known of a turn at its end: load, clocks, use of the GPU by others.
func (w watch) finish(m *Machine, samples []Sample) {
	load, elapsed := 0.0, time.Since(w.began).Seconds()
	own, _ := ownSeconds()
	if busy := busySeconds(); busy > 0 && w.busy > 0 && elapsed > 0.05 { // the system counts in 10 ms
		load = max(0, ((busy-w.busy)-(own-w.own))/elapsed)
	}
	gpus := map[string]nvml.GPU{}
	for i := range samples {
		s := &samples[i]
		s.Load = load
		g := m.gpu(s.Device)
		if g == nil {
			s.Disturbed = s.Disturbed || load > otherLoad
			continue
		}
		if _, known := gpus[s.Device]; !known && m.nvml != nil {
			gpus[s.Device], _ = m.nvml.GPU(g.Device.Info().PCI)
		}
		is := gpus[s.Device]
		s.SMClockMHz = float64(max(0, is.SMClock))
		s.Throttle = strings.Join(is.Throttle, ", ")
		s.UsedByOthers = is.Processes > 1
		s.Disturbed = s.UsedByOthers || slices.ContainsFunc(is.Throttle, nvml.Slows)
	}
}

// ownSeconds returns the processor time of this process, and how often it lost a processor to another process.
func ownSeconds() (seconds float64, lost int64) {
	var u syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &u) // 0 if it fails
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9, int64(u.Nivcsw)
}

// busySeconds returns the processor time that all processes have used, from the first line of /proc/stat: cpu, then
// user, nice, system, idle, iowait, irq and softirq in hundredths of a second; 0 if it is not known.
func busySeconds() (sum float64) {
	data, _ := os.ReadFile("/proc/stat")
	line, _, _ := strings.Cut(string(data), "\n")
	for i, field := range strings.Fields(line) {
		if v, err := strconv.ParseFloat(field, 64); err == nil && i < 8 && i != 4 && i != 5 {
			sum += v / 100
		}
	}
	return sum
}

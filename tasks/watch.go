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

// watch notes what else happens on a machine while the cases of a turn run.
type watch struct {
	m     *Machine
	began time.Time
	busy  float64 // seconds of processor time of all processes when the turn began
	own   float64 // of this process
	waits int64   // how often this process had lost a processor to another before a run
}

func (m *Machine) watch() *watch {
	w := &watch{m: m, began: time.Now(), busy: busySeconds()}
	w.own, _ = ownSeconds()
	return w
}

// begin notes that a run begins, and lost tells at its end whether it lost a processor to another process.
func (w *watch) begin() { _, w.waits = ownSeconds() }

func (w *watch) lost() bool {
	_, now := ownSeconds()
	return now > w.waits
}

// otherLoad is the load of others, in processors, from which on samples of the CPU count as disturbed.
const otherLoad = 0.5

// finish fills in what is known of a turn at its end: load, clocks, use of the GPU by others.
func (w *watch) finish(samples []Sample) {
	load, elapsed := 0.0, time.Since(w.began).Seconds()
	own, _ := ownSeconds()
	if busy := busySeconds(); busy > 0 && w.busy > 0 && elapsed > 0.05 { // the system counts in 10 ms
		load = max(0, ((busy-w.busy)-(own-w.own))/elapsed)
	}
	gpus := map[string]nvml.GPU{}
	for i := range samples {
		s := &samples[i]
		s.Load = load
		g := w.m.gpu(s.Device)
		if g == nil {
			s.Disturbed = s.Disturbed || load > otherLoad
			continue
		}
		is, known := gpus[s.Device]
		if !known && w.m.nvml != nil {
			is, _ = w.m.nvml.GPU(g.Device.Info().PCI)
			gpus[s.Device] = is
		}
		s.SMClockMHz = float64(max(0, is.SMClock))
		s.Throttle = strings.Join(is.Throttle, ", ")
		s.UsedByOthers = is.Processes > 1
		s.Disturbed = s.UsedByOthers || slices.ContainsFunc(is.Throttle, nvml.Slows)
	}
}

// ownSeconds returns the processor time of this process, and how often it lost a processor to another process.
func ownSeconds() (seconds float64, lost int64) {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0, 0
	}
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

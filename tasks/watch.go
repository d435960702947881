package tasks

import (
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"gpt2scope/cuda/nvml"
)

// watch notes what else happens on a machine while cases run.
type watch struct {
	m        *Machine
	began    time.Time
	busy     float64 // seconds of processor time of all processes when the turn began
	own      float64 // of this process and its children
	waits    int64   // how often this process had lost a processor to another before a run
	lost     bool    // it lost one in the last run
	repeated []bool  // lost, of each sample
}

// watch begins to watch a turn.
func (m *Machine) watch() *watch {
	w := &watch{m: m, began: time.Now(), busy: busySeconds("/proc/stat")}
	w.own, _ = ownSeconds()
	return w
}

func (w *watch) begin() { _, w.waits = ownSeconds() }

func (w *watch) end() {
	_, now := ownSeconds()
	w.lost = now > w.waits
}

// note remembers of a sample whether its run was interrupted.
func (w *watch) note(s Sample) Sample {
	w.repeated = append(w.repeated, w.lost)
	return s
}

// otherLoad is the load of others, in processors, from which on samples of the CPU count as
// disturbed.
const otherLoad = 0.5

// finish fills in what is known of a turn at its end: load, clocks, use of the GPU by others.
func (w *watch) finish(samples []Sample) {
	load := math.NaN()
	elapsed := time.Since(w.began).Seconds()
	own, _ := ownSeconds()
	if busy := busySeconds("/proc/stat"); !math.IsNaN(busy) && !math.IsNaN(w.busy) && elapsed > 0.05 { // the system counts in 10 ms
		load = max(0, ((busy-w.busy)-(own-w.own))/elapsed)
	}
	gpus := map[string]nvml.GPU{}
	for i := range samples {
		s := &samples[i]
		s.Load = known(load)
		g := w.m.gpu(s.Device)
		if g == nil {
			s.Disturbed = w.repeated[i] || load > otherLoad
			continue
		}
		is, known := gpus[s.Device]
		if n := w.m.management(); !known && n != nil {
			is, _ = n.GPU(g.Device.Info().PCI)
			gpus[s.Device] = is
		}
		if is.SMClock > 0 {
			s.SMClockMHz = float64(is.SMClock)
		}
		s.Throttle = strings.Join(is.Throttle, ", ")
		s.UsedByOthers = is.Processes > 1
		s.Disturbed = s.UsedByOthers || slices.ContainsFunc(is.Throttle, nvml.Slows)
	}
}

// management opens NVML the first time; nil if it cannot be opened: then samples have no clocks.
func (m *Machine) management() *nvml.NVML {
	if m.nvml == nil && !m.noNVML {
		var err error
		m.nvml, err = nvml.Open()
		m.noNVML = err != nil
	}
	return m.nvml
}

// ownSeconds returns the processor time of this process and its children, and how often it lost
// a processor to another process.
func ownSeconds() (seconds float64, lost int64) {
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var u syscall.Rusage
		if syscall.Getrusage(who, &u) == nil {
			seconds += float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
			if who == syscall.RUSAGE_SELF {
				lost = int64(u.Nivcsw)
			}
		}
	}
	return seconds, lost
}

// ticksPerSecond is the unit of /proc/stat on Linux.
const ticksPerSecond = 100

// busySeconds returns the processor time that all processes have used, from the first line of a
// file such as /proc/stat: user, nice, system, idle, iowait, irq, softirq; NaN if it is not known.
func busySeconds(path string) float64 {
	data, err := os.ReadFile(path)
	line, _, _ := strings.Cut(string(data), "\n")
	fields := strings.Fields(line)
	if err != nil || len(fields) < 8 || fields[0] != "cpu" {
		return math.NaN()
	}
	sum := 0.0
	for i, field := range fields[1:8] {
		v, err := strconv.ParseFloat(field, 64)
		if err != nil {
			return math.NaN()
		}
		if i != 3 && i != 4 {
			sum += v
		}
	}
	return sum / ticksPerSecond
}

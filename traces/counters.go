package traces

import (
	"math"
	"slices"
)

// Counters are what hardware counters say of a kernel, by Nsight Compute. It runs a kernel
// alone and several times, so its counters belong to a run other than the one whose times the event has. NaN is a counter that was not measured.
type Counters [numCounters]float32

// Counter is the index of a counter in [Counters].
type Counter uint8

// The counters. All are in percent.
const (
	CounterOccupancy      Counter = iota // warps that are active on an SM / those that it can hold
	CounterSMThroughput                  // of the SMs' peak
	CounterDRAMThroughput                // of the DRAM's peak
	CounterL1Throughput                  // of the peak of the L1 cache
	CounterL2Throughput                  // of the peak of the L2 cache
	CounterL1Hits                        // requests that hit in the L1 cache
	CounterL2Hits                        // requests that hit in the L2 cache
	CounterWarpEfficiency                // threads of a warp that are active at an instruction
	CounterBranches                      // branches that do not diverge
	CounterSMActive                      // time in which an SM has a warp
	numCounters
)

// CounterInfo describes a counter.
type CounterInfo struct {
	Counter    Counter
	Key        string // in JSON, CSV and files: "achieved_occupancy_percent"
	Name       string
	Definition string

	// What ncu calls it, the name that counts most first: on its page "details", from its versions of 2025 back to 2019,
	// and on its page "raw" and for --metrics.
	Ncu   []string
	Scale float64 // from ncu's unit to percent, but for names that end in ".pct"; 0 is 1
}

// AllCounters are all counters, in the order of tables.
var AllCounters = []CounterInfo{
	{Counter: CounterOccupancy, Key: "achieved_occupancy_percent", Name: "achieved occupancy", Definition: "warps that are active on an SM / those that it can hold",
		Ncu: []string{"Achieved Occupancy", "sm__warps_active.avg.pct_of_peak_sustained_active"}},
	{Counter: CounterSMThroughput, Key: "sm_throughput_percent", Name: "SM throughput", Definition: "rate of the busiest unit of the SMs / its peak",
		Ncu: []string{"Compute (SM) Throughput", "sm__throughput.avg.pct_of_peak_sustained_elapsed", "SM [%]", "SOL SM"}},
	{Counter: CounterDRAMThroughput, Key: "dram_throughput_percent", Name: "DRAM throughput", Definition: "reads and writes of the GPU's memory / its peak",
		Ncu: []string{"DRAM Throughput", "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed", "dram__throughput.avg.pct_of_peak_sustained_elapsed", "SOL DRAM", "SOL FB"}},
	{Counter: CounterL1Throughput, Key: "l1_throughput_percent", Name: "L1 throughput", Definition: "rate of the busiest unit of the L1 cache / its peak",
		Ncu: []string{"L1/TEX Cache Throughput", "l1tex__throughput.avg.pct_of_peak_sustained_active", "l1tex__throughput.avg.pct_of_peak_sustained_elapsed", "SOL L1/TEX Cache", "SOL TEX"}},
	{Counter: CounterL2Throughput, Key: "l2_throughput_percent", Name: "L2 throughput", Definition: "rate of the busiest unit of the L2 cache / its peak",
		Ncu: []string{"L2 Cache Throughput", "lts__throughput.avg.pct_of_peak_sustained_elapsed", "lts__t_sectors.avg.pct_of_peak_sustained_elapsed", "SOL L2 Cache", "SOL L2"}},
	{Counter: CounterL1Hits, Key: "l1_hit_rate_percent", Name: "L1 hit rate", Definition: "share of the requests that the L1 cache answers",
		Ncu: []string{"L1/TEX Hit Rate", "l1tex__t_sector_hit_rate.pct", "L1 Hit Rate"}},
	{Counter: CounterL2Hits, Key: "l2_hit_rate_percent", Name: "L2 hit rate", Definition: "share of the requests that the L2 cache answers",
		Ncu: []string{"L2 Hit Rate", "lts__t_sector_hit_rate.pct"}},
	{Counter: CounterWarpEfficiency, Key: "warp_efficiency_percent", Name: "warp efficiency", Definition: "threads of a warp that are active at an instruction / 32", Scale: 100. / 32,
		Ncu: []string{"Avg. Active Threads Per Warp", "smsp__thread_inst_executed_per_inst_executed.ratio", "smsp__thread_inst_executed_per_inst_executed.pct"}},
	{Counter: CounterBranches, Key: "branch_efficiency_percent", Name: "branch efficiency", Definition: "share of the branches that all threads of a warp take alike",
		Ncu: []string{"Branch Efficiency", "smsp__sass_average_branch_targets_threads_uniform.pct"}},
	{Counter: CounterSMActive, Key: "sm_active_percent", Name: "SMs active", Definition: "share of the time in which an SM has a warp",
		Ncu: []string{"sm__cycles_active.avg.pct_of_peak_sustained_elapsed", "smsp__cycles_active.avg.pct_of_peak_sustained_elapsed"}},
}

// NewCounters returns counters of which none was measured.
func NewCounters() *Counters {
	c := new(Counters)
	for i := range c {
		c[i] = float32(math.NaN())
	}
	return c
}

// Get returns a counter in percent, and whether it was measured; of nil none was.
func (c *Counters) Get(i Counter) (percent float64, ok bool) {
	if c == nil || c[i] != c[i] {
		return 0, false
	}
	return float64(c[i]), true
}

// CounterByKey returns a counter by its key, nil for none.
func CounterByKey(key string) *CounterInfo {
	i := slices.IndexFunc(AllCounters, func(c CounterInfo) bool { return c.Key == key })
	if i < 0 {
		return nil
	}
	return &AllCounters[i]
}

// CounterMean is the mean of the counters of kernels, weighted by their time.
type CounterMean struct {
	sums, weights [numCounters]float64
}

// Add adds the counters of a kernel that took ns.
func (m *CounterMean) Add(c *Counters, ns int64) {
	for i := range m.sums {
		if v, ok := c.Get(Counter(i)); ok {
			m.sums[i] += v * float64(max(1, ns))
			m.weights[i] += float64(max(1, ns))
		}
	}
}

// Join adds what another mean has summed.
func (m *CounterMean) Join(o *CounterMean) {
	for i := range m.sums {
		m.sums[i], m.weights[i] = m.sums[i]+o.sums[i], m.weights[i]+o.weights[i]
	}
}

// Counters returns the means, nil if nothing was measured.
func (m *CounterMean) Counters() *Counters {
	var c *Counters
	for i, w := range m.weights {
		if w > 0 {
			if c == nil {
				c = NewCounters()
			}
			c[i] = float32(m.sums[i] / w)
		}
	}
	return c
}

// Map returns what was measured by its keys, for JSON.
func (c *Counters) Map() map[string]float64 {
	if c == nil {
		return nil
	}
	m := map[string]float64{}
	for _, info := range AllCounters {
		if v, ok := c.Get(info.Counter); ok {
			m[info.Key] = math.Round(v*1e4) / 1e4 // without the digits that a float32 does not have
		}
	}
	return m
}

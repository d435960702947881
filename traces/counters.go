package traces

import (
	"math"
	"slices"
)

// Counters are what hardware counters say of a kernel, by Nsight Compute or nvprof. These tools
// run a kernel alone and several times, so its counters belong to a run other than the one whose
// times the event has. NaN is a counter that was not measured.
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

	// What other programs call it: on the page "details" of ncu, the metric of its page "raw"
	// and of --metrics, and nvprof.
	Details, Metric string
	Nvprof          []string
	Scale           float64 // from the unit of Metric to percent; 0 is 1
	NvprofScale     float64 // the same for nvprof
}

// AllCounters are all counters, in the order of tables.
var AllCounters = []CounterInfo{
	{Counter: CounterOccupancy, Key: "achieved_occupancy_percent", Name: "achieved occupancy", Definition: "warps that are active on an SM / those that it can hold",
		Details: "Achieved Occupancy", Metric: "sm__warps_active.avg.pct_of_peak_sustained_active", Nvprof: []string{"achieved_occupancy"}, NvprofScale: 100},
	{Counter: CounterSMThroughput, Key: "sm_throughput_percent", Name: "SM throughput", Definition: "of the peak of the busiest unit of the SMs",
		Details: "Compute (SM) Throughput", Metric: "sm__throughput.avg.pct_of_peak_sustained_elapsed"},
	{Counter: CounterDRAMThroughput, Key: "dram_throughput_percent", Name: "DRAM throughput", Definition: "of the peak bandwidth of the GPU's memory",
		Details: "DRAM Throughput", Metric: "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed", Nvprof: []string{"dram_utilization"}, NvprofScale: 10},
	{Counter: CounterL1Throughput, Key: "l1_throughput_percent", Name: "L1 throughput", Definition: "of the peak of the L1 cache",
		Details: "L1/TEX Cache Throughput", Metric: "l1tex__throughput.avg.pct_of_peak_sustained_active", Nvprof: []string{"tex_utilization"}, NvprofScale: 10},
	{Counter: CounterL2Throughput, Key: "l2_throughput_percent", Name: "L2 throughput", Definition: "of the peak of the L2 cache",
		Details: "L2 Cache Throughput", Metric: "lts__throughput.avg.pct_of_peak_sustained_elapsed", Nvprof: []string{"l2_utilization"}, NvprofScale: 10},
	{Counter: CounterL1Hits, Key: "l1_hit_rate_percent", Name: "L1 hit rate", Definition: "requests that the L1 cache answers",
		Details: "L1/TEX Hit Rate", Metric: "l1tex__t_sector_hit_rate.pct", Nvprof: []string{"tex_cache_hit_rate", "global_hit_rate", "l1_cache_global_hit_rate"}},
	{Counter: CounterL2Hits, Key: "l2_hit_rate_percent", Name: "L2 hit rate", Definition: "requests that the L2 cache answers",
		Details: "L2 Hit Rate", Metric: "lts__t_sector_hit_rate.pct", Nvprof: []string{"l2_tex_hit_rate", "l2_tex_read_hit_rate", "l2_l1_read_hit_rate"}},
	{Counter: CounterWarpEfficiency, Key: "warp_efficiency_percent", Name: "warp efficiency", Definition: "threads of a warp that are active at an instruction / 32",
		Details: "Avg. Active Threads Per Warp", Metric: "smsp__thread_inst_executed_per_inst_executed.ratio", Scale: 100. / 32, Nvprof: []string{"warp_execution_efficiency"}},
	{Counter: CounterBranches, Key: "branch_efficiency_percent", Name: "branch efficiency", Definition: "branches of a warp that all its threads take alike",
		Details: "Branch Efficiency", Metric: "smsp__sass_average_branch_targets_threads_uniform.pct", Nvprof: []string{"branch_efficiency"}},
	{Counter: CounterSMActive, Key: "sm_active_percent", Name: "SMs active", Definition: "time in which an SM has a warp",
		Metric: "sm__cycles_active.avg.pct_of_peak_sustained_elapsed", Nvprof: []string{"sm_efficiency", "sm_activity"}},
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

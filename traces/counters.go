package traces

import "math"

// Counters are what hardware counters say of a kernel in percent, by Nsight Compute. It runs a kernel alone and several
// times, so its counters belong to a run other than the one whose times the event has.
type Counters map[string]float64

// The counters, as they are called in JSON, CSV and files.
const (
	CounterOccupancy      = "achieved_occupancy_percent" // warps that are active on an SM / those that it can hold
	CounterSMThroughput   = "sm_throughput_percent"      // of the SMs' peak
	CounterDRAMThroughput = "dram_throughput_percent"    // of the DRAM's peak
	CounterL1Throughput   = "l1_throughput_percent"      // of the peak of the L1 cache
	CounterL2Throughput   = "l2_throughput_percent"      // of the peak of the L2 cache
	CounterL1Hits         = "l1_hit_rate_percent"        // requests that hit in the L1 cache
	CounterL2Hits         = "l2_hit_rate_percent"        // requests that hit in the L2 cache
	CounterWarpEfficiency = "warp_efficiency_percent"    // threads of a warp that are active at an instruction
	CounterBranches       = "branch_efficiency_percent"  // branches that do not diverge
	CounterSMActive       = "sm_active_percent"          // time in which an SM has a warp
)

// CounterInfo describes a counter.
type CounterInfo struct {
	Key        string
	Name       string
	Definition string

	// What ncu calls it, the name that counts most first: on its page "details", from its versions of 2025 back to 2019,
	// and on its page "raw" and for --metrics.
	Ncu   []string
	Scale float64 // from ncu's unit to percent, but for names that end in ".pct"; 0 is 1
}

// AllCounters are all counters, in the order of tables.
var AllCounters = []CounterInfo{
	{Key: CounterOccupancy, Name: "achieved occupancy", Definition: "warps that are active on an SM / those that it can hold",
		Ncu: []string{"Achieved Occupancy", "sm__warps_active.avg.pct_of_peak_sustained_active"}},
	{Key: CounterSMThroughput, Name: "SM throughput", Definition: "rate of the busiest unit of the SMs / its peak",
		Ncu: []string{"Compute (SM) Throughput", "sm__throughput.avg.pct_of_peak_sustained_elapsed", "SM [%]", "SOL SM"}},
	{Key: CounterDRAMThroughput, Name: "DRAM throughput", Definition: "reads and writes of the GPU's memory / its peak",
		Ncu: []string{"DRAM Throughput", "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed", "dram__throughput.avg.pct_of_peak_sustained_elapsed", "SOL DRAM", "SOL FB"}},
	{Key: CounterL1Throughput, Name: "L1 throughput", Definition: "rate of the busiest unit of the L1 cache / its peak",
		Ncu: []string{"L1/TEX Cache Throughput", "l1tex__throughput.avg.pct_of_peak_sustained_active", "l1tex__throughput.avg.pct_of_peak_sustained_elapsed", "SOL L1/TEX Cache", "SOL TEX"}},
	{Key: CounterL2Throughput, Name: "L2 throughput", Definition: "rate of the busiest unit of the L2 cache / its peak",
		Ncu: []string{"L2 Cache Throughput", "lts__throughput.avg.pct_of_peak_sustained_elapsed", "lts__t_sectors.avg.pct_of_peak_sustained_elapsed", "SOL L2 Cache", "SOL L2"}},
	{Key: CounterL1Hits, Name: "L1 hit rate", Definition: "share of the requests that the L1 cache answers",
		Ncu: []string{"L1/TEX Hit Rate", "l1tex__t_sector_hit_rate.pct", "L1 Hit Rate"}},
	{Key: CounterL2Hits, Name: "L2 hit rate", Definition: "share of the requests that the L2 cache answers",
		Ncu: []string{"L2 Hit Rate", "lts__t_sector_hit_rate.pct"}},
	{Key: CounterWarpEfficiency, Name: "warp efficiency", Definition: "threads of a warp that are active at an instruction / 32", Scale: 100. / 32,
		Ncu: []string{"Avg. Active Threads Per Warp", "smsp__thread_inst_executed_per_inst_executed.ratio", "smsp__thread_inst_executed_per_inst_executed.pct"}},
	{Key: CounterBranches, Name: "branch efficiency", Definition: "share of the branches that all threads of a warp take alike",
		Ncu: []string{"Branch Efficiency", "smsp__sass_average_branch_targets_threads_uniform.pct"}},
	{Key: CounterSMActive, Name: "SMs active", Definition: "share of the time in which an SM has a warp",
		Ncu: []string{"sm__cycles_active.avg.pct_of_peak_sustained_elapsed", "smsp__cycles_active.avg.pct_of_peak_sustained_elapsed"}},
}

// Get returns a counter in percent, and whether it was measured; of nil none was.
func (c *Counters) Get(key string) (percent float64, ok bool) {
	if c == nil {
		return 0, false
	}
	percent, ok = (*c)[key]
	return percent, ok
}

// CounterMean is the mean of the counters of kernels, weighted by their time.
type CounterMean struct{ sums, weights Counters }

// Add adds the counters of a kernel that took ns.
func (m *CounterMean) Add(c *Counters, ns int64) {
	if c == nil {
		return
	}
	for key, v := range *c {
		m.add(key, v*float64(max(1, ns)), float64(max(1, ns)))
	}
}

func (m *CounterMean) add(key string, sum, weight float64) {
	if m.sums == nil {
		m.sums, m.weights = Counters{}, Counters{}
	}
	m.sums[key] += sum
	m.weights[key] += weight
}

// Join adds what another mean has summed.
func (m *CounterMean) Join(o *CounterMean) {
	for key, sum := range o.sums {
		m.add(key, sum, o.weights[key])
	}
}

// Counters returns the means, nil if nothing was measured.
func (m *CounterMean) Counters() Counters {
	if m.sums == nil {
		return nil
	}
	means := Counters{}
	for key, sum := range m.sums {
		means[key] = math.Round(sum/m.weights[key]*1e4) / 1e4 // tools print fewer digits
	}
	return means
}

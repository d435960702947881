package judge

import (
	"slices"

	"gpt2scope/traces"
)

// definition is an indicator that can be measured. value returns false if the recording does
// not have it. If recordWith is empty the indicator is then left out.
type definition struct {
	key, group, name, unit, definition string
	recordWith                         string
	value                              func(*measured) (float64, bool)
	where                              bool // with the calls in which the host waited
}

// What records what is missing.
const (
	withCalls   = "nsys profile -t cuda, or infer --recorder cupti"
	withKernels = "nsys profile -t cuda --cuda-graph-trace=node, or infer --recorder cupti"
)

// definitions are all indicators, in the order of the table.
var definitions = slices.Concat([]definition{
	{key: "kernel_time", group: "time", name: "kernel time", unit: "ns", definition: "sum of the durations of kernels, however they overlap",
		value: func(m *measured) (float64, bool) { return float64(sum(m.durations)), true }},
	{key: "kernels", group: "time", name: "kernels", unit: "", definition: "how many ran", value: func(m *measured) (float64, bool) { return float64(len(m.durations)), true }},
	{key: "kernel_median", group: "time", name: "median kernel", unit: "ns", definition: "median duration of a kernel", value: func(m *measured) (float64, bool) { return median(m.durations) }},
	{key: "gpu_busy_percent", group: "time", name: "GPU busy", unit: "%", definition: "share of the wall time in which a kernel, copy or set runs", value: func(m *measured) (float64, bool) {
		return percent(m.busy, m.at.Length())
	}},
	{key: "compute_percent", group: "time", name: "computing", unit: "%", definition: "share of the wall time in which a kernel runs", value: func(m *measured) (float64, bool) {
		return percent(m.computing, m.at.Length())
	}},
	{key: "transfer_time", group: "transfers", name: "transfer time", unit: "ns", definition: "time in which a copy or set runs",
		recordWith: withCalls, value: func(m *measured) (float64, bool) {
			return float64(m.copying), m.Header.Recorder != traces.RecorderStamps
		}},
}, copiesOf(), []definition{
	{key: "cpu_gpu_overlap_percent", group: "overlap", name: "CPU-GPU overlap", unit: "%", definition: "of the time in which the GPU works, the share in which the host does not wait for it in an API call; a call that copies pageable memory waits",
		recordWith: withCalls, value: func(m *measured) (float64, bool) {
			if m.calls == 0 {
				return 0, false
			}
			return percent(m.busy-m.waitedBusy, m.busy)
		}},
	{key: "compute_copy_overlap_percent", group: "overlap", name: "compute-copy overlap", unit: "%", definition: "share of the time of copies and sets in which a kernel runs too",
		value: func(m *measured) (float64, bool) { return percent(m.copying-m.copyAlone, m.copying) }},
	{key: "communication_time", group: "overlap", name: "communication", unit: "ns", definition: "time in which a kernel of NCCL runs, which includes waiting for other ranks",
		value: func(m *measured) (float64, bool) { return float64(m.communicating), m.communicating > 0 }},
	{key: "communication_overlap_percent", group: "overlap", name: "communication overlap", unit: "%", definition: "share of the time of communication in which another kernel runs too",
		value: func(m *measured) (float64, bool) {
			return percent(m.communicating-m.communicatingAlone, m.communicating)
		}},
	{key: "queue_depth", group: "queue", name: "queue depth, mean", unit: "", definition: "kernels, copies and sets that are launched and unfinished, in the mean over the wall time; each of a graph counts",
		recordWith: withCalls, value: func(m *measured) (float64, bool) { return m.depth, len(m.launches) > 0 }},
	{key: "queue_depth_max", group: "queue", name: "queue depth, most", unit: "", definition: "the largest queue depth", recordWith: withCalls, value: func(m *measured) (float64, bool) { return float64(m.deepest), len(m.launches) > 0 }},
	{key: "launches", group: "queue", name: "launches", unit: "", definition: "API calls that caused work; one for a graph", recordWith: withCalls, value: func(m *measured) (float64, bool) { return float64(len(m.launches)), len(m.launches) > 0 }},
	{key: "launch_latency", group: "queue", name: "launch latency, median", unit: "ns", definition: "from the start of a call to the start of its first kernel, where nothing else was queued or ran",
		recordWith: withCalls, value: func(m *measured) (float64, bool) {
			if len(m.launches) > 0 && len(m.latencies()) == 0 {
				return 0, true // the queue was never empty
			}
			return median(m.latencies())
		}},
	{key: "starved_percent", group: "queue", name: "starved", unit: "%", definition: "share of the wall time in which nothing ran and nothing was queued, until the next launch",
		recordWith: withCalls, value: func(m *measured) (float64, bool) {
			v, ok := percent(m.starved(), m.at.Length())
			return v, ok && len(m.launches) > 0
		}},
	{key: "synchronisations", group: "synchronisation", name: "synchronisations", unit: "", definition: "API calls that wait for a stream, an event, the device, or a copy", recordWith: withCalls,
		value: func(m *measured) (float64, bool) { return float64(m.waits.count), m.calls > 0 }, where: true},
	{key: "synchronisation_time", group: "synchronisation", name: "synchronisation time", unit: "ns", definition: "sum of the durations of these calls", recordWith: withCalls,
		value: func(m *measured) (float64, bool) { return float64(m.waits.time), m.calls > 0 }},
	{key: "correlated_percent", group: "attribution", name: "correlation ids paired", unit: "%", definition: "share of kernels, copies and sets whose API call is in the recording", recordWith: withCalls,
		value: func(m *measured) (float64, bool) {
			n := 0
			for _, l := range m.launches {
				n += len(l.Ends)
			}
			v, ok := percent(int64(n), int64(n+m.without))
			return v, ok && m.calls > 0
		}},
	{key: "grid_fill_percent", group: "utilisation", name: "SMs reached by grids", unit: "%", definition: "blocks of a grid / SMs of the GPU, at most 100 %, in the mean over kernel time: no more of the SMs can be in use",
		recordWith: withKernels, value: func(m *measured) (float64, bool) { return m.fill.value() }},
	{key: "theoretical_occupancy_percent", group: "utilisation", name: "theoretical occupancy", unit: "%", definition: "warps that an SM can hold of these blocks / warps that it can hold, in the mean over kernel time",
		recordWith: withKernels, value: func(m *measured) (float64, bool) { return m.occupancy.value() }},
	sampled("sm_utilisation_percent", "SM utilisation",
		"SMs that have a warp, in the mean over the wall time, as the device samples them", "SMs Active [Throughput %]"),
	sampled("tensor_utilisation_percent", "tensor cores",
		"time in which the tensor cores work, in the mean over SMs and wall time, as the device samples them", "Tensor Active [Throughput %]"),
	sampled("dram_bandwidth_percent", "memory bandwidth",
		"reads and writes of the GPU's memory / its peak, in the mean over the wall time, as the device samples them",
		"DRAM Read Bandwidth [Throughput %]", "DRAM Write Bandwidth [Throughput %]"),
}, ofCounters())

// sampled is an indicator of what the device samples: the sum of the named metrics of nsys.
func sampled(key, name, text string, metrics ...string) definition {
	return definition{key: key, group: "utilisation", name: name, unit: "%",
		definition: text, recordWith: "nsys profile --gpu-metrics-devices=all (it needs the permission to read counters)",
		value: func(m *measured) (float64, bool) {
			sum, found := 0.0, false
			for _, name := range metrics {
				if v, ok := m.samples[name]; ok {
					sum, found = sum+v, true
				}
			}
			return sum, found
		}}
}

// ofCounters are the indicators of hardware counters of kernels.
func ofCounters() []definition {
	var list []definition
	for _, c := range traces.AllCounters {
		list = append(list, definition{key: c.Key, group: "counters", name: c.Name, unit: "%",
			definition: c.Definition + ", in the mean over kernel time",
			recordWith: "ncu --set full --csv --page details PROGRAM > FILE.csv, then --counters FILE.csv",
			value:      func(m *measured) (float64, bool) { return m.counters.Get(c.Counter) }})
	}
	return list
}

// copiesOf are the indicators of copies, by direction and memory.
func copiesOf() []definition {
	var list []definition
	for _, c := range []struct{ key, name, ways, memory, text string }{
		{"h2d_pageable", "HtoD, pageable", "HtoD", "pageable", "from pageable memory of the host to the GPU"}, {"h2d_pinned", "HtoD, pinned", "HtoD", "pinned", "from page-locked memory of the host to the GPU"},
		{"h2d", "HtoD, memory unknown", "HtoD", "", "from the host to the GPU"}, {"d2h_pageable", "DtoH, pageable", "DtoH", "pageable", "from the GPU to pageable memory of the host"},
		{"d2h_pinned", "DtoH, pinned", "DtoH", "pinned", "from the GPU to page-locked memory of the host"}, {"d2h", "DtoH, memory unknown", "DtoH", "", "from the GPU to the host"},
		{"d2d", "DtoD", "DtoD", "", "within the memory of the GPU"}, {"p2p", "PtoP", "PtoP", "", "between GPUs"}, {"other", "other copies", "other", "", "whose direction the source does not say"},
	} {
		of := func(m *measured) *transfer { return m.copies[direction{c.ways, c.memory}] }
		number := func(v func(*transfer) (float64, bool)) func(*measured) (float64, bool) {
			return func(m *measured) (float64, bool) {
				if t := of(m); t != nil {
					return v(t)
				}
				return 0, false
			}
		}
		list = append(list,
			definition{key: c.key + "_copies", group: "transfers", name: c.name, unit: "copies",
				definition: "copies " + c.text, value: number(func(t *transfer) (float64, bool) { return float64(t.count), true })},
			definition{key: c.key + "_bytes", group: "transfers", name: c.name, unit: "bytes", definition: "their bytes",
				value: number(func(t *transfer) (float64, bool) { return float64(t.bytes), t.bytes > 0 })},
			definition{key: c.key + "_time", group: "transfers", name: c.name, unit: "ns",
				definition: "sum of their durations on the GPU", value: number(func(t *transfer) (float64, bool) { return float64(t.time), true })},
			definition{key: c.key + "_gb_per_s", group: "transfers", name: c.name, unit: "GB/s",
				definition: "their bytes / their time", value: number(func(t *transfer) (float64, bool) {
					return float64(t.bytes) / float64(max(1, t.time)), t.bytes > 0 && t.time > 0
				})})
	}
	return list
}

// percent returns a share, which is not known of nothing.
func percent(part, whole int64) (float64, bool) {
	if whole <= 0 {
		return 0, false
	}
	return 100 * float64(part) / float64(whole), true
}

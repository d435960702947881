package judge

import (
	"fmt"
	"slices"

	"gpt2scope/internal/humanize"
	"gpt2scope/traces"
	"gpt2scope/traces/window"
)

// definition is an indicator that can be measured. value returns false if the recording does
// not have it. If recordWith, of recorders, is empty the indicator is then left out.
type definition struct {
	key, group, name, unit, definition, recordWith string
	value                                          func(*measured) (float64, bool)
}

// What a recording may lack.
const (
	withCalls    = "calls"
	withKernels  = "kernels"
	withMemory   = "memory"
	withSamples  = "samples"
	withCounters = "counters"
)

// recorders say what records what is missing, for those who made a recording by nsys, PyTorch or this program. Of a GPU
// of AMD the files of PyTorch's profiler alone are read.
var recorders = map[string]struct{ nsys, pytorch, own, amd string }{
	withCalls: {"nsys profile -t cuda", "profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])",
		"infer --recorder cupti", "profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])"},
	withKernels: {"nsys profile -t cuda --cuda-graph-trace=node", "nsys profile -t cuda --cuda-graph-trace=node",
		"infer --recorder cupti", ""},
	withMemory: {"nsys profile --cuda-memory-usage=true", "profile(profile_memory=True)",
		"infer trace record -- infer ...", "profile(profile_memory=True)"},
	withSamples:  {gpuMetrics, gpuMetrics, gpuMetrics, ""},
	withCounters: {ncu, ncu, ncu, ""},
}

const (
	gpuMetrics = "nsys profile --gpu-metrics-devices=all (it needs the permission to read counters)"
	ncu        = "ncu --set full --csv --page details PROGRAM > FILE.csv, then --counters FILE.csv"
)

// recorder returns what would record what a recording lacks, "" for nothing whose files are read.
func recorder(what string, h *traces.Header, device int32) string {
	by := recorders[what]
	switch {
	case isAMD(h.Device(device)):
		return by.amd
	case h.Recorder == traces.RecorderKineto:
		return by.pytorch
	case h.Tool == traces.Domain:
		return by.own
	}
	return by.nsys
}

// Number writes a value of an indicator for people, in [Indicator.Shown].
func Number(v float64, unit string) string {
	switch {
	case unit == "ns":
		return humanize.Separate(fmt.Sprintf("%.3f", v/1e3))
	case unit == "%" || unit == "GB/s" || v != float64(int64(v)):
		return fmt.Sprintf("%.2f", v)
	}
	return humanize.Thousands(int64(v))
}

// Shown is the unit in which people see the indicator.
func (x Indicator) Shown() string {
	if x.Unit == "ns" {
		return "us"
	}
	return x.Unit
}

// How says what to do to have an indicator that a recording lacks.
func (x Indicator) How() string {
	if x.RecordWith == "" {
		return "nothing whose files are read measures it on this GPU"
	}
	return "record with " + x.RecordWith
}

// definitions are all indicators, in the order of the table.
var definitions = slices.Concat([]definition{
	{"kernel_time", "time", "kernel time", "ns", "sum of the durations of kernels, however they overlap", "",
		func(m *measured) (float64, bool) { return float64(sum(m.durations)), true }},
	{"kernels", "time", "kernels", "", "how many ran", "",
		func(m *measured) (float64, bool) { return float64(len(m.durations)), true }},
	{"kernel_median", "time", "median kernel", "ns", "median duration of a kernel", "",
		func(m *measured) (float64, bool) { return median(m.durations) }},
	{"gpu_busy_percent", "time", "GPU busy", "%", "share of the wall time in which a kernel, copy or set runs", "",
		func(m *measured) (float64, bool) { return percent(m.busy, m.at.Length()) }},
	{"compute_percent", "time", "computing", "%", "share of the wall time in which a kernel runs", "",
		func(m *measured) (float64, bool) { return percent(m.computing, m.at.Length()) }},
	{"transfer_time", "transfers", "transfer time", "ns", "time in which a copy or set runs", withCalls,
		func(m *measured) (float64, bool) {
			return float64(m.copying), m.Header.Recorder != traces.RecorderStamps
		}},
}, copiesOf(), []definition{
	{"kernel_overlap_percent", "overlap", "kernels that overlap", "%",
		"1 - time in which a kernel runs / kernel time: the part of the kernel time that runs beside other kernels", "",
		func(m *measured) (float64, bool) {
			all := sum(m.durations)
			return percent(all-m.computing, all)
		}},
	{"cpu_gpu_overlap_percent", "overlap", "CPU-GPU overlap", "%", "of the time in which the GPU works, the share in " +
		"which the host does not wait for it in an API call; a call that copies pageable memory waits", withCalls,
		func(m *measured) (float64, bool) {
			v, ok := percent(m.busy-m.waitedBusy, m.busy)
			return v, ok && m.calls > 0
		}},
	{"compute_copy_overlap_percent", "overlap", "compute-copy overlap", "%",
		"share of the time of copies and sets in which a kernel runs too", "",
		func(m *measured) (float64, bool) { return percent(m.copying-m.copyAlone, m.copying) }},
	{"communication_time", "overlap", "communication", "ns",
		"time in which a kernel of NCCL runs, which includes waiting for other ranks", "",
		func(m *measured) (float64, bool) { return float64(m.communicating), m.communicating > 0 }},
	{"communication_overlap_percent", "overlap", "communication overlap", "%",
		"share of the time of communication in which another kernel runs too", "",
		func(m *measured) (float64, bool) {
			return percent(m.communicating-m.communicatingAlone, m.communicating)
		}},
	{"queue_depth", "queue", "queue depth, mean", "", "kernels, copies and sets that are launched and unfinished, " +
		"in the mean over the wall time; each of a graph counts", withCalls,
		func(m *measured) (float64, bool) { return m.depth, len(m.launches) > 0 }},
	{"queue_depth_max", "queue", "queue depth, most", "", "the largest queue depth", withCalls,
		func(m *measured) (float64, bool) { return float64(m.deepest), len(m.launches) > 0 }},
	{"launches", "queue", "launches", "", "API calls that caused work; one for a graph", withCalls,
		func(m *measured) (float64, bool) { return float64(len(m.launches)), len(m.launches) > 0 }},
	{"launch_latency", "queue", "launch latency, median", "ns",
		"from the start of a call to the start of its first kernel, where nothing else was queued or ran", withCalls,
		func(m *measured) (float64, bool) {
			latencies := m.latencies()
			if len(m.launches) > 0 && len(latencies) == 0 {
				return 0, true // the queue was never empty
			}
			return median(latencies)
		}},
	{"starved_percent", "queue", "starved", "%",
		"share of the wall time in which nothing ran and nothing was queued, until the next launch", withCalls,
		func(m *measured) (float64, bool) {
			_, ns := window.Starved(m.launches, m.at)
			v, ok := percent(ns, m.at.Length())
			return v, ok && len(m.launches) > 0
		}},
	{"synchronisations", "synchronisation", "synchronisations", "",
		"API calls that wait for a stream, an event, the device, or a copy", withCalls,
		func(m *measured) (float64, bool) { return float64(m.waits.count), m.calls > 0 }},
	{"synchronisation_time", "synchronisation", "synchronisation time", "ns", "sum of the durations of these calls", withCalls,
		func(m *measured) (float64, bool) { return float64(m.waits.time), m.calls > 0 }},
	{"correlated_percent", "attribution", "correlation ids paired", "%",
		"share of kernels, copies and sets whose API call is in the recording", withCalls,
		func(m *measured) (float64, bool) {
			n := 0
			for _, l := range m.launches {
				n += int(l.Work)
			}
			v, ok := percent(int64(n), int64(n+m.without))
			return v, ok && m.calls > 0
		}},
	{"grid_fill_percent", "utilisation", "SMs reached by grids", "%", "blocks of a grid / SMs of the GPU, at most 100 %, " +
		"in the mean over kernel time but that of NCCL: no more of the SMs can be in use", withKernels,
		func(m *measured) (float64, bool) { return m.fill.over(sum(m.durations) - m.messages) }},
	{"theoretical_occupancy_percent", "utilisation", "theoretical occupancy", "%",
		"warps that an SM can hold of these blocks / warps that it can hold, in the mean over kernel time", withKernels,
		func(m *measured) (float64, bool) { return m.occupancy.over(sum(m.durations)) }},
	sampled("sm_utilisation_percent", "SM utilisation",
		"SMs that have a warp, in the mean over the wall time", "SMs Active [Throughput %]"),
	sampled("tensor_utilisation_percent", "tensor cores",
		"time in which the tensor cores work, in the mean over SMs and wall time", "Tensor Active [Throughput %]"),
	sampled("dram_bandwidth_percent", "memory bandwidth",
		"reads and writes of the GPU's memory / its peak, in the mean over the wall time",
		"DRAM Read Bandwidth [Throughput %]", "DRAM Write Bandwidth [Throughput %]"),
	{"memory_peak", "memory", "most memory held", "bytes",
		"most memory of the GPU that the program, or its allocator, holds at a time", withMemory,
		func(m *measured) (float64, bool) { return m.memory() }},
	{"memory_peak_percent", "memory", "most memory held, of the GPU's", "%", "the same / memory of the GPU", withMemory,
		func(m *measured) (float64, bool) {
			v, ok := m.memory()
			p, known := percent(int64(v), m.Header.Device(m.Device).Memory)
			return p, ok && known
		}},
}, ofCounters())

// memory returns the most memory that was held.
func (m *measured) memory() (bytes float64, ok bool) {
	for name, peak := range m.peaks {
		if traces.IsMemory(name) {
			bytes, ok = max(bytes, peak), true
		}
	}
	return bytes, ok
}

// sampled is an indicator of what the device samples: the sum of the named metrics of nsys.
func sampled(key, name, text string, metrics ...string) definition {
	return definition{key, "utilisation", name, "%", text + ", as the device samples them",
		withSamples,
		func(m *measured) (float64, bool) {
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
		list = append(list, definition{c.Key, "counters", c.Name, "%", c.Definition + ", in the mean over kernel time",
			withCounters,
			func(m *measured) (float64, bool) { return m.counters.Get(c.Key) }})
	}
	return list
}

// copiesOf are the indicators of copies, by direction and memory.
func copiesOf() []definition {
	var list []definition
	for _, c := range []struct{ key, name, ways, memory, text string }{
		{"h2d_pageable", "HtoD, pageable", "HtoD", "pageable", "from pageable memory of the host to the GPU"},
		{"h2d_pinned", "HtoD, pinned", "HtoD", "pinned", "from page-locked memory of the host to the GPU"},
		{"h2d", "HtoD, memory unknown", "HtoD", "", "from the host to the GPU"},
		{"d2h_pageable", "DtoH, pageable", "DtoH", "pageable", "from the GPU to pageable memory of the host"},
		{"d2h_pinned", "DtoH, pinned", "DtoH", "pinned", "from the GPU to page-locked memory of the host"},
		{"d2h", "DtoH, memory unknown", "DtoH", "", "from the GPU to the host"},
		{"d2d", "DtoD", "DtoD", "", "within the memory of the GPU"},
		{"p2p", "PtoP", "PtoP", "", "between GPUs"},
		{"other", "other copies", "other", "", "whose direction the source does not say"},
	} {
		add := func(key, unit, meaning string, value func(t transfer) (float64, bool)) {
			list = append(list, definition{c.key + key, "transfers", c.name, unit, meaning, "",
				func(m *measured) (float64, bool) {
					if t := m.copies[direction{c.ways, c.memory}]; t != nil {
						return value(*t)
					}
					return 0, false
				}})
		}
		add("_copies", "copies", "copies "+c.text, func(t transfer) (float64, bool) { return float64(t.count), true })
		add("_bytes", "bytes", "their bytes", func(t transfer) (float64, bool) { return float64(t.bytes), t.bytes > 0 })
		add("_time", "ns", "sum of their durations on the GPU",
			func(t transfer) (float64, bool) { return float64(t.time), true })
		add("_gb_per_s", "GB/s", "their bytes / their time", func(t transfer) (float64, bool) {
			return float64(t.bytes) / float64(max(1, t.time)), t.bytes > 0 && t.time > 0
		})
	}
	return list
}

// Definitions returns the indicators, without values and without those of single kinds of copies.
func Definitions() (list []Indicator) {
	for _, d := range definitions {
		if d.group != "transfers" || d.key == "transfer_time" {
			list = append(list, Indicator{Key: d.key, Group: d.group, Name: d.name, Unit: d.unit, Definition: d.definition})
		}
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

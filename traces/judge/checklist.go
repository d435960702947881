package judge

import (
	"fmt"
	"strings"

	"gpt2scope/ceilings"
	"gpt2scope/internal/humanize"
	"gpt2scope/traces/tables"
)

// Check is a question that follows from the indicators of a recording.
type Check struct {
	Question string `json:"question"`
	Answer   Answer `json:"answer"`
	Evidence string `json:"evidence"`       // a sentence with the numbers
	Next     string `json:"next,omitempty"` // what to do about it
}

// Answer is the answer to a [Check].
type Answer string

const (
	Yes     Answer = "yes"
	No      Answer = "no"
	Unknown Answer = "unknown" // Next says what to record or measure
)

// seeAdvice is where the rules are that name single kernels and copies.
const seeAdvice = "'infer trace advise' lists kernels and gaps with the most they could gain"

// question is a row of the checklist.
type question struct {
	text  string
	needs string // the indicator without which there is no answer
	what  string // that indicator, in words
	judge func(r *Report, t *tables.Table, c *Check, value float64)
}

var questions = []question{
	{"Do transfers take longer than computing?", "transfer_time", "the time of copies", transfers},
	{"Could the CPU be faster, because the inputs are small?", "launch_latency", "the latency of launches",
		smallInputs},
	{"Is the GPU poorly used?", "gpu_busy_percent", "work of a GPU", utilisation},
	{"Does memory bandwidth limit the kernels?", "dram_throughput_percent", "the throughput of the memory", bandwidth},
	{"Is memory usage high?", "memory_peak_percent", "the memory that is held over time", memory},
	{"Do the threads of warps diverge?", "warp_efficiency_percent", "how many threads of a warp are active", warps},
}

// checklist answers the questions that follow from the indicators of the time that a table covers.
func checklist(r *Report, t *tables.Table) []Check {
	var checks []Check
	for _, q := range questions {
		c := Check{Question: q.text, Answer: No}
		v, ok := r.value(q.needs)
		// The throughput of the memory while kernels run follows from samples over the wall time too.
		if sampled, has := r.value("dram_bandwidth_percent"); q.needs == "dram_throughput_percent" && !ok && has {
			if computing, _ := r.value("compute_percent"); computing > 0 {
				v, ok = min(100, 100*sampled/computing), true
			}
		}
		if q.needs == "dram_throughput_percent" && !ok && byFloors(t, &c) {
			checks = append(checks, c)
			continue
		}
		if ok {
			q.judge(r, t, &c, v)
		} else {
			c.Answer, c.Evidence, c.Next = Unknown, q.what+" is not in this recording", r.find(q.needs).How()
		}
		checks = append(checks, c)
	}
	return checks
}

func transfers(r *Report, _ *tables.Table, c *Check, copying float64) {
	percent, _ := r.value("compute_percent")
	computing := percent / 100 * float64(r.Wall)
	c.Evidence = fmt.Sprintf("copies and sets run for %s ms, kernels for %s ms", humanize.InMilliseconds(copying), humanize.InMilliseconds(computing))
	if copying == 0 {
		c.Evidence = fmt.Sprintf("there are no copies and sets; kernels run for %s ms", humanize.InMilliseconds(computing))
	}
	overlap, ok := r.value("compute_copy_overlap_percent")
	if ok {
		c.Evidence += fmt.Sprintf("; a kernel runs beside them for %.1f %% of their time", overlap)
	}
	if copying > computing {
		c.Answer = Yes
		c.Next = "keep data on the GPU between passes; copy rarely, in large pieces"
		if _, pageable := r.value("h2d_pageable_time"); pageable {
			c.Next += ", from pinned memory (pin_memory() and non_blocking=True in PyTorch)"
		}
		if overlap < 50 {
			c.Next += ", on a stream of their own so that kernels run meanwhile"
		}
	}
}

func smallInputs(r *Report, _ *tables.Table, c *Check, latency float64) {
	kernel, ran := r.value("kernel_median")
	starved, _ := r.value("starved_percent")
	computing, _ := r.value("compute_percent")
	if !ran {
		c.Answer, c.Evidence = Unknown, "no kernel ran"
		return
	}
	c.Evidence = fmt.Sprintf("the median kernel takes %s us; ", us(kernel))
	if latency == 0 {
		c.Evidence += "none was launched on an idle GPU"
		return
	}
	c.Evidence += fmt.Sprintf("a launch on an idle GPU takes %s us until its kernel starts; "+
		"the GPU has no work for %.1f %% of the time", us(latency), starved)
	if kernel >= latency || starved <= 100-lowBusy || computing <= 0 {
		return
	}
	// What a CPU may take for the work of the kernels without being slower than all this.
	slower := 100 / computing
	c.Evidence += fmt.Sprintf("; kernels run for %.1f %%, so a CPU is faster if it needs less than %.1f times their time",
		computing, slower)
	if c.Answer = Unknown; slower >= fasterThanCPU {
		c.Answer = Yes
	}
	c.Next = "measure the same work on the CPU; larger batches, CUDA graphs and torch.compile make the launches count less"
}

func utilisation(r *Report, t *tables.Table, c *Check, busy float64) {
	c.Evidence = fmt.Sprintf("the GPU works for %.1f %% of the time", busy)
	fill, known := r.value("grid_fill_percent")
	if known {
		c.Evidence += fmt.Sprintf("; its grids have blocks for %.1f %% of the SMs", fill)
	}
	active, measured := r.value("sm_utilisation_percent")
	if measured {
		c.Evidence += fmt.Sprintf("; %.1f %% of the SMs are active on average", active)
	}
	causes := idleCauses(t)
	var text []string
	for _, row := range causes[:min(2, len(causes))] {
		text = append(text, fmt.Sprintf("%s %s ms", row.name, humanize.InMilliseconds(row.time)))
	}
	if len(text) > 0 {
		c.Evidence += "; idle: " + strings.Join(text, ", ")
	}
	if busy < lowBusy || known && fill < lowBusy || measured && active < lowBusy {
		c.Answer, c.Next = Yes, seeAdvice
	}
	if known && fill < lowBusy {
		c.Next = "grids of more blocks: larger batches, split-K products, blocks of fewer elements; " + c.Next
	}
}

// idleCauses sums the idle time of a table by cause, the longest first.
func idleCauses(t *tables.Table) []*tallied {
	causes := newTally()
	for _, row := range t.Rows {
		if row.Kind == tables.RowIdle && row.Exclusive > 0 {
			causes.add(row.Name, row.Exclusive, row.Exclusive, 0)
		}
	}
	return causes.sorted()
}

func bandwidth(r *Report, _ *tables.Table, c *Check, dram float64) {
	c.Evidence = fmt.Sprintf("while kernels run, they use %.1f %% of the memory's peak bandwidth on average", dram)
	sm, known := r.value("sm_throughput_percent")
	if known {
		c.Evidence += fmt.Sprintf(", and %.1f %% of what the SMs can do", sm)
	}
	switch {
	case dram >= nearPeak:
		c.Answer = Yes
		c.Next = "move fewer bytes: smaller types, fused kernels, data that stay in caches"
	case known && sm >= nearPeak:
		c.Next = "the SMs are the limit: tensor cores, smaller types, less arithmetic"
	case known:
		c.Next = "neither is at its limit: kernels are too short, or have too few warps to hide latency; " + seeAdvice
	}
}

// byFloors answers whether memory bandwidth limits the kernels by the bytes of their stages and the measured ceiling; false
// if the recording does not have both.
func byFloors(t *tables.Table, c *Check) bool {
	var bytes, all, floors, limited int64
	for _, row := range t.Rows {
		if row.Kind != tables.RowWork || row.Floor <= 0 || row.Bytes <= 0 {
			continue
		}
		bytes, all, floors = bytes+row.Bytes, all+row.Exclusive, floors+row.Floor
		if row.Bound == ceilings.BoundBytes {
			limited += row.Floor
		}
	}
	if all <= 0 || floors <= 0 {
		return false
	}
	share := 100 * float64(limited) / float64(all)
	c.Evidence = fmt.Sprintf("by the bytes of the stages they move %.0f GB/s; at the measured ceiling their bytes need %.1f %% of "+
		"their time", float64(bytes)/float64(all), share)
	switch {
	case share >= nearPeak:
		c.Answer = Yes
		c.Next = "move fewer bytes: smaller types, fused kernels, data that stay in caches"
	default:
		c.Next = seeAdvice
	}
	return true
}

// nearlyFull is the percentage of a GPU's memory above which the next larger batch is likely not to fit.
const nearlyFull = 90

func memory(r *Report, _ *tables.Table, c *Check, percent float64) {
	held, _ := r.value("memory_peak")
	c.Evidence = fmt.Sprintf("at most %s are held, %.1f %% of the GPU's memory", humanize.Size(int64(held)), percent)
	if percent >= nearlyFull {
		c.Answer = Yes
		c.Next = "smaller batches or types, recomputed activations, no copies kept; 'infer trace show --by memory' says when"
	}
}

func warps(_ *Report, _ *tables.Table, c *Check, efficiency float64) {
	c.Evidence = fmt.Sprintf("at an instruction %.1f %% of the threads of a warp are active, on average while kernels run",
		efficiency)
	if efficiency < lowEfficiency {
		c.Answer = Yes
		c.Next = "let the 32 threads of a warp take the same branch: order the data, choose block sizes that are multiples " +
			"of 32; 'infer trace show --by kernel --sort \"warp eff. %\"' names the kernels"
	}
}

func us(ns float64) string { return fmt.Sprintf("%.2f", ns/1e3) }

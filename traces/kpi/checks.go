package kpi

import (
	"fmt"
	"slices"
	"strings"

	"gpt2scope/internal/humanize"
	"gpt2scope/traces/tables"
)

// Thresholds of the checks.
const (
	lowBusy       = 70 // percent of the wall time
	nearCeiling   = 70 // percent of what memory or SMs can do
	lowEfficiency = 80 // percent of the threads of a warp

	// A GPU has about so many times the memory bandwidth of the CPU beside it: 4,800 GB/s and 250
	// in a server of 2024, 940 and 50 in a desktop computer of 2021.
	fasterThanCPU = 20
)

// advise is where the rules are that name single kernels and copies.
const advise = "'infer trace advise' lists kernels and gaps with the most they could gain"

// checks answers the questions that follow from the indicators.
func checks(r *Report, t *tables.Table) []Check {
	return []Check{transfersCheck(r), smallCheck(r), utilisationCheck(r, t), memoryCheck(r), divergenceCheck(r)}
}

// unknown is the answer if the recording lacks an indicator.
func (r *Report) unknown(question, what, key string) Check {
	c := Check{Question: question, Answer: Unknown, Evidence: what + " is not in this recording"}
	if x := r.Find(key); x != nil && x.RecordWith != "" {
		c.Next = "record it with " + x.RecordWith
	}
	return c
}

func transfersCheck(r *Report) Check {
	c := Check{Question: "Do transfers take longer than computing?", Answer: No}
	copying, ok := r.value("transfer_time")
	if !ok {
		return r.unknown(c.Question, "the time of copies", "transfer_time")
	}
	percent, _ := r.value("compute_percent")
	computing := percent / 100 * float64(r.Wall)
	c.Evidence = fmt.Sprintf("copies and sets run for %s ms, kernels for %s ms", ms(copying), ms(computing))
	if copying == 0 {
		c.Evidence = fmt.Sprintf("there are no copies and sets; kernels run for %s ms", ms(computing))
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
	return c
}

func smallCheck(r *Report) Check {
	c := Check{Question: "Could the CPU be faster, because the inputs are small?", Answer: No}
	kernel, _ := r.value("kernel_median")
	latency, ok := r.value("launch_latency")
	if !ok {
		return r.unknown(c.Question, "the latency of launches", "launch_latency")
	}
	starved, _ := r.value("starved_percent")
	computing, _ := r.value("compute_percent")
	c.Evidence = fmt.Sprintf("the median kernel takes %s us; ", us(kernel))
	if latency == 0 {
		c.Evidence += "the GPU always had work queued"
		return c
	}
	c.Evidence += fmt.Sprintf("a launch on an idle GPU takes %s us until its kernel starts; the GPU has no work for %.1f %% of the time", us(latency), starved)
	if kernel >= latency || starved <= 100-lowBusy || computing <= 0 {
		return c
	}
	// What a CPU may take for the work of the kernels without being slower than all this.
	slower := 100 / computing
	c.Evidence += fmt.Sprintf("; kernels run for %.1f %%, so a CPU is faster if it needs less than %.1f times their time", computing, slower)
	if c.Answer = Unknown; slower >= fasterThanCPU {
		c.Answer = Yes
	}
	c.Next = "measure the same work on the CPU; larger batches, CUDA graphs and torch.compile make the launches count less"
	return c
}

// remedies say what to do about a cause of idle time.
var remedies = map[string]string{
	tables.IdleHost:       "see what the host does between launches ('infer trace show --by op', or --by range), or launch whole CUDA graphs",
	tables.IdleLaunch:     "launch less often: CUDA graphs, fused kernels, torch.compile",
	tables.IdleDependency: "fewer and larger kernels: each waits for the one before",
	tables.IdleSync:       "wait for the GPU once, at the end: .item(), .cpu() and synchronize() inside a pass stop the host",
	tables.IdleCopy:       "copy from pinned memory without waiting for it",
}

func utilisationCheck(r *Report, t *tables.Table) Check {
	c := Check{Question: "Is the GPU poorly used?", Answer: No}
	busy, ok := r.value("gpu_busy_percent")
	if !ok {
		return Check{Question: c.Question, Answer: Unknown, Evidence: "the recording has no work"}
	}
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
		text = append(text, fmt.Sprintf("%s %s ms", row.Name, ms(float64(row.Exclusive))))
	}
	if len(text) > 0 {
		c.Evidence += "; idle: " + strings.Join(text, ", ")
	}
	var next []string
	if busy < lowBusy && len(causes) > 0 && remedies[causes[0].Name] != "" {
		next = append(next, remedies[causes[0].Name])
	}
	if known && fill < lowBusy {
		next = append(next, "grids of more blocks: larger batches, split-K products, blocks of fewer elements")
	}
	if busy < lowBusy || known && fill < lowBusy || measured && active < lowBusy {
		c.Answer = Yes
		c.Next = strings.Join(append(next, advise), "; ")
	}
	return c
}

// idleCauses sums the idle time of a table by cause, the longest first.
func idleCauses(t *tables.Table) []tables.Row {
	var idle []tables.Row
	for _, row := range t.Rows {
		if row.Kind == tables.RowIdle && row.Exclusive > 0 {
			i := slices.IndexFunc(idle, func(o tables.Row) bool { return o.Name == row.Name })
			if i < 0 {
				idle = append(idle, tables.Row{Name: row.Name})
				i = len(idle) - 1
			}
			idle[i].Exclusive += row.Exclusive
		}
	}
	slices.SortStableFunc(idle, func(a, b tables.Row) int { return int(min(1, max(-1, b.Exclusive-a.Exclusive))) })
	return idle
}

func memoryCheck(r *Report) Check {
	c := Check{Question: "Does memory bandwidth limit the kernels?", Answer: No}
	dram, ok := r.value("dram_throughput_percent")
	if sampled, has := r.value("dram_bandwidth_percent"); !ok && has {
		// Over the wall time: while a kernel runs it is more.
		if computing, _ := r.value("compute_percent"); computing > 0 {
			dram, ok = min(100, 100*sampled/computing), true
		}
	}
	if !ok {
		return r.unknown(c.Question, "the throughput of the memory", "dram_throughput_percent")
	}
	c.Evidence = fmt.Sprintf("while kernels run, they use %.1f %% of the memory's peak bandwidth on average", dram)
	sm, known := r.value("sm_throughput_percent")
	if known {
		c.Evidence += fmt.Sprintf(", and %.1f %% of what the SMs can do", sm)
	}
	switch {
	case dram >= nearCeiling:
		c.Answer = Yes
		c.Next = "move fewer bytes: smaller types, fused kernels, data that stay in caches"
	case known && sm >= nearCeiling:
		c.Next = "the SMs are the limit: tensor cores, smaller types, less arithmetic"
	case known:
		c.Next = "neither is at its limit: kernels are too short, or have too few warps to hide latency; " + advise
	}
	return c
}

func divergenceCheck(r *Report) Check {
	c := Check{Question: "Do the threads of warps diverge?", Answer: No}
	efficiency, ok := r.value("warp_efficiency_percent")
	if !ok {
		return r.unknown(c.Question, "how many threads of a warp are active", "warp_efficiency_percent")
	}
	c.Evidence = fmt.Sprintf("at an instruction %.1f %% of the threads of a warp are active, on average while kernels run", efficiency)
	if efficiency < lowEfficiency {
		c.Answer = Yes
		c.Next = "let the 32 threads of a warp take the same branch: order the data, choose block sizes that are multiples of 32; 'infer trace show --by kernel --sort \"warp eff. %\"' names the kernels"
	}
	return c
}

func ms(ns float64) string { return humanize.Separate(fmt.Sprintf("%.3f", ns/1e6)) }
func us(ns float64) string { return fmt.Sprintf("%.2f", ns/1e3) }

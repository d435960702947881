package kpi

import (
	"fmt"
	"slices"
	"strings"

	"gpt2scope/internal/humanize"
	"gpt2scope/traces/tables"
)

// Thresholds of the checks, in percent.
const (
	lowBusy       = 70 // of the wall time
	nearCeiling   = 70 // of what the memory can deliver
	lowEfficiency = 80 // of the threads of a warp
)

// checks answers the questions that follow from the indicators.
func checks(r *Report, t *tables.Table) []Check {
	return []Check{transfersCheck(r), smallCheck(r), utilisationCheck(r, t), memoryCheck(r), divergenceCheck(r)}
}

func transfersCheck(r *Report) Check {
	c := Check{Question: "Do transfers take longer than computing?", Answer: No}
	copying, _ := r.value("transfer_time")
	computing, _ := r.value("compute_percent")
	computed := computing / 100 * float64(r.Wall)
	if copying > computed {
		c.Answer = Yes
	}
	c.Evidence = fmt.Sprintf("copies and sets run for %s ms, kernels for %s ms", ms(copying), ms(computed))
	if overlap, ok := r.value("compute_copy_overlap_percent"); ok {
		c.Evidence += fmt.Sprintf("; %.1f %% of the copies' time a kernel runs beside them", overlap)
	}
	return c
}

func smallCheck(r *Report) Check {
	c := Check{Question: "Could the CPU be faster, because the inputs are small?", Answer: No}
	kernel, _ := r.value("kernel_median")
	latency, ok := r.value("launch_latency")
	if !ok {
		c.Answer, c.Evidence = Unknown, fmt.Sprintf("the median kernel takes %s us; the latency of a launch is not in this recording: %s", us(kernel), withCalls)
		return c
	}
	if latency == 0 {
		c.Evidence = fmt.Sprintf("the median kernel takes %s us, and the GPU's queue was never empty, so that no launch was waited for", us(kernel))
		return c
	}
	starved, _ := r.value("starved_percent")
	c.Evidence = fmt.Sprintf("the median kernel takes %s us, and a launch %s us from call to start where the GPU is idle; it waits for launches %.1f %% of the time", us(kernel), us(latency), starved)
	if kernel < latency && starved > 100-lowBusy {
		c.Answer = Yes
		c.Evidence += "; measure the same work on the CPU"
	}
	return c
}

func utilisationCheck(r *Report, t *tables.Table) Check {
	c := Check{Question: "Is the GPU poorly used?", Answer: No}
	busy, ok := r.value("gpu_busy_percent")
	if !ok {
		return Check{c.Question, Unknown, "the recording has no work"}
	}
	c.Evidence = fmt.Sprintf("it works %.1f %% of the wall time", busy)
	fill, known := r.value("grid_fill_percent")
	if known {
		c.Evidence += fmt.Sprintf("; the grids reach %.1f %% of its SMs", fill)
	}
	active, measured := r.value("sm_utilisation_percent")
	if measured {
		c.Evidence += fmt.Sprintf("; in the mean %.1f %% of its SMs have a warp", active)
	}
	if busy < lowBusy || known && fill < lowBusy || measured && active < lowBusy {
		c.Answer = Yes
	}
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
	var causes []string
	for _, row := range idle[:min(2, len(idle))] {
		causes = append(causes, fmt.Sprintf("%s %s ms", row.Name, ms(float64(row.Exclusive))))
	}
	if len(causes) > 0 {
		c.Evidence += "; idle: " + strings.Join(causes, ", ")
	}
	return c
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
		return Check{c.Question, Unknown, "the throughput of the memory is not in this recording: " + r.recordWith("dram_throughput_percent")}
	}
	if dram >= nearCeiling {
		c.Answer = Yes
	}
	c.Evidence = fmt.Sprintf("DRAM works at %.1f %% of its peak, in the mean over kernel time", dram)
	if sm, ok := r.value("sm_throughput_percent"); ok {
		c.Evidence += fmt.Sprintf(", the SMs at %.1f %%", sm)
	}
	return c
}

func divergenceCheck(r *Report) Check {
	c := Check{Question: "Do the threads of warps diverge?", Answer: No}
	efficiency, ok := r.value("warp_efficiency_percent")
	if !ok {
		return Check{c.Question, Unknown, "how many threads of a warp are active is not in this recording: " + r.recordWith("warp_efficiency_percent")}
	}
	if efficiency < lowEfficiency {
		c.Answer = Yes
	}
	c.Evidence = fmt.Sprintf("%.1f %% of the threads of a warp are active at an instruction, in the mean over kernel time", efficiency)
	return c
}

// recordWith returns what would record an indicator.
func (r *Report) recordWith(key string) string {
	if x := r.Find(key); x != nil {
		return x.RecordWith
	}
	return ""
}

func ms(ns float64) string { return humanize.Separate(fmt.Sprintf("%.3f", ns/1e6)) }
func us(ns float64) string { return fmt.Sprintf("%.2f", ns/1e3) }

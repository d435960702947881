package report

import (
	"fmt"
	"slices"

	"gpt2scope/internal/humanize"
	"gpt2scope/internal/stats"
	"gpt2scope/traces"
	"gpt2scope/traces/tables"
	"gpt2scope/traces/window"
)

// launches says in figures what is known of the launches of a table, or why nothing is.
func launches(table *tables.Table, h *traces.Header) (facts []fact, why string) {
	found, _ := table.Window.Launches(table.Time)
	if len(found) == 0 {
		if h.Recorder == traces.RecorderStamps {
			return nil, "Stamps record no API calls, so that queueing delays are not known: '--recorder cupti' records them."
		}
		return nil, "The recording pairs no API calls with work of this GPU, so that queueing delays are not known."
	}
	var delays, times []int64
	kernels, early := 0, 0
	for _, l := range found {
		delays, times = append(delays, l.Delay()), append(times, l.Call.Duration)
		kernels += int(l.Work)
		if l.First.Time < l.Call.End() {
			early++
		}
	}
	slices.Sort(delays)
	slices.Sort(times)
	starved, ns := window.Starved(found, table.Time)
	_, deepest := table.Window.DepthOver(table.Time)
	spread := func(ns []int64) string {
		return fmt.Sprintf("median %s, 90 %% below %s, at most %s",
			duration(stats.Quantile(ns, 0.5)), duration(stats.Quantile(ns, 0.9)), duration(stats.Quantile(ns, 1)))
	}
	work := func(n int) string { return humanize.Count(n, "kernel, copy or set", "kernels, copies and sets") }
	return []fact{
		{"launches", humanize.Thousands(int64(len(found))) + ", of " + work(kernels)},
		{"API time", spread(times)},
		{"queueing delay", spread(delays)},
		{"begun before the call returned", humanize.Thousands(int64(early))},
		{"deepest queue", work(deepest)},
		{"nothing queued, nothing running", fmt.Sprintf("%s of %s, before %s", duration(ns), duration(table.Wall),
			humanize.Count(starved, "launch", "launches"))},
	}, ""
}

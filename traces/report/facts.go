package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"gpt2scope/internal/humanize"
	"gpt2scope/traces"
)

// fact is a name and a value, for example of the recording.
type fact struct{ Name, Value string }

// facts says which tool made the recording, when, and on which device.
func facts(t *traces.Trace) []fact {
	h := t.Header
	var all []fact
	add := func(name, format string, args ...any) {
		if value := fmt.Sprintf(format, args...); value != "" {
			all = append(all, fact{name, value})
		}
	}
	add("Tool", "%s", strings.TrimSpace(h.Tool+" "+h.Release))
	add("Recorder", "%s", cmp.Or(recorders[h.Recorder], h.Recorder))
	if h.Base > 0 {
		add("Begun", "%s", time.Unix(0, h.Base).UTC().Format("2006-01-02 15:04:05 UTC"))
	}
	clock := cmp.Or(h.Clock.Domain, "unknown")
	if h.Clock.Uncertainty >= 0 && h.Clock.Domain != "" && !t.HostOnly() {
		clock += fmt.Sprintf(", host and device agree to %s ns", humanize.Thousands(h.Clock.Uncertainty))
	}
	if h.Clock.Aligned != "" {
		clock += "; " + h.Clock.Aligned
	}
	add("Clock", "%s", clock)
	for _, r := range h.Ranks {
		add(fmt.Sprintf("Rank %d", r.Rank), "process %s, by %s", traces.ProcessText(r.Process), r.Source)
	}
	add("Command", "%s", strings.Join(h.Command, " "))
	for _, d := range h.Devices {
		var parts []string
		some := func(ok bool, format string, args ...any) {
			if ok {
				parts = append(parts, fmt.Sprintf(format, args...))
			}
		}
		some(d.Compute != "", "compute capability %s", d.Compute)
		some(d.SMs > 0, "%d SMs", d.SMs)
		some(d.ClockHz > 0, "up to %.0f MHz", float64(d.ClockHz)/1e6)
		some(d.Memory > 0, "%s", humanize.Size(d.Memory))
		some(d.Bandwidth > 0, "%.0f GB/s as the driver reports", float64(d.Bandwidth)/1e9)
		name := cmp.Or(d.Name, "unnamed")
		if len(parts) > 0 {
			name += ": " + strings.Join(parts, ", ")
		}
		add(fmt.Sprintf("Device %d", d.ID), "%s", name)
	}
	add("Type", "%s", h.DType)
	for _, c := range h.Ceilings {
		on := "CPU"
		if c.Device >= 0 {
			on = fmt.Sprintf("GPU %d", c.Device)
		}
		name := c.Name
		if c.Size > 0 {
			name += ", up to " + humanize.Size(c.Size)
		}
		add("Ceiling, "+on, "%s: %.4g %s", name, c.Value, c.Unit)
	}
	for _, name := range slices.Sorted(maps.Keys(h.Versions)) {
		add("Version: "+name, "%s", h.Versions[name])
	}
	work := humanize.Count(t.Kernels, "kernel", "kernels") + ", " + humanize.Count(t.Calls, "API call", "API calls")
	if t.Kernels+t.Calls == 0 {
		work = humanize.Count(t.Steps, "step", "steps")
	}
	add("Events", "%s: %s, %s", humanize.Thousands(int64(len(t.Events))), work,
		humanize.Count(t.Passes, "pass", "passes"))
	return all
}

// recorders explain recorders.
var recorders = map[string]string{
	traces.RecorderStamps: "stamps: the program's own kernels wrote their start and end; a library's kernels are bounded by " +
		"their neighbours",
	traces.RecorderCUPTI:  "cupti: CUDA's activity records",
	traces.RecorderHost:   "host: one event for each step and worker thread",
	traces.RecorderNsys:   "nsys: an export of Nsight Systems",
	traces.RecorderKineto: "kineto: PyTorch's profiler",
}

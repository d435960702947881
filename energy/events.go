package energy

import (
	"time"

	"gpt2scope/cuda/nvml"
	"gpt2scope/traces"
)

// Events returns samples of a GPU as counters of a trace whose base is a time in ns since 1970: "power" in W, "SM
// clock" in MHz, "memory used" in bytes, "GPU utilisation" in percent. A value that a sample lacks makes no event. The
// process is the header's, since the file has no process of a device's counters.
func Events(samples []nvml.Sample, device int32, process, base int64) []traces.Event {
	var out []traces.Event
	lane := traces.Lane{Kind: traces.LaneCounter, Device: device, Process: process}
	add := func(at time.Time, name string, value float64, known bool) {
		if known {
			e := traces.Plain(traces.KindCounter, lane, name, at.UnixNano()-base, 0)
			e.Value = value
			out = append(out, e)
		}
	}
	for _, s := range samples {
		add(s.Time, "power", s.Power, s.Power > 0)
		add(s.Time, "SM clock", float64(s.SMClock), s.SMClock > 0)
		add(s.Time, "memory used", float64(s.MemoryUsed), s.MemoryUsed > 0)
		add(s.Time, "GPU utilisation", float64(s.Utilisation), s.Utilisation >= 0)
	}
	return out
}

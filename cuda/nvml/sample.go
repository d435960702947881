package nvml

import (
	"context"
	"fmt"
	"time"
)

// Sample is what a GPU did at a moment. What is not known is 0, of Utilisation -1.
type Sample struct {
	Time        time.Time
	Power       float64 // W, at this moment if the GPU reports it, else averaged over the last second
	SMClock     int     // MHz
	MemoryUsed  uint64  // bytes, of all processes
	Utilisation int     // percent of the time, of the last sample of the driver's, in which a kernel ran
	Energy      uint64  // mJ since the driver was loaded
}

// leastPeriod is the shortest time between samples: readings take about as long.
const leastPeriod = time.Millisecond

// Sample reads the GPU at a PCI address now, then once in each period of at least a millisecond, and a last time when
// ctx ends. It gives each sample to f, and returns when ctx has ended or the library was closed. Readings that take
// longer than the period make samples rarer.
func (n *NVML) Sample(ctx context.Context, pci string, period time.Duration, f func(Sample)) error {
	now := func() (s Sample, ok bool) { // false after Close
		n.use.RLock()
		defer n.use.RUnlock()
		d, ok := n.at(pci)
		if ok {
			s = sample(d)
		}
		return s, ok
	}
	s, ok := now()
	if !ok {
		return n.noGPU(pci)
	}
	if s.Power == 0 && s.SMClock == 0 && s.MemoryUsed == 0 && s.Utilisation < 0 && s.Energy == 0 {
		return fmt.Errorf("NVML reports neither power, clock, memory, utilisation nor energy of the GPU at %s", pci)
	}
	ticker := time.NewTicker(max(period, leastPeriod))
	defer ticker.Stop()
	for {
		if s, ok = now(); !ok {
			return nil
		}
		f(s)
		select {
		case <-ctx.Done():
			if s, ok = now(); ok {
				f(s)
			}
			return nil
		case <-ticker.C:
		}
	}
}

func (n *NVML) noGPU(pci string) error {
	return fmt.Errorf("NVML sees no GPU at %s: it may be hidden from this process", pci)
}

func sample(d device) Sample {
	s := Sample{Time: time.Now(), SMClock: int(d.get(smClock)), Utilisation: -1, MemoryUsed: d.get(memoryUsed),
		Energy: d.get(energy)}
	mw, ok := d.number(powerNow)
	if !ok {
		mw = d.get(power)
	}
	s.Power = float64(mw) / 1000
	if u, ok := d.number(utilisation); ok {
		s.Utilisation = int(u)
	}
	return s
}

// The sources of a [Counter].
const (
	TotalEnergy   = "total energy counter"                       // nvmlDeviceGetTotalEnergyConsumption
	InstantPower  = "power samples"                              // NVML_FI_DEV_POWER_INSTANT, summed over time
	AveragedPower = "power samples, each averaged over a second" // nvmlDeviceGetPowerUsage, summed over time
)

// Counter counts the energy of a GPU. It belongs to one goroutine at a time.
type Counter struct {
	nvml   *NVML
	pci    string
	d      device
	from   reading
	source string

	last  time.Time // of power: when it was read
	watts float64
	sum   float64 // mJ
}

// Counter returns the best way that the GPU at a PCI address has to count energy: its total energy counter, else
// samples of its power. An error says what it lacks.
func (n *NVML) Counter(pci string) (*Counter, error) {
	n.use.RLock()
	defer n.use.RUnlock()
	d, ok := n.at(pci)
	if !ok {
		return nil, n.noGPU(pci)
	}
	for _, way := range []struct {
		from   reading
		source string
	}{{energy, TotalEnergy}, {powerNow, InstantPower}, {power, AveragedPower}} {
		if v, ok := d.number(way.from); ok && (v > 0 || way.from == energy) {
			return &Counter{nvml: n, pci: pci, d: d, from: way.from, source: way.source}, nil
		}
	}
	return nil, fmt.Errorf("NVML reports neither total energy nor power of the GPU at %s, "+
		"so its energy cannot be measured", pci)
}

// Source returns what counts: [TotalEnergy], [InstantPower] or [AveragedPower].
func (c *Counter) Source() string { return c.source }

// Read returns millijoules since some moment. Between two calls power is interpolated linearly.
func (c *Counter) Read() (float64, error) {
	v, ok := c.number()
	if !ok {
		return 0, fmt.Errorf("NVML no longer reports the energy of the GPU at %s", c.pci)
	}
	if c.from == energy {
		return float64(v), nil
	}
	now, watts := time.Now(), float64(v)/1000
	if !c.last.IsZero() {
		c.sum += (c.watts + watts) / 2 * now.Sub(c.last).Seconds() * 1000
	}
	c.last, c.watts = now, watts
	return c.sum, nil
}

// number reads what counts; false after Close.
func (c *Counter) number() (uint64, bool) {
	c.nvml.use.RLock()
	defer c.nvml.use.RUnlock()
	if c.nvml.closed {
		return 0, false
	}
	return c.d.number(c.from)
}

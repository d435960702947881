package nvml

import (
	"context"
	"encoding/binary"
	"math"
	"strings"
	"testing"
	"time"

	lib "github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"

	"gpt2scope/internal/require"
)

func TestSample(t *testing.T) {
	full := map[reading]uint64{powerNow: 120_500, power: 99_000, smClock: 1755, memoryUsed: 5 << 30, utilisation: 0, energy: 123456}
	n := &NVML{devices: []device{fakeGPU("0001:01:02.0", full), fakeGPU("0001:02:02.0", map[reading]uint64{power: 99_000}),
		fakeGPU("0001:03:02.0", nil)}}
	ctx, cancel := context.WithCancel(context.Background())
	var samples []Sample
	err := n.Sample(ctx, "0001:01:02.0", 0, func(s Sample) {
		if samples = append(samples, s); len(samples) == 4 {
			cancel()
		}
	})
	if err != nil || len(samples) != 5 {
		t.Fatalf("%d samples, %v", len(samples), err)
	}
	for i, s := range samples {
		if i > 0 && !s.Time.After(samples[i-1].Time) {
			t.Errorf("sample %d is not later than the one before", i)
		}
		s.Time = time.Time{}
		if want := (Sample{Power: 120.5, SMClock: 1755, MemoryUsed: 5 << 30, Energy: 123456}); s != want {
			t.Errorf("%+v, want %+v", s, want)
		}
	}
	if d := samples[3].Time.Sub(samples[0].Time); d < 2*time.Millisecond {
		t.Errorf("4 samples in %v", d)
	}
	// What is not known: the averaged power is better than none, and utilisation is not 0.
	if err := n.Sample(ctx, "0001:02:02.0", 0, func(s Sample) {
		if s.Power != 99 || s.Utilisation != -1 || s.SMClock != 0 {
			t.Errorf("%+v", s)
		}
	}); err != nil {
		t.Error(err)
	}
	for pci, words := range map[string]string{"0001:03:02.0": "reports neither", "0001:09:02.0": "no GPU at 0001:09:02.0"} {
		if err := n.Sample(ctx, pci, 0, func(Sample) { t.Error("a sample of nothing") }); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v", pci, err)
		}
	}
}

// TestCloseWhileSampling: Close waits for a reading of another goroutine, after which sampling ends and no GPU is
// found.
func TestCloseWhileSampling(t *testing.T) {
	for range 20 {
		closed := 0
		n := &NVML{shutdown: func() { closed++ }, devices: []device{{pci: "0001:01:02.0", number: func(reading) (uint64, bool) {
			if closed > 0 {
				t.Error("a GPU is read after its library was closed")
			}
			return 1000, true
		}}}}
		begun, ended := make(chan bool), make(chan error)
		go func() {
			first := true
			ended <- n.Sample(context.Background(), "0001:01:02.0", 0, func(Sample) {
				if first {
					close(begun)
				}
				first = false
			})
		}()
		<-begun
		n.Close()
		n.Close()
		if err := <-ended; err != nil || closed != 1 {
			t.Fatalf("sampling ended with %v; the library was closed %d times", err, closed)
		}
		if _, ok := n.GPU("0001:01:02.0"); ok || len(n.GPUs()) > 0 {
			t.Error("a GPU is found after Close")
		}
	}
}

func TestCounter(t *testing.T) {
	all := map[reading]uint64{powerNow: 100_000, power: 50_000, energy: 777}
	instant := map[reading]uint64{powerNow: 100_000, power: 50_000}
	averaged := map[reading]uint64{powerNow: 0, power: 50_000}
	n := &NVML{shutdown: func() {}, devices: []device{fakeGPU("0001:01:02.0", all), fakeGPU("0001:02:02.0", instant),
		fakeGPU("0001:03:02.0", averaged), fakeGPU("0001:04:02.0", map[reading]uint64{power: 0})}}
	for pci, want := range map[string]struct {
		source string
		watts  float64
	}{"0001:01:02.0": {TotalEnergy, 0}, "0001:02:02.0": {InstantPower, 100}, "0001:03:02.0": {AveragedPower, 50}} {
		c := require.Value(n.Counter(pci))(t)
		if c.Source() != want.source {
			t.Errorf("%s by %s, want %s", pci, c.Source(), want.source)
		}
		start := time.Now()
		first := require.Value(c.Read())(t)
		after := time.Now()
		time.Sleep(20 * time.Millisecond)
		before := time.Now()
		second := require.Value(c.Read())(t)
		least, most := before.Sub(after).Seconds()*want.watts*1000, time.Since(start).Seconds()*want.watts*1000
		if d := second - first; d < least || d > most {
			t.Errorf("%s: %g mJ, want %g to %g", pci, d, least, most)
		}
		if want.watts == 0 && first != 777 {
			t.Errorf("the counter is at %g", first)
		}
	}
	for pci, words := range map[string]string{"0001:04:02.0": "neither total energy nor power", "0001:05:02.0": "no GPU at"} {
		if _, err := n.Counter(pci); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v", pci, err)
		}
	}
	c, _ := n.Counter("0001:01:02.0")
	delete(all, energy)
	if _, err := c.Read(); err == nil || !strings.Contains(err.Error(), "0001:01:02.0") {
		t.Errorf("a counter that went away: %v", err)
	}
	all[energy] = 1
	n.Close()
	if _, err := c.Read(); err == nil {
		t.Error("a counter reads after Close")
	}
}

// The real library's calls, on go-nvml's mock: units, and failures of each kind.
func TestEnergyReadings(t *testing.T) {
	var fields func(values []lib.FieldValue) lib.Return
	d := &mock.Device{
		GetTotalEnergyConsumptionFunc: func() (uint64, lib.Return) { return 42, lib.SUCCESS },
		GetUtilizationRatesFunc:       func() (lib.Utilization, lib.Return) { return lib.Utilization{Gpu: 37, Memory: 5}, lib.SUCCESS },
		GetMemoryInfoFunc:             func() (lib.Memory, lib.Return) { return lib.Memory{Total: 10, Free: 3, Used: 6}, lib.SUCCESS },
		GetFieldValuesFunc:            func(values []lib.FieldValue) lib.Return { return fields(values) },
	}
	set := func(kind lib.ValueType, ret lib.Return, value uint64) {
		fields = func(values []lib.FieldValue) lib.Return {
			if len(values) != 1 || values[0].FieldId != lib.FI_DEV_POWER_INSTANT {
				t.Errorf("asked for %+v", values)
			}
			values[0].ValueType, values[0].NvmlReturn = uint32(kind), uint32(ret)
			binary.NativeEndian.PutUint64(values[0].Value[:], value)
			return lib.SUCCESS
		}
	}
	set(lib.VALUE_TYPE_UNSIGNED_INT, lib.SUCCESS, 250_000)
	for r, want := range map[reading]uint64{energy: 42, utilisation: 37, memoryUsed: 6, powerNow: 250_000} {
		if got, ret := numbers[r].call(d); got != want || ret != lib.SUCCESS {
			t.Errorf("reading %d: %d, %v; want %d", r, got, ret, want)
		}
	}
	set(lib.VALUE_TYPE_UNSIGNED_LONG_LONG, lib.SUCCESS, math.MaxUint64)
	if got, ret := numbers[powerNow].call(d); got != math.MaxUint64 || ret != lib.SUCCESS {
		t.Errorf("a long value: %d, %v", got, ret)
	}
	for _, f := range []func(){
		func() { set(lib.VALUE_TYPE_DOUBLE, lib.SUCCESS, 1) },
		func() { set(lib.VALUE_TYPE_UNSIGNED_INT, lib.ERROR_NOT_SUPPORTED, 1) },
		func() { fields = func([]lib.FieldValue) lib.Return { return lib.ERROR_UNKNOWN } },
	} {
		f()
		if got, ret := numbers[powerNow].call(d); got != 0 || ret == lib.SUCCESS {
			t.Errorf("a failure gives %d, %v", got, ret)
		}
	}
}

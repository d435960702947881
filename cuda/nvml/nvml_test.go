package nvml

import (
	"context"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	lib "github.com/NVIDIA/go-nvml/pkg/nvml"
)

// fakeGPU has the readings of a map only.
func fakeGPU(pci string, numbers map[reading]uint64) device {
	return device{pci: pci, number: func(r reading) (uint64, bool) { v, ok := numbers[r]; return v, ok }}
}

func TestReadings(t *testing.T) {
	closed := 0
	n := &NVML{shutdown: func() { closed++ }, devices: []device{
		fakeGPU("0001:ab:02.0", map[reading]uint64{smClock: 345, smClockMax: 1980, throttle: 1<<0 | 1<<2 | 1<<30, memoryTotal: 4 << 30,
			memoryFree: 3 << 30, processes: 2}),
		fakeGPU("0001:0c:02.0", map[reading]uint64{throttle: 0}),
		fakeGPU("", nil), // tells nothing
	}}
	want := []GPU{
		{PCI: "0001:ab:02.0", MemoryTotal: 4 << 30, MemoryFree: 3 << 30, SMClock: 345, SMClockMax: 1980,
			Throttle: []string{"idle", "power cap", "reason 0x40000000"}, Processes: 2},
		{PCI: "0001:0c:02.0", Throttle: []string{}},
		{},
	}
	if got := n.GPUs(); !reflect.DeepEqual(got, want) {
		t.Errorf("read\n%+v\nwant\n%+v", got, want)
	}
	if g, ok := n.GPU("0001:AB:02.0"); !ok || !reflect.DeepEqual(g, want[0]) {
		t.Errorf("by address: %+v %v", g, ok)
	}
	if _, ok := n.GPU("0000:ab:02.0"); ok {
		t.Error("there is no GPU in that domain")
	}
	if n.Close(); closed != 1 {
		t.Errorf("closed %d times", closed)
	}
}

// The words stand for the bits that go-nvml names, each once.
func TestThrottleWords(t *testing.T) {
	named := map[uint64]string{
		lib.ClocksEventReasonGpuIdle: "idle", lib.ClocksEventReasonApplicationsClocksSetting: "application clocks", lib.ClocksEventReasonSwPowerCap: "power cap",
		lib.ClocksThrottleReasonHwSlowdown: "hardware slowdown", lib.ClocksEventReasonSyncBoost: "sync boost", lib.ClocksEventReasonSwThermalSlowdown: "thermal slowdown",
		lib.ClocksThrottleReasonHwThermalSlowdown: "hardware thermal slowdown", lib.ClocksThrottleReasonHwPowerBrakeSlowdown: "power brake",
		lib.ClocksEventReasonDisplayClockSetting: "display clocks", lib.ClocksEventReasonBoardLimit: "board limit", lib.ClocksEventReasonReliability: "reliability",
	}
	for bit, word := range named {
		if got := throttleWords(bit); !slices.Equal(got, []string{word}) {
			t.Errorf("0x%x is %q, want %q", bit, got, word)
		}
	}
	if got := throttleWords(lib.ClocksEventReasonAll); len(got) != len(named) || len(got) != len(throttles) {
		t.Errorf("all: %q", got)
	}
}

// Each reading has its way of being read.
func TestNumbersComplete(t *testing.T) {
	for r, n := range numbers {
		if !strings.HasPrefix(n.function, "nvmlDevice") || n.call == nil {
			t.Errorf("reading %d has none", r)
		}
	}
}

// On this machine: what is missing is one sentence, what is there has an address.
func TestHere(t *testing.T) {
	n, err := Open()
	if err != nil {
		if os.Getenv("GPT2SCOPE_REQUIRE_GPU") == "1" {
			t.Fatal(err)
		}
		if text := err.Error(); !strings.HasPrefix(text, "NVML") || strings.Contains(text, "\n") {
			t.Fatalf("not one sentence: %q", text)
		}
		t.Skip(err)
	}
	defer n.Close()
	for _, g := range n.GPUs() {
		t.Logf("%+v", g)
		if g.PCI == "" || g.UUID == "" || g.MemoryTotal == 0 || g.SMClock < 0 || g.SMClockMax < g.SMClock {
			t.Errorf("a reading that cannot be: %+v", g)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
		var samples []Sample
		err := n.Sample(ctx, g.PCI, 10*time.Millisecond, func(s Sample) { samples = append(samples, s) })
		cancel()
		if err != nil || len(samples) < 3 {
			t.Errorf("%d samples in 300 ms, %v", len(samples), err)
			continue
		}
		first, last := samples[0], samples[len(samples)-1]
		t.Logf("%d samples, from %+v to %+v", len(samples), first, last)
		if last.Power < 0 || last.MemoryUsed > g.MemoryTotal || last.Utilisation > 100 || last.Energy < first.Energy {
			t.Errorf("a sample that cannot be: %+v", last)
		}
		if c, err := n.Counter(g.PCI); err != nil {
			t.Log(err)
		} else {
			before, err1 := c.Read()
			time.Sleep(300 * time.Millisecond)
			after, err2 := c.Read()
			t.Logf("%s: %g mJ in 300 ms", c.Source(), after-before)
			if err1 != nil || err2 != nil || !(after > before) || after-before > 0.3*2000*1000 {
				t.Errorf("%s: %g, %v, then %g, %v", c.Source(), before, err1, after, err2)
			}
		}
	}
}

package nvml

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	lib "github.com/NVIDIA/go-nvml/pkg/nvml"
)

type fakeLibrary struct {
	openError, devicesError error
	list                    []device
	closed                  int
}

func (f *fakeLibrary) open() error                { return f.openError }
func (f *fakeLibrary) close()                     { f.closed++ }
func (f *fakeLibrary) driver() string             { return "580.95.05" }
func (f *fakeLibrary) cuda() int                  { return 13000 }
func (f *fakeLibrary) devices() ([]device, error) { return f.list, f.devicesError }

// fakeGPU has the readings of its map only.
type fakeGPU struct {
	bus     uint32
	known   bool
	numbers map[reading]uint64
}

func (f fakeGPU) pci() (domain, bus, device uint32, ok bool) { return 1, f.bus, 2, f.known }
func (f fakeGPU) name() (name, uuid string, ok bool)         { return "NVIDIA Fake", "", f.known }
func (f fakeGPU) capability() (major, minor int, ok bool)    { return 9, 0, f.known }
func (f fakeGPU) memory() (free, total uint64, ok bool)      { return 3 << 30, 4 << 30, f.known }
func (f fakeGPU) number(r reading) (uint64, bool)            { v, ok := f.numbers[r]; return v, ok }

func TestReadings(t *testing.T) {
	f := &fakeLibrary{list: []device{
		fakeGPU{0xab, true, map[reading]uint64{smClock: 345, smClockMax: 1980, memClock: 2619, memClockMax: 3201, throttle: 1<<0 | 1<<2 | 1<<30,
			linkGen: 1, linkGenMax: 5, linkWidth: 8, linkWidthMax: 16, power: 75_500, powerLimit: 700_000, temperature: 31}},
		fakeGPU{0x0c, true, map[reading]uint64{throttle: 0}},
		fakeGPU{}, // tells nothing
	}}
	n, err := open(f)
	if err != nil {
		t.Fatal(err)
	}
	want := []GPU{
		{PCI: "0001:ab:02.0", Name: "NVIDIA Fake", Major: 9, MemoryTotal: 4 << 30, MemoryFree: 3 << 30, SMClock: 345, SMClockMax: 1980, MemClock: 2619, MemClockMax: 3201,
			Throttle: []string{"idle", "power cap", "reason 0x40000000"}, LinkGen: 1, LinkGenMax: 5, LinkWidth: 8, LinkWidthMax: 16, Power: 75.5, PowerLimit: 700, Temperature: 31},
		{PCI: "0001:0c:02.0", Name: "NVIDIA Fake", Major: 9, MemoryTotal: 4 << 30, MemoryFree: 3 << 30, Throttle: []string{}},
		{Name: "NVIDIA Fake", Major: 9, MemoryTotal: 4 << 30, MemoryFree: 3 << 30},
	}
	got := n.GPUs()
	if !reflect.DeepEqual(got[:2], want[:2]) || got[2].PCI != "" || got[2].Throttle != nil {
		t.Errorf("read\n%+v\nwant\n%+v", got, want)
	}
	if g, ok := n.GPU("0001:AB:02.0"); !ok || !reflect.DeepEqual(g, want[0]) {
		t.Errorf("by address: %+v %v", g, ok)
	}
	if _, ok := n.GPU("0000:ab:02.0"); ok {
		t.Error("there is no GPU in that domain")
	}
	if n.Driver() != "580.95.05" || n.CUDA() != 13000 {
		t.Error(n.Driver(), n.CUDA())
	}
	text, err := json.Marshal(got)
	if err != nil || strings.Count(string(text), `"throttle_reasons":[]`) != 1 || strings.Count(string(text), `"throttle_reasons":null`) != 1 {
		t.Errorf("JSON %s, %v", text, err)
	}
	if n.Close(); f.closed != 1 {
		t.Errorf("closed %d times", f.closed)
	}
}

func TestOpenFails(t *testing.T) {
	why := errors.New("why")
	f := &fakeLibrary{openError: why}
	if _, err := open(f); err != why || f.closed != 0 {
		t.Errorf("%v, closed %d times", err, f.closed)
	}
	f = &fakeLibrary{devicesError: why}
	if _, err := open(f); err != why || f.closed != 1 {
		t.Errorf("%v, closed %d times", err, f.closed)
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
		if g.PCI == "" || g.Name == "" || g.MemoryTotal == 0 || g.SMClock < 0 || g.SMClockMax < g.SMClock {
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

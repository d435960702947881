package energy

import (
	"bytes"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"gpt2scope/cuda/nvml"
	"gpt2scope/internal/require"
	"gpt2scope/traces"
)

var must = require.NoError

// stepping is a counter of constant power that steps every period, as a GPU's does.
type stepping struct {
	start  time.Time
	watts  float64
	period time.Duration
	fail   atomic.Bool
}

func (c *stepping) Source() string { return "test counter" }
func (c *stepping) Read() (float64, error) {
	if c.fail.Load() {
		return 0, errors.New("it broke")
	}
	steps := time.Since(c.start) / c.period
	return 5000 + c.watts*float64(steps)*c.period.Seconds()*1000, nil
}

// The power of a counter in coarse steps is known far better than by a step.
func TestMeter(t *testing.T) { synctest.Test(t, testMeter) }

func testMeter(t *testing.T) {
	c := &stepping{start: time.Now(), watts: 250, period: 20 * time.Millisecond}
	m := Start(c)
	time.Sleep(50 * time.Millisecond)
	from := time.Now()
	time.Sleep(310 * time.Millisecond)
	to := time.Now()
	l := require.Value(m.Stop())(t)
	p := require.Value(l.Power(from, to))(t)
	if math.Abs(p.Watts-250) > p.Uncertainty+1 || !(p.Uncertainty > 0) || p.Steps < 5 || p.Over <= 0 ||
		p.Over > to.Sub(from) {
		t.Errorf("%+v of a counter of 250 W", p)
	}
	step, period := l.Resolution()
	if math.Abs(step-5000) > 1e-6 || period != 20*time.Millisecond {
		t.Errorf("steps of %g mJ every %v", step, period)
	}
	mJ, resolution := l.Total()
	if want := 250_000 * l.Ended.Sub(l.Began).Seconds(); math.Abs(mJ-want) > resolution+1 || resolution < 5000 {
		t.Errorf("%g mJ to within %g, want %g", mJ, resolution, want)
	}
	if _, err := l.Power(from, from.Add(time.Millisecond)); err == nil ||
		!strings.Contains(err.Error(), "at least 3 are needed") {
		t.Errorf("of a millisecond: %v", err)
	}
	if again, err := m.Stop(); err != nil || again != l {
		t.Errorf("stopped again: %v", err)
	}
}

// A log made by hand: what is known of it exactly.
func TestLog(t *testing.T) {
	at := func(ms int) time.Time { return time.Unix(0, int64(ms)*1e6) }
	l := &Log{Source: "hand", Began: at(0), Ended: at(1000), First: 100, Last: 1000, Steps: []Step{
		{at(50), 10 * time.Millisecond, 150}, {at(150), 10 * time.Millisecond, 250}, {at(250), 10 * time.Millisecond, 350}, {at(950), 20 * time.Millisecond, 1000}}}
	if mJ, resolution := l.Total(); mJ != 900 || resolution != 650 {
		t.Errorf("%g to within %g", mJ, resolution)
	}
	if step, period := l.Resolution(); step != 100 || period != 100*time.Millisecond {
		t.Errorf("%g every %v", step, period)
	}
	p, err := l.Power(at(50), at(960))
	if want := (Power{Watts: 0.85 / 0.9, Uncertainty: 0.85 / 0.9 * 0.03 / 0.9, Over: 900 * time.Millisecond,
		Steps: 4}); err != nil ||
		math.Abs(p.Watts-want.Watts) > 1e-12 || math.Abs(p.Uncertainty-want.Uncertainty) > 1e-12 || p.Over != want.Over ||
		p.Steps != want.Steps {
		t.Errorf("%+v, want %+v", p, want)
	}
	if _, err := l.Power(at(51), at(960)); err != nil {
		t.Error(err)
	}
	if _, err := l.Power(at(51), at(949)); err == nil {
		t.Error("two steps are too few")
	}
	still := &Log{Source: "hand", First: 5, Last: 5}
	if mJ, resolution := still.Total(); mJ != 0 || !math.IsInf(resolution, 1) {
		t.Errorf("%g to within %g", mJ, resolution)
	}
}

func TestMeterFails(t *testing.T) { synctest.Test(t, testMeterFails) }

func testMeterFails(t *testing.T) {
	c := &stepping{start: time.Now(), watts: 1, period: time.Millisecond}
	m := Start(c)
	time.Sleep(10 * time.Millisecond)
	c.fail.Store(true)
	time.Sleep(10 * time.Millisecond)
	if _, err := m.Stop(); err == nil || err.Error() != "it broke" {
		t.Error(err)
	}
	if _, err := Start(c).Stop(); err == nil {
		t.Error("a counter that never works was read")
	}
}

// powercap writes the files of two packages, of which the first has parts.
func powercap(t *testing.T, first, second string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range map[string]string{
		"intel-rapl:0/name": "package-0\n", "intel-rapl:0/energy_uj": first, "intel-rapl:0/max_energy_range_uj": "10000000\n",
		"intel-rapl:0:0/name": "core\n", "intel-rapl:0:0/energy_uj": "99000\n",
		"intel-rapl:1/name": "package-1\n", "intel-rapl:1/energy_uj": second, "intel-rapl:1/max_energy_range_uj": "10000000\n",
		"intel-rapl:2/name": "psys\n", "intel-rapl:2/energy_uj": "77000\n",
	} {
		path := filepath.Join(root, name)
		must(t, os.MkdirAll(filepath.Dir(path), 0o777))
		must(t, os.WriteFile(path, []byte(text), 0o666))
	}
	return root
}

func TestRAPL(t *testing.T) {
	root := powercap(t, "9000000\n", "500000\n")
	r := require.Value(openRAPL(root))(t)
	if r.Source() != "RAPL counters of 2 processor packages" || r.Covers() == "" {
		t.Error(r.Source())
	}
	for i, c := range []struct {
		first string
		want  float64
	}{{"9000000", 9500}, {"9500000", 10000}, {"100000", 10600}, {"200000", 10700}, {"0", 20500}} { // begins again at 10000000 twice
		must(t, os.WriteFile(filepath.Join(root, "intel-rapl:0/energy_uj"), []byte(c.first), 0o666))
		if got, err := r.Read(); err != nil || got != c.want {
			t.Errorf("reading %d: %g mJ, %v; want %g", i, got, err, c.want)
		}
	}
	must(t, os.Remove(filepath.Join(root, "intel-rapl:1/energy_uj")))
	if _, err := r.Read(); err == nil {
		t.Error("a counter that is gone was read")
	}
	for _, root := range []string{t.TempDir(), powercap(t, "junk", "1"), root} {
		if _, err := openRAPL(root); err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", root, err)
		}
	}
}

// Counters come back from a trace's file as they were sampled.
func TestEvents(t *testing.T) {
	base := time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)
	events := Events([]nvml.Sample{
		{Time: base.Add(time.Millisecond), Power: 120.5, SMClock: 1755, MemoryUsed: 5 << 30, Utilisation: 0},
		{Time: base.Add(2 * time.Millisecond), Utilisation: -1},
	}, 3, 42, base.UnixNano())
	var file bytes.Buffer
	h := &traces.Header{Tool: "test", Recorder: traces.RecorderHost, Base: base.UnixNano(), Process: 42}
	must(t, traces.Write(&file, "", h, events))
	_, read, err := traces.Read(io.Reader(&file))
	must(t, err)
	got := map[string]float64{}
	for _, e := range read {
		if e.Kind != traces.KindCounter || e.Lane != (traces.Lane{Kind: traces.LaneCounter, Device: 3, Process: 42}) ||
			e.Time != 1e6 {
			t.Errorf("%+v", e)
		}
		got[e.Name] = e.Value
	}
	if want := map[string]float64{"power": 120.5, "SM clock": 1755, "memory used": 5 << 30,
		"GPU utilisation": 0}; !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

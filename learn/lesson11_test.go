package learn

import (
	"strings"
	"testing"

	"gpt2scope/traces"
	"gpt2scope/traces/load"
)

// sample is a recording of traces/samples.
func sample(t *testing.T, name string) *traces.Trace {
	t.Helper()
	trace, err := load.Source{Path: "../traces/samples/" + name + ".json.gz"}.Load()
	if err != nil {
		t.Fatal(err)
	}
	return trace
}

func TestLayersOfSample(t *testing.T) {
	trace := sample(t, "gpt2-L12-eager-cupti")
	d := layersOf(trace)
	if n := d.values("decode step", "layers"); len(n) != 11 || median(n) != 12 {
		t.Errorf("layers of the decode steps: %v, want 12 in each of 11", n)
	}
	if n := total(d.values("decode step", "kernels")); n != 11*63 {
		t.Errorf("%g kernels, want %d", n, 11*63)
	}
	f := judgeLayers(d)
	if f.Verdict != Refuted || !strings.Contains(f.Text, "While 144 layers of GPT-2 ran, the host waited for the GPU 0 times.") || !strings.Contains(f.Text, "792 of 792 kernels have the id of a launch") {
		t.Errorf("%s: %s", f.Verdict, f.Text)
	}

	// Kernels whose id no call has are not paired.
	for i := range trace.Events {
		if e := &trace.Events[i]; e.Kind == traces.KindKernel && e.Time%3 == 0 {
			e.Correlation += 1 << 40
		}
	}
	if f := judgeLayers(layersOf(trace)); f.Figures[1].Value > 70 {
		t.Errorf("a third of the kernels have an id of no call: %s", f.Text)
	}
}

func TestLayers(t *testing.T) {
	data := func(layers, syncs, kernels, paired float64) (d Data) {
		for quantity, n := range map[string]float64{"layers": layers, "synchronisations": syncs, "kernels": kernels, "paired": paired, "after_range": 0, "before_layer": 0} {
			d.add("decode step", quantity, 0, n)
		}
		return d
	}
	verdicts(t, judgeLayers, given{
		"no wait":            {data(12, 0, 90, 90), Refuted},
		"a wait for a layer": {data(12, 12, 90, 90), Shown},
		"ids do not pair":    {data(12, 12, 90, 40), Refuted},
		"some layers wait":   {data(12, 8, 90, 90), Unknown},
	})
}

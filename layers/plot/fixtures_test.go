package plot

import (
	"fmt"
	"math/rand/v2"

	"gpt2scope/layers"
)

// otherLists are the other lists of layers of [full].
var otherLists = []struct {
	label, kind string
	order       []int
}{
	{"drop 2", "drop", []int{0, 1, 3, 4, 5}},
	{"drop 4", "drop", []int{0, 1, 2, 3, 5}},
	{"repeat 3", "repeat", []int{0, 1, 2, 3, 3, 4, 5}},
	{"order 1,0,2,3,4,5", "order", []int{1, 0, 2, 3, 4, 5}},
}

// full is a result that has everything, of a model with six layers.
func full() *layers.Result {
	random := rand.New(rand.NewPCG(1, 2))
	r := &layers.Result{
		Version:       1,
		Configuration: map[string]any{"model": "weights/shakespeare", "device": "NVIDIA H200", "mode": "graph", "dtype": "bfloat16", "prompt length": 128.0, "batch": 1.0, "repeats": 20.0, "depths": []any{1.0, 2.0, 3.0}, "seed": nil},
		Command:       []string{"infer", "layers", "--range", "1-6", "--text", "all's well.txt", "-o", "out"},
		Notes:         []string{"The clocks were not locked."},
	}
	measure := func(layers_ int, quality float64) map[string]layers.Metric {
		l := float64(layers_)
		m := map[string]layers.Metric{}
		timed := func(name, unit string, v, spread float64) {
			v *= 1 + spread*(random.Float64()-0.5)
			m[name] = layers.Metric{Unit: unit, Median: v, Low: v * (1 - spread), High: v * (1 + 1.4*spread), N: 20}
		}
		exact := func(name, unit string, v float64) {
			m[name] = layers.Metric{Unit: unit, Median: v, Low: v, High: v, N: 1}
		}
		timed("prefill time", "ms", 0.31+0.142*l, 0.03)
		timed("decode time", "ms", 0.118+0.0412*l, 0.02)
		timed("prefill rate", "tokens/s", 128e3/(0.31+0.142*l), 0.03)
		timed("decode rate", "tokens/s", 1e3/(0.118+0.0412*l), 0.02)
		timed("prefill share of floor", "%", 31+l, 0.03)
		timed("decode share of floor", "%", 52+2*l, 0.03)
		exact("launches", "", 4+12*l)
		exact("predicted memory", "bytes", float64(int64((180+14.18*l)*(1<<20))))
		exact("parameters", "", 38_597_376+7_087_872*l)
		exact("prefill FLOPs", "FLOPs", 9.88e9+1.9e9*l)
		exact("decode FLOPs", "FLOPs", 77.2e6+14.2e6*l)
		exact("prefill bytes", "bytes", 77.2e6+14.2e6*l)
		exact("decode bytes", "bytes", 77.2e6+14.4e6*l)
		timed("energy", "mJ", 31+9.3*l, 0.06)
		timed("bits per byte", "bits", quality, 0.004)
		timed("perplexity", "", 30*quality, 0.01)
		return m
	}
	for l := 1; l <= 6; l++ {
		order := make([]int, l)
		for i := range order {
			order[i] = i
		}
		r.Variants = append(r.Variants, layers.Variant{Label: fmt.Sprint(l), Kind: "depth", Layers: l, Order: order, Metrics: measure(l, 1.62+0.9/float64(l*l))})
	}
	for i, w := range otherLists {
		r.Variants = append(r.Variants, layers.Variant{Label: w.label, Kind: w.kind, Layers: len(w.order), Order: w.order, Metrics: measure(len(w.order), 1.8+0.1*float64(i))})
	}
	number := func(v float64) *float64 { return &v }
	r.Fits = []layers.Fit{
		{Phase: "prefill", Unit: "ms", A: 0.3121, AError: 0.0041, B: 0.14163, BError: 0.00091, R2: 0.999762, Depths: []int{1, 2, 3, 4, 5, 6}, Residuals: []float64{0.002, -0.003, 0.001, 0.0005, -0.002, 0.0015}},
		{Phase: "decode", Unit: "ms", A: 0.1179, AError: 0.0011, B: 0.04117, BError: 0.00022, R2: 0.99991, Depths: []int{1, 2, 3, 4, 5, 6}, Residuals: []float64{0.0004, -0.0002, -0.0003, 0.0001, 0.0002, -0.0002}},
	}
	for _, l := range []int{9, 12} {
		v := 0.3121 + 0.14163*float64(l)
		d := 0.1179 + 0.04117*float64(l)
		r.Predictions = append(r.Predictions,
			layers.Prediction{Layers: l, Metric: "prefill time", Unit: "ms", Value: v, Low: v - 0.05, High: v + 0.05, Measured: number(v * 1.01), ErrorRate: number(1/1.01 - 1)},
			layers.Prediction{Layers: l, Metric: "decode time", Unit: "ms", Value: d, Low: d - 0.012, High: d + 0.012})
	}
	return r
}

package plot

import (
	"bytes"
	"context"
	"errors"
	"image/png"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gpt2scope/layers"
)

// written writes a result, and returns the files by name.
func written(t *testing.T, r *layers.Result) map[string][]byte {
	t.Helper()
	dir := t.TempDir()
	if err := Write(t.Context(), dir, r); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]byte{}
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		all[e.Name()] = data
		switch filepath.Ext(e.Name()) {
		case ".svg":
			paths(t, data)
		case ".png":
			picture, err := png.Decode(bytes.NewReader(data))
			if err != nil {
				t.Errorf("%s: %v", e.Name(), err)
			} else if size := picture.Bounds(); size.Dx() != 1600 || size.Dy() < 800 {
				t.Errorf("%s is %d x %d pixels", e.Name(), size.Dx(), size.Dy())
			}
		}
	}
	return all
}

func TestWrite(t *testing.T) {
	all := written(t, full())
	for _, name := range names {
		for _, ending := range []string{".png", ".svg"} {
			if len(all[name+ending]) < 5000 {
				t.Errorf("%s%s has %d bytes", name, ending, len(all[name+ending]))
			}
		}
	}
	if len(all) != 2*len(names)+1 {
		t.Errorf("there are %d files", len(all))
	}
	for name, data := range written(t, full()) {
		if !bytes.Equal(all[name], data) {
			t.Errorf("%s differs between two times", name)
		}
	}
}

func TestWriteFails(t *testing.T) {
	if err := Write(t.Context(), t.TempDir(), nil); err == nil {
		t.Error("there is no error without a result")
	}
	missing := filepath.Join(t.TempDir(), "missing")
	if err := Write(t.Context(), missing, full()); err == nil || !strings.Contains(err.Error(), "there is no directory") {
		t.Errorf("for a missing directory the error is %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	dir := t.TempDir()
	if err := Write(ctx, dir, full()); !errors.Is(err, context.Canceled) {
		t.Errorf("after Ctrl-C the error is %v", err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Errorf("after Ctrl-C the directory has %v", entries)
	}
}

func TestPicturesOfAnEarlierResult(t *testing.T) {
	dir := t.TempDir()
	if err := Write(t.Context(), dir, full()); err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(dir, "other.png")
	if err := os.WriteFile(other, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	r := full()
	for i := range r.Variants {
		delete(r.Variants[i].Metrics, "energy")
	}
	if err := Write(t.Context(), dir, r); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"energy.png": false, "energy.svg": false, "time.png": true, "other.png": true} {
		if _, err := os.Stat(filepath.Join(dir, name)); (err == nil) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestPartialResults(t *testing.T) {
	one := func(change func(*layers.Result)) *layers.Result {
		r := full()
		change(r)
		return r
	}
	with := func(v float64) *layers.Result {
		return one(func(r *layers.Result) {
			for i := range r.Variants {
				for name, m := range r.Variants[i].Metrics {
					m.Median, m.Low, m.High = v, v, v
					r.Variants[i].Metrics[name] = m
				}
			}
			for i := range r.Fits {
				f := &r.Fits[i]
				f.A, f.AError, f.B, f.BError, f.R2, f.Residuals = v, v, v, v, v, []float64{v}
				f.TraceA, f.TraceB = &v, &v
			}
			for i := range r.Predictions {
				p := &r.Predictions[i]
				p.Value, p.Low, p.High, p.Measured, p.ErrorRate = v, v, v, &v, &v
			}
		})
	}
	everything := []string{"time", "memory", "quality", "energy", "quality-time"}
	for name, c := range map[string]struct {
		r    *layers.Result
		want []string
	}{
		"empty":      {&layers.Result{}, nil},
		"no metrics": {&layers.Result{Variants: []layers.Variant{{Label: "1", Kind: "depth", Layers: 1}}, Fits: []layers.Fit{{Phase: "decode", A: 1, B: 2, Depths: []int{1, 2}}}}, nil},
		"one depth":  {one(func(r *layers.Result) { r.Variants, r.Fits, r.Predictions = r.Variants[:1], nil, nil }), everything},
		"no quality": {one(func(r *layers.Result) { drop(r, "bits per byte") }), []string{"time", "memory", "energy"}},
		"no memory": {one(func(r *layers.Result) {
			drop(r, "host memory", "device memory", "predicted memory")
			r.Predictions = nil
		}), []string{"time", "quality", "energy", "quality-time"}},
		"only predicted": {one(func(r *layers.Result) { drop(r, "host memory", "device memory"); r.Predictions = nil }), everything},
		"no sweep":       {one(func(r *layers.Result) { r.Variants = r.Variants[6:] }), everything},
		"NaN":            {with(math.NaN()), nil},
		"infinite":       {with(math.Inf(1)), nil},
		"too large":      {with(-math.MaxFloat64), nil},
		"large":          {with(9e199), everything},
		"small":          {with(5e-324), everything},
		"zero":           {with(0), everything},
		"negative":       {with(-3), everything},
	} {
		t.Run(name, func(t *testing.T) {
			files := written(t, c.r)
			var got []string
			for _, n := range names {
				if files[n+".png"] != nil && files[n+".svg"] != nil {
					got = append(got, n)
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("figures are %v, want %v", got, c.want)
			}
			if page := string(files["layers.html"]); strings.Contains(page, "NaN") || strings.Contains(page, "Inf") {
				t.Error("the page has a number that is none")
			}
		})
	}
}

// drop removes metrics.
func drop(r *layers.Result, names ...string) {
	for i := range r.Variants {
		for _, name := range names {
			delete(r.Variants[i].Metrics, name)
		}
	}
}

// TestAnyResult draws results of arbitrary numbers.
func TestAnyResult(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	value := func() float64 {
		switch random.IntN(8) {
		case 0:
			return 0
		case 1:
			return math.NaN()
		case 2:
			return math.Float64frombits(random.Uint64())
		case 3:
			return 1 + random.Float64()*1e-12
		}
		return random.NormFloat64() * math.Pow(10, float64(random.IntN(20)-6))
	}
	depth := func() int {
		switch random.IntN(6) {
		case 0:
			return 0
		case 1:
			return int(random.Uint64())
		}
		return random.IntN(60)
	}
	for range 150 {
		r := &layers.Result{}
		for range random.IntN(5) {
			v := layers.Variant{Label: "list", Kind: []string{"depth", "drop"}[random.IntN(2)], Layers: depth(), Metrics: map[string]layers.Metric{}}
			for _, g := range groups {
				for _, m := range g.metrics {
					if random.IntN(3) > 0 {
						v.Metrics[m] = layers.Metric{Unit: []string{"", "bytes", "ms"}[random.IntN(3)], Median: value(), Low: value(), High: value(), N: random.IntN(3)}
					}
				}
			}
			r.Variants = append(r.Variants, v)
		}
		for _, phase := range []string{"prefill", "decode"} {
			r.Fits = append(r.Fits, layers.Fit{Phase: phase, A: value(), B: value(), AError: value(), R2: value(), Depths: []int{depth(), depth()}[:random.IntN(3)], Residuals: []float64{value()}})
			r.Predictions = append(r.Predictions, layers.Prediction{Layers: depth(), Metric: phase + " time", Value: value(), Low: value(), High: value()})
		}
		all := figures(r)
		if _, err := newPage(r, all); err != nil {
			t.Fatal(err)
		}
		for _, f := range all {
			svg, err := asSVG(filed, f.title, f.panels)
			if err != nil {
				t.Fatal(err)
			}
			paths(t, svg)
			if t.Failed() {
				t.Fatalf("the result was %+v", r)
			}
		}
	}
}

package plot

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"gpt2scope/internal/album"
	"gpt2scope/internal/chart"
	"gpt2scope/internal/chromium"
	"gpt2scope/internal/require"
	"gpt2scope/layers"
)

// pick returns the points of a series by its name's beginning, nil if there is none.
func pick(all []album.Picture, name string, panel int, series string) []chart.Point {
	for _, f := range all {
		if f.File != name || panel >= len(f.Panels) {
			continue
		}
		for _, s := range f.Panels[panel].Series {
			if strings.HasPrefix(s.Name, series) && s.Name != "" {
				return s.Points
			}
		}
	}
	return nil
}

// The points of the pictures are the numbers of the result.
func TestPlottedDataIsTheResult(t *testing.T) {
	afterwards := 22.5
	metrics := func(time float64) map[string]layers.Metric {
		return map[string]layers.Metric{"decode time": {Low: time - 1, Median: time, High: time + 2}, "bits per byte": {Low: 0.7, Median: 0.8, High: 1}}
	}
	all := figures(&layers.Result{
		Variants: []layers.Variant{{Label: "2", Kind: layers.KindDepth, Layers: 2, Metrics: metrics(5)},
			{Label: "drop 1", Kind: "drop", Layers: 3, Metrics: metrics(7)}},
		Predictions: []layers.Prediction{{Layers: 9, Metric: "decode time", Value: 20, Low: 19, High: 23, Measured: &afterwards}},
	})
	five, seven, bits := chart.Value{Low: 4, Mid: 5, High: 7}, chart.Value{Low: 6, Mid: 7, High: 9}, chart.Value{Low: 0.7, Mid: 0.8, High: 1}
	for _, c := range []struct {
		figure string
		panel  int
		series string
		want   chart.Point
	}{
		{"time", 1, "measured", chart.Point{X: chart.Exactly(2), Y: five}},
		{"time", 1, "other lists", chart.Point{X: chart.Exactly(3), Y: seven, Label: "drop 1"}},
		{"time", 1, "predicted, ", chart.Point{X: chart.Exactly(9), Y: chart.Value{Low: 19, Mid: 20, High: 23}}},
		{"time", 1, "measured afterwards", chart.Point{X: chart.Exactly(9), Y: chart.Exactly(afterwards)}},
		{"quality", 0, "measured", chart.Point{X: chart.Exactly(2), Y: bits}},
		{"quality-time", 0, "measured", chart.Point{X: five, Y: bits, Label: "2"}},
		{"quality-time", 0, "other", chart.Point{X: seven, Y: bits, Label: "drop 1"}},
	} {
		if got := pick(all, c.figure, c.panel, c.series); !slices.Equal(got, []chart.Point{c.want}) {
			t.Errorf("%s, %s: %v, expected %v", c.figure, c.series, got, c.want)
		}
	}
}

// The line goes through what the fit says, from 0 to the deepest prediction. Times that lie on no line are joined, and
// no line is drawn; a line never goes below 0, nor towards a time at 0 layers that is known to be noise, which its
// legend does not name.
func TestLines(t *testing.T) {
	for name, c := range map[string]struct {
		phase  int // its panel and fit
		change func(f *layers.Fit)
		joined int
		ends   [][2]float64
	}{
		"as fitted":                    {1, func(*layers.Fit) {}, 0, [][2]float64{{1, 6}, {0, 1}, {6, 12}}},
		"no line":                      {1, func(f *layers.Fit) { f.Rejected = "it bends" }, 6, nil},
		"a layer of less than nothing": {1, func(f *layers.Fit) { f.A, f.B = 9, -0.1 }, 6, nil},
		"a rest of less than nothing":  {1, func(f *layers.Fit) { f.A = -f.B / 2 }, 0, [][2]float64{{1, 6}, {6, 12}}},
		"a line below 0":               {0, func(f *layers.Fit) { f.A = -f.B / 2 }, 0, [][2]float64{{1, 6}, {0.5, 1}, {6, 12}}},
	} {
		r := full()
		f := &r.Fits[c.phase]
		c.change(f)
		joined, ends := 0, [][2]float64(nil)
		for _, s := range figures(r)[0].Panels[c.phase].Series {
			switch {
			case s.Name == "no line fits":
				joined = len(s.Points)
			case s.Kind == chart.Line || s.Kind == chart.Dashed:
				if f.Impossible() != "" && strings.Contains(s.Name, " L ") {
					t.Errorf("%s: legend %q, though: %s", name, s.Name, f.Impossible())
				}
				for _, p := range s.Points {
					if want := f.A + f.B*p.X.Mid; p.Y.Mid != want || want < -1e-12 {
						t.Errorf("%s: the line is at %v for %v layers, expected %v", name, p.Y.Mid, p.X.Mid, want)
					}
				}
				ends = append(ends, [2]float64{s.Points[0].X.Mid, s.Points[1].X.Mid})
			}
		}
		if joined != c.joined || !slices.Equal(ends, c.ends) {
			t.Errorf("%s: %d points are joined, lines from and to %v", name, joined, ends)
		}
	}
	if got := pick(figures(full()), "time", 0, "fit: 0.3121 + 0.1416 L ms"); got == nil {
		t.Error("the legend does not name the line")
	}
}

// written writes a result, and returns the files by name.
func written(t *testing.T, r *layers.Result) map[string]string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, Write(t.Context(), dir, r, "the tables"))
	files := require.Value(filepath.Glob(filepath.Join(dir, "*")))(t)
	all := map[string]string{}
	for _, f := range files {
		data := require.Value(os.ReadFile(f))(t)
		all[filepath.Base(f)] = string(data)
	}
	return all
}

var everything = []string{"time", "quality", "energy", "quality-time"}

// What was not measured has no picture.
func TestPartialResults(t *testing.T) {
	noQuality := full()
	for i := range noQuality.Variants {
		delete(noQuality.Variants[i].Metrics, "bits per byte")
	}
	for name, c := range map[string]struct {
		r    *layers.Result
		want []string
	}{
		"empty":      {&layers.Result{}, nil},
		"all":        {full(), everything},
		"no metrics": {&layers.Result{Variants: []layers.Variant{{Label: "1", Kind: "depth", Layers: 1}}, Fits: []layers.Fit{{Phase: "decode", A: 1, B: 2, Depths: []int{1, 2}}}}, nil},
		"no quality": {noQuality, []string{"time", "energy"}},
	} {
		files := written(t, c.r)
		var got []string
		for _, n := range everything {
			if files[n+".png"] != "" && files[n+".svg"] != "" {
				got = append(got, n)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: figures are %v, expected %v", name, got, c.want)
		}
		page := files["layers.html"]
		if n := strings.Count(page, "<svg"); n != len(got) || !strings.Contains(page, "the tables") {
			t.Errorf("%s: the page has %d pictures", name, n)
		}
	}
}

// In a wide and a narrow window no panel makes the page wider, and its letters can be read.
func TestPageInBrowser(t *testing.T) {
	page := func() ([]byte, error) { return []byte(written(t, full())["layers.html"]), nil }
	b := chromium.Open(t, "layers.html", page, 1440, 900)
	type seen struct {
		Over    float64 `json:"over"`  // pixels that the page is wider than the window
		Shown   int     `json:"shown"` // pictures
		Letters float64 `json:"letters"`
	}
	for _, width := range []int64{1440, 390} {
		b.Show(width, 900)
		got, err := chromedp.Run(b.Context, chromedp.Evaluate[seen](`(() => {
			const shown = [...document.querySelectorAll("svg")].map((e) => e.getBoundingClientRect().width / e.viewBox.baseVal.width).filter((x) => x > 0);
			return { over: document.documentElement.scrollWidth - innerWidth, shown: shown.length, letters: 12 * Math.min(...shown) };
		})()`))
		require.NoError(t, err)
		if got.Over > 0 || got.Shown != 4 || got.Letters < 9 {
			t.Errorf("in a window of %d pixels the page is %+v", width, got)
		}
	}
}

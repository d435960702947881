package plot

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"gpt2scope/internal/chart"
	"gpt2scope/internal/chromium"
	"gpt2scope/layers"
)

// pick returns the points of a series by its name's beginning, nil if there is none.
func pick(all []*figure, name string, panel int, series string) []chart.Point {
	for _, f := range all {
		if f.name != name || panel >= len(f.panels) {
			continue
		}
		for _, s := range f.panels[panel].Series {
			if strings.HasPrefix(s.Name, series) && s.Name != "" {
				return s.Points
			}
		}
	}
	return nil
}

// measurements are the points of a metric by depth, straight from the result.
func measurements(r *layers.Result, metric string, sweep bool) (all []chart.Point) {
	for _, v := range r.Variants {
		if m, ok := v.Metrics[metric]; ok && (v.Kind == layers.KindDepth) == sweep {
			p := chart.Point{X: chart.Exactly(float64(v.Layers)), Y: chart.Value{Low: m.Low, Mid: m.Median, High: m.High}}
			if !sweep {
				p.Label = v.Label
			}
			all = append(all, p)
		}
	}
	return all
}

func TestPlottedDataIsTheResult(t *testing.T) {
	r := full()
	all := figures(r)
	for _, c := range []struct {
		figure              string
		panel               int
		metric              string
		predictions, checks int
	}{
		{"time", 0, "prefill time", 2, 2}, {"time", 1, "decode time", 2, 0},
		{"quality", 0, "bits per byte", 0, 0}, {"energy", 0, "energy", 0, 0},
	} {
		equal := func(what string, got, want []chart.Point, expected int) {
			t.Helper()
			if len(want) != expected || !slices.Equal(got, want) {
				t.Errorf("%s, %s: %s are\n%v, expected %d:\n%v", c.figure, c.metric, what, got, expected, want)
			}
		}
		equal("depths", pick(all, c.figure, c.panel, "measured, 95 % interval"), measurements(r, c.metric, true), 6)
		equal("lists", pick(all, c.figure, c.panel, "other lists"), measurements(r, c.metric, false), len(otherLists))
		var predictions, checks []chart.Point
		for _, p := range r.Predictions {
			if p.Metric != c.metric {
				continue
			}
			predictions = append(predictions, chart.Point{X: chart.Exactly(float64(p.Layers)), Y: chart.Value{Low: p.Low, Mid: p.Value, High: p.High}})
			if p.Measured != nil {
				checks = append(checks, chart.Point{X: chart.Exactly(float64(p.Layers)), Y: chart.Exactly(*p.Measured)})
			}
		}
		equal("predictions", pick(all, c.figure, c.panel, "predicted, "), predictions, c.predictions)
		equal("verifications", pick(all, c.figure, c.panel, "measured afterwards"), checks, c.checks)
	}
	guess := measurements(r, "predicted memory", true)
	if got := pick(all, "memory", 0, "predicted before"); len(guess) != 6 || !slices.Equal(got, guess) {
		t.Errorf("predicted memory is %v, expected %v", got, guess)
	}
	for sweep, got := range map[bool][]chart.Point{true: pick(all, "quality-time", 0, "measured"), false: pick(all, "quality-time", 0, "other")} {
		var want []chart.Point
		for _, v := range r.Variants {
			if (v.Kind == layers.KindDepth) == sweep {
				d, q := v.Metrics["decode time"], v.Metrics["bits per byte"]
				want = append(want, chart.Point{X: chart.Value{Low: d.Low, Mid: d.Median, High: d.High}, Y: chart.Value{Low: q.Low, Mid: q.Median, High: q.High}, Label: v.Label})
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("quality against time is %v, expected %v", got, want)
		}
	}
}

// The line goes through what the fit says, from 0 to the deepest prediction. Times that lie on no line are joined, and
// no line is drawn; a line never goes below 0, nor towards a time at 0 layers that is known to be noise, which its
// legend does not name.
func TestLines(t *testing.T) {
	for name, c := range map[string]struct {
		change func(f *layers.Fit)
		joined int
		ends   [][2]float64
	}{
		"as fitted":                    {func(*layers.Fit) {}, 0, [][2]float64{{1, 6}, {0, 1}, {6, 12}}},
		"no line":                      {func(f *layers.Fit) { f.Rejected = "it bends" }, 6, nil},
		"a layer of less than nothing": {func(f *layers.Fit) { f.A, f.B, f.Rest = 9, -0.1, 9 }, 6, nil},
		"a rest of less than nothing":  {func(f *layers.Fit) { f.A, f.Rest = -f.B/2, -f.B/2 }, 0, [][2]float64{{1, 6}, {6, 12}}},
		"a line below 0":               {func(f *layers.Fit) { f.A = -f.B / 2 }, 0, [][2]float64{{1, 6}, {0.5, 1}, {6, 12}}},
	} {
		r := full()
		f := &r.Fits[1]
		c.change(f)
		joined, ends := 0, [][2]float64(nil)
		for _, s := range figures(r)[0].panels[1].Series {
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
	if err := Write(t.Context(), dir, r); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		all[filepath.Base(f)] = string(data)
	}
	return all
}

var everything = []string{"time", "memory", "quality", "energy", "quality-time"}

// What was not measured has no picture; numbers that are none appear nowhere.
func TestPartialResults(t *testing.T) {
	drop := func(names ...string) *layers.Result {
		r := full()
		r.Predictions = nil
		for i := range r.Variants {
			for _, name := range names {
				delete(r.Variants[i].Metrics, name)
			}
		}
		return r
	}
	with := func(v float64) *layers.Result {
		r := full()
		for i := range r.Variants {
			for name, m := range r.Variants[i].Metrics {
				m.Median, m.Low, m.High = v, v, v
				r.Variants[i].Metrics[name] = m
			}
		}
		for i := range r.Fits {
			f := &r.Fits[i]
			f.A, f.AError, f.B, f.BError, f.R2 = v, v, v, v, v
		}
		for i := range r.Predictions {
			p := &r.Predictions[i]
			p.Value, p.Low, p.High, p.Measured, p.ErrorRate = v, v, v, &v, &v
		}
		return r
	}
	for name, c := range map[string]struct {
		r    *layers.Result
		want []string
	}{
		"empty":      {&layers.Result{}, nil},
		"all":        {full(), everything},
		"no metrics": {&layers.Result{Variants: []layers.Variant{{Label: "1", Kind: "depth", Layers: 1}}, Fits: []layers.Fit{{Phase: "decode", A: 1, B: 2, Depths: []int{1, 2}}}}, nil},
		"no quality": {drop("bits per byte"), []string{"time", "memory", "energy"}},
		"no memory":  {drop("predicted memory"), []string{"time", "quality", "energy", "quality-time"}},
		"NaN":        {with(math.NaN()), nil},
		"infinite":   {with(math.Inf(1)), nil},
		"large":      {with(9e199), everything},
		"zero":       {with(0), everything},
		"negative":   {with(-3), everything},
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
		if page := files["layers.html"]; strings.Contains(page, "NaN") || strings.Contains(page, "Inf") {
			t.Errorf("%s: the page has a number that is none", name)
		}
	}
}

// Pictures of an earlier result are removed, other files are not; after Ctrl-C nothing is written.
func TestWrite(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Write(ctx, dir, full()); !errors.Is(err, context.Canceled) {
		t.Errorf("after Ctrl-C the error is %v", err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Errorf("after Ctrl-C the directory has %v", entries)
	}
	for _, name := range []string{"energy.png", "energy.svg", "other.png"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o666); err != nil {
			t.Fatal(err)
		}
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
	if err := Write(t.Context(), filepath.Join(dir, "missing"), full()); err == nil || !strings.Contains(err.Error(), "there is no directory") {
		t.Errorf("for a missing directory the error is %v", err)
	}
}

// The page has the result's numbers; texts of files are no markup.
func TestPageHasTheNumbers(t *testing.T) {
	const hostile = `"><script>alert(1)</script>`
	r := full()
	r.Notes = append(r.Notes, hostile)
	page, err := newPage(r, figures(r))
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(regexp.MustCompile(`<[^>]*>`).ReplaceAllString(string(page), " ")), " ")
	for _, want := range []string{
		"Decode: a layer costs 0.04117 ± 0.00022 ms, everything else 0.1179 ± 0.0011 ms; of the time at 6 layers, the layers are 68 %.",
		"prefill a, everything but the layers, less what the last layer saves 0.3121 0.0041 ms 0.999762 1-6",
		"prefill b, a layer 0.14163 0.00091 ms 0.999762 1-6",
		"9 prefill time 1.587 1.537 to 1.637 1.603 ms -0.99 yes", // a prediction and its error
		"12 decode time 0.6119 0.5999 to 0.6239 - ms - -",        // one that was not run
		"repeat 3 7 0-3, 3-5", "52,773,120", "11.78", // parameters, GFLOP of the prefill
		"The clocks were not locked.", "prompt length 128", "depths 1, 2, 3", "seed -", "infer layers --range 1-6 --text &#39;all&#39;\\&#39;&#39;s well.txt&#39; -o out", "&lt;script&gt;alert(1)",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page has no %q", want)
		}
	}
	for _, v := range r.Variants {
		m := v.Metrics["prefill time"]
		if c := metricCell(m, 1); !strings.Contains(text, c.Value+" "+c.Interval) || c.Interval == "" {
			t.Errorf("the page has no %v", c)
		}
	}
	for _, refused := range []string{"<script", " style=", "href=", "src=", "url(", "<link", "@import"} {
		if strings.Contains(string(page), refused) {
			t.Errorf("the page has %q, which its policy refuses", refused)
		}
	}
	if n := strings.Count(string(page), "<svg"); n != 6 {
		t.Errorf("the page has %d pictures", n)
	}
}

// In a wide and a narrow window no panel makes the page wider, and its letters can be read.
func TestPageInBrowser(t *testing.T) {
	b := chromium.Open(t, "layers.html", func() ([]byte, error) { r := full(); return newPage(r, figures(r)) }, 1440, 900)
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
		if err != nil {
			t.Fatal(err)
		}
		if got.Over > 0 || got.Shown != 6 || got.Letters < 9 {
			t.Errorf("in a window of %d pixels the page is %+v", width, got)
		}
	}
}

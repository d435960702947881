package page

import (
	"bytes"
	"encoding/xml"
	"math"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"gpt2scope/internal/chromium"
	"gpt2scope/learn"
)

// pictures are one of each kind, with texts that HTML must not take for its own, and values that have no place.
var pictures = []*learn.Picture{
	{Title: "bars <1>", X: learn.Axis{Name: "time (ms)"}, Bars: []learn.Bar{{Name: "a * a", Value: 3, Low: 2.5, High: 3.5}, {Name: "<b>", Value: -1, Low: -1, High: -1}, {Name: "none", Value: math.NaN()}}},
	{Title: "bars over decades", X: learn.Axis{Name: "GB/s", Log: true}, Bars: []learn.Bar{{Name: "one", Value: 0.01, Low: 0.01, High: 0.02}, {Name: "all", Value: 4000, Low: 4000, High: 4000}, {Name: "zero"}}},
	{Title: "lines", X: learn.Axis{Name: "bytes & more", Log: true}, Y: learn.Axis{Name: "time (us)", Log: true}, Lines: []learn.Line{
		{Name: "up", X: []float64{1, 10, 1e6}, Y: []float64{5, 6, 700}}, {Name: "one point", X: []float64{3}, Y: []float64{3}}, {Name: "none", X: []float64{0, math.NaN()}, Y: []float64{1, 1}}}},
	{Title: "spans", X: learn.Axis{Name: "time (us)"}, Spans: []learn.Span{{Row: "stream 1", Name: "copy", Start: 0, End: 10}, {Row: "stream 2", Name: "kernel", Start: 8, End: 20}}},
}

func results() []learn.Result {
	var all []learn.Result
	for i, p := range pictures {
		verdict := []learn.Verdict{learn.Shown, learn.Refuted, learn.Unknown}[i%3]
		all = append(all, learn.Result{Number: i + 1, Claim: "<<<1, 1>>> & more", Verdict: verdict, Why: "Since it is so.", GoOn: "infer info", Parts: []learn.Part{
			{Device: learn.OnCPU, Machine: "A CPU, 4 threads", Finding: learn.Finding{Verdict: verdict, Text: "What was found.", Figures: []learn.Figure{{Name: "time", Value: 3333, Unit: "us", N: 9}}}, Picture: p},
			{Device: learn.OnGPU, Reason: "there is no GPU", Finding: learn.Finding{Verdict: learn.Unknown, Text: "There is no recording."}},
		}})
	}
	return all
}

// An SVG is well-formed, names what it shows and draws nothing outside.
func TestDraw(t *testing.T) {
	for _, p := range pictures {
		d := xml.NewDecoder(strings.NewReader(draw(p)))
		shapes := 0
		for {
			token, err := d.Token()
			if token == nil {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", p.Title, err)
			}
			if e, ok := token.(xml.StartElement); ok && (e.Name.Local == "rect" || e.Name.Local == "polyline") {
				shapes++
			}
		}
		if _, err := d.Token(); shapes < 2 || strings.Contains(draw(p), "NaN\"") {
			t.Errorf("%s: %d shapes, %v: %s", p.Title, shapes, err, draw(p))
		}
	}
	for _, p := range []*learn.Picture{nil, {}, {Bars: []learn.Bar{{Value: math.NaN(), Low: math.NaN(), High: math.NaN()}}}, {Lines: []learn.Line{{}}}} {
		if s := draw(p); s != "" {
			t.Errorf("%+v is drawn: %s", p, s)
		}
	}
}

func TestTicks(t *testing.T) {
	for _, c := range []struct {
		s    scale
		want string
	}{
		{scale{low: 0, high: 10}, "0 2 4 6 8 10"}, {scale{low: 0, high: 3500}, "0 500 1k 1.5k 2k 2.5k 3k 3.5k"}, {scale{low: 1, high: 1e6, log: true}, "1 10 100 1k 10k 100k 1M"},
		{scale{low: 2, high: 30, log: true}, "5 10 15 20 25 30"}, {scale{low: -1, high: 1}, "-1 -0.5 0 0.5 1"},
	} {
		var got []string
		for _, v := range c.s.ticks() {
			got = append(got, short(v))
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%+v: %s, expected %s", c.s, strings.Join(got, " "), c.want)
		}
	}
}

func TestPage(t *testing.T) {
	var b bytes.Buffer
	if err := Write(&b, results()); err != nil {
		t.Fatal(err)
	}
	rest := b.String()
	for _, part := range []string{"<h2>1. ", "<td>3.33 ms</td>", "What was found.", "<svg ", "Since it is so.", "infer info", "<h2>2. "} { // the figures first
		if _, rest, _ = strings.Cut(rest, part); rest == "" {
			t.Errorf("the page lacks %q, or it is not after the parts before it:\n%s", part, b.String())
		}
	}
	for _, part := range []string{"Verdicts on 4 claims: 2 shown, 1 refuted, 1 that cannot be shown here.", "&lt;&lt;&lt;1, 1&gt;&gt;&gt; &amp; more", `<span class="verdict refuted">refuted</span>`, "CPU, measured now on A CPU, 4 threads",
		"Not measured now: there is no GPU.", "3.33 ms"} {
		if !strings.Contains(b.String(), part) {
			t.Errorf("the page lacks %q:\n%s", part, b.String())
		}
	}
}

// The page, of all lessons by the recording that ships too, in a wide and a narrow window: nothing is wider than the window, and the pictures have letters that
// can be read, none outside.
func TestPageInBrowser(t *testing.T) {
	all, drawn := results(), 0
	shipped, err := learn.Shipped()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range learn.All() {
		all = append(all, learn.Judge(l, shipped))
	}
	for _, r := range all {
		for _, p := range r.Parts {
			if draw(p.Picture) != "" {
				drawn++
			}
		}
	}
	if drawn < 20 {
		t.Errorf("%d pictures are drawn, expected one of most lessons", drawn)
	}
	b := chromium.Open(t, "learn.html", func() ([]byte, error) {
		var b bytes.Buffer
		err := Write(&b, all)
		return b.Bytes(), err
	}, 1440, 900)
	type seen struct {
		Over     float64  `json:"over"`
		Pictures int      `json:"pictures"`
		Letters  float64  `json:"letters"`
		Outside  []string `json:"outside"` // texts that stand out of their picture
		Styled   bool     `json:"styled"`
	}
	const look = `(() => {
		const pictures = [...document.querySelectorAll("svg")].filter((e) => e.getBoundingClientRect().width > 0);
		const texts = pictures.flatMap((s) => [...s.querySelectorAll("text")].map((t) => [s.getBoundingClientRect(), t.getBoundingClientRect(), s.getAttribute("aria-label") + ": " + t.textContent]));
		return { over: document.documentElement.scrollWidth - innerWidth, pictures: pictures.length, letters: Math.min(...pictures.map((s) => 12 * s.getBoundingClientRect().width / s.viewBox.baseVal.width)),
			outside: texts.filter(([s, t]) => t.left < s.left - 1 || t.right > s.right + 1 || t.top < s.top - 1 || t.bottom > s.bottom + 1).map(([,, text]) => text),
			styled: getComputedStyle(document.body).maxWidth === "1400px" };
	})()`
	for window, letters := range map[int64]float64{1440: 11, 800: 11, 390: 11} {
		b.Show(window, 900)
		got, err := chromedp.Run(b.Context, chromedp.Evaluate[seen](look))
		if err != nil {
			t.Fatal(err)
		}
		if got.Over > 0 || got.Pictures != drawn || got.Letters < letters || len(got.Outside) > 0 || !got.Styled {
			t.Errorf("in a window of %d pixels the page is %+v", window, got)
		}
	}
}

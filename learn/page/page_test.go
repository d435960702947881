package page

import (
	"bytes"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"gpt2scope/internal/chart"
	"gpt2scope/internal/chromium"
	"gpt2scope/internal/require"
	"gpt2scope/learn"
)

func results() []learn.Result {
	var all []learn.Result
	for i, verdict := range []learn.Verdict{learn.Shown, learn.Refuted, learn.Unknown, learn.Shown} {
		rows := []chart.Row{{Name: "a * a", Spans: []chart.Span{{End: 3}}}, {Name: "<b>", Spans: []chart.Span{{End: -1}}}}
		p := chart.Picture{Title: "bars <1>", Panels: []chart.Panel{{X: chart.Axis{Name: "time (ms)"}, Rows: rows}}}
		f := learn.Finding{Verdict: verdict, Text: "What was found.",
			Figures: []learn.Figure{{Name: "time", Value: 3333, Unit: "us", N: 9}}}
		none := learn.Finding{Verdict: learn.Unknown, Text: "There is no recording."}
		all = append(all, learn.Result{Number: i + 1, Claim: "<<<1, 1>>> & more", Verdict: verdict,
			Why: "Since it is so.", GoOn: "infer info", Parts: []learn.Part{
				{Device: learn.OnCPU, Machine: "A CPU, 4 threads", Finding: f, Picture: p},
				{Device: learn.OnGPU, Reason: "there is no GPU", Finding: none},
			}})

	}
	return all
}

func TestPage(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, Write(&b, results()))
	rest := b.String()
	for _, part := range []string{"<h2>1. ", "<td>3.33 ms</td>", "What was found.", "<svg ", "Since it is", "<h2>2. "} {
		if _, rest, _ = strings.Cut(rest, part); rest == "" {
			t.Errorf("the page lacks %q, or it is not after the parts before it:\n%s", part, b.String())
		}
	}
	for _, part := range []string{"Verdicts on 4 claims: 2 shown, 0 half true, 1 refuted, 1 that cannot be shown here.",
		"&lt;&lt;&lt;1, 1&gt;&gt;&gt; &amp; more", `<span class="verdict refuted">refuted</span>`,
		"CPU, measured now on A CPU, 4 threads",
		"Not measured now: there is no GPU.", "3.33 ms"} {
		if !strings.Contains(b.String(), part) {
			t.Errorf("the page lacks %q:\n%s", part, b.String())
		}
	}
	if n := strings.Count(b.String(), "there is no GPU"); n != 1 {
		t.Errorf("the page says %d times why nothing was measured", n)
	}
}

// The page, of all lessons by the recording that ships too, in a wide and a narrow window: nothing is wider than the
// window, and the pictures have letters that can be read, none outside.
func TestPageInBrowser(t *testing.T) {
	all, drawn := results(), 0
	shipped := require.Value(learn.Shipped())(t)
	for _, l := range learn.All() {
		r := require.Value(learn.Judge(t.Context(), l, shipped))(t)
		all = append(all, r)
	}
	for _, r := range all {
		for _, p := range r.Parts {
			if !p.Picture.Empty() {
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
		const box = (e) => e.getBoundingClientRect();
		const texts = pictures.flatMap((s) => [...s.querySelectorAll("text")].map((t) => [box(s), box(t), t.textContent]));
		return { over: document.documentElement.scrollWidth - innerWidth, pictures: pictures.length,
			letters: Math.min(...pictures.map((s) => 12 * box(s).width / s.viewBox.baseVal.width)),
			outside: texts.filter(([s, t]) => t.left < s.left - 1 || t.right > s.right + 1 || t.top < s.top - 1 ||
				t.bottom > s.bottom + 1).map(([,, text]) => text),
			styled: getComputedStyle(document.body).maxWidth === "1680px" };
	})()`
	for window, letters := range map[int64]float64{1440: 11, 800: 11, 390: 11} {
		b.Show(window, 900)
		got := require.Value(chromedp.Run(b.Context, chromedp.Evaluate[seen](look)))(t)
		if got.Over > 0 || got.Pictures != drawn || got.Letters < letters || len(got.Outside) > 0 || !got.Styled {
			t.Errorf("in a window of %d pixels the page is %+v", window, got)
		}
	}
}

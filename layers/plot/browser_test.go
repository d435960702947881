package plot

import (
	"testing"

	"github.com/chromedp/chromedp"

	"gpt2scope/internal/chromium"
)

// TestPageInBrowser opens the page in a wide and in a narrow window. What its policy
// refuses is an entry of the browser's log.
func TestPageInBrowser(t *testing.T) {
	b := chromium.Open(t, "layers.html", func() ([]byte, error) {
		r := full()
		return newPage(r, figures(r))
	}, 1440, 900)
	type seen struct {
		Over    float64 `json:"over"`  // pixels that the page is wider than the window
		Broad   int     `json:"broad"` // pictures that are shown
		Narrow  int     `json:"narrow"`
		Letters float64 `json:"letters"` // pixels of the smallest text of a picture
		Styled  bool    `json:"styled"`
		Filled  string  `json:"filled"`
	}
	const look = `(() => {
		const shown = (s) => [...document.querySelectorAll(s)].filter((e) => e.getBoundingClientRect().width > 0);
		const texts = shown("svg text").map((e) => parseFloat(e.getAttribute("font-size")) * e.ownerSVGElement.getBoundingClientRect().width / e.ownerSVGElement.viewBox.baseVal.width);
		return { over: document.documentElement.scrollWidth - innerWidth, broad: shown(".broad svg").length, narrow: shown(".narrow svg").length, letters: Math.min(...texts),
			styled: getComputedStyle(document.body).maxWidth === "1680px", filled: getComputedStyle(document.querySelector("svg path[fill='#0B4F96']")).fill };
	})()`
	for _, width := range []int64{1440, 1000, 390} {
		b.Show(width, 900)
		got, err := chromedp.Run(b.Context, chromedp.Evaluate[seen](look))
		if err != nil {
			t.Fatal(err)
		}
		broad, narrow := 7, 0
		if width < 600 {
			broad, narrow = 0, 7
		}
		if got.Over > 0 || got.Broad != broad || got.Narrow != narrow || got.Letters < 9 || !got.Styled || got.Filled != "rgb(11, 79, 150)" {
			t.Errorf("in a window of %d pixels the page is %+v", width, got)
		}
	}
}

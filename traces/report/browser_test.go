package report

import (
	"bytes"
	"os"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"gpt2scope/internal/chromium"
	"gpt2scope/traces"
)

// browser is a report in headless Chromium.
type browser struct {
	*chromium.Browser
	t *testing.T
}

// open writes the page of a trace and opens it in a window of width x height pixels. Tests in a browser
// take long: those that call open run if GPT2SCOPE_BROWSER is 1, as in make test-browser. TestNumbers
// always does.
func open(t *testing.T, tr *traces.Trace, width, height int64) *browser {
	t.Helper()
	if os.Getenv("GPT2SCOPE_BROWSER") != "1" {
		t.Skip("tests of the page in a browser: make test-browser")
	}
	return openAs(t, "run.json.gz", tr, width, height)
}

// openAs is open for a recording of that name.
func openAs(t *testing.T, name string, tr *traces.Trace, width, height int64) *browser {
	t.Helper()
	b := &browser{t: t, Browser: chromium.Open(t, "report.html", func() ([]byte, error) {
		var page bytes.Buffer
		err := Write(&page, tr, Options{Name: name, Device: -1})
		return page.Bytes(), err
	}, width, height)}
	if _, err := chromedp.Run(b.Context, chromedp.Poll[bool](`window.gpt2scope && gpt2scope.view.frames > 0`)); err != nil {
		t.Fatal(err)
	}
	return b
}

// action is an input to a page.
type action = chromedp.Action[chromedp.Void]

func (b *browser) run(actions ...action) {
	b.t.Helper()
	if err := chromedp.Do(b.Context, actions...); err != nil {
		b.t.Fatal(err)
	}
}

// eval returns the value of an expression of the page, once its pictures are drawn.
func eval[T any](b *browser, expression string) T {
	b.t.Helper()
	v, err := chromedp.Run(b.Context, chromedp.Evaluate[T](`new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(`+expression+`))))`, chromedp.EvalAwaitPromise))
	if err != nil {
		b.t.Fatal(err)
	}
	return v
}

// visible returns the visible range of the timeline in ns.
func (b *browser) visible() [2]float64 {
	b.t.Helper()
	return eval[[2]float64](b, `[gpt2scope.view.from, gpt2scope.view.to]`)
}

// scheme makes the browser prefer light or dark.
func (b *browser) scheme(name string) {
	b.t.Helper()
	if _, err := chromedp.Call(b.Context, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}}}); err != nil {
		b.t.Fatal(err)
	}
}

package plot

import (
	"context"
	"encoding/json"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// chromium finds the browser, or ends the test: a failure where it is required.
func chromium(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("the browser is slow to start")
	}
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	const missing = "there is no Chromium, so that the page is not tested in a browser: 'make chromium' installs it"
	if os.Getenv("GPT2SCOPE_REQUIRE_CHROMIUM") == "1" {
		t.Fatal(missing)
	}
	t.Skip(missing)
	return ""
}

// TestPageInBrowser opens the page in a wide and in a narrow window. What its policy
// refuses is an entry of the browser's log.
func TestPageInBrowser(t *testing.T) {
	program := chromium(t)
	r := full()
	page, err := newPage(r, figures(r))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "layers.html")
	if err := os.WriteFile(path, page, 0o666); err != nil {
		t.Fatal(err)
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(program), chromedp.NoSandbox, // it runs as root in containers
		chromedp.DisableGPU, chromedp.UserDataDir(t.TempDir()), chromedp.WSURLReadTimeout(time.Minute))
	ctx, cancel := chromedp.NewExecAllocator(t.Context(), options...)
	defer cancel()
	ctx, cancel = chromedp.NewContext(ctx)
	defer cancel()
	ctx, cancel = context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	var mu sync.Mutex
	var problems []string
	note := func(event any) {
		mu.Lock()
		defer mu.Unlock()
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			problems = append(problems, e.ExceptionDetails.Text)
		case *runtime.EventConsoleAPICalled:
			text, _ := json.Marshal(e.Args)
			problems = append(problems, string(text))
		case *cdplog.EventEntryAdded:
			problems = append(problems, e.Entry.Text)
		case *network.EventRequestWillBeSent:
			if e.Type != network.ResourceTypeDocument || !strings.HasPrefix(e.Request.URL, "file:") {
				problems = append(problems, "request of "+e.Request.URL)
			}
		}
	}
	if err := chromedp.Listen(ctx, note); err != nil {
		t.Fatal(err)
	}
	if _, err := chromedp.Call(ctx, network.Enable, network.EnableParams{}); err != nil {
		t.Fatal(err)
	}
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
		if err := chromedp.Do(ctx, chromedp.EmulateViewport(width, 900), chromedp.Navigate((&url.URL{Scheme: "file", Path: path}).String())); err != nil {
			t.Fatal(err)
		}
		got, err := chromedp.Run(ctx, chromedp.Evaluate[seen](look))
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
	mu.Lock()
	defer mu.Unlock()
	for _, p := range problems {
		t.Error(p)
	}
}

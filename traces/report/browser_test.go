package report

import (
	"bytes"
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

	"github.com/chromedp/cdproto/emulation"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"gpt2scope/traces"
)

// browser is a page in headless Chromium, and what it did that it should not.
type browser struct {
	t   *testing.T
	ctx context.Context

	mu       sync.Mutex
	problems []string // exceptions, lines on the console, entries of the log
	requests []string // other than for the page itself
}

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

// open writes the page of a trace and opens it in a window.
func open(t *testing.T, tr *traces.Trace, width, height int64) *browser {
	t.Helper()
	program := chromium(t)
	var page bytes.Buffer
	if err := Write(&page, tr, Options{Name: "graph.sqlite", Device: -1}); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "report.html")
	if err := os.WriteFile(path, page.Bytes(), 0o666); err != nil {
		t.Fatal(err)
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(program), chromedp.NoSandbox, // it runs as root in containers
		chromedp.DisableGPU, chromedp.UserDataDir(t.TempDir()), chromedp.WSURLReadTimeout(time.Minute), chromedp.WindowSize(int(width), int(height)))
	ctx, cancel := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	ctx, cancel = context.WithTimeout(ctx, 3*time.Minute)
	t.Cleanup(cancel)
	b := &browser{t: t, ctx: ctx}
	if err := chromedp.Listen(ctx, b.note); err != nil {
		t.Fatal(err)
	}
	if _, err := chromedp.Call(ctx, network.Enable, network.EnableParams{}); err != nil {
		t.Fatal(err)
	}
	b.run(chromedp.EmulateViewport(width, height), chromedp.Navigate((&url.URL{Scheme: "file", Path: path}).String()))
	if _, err := chromedp.Run(ctx, chromedp.Poll[bool](`window.gpt2scope && gpt2scope.view.frames > 0`)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.check)
	return b
}

func (b *browser) note(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		text, _ := json.Marshal(e.ExceptionDetails)
		b.problems = append(b.problems, "exception: "+string(text))
	case *runtime.EventConsoleAPICalled:
		text, _ := json.Marshal(e.Args)
		b.problems = append(b.problems, "console: "+string(text))
	case *cdplog.EventEntryAdded:
		b.problems = append(b.problems, "log: "+e.Entry.Text)
	case *network.EventRequestWillBeSent:
		if e.Type != network.ResourceTypeDocument || !strings.HasPrefix(e.Request.URL, "file:") {
			b.requests = append(b.requests, e.Request.URL)
		}
	}
}

// check says at the end of a test what the page did that it should not.
func (b *browser) check() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range b.problems {
		b.t.Error(p)
	}
	for _, r := range b.requests {
		b.t.Errorf("the page requests %s", r)
	}
}

// action is something that is done to a page.
type action = chromedp.Action[chromedp.Void]

func (b *browser) run(actions ...action) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, actions...); err != nil {
		b.t.Fatal(err)
	}
}

// eval gives the value of an expression of the page, once its pictures are drawn.
func eval[T any](b *browser, expression string) T {
	b.t.Helper()
	v, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](`new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(`+expression+`))))`, chromedp.EvalAwaitPromise))
	if err != nil {
		b.t.Fatal(err)
	}
	return v
}

// visible gives the range of the timeline in ns.
func (b *browser) visible() [2]float64 {
	b.t.Helper()
	return eval[[2]float64](b, `[gpt2scope.view.from, gpt2scope.view.to]`)
}

// scheme has the browser prefer light or dark.
func (b *browser) scheme(name string) {
	b.t.Helper()
	if _, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}}}); err != nil {
		b.t.Fatal(err)
	}
}

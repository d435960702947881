// Package chromium opens pages in headless Chromium, for tests.
package chromium

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

// Browser is a window that shows one page. A test fails at its end if the page threw an exception, wrote to the
// console, caused an entry of the browser's log (for example because its policy refused something), or requested
// anything besides itself.
type Browser struct {
	Context context.Context // of chromedp's calls

	t        *testing.T
	page     string // its URL
	mu       sync.Mutex
	problems []string // exceptions, lines on the console, entries of the log, requests other than for the page itself
}

// program finds the browser. Without GPT2SCOPE_REQUIRE_CHROMIUM=1 it skips the test, since the browser is slow to
// start.
func program(t *testing.T) string {
	t.Helper()
	if os.Getenv("GPT2SCOPE_REQUIRE_CHROMIUM") != "1" {
		t.Skip("'make test-browser' tests the page in a browser")
	}
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Fatal("there is no Chromium: 'make chromium' installs it")
	return ""
}

// Open writes the page that make returns to a file of that name and shows it in a window of width x height pixels.
// Without GPT2SCOPE_REQUIRE_CHROMIUM=1 the test is skipped.
func Open(t *testing.T, name string, make func() ([]byte, error), width, height int64) *Browser {
	t.Helper()
	path := program(t)
	page, err := make()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, page, 0o666); err != nil {
		t.Fatal(err)
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path),
		chromedp.NoSandbox, // it runs as root in containers
		chromedp.DisableGPU, chromedp.UserDataDir(t.TempDir()), chromedp.WSURLReadTimeout(time.Minute),
		chromedp.WindowSize(int(width), int(height)))
	ctx, cancel := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	ctx, cancel = context.WithTimeout(ctx, 3*time.Minute)
	t.Cleanup(cancel)
	b := &Browser{Context: ctx, t: t, page: (&url.URL{Scheme: "file", Path: file}).String()}
	if err := chromedp.Listen(ctx, b.note); err != nil {
		t.Fatal(err)
	}
	if _, err := chromedp.Call(ctx, network.Enable, network.EnableParams{}); err != nil {
		t.Fatal(err)
	}
	b.Show(width, height)
	t.Cleanup(func() {
		for _, p := range b.Misdeeds() {
			t.Error(p)
		}
	})
	return b
}

// Show loads the page again in a window of width x height pixels.
func (b *Browser) Show(width, height int64) {
	b.t.Helper()
	if err := chromedp.Do(b.Context, chromedp.EmulateViewport(width, height), chromedp.Navigate(b.page)); err != nil {
		b.t.Fatal(err)
	}
}

func (b *Browser) note(event any) {
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
			b.problems = append(b.problems, "request: "+e.Request.URL)
		}
	}
}

// Misdeeds returns the problems of the page since the last call, and forgets them. A test that expects some calls it.
func (b *Browser) Misdeeds() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	problems := b.problems
	b.problems = nil
	return problems
}

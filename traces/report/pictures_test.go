package report

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

// maxPicture bounds the size of a picture of the README.
const maxPicture = 200_000

// TestPictures makes the pictures of the README: 'make pictures'. Without the
// variable it checks that they can be made, and are not blank.
func TestPictures(t *testing.T) {
	dir := os.Getenv("GPT2SCOPE_PICTURES")
	if dir == "" {
		dir = t.TempDir()
	}
	for _, p := range []struct {
		name, scheme  string
		width, height int64
	}{{"report-wide.png", "light", 1440, 1330}, {"report-narrow.png", "dark", 390, 1330}} {
		b := open(t, sample(t, "graph.sqlite"), p.width, p.height)
		if _, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: p.scheme}}}); err != nil {
			t.Fatal(err)
		}
		// The decode steps, and the kernels of one stage.
		eval[any](b, `gpt2scope.setView(gpt2scope.page.to - 240e3, gpt2scope.page.to + 10e3)`)
		shot, err := chromedp.Call(b.ctx, cdppage.CaptureScreenshot, cdppage.CaptureScreenshotParams{Format: cdppage.CaptureScreenshotFormatPng})
		if err != nil {
			t.Fatal(err)
		}
		if len(shot.Data) < 20_000 || len(shot.Data) > maxPicture {
			t.Errorf("%s has %d bytes", p.name, len(shot.Data))
		}
		if err := os.WriteFile(filepath.Join(dir, p.name), shot.Data, 0o666); err != nil {
			t.Fatal(err)
		}
	}
}

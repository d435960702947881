package album

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gpt2scope/internal/chart"
	"gpt2scope/internal/require"
)

// Pictures of an earlier album are removed, other files are not; after Ctrl-C nothing is written; text is no markup.
func TestWrite(t *testing.T) {
	dir := t.TempDir()
	points := []chart.Series{{Points: chart.Points([]float64{1, 2}, []float64{3, 4})}}
	a := Album{File: "all.html", Title: "Two", Text: `"><script>alert(1)</script>`, Pictures: []Picture{
		{"some", chart.Picture{Title: "Some", Panels: []chart.Panel{{Series: points}}}}, {"none", chart.Picture{Title: "None"}}}}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := a.Write(ctx, dir); !errors.Is(err, context.Canceled) {
		t.Errorf("after Ctrl-C the error is %v", err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Errorf("after Ctrl-C the directory has %v", entries)
	}
	for _, name := range []string{"none.png", "none.svg", "other.png"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o666))
	}
	if n, err := a.Write(t.Context(), dir); err != nil || n != 1 {
		t.Fatalf("%d pictures, %v", n, err)
	}
	for name, want := range map[string]bool{"none.png": false, "none.svg": false, "some.png": true, "other.png": true} {
		if _, err := os.Stat(filepath.Join(dir, name)); (err == nil) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
	page, err := os.ReadFile(filepath.Join(dir, "all.html"))
	if err != nil || !strings.Contains(string(page), "&lt;script&gt;alert(1)") || strings.Count(string(page), "<svg") != 1 {
		t.Errorf("%v: %s", err, page)
	}
	for _, refused := range []string{"<script", " style=", "href=", "src=", "url(", "<link", "@import"} {
		if strings.Contains(string(page), refused) {
			t.Errorf("the page has %q, which its policy refuses", refused)
		}
	}
	if _, err := a.Write(t.Context(), filepath.Join(dir, "missing")); err == nil || !strings.Contains(err.Error(), "there is no directory") {
		t.Errorf("for a missing directory the error is %v", err)
	}
}

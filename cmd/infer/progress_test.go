package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"gpt2scope/cmd/infer/cli"
)

// TestProgressRate: a bar that appears late has the rate since the task began. It began with
// the amount done so far in no time: "16 TB/s".
func TestProgressRate(t *testing.T) {
	var out bytes.Buffer
	p := &cli.Progress{Start: time.Now()}
	p.Begin(&out, "reading", true)
	const total = 10 << 20
	p.Set(1, total)
	if out.Len() > 0 {
		t.Errorf("a bar is shown at once: %q", out.String())
	}
	time.Sleep(cli.ProgressAfter)
	p.Set(1<<20, total)
	time.Sleep(60 * time.Millisecond)
	p.Set(2<<20, total)
	p.Done()
	if s := out.String(); !strings.Contains(s, "reading") || strings.Contains(s, "GB/s") || strings.Contains(s, "TB/s") || !strings.Contains(s, "MB/s") {
		t.Errorf("the bar is %q", s)
	}
	// A short task has none.
	out.Reset()
	short := &cli.Progress{Start: time.Now().Add(-cli.ProgressAfter)}
	short.Begin(&out, "reading", true)
	short.Set(total*9/10, total)
	short.Set(total, total)
	short.Done()
	if out.Len() > 0 {
		t.Errorf("a short task has a bar: %q", out.String())
	}
}

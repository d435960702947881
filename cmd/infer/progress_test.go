package main

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

// TestProgressRate: a bar that appears late has the rate since the task began. It began with
// the amount done so far in no time: "16 TB/s".
func TestProgressRate(t *testing.T) {
	var out bytes.Buffer
	p := &progress{start: time.Now()}
	p.begin(&out, "reading", true)
	const total = 10 << 20
	p.set(1, total)
	if out.Len() > 0 {
		t.Errorf("a bar is shown at once: %q", out.String())
	}
	time.Sleep(progressAfter)
	p.set(1<<20, total)
	time.Sleep(60 * time.Millisecond)
	p.set(2<<20, total)
	p.done()
	if s := out.String(); !strings.Contains(s, "reading") || strings.Contains(s, "GB/s") || strings.Contains(s, "TB/s") || !strings.Contains(s, "MB/s") {
		t.Errorf("the bar is %q", s)
	}
	// A short task has none.
	out.Reset()
	short := &progress{start: time.Now().Add(-progressAfter)}
	short.begin(&out, "reading", true)
	short.set(total*9/10, total)
	short.set(total, total)
	short.done()
	if out.Len() > 0 {
		t.Errorf("a short task has a bar: %q", out.String())
	}
}

//go:build unix

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gpt2scope/layers"
)

// Ctrl-C in the middle keeps what is done.
func TestInterruptLayers(t *testing.T) {
	dir := t.TempDir()
	p := start(t, withQuick("-m", tiny, "--range", "1,2", "--repeat", "500", "-o", dir)...)
	lines := func() int {
		data, _ := os.ReadFile(filepath.Join(dir, layers.State.File))
		return bytes.Count(data, []byte("\n"))
	}
	for began := time.Now(); lines() < 3; time.Sleep(5 * time.Millisecond) {
		if time.Since(began) > 2*time.Minute {
			t.Fatalf("nothing is measured: %s", p.stderr.String())
		}
	}
	out := p.interrupt(t, os.Interrupt)
	if code := p.ProcessState.ExitCode(); code != exitSignal+2 || out != "" || !strings.Contains(p.stderr.String(), "measurements are in "+dir+", and the same command goes on") || strings.Count(p.stderr.String(), "\n") != 1 {
		t.Errorf("status %d, %q, %q", code, out, p.stderr.String())
	}
	tasks := lines() - 1
	if rows := rowsOf(t, dir); tasks < 2 || len(rows) < tasks {
		t.Errorf("%d tasks have %d rows", tasks, len(rows))
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 3 {
		t.Errorf("the directory has %v, %v", entries, err)
	}
}

package cli

import (
	"io"
	"os"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// Progress shows how far a long task is, on a terminal only, and only if the task takes a
// second or more.
type Progress struct {
	bar   *progressbar.ProgressBar
	make  func(total int64) *progressbar.ProgressBar // nil: show nothing
	Start time.Time
	shown *gate
}

// gate drops what is written until it is open. The bar of a task writes into it from the
// start of the task, so that the rate that it shows is that of the whole task.
type gate struct {
	w    io.Writer
	open bool
}

func (g *gate) Write(b []byte) (int, error) {
	if !g.open {
		return len(b), nil
	}
	return g.w.Write(b)
}

// ProgressAfter is how long a task runs before its bar appears, if it seems to take more than
// a second.
const ProgressAfter = 400 * time.Millisecond

// Progress makes one; bytes says that its numbers are bytes.
func (m *ModelFlags) Progress(stderr io.Writer, title string, bytes bool) *Progress {
	return NewProgress(stderr, title, bytes, m.Quiet)
}

func NewProgress(stderr io.Writer, title string, bytes, quiet bool) *Progress {
	p := &Progress{Start: time.Now()}
	if quiet || !IsTerminal(stderr) {
		return p
	}
	p.Begin(stderr, title, bytes)
	return p
}

// Begin prepares the bar.
func (p *Progress) Begin(w io.Writer, title string, bytes bool) {
	p.shown = &gate{w: w}
	p.make = func(total int64) *progressbar.ProgressBar {
		return progressbar.NewOptions64(total, progressbar.OptionSetWriter(p.shown), progressbar.OptionSetDescription(title),
			progressbar.OptionShowBytes(bytes), progressbar.OptionShowCount(), progressbar.OptionClearOnFinish(),
			progressbar.OptionThrottle(50*time.Millisecond), progressbar.OptionSetPredictTime(true), progressbar.OptionFullWidth())
	}
}

// Set sets how much is done.
func (p *Progress) Set(done, total int64) {
	if p.make == nil || total <= 0 {
		return
	}
	if p.bar == nil {
		p.bar = p.make(total)
		p.bar.StartWithoutRender()
	}
	if elapsed := time.Since(p.Start); !p.shown.open && elapsed >= ProgressAfter && done < total {
		remaining := time.Duration(float64(elapsed) * float64(total-done) / float64(max(done, 1)))
		p.shown.open = elapsed+remaining >= time.Second
	}
	p.bar.Set64(done)
}

// Done removes the bar.
func (p *Progress) Done() {
	if p.bar != nil {
		p.bar.Finish()
		p.bar = nil
	}
	p.make = nil
}

// Spin shows that a task is running whose progress is not known, such as a pass, until stop is called; calling it again does nothing.
func (m *ModelFlags) Spin(stderr io.Writer, title string) (stop func()) {
	if m.Quiet || !IsTerminal(stderr) {
		return func() {}
	}
	over, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		select {
		case <-over:
			return
		case <-time.After(time.Second):
		}
		bar := progressbar.NewOptions64(-1, progressbar.OptionSetWriter(stderr), progressbar.OptionSetDescription(title),
			progressbar.OptionSpinnerType(14), progressbar.OptionSetElapsedTime(true), progressbar.OptionClearOnFinish())
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			bar.Add(1)
			select {
			case <-over:
				bar.Finish()
				return
			case <-tick.C:
			}
		}
	}()
	return sync.OnceFunc(func() {
		close(over)
		<-gone
	})
}

// IsTerminal tells whether a person sees what is written.
func IsTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// TerminalWidth is how many letters a line of a terminal has, 0 if w is none.
func TerminalWidth(w io.Writer) int {
	if file, ok := w.(*os.File); ok {
		if width, _, err := term.GetSize(int(file.Fd())); err == nil {
			return width
		}
	}
	return 0
}

// TextWidth is how many letters a line of text may have: those of a terminal, within bounds, or 80.
func TextWidth(w io.Writer) int {
	if width := TerminalWidth(w); width > 0 {
		return min(max(width, 40), 100)
	}
	return 80
}

package cli

import (
	"io"
	"os"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// Progress shows how far a long task is, on a terminal only, once the task has taken a second.
type Progress struct {
	bar   *progressbar.ProgressBar // nil: show nothing
	start time.Time
	shown bool
}

// Progress makes one; bytes says that its numbers are bytes.
func (m *ModelFlags) Progress(title string, bytes bool) *Progress {
	return NewProgress(m.Stderr, title, bytes, m.Quiet)
}

// NewProgress makes one, which shows nothing if quiet.
func NewProgress(stderr io.Writer, title string, bytes, quiet bool) *Progress {
	p := &Progress{start: time.Now()}
	if !quiet && IsTerminal(stderr) {
		p.bar = progressbar.NewOptions64(1, progressbar.OptionSetWriter(stderr), progressbar.OptionSetDescription(title),
			progressbar.OptionShowBytes(bytes), progressbar.OptionShowCount(), progressbar.OptionClearOnFinish(),
			progressbar.OptionThrottle(50*time.Millisecond), progressbar.OptionSetPredictTime(true),
			progressbar.OptionFullWidth())
		p.bar.StartWithoutRender()
	}
	return p
}

// Set sets how much is done.
func (p *Progress) Set(done, total int64) {
	if p.bar != nil && total > 0 && time.Since(p.start) >= time.Second {
		p.bar.ChangeMax64(total)
		p.bar.Set64(done)
		p.shown = true
	}
}

// Done removes the bar.
func (p *Progress) Done() {
	if p.shown {
		p.bar.Finish()
	}
	p.bar, p.shown = nil, false
}

// Spin shows that a task is running whose progress is not known, such as a pass, until stop is called.
func (m *ModelFlags) Spin(title string) (stop func()) {
	if m.Quiet || !IsTerminal(m.Stderr) {
		return func() {}
	}
	made := make(chan *progressbar.ProgressBar, 1)
	late := time.AfterFunc(time.Second, func() {
		bar := progressbar.NewOptions64(-1, progressbar.OptionSetWriter(m.Stderr), progressbar.OptionSetDescription(title),
			progressbar.OptionSpinnerType(14), progressbar.OptionSetElapsedTime(true), progressbar.OptionClearOnFinish())
		bar.RenderBlank() // from here on it turns by itself
		made <- bar
	})
	return sync.OnceFunc(func() {
		if !late.Stop() {
			(<-made).Finish()
		}
	})
}

// IsTerminal tells whether a person sees what is written.
func IsTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

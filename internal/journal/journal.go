// Package journal keeps what a long series of measurements has finished, so that it goes on from
// there after an interruption: a file with a line for the configuration and one for each task
// that is done.
package journal

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"gpt2scope/internal/humanize"
)

// Bounds of a file, in bytes, since it may have been damaged or replaced.
const (
	MaxLine = 1 << 20
	MaxSize = 1 << 30
)

// Journal is the state of an experiment whose tasks give rows R, which JSON can hold. A last line
// that was cut off is dropped.
type Journal[R any] struct {
	file   *os.File
	path   string
	format string
	whole  func(R) bool
	done   map[string]bool
	rows   []R
}

// heading is the first line of a state file.
type heading struct {
	Format        string                     `json:"format"`
	Version       int                        `json:"version"`
	Configuration map[string]json.RawMessage `json:"configuration"`
}

// entry is a later line.
type entry[R any] struct {
	Task string `json:"task"`
	Rows []R    `json:"rows"`
}

// Open creates the directory and the state file in it, or resumes from the file that is there,
// whose format and configuration must be the same. whole tells whether a row that was read is
// complete.
func Open[R any](dir, file, format string, configuration map[string]any, whole func(R) bool) (*Journal[R], error) {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, fmt.Errorf("directory %s cannot be made: %w", dir, humanize.Cause(err))
	}
	head, err := newHeading(format, configuration)
	if err != nil {
		return nil, err
	}
	j := &Journal[R]{path: filepath.Join(dir, file), format: format, whole: whole, done: map[string]bool{}}
	if info, err := os.Stat(j.path); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a file; give another directory", j.path)
	}
	if j.file, err = os.OpenFile(j.path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o666); err != nil {
		return nil, fmt.Errorf("directory %s cannot be written: %w", dir, humanize.Cause(err))
	}
	if err := j.begin(dir, head); err != nil {
		j.file.Close()
		return nil, err
	}
	return j, nil
}

// newHeading makes the first line of a state file.
func newHeading(format string, configuration map[string]any) (heading, error) {
	h := heading{format, 1, map[string]json.RawMessage{}}
	for name, value := range configuration {
		data, err := json.Marshal(value)
		if err != nil {
			return h, fmt.Errorf("%s of the configuration: %w", name, err)
		}
		h.Configuration[name] = data
	}
	return h, nil
}

// begin locks the state file and reads it, or writes its first line.
func (j *Journal[R]) begin(dir string, head heading) error {
	if err := unix.Flock(int(j.file.Fd()), unix.LOCK_EX|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
		return fmt.Errorf("another experiment is writing to directory %s; wait for it, or give another directory", dir)
	}
	// The results are written to new files that replace the old ones: the directory must allow that.
	probe, err := os.CreateTemp(dir, ".journal-*")
	if err != nil {
		return fmt.Errorf("directory %s cannot be written: %w", dir, humanize.Cause(err))
	}
	if err := errors.Join(probe.Close(), os.Remove(probe.Name())); err != nil {
		return fmt.Errorf("directory %s cannot be written: %w", dir, humanize.Cause(err))
	}
	info, err := j.file.Stat()
	switch {
	case err != nil:
		return fmt.Errorf("%s cannot be read: %w", j.path, humanize.Cause(err))
	case info.Size() > MaxSize:
		return j.damaged(fmt.Sprintf("it has %d bytes, more than an experiment writes", info.Size()))
	}
	whole, err := j.read(head)
	if err != nil {
		return err
	}
	if whole < info.Size() { // the last line was cut off
		if err := j.file.Truncate(whole); err != nil {
			return fmt.Errorf("%s cannot be written: %w", j.path, humanize.Cause(err))
		}
	}
	if whole == 0 {
		return j.append(head)
	}
	return nil
}

func (j *Journal[R]) damaged(what string) error {
	return fmt.Errorf("%s is damaged: %s; remove it to begin again, or give another directory", j.path, what)
}

// read reads all whole lines, and returns their bytes.
func (j *Journal[R]) read(head heading) (whole int64, err error) {
	r := bufio.NewReaderSize(j.file, 64<<10)
	for number := 1; ; number++ {
		line, err := readLine(r)
		switch {
		case errors.Is(err, io.EOF):
			return whole, nil
		case errors.Is(err, errLongLine):
			return 0, j.damaged(fmt.Sprintf("line %d is too long", number))
		case err != nil:
			return 0, fmt.Errorf("%s cannot be read: %w", j.path, humanize.Cause(err))
		}
		if number == 1 {
			err = j.sameExperiment(line, head)
		} else {
			err = j.take(line, number)
		}
		if err != nil {
			return 0, err
		}
		whole += int64(len(line)) + 1
	}
}

var errLongLine = errors.New("the line is too long")

// readLine reads a line without its newline; it returns io.EOF if there is no newline.
func readLine(r *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		if line = append(line, part...); len(line) > MaxLine {
			return nil, errLongLine
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return bytes.TrimSuffix(line, []byte("\n")), err
		}
	}
}

// sameExperiment compares the first line with the one expected.
func (j *Journal[R]) sameExperiment(line []byte, want heading) error {
	var have heading
	if err := json.Unmarshal(line, &have); err != nil || have.Format != j.format {
		return j.damaged("its first line is not that of an experiment")
	}
	if have.Version != want.Version {
		return fmt.Errorf("%s has format version %d, and this program reads version %d; give another directory", j.path, have.Version, want.Version)
	}
	var names []string
	for name := range want.Configuration {
		names = append(names, name)
	}
	for name := range have.Configuration {
		if want.Configuration[name] == nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		there, here := compact(have.Configuration[name]), compact(want.Configuration[name])
		if there != here {
			return fmt.Errorf("%s is of another experiment: expected %s %s, found %s; give another directory, or remove the file", j.path, name, here, there)
		}
	}
	return nil
}

// compact writes a value on one line.
func compact(raw json.RawMessage) string {
	if raw == nil {
		return "absent"
	}
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return "damaged"
	}
	return b.String()
}

// take reads the line of a task.
func (j *Journal[R]) take(line []byte, number int) error {
	var e entry[R]
	if err := json.Unmarshal(line, &e); err != nil || e.Task == "" {
		return j.damaged(fmt.Sprintf("line %d is not that of a task", number))
	}
	for _, r := range e.Rows {
		if !j.whole(r) {
			return j.damaged(fmt.Sprintf("line %d has an incomplete value", number))
		}
	}
	if j.done[e.Task] {
		return j.damaged(fmt.Sprintf("line %d repeats a task", number))
	}
	j.done[e.Task] = true
	j.rows = append(j.rows, e.Rows...)
	return nil
}

// Done tells whether a task is finished.
func (j *Journal[R]) Done(task string) bool { return j.done[task] }

// Rows returns the rows of all tasks in the order in which they were done.
func (j *Journal[R]) Rows() []R { return j.rows }

// Add writes a finished task to disk.
func (j *Journal[R]) Add(task string, rows []R) error {
	if rows == nil {
		rows = []R{}
	}
	if err := j.append(entry[R]{task, rows}); err != nil {
		return err
	}
	j.done[task] = true
	j.rows = append(j.rows, rows...)
	return nil
}

// append writes a line and waits until it is on disk.
func (j *Journal[R]) append(v any) error {
	line, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if _, err = j.file.Write(append(line, '\n')); err == nil {
		err = j.file.Sync()
	}
	if err != nil {
		return fmt.Errorf("%s cannot be written: %w", j.path, humanize.Cause(err))
	}
	return nil
}

// Close releases the directory.
func (j *Journal[R]) Close() error {
	return j.file.Close()
}

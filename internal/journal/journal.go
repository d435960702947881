// Package journal keeps what a long series of measurements has finished, so that it goes on from there after an
// interruption: a file with a line for the configuration and one for each task that is done.
package journal

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"gpt2scope/internal/humanize"
)

// Format is that of the state file of a kind of experiment, whose tasks give rows R, which JSON can hold.
type Format[R any] struct {
	File string            // its name in the directory of an experiment
	Name string            // in its first line
	Time func(R) time.Time // when a row was measured; nil if experiments are not merged
}

// Journal is the state of an experiment. A last line that was cut off is dropped.
type Journal[R any] struct {
	Format[R]
	file  *os.File
	path  string
	head  heading
	done  map[string]bool
	tasks []Entry[R] // in the order in which they were done
}

const formatVersion = 1

// heading is the first line of a state file.
type heading struct {
	Format        string                     `json:"format"`
	Version       int                        `json:"version"`
	Configuration map[string]json.RawMessage `json:"configuration"`
}

// Entry is a later line: a task that is done, with its rows.
type Entry[R any] struct {
	Task string `json:"task"`
	Rows []R    `json:"rows"`
}

// Open creates the directory and the state file in it, or resumes from the file that is there, whose format and
// configuration must be the same.
func (f Format[R]) Open(dir string, configuration map[string]any) (j *Journal[R], err error) {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, fmt.Errorf("directory %s cannot be made: %w", dir, humanize.Cause(err))
	}
	want := heading{f.Name, formatVersion, map[string]json.RawMessage{}}
	for name, value := range configuration {
		if want.Configuration[name], err = json.Marshal(value); err != nil {
			return nil, fmt.Errorf("%s of the configuration: %w", name, err)
		}
	}
	if j, err = f.open(dir, os.O_RDWR|os.O_CREATE|os.O_APPEND); err != nil {
		return nil, err
	}
	if err := j.begin(dir, want); err != nil {
		j.file.Close()
		return nil, err
	}
	return j, nil
}

func (f Format[R]) open(dir string, flags int) (j *Journal[R], err error) {
	j = &Journal[R]{Format: f, path: filepath.Join(dir, f.File), done: map[string]bool{}}
	if info, err := os.Stat(j.path); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a file; give another directory", j.path)
	}
	if j.file, err = os.OpenFile(j.path, flags, 0o666); err != nil {
		return nil, fmt.Errorf("%s cannot be opened: %w", j.path, humanize.Cause(err))
	}
	return j, nil
}

// read reads the state file of an experiment that may still be under way, and changes nothing.
func (f Format[R]) read(dir string) (configuration map[string]json.RawMessage, tasks []Entry[R], err error) {
	j, err := f.open(dir, os.O_RDONLY)
	if err != nil {
		return nil, nil, err
	}
	defer j.file.Close()
	whole, err := j.read()
	if err == nil && whole == 0 {
		err = j.damaged("it is empty")
	}
	return j.head.Configuration, j.tasks, err
}

// begin locks the state file and reads it, or writes its first line.
func (j *Journal[R]) begin(dir string, want heading) error {
	if err := unix.Flock(int(j.file.Fd()), unix.LOCK_EX|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
		return fmt.Errorf("another experiment is writing to directory %s; wait for it, or give another directory", dir)
	}
	whole, err := j.read()
	if err != nil {
		return err
	}
	if difference := differ(j.head.Configuration, want.Configuration); whole > 0 && difference != "" {
		return fmt.Errorf("%s is of another experiment: %s; give another directory, or remove the file", j.path, difference)
	}
	// The last line may have been cut off.
	if err := j.file.Truncate(whole); err != nil {
		return fmt.Errorf("%s cannot be written: %w", j.path, humanize.Cause(err))
	}
	if whole == 0 {
		return j.append(want)
	}
	return nil
}

func (j *Journal[R]) damaged(what string) error {
	return fmt.Errorf("%s is damaged: %s; remove it to begin again, or give another directory", j.path, what)
}

// read reads all whole lines, and returns their bytes.
func (j *Journal[R]) read() (whole int64, err error) {
	r := bufio.NewReaderSize(j.file, 64<<10)
	for number := 1; ; number++ {
		line, err := r.ReadBytes('\n')
		switch {
		case errors.Is(err, io.EOF): // a line without its end is dropped
			return whole, nil
		case err != nil:
			return 0, fmt.Errorf("%s cannot be read: %w", j.path, humanize.Cause(err))
		}
		if number == 1 {
			err = j.heading(line)
		} else {
			err = j.take(line, number)
		}
		if err != nil {
			return 0, err
		}
		whole += int64(len(line))
	}
}

func (j *Journal[R]) heading(line []byte) error {
	if err := json.Unmarshal(line, &j.head); err != nil || j.head.Format != j.Name {
		return j.damaged("its first line is not that of an experiment")
	}
	if j.head.Version != formatVersion {
		return fmt.Errorf("%s has format version %d, and this program reads version %d; give another directory", j.path,
			j.head.Version, formatVersion)
	}
	return nil
}

// differ says in what a configuration differs from the expected one, "" if in nothing.
func differ(have, want map[string]json.RawMessage) string {
	names := slices.AppendSeq(slices.Collect(maps.Keys(want)), maps.Keys(have))
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		if there, here := compact(have[name]), compact(want[name]); there != here {
			return fmt.Sprintf("expected %s %s, found %s", name, here, there)
		}
	}
	return ""
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

func (j *Journal[R]) take(line []byte, number int) error {
	var e Entry[R]
	if err := json.Unmarshal(line, &e); err != nil || e.Task == "" {
		return j.damaged(fmt.Sprintf("line %d is not that of a task", number))
	}
	j.done[e.Task] = true
	j.tasks = append(j.tasks, e)
	return nil
}

// Done tells whether a task is finished.
func (j *Journal[R]) Done(task string) bool { return j.done[task] }

// Rows returns the rows of all tasks in the order in which they were done.
func (j *Journal[R]) Rows() (rows []R) {
	for _, e := range j.tasks {
		rows = append(rows, e.Rows...)
	}
	return rows
}

// Add writes a finished task to disk.
func (j *Journal[R]) Add(task string, rows []R) error {
	return j.AddAll([]Entry[R]{{task, rows}})
}

// AddAll writes finished tasks to disk.
func (j *Journal[R]) AddAll(tasks []Entry[R]) error {
	lines := make([]any, len(tasks))
	for i, e := range tasks {
		if e.Rows == nil {
			e.Rows = []R{}
		}
		lines[i] = e
	}
	if err := j.append(lines...); err != nil {
		return err
	}
	for _, e := range tasks {
		j.done[e.Task] = true
		j.tasks = append(j.tasks, e)
	}
	return nil
}

// append writes lines and waits until they are on disk.
func (j *Journal[R]) append(lines ...any) error {
	var text []byte
	for _, v := range lines {
		line, err := json.Marshal(v)
		if err != nil {
			return err
		}
		text = append(append(text, line...), '\n')
	}
	_, err := j.file.Write(text)
	if err == nil {
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

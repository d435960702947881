package auto

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// recordVersion is the version of what a line of the file means. Others are skipped without a
// word: they are of another version of the program.
const recordVersion = 1

// Bounds of the file.
const (
	maxRecords = 120     // that are kept, the newest
	maxBytes   = 1 << 18 // above which a file is not ours
	trimBytes  = 1 << 15 // above which a file is trimmed when a record is added
	maxName    = 200
	maxMs      = 1e8 // of a part, above a day
)

// How often, and after how long, the lock is tried again: another program holds it for a millisecond.
const (
	lockTries = 20
	lockWait  = 2 * time.Millisecond
)

// Record is what one run measured of itself: a line of the file.
type Record struct {
	Version int     `json:"v"`
	Time    int64   `json:"time"`           // Unix, of the end
	Boot    string  `json:"boot,omitempty"` // names the time since the machine started; "" is not known
	GPU     bool    `json:"gpu,omitempty"`
	Device  string  `json:"device"` // [Device.Name]
	DType   string  `json:"dtype"`
	First   bool    `json:"first,omitempty"`  // the GPU was not used since the machine started, as far as is known
	Waited  float64 `json:"waited,omitempty"` // see [Waited]: the machine was busy

	Ceilings string `json:"ceilings"` // names those of the floors in Work
	Work     Work   `json:"work"`
	Times    Times  `json:"times"` // End is not measured
}

func (r *Record) at() time.Time { return time.Unix(r.Time, 0) }

// NewRecord makes the record of a run that ended on a device.
func NewRecord(d *Device, w Work, t Times, now time.Time) Record {
	return Record{Version: recordVersion, Time: now.Unix(), GPU: d.GPU, Device: d.Name, DType: d.DType, Ceilings: d.ceilings(), Work: w, Times: t}
}

// of tells whether a record is of a device. A GPU whose name is not known may be any.
func (r *Record) of(d *Device) bool {
	return r.GPU == d.GPU && (r.Device == d.Name || d.GPU && d.Name == "")
}

// check finds values that no run gives.
func (r *Record) check(now time.Time) error {
	switch {
	case r.Time <= 0 || r.at().After(now.Add(24*time.Hour)):
		return fmt.Errorf("a run at %d", r.Time)
	case r.Device == "" || len(r.Device) > maxName || len(r.DType) > maxName || len(r.Boot) > maxName || len(r.Ceilings) > maxName:
		return errors.New("a run whose device has no name, or too long a one")
	case !(r.Waited >= 0 && r.Waited <= 1):
		return fmt.Errorf("a run that waited %g of its time", r.Waited)
	case r.Work.Weights < 0 || r.Work.Weights > 1<<50:
		return fmt.Errorf("a run with weights of %d bytes", r.Work.Weights)
	}
	for _, p := range []Part{r.Work.Prefill, r.Work.Decode} {
		if p.Passes < 0 || p.Steps < 0 || p.Steps < p.Passes || !(p.FloorUs >= 0 && p.FloorUs < 1e3*maxMs) {
			return fmt.Errorf("a run of %d passes, %d steps, with a floor of %g us", p.Passes, p.Steps, p.FloorUs)
		}
	}
	for _, ms := range r.Times.parts() {
		if !(*ms >= 0 && *ms < maxMs) || math.IsInf(*ms, 0) {
			return fmt.Errorf("a run of %g ms", *ms)
		}
	}
	return nil
}

// History is what earlier runs took, oldest first, and where it is kept.
type History struct {
	Records []Record
	Boot    string // of the machine now: see [Record]

	path    string
	damaged bool // the file has lines that do not count
}

// New returns a history whose file is not read: runs can be added to it. Without a path nothing
// is kept.
func New(path string) *History { return &History{Boot: boot(), path: path} }

// usedSince tells whether a GPU was used since the machine started. If that is not known, it was
// if it ever was.
func (h *History) usedSince(d *Device) bool {
	for i := range h.Records {
		if r := &h.Records[i]; r.of(d) && (r.Boot == h.Boot || r.Boot == "" || h.Boot == "") {
			return true
		}
	}
	return false
}

// Path returns the path of the file in the user's cache folder.
func Path() (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("there is no cache folder to keep the times of runs in: %w", err)
	}
	return filepath.Join(dir, "gpt2scope", "history.jsonl"), nil
}

// Read reads the file at a path. What can be used of it is in the history in any case; an error,
// of one line, says what cannot, and what to do. There need be no file.
func Read(path string, now time.Time) (*History, error) {
	h := New(path)
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe would wait for its writer
	if errors.Is(err, os.ErrNotExist) {
		return h, nil
	}
	unread := func(err error) error {
		return fmt.Errorf("the times of earlier runs do not count, since they cannot be read (--no-history does not try): %w", err)
	}
	if err != nil {
		return h, unread(err)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil {
		return h, unread(err)
	} else if !info.Mode().IsRegular() {
		return h, unread(fmt.Errorf("%s is not a file", path))
	}
	data, err := io.ReadAll(io.LimitReader(f, maxBytes+1))
	if err != nil {
		return h, unread(err)
	}
	if len(data) > maxBytes {
		h.damaged = true
		return h, fmt.Errorf("the times of earlier runs do not count: %s is larger than %d bytes, which this program does not write; the end of this run replaces it", path, maxBytes)
	}
	records, bad, why := parse(data, now)
	if h.Records, h.damaged = records, bad > 0; h.damaged {
		lines := fmt.Sprintf("%d lines", bad)
		if bad == 1 {
			lines = "a line"
		}
		return h, fmt.Errorf("%s of %s cannot be right (%w) and will be dropped; the other runs count", lines, path, why)
	}
	return h, nil
}

// parse returns the records of a file, how many lines are wrong, and what is wrong with the first
// of them.
func parse(data []byte, now time.Time) (records []Record, bad int, why error) {
	for line := range bytes.Lines(data) {
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		var r Record
		err := json.Unmarshal(line, &r)
		switch {
		case r.Version > recordVersion:
			continue
		case err != nil:
			err = errors.New("not a record")
		case r.Version < 1:
			err = errors.New("without a version")
		default:
			err = r.check(now)
		}
		if err != nil {
			if bad++; why == nil {
				why = err
			}
			continue
		}
		records = append(records, r)
	}
	return records[max(0, len(records)-maxRecords):], bad, why
}

// Add adds a record to the file and fills in its version, boot and first use of a GPU. The
// file is replaced as a whole, under a lock, so that programs may run at the same time and one that
// reads never finds half a line. Of a file that is long, or has lines that do not count, the newest
// records are kept. If another program goes on holding the lock, nothing is added.
func (h *History) Add(r Record) error {
	if h.path == "" {
		return nil
	}
	r.Version, r.Boot = recordVersion, h.Boot
	r.First = r.GPU && !h.usedSince(&Device{GPU: true, Name: r.Device})
	failed := func(err error) error { return fmt.Errorf("the times of this run are not kept: %w", err) }
	if err := r.check(time.Unix(r.Time, 0)); err != nil {
		return failed(fmt.Errorf("%w cannot be right", err))
	}
	line, err := json.Marshal(r)
	if err != nil {
		return failed(err)
	}
	if err := h.write(append(line, '\n'), r.at()); err != nil {
		return failed(fmt.Errorf("%w (--no-history keeps none)", err))
	}
	return nil
}

// write adds a line.
func (h *History) write(line []byte, now time.Time) error {
	if err := os.MkdirAll(filepath.Dir(h.path), 0o755); err != nil {
		return err
	}
	lock, err := os.OpenFile(h.path+".lock", os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o644)
	if err != nil {
		return err
	}
	defer lock.Close()
	for try := 0; ; try++ {
		err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			break
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			return err
		}
		if try == lockTries {
			return nil // the times of one run are not worth a longer wait
		}
		time.Sleep(lockWait)
	}
	kept, err := h.kept(now)
	if err != nil {
		return err
	}
	return replace(h.path, append(kept, line...))
}

// kept returns what stays of the file when a line is added.
func (h *History) kept(now time.Time) ([]byte, error) {
	f, err := os.OpenFile(h.path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil {
		return nil, err
	} else if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a file", h.path)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxBytes))
	if err != nil {
		return nil, err
	}
	whole := len(data) == 0 || data[len(data)-1] == '\n'
	if !h.damaged && len(data) <= trimBytes && whole {
		return data, nil
	}
	records, _, _ := parse(data, now)
	var kept bytes.Buffer
	e := json.NewEncoder(&kept)
	for _, r := range records[max(0, len(records)-maxRecords/2):] {
		if err := e.Encode(r); err != nil {
			return nil, err
		}
	}
	return kept.Bytes(), nil
}

// replace puts a file in the place of the one at a path, if there is one.
func replace(path string, data []byte) error {
	t, err := os.CreateTemp(filepath.Dir(path), ".history-*")
	if err != nil {
		return err
	}
	_, err = t.Write(data)
	if err = errors.Join(err, t.Close()); err == nil {
		err = os.Rename(t.Name(), path)
	}
	if err != nil {
		os.Remove(t.Name())
	}
	return err
}

// boot names the time since the machine started; "" where that is not known.
func boot() string {
	data, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	id, _, _ := strings.Cut(string(data), "-")
	return strings.TrimSpace(id)
}

package auto

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// recordVersion is the version of what a line of the file means. Others are skipped without a word: they are of another
// version of the program.
const recordVersion = 2

// Bounds of the file.
const (
	maxRecords = 120     // that are kept, the newest
	maxBytes   = 1 << 18 // above which a file is not ours
	maxName    = 200
	maxMs      = 1e8 // of a part, above a day
)

// Record is what one run measured of itself: a line of the file.
type Record struct {
	Version  int     `json:"v"`
	Time     int64   `json:"time"`           // Unix, of the end
	Boot     string  `json:"boot,omitempty"` // names the time since the machine started; "" is not known
	GPU      bool    `json:"gpu,omitempty"`
	Device   string  `json:"device"` // [Device.Name]
	DType    string  `json:"dtype"`
	First    bool    `json:"first,omitempty"`  // the GPU was not used since the machine started, as far as is known
	Waited   float64 `json:"waited,omitempty"` // see [Waited]: the machine was busy
	Ceilings string  `json:"ceilings"`         // names those that predictions are made of
	BLAS     bool    `json:"blas,omitempty"`
	OnHost   bool    `json:"on_host,omitempty"`

	Open    Ratio `json:"open"` // see [Times]
	Load    Ratio `json:"load"`
	Prefill Ratio `json:"prefill"`
	Decode  Ratio `json:"decode"`
}

func (r *Record) parts() [parts]*Ratio { return [parts]*Ratio{&r.Open, &r.Load, &r.Prefill, &r.Decode} }

// Ratio is how long a part of a run took, and how long it was expected to take without a history; 0 is not known.
type Ratio struct {
	Measured  float64 `json:"measured_ms"`
	Predicted float64 `json:"predicted_ms"`
}

func (r *Record) at() time.Time { return time.Unix(r.Time, 0) }

// newRecord makes the record of a run on a device.
func newRecord(d *Device, w Work, t Times, first bool, now time.Time) Record {
	r := Record{Version: recordVersion, Time: now.Unix(), GPU: d.GPU, Device: d.Name, DType: d.DType, First: first,
		Ceilings: d.ceilings(), BLAS: w.BLAS, OnHost: w.OnHost}
	predicted := d.table().time(w, first)
	for k, p := range r.parts() {
		*p = Ratio{*t.parts()[k], *predicted.parts()[k]}
	}
	return r
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
	case r.Device == "" || max(len(r.Device), len(r.DType), len(r.Boot), len(r.Ceilings)) > maxName:
		return errors.New("a run whose device has no name, or too long a one")
	case !(r.Waited >= 0 && r.Waited <= 1):
		return fmt.Errorf("a run that waited %g of its time", r.Waited)
	}
	for _, p := range r.parts() {
		for _, ms := range []float64{p.Measured, p.Predicted} {
			if !(ms >= 0 && ms < maxMs) {
				return fmt.Errorf("a run of %g ms", ms)
			}
		}
	}
	return nil
}

// History is what earlier runs took, oldest first, and where it is kept.
type History struct {
	Records []Record
	Boot    string // of the machine now: see [Record]

	path string
}

// New returns a history whose file is not read: runs can be added to it. Without a path nothing is kept.
func New(path string) *History { return &History{Boot: boot(), path: path} }

// usedSince tells whether a GPU was used since the machine started. If that is not known, it was if it ever was.
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

// Read reads the file at a path. What can be used of it is in the history in any case; an error, of one line, says what
// cannot, and what to do. There need be no file.
func Read(path string, now time.Time) (*History, error) {
	h := New(path)
	data, err := readFile(path)
	if err != nil {
		return h, fmt.Errorf("the times of earlier runs do not count, since they cannot be read (--no-history does not try): %w", err)
	}
	if len(data) > maxBytes {
		return h, fmt.Errorf("the times of earlier runs do not count: %s is larger than %d bytes, which this program does not write; the end of this run replaces it", path, maxBytes)
	}
	records, bad, why := parse(data, now)
	if h.Records = records; bad > 0 {
		lines := fmt.Sprintf("%d lines", bad)
		if bad == 1 {
			lines = "a line"
		}
		return h, fmt.Errorf("%s of %s cannot be right (%w) and will be dropped; the other runs count", lines, path, why)
	}
	return h, nil
}

// readFile returns what is in a file, but at most a byte more than it may have; nothing if there is none.
func readFile(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe would wait for its writer
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
		return nil, fmt.Errorf("%s is not a file", path)
	}
	return io.ReadAll(io.LimitReader(f, maxBytes+1))
}

// parse returns the records of a file, how many lines are wrong, and what is wrong with the first of them.
func parse(data []byte, now time.Time) (records []Record, bad int, why error) {
	for line := range bytes.Lines(data) {
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		var r Record
		err := json.Unmarshal(line, &r)
		switch {
		case r.Version > 0 && r.Version != recordVersion:
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

// Add adds a run on a device to the file, with what it measured of its parts and the share of its time that it waited
// for a processor. The file is replaced as a whole, so that a program that reads never finds half a line. Of two programs
// that end at the same moment one record may get lost. Lines that do not count and the oldest records go.
func (h *History) Add(d *Device, w Work, t Times, waited float64, now time.Time) error {
	if h.path == "" {
		return nil
	}
	r := newRecord(d, w, t, d.GPU && !h.usedSince(d), now)
	r.Boot, r.Waited = h.Boot, waited
	failed := func(err error) error { return fmt.Errorf("the times of this run are not kept: %w", err) }
	if err := r.check(now); err != nil {
		return failed(fmt.Errorf("%w cannot be right", err))
	}
	if err := h.write(r, now); err != nil {
		return failed(fmt.Errorf("%w (--no-history keeps none)", err))
	}
	return nil
}

// write adds a record to those of the file that count.
func (h *History) write(r Record, now time.Time) error {
	if err := os.MkdirAll(filepath.Dir(h.path), 0o755); err != nil {
		return err
	}
	data, err := readFile(h.path)
	if err != nil {
		return err
	}
	records, _, _ := parse(data[:min(len(data), maxBytes)], now)
	var kept bytes.Buffer
	e := json.NewEncoder(&kept)
	for _, r := range append(records[max(0, len(records)-maxRecords+1):], r) {
		if err := e.Encode(r); err != nil {
			return err
		}
	}
	return replace(h.path, kept.Bytes())
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

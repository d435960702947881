package auto

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"gpt2scope/internal/files"
)

// recordVersion is the version of what a line of the file means. Others are skipped without a word: they are of another
// version of the program.
const recordVersion = 4

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
	Time     int64   `json:"time"` // Unix, of the end
	GPU      bool    `json:"gpu,omitempty"`
	Device   string  `json:"device"` // [Device.Name]
	DType    string  `json:"dtype"`
	Waited   float64 `json:"waited,omitempty"` // see [Waited]: the machine was busy
	Ceilings string  `json:"ceilings"`         // names those that predictions are made of
	BLAS     bool    `json:"blas,omitempty"`
	OnHost   bool    `json:"on_host,omitempty"`

	Measured  Times `json:"measured"`  // 0 is not known
	Predicted Times `json:"predicted"` // without a history
}

func (r *Record) at() time.Time { return time.Unix(r.Time, 0) }

func newRecord(d *Device, w Work, t Times, now time.Time) Record {
	return Record{Version: recordVersion, Time: now.Unix(), GPU: d.GPU, Device: d.Name, DType: d.DType,
		Ceilings: d.ceilings(), BLAS: w.BLAS, OnHost: w.OnHost, Measured: t, Predicted: d.table().time(w)}
}

// of tells whether a record is of a device. A GPU whose name is not known may be any.
func (r *Record) of(d *Device) bool {
	return r.GPU == d.GPU && (r.Device == d.Name || d.GPU && d.Name == "")
}

// possible tells whether a run can give such values.
func (r *Record) possible(now time.Time) bool {
	for k, measured := range r.Measured.parts() {
		for _, ms := range []float64{*measured, *r.Predicted.parts()[k]} {
			if !(ms >= 0 && ms < maxMs) {
				return false
			}
		}
	}
	return r.Time > 0 && !r.at().After(now.Add(24*time.Hour)) && r.Device != "" && r.Waited >= 0 && r.Waited <= 1 &&
		max(len(r.Device), len(r.DType), len(r.Ceilings)) <= maxName
}

// History is what earlier runs took, oldest first, and where it is kept.
type History struct {
	Records []Record
	path    string
}

// New returns a history whose file is not read: runs can be added to it. Without a path nothing is kept.
func New(path string) *History { return &History{path: path} }

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
	data, err := files.Read(path, maxBytes)
	if errors.Is(err, os.ErrNotExist) {
		return h, nil
	}
	if err != nil {
		return h, fmt.Errorf("the times of earlier runs do not count (--no-history does not try): %w", err)
	}
	var wrong bool
	if h.Records, wrong = parse(data, now); wrong {
		err = fmt.Errorf("lines of %s cannot be right and will be dropped; the other runs count", path)
	}
	return h, err
}

// parse returns the records of a file, and whether lines cannot be right.
func parse(data []byte, now time.Time) (records []Record, wrong bool) {
	for line := range bytes.Lines(data) {
		var r Record
		err := json.Unmarshal(line, &r)
		switch {
		case len(bytes.TrimSpace(line)) == 0 || r.Version > 0 && r.Version != recordVersion:
		case err == nil && r.Version == recordVersion && r.possible(now):
			records = append(records, r)
		default:
			wrong = true
		}
	}
	return records[max(0, len(records)-maxRecords):], wrong
}

// Add adds a run on a device to the file, with what it measured of its parts and the share of its time that it waited
// for a processor. The file is replaced as a whole, so that a program that reads never finds half a line. Of two
// programs that end at the same moment one record may get lost. Lines that do not count and the oldest records go.
func (h *History) Add(d *Device, w Work, t Times, waited float64, now time.Time) error {
	if h.path == "" {
		return nil
	}
	r := newRecord(d, w, t, now)
	r.Waited = waited
	err := errors.New("they cannot be right")
	if r.possible(now) {
		err = h.write(r, now)
	}
	if err != nil {
		return fmt.Errorf("the times of this run are not kept (--no-history keeps none): %w", err)
	}
	return nil
}

// write adds a record to those of the file that count.
func (h *History) write(r Record, now time.Time) error {
	if err := os.MkdirAll(filepath.Dir(h.path), 0o755); err != nil {
		return err
	}
	data, err := files.Read(h.path, maxBytes)
	if err != nil && len(data) <= maxBytes && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	records, _ := parse(data, now)
	var kept bytes.Buffer
	e := json.NewEncoder(&kept)
	for _, r := range append(records[max(0, len(records)-maxRecords+1):], r) {
		if err := e.Encode(r); err != nil {
			return err
		}
	}
	temporary := fmt.Sprintf("%s.%d", h.path, os.Getpid())
	if err = os.WriteFile(temporary, kept.Bytes(), 0o600); err == nil {
		err = os.Rename(temporary, h.path)
	}
	if err != nil {
		os.Remove(temporary)
	}
	return err
}

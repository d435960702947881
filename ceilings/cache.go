package ceilings

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"gpt2scope/internal/files"
	"gpt2scope/weights"
)

// cacheVersion is the version of the file's format, of which values are measured and how. A
// file of another version is not used.
const cacheVersion = 6

// cacheFile is the format of the file.
type cacheFile struct {
	Version int   `json:"version"`
	Sets    []Set `json:"sets"`
}

// Bounds of the file, since it may have been damaged or replaced.
const (
	maxCacheBytes = 1 << 20
	maxSets       = 200
	maxValues     = 64
)

// CachePath returns the path of the file that [Store] writes.
func CachePath() (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("there is no cache folder to store ceilings in: %w", err)
	}
	return filepath.Join(dir, "gpt2scope", "ceilings.json"), nil
}

// Load returns the stored set of a key, and whether there is one. An error says why the file cannot be used; the next
// [Store] replaces it.
func Load(key string) (Set, bool, error) {
	sets, _, err := readCache()
	i := slices.IndexFunc(sets, func(s Set) bool { return s.Key == key })
	if i < 0 {
		return Set{}, false, err
	}
	return sets[i], true, nil
}

// Newest returns the set of a device that was stored last, whatever versions ran on it, for predictions that must not
// open the device to ask for them. ok is false if there is none, or if the file cannot be used.
func Newest(device string) (set Set, ok bool) {
	sets, _, _ := readCache()
	for _, s := range sets {
		if s.Device == device && (!ok || s.Time.After(set.Time)) {
			set, ok = s, true
		}
	}
	return set, ok
}

// Store keeps sets in the file. A set replaces the stored one of the same key if it is at least as
// sure; if not, its better values go into the stored one, since what a device did once it can do.
// Store refuses a set that no measurement gives.
func Store(ctx context.Context, sets ...Set) error {
	old, path, err := readCache()
	if path == "" { // else what cannot be read is replaced
		return err
	}
	for _, s := range sets {
		if err := s.check(); err != nil {
			return fmt.Errorf("ceilings are not stored, since they cannot be right: %w", err)
		}
		if i := slices.IndexFunc(old, func(o Set) bool { return o.Key == s.Key }); i >= 0 {
			if kept := old[i]; kept.Uncertainty < s.Uncertainty {
				kept.Raise(s)
				s = kept
			}
			old = slices.Delete(old, i, i+1)
		}
		old = slices.Insert(old, 0, s)
	}
	old = old[:min(len(old), maxSets)]
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("ceilings cannot be stored: %w", err)
	}
	return weights.WriteFile(ctx, path, func(w io.Writer) error {
		e := json.NewEncoder(w)
		e.SetIndent("", " ")
		return e.Encode(cacheFile{cacheVersion, old})
	})
}

// readCache reads the file, and returns its path. It returns nothing else if there is no file.
func readCache() (_ []Set, path string, err error) {
	if path, err = CachePath(); err != nil {
		return nil, "", err
	}
	data, err := files.Read(path, maxCacheBytes)
	if errors.Is(err, os.ErrNotExist) {
		return nil, path, nil
	}
	if err != nil {
		return nil, path, fmt.Errorf("the stored ceilings cannot be read: %w", err)
	}
	var c cacheFile
	if err := json.Unmarshal(data, &c); err != nil {
		return nil, path, fmt.Errorf("the stored ceilings are not used: %s is damaged (%v)", path, err)
	}
	if c.Version != cacheVersion {
		return nil, path, fmt.Errorf("the stored ceilings are not used: %s is of version %d, and this program measures and "+
			"reads version %d", path, c.Version, cacheVersion)
	}
	for _, s := range c.Sets {
		if err := s.check(); err != nil {
			return nil, path, fmt.Errorf("the stored ceilings are not used: %s is damaged (%v)", path, err)
		}
	}
	return c.Sets, path, nil
}

// check finds values that no measurement gives.
func (s Set) check() error {
	if s.Key == "" || len(s.Values) == 0 || len(s.Values) > maxValues || !(s.Uncertainty >= 0 && s.Uncertainty < 1) ||
		s.Time.IsZero() || s.Time.After(time.Now().Add(24*time.Hour)) {
		return fmt.Errorf("set %q has %d values, is uncertain by %g and was measured at %s", s.Key, len(s.Values),
			s.Uncertainty, s.Time.Format(time.RFC3339))
	}
	for _, v := range s.Values {
		rates := v.Unit == GBs || v.Unit == TFLOPs
		if v.Name == "" || v.Size < 0 || !rates && v.Unit != Micro || !(v.Value >= 0 && v.Value < 1e9) ||
			rates && v.Value == 0 {
			return fmt.Errorf("%s is %g %s", v.Name, v.Value, v.Unit)
		}
	}
	return nil
}

package ceilings

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"gpt2scope/weights"
)

// cacheVersion is that of the file, and of how values are measured: a file of another
// is not used.
const cacheVersion = 2

// cacheFile is the format of the file.
type cacheFile struct {
	Version int   `json:"version"`
	Sets    []Set `json:"sets"`
}

// Bounds of the file, which may be anything.
const (
	maxCacheBytes = 1 << 20
	maxSets       = 200
	maxValues     = 64
)

// CachePath returns the path of the file.
func CachePath() (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("there is no folder for the file of ceilings: %w", err)
	}
	return filepath.Join(dir, "gpt2scope", "ceilings.json"), nil
}

// Load finds what was measured of a device before, by its key. It is not found where
// nothing was stored. An error is for a person to read: what the file holds cannot be
// used, and is replaced by the next [Store].
func Load(key string) (Set, bool, error) {
	path, err := CachePath()
	if err != nil {
		return Set{}, false, err
	}
	sets, err := readCache(path)
	if err != nil {
		return Set{}, false, err
	}
	for _, s := range sets {
		if s.Key == key {
			return s, true, nil
		}
	}
	return Set{}, false, nil
}

// Store keeps a set, in the place of an earlier one of the same key.
func Store(ctx context.Context, s Set) error {
	path, err := CachePath()
	if err != nil {
		return err
	}
	if s.Disturbed != "" {
		return fmt.Errorf("ceilings are not stored, since they may be too low: %s", s.Disturbed)
	}
	if err := s.check(); err != nil {
		return fmt.Errorf("ceilings are not stored, since they cannot be right: %w", err)
	}
	old, _ := readCache(path) // what cannot be read is replaced
	sets := []Set{s}
	for _, o := range old {
		if o.Key != s.Key && len(sets) < maxSets {
			sets = append(sets, o)
		}
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("ceilings cannot be stored: %w", err)
	}
	return weights.WriteFile(ctx, path, func(w io.Writer) error {
		e := json.NewEncoder(w)
		e.SetIndent("", " ")
		return e.Encode(cacheFile{cacheVersion, sets})
	})
}

// readCache reads the file; nothing where there is none.
func readCache(path string) ([]Set, error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("the stored ceilings cannot be read: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxCacheBytes+1))
	if err != nil {
		return nil, fmt.Errorf("the stored ceilings cannot be read: %w", err)
	}
	var c cacheFile
	if len(data) > maxCacheBytes {
		return nil, fmt.Errorf("the stored ceilings are not used: %s is larger than %d bytes", path, maxCacheBytes)
	}
	if err := json.Unmarshal(data, &c); err != nil {
		return nil, fmt.Errorf("the stored ceilings are not used: %s is damaged (%v)", path, err)
	}
	if c.Version != cacheVersion {
		return nil, fmt.Errorf("the stored ceilings are not used: %s is of version %d, and this program measures and reads version %d", path, c.Version, cacheVersion)
	}
	for _, s := range c.Sets {
		if err := s.check(); err != nil {
			return nil, fmt.Errorf("the stored ceilings are not used: %s is damaged (%v)", path, err)
		}
	}
	return c.Sets, nil
}

// check finds values that no measurement gives.
func (s Set) check() error {
	if s.Key == "" {
		return errors.New("a set has no key")
	}
	if len(s.Values) == 0 || len(s.Values) > maxValues {
		return fmt.Errorf("set %q has %d values; want 1 to %d", s.Key, len(s.Values), maxValues)
	}
	if s.Time.IsZero() || s.Time.After(time.Now().Add(24*time.Hour)) {
		return fmt.Errorf("set %q was measured at %s, which cannot be", s.Key, s.Time.Format(time.RFC3339))
	}
	for _, v := range s.Values {
		rates := v.Unit == GBs || v.Unit == TFLOPs
		if v.Name == "" || v.Size < 0 || !rates && v.Unit != Micro || !(v.Value >= 0 && v.Value < 1e9) || rates && v.Value == 0 {
			return fmt.Errorf("%s is %g %s", v.Name, v.Value, v.Unit)
		}
		if !(v.P10 >= 0 && v.P90 < 1e9) {
			return fmt.Errorf("%s spreads from %g to %g", v.Name, v.P10, v.P90)
		}
	}
	return nil
}

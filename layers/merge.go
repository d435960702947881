package layers

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gpt2scope/internal/humanize"
	"gpt2scope/internal/journal"
)

// ResultFile is the file in an experiment's directory that holds its [Result].
const ResultFile = "layers.json"

// Merged is an experiment whose parts were measured apart, by "infer layers --shard".
type Merged struct {
	Configuration map[string]any // that of the whole experiment
	Rows          []Row          // in the order of their times

	tasks    []journal.Entry[Row]
	computed Computed
	notes    []string
}

// Merge puts parts of one experiment together, from their directories. A task that several parts hold with the same
// values counts once; what is computed, floors among it, is that of the first part.
func Merge(dirs []string) (*Merged, error) {
	m := &Merged{Configuration: map[string]any{}}
	var parts []journal.Part[Row]
	for i, dir := range dirs {
		p, err := state.ReadPart(dir)
		if err != nil {
			return nil, err
		}
		r, err := readResult(filepath.Join(dir, ResultFile))
		if err != nil {
			return nil, err
		}
		c := *r.Computed
		if i == 0 {
			m.computed = c
		}
		parts = append(parts, p)
		c.Shard = p.Shard
		known := c.Summarize(rows(p.Tasks)).Notes
		for _, note := range r.Notes { // of how it was measured: others follow from the values
			if strings.HasPrefix(note, notAll) {
				note = dir + ": " + note
			}
			if !slices.Contains(known, note) && !slices.Contains(m.notes, note) {
				m.notes = append(m.notes, note)
			}
		}
	}
	tasks, missing, err := state.Merge(parts)
	if err != nil {
		return nil, err
	}
	for name, value := range parts[0].Configuration {
		m.Configuration[name] = value
	}
	if len(missing) > 0 {
		m.notes = append(m.notes, fmt.Sprintf("%s: there is no part %s; 'infer layers --shard' measures it.", notAll,
			strings.Join(missing, ", ")))
	}
	m.tasks, m.Rows = tasks, rows(tasks)
	return m, nil
}

// rows are those of tasks.
func rows(tasks []journal.Entry[Row]) (all []Row) {
	for _, t := range tasks {
		all = append(all, t.Rows...)
	}
	return all
}

// readResult reads layers.json.
func readResult(path string) (*Result, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("%s cannot be read: %w", path, humanize.Cause(err))
	}
	var r Result
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, fmt.Errorf("%s is damaged: %w", path, err)
	}
	if r.Version != resultVersion {
		return nil, fmt.Errorf("%s has format version %d, and this program reads version %d", path, r.Version, resultVersion)
	}
	if r.Computed == nil {
		return nil, fmt.Errorf("%s is damaged: it has nothing that was computed", path)
	}
	r.Computed.Variants, r.Computed.Predicted = r.Variants, r.Predicted
	return &r, nil
}

// Result summarises all parts.
func (m *Merged) Result() *Result {
	r := m.computed.Summarize(m.Rows)
	r.Configuration = m.Configuration
	r.Notes = append(r.Notes, m.notes...)
	return r
}

// Save writes a state file into a directory, so that the experiment can go on there.
func (m *Merged) Save(dir string) error { return state.Save(dir, m.Configuration, m.tasks) }

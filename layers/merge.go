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

// Merge puts parts of one experiment together, which "infer layers --shard" measured, from their directories. It saves
// the state of the whole in another one, where the experiment can go on, and returns its result and its rows in the
// order of their times. A task that several parts hold with the same values counts once; what is computed, floors among
// it, is that of the first part.
func Merge(dirs []string, to string) (*Result, []Row, error) {
	var parts []journal.Part[Row]
	var first Computed
	var notes []string
	for i, dir := range dirs {
		p, err := State.ReadPart(dir)
		if err != nil {
			return nil, nil, err
		}
		r, err := readResult(filepath.Join(dir, ResultFile))
		if err != nil {
			return nil, nil, err
		}
		c := *r.Computed
		if i == 0 {
			first = c
		}
		parts = append(parts, p)
		c.Shard = p.Shard
		known := c.Summarize(rows(p.Tasks)).Notes
		for _, note := range r.Notes { // of how it was measured: others follow from the values
			if strings.HasPrefix(note, notAll) {
				note = dir + ": " + note
			}
			if !slices.Contains(known, note) && !slices.Contains(notes, note) {
				notes = append(notes, note)
			}
		}
	}
	tasks, missing, err := State.Merge(parts)
	if err != nil {
		return nil, nil, err
	}
	if len(missing) > 0 {
		notes = append(notes, fmt.Sprintf("%s: there is no part %s; 'infer layers --shard' measures it.", notAll,
			strings.Join(missing, ", ")))
	}
	all := rows(tasks)
	r := first.Summarize(all)
	r.Configuration, r.Notes = map[string]any{}, append(r.Notes, notes...)
	for name, value := range parts[0].Configuration {
		r.Configuration[name] = value
	}
	return r, all, State.Save(to, r.Configuration, tasks)
}

// rows are those of tasks.
func rows(tasks []journal.Entry[Row]) (all []Row) {
	for _, t := range tasks {
		all = append(all, t.Rows...)
	}
	return all
}

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

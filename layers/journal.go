package layers

import (
	"math"
	"time"

	"gpt2scope/internal/journal"
)

// StateFile is the file in an experiment's directory from which it resumes.
const StateFile = "layers.state"

// Journal is the state of an experiment: its configuration, and the rows of each finished task.
type Journal struct{ *journal.Journal[Row] }

// OpenJournal creates the directory and its state file, or resumes from the file that is
// there, whose configuration must be the same.
func OpenJournal(dir string, configuration map[string]any) (*Journal, error) {
	j, err := journal.Open(dir, StateFile, stateFormat, configuration, wholeRow)
	if err != nil {
		return nil, err
	}
	return &Journal{j}, nil
}

const stateFormat = "gpt2scope layers"

// wholeRow tells whether a row that was read is complete.
func wholeRow(r Row) bool {
	return r.Metric != "" && len(r.Order) > 0 && r.Repeat >= 1 && !math.IsNaN(r.Value.Value)
}

// Done tells whether a task is finished.
func (j *Journal) Done(t Task) bool { return j.Journal.Done(t.Key()) }

// Add writes a finished task to disk.
func (j *Journal) Add(t Task, values []Value) error {
	return j.AddAll([]journal.Entry[Row]{entryOf(t, values)})
}

// entryOf makes rows of a task that ended now.
func entryOf(t Task, values []Value) journal.Entry[Row] {
	e := journal.Entry[Row]{Task: t.Key()}
	now := time.Now().UTC()
	for _, v := range values {
		if math.IsNaN(v.Value) || math.IsInf(v.Value, 0) {
			continue // JSON cannot hold it
		}
		e.Rows = append(e.Rows, Row{Variant: t.Variant.Label, Kind: t.Variant.Kind, Order: t.Variant.Order, Repeat: t.Repeat, Time: now, Value: v})
	}
	return e
}

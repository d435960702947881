package layers

import (
	"math"
	"time"

	"gpt2scope/internal/journal"
)

// StateFile is the file in an experiment's directory from which it resumes.
const StateFile = "layers.state"

// state is its format.
var state = journal.Format[Row]{File: StateFile, Name: "gpt2scope layers",
	Time: func(r Row) time.Time { return r.Time },
	Whole: func(r Row) bool {
		return r.Metric != "" && len(r.Order) > 0 && r.Repeat >= 1 && !math.IsNaN(r.Value.Value)
	}}

// Journal is the state of an experiment: its configuration, and the rows of each finished task.
type Journal struct{ *journal.Journal[Row] }

// OpenJournal creates the directory and its state file, or resumes from the file that is there, whose configuration
// must be the same.
func OpenJournal(dir string, configuration map[string]any) (*Journal, error) {
	j, err := state.Open(dir, configuration)
	return &Journal{j}, err
}

// Done tells whether a task is finished.
func (j *Journal) Done(t Task) bool { return j.Journal.Done(t.Key()) }

// Add writes a finished task to disk.
func (j *Journal) Add(t Task, values []Value) error { return j.Journal.Add(t.Key(), rowsOf(t, values)) }

// rowsOf makes rows of a task that ended now, without values that JSON cannot hold.
func rowsOf(t Task, values []Value) (rows []Row) {
	now := time.Now().UTC()
	for _, v := range values {
		if !math.IsNaN(v.Value) && !math.IsInf(v.Value, 0) {
			rows = append(rows, Row{Variant: t.Variant.Label, Kind: t.Variant.Kind, Order: t.Variant.Order, Repeat: t.Repeat,
				Time: now, Value: v})
		}
	}
	return rows
}

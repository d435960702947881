package layers

import (
	"math"
	"time"

	"gpt2scope/internal/journal"
)

// State is the file in an experiment's directory from which it resumes: its configuration, and the rows of each
// finished task.
var State = journal.Format[Row]{File: "layers.state", Name: "gpt2scope layers",
	Time: func(r Row) time.Time { return r.Time }}

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

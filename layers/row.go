package layers

import (
	"encoding/csv"
	"io"
	"strconv"
	"time"
)

// Value is one measurement of a task.
type Value struct {
	Phase  string  `json:"phase,omitempty"`
	Metric string  `json:"metric"`
	Unit   string  `json:"unit"`
	Value  float64 `json:"value"`

	// What the value itself says: a count is exact, a counter has an uncertainty. N is then 1, else 0: repeats give the
	// interval.
	Low  float64 `json:"low,omitempty"`
	High float64 `json:"high,omitempty"`
	N    int     `json:"n,omitempty"`
}

// Row is a value with its variant, repetition and time: a row of layers.csv.
type Row struct {
	Variant string    `json:"variant"`
	Kind    string    `json:"kind"`
	Order   []int     `json:"order"`
	Repeat  int       `json:"repeat"`
	Time    time.Time `json:"time"` // when the measurement ended
	Value
}

// WriteCSV writes rows in the order in which they were measured, under a line of names. Layers of an order are
// separated by spaces; times are UTC.
func WriteCSV(w io.Writer, rows []Row) error {
	c := csv.NewWriter(w)
	c.Write([]string{"variant", "kind", "layers", "order", "phase", "metric", "unit", "repeat", "value", "time"})
	for _, r := range rows {
		c.Write([]string{r.Variant, r.Kind, strconv.Itoa(len(r.Order)), joined(r.Order, " "), r.Phase, r.Metric, r.Unit,
			strconv.Itoa(r.Repeat), strconv.FormatFloat(r.Value.Value, 'f', -1, 64), r.Time.UTC().Format(time.RFC3339Nano)})
	}
	c.Flush()
	return c.Error()
}

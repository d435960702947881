package report

import "encoding/json"

// columns are the events of a band, one after the other, six numbers each:
//
//	start    ns after the start of the previous event; of the first event, after the origin
//	duration ns
//	name     index in the page's names
//	row      index in the table, -1 for none
//	detail   index in the page's details
//	link     correlation id, 0 for none
type columns struct {
	Data []int64 `json:"data"`

	last int64 // start of the previous event
}

// maxCorrelation bounds the correlation ids on the page, because the script's numbers are float64. CUPTI's ids have 32
// bits.
const maxCorrelation = 1 << 50

// add appends an event, which must not start before the previous one.
func (c *columns) add(start, duration int64, name, row, detail int, correlation uint64) {
	if correlation > maxCorrelation {
		correlation = 0
	}
	c.Data = append(c.Data, start-c.last, duration, int64(name), int64(row), int64(detail), int64(correlation))
	c.last = start
}

// texts are strings that events refer to by index. Index 0 is the empty string.
type texts struct {
	all   []string
	index map[string]int
}

func newTexts() *texts { return &texts{[]string{""}, map[string]int{"": 0}} }

func (t *texts) of(s string) int {
	i, ok := t.index[s]
	if !ok {
		i = len(t.all)
		t.index[s] = i
		t.all = append(t.all, s)
	}
	return i
}

func (t *texts) MarshalJSON() ([]byte, error) { return json.Marshal(t.all) }

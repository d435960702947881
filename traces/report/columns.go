package report

import (
	"encoding/binary"
	"encoding/json"
)

// columns are the events of a band, one after the other. An event is six numbers of variable length (base 128, the
// lowest 7 bits first, as [binary.AppendUvarint] writes them):
//
//	start    ns after the start of the previous event; of the first event, after the origin
//	duration ns
//	name     index in the page's names
//	row      index in the table plus 1, 0 for none
//	detail   index in the page's details
//	link     1 plus the zigzag of the correlation id minus the previous one; 0 for none
//
// A typical event takes 8 to 10 bytes.
type columns struct {
	N    int    `json:"n"`
	Data []byte `json:"data"`

	last int64 // start of the previous event
	link int64 // correlation id of the last event that had one
}

// add appends an event, which must not start before the previous one.
func (c *columns) add(start, duration int64, name, row, detail int, correlation uint64) {
	c.N++
	c.number(uint64(start - c.last))
	c.last = start
	c.number(uint64(duration))
	c.number(uint64(name))
	c.number(uint64(row + 1))
	c.number(uint64(detail))
	if correlation == 0 || correlation > maxCorrelation {
		c.number(0)
		return
	}
	c.number(1 + zigzag(int64(correlation)-c.link))
	c.link = int64(correlation)
}

// maxCorrelation bounds the correlation ids on the page, because the script's numbers are float64. CUPTI's ids have 32
// bits.
const maxCorrelation = 1 << 50

func (c *columns) number(v uint64) { c.Data = binary.AppendUvarint(c.Data, v) }

// zigzag maps 0, -1, 1, -2 to 0, 1, 2, 3.
func zigzag(v int64) uint64 { return uint64(v<<1) ^ uint64(v>>63) }

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

// MarshalJSON implements json.Marshaler.
func (t *texts) MarshalJSON() ([]byte, error) { return json.Marshal(t.all) }

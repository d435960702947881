package report

import (
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"slices"

	"gpt2scope/traces/tables"
	"gpt2scope/traces/window"
)

// queue describes the launches of a table.
type queue struct {
	launches []*window.Launch // by the start of their work
	depths   []window.Depth   // of the whole recording
	deepest  int              // within the table's time
	sums     *tables.Queue
	delays   []int64 // ns, sorted
	times    []int64 // ns of the API calls, sorted
}

// newQueue finds the launches of a table.
func newQueue(table *tables.Table) *queue {
	q := &queue{}
	q.sums, q.launches = table.QueueOf()
	slices.SortStableFunc(q.launches, func(a, b *window.Launch) int { return cmp.Compare(a.First.Time, b.First.Time) })
	for _, l := range q.launches {
		q.delays = append(q.delays, l.Delay())
		q.times = append(q.times, l.Call.Duration)
	}
	slices.Sort(q.delays)
	slices.Sort(q.times)
	if len(q.launches) == 0 {
		return q
	}
	q.depths = table.Window.Depths()
	for i, d := range q.depths {
		if d.Time < table.Time.To && (i+1 == len(q.depths) || q.depths[i+1].Time > table.Time.From) {
			q.deepest = max(q.deepest, d.Work)
		}
	}
	return q
}

// queueJSON is what the script draws, in numbers written as in [columns]. A launch is the
// start of its work in ns after that of the previous launch, and its queueing delay in ns.
// A change of the depth is its time in ns after the previous change, and the depth.
type queueJSON struct {
	N        int    `json:"n"`
	Launches string `json:"launches"`
	Changes  int    `json:"changes"`
	Depth    string `json:"depth"`
}

func (q *queue) json(line *timeline) queueJSON {
	var b, d []byte
	last := line.origin
	for _, l := range q.launches {
		b = binary.AppendUvarint(b, uint64(l.First.Time-last))
		last = l.First.Time
		b = binary.AppendUvarint(b, uint64(l.Delay()))
	}
	last = line.origin
	for _, c := range q.depths {
		d = binary.AppendUvarint(d, uint64(c.Time-last))
		last = c.Time
		d = binary.AppendUvarint(d, uint64(c.Work))
	}
	return queueJSON{len(q.launches), base64.StdEncoding.EncodeToString(b), len(q.depths), base64.StdEncoding.EncodeToString(d)}
}

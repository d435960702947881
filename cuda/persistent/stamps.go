package persistent

import (
	"cmp"
	"fmt"
	"unsafe"

	"gpt2scope/cuda"
	"gpt2scope/traces"
)

const (
	maxSteps = 4096    // decode steps of which stamps are kept, at most
	maxBytes = 1 << 30 // of them, or an eighth of the free memory if that is less
	mostEach = 12      // decode steps of which the times of each SM are kept
)

// Stamps records when each SM did what in each step of the launches of a session. The stamps stay on the device until
// the recording ends, one launch's after another's: gpt2 has 256 KiB a decode step.
type Stamps struct {
	stream        *cuda.Stream
	areas         *cuda.Buffer // zero where nothing has stamped
	used          int64        // bytes of it
	steps, blocks int          // of a decode step, with the choice of the token; of the grid
	launches      []*Stamped
	count         int // decode steps so far
}

// Stamped are the stamps of one launch.
type Stamped struct {
	Rows  []Row  // (decode steps, steps), after Finish
	Apart *Apart // the kernel that sampled the token, nil if the persistent kernel did

	at    int64 // where it stamps
	first int   // decode steps recorded before it
	n     int   // its own
}

// Apart is the kernel that samples the token of a decode step.
type Apart struct {
	Name   string
	Blocks int
}

// Row is a step of a decode step: from when the last SM published the outputs of the step before to when the last one
// published its own, in ns of the device's clock. End is 0 if no SM has left a stamp.
type Row struct {
	Begin, End uint64
	Inside     traces.Inside
	Rows, Made int // of a pass that verifies drafts, in its last row: its rows, and the tokens that it made
}

// NewStamps makes room for the stamps of launches.
func (k *Kernel) NewStamps() (*Stamps, error) {
	s := &Stamps{stream: k.Stream, steps: k.Steps() + 1, blocks: k.Blocks()}
	available, _, err := k.Stream.Device().Memory()
	if err != nil {
		return s, err
	}
	size := max(min(maxBytes, int64(available/8), s.bytes(maxSteps)), s.bytes(cuda.PersistentTokens))
	if s.areas, err = k.Stream.Device().Alloc(size); err != nil {
		return s, fmt.Errorf("stamps of decode steps: %w", err)
	}
	return s, s.stream.Set(s.areas, 0, 0, size)
}

// bytes are those of the stamps of n decode steps. The kernel that samples the token of a launch of one step stamps
// after them.
func (s *Stamps) bytes(n int) int64 {
	size := int64(n*s.steps*s.blocks) * int64(unsafe.Sizeof(cuda.PersistentStamp{}))
	if n == 1 {
		size += cuda.StampArea
	}
	return size
}

// Begin begins a launch of n decode steps, and returns where it stamps; nil and 0 if there is no room.
func (s *Stamps) Begin(n int) (*Stamped, cuda.Ptr) {
	if s.used+s.bytes(n) > s.areas.Size() {
		return nil, 0
	}
	l := &Stamped{at: s.used, first: s.count, n: n}
	s.used += s.bytes(n)
	s.count += n
	s.launches = append(s.launches, l)
	return l, s.areas.Ptr() + cuda.Ptr(l.at)
}

// SampleApart launches the kernel that samples the token of the last launch, which is of one step.
func (s *Stamps) SampleApart(l *Stamped, launch func() error) error {
	own := s.bytes(1) - cuda.StampArea
	if err := s.stream.StampInto(s.areas.Ptr()+cuda.Ptr(l.at+own), 1); err != nil {
		return err
	}
	l.Apart = &Apart{}
	err := launch()
	if err == nil {
		l.Apart.Name, l.Apart.Blocks, err = s.stream.StampedBy(0)
	}
	return cmp.Or(err, s.stream.StampInto(0, 0))
}

// Drop takes back the last launch, which failed.
func (s *Stamps) Drop() {
	last := s.launches[len(s.launches)-1]
	s.launches, s.used, s.count = s.launches[:len(s.launches)-1], last.at, last.first
}

// Finish reads the stamps, when the device is idle, and sums them up.
func (s *Stamps) Finish() error {
	// The times of each SM are kept of one decode step in so many. A launch has 8 or 16, so that these have other places in
	// each launch.
	every := 1
	for s.count > mostEach*every {
		every *= 3
	}
	for _, l := range s.launches {
		stamps := make([]cuda.PersistentStamp, (s.bytes(l.n)+31)/int64(unsafe.Sizeof(cuda.PersistentStamp{})))
		raw := unsafe.Slice((*byte)(unsafe.Pointer(&stamps[0])), s.bytes(l.n))
		if err := s.areas.Read(l.at, raw); err != nil {
			return err
		}
		own := l.n * s.steps * s.blocks
		l.sum(stamps[:own], s.steps, s.blocks, every)
		if l.Apart != nil {
			pairs := unsafe.Slice((*[2]uint64)(unsafe.Pointer(&stamps[own])), min(l.Apart.Blocks, cuda.StampArea/16))
			l.sumApart(pairs)
		}
	}
	return nil
}

// Free frees the areas. A second call does nothing.
func (s *Stamps) Free() error {
	if s.areas == nil {
		return nil
	}
	return s.areas.Free()
}

// sum sums up the stamps of a launch: (decode steps, steps, blocks).
func (l *Stamped) sum(stamps []cuda.PersistentStamp, steps, blocks, every int) {
	rows := make([]Row, l.n*steps)
	var from uint64
	for i := range rows {
		row, at := &rows[i], stamps[i*blocks:(i+1)*blocks]
		first := uint64(0)
		for _, s := range at {
			if s[cuda.PersistentPublished] != 0 {
				row.Rows, row.Made = int(s[cuda.PersistentMade]%256), int(s[cuda.PersistentMade]/256)
				row.End = max(row.End, s[cuda.PersistentPublished])
				if ready := cmp.Or(s[cuda.PersistentReady], s[cuda.PersistentArrived], s[cuda.PersistentPublished]); first == 0 ||
					ready < first {
					first = ready
				}
			}
		}
		if row.End == 0 {
			continue
		}
		row.Begin = min(cmp.Or(from, first), row.End)
		from = max(from, row.End)
		row.End = from
		in := &row.Inside
		if (l.first+i/steps)%every == 0 {
			in.Each = make([]traces.Parts, blocks)
		}
		for b, s := range at {
			p, ok := partsOf(s, row.Begin, row.End)
			if !ok {
				continue
			}
			in.SMs++
			in.Add(p)
			if in.Each != nil {
				in.Each[b] = p
			}
		}
		n := int64(in.SMs)
		in.Parts = traces.Parts{Weights: in.Weights / n, Inputs: in.Inputs / n, Compute: in.Compute / n,
			Imbalance: in.Imbalance / n}
	}
	l.Rows = rows
}

// partsOf divides the time of a step at one block: from a time, when the last block had published the outputs of the
// step before, to that at which the last one published its own. A block that was ahead of others has waited for
// nothing. ok is false if the block has no part in the step.
func partsOf(s cuda.PersistentStamp, from, to uint64) (p traces.Parts, ok bool) {
	if s[cuda.PersistentPublished] == 0 {
		return p, false
	}
	ready := min(max(s[cuda.PersistentReady], from), to)
	arrived := min(max(s[cuda.PersistentArrived], ready), to)
	published := min(max(s[cuda.PersistentPublished], arrived), to)
	return traces.Parts{Weights: int64(ready - from), Inputs: int64(arrived - ready), Compute: int64(published - arrived),
		Imbalance: int64(to - published)}, true
}

// sumApart sums up the stamps of the blocks of the kernel that sampled the token: start and end of each.
func (l *Stamped) sumApart(pairs [][2]uint64) {
	row := &l.Rows[len(l.Rows)-1]
	*row = Row{}
	for _, p := range pairs {
		if p[0] != 0 && (row.Begin == 0 || p[0] < row.Begin) {
			row.Begin = p[0]
		}
		row.End = max(row.End, p[1])
	}
}

package persistent

import (
	"cmp"
	"errors"
	"fmt"
	"sync"
	"unsafe"

	"gpt2scope/cuda"
	"gpt2scope/gpt2"
	"gpt2scope/traces"
)

const (
	maxSteps    = 4096    // decode steps whose stamps stay on the device
	maxBytes    = 1 << 30 // of them, or an eighth of the free memory if that is less
	fewestAreas = 6       // up to three launches are under way, others are copied and cleared
	stagings    = 4
	mostEach    = 12 // decode steps of which the times of each SM are kept
)

// Stamps records when each SM did what in each step of the launches of a session.
//
// Recording must not slow the launches. The stamps of a launch stay on the device, in an area of its own, as far as
// there is room: gpt2 has 256 KiB a decode step. After that, areas are used again: when a token of the next launch has
// been read, a launch is done, and its area is copied to pinned memory on a stream of its own. Goroutines sum up what
// the SMs did.
type Stamps struct {
	stream, copies *cuda.Stream
	areas          *cuda.Buffer // zero if not in use: see room
	steps, blocks  int          // of a decode step, with the choice of the token; of the grid
	tokens         int          // decode steps that an area has room for
	most           int          // launches that have an area
	staging        [stagings]staging

	launches []*Stamped
	copied   int // launches whose copy was begun
	summing  int // launches that were given to a goroutine
	summed   sync.WaitGroup

	count int // decode steps so far
	every int // the times of each SM are kept of one decode step in so many
}

// staging is where the stamps of a launch are copied to.
type staging struct {
	host   *cuda.HostBuffer
	copied *cuda.Event   // the copy is done, and the area on the device is zero again
	free   chan struct{} // has a value while nothing is to be read there
}

// Stamped are the stamps of one launch.
type Stamped struct {
	Rows  []Row  // (decode steps, steps), after Finish
	Apart *Apart // the kernel that sampled the token, nil if the persistent kernel did

	step  uint64 // the session's number of its first decode step
	bytes int64
	first int    // decode steps recorded before it
	each  []bool // of each decode step, whether the times of each SM are kept
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
}

// NewStamps makes room for the stamps of launches of up to so many decode steps.
func (k *Kernel) NewStamps(tokens int) (*Stamps, error) {
	s := &Stamps{stream: k.Stream, steps: k.Steps() + 1, blocks: k.Blocks(), tokens: tokens, every: 1}
	dev := k.Stream.Device()
	available, _, err := dev.Memory()
	if err != nil {
		return s, err
	}
	s.most = int(min(max(min(maxBytes, int64(available/8))/s.room(), fewestAreas), int64(maxSteps/tokens)))
	if s.copies, err = dev.NewStream(); err != nil {
		return s, err
	}
	size := int64(s.most) * s.room()
	if s.areas, err = dev.Alloc(size); err != nil {
		return s, fmt.Errorf("stamps of %d launches of %d decode steps: %w", s.most, tokens, err)
	}
	if err := s.stream.Set(s.areas, 0, 0, size); err != nil {
		return s, err
	}
	for i := range s.staging {
		to := &s.staging[i]
		to.free = make(chan struct{}, 1)
		to.free <- struct{}{}
		if to.host, err = dev.AllocHost(s.room()); err != nil {
			return s, fmt.Errorf("stamps of %d decode steps: %w", tokens, err)
		}
		if to.copied, err = dev.NewEvent(); err != nil {
			return s, err
		}
	}
	return s, nil
}

// Tokens is how many decode steps a launch may have.
func (s *Stamps) Tokens() int { return s.tokens }

// room is the size of an area: (tokens, steps, blocks) cuda.DecodeStamp, or those of one step and after them the area
// of the kernel that samples its token.
func (s *Stamps) room() int64 {
	return max(s.bytes(s.tokens), s.bytes(1)+cuda.StampArea)
}

// bytes are those of the stamps of n decode steps.
func (s *Stamps) bytes(n int) int64 {
	return int64(n*s.steps*s.blocks) * int64(unsafe.Sizeof(cuda.DecodeStamp{}))
}

// Begin begins a launch of n decode steps, and returns where it stamps. step is the number of its first decode step,
// and read that of the decode step that the host reads next.
func (s *Stamps) Begin(read, step uint64, n int) (*Stamped, cuda.Ptr, error) {
	if err := s.recycle(read); err != nil {
		return nil, 0, err
	}
	l := &Stamped{step: step, bytes: s.bytes(n), first: s.count, each: make([]bool, n)}
	for t := range l.each {
		l.each[t] = s.keeps(l, t)
	}
	s.count += n
	if s.count > mostEach*s.every {
		s.thin()
	}
	s.launches = append(s.launches, l)
	return l, s.areas.Ptr() + cuda.Ptr(s.area(len(s.launches)-1)), nil
}

// keeps tells whether the times of each SM are kept of a decode step of a launch: of each every-th of the recording. A
// launch has 8, so that these have other places in each launch.
func (s *Stamps) keeps(l *Stamped, t int) bool { return (l.first+t)%s.every == 0 }

// thin keeps the times of each SM of a third of the decode steps of which they were kept so far.
func (s *Stamps) thin() {
	s.every *= 3
	s.summed.Wait()
	for _, l := range s.launches {
		for t := range l.each {
			if l.each[t] = l.each[t] && s.keeps(l, t); l.each[t] || l.Rows == nil {
				continue
			}
			rows := l.Rows[t*s.steps : (t+1)*s.steps]
			for i := range rows {
				rows[i].Inside.Each = nil
			}
		}
	}
}

// recycle makes room for one more launch: it clears the area that this one will use, and as far as the launches are
// done those of the next ones.
func (s *Stamps) recycle(read uint64) error {
	next := len(s.launches)
	done := func() bool { return s.copied+1 < next && s.launches[s.copied+1].step < read }
	for next-s.copied > s.most-fewestAreas+1 && s.copied-s.summing < stagings && done() {
		if err := s.copy(); err != nil {
			return err
		}
	}
	for s.summing < s.copied {
		if done, err := s.staged(s.summing).copied.Query(); err != nil {
			return err
		} else if !done {
			break
		}
		s.sum()
	}
	if next-s.summing < s.most {
		return nil
	}
	if err := s.stream.Synchronize(); err != nil {
		return err
	}
	return s.drain(next - s.most + 1)
}

// SampleApart launches the kernel that samples the token of the last launch, which is of one step.
func (s *Stamps) SampleApart(l *Stamped, launch func() error) error {
	if err := s.stream.StampInto(s.areas.Ptr()+cuda.Ptr(s.area(len(s.launches)-1)+s.bytes(1)), 1); err != nil {
		return err
	}
	l.Apart = &Apart{}
	err := launch()
	if err == nil {
		l.Apart.Name, l.Apart.Blocks, err = s.stream.StampedBy(0)
	}
	l.bytes = s.bytes(1) + 16*int64(min(l.Apart.Blocks, cuda.StampArea/16))
	return cmp.Or(err, s.stream.StampInto(0, 0))
}

// Drop takes back the last launch, which failed.
func (s *Stamps) Drop() { s.launches = s.launches[:len(s.launches)-1] }

// area is where the stamps of a launch begin among the areas.
func (s *Stamps) area(launch int) int64 { return int64(launch%s.most) * s.room() }

func (s *Stamps) staged(launch int) *staging { return &s.staging[launch%stagings] }

// copy begins to copy the stamps of the next launch, which is done, and to clear its area.
func (s *Stamps) copy() error {
	to, from, n := s.staged(s.copied), s.area(s.copied), s.launches[s.copied].bytes
	<-to.free
	s.copied++
	return cmp.Or(s.copies.CopyToHost(to.host, 0, s.areas, from, n), s.copies.Set(s.areas, from, 0, n),
		s.copies.Record(to.copied))
}

// sum sums up, on a goroutine, the stamps of the next launch, which are copied.
func (s *Stamps) sum() {
	from, l := s.staged(s.summing), s.launches[s.summing]
	s.summing++
	bytes, own := from.host.Bytes(), s.bytes(len(l.each))
	stamps := unsafe.Slice((*cuda.DecodeStamp)(unsafe.Pointer(&bytes[0])), own/int64(unsafe.Sizeof(cuda.DecodeStamp{})))
	var pairs [][2]uint64
	if n := (l.bytes - own) / 16; n > 0 {
		pairs = unsafe.Slice((*[2]uint64)(unsafe.Pointer(&bytes[own])), n)
	}
	s.summed.Go(func() {
		l.sum(stamps, s.steps, s.blocks)
		l.sumApart(pairs)
		from.free <- struct{}{}
	})
}

// drain copies and gives to goroutines what is left of the first n launches, all of which are done.
func (s *Stamps) drain(n int) error {
	for s.summing < n {
		for s.copied < min(n, s.summing+stagings) {
			if err := s.copy(); err != nil {
				return err
			}
		}
		if err := s.staged(s.summing).copied.Synchronize(); err != nil {
			return err
		}
		s.sum()
	}
	return nil
}

// sum sums up the stamps of a launch: (decode steps, steps, blocks).
func (l *Stamped) sum(stamps []cuda.DecodeStamp, steps, blocks int) {
	rows := make([]Row, len(l.each)*steps)
	var from uint64
	for i := range rows {
		row, at := &rows[i], stamps[i*blocks:(i+1)*blocks]
		first := uint64(0)
		for _, s := range at {
			if s[cuda.DecodePublished] != 0 {
				row.End = max(row.End, s[cuda.DecodePublished])
				if ready := cmp.Or(s[cuda.DecodeReady], s[cuda.DecodeArrived], s[cuda.DecodePublished]); first == 0 ||
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
		if l.each[i/steps] {
			in.Each = make([]traces.Parts, blocks)
		}
		for b, s := range at {
			times := gpt2.BlockTimes{Ready: s[cuda.DecodeReady], Arrived: s[cuda.DecodeArrived],
				Published: s[cuda.DecodePublished]}
			p, ok := times.Parts(row.Begin, row.End)
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

// sumApart sums up the stamps of the blocks of the kernel that sampled the token: start and end of each.
func (l *Stamped) sumApart(pairs [][2]uint64) {
	if l.Apart == nil {
		return
	}
	row := &l.Rows[len(l.Rows)-1]
	*row = Row{}
	for _, p := range pairs {
		if p[0] != 0 && (row.Begin == 0 || p[0] < row.Begin) {
			row.Begin = p[0]
		}
		row.End = max(row.End, p[1])
	}
}

// Finish sums up what is left, when the device is idle.
func (s *Stamps) Finish() error {
	err := s.drain(len(s.launches))
	s.summed.Wait()
	return err
}

// Free frees the areas. A second call does nothing.
func (s *Stamps) Free() error {
	s.summed.Wait()
	var err error
	if s.copies != nil {
		err = errors.Join(s.copies.Synchronize(), s.copies.Close())
		s.copies = nil
	}
	if s.areas != nil {
		err = errors.Join(err, s.areas.Free())
	}
	for i := range s.staging {
		to := &s.staging[i]
		if to.host != nil {
			err = errors.Join(err, to.host.Free())
		}
		if to.copied != nil {
			err = errors.Join(err, to.copied.Close())
		}
		*to = staging{}
	}
	return err
}
